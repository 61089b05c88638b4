"""A line from this process to a site: questions and answers as bytes, with nothing in between.

Dask's own calls wait for several event loops and threads, which takes milliseconds: as long as an
iteration may last. A worker listens for one caller, who proves by a token that Dask gave to both
that it may ask; whoever hangs up ends it.
"""

from __future__ import annotations

import contextvars
import hmac
import socket
import struct
import threading
from collections.abc import Callable
from typing import Any

Address = tuple[str, int]
TOKEN_BYTES = 32
_LENGTH = struct.Struct("<Q")
_PATIENCE = 5.0  # seconds to connect
# A machine that is gone without a word is known to be after half a minute, where systems can tell.
_KEEPALIVE = {
    **{"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4},  # seconds: nothing was said
    "TCP_USER_TIMEOUT": 30_000,  # milliseconds: what was said has not arrived
}


class Channel:
    """The caller's end. OSError from any of its methods says that the other end is gone."""

    def __init__(self, address: Address, token: bytes) -> None:
        self._socket = socket.create_connection(address, timeout=_PATIENCE)
        _prepare(self._socket)
        self._socket.sendall(token)

    def send(self, question: bytes) -> None:
        _send(self._socket, question)

    def receive(self) -> bytearray:
        return _receive(self._socket)

    def close(self) -> None:
        self._socket.close()


def listen(host: str, token: bytes, answer: Callable[[Any], bytes]) -> Address:
    """Answer questions in a thread of its own; gives where to call."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    server = socket.create_server((host, 0), family=family)
    server.settimeout(4 * _PATIENCE)
    # Whoever answers may ask Dask on which worker that is.
    run = contextvars.copy_context().run
    thread = threading.Thread(
        target=run, args=(_serve, server, token, answer), name="exactmeans-site", daemon=True
    )
    thread.start()
    return host, int(server.getsockname()[1])


def _serve(server: socket.socket, token: bytes, answer: Callable[[Any], bytes]) -> None:
    try:
        with _accepted(server, token) as caller:
            while True:
                _send(caller, answer(_receive(caller)))
    except OSError:  # nobody called, or they have hung up
        return


def _accepted(server: socket.socket, token: bytes) -> socket.socket:
    """The first caller with the token; others are not listened to."""
    with server:
        while True:
            caller, _ = server.accept()
            caller.settimeout(_PATIENCE)
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
            raise ConnectionResetError("The other end has hung up.")
        left = left[got:]
    return data
