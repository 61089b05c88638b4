"""Starts worker engines as tasks of a Dask cluster, and carries messages to them and back.

Messages go from the client to the worker's port over Dask's own comm, which knows about TLS and
costs 1 to 2 ms for a round trip; through the scheduler where the client cannot reach workers. Once
an engine has answered over plain TCP, it gets the connection as a `Channel`, without event loops.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import distributed
from distributed.core import send_recv
from distributed.protocol.pickle import dumps

from exactmeans.engine.cluster.channel import Channel
from exactmeans.engine.cluster.pool import Message
from exactmeans.engine.dask.placement import Placement, noticing_loss, refuse_gone
from exactmeans.engine.dask.serving import HAND_OVER, OPERATION, install, serve, taken

_CONNECT = 5.0  # seconds until a worker counts as unreachable
_CHECK_WORKER = 5.0  # seconds without a response, until a query whether the worker is known
_PAUSES = (0.005, 0.2)  # seconds between two messages to an engine that has not begun: first, most


@dataclass(frozen=True)
class _Serving:
    """The task of an engine."""

    future: Any
    worker: str
    token: str


class DaskTransport:
    """Engines on Dask workers; the blocks of each are where `placement` says."""

    stateless = False

    def __init__(self, client: Any, placement: Placement, n_jobs: int | None) -> None:
        self._client, self.placement, self._n_jobs = client, placement, n_jobs
        self._direct = True  # not through the scheduler
        self._serving: dict[int, _Serving] = {}
        self._channels: dict[int, Channel | None] = {}  # None: there is none, or it failed
        self._installed: set[str] = set()  # workers that accept requests
        self._unreachable: set[str] = set()
        for number in placement.places:
            self._start(number)

    def _start(self, number: int) -> None:
        """Submit the task of an engine to the worker that has its blocks."""
        own, worker = self.placement.places[number], self.placement.workers[number]
        infos = [self.placement.layout.infos[b] for b in own]
        edges = [0]
        for info in infos:
            edges.append(edges[-1] + info.rows)
        weights = [self.placement.weights[b].key for b in own if b in self.placement.weights]
        token = secrets.token_hex(16)
        with noticing_loss(self._client):
            future = self._client.submit(
                serve,
                token,
                number,
                [self.placement.blocks[b].key for b in own],
                edges,
                sum(info.bytes for info in infos),
                weights or None,
                self._n_jobs,
                key=f"exactmeans-worker-engine-{token}",
                workers=[worker],
                pure=False,
            )
        self._serving[number] = _Serving(future, worker, token)

    def where(self, number: int) -> str:
        return f"the Dask worker {self._serving[number].worker}"

    def exchange(self, messages: Mapping[int, Message]) -> list[tuple[int, Message | None]]:
        refuse_gone(self._client)  # channels do not need the scheduler, but lazy labels do
        replies: dict[int, Message | None] = {**self._converse(messages)}
        left = {number: m for number, m in messages.items() if number not in replies}
        if left:
            with noticing_loss(self._client):
                replies |= self._client.sync(self._query_all, left)
            self._await_greetings(left)
        return list(replies.items())

    # -- over channels -------------------------------------------------------------------------

    def _converse(self, messages: Mapping[int, Message]) -> dict[int, Message]:
        """The responses of engines that have a channel, unless it fails."""
        replies: dict[int, Message] = {}
        for number, channel in self._open_channels(messages):
            with self._dropped_if_it_fails(number):
                channel.send(bytes(messages[number]))
        for number, channel in self._open_channels(messages):
            with self._dropped_if_it_fails(number):
                replies[number] = channel.receive()
        return replies

    def _await_greetings(self, numbers: Iterable[int]) -> None:
        """Wait until engines read new channels: Dask's buffer might swallow an earlier message."""
        for number, channel in self._open_channels(numbers):
            with self._dropped_if_it_fails(number):
                if not channel.ready(_CONNECT):
                    raise TimeoutError("An engine has not taken its connection.")
                channel.receive()

    def _open_channels(self, numbers: Iterable[int]) -> list[tuple[int, Channel]]:
        return [(n, c) for n in numbers if (c := self._channels.get(n)) is not None]

    @contextlib.contextmanager
    def _dropped_if_it_fails(self, number: int) -> Iterator[None]:
        """Messages to an engine whose channel fails go over Dask's comm."""
        try:
            yield
        except OSError:
            self._drop(number)

    def _drop(self, number: int) -> None:
        channel = self._channels.get(number)
        if channel is not None:
            channel.drop()
        self._channels[number] = None

    # -- over Dask's comm ----------------------------------------------------------------------

    async def _query_all(self, messages: Mapping[int, Message]) -> dict[int, Message | None]:
        replies = await asyncio.gather(*(self._query(n, bytes(m)) for n, m in messages.items()))
        found = dict(zip(messages, replies, strict=True))
        new = [n for n, reply in found.items() if reply is not None and n not in self._channels]
        channels = await asyncio.gather(*(self._handed_over(self._serving[n]) for n in new))
        self._channels.update(zip(new, channels, strict=True))
        return found

    async def _handed_over(self, serving: _Serving) -> Channel | None:
        """A connection to an engine that has begun; None if there is no plain TCP to its worker."""
        if not self._direct or not serving.worker.startswith("tcp://"):
            return None
        pool = self._client.rpc
        try:
            comm = await pool.connect(serving.worker, timeout=_CONNECT)
        except OSError:
            return None
        try:
            if getattr(comm, "stream", None) is None:  # Dask has other backends for TCP
                return None
            await comm.write({"op": HAND_OVER, "token": serving.token, "reply": False})
            channel = taken(comm)
        except OSError:
            return None
        finally:
            pool.reuse(serving.worker, comm)
        if channel is not None:
            refuse = partial(self._client.sync, self._refuse_unknown, serving.worker)
            channel.watch(_CHECK_WORKER, refuse)
        return channel

    async def _query(self, number: int, message: bytes) -> Message | None:
        """The response of an engine, or None if it is gone."""
        serving, (pause, most) = self._serving[number], _PAUSES
        while True:
            try:
                reply: Message | None = await self._send(serving, message)
            except OSError:
                self._unreachable.add(serving.worker)
                return None
            if reply is not None:
                return reply
            if serving.future.status == "error":
                await serving.future  # raises what the task raised
            if serving.future.done() or self._client.status != "running":
                return None
            await asyncio.sleep(pause)  # the task has not begun
            pause = min(2 * pause, most)

    async def _send(self, serving: _Serving, message: bytes | None) -> Any:
        """Raises OSError if the worker is gone."""
        if serving.worker not in self._installed:
            arguments = {"args": dumps(()), "kwargs": dumps({})}
            await self._call(serving.worker, op="run", function=dumps(install), **arguments)
            self._installed.add(serving.worker)
        call = {"op": OPERATION, "token": serving.token, "message": message}
        return await self._call(serving.worker, **call)

    async def _call(self, worker: str, **call: Any) -> Any:
        """Call an operation of a worker."""
        if self._direct:
            pool = self._client.rpc
            try:
                # Connecting to a dead worker takes as long as the timeout says.
                if not pool.available.get(worker):
                    await self._refuse_unknown(worker)
                comm = await pool.connect(worker, timeout=_CONNECT)
            except OSError:
                if not await self._known(worker):
                    raise
                self._direct = False
            else:
                try:
                    return await self._response(worker, comm, call)
                finally:
                    pool.reuse(worker, comm)
        await self._refuse_unknown(worker)
        replies = await self._client.scheduler.broadcast(msg=call, workers=[worker])
        return replies[worker]

    async def _response(self, worker: str, comm: Any, call: dict[str, Any]) -> Any:
        response = asyncio.ensure_future(send_recv(comm, reply=True, **call))
        while not (await asyncio.wait({response}, timeout=_CHECK_WORKER))[0]:
            if not await self._known(worker):
                comm.abort()  # so that the response is an OSError
        return await response

    async def _known(self, worker: str) -> bool:
        """Whether the scheduler knows the worker."""
        return worker in await self._client.scheduler.ncores()

    async def _refuse_unknown(self, worker: str) -> None:
        if not await self._known(worker):
            raise ConnectionResetError(f"The Dask worker {worker} is gone.")

    def rebuild(self, numbers: tuple[int, ...]) -> None:
        refuse_gone(self._client)
        for number in numbers:
            serving = self._serving.pop(number)
            if serving.future.status == "cancelled":
                refuse_gone(self._client)
                raise distributed.CancelledError("The fit was cancelled on the Dask cluster.")
            serving.future.release()
            self._drop(number)
            del self._channels[number]
        self._wait_for_removal()
        for number in numbers:
            with noticing_loss(self._client):
                self.placement.rescue(number)
            self._start(number)

    def _wait_for_removal(self) -> None:
        """The scheduler notices a dead worker a moment after us: blocks must not go there."""
        end = time.monotonic() + _CONNECT
        while self._unreachable and time.monotonic() < end:
            with noticing_loss(self._client):
                self._unreachable &= set(self._client.nthreads())
            if self._unreachable:
                time.sleep(0.05)
        self._unreachable.clear()

    def close(self) -> None:
        """End the tasks of all engines and release their blocks."""
        closed = {number for number, _ in self._open_channels(self._channels)}
        for _, channel in self._open_channels(closed):
            channel.close()
        left = [serving for number, serving in self._serving.items() if number not in closed]
        with contextlib.suppress(Exception):  # the cluster may be gone
            if left and self._client.status == "running":
                self._client.sync(self._end, left, callback_timeout=_CONNECT)
        self._channels.clear()
        for serving in self._serving.values():
            serving.future.release()
        self._serving.clear()
        self.placement.close()

    async def _end(self, some: list[_Serving]) -> None:
        ends = (self._send(serving, None) for serving in some)
        await asyncio.gather(*ends, return_exceptions=True)
