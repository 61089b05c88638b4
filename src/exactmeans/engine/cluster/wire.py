"""The wire format: typed values as a JSON header and raw buffers. Holds data only, never code.

A message is the magic bytes, the format's version, the length of the header, the header, and
buffers of which each begins at a multiple of 8 bytes. In the header a number, a string, a boolean
or null is itself. Everything else is a list that begins with a tag: `array` names a dtype, a shape
and a buffer, and the name of a record is followed by its fields. Only the types listed here can be
encoded or decoded.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import struct
import sys
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from exactmeans import _core
from exactmeans.data.rows import Lengths
from exactmeans.engine.cluster.requests import Centres, Failure, Opening, Request, Response
from exactmeans.engine.frame import Frame
from exactmeans.engine.protocol import AssignStats, FarRow
from exactmeans.engine.seeding import BlockTotal, Found, Refreshed

#: Raise it with every change of the format or of a record.
VERSION = 3
_MAGIC = b"EXMW"
_HEAD = struct.Struct("<4sIQ")  # magic, version, bytes of the header
_ALIGNMENT = 8
_SHORTER = "it is shorter than its header says."
_KINDS = "biuf"  # of NumPy dtypes: booleans and numbers
_DTYPE = re.compile(rf"[<>|][{_KINDS}]\d\d?")  # NumPy would parse other names as Python literals

_TUPLES: tuple[Any, ...] = (AssignStats, FarRow, BlockTotal, Found, Refreshed, Lengths)
_DATACLASSES: tuple[Any, ...] = (Request, Response, Failure, Centres, Opening, Frame)
_CORE: tuple[Any, ...] = (_core.Grid, _core.ExactSum, _core.Survey)


def _fields_of_dataclass(value: Any) -> list[Any]:
    return [getattr(value, field.name) for field in dataclasses.fields(value)]


def _restored(kind: Any) -> Callable[..., Any]:
    """Makes an object of the core from its state."""

    def make(state: Any) -> Any:
        value = kind.__new__(kind)
        value.__setstate__(state)
        return value

    return make


_FIELDS: dict[Any, Callable[[Any], list[Any]]] = {
    **dict.fromkeys(_TUPLES, list),
    **dict.fromkeys(_DATACLASSES, _fields_of_dataclass),
    **dict.fromkeys(_CORE, lambda value: [value.__getstate__()]),
}
_MAKERS: dict[str, Callable[..., Any]] = {
    **{kind.__name__: kind for kind in (*_TUPLES, *_DATACLASSES)},
    **{kind.__name__: _restored(kind) for kind in _CORE},
    "list": lambda *items: list(items),
    "tuple": lambda *items: items,
    "dict": lambda *items: dict(zip(items[::2], items[1::2], strict=True)),
    "csr": lambda *parts: _csr(*parts),
}


def _csr(n: int, d: int, *arrays: Any) -> Any:
    rows = sp.csr_array(arrays, shape=(n, d))
    rows.check_format(full_check=True)  # SciPy's operations trust indices
    return rows


def encode(value: Any) -> bytes:
    """A message that `decode` reads."""
    buffers: list[Any] = []
    header = json.dumps(_encoded(value, buffers), separators=(",", ":")).encode()
    parts = [_HEAD.pack(_MAGIC, VERSION, len(header)), header]
    size = _HEAD.size + len(header)
    for buffer in buffers:
        padding = -size % _ALIGNMENT
        parts += [bytes(padding), buffer]
        size += padding + memoryview(buffer).nbytes
    return b"".join(parts)


def decode(message: bytes | bytearray | memoryview) -> Any:
    """The value of a message; arrays are copies of its buffers. Refuses others by ValueError."""
    view = memoryview(message).cast("B")
    if len(view) < _HEAD.size or view[: len(_MAGIC)] != _MAGIC:
        raise ValueError("This is no message of exactmeans.")
    _, version, length = _HEAD.unpack(view[: _HEAD.size])
    if version != VERSION:
        raise RuntimeError(
            "All machines of a cluster must have one version of exactmeans, but messages have "
            f"versions {version} and {VERSION}."
        )
    end = _HEAD.size + length
    try:
        if end > len(view):
            raise ValueError(_SHORTER)
        return _Decoder(view, end).value(json.loads(bytes(view[_HEAD.size : end])))
    except MemoryError:
        raise
    except Exception as error:  # JSON, NumPy, SciPy and the core have one each for wrong content
        raise ValueError(f"A message of exactmeans is damaged: {error}") from error


def _encoded(value: Any, buffers: list[Any]) -> Any:
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if kind in (list, tuple):
        return [kind.__name__, *(_encoded(item, buffers) for item in value)]
    if kind in _FIELDS:
        return [kind.__name__, *(_encoded(field, buffers) for field in _FIELDS[kind](value))]
    if isinstance(value, np.generic):
        return _encoded(value.item(), buffers)
    if isinstance(value, np.ndarray) and value.dtype.kind in _KINDS:
        whole = np.ascontiguousarray(value)
        buffers.append(whole.reshape(-1).view(np.uint8))
        return ["array", whole.dtype.str, *value.shape]
    if sp.issparse(value):
        rows: Any = value
        parts = (*rows.shape, rows.data, rows.indices, rows.indptr)
        return ["csr", *(_encoded(part, buffers) for part in parts)]
    if kind is bytes:
        buffers.append(value)
        return ["bytes", len(value)]
    if kind is dict:
        items = [part for pair in value.items() for part in pair]
        return ["dict", *(_encoded(item, buffers) for item in items)]
    raise TypeError(f"Messages cannot hold a {kind.__name__}.")


class _Decoder:
    """Reads buffers in the order in which the header names them."""

    def __init__(self, view: memoryview, at: int) -> None:
        self._view, self._at = view, at

    def value(self, given: Any) -> Any:
        if isinstance(given, dict):
            raise ValueError("its header has a JSON object.")
        if not isinstance(given, list):
            return given
        tag, *fields = given
        if tag == "array":
            return self._array(*fields)
        if tag == "bytes":
            return bytes(self._take(int(fields[0])))
        if tag not in _MAKERS:
            raise ValueError(f"Messages cannot hold a {tag!r}.")
        return _MAKERS[tag](*map(self.value, fields))

    def _array(self, name: str, *shape: int) -> Any:
        if not _DTYPE.fullmatch(name) or any(n < 0 for n in shape):
            raise ValueError(f"Messages cannot hold arrays of {name} and shape {shape}.")
        dtype = np.dtype(name)
        count = 1
        for n in shape:
            count *= n
        raw = self._take(count * dtype.itemsize)
        return np.frombuffer(raw, dtype=dtype).reshape(shape).copy()

    def _take(self, size: int) -> memoryview:
        begin = self._at + -self._at % _ALIGNMENT
        self._at = begin + size
        if not begin <= self._at <= len(self._view):
            raise ValueError(_SHORTER)
        return self._view[begin : self._at]


# Errors -------------------------------------------------------------------------------------------


def failure_of(error: BaseException) -> Failure:
    """An exception and where it was raised, as data."""
    kind = type(error)
    lines = traceback.format_exception(kind, error, error.__traceback__)
    return Failure(kind.__module__, kind.__qualname__, str(error), "".join(lines))


def raise_failure(failure: Failure, where: str) -> None:
    """Raise an exception of the type that the worker raised, with its traceback as a note.

    Only types of modules that are imported here are used; for others, a RuntimeError names them. A
    type that is not made from a message is replaced by the nearest base that is.
    """
    kind = getattr(sys.modules.get(failure.module), failure.kind, None)
    bases = kind.__mro__ if isinstance(kind, type) and issubclass(kind, Exception) else ()
    bases = bases[: bases.index(Exception)] if bases else ()
    named = f"{failure.kind}: {failure.message}"
    error: Exception = RuntimeError(named)
    for base in bases:
        with contextlib.suppress(Exception):  # its constructor takes something else
            error = base(failure.message if base is kind else named)
            break
    error.add_note(f"Raised by {where}:\n{failure.traceback}")
    raise error
