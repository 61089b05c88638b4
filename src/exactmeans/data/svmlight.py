"""svmlight files: lines of `targets index:value ...`, with one target, several or none."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from exactmeans.data.lines import TextFile, edges_of, is_number
from exactmeans.data.source import BLOCK_BYTES, Allocator, CutRows, choose_columns

_ROW = re.compile(rb"^[ \t]*[^#\s][^\r\n]*", re.MULTILINE)
_ROW_OR_SPACES = re.compile(rb"^(?:[ \t][^\r\n]*|[^#\s][^\r\n]*)", re.MULTILINE)
_SIZES = re.compile(rb"\s*(\d+)[ \t]+(\d+)[ \t]+(\d+)\s*")
_QID = re.compile(rb"(?<!\S)qid:\S*")
_PAIR = re.compile(rb"\d+:[^:\s]+")
_SPACES = bytes.maketrans(b" \t", b"\n\n")


class Parsed(NamedTuple):
    """Some rows: entries with indices as the file has them, and the targets of each row."""

    indptr: NDArray[np.int64]
    indices: NDArray[np.int64]
    values: NDArray[np.float64]
    targets: NDArray[np.float64]
    targets_end: NDArray[np.int64]  # after those of each row


class SvmlightFile:
    """One file in runs of rows. Comments and qid are ignored.

    A first line of three numbers (rows, features, labels) is the header of the extreme
    classification data sets. Under it, a line of spaces is a row without labels and entries.
    """

    def __init__(self, path: Path, block_rows: int | None) -> None:
        self.path, self._text = path, TextFile(path)
        with self._text.checked(), self._text.open() as file:
            sizes, skip = _SIZES.fullmatch(file.readline()), file.tell()
            sample = file.read(2**16)
        #: Rows, features and labels by the header.
        self.sizes = tuple(int(size) for size in sizes.groups()) if sizes else None
        self._row = _ROW_OR_SPACES if sizes else _ROW
        self.spans = self._text.spans(
            skip if sizes else 0, block_rows or _rows_that_fit(sample), self._row
        )
        if not self.spans:
            raise ValueError(f"{path} has no rows.")
        self.edges = edges_of(self.spans)
        n = int(self.edges[-1])
        if self.sizes and self.sizes[0] != n:
            raise ValueError(f"{path} must have the {self.sizes[0]} rows of its header, not {n}.")

    def extremes(self) -> tuple[int, int]:
        """The smallest and the largest index; (1, -1) without entries."""
        found = [
            (int(indices.min()), int(indices.max()))
            for b in range(len(self.spans))
            if len(indices := self.parse(b).indices)
        ]
        if not found:
            return 1, -1
        return min(least for least, _ in found), max(most for _, most in found)

    def parse(self, b: int) -> Parsed:
        """Rows of span b, their entries by ascending index."""
        begin, span = int(self.edges[b]), self.spans[b]
        text = self._text.read(span.offset, span.size)
        heads, bodies = self._split(text)
        if len(heads) != span.lines:
            raise ValueError(f"{self.path} has changed since it was opened.")
        try:
            per_row = [[float(t) for t in head.split(b",") if t] for head in heads]
            table = _table(b"\n".join(bodies).translate(_SPACES))
            indices = table[:, 0].astype(np.int64)
            if len(table) and not (table[:, 0] == indices).all():
                raise ValueError
        except (ValueError, OverflowError) as error:
            wrong = self._first_wrong(text, begin)
            raise ValueError(f"{self.path}: {wrong or error}.") from None
        counts = [body.count(b":") for body in bodies]
        indptr = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
        order = _by_row(indices, indptr)
        if order is not None:
            indices, table = indices[order], table[order]
            twice = np.flatnonzero(_steps(indices, indptr) == 0)
            if twice.size:
                row = begin + int(np.searchsorted(indptr, twice[0], side="right")) - 1
                raise ValueError(f"{self.path}: row {row} has index {indices[twice[0]]} twice.")
        ends = np.cumsum([len(own) for own in per_row], dtype=np.int64)
        targets = np.array([t for own in per_row for t in own], dtype=np.float64)
        return Parsed(indptr, indices, table[:, 1].copy(), targets, ends)

    def _split(self, text: bytes) -> tuple[list[bytes], list[bytes]]:
        """Targets and entries of each row, as text."""
        heads, bodies = [], []
        for match in self._row.finditer(text):
            line = match.group().partition(b"#")[0]
            head, *rest = line.split(None, 1) or [b""]
            if b":" in head:  # a row without targets
                head, rest = b"", [line]
            heads.append(head)
            body = rest[0] if rest else b""
            bodies.append(_QID.sub(b"", body) if b"qid:" in body else body)
        return heads, bodies

    def _first_wrong(self, text: bytes, begin: int) -> str | None:
        for row, (head, body) in enumerate(zip(*self._split(text), strict=True), start=begin):
            for target in head.split(b","):
                if target and not is_number(target.decode(errors="replace")):
                    return f"row {row} has {target.decode(errors='replace')!r} for a target"
            for token in body.split():
                shown = token.decode(errors="replace")
                if not _PAIR.fullmatch(token) or not is_number(shown.partition(":")[2]):
                    return f"row {row} has {shown!r} where index:value is expected"
        return None


def _table(entries: bytes) -> NDArray[np.float64]:
    """Lines of index:value."""
    if not entries.strip():
        return np.empty((0, 2))
    table = np.loadtxt(io.BytesIO(entries), delimiter=":", comments=None, ndmin=2)
    if table.shape[1] != 2:
        raise ValueError
    return np.asarray(table)


def _steps(indices: NDArray[np.int64], indptr: NDArray[np.int64]) -> NDArray[np.int64]:
    """From each entry to the next; 1 where the next belongs to another row."""
    steps = np.diff(indices)
    last = indptr[1:-1] - 1
    steps[last[(last >= 0) & (last < len(steps))]] = 1
    return steps


def _by_row(indices: NDArray[np.int64], indptr: NDArray[np.int64]) -> NDArray[np.intp] | None:
    """The order that sorts entries within their rows; None if they are sorted and distinct."""
    if (_steps(indices, indptr) > 0).all():
        return None
    return np.lexsort((indices, np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))))


def _rows_that_fit(sample: bytes) -> int:
    """Rows to a block, judged by the first lines: an entry takes 16 bytes once it is parsed."""
    lines = max(1, sample.count(b"\n"))
    return max(1, int(BLOCK_BYTES / (16 * max(1, sample.count(b":")) / lines + 8)))


def base_of(zero_based: bool | str, least: int, files: Sequence[SvmlightFile]) -> int:
    """The index that the first column has in these files."""
    if zero_based == "auto":
        return 0 if least == 0 or any(file.sizes for file in files) else 1
    if not zero_based and least == 0:
        raise ValueError(
            f"zero_based must be True or 'auto' for {files[0].path}, which has an index 0."
        )
    return 0 if zero_based else 1


class SvmlightRows(CutRows):
    """Rows of svmlight files, one after the other; targets are ignored.

    With `zero_based="auto"`, indices begin at 1 unless a file has a 0 or a header. There are as
    many columns as the header or the largest index says; `columns=range(d)` fixes another number.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        columns: Any,
        block_rows: int | None,
        zero_based: bool | str = "auto",
    ) -> None:
        self._files = files = [SvmlightFile(path, block_rows) for path in paths]
        self._places = [(file, b) for file in files for b in range(len(file.spans))]
        name = str(paths[0]) if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"
        extremes = [file.extremes() for file in files]
        least = min(least for least, _ in extremes)
        self._base = base_of(zero_based, least, files)
        #: True, False, or None where nothing in the files says where indices begin.
        self.zero_based: bool | None = self._base == 0
        if zero_based == "auto" and self._base == 1:
            self.zero_based = None
            self.guesses = (f"indices of {name} begin at 1, since it has no index 0",)
        self._refuse_beyond_header([most for _, most in extremes])
        d = max(most for _, most in extremes) + 1 - self._base
        d = max([d, *(file.sizes[1] for file in files if file.sizes)])
        if d < 1:
            raise ValueError(f"{name} has no entries.")
        sizes = np.concatenate([np.diff(file.edges) for file in files])
        edges = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        super().__init__(name, edges, d, np.float64, sparse=True)
        fixed = any(file.sizes for file in files)
        chosen = choose_columns(columns, None, self._d, name, beyond=not fixed)
        if chosen is not None:
            if zero_based == "auto" and self._base == 1:
                raise ValueError(
                    f"zero_based must be True or False where columns are chosen from {name}, which "
                    "has no index 0, so its first column may be 0 or 1."
                )
            self._d = max(self._d, int(chosen.max()) + 1)
        self.select(chosen)

    def widen(self, d: int) -> None:
        """Have at least d columns: rows of a file may end before the last feature of a model."""
        if self._columns is None:
            self._d = max(self._d, d)

    def _refuse_beyond_header(self, largest: list[int]) -> None:
        for file, most in zip(self._files, largest, strict=True):
            if file.sizes and most - self._base >= file.sizes[1]:
                raise ValueError(
                    f"{file.path} has {file.sizes[1]} features by its header, but it has index "
                    f"{most}."
                )

    def _rows(self, block: int, begin: int, end: int, allocator: Allocator) -> Any:
        file, b = self._places[block]
        raw = file.parse(b)
        indices = raw.indices - self._base
        if len(indices) and not (indices.min() >= 0 and indices.max() < self._d):
            raise ValueError(f"{file.path} has changed since it was opened.")
        return sp.csr_matrix((raw.values, indices, raw.indptr), shape=(end - begin, self._d))
