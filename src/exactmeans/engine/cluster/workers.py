"""Creates, queries and rebuilds the engines on the workers of a Dask cluster, one per worker.

Up to FAN_IN engines are queried over channels (sockets), which avoids Dask's latency. More engines,
and engines that cannot be reached from here, are queried by one task each; a tree of tasks reduces
their responses on the workers. Neither client nor scheduler holds anything of the size of the data.
"""

from __future__ import annotations

import contextlib
import pickle
import secrets
import warnings
from collections.abc import Callable, Iterable
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar

import distributed
import numpy as np
import scipy.sparse as sp
from dask.delayed import Delayed
from distributed.comm import get_address_host

from exactmeans.engine.cluster.channel import TOKEN_BYTES, Address, Channel, listen
from exactmeans.engine.cluster.reduce import reduced
from exactmeans.engine.cluster.worker_engine import (
    Centres,
    Request,
    Response,
    WorkerEngine,
    make_worker_engine,
)
from exactmeans.engine.local.blocks import bytes_of

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
#: A method of WorkerEngine or SeedBlocks, which every worker runs; results are reduced to one.
Operation: TypeAlias = Callable[Concatenate[Any, P], R]

FAN_IN = 8  # responses that one task, or this process, reduces
_SMALL = 2**20  # bytes of a request, times workers, that may go through the scheduler
_ATTEMPTS = 6  # for a request whose workers keep dying


# What runs on workers -----------------------------------------------------------------------------


def _respond(
    engine: WorkerEngine,
    request: Request,
    log: list[Request] | None = None,
    weights: list[Any] | None = None,
) -> Response:
    return engine.respond(request, log, weights)


def _open_channel(engine: WorkerEngine, token: bytes) -> Address:
    """Listen for requests to this engine; returns the address."""

    def respond(data: bytes) -> bytes:
        try:
            return pickle.dumps(_respond(engine, *pickle.loads(data)), 5)
        except Exception as error:
            return pickle.dumps(error, 5)

    address = distributed.get_worker().address
    kind = address.partition("://")[0]
    if kind not in ("tcp", "inproc"):
        raise OSError("Other protocols may be encrypted, which channels are not.")
    return listen(get_address_host(address) if kind == "tcp" else "127.0.0.1", token, respond)


def _identity(thing: Any) -> Any:
    """As a task's result, workers share the object and the scheduler can recompute it."""
    return thing


# The engines on all workers -----------------------------------------------------------------------


class Workers:
    """`log` leads a new engine to the current state `version`; `mutate` extends both."""

    def __init__(self, client: Any, pieces: list[Any], weights: list[Any] | None, how: Any) -> None:
        """`pieces`: delayed objects or futures of blocks; `how`: see make_worker_engine.

        Weights that are arrays are sent to engines that lack them, so that no task depends on data
        that a dying worker would take along.
        """
        self._client, self._how = client, how
        self._pieces, self._weights = pieces, weights
        self._sent = weights is not None and isinstance(weights[0], np.ndarray)
        self._engines: dict[int, Any] = {}
        self._inputs: list[Any] = []  # futures that this object computed for the engines
        self._direct = True  # over channels, not by tasks
        self._channels: dict[int, Channel] = {}  # by engine; none where the worker is gone
        self.version = -1
        self.log: list[Request] = []
        try:
            self._create()
        except BaseException:  # Ctrl-C too
            self.close()
            raise

    def _create(self) -> None:
        chunks = self._futures(self._pieces)
        distributed.wait(chunks)
        groups = _by_worker(self._client, chunks)
        #: block numbers of each engine
        self.places = {number: places for number, (_, places) in enumerate(groups)}
        self._engines = {
            number: self._create_engine(number, [chunks[place] for place in places], [worker])
            for number, (worker, places) in enumerate(groups)
        }
        self._direct = len(groups) <= FAN_IN
        if self._direct:
            with contextlib.suppress(distributed.CancelledError):  # a worker died: see submit
                self._open_channels({n: [worker] for n, (worker, _) in enumerate(groups)})
        _release(self._inputs)

    def _create_engine(self, number: int, chunks: list[Any], workers: list[str] | None) -> Any:
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
        """Compute delayed pieces; futures are returned as they are."""
        made = self._client.compute([piece for piece in pieces if isinstance(piece, Delayed)])
        self._inputs += made
        lazy = iter(made)
        return [next(lazy) if isinstance(piece, Delayed) else piece for piece in pieces]

    def keep(self, numbers: Iterable[int]) -> None:
        """Drop the other engines, which have no rows."""
        for number in self._engines.keys() - set(numbers):
            del self.places[number], self._engines[number]
            self._close_channels(number)

    def close(self) -> None:
        """Release the engines, and cancel tasks that have not begun."""
        self._close_channels(*self._channels)
        _release(self._inputs)
        _release(self._engines.values())
        self._engines = {}

    # -- requests ------------------------------------------------------------------------------

    def mutate(self, operation: Operation[P, R], *arguments: P.args, **options: P.kwargs) -> R:
        """Run an operation that changes the state of the engines; arguments by position."""
        request = self._request(operation, arguments, options, self.version + 1)
        value: R = self.submit(request)
        self.version = request.to_version
        self.log.append(request)
        return value

    def query(self, operation: Operation[P, R], *arguments: P.args, **options: P.kwargs) -> R:
        """Run an operation that does not change the state; arguments by position."""
        value: R = self.submit(self._request(operation, arguments, options, self.version))
        return value

    def query_in_turn(self, operation: Callable[[WorkerEngine], list[T]]) -> list[T]:
        """One worker after the other, for responses that are too large to arrive at once."""
        request = self._request(operation, (), {}, self.version)
        return [item for number in self._engines for item in self.submit(request, (number,))]

    def _request(
        self,
        operation: Callable[..., Any],
        arguments: tuple[Any, ...],
        options: dict[str, Any],
        to_version: int,
    ) -> Request:
        if options:
            raise TypeError("Requests take arguments by position.")
        return Request.of(operation, arguments, self.version, to_version)

    def submit(self, request: Request, among: tuple[int, ...] | None = None) -> Any:
        what = request.what
        missing = tuple(self._engines) if among is None else among
        responses: list[Response] = []
        log: list[Request] | None = None
        for _ in range(_ATTEMPTS):
            try:
                response = (
                    self._by_channels(what, request, missing, log)
                    if self._direct
                    else self._by_tasks(what, request, missing, log)
                )
            except distributed.CancelledError:
                response = Response(lost=missing)
            responses.append(Response(response.value))
            if not response.lost:
                return reduced(what, responses).value
            missing, log = response.lost, self.log
            with contextlib.suppress(distributed.CancelledError):  # more workers died meanwhile
                self._recover(missing)
        raise RuntimeError(f"Workers died {_ATTEMPTS} times in a row: is their memory too small?")

    def _by_channels(
        self, what: str, request: Request, numbers: tuple[int, ...], log: list[Request] | None
    ) -> Response:
        message = pickle.dumps((request, log), 5)
        for number in numbers:
            if log is not None and self._sent:
                message = pickle.dumps((request, log, self._weights_of(number)), 5)
            self._use_channel(number, Channel.send, message)
        responses = []
        for number in numbers:
            received = self._use_channel(number, Channel.receive)
            response = Response(lost=(number,)) if received is None else pickle.loads(received)
            if isinstance(response, Exception):
                raise response
            responses.append(response)
        return reduced(what, responses)

    def _use_channel(self, number: int, act: Callable[..., Any], *arguments: Any) -> Any:
        """Send or receive over the channel of an engine; None if its worker is gone."""
        channel = self._channels.get(number)
        if channel is not None:
            try:
                return act(channel, *arguments)
            except OSError:
                self._close_channels(number)
        return None

    def _by_tasks(
        self, what: str, request: Request, numbers: tuple[int, ...], log: list[Request] | None
    ) -> Response:
        """Reduce responses in a tree of tasks, the last level in this process."""
        given: Any = self.stored(request) if len(numbers) * _size(request) > _SMALL else request
        started: list[Any] = []
        try:
            if log is None:
                responses = self.map(_respond, numbers, request=given)
            else:
                past = self.stored(log)
                weights = [self._scattered(number) for number in numbers]
                engines = [self._engines[number] for number in numbers]
                responses = [
                    self._client.submit(_respond, engine, given, past, own, pure=False)
                    for engine, own in zip(engines, weights, strict=True)
                ]
            started += responses
            while len(responses) > FAN_IN:
                batches = [responses[b : b + FAN_IN] for b in range(0, len(responses), FAN_IN)]
                responses = [
                    self._client.submit(reduced, what, batch, pure=False) for batch in batches
                ]
                started += responses
            return reduced(what, self._client.gather(responses))
        except BaseException:  # Ctrl-C too
            self._client.cancel(started)
            raise

    def map(
        self, work: Callable[..., Any], numbers: Iterable[int] | None = None, **shared: Any
    ) -> list[Any]:
        """Futures of `work` on engines."""
        over = [self._engines[number] for number in (self._engines if numbers is None else numbers)]
        futures: list[Any] = self._client.map(work, over, pure=False, batch_size=None, **shared)
        return futures

    def stored(self, thing: Any) -> Any:
        with warnings.catch_warnings():
            # Centres may be large; the scheduler gets them once.
            warnings.filterwarnings("ignore", "Sending large graph")
            return self._client.submit(_identity, thing, pure=False)

    # -- recovery ------------------------------------------------------------------------------

    def _recover(self, numbers: tuple[int, ...]) -> None:
        """Rebuild engines that Dask cannot: their blocks were given as futures and are lost."""
        self._wait(numbers)  # their status may not be known yet
        for number in numbers:
            if self._engines[number].status in ("cancelled", "lost"):
                chunks = self._futures([self._pieces[place] for place in self.places[number]])
                if any(chunk.status == "cancelled" for chunk in chunks):
                    raise RuntimeError(
                        "X has blocks that died with their worker, and no task makes them again."
                    )
                self._engines[number] = self._create_engine(number, chunks, None)
        gone = [number for number in numbers if number not in self._channels]
        if self._direct and gone:
            self._wait(gone)
            engines = [self._engines[number] for number in gone]
            found = self._client.who_has(engines)
            where = [list(found.get(engine.key, ())) or None for engine in engines]
            self._open_channels(dict(zip(gone, where, strict=True)))
        _release(self._inputs)

    def _scattered(self, number: int) -> Any:
        """Weights that an engine must be sent, scattered to some worker."""
        weights = self._weights_of(number) if self._sent else None
        return weights and self._client.scatter([weights], hash=False)[0]

    def _wait(self, numbers: Iterable[int]) -> None:
        with contextlib.suppress(distributed.CancelledError):
            distributed.wait([self._engines[number] for number in numbers])

    def _open_channels(self, workers: dict[int, list[str] | None]) -> None:
        """Open a channel to each engine; if one cannot be reached, use tasks for all."""
        token = secrets.token_bytes(TOKEN_BYTES)
        opened = [
            self._client.submit(
                _open_channel,
                self._engines[number],
                token,
                workers=where,
                allow_other_workers=where is not None,
                pure=False,
            )
            for number, where in workers.items()
        ]
        try:
            for number, address in zip(workers, self._client.gather(opened), strict=True):
                self._channels[number] = Channel(address, token)
        except OSError:
            self._close_channels(*self._channels)
            self._direct = False

    def _close_channels(self, *numbers: int) -> None:
        for number in numbers:
            if number in self._channels:
                self._channels.pop(number).close()


def _release(futures: Any) -> None:
    """Release futures; tasks without another holder are not computed."""
    for future in futures:
        future.release()
    if isinstance(futures, list):
        futures.clear()


def _size(request: Request) -> int:
    """Approximate bytes of a request."""
    given = [a.rows if isinstance(a, Centres) else a for a in request.arguments]
    return sum(bytes_of(a) for a in given if isinstance(a, np.ndarray) or sp.issparse(a))


def _by_worker(client: Any, chunks: list[Any]) -> list[tuple[str, list[int]]]:
    """Assign blocks to the workers that hold them, unless one has far more than its share."""
    threads: dict[str, int]
    while not (threads := client.nthreads()):  # all workers died; wait for new ones
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
