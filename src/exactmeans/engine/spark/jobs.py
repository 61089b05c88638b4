"""One Spark job per request, for clusters that refuse barrier stages.

Tasks keep nothing: each request comes with the log that leads a new engine to the state it needs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from exactmeans.engine.cluster import wire
from exactmeans.engine.cluster.layout import BlockInfo, Layout
from exactmeans.engine.cluster.pool import Message
from exactmeans.engine.cluster.requests import Failure
from exactmeans.engine.cluster.worker_engine import InMemory, WorkerEngine
from exactmeans.engine.spark.rows import TaskRows, common_layout

#: What a task gives back: the number of its partition, and a value in the wire format.
ANSWER = "partition int, answer binary"
#: Runs a function of record batches in every task; returns what they gave, by partition.
RunJob = Callable[[Callable[[Iterable[Any]], Iterator[Any]]], dict[int, bytes]]


class JobTransport:
    """Sends messages to the partitions of a data frame; `run_job` runs a job over it."""

    stateless = True

    def __init__(self, run_job: RunJob) -> None:
        self._run_job = run_job
        self.layout = self._read_layout()

    def _read_layout(self) -> Layout:
        found = {
            number: wire.decode(reported) for number, reported in self._run_job(_describe).items()
        }
        for reported in found.values():
            if isinstance(reported, Failure):
                wire.raise_failure(reported, "a task")
        count = max(found, default=-1) + 1
        none = dataclasses.astuple(BlockInfo(0, 0, None, False, 0))
        infos = [BlockInfo(*found.get(number, none)) for number in range(count)]
        layout = common_layout(infos)
        layout.check()
        return layout

    def where(self, number: int) -> str:
        return f"the task of partition {number}"

    def exchange(self, messages: Mapping[int, Message]) -> list[tuple[int, Message | None]]:
        layout = self.layout
        sent = {number: bytes(message) for number, message in messages.items()}
        answers = self._run_job(_Responder(sent, str(layout.dtype), layout.sparse))
        return [(number, answers.get(number)) for number in messages]

    def rebuild(self, numbers: tuple[int, ...]) -> None:
        """The next job has new engines."""

    def close(self) -> None: ...


class _Responder:
    """What a task does with its rows: responds to the message for its partition."""

    def __init__(self, messages: dict[int, bytes], dtype: str, sparse: bool) -> None:
        self._messages, self._dtype, self._sparse = messages, dtype, sparse

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context: Any = TaskContext.get()
        number = context.partitionId()
        rows = TaskRows.read(batches)
        if number not in self._messages or not rows.parts:
            return
        weights = [np.concatenate(rows.weights)] if rows.weights else None
        block = rows.matrix(self._dtype, sparse=self._sparse)
        engine = WorkerEngine(number, InMemory([block], weights), context.cpus())
        yield _answer(number, engine.respond_to(self._messages[number]))


def _describe(batches: Iterable[Any]) -> Iterator[Any]:
    """Shape and layout of the rows of a task."""
    from pyspark import TaskContext

    context: Any = TaskContext.get()
    try:
        reported: Any = dataclasses.astuple(TaskRows.read(batches).info)
    except ValueError as error:
        reported = wire.failure_of(error)
    yield _answer(context.partitionId(), wire.encode(reported))


def _answer(number: int, answer: bytes) -> Any:
    columns = {"partition": pa.array([number], pa.int32()), "answer": [answer]}
    return pa.RecordBatch.from_pydict(columns)
