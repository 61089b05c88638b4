"""Starts worker engines as tasks of a Dask cluster, and carries messages to them and back.

Messages go from the client to the worker's port over Dask's own comm, which knows about TLS and
costs 1 to 2 ms for a round trip; through the scheduler where the client cannot reach workers.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import distributed
from distributed.core import send_recv

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
            self._client.run(install, workers=[worker], on_error="ignore")
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
        call = {"op": OPERATION, "token": serving.token, "message": message}
        if self._direct:
            pool = self._client.rpc
            try:
                comm = await pool.connect(serving.worker, timeout=_CONNECT)
            except OSError:
                if not await self._known(serving.worker):
                    raise
                self._direct = False
            else:
                try:
                    return await send_recv(comm, reply=True, **call)
                finally:
                    pool.reuse(serving.worker, comm)
        if not await self._known(serving.worker):
            raise ConnectionResetError(f"The Dask worker {serving.worker} is gone.")
        replies = await self._client.scheduler.broadcast(msg=call, workers=[serving.worker])
        return replies[serving.worker]

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
        for number in numbers:
            with noticing_loss(self._client):
                self.placement.rescue(number)
            self._start(number)

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
