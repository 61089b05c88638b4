"""Tasks of a barrier stage find each other, also if an earlier attempt left its addresses.

And they part without errors of their own.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from exactmeans.engine.spark.barrier import BarrierTransport
from exactmeans.engine.spark.meeting import Meeting

PATIENCE = 30.0  # seconds


class Barrier:
    """That of Spark, which no task passes before it is open."""

    def __init__(self, tasks: int) -> None:
        self.open = threading.Event()
        self.reported = [""] * tasks
        self._all = threading.Barrier(tasks)

    def gather(self, number: int, message: str) -> list[str]:
        self.reported[number] = message
        self._all.wait(PATIENCE)
        assert self.open.wait(PATIENCE)
        return list(self.reported)


class Context:
    """That of a task."""

    def __init__(self, barrier: Barrier, number: int, hosts: list[str]) -> None:
        self._barrier, self._number, self._hosts = barrier, number, hosts

    def partitionId(self) -> int:
        return self._number

    def getTaskInfos(self) -> list[Any]:
        return [type("Info", (), {"address": f"{host}:1"}) for host in self._hosts]

    def allGather(self, message: str) -> list[str]:
        return self._barrier.gather(self._number, message)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


def meetings(barrier: Barrier, hosts: list[str]) -> list[Meeting]:
    return [Meeting(Context(barrier, number, hosts), "fit") for number in range(len(hosts))]


def serve(meeting: Meeting, name: bytes) -> None:
    assert meeting.listener is not None
    meeting.listener.serve(lambda message: name + bytes(message))
    meeting.check(at_the_end=True)
    meeting.close()


def answers(first: Meeting) -> list[bytes]:
    channels = first.channels()
    for channel in channels:
        channel.send(b"?")
    found = [bytes(channel.receive()) for channel in channels]
    for channel in channels:
        channel.close()
    return found


@pytest.mark.parametrize("hosts", [["127.0.0.1"] * 3, ["localhost", "127.0.0.1", "127.0.0.1"]])
def test_tasks_of_one_machine_do_not_wait_for_the_barrier(
    hosts: list[str], folder: Path, pool: ThreadPoolExecutor
) -> None:
    barrier = Barrier(3)
    first, *others = meetings(barrier, hosts)
    served = [pool.submit(serve, other, b"%d" % i) for i, other in enumerate(others, 1)]
    if len(set(hosts)) > 1:
        barrier.open.set()
    assert answers(first) == [b"1?", b"2?"]
    barrier.open.set()
    first.check(at_the_end=True)
    first.close()
    for one in served:
        one.result(PATIENCE)
    assert not list(folder.iterdir())


def test_an_address_where_nobody_listens(folder: Path, pool: ThreadPoolExecutor) -> None:
    """Left by a task that died. One channel is open by then, and is used on."""
    barrier = Barrier(3)
    first, *others = meetings(barrier, ["127.0.0.1"] * 3)
    left = next(folder.glob("*/2"))
    reported = left.read_text()
    assert others[1].listener is not None
    port = others[1].listener.address[1]
    left.write_text(reported.replace(str(port), "1"))
    served = [pool.submit(serve, other, b"%d" % i) for i, other in enumerate(others, 1)]
    answered = pool.submit(answers, first)
    with pytest.raises(TimeoutError):
        answered.result(0.3)
    barrier.open.set()
    assert answered.result(PATIENCE) == [b"1?", b"2?"]
    first.check(at_the_end=True)
    for one in served:
        one.result(PATIENCE)
    first.close()


def test_a_task_of_an_earlier_attempt_is_noticed(folder: Path, pool: ThreadPoolExecutor) -> None:
    old = Barrier(2)
    _, earlier = meetings(old, ["127.0.0.1"] * 2)
    left = next(folder.glob("*/1"))
    reported = left.read_text()
    barrier = Barrier(2)
    first, second = meetings(barrier, ["127.0.0.1"] * 2)
    left.write_text(reported)
    old.open.set()
    served = pool.submit(serve, earlier, b"old")
    assert answers(first) == [b"old?"]
    first.check()  # nothing is known yet
    barrier.open.set()
    with pytest.raises(RuntimeError, match="earlier attempt"):
        first.check(at_the_end=True)
    served.result(PATIENCE)
    first.close()
    second.close()


class Engine:
    """Of task 0."""

    def respond_to(self, message: bytes) -> bytes:
        return b"0" + message


def test_a_failure_of_one_task_lets_the_others_end(pool: ThreadPoolExecutor) -> None:
    """Spark would start the stage again if a task could not send its response."""
    barrier = Barrier(3)
    barrier.open.set()
    first, *others = meetings(barrier, ["127.0.0.1"] * 3)
    slow = threading.Event()

    def serve_slowly(meeting: Meeting) -> None:
        def respond(_: Any) -> bytes:
            assert slow.wait(PATIENCE)
            return bytes(1 << 20)

        assert meeting.listener is not None
        meeting.listener.serve(respond)
        meeting.close()

    served = [pool.submit(serve_slowly, other) for other in others]
    transport = BarrierTransport(Engine(), first)  # type: ignore[arg-type]
    replies = iter(transport.exchange({0: b"?", 1: b"?", 2: b"?"}))
    assert next(replies) == (0, b"0?")  # a failure: no other reply is read
    threading.Timer(0.3, slow.set).start()
    transport.close()
    for one in served:
        one.result(PATIENCE)
    first.close()
