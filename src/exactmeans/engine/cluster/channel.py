"""A channel to one worker engine: a TCP socket with length-prefixed messages.

The socket is one that the cluster connected, or one of a `Listener`, which accepts one connection.
That authenticates by a token that the cluster delivered to both ends.
"""

from __future__ import annotations

import contextlib
import hmac
import selectors
import socket
import struct
from collections.abc import Callable
from typing import Any

Address = tuple[str, int]
TOKEN_BYTES = 32
_LENGTH = struct.Struct("<Q")
_TIMEOUT = 5.0  # seconds to connect
_POLL = 0.5  # seconds between two checks whether messages are still wanted
_AHEAD = 1 << 24  # bytes of memory taken before they arrive: a length may be wrong
# Detects a machine that vanished after half a minute, where the system supports these options.
_KEEPALIVE = {
    **{"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4},  # seconds without traffic
    "TCP_USER_TIMEOUT": 30_000,  # milliseconds without acknowledgement
}


class Channel:
    """One end of a connected socket. Its methods raise OSError if the other end is gone.

    A process that stands still keeps its connections, so the socket does not block: whoever needs
    to notice that gives `watch` a check.
    """

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        _prepare(connected)
        self._selector = selectors.DefaultSelector()
        self._selector.register(connected, selectors.EVENT_READ)
        self._interval: float | None = None
        self._check: Callable[[], None] = _no_check

    @staticmethod
    def to(address: Address, token: bytes) -> Channel:
        """Connect to a `Listener`."""
        connected = socket.create_connection(address, timeout=_TIMEOUT)
        connected.sendall(token)
        return Channel(connected)

    def watch(self, interval: float, check: Callable[[], None]) -> None:
        """While a message waits, call `check` every so many seconds: it may raise OSError."""
        self._interval, self._check = interval, check

    def send(self, message: bytes) -> None:
        for data in (_LENGTH.pack(len(message)), message):
            left = memoryview(data)
            while left:
                try:
                    left = left[self._socket.send(left) :]
                except BlockingIOError:
                    self._wait(selectors.EVENT_WRITE)

    def receive(self) -> bytearray:
        (length,) = _LENGTH.unpack(self._received(_LENGTH.size))
        return self._received(length)

    def _received(self, count: int) -> bytearray:
        data = bytearray()
        while len(data) < count:
            begin = len(data)
            data += bytes(min(count - begin, _AHEAD))
            with memoryview(data) as whole:
                left = whole[begin:]
                while left:
                    try:
                        left = left[_received_into(self._socket, left) :]
                    except BlockingIOError:
                        self._wait(selectors.EVENT_READ)
                left.release()
        return data

    def _wait(self, event: int) -> None:
        """Wait until the socket can be read or written."""
        self._selector.modify(self._socket, event)
        try:
            while not self._selector.select(self._interval):
                self._check()
        finally:
            self._selector.modify(self._socket, selectors.EVENT_READ)

    def ready(self, seconds: float) -> bool:
        """Whether something can be received, or the other end is gone, within this time."""
        return bool(self._selector.select(seconds))

    def serve(
        self, respond: Callable[[Any], bytes], wanted: Callable[[], bool] = lambda: True
    ) -> None:
        """Respond to messages until an empty one arrives, while they are wanted."""

        def check() -> None:
            if not wanted():
                raise ConnectionAbortedError("No messages are wanted any more.")

        self.watch(_POLL, check)
        while wanted():
            if not self.ready(_POLL):
                continue
            message = self.receive()
            if not message:
                return
            self.send(respond(message))

    def close(self) -> None:
        """End the conversation, unless the other end has stopped reading."""
        self.watch(_POLL, _give_up)
        with contextlib.suppress(OSError):
            self.send(b"")
        self.drop()

    def drop(self) -> None:
        """Close the socket without notice."""
        self._selector.close()
        self._socket.close()


class Listener:
    """The worker's end, before and after somebody connects."""

    def __init__(self, host: str, token: bytes) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._server, self._token = socket.create_server((host, 0), family=family), token
        self.address: Address = (host, int(self._server.getsockname()[1]))

    def serve(self, respond: Callable[[Any], bytes]) -> None:
        """Respond to messages until an empty one arrives.

        Waits without a limit for the other end to connect. Raises OSError if it vanishes.
        """
        channel = Channel(_accepted(self._server, self._token))
        try:
            channel.serve(respond)
        finally:
            channel.drop()

    def close(self) -> None:
        self._server.close()


def _accepted(server: socket.socket, token: bytes) -> socket.socket:
    """The first connection that sends the token; others are closed."""
    with server:
        while True:
            caller, _ = server.accept()
            caller.settimeout(_TIMEOUT)
            try:
                allowed = hmac.compare_digest(bytes(_exactly(caller, TOKEN_BYTES)), token)
            except OSError:
                allowed = False
            if allowed:
                return caller
            caller.close()


def _no_check() -> None: ...


def _give_up() -> None:
    raise TimeoutError("The other end does not read.")


def _prepare(end: socket.socket) -> None:
    end.setblocking(False)
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    end.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE.items():
        if hasattr(socket, option):
            end.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def _exactly(end: socket.socket, count: int) -> bytearray:
    """From a socket that blocks."""
    data = bytearray(count)
    left = memoryview(data)
    while left:
        left = left[_received_into(end, left) :]
    return data


def _received_into(end: socket.socket, buffer: memoryview) -> int:
    count = end.recv_into(buffer)
    if not count:
        raise ConnectionResetError("The other end closed the channel.")
    return count
