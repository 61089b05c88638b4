"""The sites of a Dask cluster, one per worker: made, asked, and made again when a worker dies.

A few sites are asked over lines, without Dask. Many, and those that cannot be called from here, are
asked by a task each, and what they answer is put together on the workers in a tree of fixed shape.
Nothing here, nor on the scheduler, holds anything of the size of the data.
"""

from __future__ import annotations

import contextlib
import pickle
import secrets
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import distributed
import numpy as np
import scipy.sparse as sp
from dask.delayed import Delayed
from distributed.comm import get_address_host

from exactmeans.engine.cluster.channel import TOKEN_BYTES, Address, Channel, listen
from exactmeans.engine.cluster.reduce import merged
from exactmeans.engine.cluster.worker_engine import (
    Centres,
    Request,
    Response,
    WorkerEngine,
    make_worker_engine,
)
from exactmeans.engine.local.blocks import bytes_of

FAN_IN = 8  # answers that are put together by one task, or here
_SMALL = 2**20  # bytes that may go through the scheduler in a question to all sites
_ATTEMPTS = 6  # to put a question to a site whose workers keep dying


# What runs on workers -----------------------------------------------------------------------------


def _answer(
    site: WorkerEngine,
    ask: Request,
    log: list[Request] | None = None,
    weights: list[Any] | None = None,
) -> Response:
    return site.answer(ask, log, weights)


def _open_line(site: WorkerEngine, token: bytes) -> Address:
    """Where the site can be called."""

    def answer(question: bytes) -> bytes:
        try:
            return pickle.dumps(_answer(site, *pickle.loads(question)), 5)
        except Exception as error:
            return pickle.dumps(error, 5)

    address = distributed.get_worker().address
    kind = address.partition("://")[0]
    if kind not in ("tcp", "inproc"):
        raise OSError("Others may encrypt what they send.")
    return listen(get_address_host(address) if kind == "tcp" else "127.0.0.1", token, answer)


def _hold(thing: Any) -> Any:
    """Workers pass it on among each other, and the scheduler can have it made again."""
    return thing


# The sites ----------------------------------------------------------------------------------------


class Workers:
    """`log` is what leads a new site to the present state, `at`; both grow with `tell`."""

    def __init__(self, client: Any, pieces: list[Any], weights: list[Any] | None, how: Any) -> None:
        """Blocks, delayed or futures; their weights, which may be arrays; see make_site for `how`.

        Weights that are arrays are sent to sites that miss them: no task depends on what would be
        gone with a worker.
        """
        self._client, self._how = client, how
        self._pieces, self._weights = pieces, weights
        self._sent = weights is not None and isinstance(weights[0], np.ndarray)
        self._sites: dict[int, Any] = {}
        self._loads: list[Any] = []  # futures of what sites are made of, if they are ours
        self._called = True  # over lines, not by tasks
        self._lines: dict[int, Channel] = {}  # none to a site whose worker is gone
        self.at = -1
        self.log: list[Request] = []
        try:
            self._make()
        except BaseException:  # Ctrl-C too
            self.close()
            raise

    def _make(self) -> None:
        chunks = self._futures(self._pieces)
        distributed.wait(chunks)
        groups = _by_worker(self._client, chunks)
        #: which blocks each site has
        self.places = {number: places for number, (_, places) in enumerate(groups)}
        self._sites = {
            number: self._site(number, [chunks[place] for place in places], [worker])
            for number, (worker, places) in enumerate(groups)
        }
        self._called = len(groups) <= FAN_IN
        if self._called:
            with contextlib.suppress(distributed.CancelledError):  # somebody died: see put
                self._open_lines({n: [worker] for n, (worker, _) in enumerate(groups)})
        _release(self._loads)

    def _site(self, number: int, chunks: list[Any], workers: list[str] | None) -> Any:
        weights = None if self._sent else self._weights_of(number)
        return self._client.submit(
            make_worker_engine,
            number,
            self.places[number],
            chunks,
            weights and self._futures(weights),
            (*self._how, self._sent),
            workers=workers,
            allow_other_workers=workers is not None,
            pure=False,
        )

    def _weights_of(self, number: int) -> list[Any] | None:
        if self._weights is None:
            return None
        return [self._weights[place] for place in self.places[number]]

    def _futures(self, pieces: list[Any]) -> list[Any]:
        """Of all; those that are some already stay what they are."""
        made = self._client.compute([piece for piece in pieces if isinstance(piece, Delayed)])
        self._loads += made
        lazy = iter(made)
        return [next(lazy) if isinstance(piece, Delayed) else piece for piece in pieces]

    def keep(self, numbers: Iterable[int]) -> None:
        """The others have no rows."""
        for number in self._sites.keys() - set(numbers):
            del self.places[number], self._sites[number]
            self._hang_up(number)

    def close(self) -> None:
        """Let the workers forget, and drop what they have not begun."""
        self._hang_up(*self._lines)
        _release(self._loads)
        _release(self._sites.values())
        self._sites = {}

    # -- questions -----------------------------------------------------------------------------

    def tell(self, what: str, *arguments: Any) -> Any:
        """A question that changes the state of the sites."""
        ask = Request(what, arguments, self.at, self.at + 1)
        answer = self.put(ask)
        self.at = ask.until
        self.log.append(ask)
        return answer

    def ask(self, what: str, *arguments: Any) -> Any:
        return self.put(Request(what, arguments, self.at, self.at))

    def ask_in_turn(self, what: str, *arguments: Any) -> list[Any]:
        """For answers that are too large to come all at once."""
        ask = Request(what, arguments, self.at, self.at)
        return [item for number in self._sites for item in self.put(ask, (number,))]

    def put(self, ask: Request, among: tuple[int, ...] | None = None) -> Any:
        what = ask.arguments[0] if ask.what == "seed" else ask.what
        missing = tuple(self._sites) if among is None else among
        replies: list[Response] = []
        log: list[Request] | None = None
        for _ in range(_ATTEMPTS):
            try:
                reply = (
                    self._by_lines(what, ask, missing, log)
                    if self._called
                    else self._by_tasks(what, ask, missing, log)
                )
            except distributed.CancelledError:
                reply = Response(lost=missing)
            replies.append(Response(reply.value))
            if not reply.lost:
                return merged(what, replies).value
            missing, log = reply.lost, self.log
            with contextlib.suppress(distributed.CancelledError):  # more died meanwhile
                self._mend(missing)
        raise RuntimeError(f"Workers died {_ATTEMPTS} times in a row: is their memory too small?")

    def _by_lines(
        self, what: str, ask: Request, numbers: tuple[int, ...], log: list[Request] | None
    ) -> Response:
        question = pickle.dumps((ask, log), 5)
        for number in numbers:
            if log is not None and self._sent:
                question = pickle.dumps((ask, log, self._weights_of(number)), 5)
            self._over(number, Channel.send, question)
        replies = []
        for number in numbers:
            answer = self._over(number, Channel.receive)
            reply = Response(lost=(number,)) if answer is None else pickle.loads(answer)
            if isinstance(reply, Exception):
                raise reply
            replies.append(reply)
        return merged(what, replies)

    def _over(self, number: int, act: Callable[..., Any], *arguments: Any) -> Any:
        """Use the line to a site; None if there is none, or none any more: its worker is gone."""
        line = self._lines.get(number)
        if line is not None:
            try:
                return act(line, *arguments)
            except OSError:
                self._hang_up(number)
        return None

    def _by_tasks(
        self, what: str, ask: Request, numbers: tuple[int, ...], log: list[Request] | None
    ) -> Response:
        """Put answers together where they are, then the last few here."""
        given: Any = self.held(ask) if len(numbers) * _size(ask) > _SMALL else ask
        started: list[Any] = []
        try:
            if log is None:
                replies = self.map(_answer, numbers, ask=given)
            else:
                past = self.held(log)
                weights = [self._scattered(number) for number in numbers]
                sites = [self._sites[number] for number in numbers]
                replies = [
                    self._client.submit(_answer, site, given, past, own, pure=False)
                    for site, own in zip(sites, weights, strict=True)
                ]
            started += replies
            while len(replies) > FAN_IN:
                batches = [replies[b : b + FAN_IN] for b in range(0, len(replies), FAN_IN)]
                replies = [
                    self._client.submit(merged, what, batch, pure=False) for batch in batches
                ]
                started += replies
            return merged(what, self._client.gather(replies))
        except BaseException:  # Ctrl-C too
            self._client.cancel(started)
            raise

    def map(
        self, work: Callable[..., Any], numbers: Iterable[int] | None = None, **shared: Any
    ) -> list[Any]:
        """Futures of work on sites."""
        over = [self._sites[number] for number in (self._sites if numbers is None else numbers)]
        futures: list[Any] = self._client.map(work, over, pure=False, batch_size=None, **shared)
        return futures

    def held(self, thing: Any) -> Any:
        with warnings.catch_warnings():
            # Centres may be large, and go to the scheduler once.
            warnings.filterwarnings("ignore", "Sending large graph")
            return self._client.submit(_hold, thing, pure=False)

    # -- what was lost -------------------------------------------------------------------------

    def _mend(self, numbers: tuple[int, ...]) -> None:
        """Dask makes sites again, but for those of blocks that it was given and lost."""
        self._wait(numbers)  # what became of them may not be known yet
        for number in numbers:
            if self._sites[number].status in ("cancelled", "lost"):
                chunks = self._futures([self._pieces[place] for place in self.places[number]])
                if any(chunk.status == "cancelled" for chunk in chunks):
                    raise RuntimeError(
                        "X has blocks that died with their worker, and no task makes them again."
                    )
                self._sites[number] = self._site(number, chunks, None)
        gone = [number for number in numbers if number not in self._lines]
        if self._called and gone:
            self._wait(gone)
            sites = [self._sites[number] for number in gone]
            found = self._client.who_has(sites)
            where = [list(found.get(site.key, ())) or None for site in sites]
            self._open_lines(dict(zip(gone, where, strict=True)))
        _release(self._loads)

    def _scattered(self, number: int) -> Any:
        """Weights that a site has to be sent, on some worker."""
        weights = self._weights_of(number) if self._sent else None
        return weights and self._client.scatter([weights], hash=False)[0]

    def _wait(self, numbers: Iterable[int]) -> None:
        with contextlib.suppress(distributed.CancelledError):
            distributed.wait([self._sites[number] for number in numbers])

    def _open_lines(self, workers: dict[int, list[str] | None]) -> None:
        """To where the sites are; if one cannot be called, none is."""
        token = secrets.token_bytes(TOKEN_BYTES)
        opened = [
            self._client.submit(
                _open_line,
                self._sites[number],
                token,
                workers=where,
                allow_other_workers=where is not None,
                pure=False,
            )
            for number, where in workers.items()
        ]
        try:
            for number, address in zip(workers, self._client.gather(opened), strict=True):
                self._lines[number] = Channel(address, token)
        except OSError:
            self._hang_up(*self._lines)
            self._called = False

    def _hang_up(self, *numbers: int) -> None:
        for number in numbers:
            if number in self._lines:
                self._lines.pop(number).close()


def _release(futures: Any) -> None:
    """Whoever else has them still has them; what nobody wants is not computed."""
    for future in futures:
        future.release()
    if isinstance(futures, list):
        futures.clear()


def _size(ask: Request) -> int:
    """About how many bytes a question takes."""
    given = [a.rows if isinstance(a, Centres) else a for a in ask.arguments]
    return sum(bytes_of(a) for a in given if isinstance(a, np.ndarray) or sp.issparse(a))


def _by_worker(client: Any, chunks: list[Any]) -> list[tuple[str, list[int]]]:
    """Which blocks go to which worker: where they are, unless that has far more than its share."""
    threads: dict[str, int]
    while not (threads := client.nthreads()):  # all have died, and others are to come
        client.wait_for_workers(1)
    holders: dict[Any, Any] = client.who_has(chunks)
    share = len(chunks) / sum(threads.values())
    groups: dict[str, list[int]] = {}
    for place, chunk in enumerate(chunks):

        def load(worker: str) -> tuple[float, str]:
            return len(groups.get(worker, ())) / threads[worker], worker

        here = [worker for worker in holders.get(chunk.key, ()) if worker in threads]
        best = min(here or threads, key=load)
        if load(best)[0] >= 1.25 * share + 1 / threads[best]:
            best = min(threads, key=load)
        groups.setdefault(best, []).append(place)
    return sorted(groups.items())
