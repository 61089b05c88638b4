"""A fit in one barrier stage: every task serves its rows, and task 0 runs the loop.

Tasks find each other by a `Meeting`. If one of them dies, Spark starts
all of them again; the fit then resumes from its checkpoint, if task 0 finds it, or from the start,
to the same bits.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from exactmeans.engine.cluster import wire
from exactmeans.engine.cluster.engine import ClusterEngine, RowOptions
from exactmeans.engine.cluster.layout import BlockInfo, Layout
from exactmeans.engine.cluster.pool import Message
from exactmeans.engine.cluster.requests import Failure
from exactmeans.engine.cluster.worker_engine import InMemory, WorkerEngine
from exactmeans.engine.spark.meeting import Meeting
from exactmeans.engine.spark.rows import TaskRows, common_layout

#: What a stage gives back: one row, with a result or a failure in the wire format.
RESULT = "result binary"
#: Asks a task for the shape of its rows.
DESCRIBE = b"describe"


class Loop(Protocol):
    """Runs the loop over an engine, in task 0; returns a result that the wire format can hold."""

    @property
    def name(self) -> str:
        """Of the fit: the same in all its tasks, and no other fit has it."""

    def __call__(self, engine: ClusterEngine) -> Any: ...


def run_stage(batches: Iterable[Any], options: RowOptions, loop: Loop) -> Iterator[Any]:
    """What each task of the barrier stage does with its rows."""
    from pyspark import BarrierTaskContext

    context: Any = BarrierTaskContext.get()
    meeting = Meeting(context, loop.name)
    try:
        engine = TaskEngine(context.partitionId(), batches, context.cpus())
        if meeting.listener is not None:
            # Task 0 may read its rows for hours longer; if it dies, Spark ends this task.
            meeting.listener.serve(engine.respond_to)
            result = None
        else:
            result = wire.encode(_result(engine, meeting, options, loop))
        meeting.check(at_the_end=True)
    finally:
        meeting.close()
    if result is not None:
        yield pa.RecordBatch.from_pydict({"result": [result]})


class TaskEngine:
    """The rows of a task, and a WorkerEngine over them once the layout of all rows is known."""

    def __init__(self, number: int, batches: Iterable[Any], threads: int) -> None:
        self._number, self._threads = number, threads
        self._engine: WorkerEngine | None = None
        try:
            self._rows = TaskRows.read(batches)
            self._info: BlockInfo | Failure = self._rows.info
        except ValueError as error:
            self._info = wire.failure_of(error)

    def respond_to(self, message: bytes | bytearray) -> bytes:
        """First to DESCRIBE, then to dtype and sparsity of all rows, then to requests."""
        if self._engine is not None:
            return self._engine.respond_to(message)
        if message == DESCRIBE:
            info = self._info
            return wire.encode(info if isinstance(info, Failure) else dataclasses.astuple(info))
        dtype, sparse = wire.decode(message)
        weights = [np.concatenate(self._rows.weights)] if self._rows.weights else None
        blocks = InMemory([self._rows.matrix(dtype, sparse=sparse)], weights)
        self._engine = WorkerEngine(self._number, blocks, self._threads)
        return wire.encode(None)


def _result(engine: TaskEngine, meeting: Meeting, options: RowOptions, loop: Loop) -> Any:
    """Run the loop. What users can act on is returned; what Spark may retry is raised."""
    transport = BarrierTransport(engine, meeting)
    try:
        layout = transport.open_engines()
        places = {b: [b] for b, info in enumerate(layout.infos) if info.rows}
        return loop(ClusterEngine(transport, layout, places, options))
    except (ValueError, TypeError) as error:
        return wire.failure_of(error)
    finally:
        transport.close()


class BarrierTransport:
    """Channels from task 0 to the other tasks; its own engine is in the same process."""

    stateless = False

    def __init__(self, engine: TaskEngine, meeting: Meeting) -> None:
        self._engine, self._meeting = engine, meeting
        self._channels = dict(enumerate(meeting.channels(), 1))
        self._unread: list[int] = []  # tasks whose response was not received yet

    def open_engines(self) -> Layout:
        """The layout of all rows, which every task learns; those without rows have no engine."""
        requests = dict.fromkeys((0, *self._channels), DESCRIBE)
        found = {number: wire.decode(reported) for number, reported in self.exchange(requests)}
        for reported in found.values():
            if isinstance(reported, Failure):
                wire.raise_failure(reported, "a task of the barrier stage")
        layout = common_layout([BlockInfo(*found[number]) for number in sorted(found)])
        layout.check()
        kind = wire.encode((str(layout.dtype), layout.sparse))
        with_rows = [number for number, info in enumerate(layout.infos) if info.rows]
        for _ in self.exchange(dict.fromkeys(with_rows, kind)):
            pass
        return layout

    def where(self, number: int) -> str:
        return f"task {number} of the barrier stage"

    def exchange(self, messages: Mapping[int, Message]) -> Iterator[tuple[int, Message]]:
        self._meeting.check()
        for number, message in messages.items():
            if number in self._channels:
                self._channels[number].send(bytes(message))
                self._unread.append(number)
        if 0 in messages:
            yield 0, self._engine.respond_to(bytes(messages[0]))
        while self._unread:
            received = self._channels[self._unread[0]].receive()
            yield self._unread.pop(0), received

    def rebuild(self, numbers: tuple[int, ...]) -> None:
        raise RuntimeError("Tasks of a barrier stage are started again together, by Spark.")

    def close(self) -> None:
        """Receive what is left after a failure: a task that cannot send its response fails, too."""
        for number in self._unread:
            with contextlib.suppress(OSError):
                self._channels[number].receive()
        self._unread.clear()
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()
