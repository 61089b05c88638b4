"""A fit in one barrier stage: every task serves its rows, and task 0 runs the loop.

Tasks tell each other addresses, tokens and the shapes of their rows through the barrier. If one of
them dies, Spark starts all of them again; the fit then resumes from its checkpoint, if task 0 finds
it, or from the beginning, to the same bits.
"""

from __future__ import annotations

import dataclasses
import json
import secrets
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from exactmeans.engine.cluster import wire
from exactmeans.engine.cluster.channel import TOKEN_BYTES, Channel, Listener
from exactmeans.engine.cluster.engine import ClusterEngine, RowOptions
from exactmeans.engine.cluster.layout import BlockInfo, Layout
from exactmeans.engine.cluster.pool import Message
from exactmeans.engine.cluster.requests import Failure
from exactmeans.engine.cluster.worker_engine import InMemory, WorkerEngine
from exactmeans.engine.spark.rows import TaskRows, common_layout

#: What a stage gives back: one row, with a result or a failure in the wire format.
RESULT = "result binary"
_PATIENCE = 600.0  # seconds that a task waits for task 0 to connect

#: Runs the loop over an engine, in task 0; returns a result that the wire format can hold.
Loop = Callable[[ClusterEngine], Any]


def run_stage(batches: Iterable[Any], options: RowOptions, loop: Loop) -> Iterator[Any]:
    """What each task of the barrier stage does with its rows."""
    from pyspark import BarrierTaskContext

    context: Any = BarrierTaskContext.get()
    number, listener, token = context.partitionId(), None, secrets.token_bytes(TOKEN_BYTES)
    told: dict[str, Any] = {}
    rows = TaskRows()
    try:
        rows = TaskRows.read(batches)
        told["info"] = dataclasses.asdict(rows.info)
    except ValueError as error:
        told["failure"] = dataclasses.asdict(wire.failure_of(error))
    if number > 0 and "info" in told:
        listener = Listener(_own_host(context, number), token)
        told |= {"address": listener.address, "token": token.hex()}
    everyone = [json.loads(one) for one in context.allGather(json.dumps(told))]
    failures = [one["failure"] for one in everyone if "failure" in one]
    if failures:
        result: Any = Failure(**failures[0])
    else:
        layout = common_layout([BlockInfo(**one["info"]) for one in everyone])
        engine = _engine(number, rows, layout, context.cpus())
        if listener is not None:
            if engine is not None:
                listener.serve(engine.respond_to, _PATIENCE)
            listener.close()
            return
        result = _result(everyone, engine, layout, options, loop)
    if number == 0:
        yield pa.RecordBatch.from_pydict({"result": [wire.encode(result)]})


def _own_host(context: Any, number: int) -> str:
    """The host that other tasks know this one by."""
    host = context.getTaskInfos()[number].address.rpartition(":")[0]
    return socket.gethostbyname(host)


def _engine(number: int, rows: TaskRows, layout: Layout, threads: int) -> WorkerEngine | None:
    if not layout.infos[number].rows:
        return None
    block = rows.matrix(str(layout.dtype), sparse=layout.sparse)
    weights = [np.concatenate(rows.weights)] if rows.weights else None
    return WorkerEngine(number, InMemory([block], weights), threads)


def _result(
    everyone: list[dict[str, Any]],
    engine: WorkerEngine | None,
    layout: Layout,
    options: RowOptions,
    loop: Loop,
) -> Any:
    """Run the loop. What users can act on is returned; what Spark may retry is raised."""
    transport = BarrierTransport(everyone, engine, layout)
    try:
        layout.check()
        places = {b: [b] for b, info in enumerate(layout.infos) if info.rows}
        return loop(ClusterEngine(transport, layout, places, options))
    except (ValueError, TypeError) as error:
        return wire.failure_of(error)
    finally:
        transport.close()


class BarrierTransport:
    """Channels from task 0 to the other tasks; its own engine is in the same process."""

    stateless = False

    def __init__(
        self, everyone: list[dict[str, Any]], engine: WorkerEngine | None, layout: Layout
    ) -> None:
        self._engine = engine
        self._channels = {
            number: Channel(tuple(one["address"]), bytes.fromhex(one["token"]))
            for number, one in enumerate(everyone)
            if "address" in one and layout.infos[number].rows
        }

    def where(self, number: int) -> str:
        return f"task {number} of the barrier stage"

    def exchange(self, messages: Mapping[int, Message]) -> Iterator[tuple[int, Message | None]]:
        for number, message in messages.items():
            if number in self._channels:
                self._channels[number].send(bytes(message))
        for number, message in messages.items():
            if number not in self._channels:
                assert self._engine is not None
                yield number, self._engine.respond_to(bytes(message))
        for number in messages:
            if number in self._channels:
                yield number, self._channels[number].receive()

    def rebuild(self, numbers: tuple[int, ...]) -> None:
        raise RuntimeError("Tasks of a barrier stage are started again together, by Spark.")

    def close(self) -> None:
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()
