"""Calls of drivers that Ctrl-C can end.

Drivers wait for the database in C, where Python cannot raise KeyboardInterrupt. So a thread makes
the call, and the caller waits for it where Python can; if it is interrupted, it cancels the
statement.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator, Iterator
from typing import Any, TypeVar

T = TypeVar("T")
_AHEAD = 2  # batches read ahead
_POLL_SECONDS = 0.5  # on Windows, Ctrl-C takes effect only between waits


def interruptible(call: Callable[[], T], cancel: Callable[[], None]) -> T:
    """The result of a call; Ctrl-C cancels it and waits until it has ended."""
    (result,) = prefetched(_once(call), cancel)
    return result


def _once(call: Callable[[], T]) -> Generator[T, None, None]:
    yield call()


def prefetched(
    batches: Generator[T, None, None], cancel: Callable[[], None]
) -> Generator[T, None, None]:
    """The same batches, read ahead by a thread that ends before this generator does."""
    waiting: queue.Queue[tuple[str, Any]] = queue.Queue(_AHEAD)
    stopped = threading.Event()

    def put(kind: str, what: Any) -> None:
        while not stopped.is_set():
            try:
                waiting.put((kind, what), timeout=_POLL_SECONDS)
                return
            except queue.Full:
                continue

    def run() -> None:
        try:
            for batch in batches:
                put("batch", batch)
                if stopped.is_set():
                    break
            put("end", None)
        except BaseException as error:
            put("error", error)
        finally:
            batches.close()  # in the thread that ran it: a cursor may be open

    thread = threading.Thread(target=run, name="exactmeans-database", daemon=True)
    thread.start()
    ended = False
    try:
        for kind, what in _taken(waiting):
            ended = kind != "batch"
            if kind == "error":
                raise what
            if ended:
                return
            yield what
    finally:
        stopped.set()
        if not ended:  # Ctrl-C, or the caller stopped early
            cancel()
        thread.join()


def _taken(waiting: queue.Queue[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    while True:
        try:
            yield waiting.get(timeout=_POLL_SECONDS)
        except queue.Empty:
            continue
