"""What runs on the workers of a Dask cluster: a long-running task per worker engine.

The task secedes from the worker's threads, so that blocks can be computed there meanwhile, but
stays in `processing`: idle timeouts, adaptive scaling and the dashboard see a cluster at work.
Requests arrive over Dask's own comm, on the worker's port. Event loops on both sides cost more
than short iterations, so a plain TCP connection is handed over to the engine once it is made: then
its thread and the fit's thread exchange messages without them.
"""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Sequence
from typing import Any

import distributed
from distributed.core import Status

from exactmeans.data.arrays import Matrix
from exactmeans.engine.cluster.channel import Channel
from exactmeans.engine.cluster.worker_engine import BlockLostError, WorkerEngine

# Among the operations of a Dask worker.
OPERATION = "exactmeans_request"
HAND_OVER = "exactmeans_hand_over"
GREETING = b"ready"  # the first message of an engine that reads a connection
_POLL = 0.5  # seconds between two checks whether the task is still wanted
# Rows that take more than this share of a worker's memory limit stay in Dask's store, which spills
# them from a share of 0.6 on, and are read block by block.
_MOST_MEMORY = 0.5

_Inbox = queue.SimpleQueue[tuple[bytes, Any, Any] | Channel | None]
_inboxes: dict[str, _Inbox] = {}  # of the engines of this process, by token


def install(dask_worker: Any) -> None:
    """Make a worker accept requests."""
    dask_worker.handlers[OPERATION] = _receive
    dask_worker.handlers[HAND_OVER] = _hand_over


async def _receive(token: str, message: bytes | None = None) -> Any:
    """The response to a message; None if there is no such engine; no message ends the engine."""
    inbox = _inboxes.get(token)
    if inbox is None:
        return None
    if message is None:
        inbox.put(None)
        return None
    loop = asyncio.get_running_loop()
    response = loop.create_future()
    inbox.put((message, response, loop))
    return await response


async def _hand_over(comm: Any, token: str) -> None:
    """Let the thread of an engine read this connection; without such an engine, close it."""
    channel, inbox = taken(comm), _inboxes.get(token)
    if channel is not None and inbox is not None:
        inbox.put(channel)
    elif channel is not None:
        channel.drop()


def taken(comm: Any) -> Channel | None:
    """The socket of a connection of Dask, which lets go of it; None if it is not plain TCP."""
    stream = getattr(comm, "stream", None)
    channel = None
    if stream is not None and comm.peer_address.startswith("tcp://"):
        channel = Channel(stream.socket.dup())
    comm.abort()  # closes the socket, but not the connection, which the duplicate holds
    return channel


def serve(
    token: str,
    number: int,
    keys: list[Any],
    edges: list[int],
    size: int,
    weight_keys: list[Any] | None,
    n_jobs: int | None,
) -> None:
    """Respond to requests until a request ends the task, or until the client is gone.

    `keys`: the blocks in this worker's store, with `size` bytes in total.
    """
    worker = distributed.get_worker()
    limit = worker.memory_manager.memory_limit
    in_memory = limit is None or size <= _MOST_MEMORY * limit
    store = StoredBlocks(worker.data, keys, edges, weight_keys, in_memory=in_memory)
    engine = WorkerEngine(number, store, _threads(worker, n_jobs))
    key, inbox = worker.get_current_task(), _Inbox()
    _inboxes[token] = inbox
    distributed.secede()
    try:
        while _wanted(worker, key):
            try:
                received = inbox.get(timeout=_POLL)
            except queue.Empty:
                continue
            if received is None:
                return
            if isinstance(received, Channel):
                try:
                    received.send(GREETING)
                    received.serve(engine.respond_to, lambda: _wanted(worker, key))
                    return
                except OSError:
                    continue  # messages come as before
                finally:
                    received.drop()
            message, response, loop = received
            _answer(response, loop, engine.respond_to(message))
    finally:
        del _inboxes[token]
        while not inbox.empty():
            left = inbox.get()
            if isinstance(left, Channel):
                left.drop()
            elif left is not None:
                _answer(left[1], left[2], None)


def _wanted(worker: Any, key: Any) -> bool:
    task = worker.state.tasks.get(key)
    alive = worker.status in (Status.running, Status.paused, Status.closing_gracefully)
    return alive and task is not None and task.state in ("executing", "long-running")


def _answer(response: Any, loop: Any, value: bytes | None) -> None:
    def put() -> None:
        if not response.done():
            response.set_result(value)

    loop.call_soon_threadsafe(put)


def _threads(worker: Any, n_jobs: int | None) -> int:
    """`n_jobs` resolved against the threads of the worker."""
    threads = int(worker.state.nthreads)
    if n_jobs is None:
        return threads
    return n_jobs if n_jobs > 0 else max(1, threads + 1 + n_jobs)


class StoredBlocks:
    """Blocks in the store of a Dask worker, which may spill them to disk."""

    def __init__(
        self,
        data: Any,
        keys: Sequence[Any],
        edges: list[int],
        weight_keys: Sequence[Any] | None,
        *,
        in_memory: bool,
    ) -> None:
        self._data, self._keys, self._weight_keys = data, keys, weight_keys
        self.edges, self.in_memory = edges, in_memory

    def __len__(self) -> int:
        return len(self._keys)

    def read(self, b: int) -> Matrix:
        block: Matrix = self._get(self._keys[b])
        return block

    def weights(self) -> list[Any] | None:
        return None if self._weight_keys is None else [self._get(key) for key in self._weight_keys]

    def _get(self, key: Any) -> Any:
        try:
            return self._data[key]
        except KeyError:
            raise BlockLostError(str(key)) from None
