"""How the tasks of a barrier stage find each other.

Addresses and tokens go through the barrier, for which Spark needs a second however little travels.
Tasks of one machine leave them in a folder for temporary files besides, so task 0 can begin at
once; what it found there is compared with what the barrier brings.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import tempfile
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from exactmeans.engine.cluster.channel import TOKEN_BYTES, Channel, Listener

_PAUSE = 0.01  # seconds between two reads of the folder


class Meeting:
    """Channels from task 0 to all others; `name` is that of the fit, and known to its tasks only.

    A thread waits for the barrier while the task reads its rows.
    """

    def __init__(self, context: Any, name: str) -> None:
        self._number = context.partitionId()
        hosts = [task.address.rpartition(":")[0] for task in context.getTaskInfos()]
        self._others = range(1, len(hosts))
        self._folder = _folder(name) if len(set(hosts)) == 1 else None
        self._open: dict[str, Channel] = {}  # by what the task reported
        self._used: list[str] | None = None  # what the folder had, until the barrier confirms it
        self.listener: Listener | None = None
        reported = ""
        if self._number > 0:
            token = secrets.token_bytes(TOKEN_BYTES)
            self.listener = Listener(socket.gethostbyname(hosts[self._number]), token)
            reported = json.dumps({"address": self.listener.address, "token": token.hex()})
            self._leave(reported)
        self._pool = ThreadPoolExecutor(1)
        self._gathered = self._pool.submit(context.allGather, reported)

    def _leave(self, reported: str) -> None:
        """Write the address into the folder. Errors do not matter: the barrier has it, too."""
        if self._folder is not None:
            with contextlib.suppress(OSError):
                self._folder.mkdir(mode=0o700, exist_ok=True)
                made = self._folder / f"{self._number}.{os.getpid()}"
                made.touch(mode=0o600)
                made.write_text(reported)
                made.replace(self._folder / str(self._number))  # never seen half written

    def channels(self) -> list[Channel]:
        """By task, from task 1 on; none but in task 0."""
        if self._number > 0:
            return []
        while self._folder is not None and not self._gathered.done():
            with contextlib.suppress(OSError):  # not there yet, or left by a task that died
                found = [(self._folder / str(number)).read_text() for number in self._others]
                channels = self._connected(found)
                self._used = found
                return channels
            wait([self._gathered], timeout=_PAUSE)
        return self._connected(self._gathered.result()[1:])

    def _connected(self, reported: list[str]) -> list[Channel]:
        for one in reported:
            if one not in self._open:  # a task accepts one connection only
                report = json.loads(one)
                channel = Channel.to(tuple(report["address"]), bytes.fromhex(report["token"]))
                self._open[one] = channel
        for gone in self._open.keys() - set(reported):
            self._open.pop(gone).close()
        return [self._open[one] for one in reported]

    def check(self, *, at_the_end: bool = False) -> None:
        """Raise an exception if a channel leads to a task of an earlier attempt.

        Spark starts the stage again then. Before the end, only if the barrier is complete.
        """
        if not at_the_end and (self._used is None or not self._gathered.done()):
            return
        everyone = self._gathered.result()
        if self._used not in (None, everyone[1:]):
            raise RuntimeError("A task of an earlier attempt of this stage still runs.")
        self._used = None

    def close(self) -> None:
        self._pool.shutdown(wait=False)
        if self.listener is not None:
            self.listener.close()
        if self._folder is not None:
            with contextlib.suppress(OSError):
                (self._folder / str(self._number)).unlink(missing_ok=True)
                self._folder.rmdir()  # the last task can


def _folder(name: str) -> Path:
    return Path(tempfile.gettempdir()) / f"exactmeans-{name}.tasks"
