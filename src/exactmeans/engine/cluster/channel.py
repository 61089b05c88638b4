"""A channel to one worker engine: a TCP socket with length-prefixed messages.

For clusters without a fast way to send messages of their own, such as Spark. The worker accepts one
connection, which authenticates by a token that the cluster delivered to both ends.
"""

from __future__ import annotations

import contextlib
import hmac
import socket
import struct
from collections.abc import Callable
from typing import Any

Address = tuple[str, int]
TOKEN_BYTES = 32
_LENGTH = struct.Struct("<Q")
_TIMEOUT = 5.0  # seconds to connect
# Detects a machine that vanished after half a minute, where the system supports these options.
_KEEPALIVE = {
    **{"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4},  # seconds without traffic
    "TCP_USER_TIMEOUT": 30_000,  # milliseconds without acknowledgement
}


class Channel:
    """The client's end. Every method raises OSError if the other end is gone."""

    def __init__(self, address: Address, token: bytes) -> None:
        self._socket = socket.create_connection(address, timeout=_TIMEOUT)
        _prepare(self._socket)
        self._socket.sendall(token)

    def send(self, message: bytes) -> None:
        _send(self._socket, message)

    def receive(self) -> bytearray:
        return _receive(self._socket)

    def close(self) -> None:
        """End the conversation."""
        with contextlib.suppress(OSError):
            self.send(b"")
        self._socket.close()


class Listener:
    """The worker's end, before and after somebody connects."""

    def __init__(self, host: str, token: bytes) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._server, self._token = socket.create_server((host, 0), family=family), token
        self.address: Address = (host, int(self._server.getsockname()[1]))

    def serve(self, respond: Callable[[Any], bytes], patience: float) -> None:
        """Respond to messages until an empty one arrives.

        Raises OSError if nobody connects within `patience` seconds, or if the other end vanishes.
        """
        self._server.settimeout(patience)
        with _accepted(self._server, self._token) as caller:
            while message := _receive(caller):
                _send(caller, respond(message))

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
                _prepare(caller)
                return caller
            caller.close()


def _prepare(end: socket.socket) -> None:
    end.settimeout(None)
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    end.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE.items():
        if hasattr(socket, option):
            end.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def _send(end: socket.socket, data: bytes) -> None:
    end.sendall(_LENGTH.pack(len(data)))
    end.sendall(data)


def _receive(end: socket.socket) -> bytearray:
    (length,) = _LENGTH.unpack(_exactly(end, _LENGTH.size))
    return _exactly(end, length)


def _exactly(end: socket.socket, count: int) -> bytearray:
    data = bytearray(count)
    left = memoryview(data)
    while left:
        got = end.recv_into(left)
        if not got:
            raise ConnectionResetError("The other end closed the channel.")
        left = left[got:]
    return data
