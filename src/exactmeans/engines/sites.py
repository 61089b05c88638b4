"""The sites of a Dask cluster, one per worker: made, asked, and made again when a worker dies.

A few sites are asked one by one, as Dask actors, which takes no work of the scheduler. Many are
asked by a task each, and what they answer is put together on the workers in a tree of fixed shape.
Nothing here, nor on the scheduler, holds anything of the size of the data.
"""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import warnings
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import distributed
import numpy as np
import scipy.sparse as sp
from dask.delayed import Delayed
from distributed.protocol import to_serialize

from exactmeans.engines.local import bytes_of
from exactmeans.engines.merge import merged
from exactmeans.engines.site import Ask, Centres, Reply, Site, make_site

FAN_IN = 8  # answers that are put together by one task, or here
_SMALL = 2**20  # bytes that may go through the scheduler in a question to all sites
_ATTEMPTS = 6  # to put a question to a site whose workers keep dying


# What runs on workers -----------------------------------------------------------------------------


class Desk:
    """Where a site is asked directly. A Dask actor: it dies with its worker, the site does not.

    Questions and answers are pickled, once for all sites and outside Dask's event loops, on which
    every message waits for every other.
    """

    def __init__(self, site: Site) -> None:
        self._site = site

    def answer(self, question: bytes) -> bytes:
        return pickle.dumps(_answer(self._site, *pickle.loads(question)), 5)


def _answer(
    site: Site, ask: Ask, log: list[Ask] | None = None, weights: list[Any] | None = None
) -> Reply:
    """With a log, lost state is made again, with these weights if they are not the site's own."""
    if site.at != ask.since or site.awaits:
        if log is None:
            return Reply(lost=(site.number,))
        site.recall(log, weights)
    return Reply(site.answer(ask))


def _hold(thing: Any) -> Any:
    """Workers pass it on among each other, and the scheduler can have it made again."""
    return thing


class _Place(NamedTuple):
    """Where a desk is."""

    future: Any
    worker: str


# The sites ----------------------------------------------------------------------------------------


class Sites:
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
        self._desks: dict[int, _Place | None] = {}
        self._direct = False  # can workers be reached from here?
        self.at = -1
        self.log: list[Ask] = []
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
        self._open_desks({number: [worker] for number, (worker, _) in enumerate(groups)})
        _release(self._loads)

    def _site(self, number: int, chunks: list[Any], workers: list[str] | None) -> Any:
        weights = None if self._sent else self._weights_of(number)
        return self._client.submit(
            make_site,
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
        for things in (self.places, self._sites, self._desks):
            for number in things.keys() - set(numbers):
                del things[number]

    def close(self) -> None:
        """Let the workers forget, and drop what they have not begun."""
        self._desks.clear()
        _release(self._loads)
        _release(self._sites.values())
        self._sites = {}

    # -- questions -----------------------------------------------------------------------------

    def tell(self, what: str, *arguments: Any) -> Any:
        """A question that changes the state of the sites."""
        ask = Ask(what, arguments, self.at, self.at + 1)
        answer = self.put(ask)
        self.at = ask.until
        self.log.append(ask)
        return answer

    def ask(self, what: str, *arguments: Any) -> Any:
        return self.put(Ask(what, arguments, self.at, self.at))

    def ask_in_turn(self, what: str, *arguments: Any) -> list[Any]:
        """For answers that are too large to come all at once."""
        ask = Ask(what, arguments, self.at, self.at)
        return [item for number in self._sites for item in self.put(ask, (number,))]

    def put(self, ask: Ask, among: tuple[int, ...] | None = None) -> Any:
        what = ask.arguments[0] if ask.what == "seed" else ask.what
        missing = tuple(self._sites) if among is None else among
        replies: list[Reply] = []
        log: list[Ask] | None = None
        for _ in range(_ATTEMPTS):
            try:
                reply = (
                    self._by_desks(what, ask, missing, log)
                    if self._desks
                    else self._by_tasks(what, ask, missing, log)
                )
            except distributed.CancelledError:
                reply = Reply(lost=missing)
            replies.append(Reply(reply.value))
            if not reply.lost:
                return merged(what, replies).value
            missing, log = reply.lost, self.log
            with contextlib.suppress(distributed.CancelledError):  # more died meanwhile
                self._mend(missing)
        raise RuntimeError(f"Workers died {_ATTEMPTS} times in a row: is their memory too small?")

    def _by_desks(
        self, what: str, ask: Ask, numbers: tuple[int, ...], log: list[Ask] | None
    ) -> Reply:
        if log is None or not self._sent:
            questions = [pickle.dumps((ask, log), 5)] * len(numbers)
        else:
            questions = [pickle.dumps((ask, log, self._weights_of(n)), 5) for n in numbers]
        replies = []
        # Not distributed.Actor: in the end, one thread is woken once, for all answers.
        answers = self._client.sync(self._call_all, numbers, questions)
        for number, answer in zip(numbers, answers, strict=True):
            if answer is None:
                self._desks[number] = None
                replies.append(Reply(lost=(number,)))
            elif answer["status"] == "OK":
                replies.append(pickle.loads(answer["result"]))
            else:
                raise answer["exception"]
        return merged(what, replies)

    async def _call_all(self, numbers: tuple[int, ...], questions: list[bytes]) -> list[Any]:
        calls = map(self._call, numbers, map(to_serialize, questions))
        return await asyncio.gather(*calls)

    async def _call(self, number: int, question: Any) -> Any:
        """What Dask says to a question to an actor; None if that is gone."""
        desk = self._desks[number]
        if desk is None or desk.future.status != "finished":
            return None
        call = {"actor": desk.future.key, "function": "answer", "args": [question]}
        try:
            if self._direct:
                return await self._client.rpc(desk.worker).actor_execute(**call)
            message = {"op": "actor_execute", **call}
            return await self._client.scheduler.proxy(worker=desk.worker, msg=message)
        except (OSError, KeyError):  # KeyError: another worker is at its address now
            return None

    def _by_tasks(
        self, what: str, ask: Ask, numbers: tuple[int, ...], log: list[Ask] | None
    ) -> Reply:
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
                self._sites[number] = self._site(number, chunks, None)
        gone = [number for number in numbers if number in self._desks and not self._desks[number]]
        if gone:
            self._wait(gone)
            sites = [self._sites[number] for number in gone]
            found = self._client.who_has(sites)
            where = [list(found.get(site.key, ())) or None for site in sites]
            self._open_desks(dict(zip(gone, where, strict=True)))
        _release(self._loads)

    def _scattered(self, number: int) -> Any:
        """Weights that a site has to be sent, on some worker."""
        weights = self._weights_of(number) if self._sent else None
        return weights and self._client.scatter([weights], hash=False)[0]

    def _wait(self, numbers: Iterable[int]) -> None:
        with contextlib.suppress(distributed.CancelledError):
            distributed.wait([self._sites[number] for number in numbers])

    def _open_desks(self, workers: dict[int, list[str] | None]) -> None:
        """Where the sites are; only as many as one process should talk to."""
        if len(self._sites) > FAN_IN:
            return
        desks = {
            number: self._client.submit(
                Desk,
                self._sites[number],
                workers=where,
                allow_other_workers=where is not None,
                actor=True,
                pure=False,
            )
            for number, where in workers.items()
        }
        with contextlib.suppress(distributed.CancelledError):
            distributed.wait(list(desks.values()))
        for number in desks:
            if self._sites[number].status == "error":
                self._sites[number].result()  # raises
        found = self._client.who_has(list(desks.values())) if desks else {}
        for number, desk in desks.items():
            at = found.get(desk.key)  # nowhere if that worker has just died
            self._desks[number] = _Place(desk, at[0]) if at else None
        self._direct = self._client.sync(self._reachable)

    async def _reachable(self) -> bool:
        """Are the workers, from this process? By way of the scheduler, a call is a connection."""
        if self._client.direct_to_workers is not None:
            return bool(self._client.direct_to_workers)
        with contextlib.suppress(OSError):  # a timeout is one
            for desk in self._desks.values():
                if desk is not None:
                    await asyncio.wait_for(self._client.rpc(desk.worker).identity(), 1)
            return True
        return False


def _release(futures: Any) -> None:
    """Whoever else has them still has them; what nobody wants is not computed."""
    for future in futures:
        future.release()
    if isinstance(futures, list):
        futures.clear()


def _size(ask: Ask) -> int:
    """About how many bytes a question takes."""
    given = [a.rows if isinstance(a, Centres) else a for a in ask.arguments]
    return sum(bytes_of(a) for a in given if isinstance(a, np.ndarray) or sp.issparse(a))


def _by_worker(client: Any, chunks: list[Any]) -> list[tuple[str, list[int]]]:
    """Which blocks go to which worker: where they are, unless that has far more than its share."""
    threads: dict[str, int] = client.nthreads()
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
