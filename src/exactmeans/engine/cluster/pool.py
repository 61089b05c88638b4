"""The worker engines of a fit: sends requests, reduces responses, rebuilds engines that were lost.

How messages reach the engines is the business of a `Transport`, of which each kind of cluster has
its own. Nothing here holds anything of the size of the data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Concatenate, ParamSpec, Protocol, TypeAlias, TypeVar

from exactmeans.engine.cluster import wire
from exactmeans.engine.cluster.reduce import reduced
from exactmeans.engine.cluster.requests import Failure, Opening, Request, Response
from exactmeans.engine.cluster.worker_engine import WorkerEngine
from exactmeans.engine.seeding import Blank

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
#: A method of WorkerEngine or SeedBlocks, which every worker runs; results are reduced to one.
Operation: TypeAlias = Callable[Concatenate[Any, P], R]
Message: TypeAlias = bytes | bytearray

_AT_ONCE = 16  # decoded responses that are held before they are reduced
_ATTEMPTS = 6  # for a request whose workers keep dying


class Transport(Protocol):
    """Carries messages to worker engines, which are named by numbers, and back."""

    stateless: bool  # engines forget everything after a response, so every request needs the log

    def exchange(self, messages: Mapping[int, Message]) -> Iterable[tuple[int, Message | None]]:
        """Send a message to each of these engines; responses in any order, None for lost ones."""

    def rebuild(self, numbers: tuple[int, ...]) -> None:
        """Create these engines again, without state; raises RuntimeError if that is impossible."""

    def where(self, number: int) -> str:
        """Names the worker of an engine, for errors."""

    def close(self) -> None:
        """Release the engines."""


class WorkerPool:
    """`log` leads an open engine to the current state `version`; `mutate` extends both."""

    def __init__(self, transport: Transport, openings: Mapping[int, Opening]) -> None:
        """`openings`: by engine."""
        self._transport = transport
        self._openings = {
            number: Request.of(WorkerEngine.open, (opening,), -1, 0)
            for number, opening in openings.items()
        }
        self.version = 0
        self.blank: Blank | None = None  # of the sums of an iteration
        self.log: list[Request] = []
        self._submit(self._openings.__getitem__, tuple(self._openings))

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
        return [item for number in self._openings for item in self.submit(request, (number,))]

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
        """The reduced result of a request to all engines, or to some."""
        return self._submit(lambda _: request, tuple(self._openings) if among is None else among)

    def _submit(self, request_of: Callable[[int], Request], numbers: tuple[int, ...]) -> Any:
        what, responses = request_of(numbers[0]).what, []
        if self._transport.stateless:
            messages = self._with_log(request_of, numbers)
        else:
            messages = self._messages(request_of, numbers)
        for _ in range(_ATTEMPTS):
            response = self._exchanged(what, messages)
            responses.append(Response(response.value))
            if not response.lost:
                return reduced(what, responses, self.blank).value
            self._transport.rebuild(response.lost)
            messages = self._with_log(request_of, response.lost)
        raise RuntimeError(f"Workers died {_ATTEMPTS} times in a row: is their memory too small?")

    def _messages(
        self, request_of: Callable[[int], Request], numbers: tuple[int, ...]
    ) -> dict[int, bytes]:
        """The same bytes for engines that get the same request."""
        made: dict[int, bytes] = {}
        messages = {}
        for number in numbers:
            request = request_of(number)
            if id(request) not in made:
                made[id(request)] = wire.encode((request, None))
            messages[number] = made[id(request)]
        return messages

    def _with_log(
        self, request_of: Callable[[int], Request], numbers: tuple[int, ...]
    ) -> dict[int, bytes]:
        """The same with the requests that lead a new engine to the state that is needed."""
        messages = {}
        for number in numbers:
            request = request_of(number)
            log = [] if request.from_version < 0 else [self._openings[number], *self.log]
            messages[number] = wire.encode((request, log))
        return messages

    def _exchanged(self, what: str, messages: Mapping[int, Message]) -> Response:
        some: list[Response] = []
        for number, received in self._transport.exchange(messages):
            response = Response(lost=(number,)) if received is None else wire.decode(received)
            if isinstance(response, Failure):
                wire.raise_failure(response, self._transport.where(number))
            some.append(response)
            if len(some) == _AT_ONCE:
                some = [reduced(what, some, self.blank)]
        return reduced(what, some, self.blank)
