"""Starts worker engines as tasks of a Dask cluster, and carries messages to them and back.

Messages go from the client to the worker's port over Dask's own comm, which knows about TLS and
costs 1 to 2 ms for a round trip; through the scheduler where the client cannot reach workers.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import distributed
from distributed.core import send_recv
from distributed.protocol.pickle import dumps

from exactmeans.engine.cluster.pool import Message
from exactmeans.engine.dask.placement import Placement, noticing_loss, refuse_gone
from exactmeans.engine.dask.serving import OPERATION, install, serve

_CONNECT = 5.0  # seconds until a worker counts as unreachable
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
        replies: list[tuple[int, Message | None]] = self._client.sync(self._ask_all, messages)
        return replies

    async def _ask_all(self, messages: Mapping[int, Message]) -> list[tuple[int, Message | None]]:
        replies = await asyncio.gather(*(self._ask(n, bytes(m)) for n, m in messages.items()))
        return list(zip(messages, replies, strict=True))

    async def _ask(self, number: int, message: bytes) -> Message | None:
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
                if not pool.available.get(worker) and not await self._known(worker):
                    raise ConnectionResetError(f"The Dask worker {worker} is gone.")
                comm = await pool.connect(worker, timeout=_CONNECT)
            except OSError:
                if not await self._known(worker):
                    raise
                self._direct = False
            else:
                try:
                    return await send_recv(comm, reply=True, **call)
                finally:
                    pool.reuse(worker, comm)
        if not await self._known(worker):
            raise ConnectionResetError(f"The Dask worker {worker} is gone.")
        replies = await self._client.scheduler.broadcast(msg=call, workers=[worker])
        return replies[worker]

    async def _known(self, worker: str) -> bool:
        """Whether the scheduler knows the worker."""
        return worker in await self._client.scheduler.ncores()

    def rebuild(self, numbers: tuple[int, ...]) -> None:
        refuse_gone(self._client)
        for number in numbers:
            serving = self._serving.pop(number)
            if serving.future.status == "cancelled":
                refuse_gone(self._client)
                raise distributed.CancelledError("The fit was cancelled on the Dask cluster.")
            serving.future.release()
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
        with contextlib.suppress(Exception):  # the cluster may be gone
            if self._client.status == "running":
                self._client.sync(self._end_all, callback_timeout=_CONNECT)
        for serving in self._serving.values():
            serving.future.release()
        self._serving.clear()
        self.placement.close()

    async def _end_all(self) -> None:
        ends = (self._send(serving, None) for serving in self._serving.values())
        await asyncio.gather(*ends, return_exceptions=True)
