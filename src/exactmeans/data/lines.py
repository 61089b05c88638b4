"""Text files as runs of whole lines, plain or compressed by gzip."""

from __future__ import annotations

import contextlib
import gzip
import re
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import numpy as np

from exactmeans.data.source import Edges

_CHUNK = 2**22


class Span(NamedTuple):
    """A run of whole lines."""

    offset: int
    size: int
    lines: int  # that hold a row


class TextFile:
    """A file that is read by offset; what gzip compressed is inflated onwards from the last read.

    Offsets count bytes of the text, not of the compressed file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._compressed = path.suffix.lower() == ".gz"
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._stream: IO[bytes] | None = None

    def open(self) -> IO[bytes]:
        if self._compressed:
            return cast(IO[bytes], gzip.open(self.path, "rb"))
        return open(self.path, "rb")

    @contextlib.contextmanager
    def checked(self) -> Iterator[None]:
        """Errors of gzip while the file is read, in one sentence."""
        try:
            yield
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            said = str(error).rstrip(".")
            raise ValueError(f"{self.path} is not a whole gzip file: {said}.") from None

    def read(self, offset: int, size: int) -> bytes:
        if not self._compressed:
            with self.open() as file:
                file.seek(offset)
                text = file.read(size)
        else:
            with self._lock, self.checked():
                self._stream = self._stream or self.open()
                self._stream.seek(offset)
                text = self._stream.read(size)
        if len(text) < size:
            raise ValueError(f"{self.path} is cut short: it was longer when it was opened.")
        return text

    def chunks(self, skip: int) -> Iterator[tuple[int, bytes]]:
        """Runs of whole lines from byte `skip` on, with their offsets."""
        with self.checked(), self.open() as file:
            file.seek(skip)
            offset, rest = skip, b""
            while chunk := file.read(_CHUNK):
                text = rest + chunk
                cut = text.rfind(b"\n") + 1
                if cut:
                    yield offset, text[:cut]
                    offset += cut
                rest = text[cut:]
            if rest:
                yield offset, rest

    def spans(self, skip: int, rows: int, holds_row: re.Pattern[bytes]) -> list[Span]:
        """The file from byte `skip` on in runs of `rows` rows; other lines go with those before."""
        spans: list[Span] = []
        begin, lines, end = skip, 0, skip
        for offset, text in self.chunks(skip):
            at = 0
            for match in holds_row.finditer(text):
                if lines == rows:
                    spans.append(Span(begin, offset + match.start() - begin, lines))
                    begin, lines = offset + match.start(), 0
                lines += 1
                at = match.end()
            end = offset + max(at, len(text))
        if lines:
            spans.append(Span(begin, end - begin, lines))
        return spans

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "_compressed": self._compressed}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._reset()


def edges_of(spans: list[Span]) -> Edges:
    return np.concatenate([[0], np.cumsum([span.lines for span in spans])]).astype(np.int64)


def is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell  # float accepts 1_000, which is no number in a file
