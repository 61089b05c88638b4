"""Text files: CSV and Matrix Market. Indexed once by where lines begin, then parsed by block."""

from __future__ import annotations

import csv
import io
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from exactmeans.data.lines import TextFile, edges_of, is_number
from exactmeans.data.source import BLOCK_BYTES, Allocator, CutRows, Edges, choose_columns

# CSV ----------------------------------------------------------------------------------------------

_CSV_ROW = re.compile(rb"^[^\r\n]+", re.MULTILINE)
_WHOLE = re.compile(r"[+-]?\d+")
_SAMPLE = 2**16  # bytes below the first row that header="auto" reads
#: What files write for a missing value, in lower case.
MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})


class CsvRows(CutRows):
    """Numbers separated by commas, semicolons or tabs, with or without a first line of names.

    `header="auto"` decides by the first row and refuses ambiguous files (see `_has_names`).
    With `na="drop"`, missing cells are NaN.
    """

    def __init__(
        self,
        path: Path,
        columns: Any,
        block_rows: int | None,
        header: bool | str = "auto",
        delimiter: str = "auto",
        na: str = "error",
    ) -> None:
        self._file = TextFile(path)
        self._missing = na == "drop"
        with self._file.checked(), self._file.open() as file:
            first = file.readline()
            while first and not first.strip():
                first = file.readline()
            after = file.tell()
            below = file.read(_SAMPLE).decode(errors="replace").splitlines()
            if file.read(1):
                below = below[:-1]  # the last line is not whole
        text = first.decode("utf-8-sig", errors="replace").strip("\r\n")
        self.delimiter = max(",;\t", key=text.count) if delimiter == "auto" else delimiter
        cells = self._cells(text)
        named = bool(cells) and (
            self._has_names(text, cells, [line for line in below if line])
            if header == "auto"
            else bool(header)
        )
        self.names = [cell.strip() for cell in cells] if named else None
        if header == "auto":
            self.guesses = (f"the first row of {path} is {'names' if named else 'data'}",)
        skip = after if named else after - len(first)
        self._chosen = choose_columns(columns, self.names, len(cells), str(path))
        self.width = len(cells)
        d = self.width if self._chosen is None else len(self._chosen)
        rows = block_rows or max(1, BLOCK_BYTES // (8 * max(1, self.width)))
        self._spans = self._file.spans(skip, rows, _CSV_ROW)
        if not self._spans:
            raise ValueError(f"{path} has no rows.")
        super().__init__(str(path), edges_of(self._spans), d, np.float64, sparse=False)

    @property
    def feature_names(self) -> list[str] | None:
        if self.names is None or self._chosen is None:
            return self.names
        return [self.names[f] for f in self._chosen]

    def _cells(self, line: str) -> list[str]:
        return next(csv.reader([line], delimiter=self.delimiter), [])

    def _has_names(self, text: str, cells: list[str], below: list[str]) -> bool:
        """Is the first row a header? Text alone is, numbers alone are not; refuses all else.

        Numbers may be names, too, such as years or the numbers of the columns, so they are refused
        where the rows below are written in another way.
        """
        numbers = [is_number(cell) for cell in cells]
        if not any(numbers) and all(cell.strip() for cell in cells):
            return True
        why = ""
        if not all(numbers):
            empty = [f for f, cell in enumerate(cells) if not cell.strip()]
            why = f"column {empty[0]} of it is empty" if empty else "it has text and numbers"
        elif '"' in text and below and not any('"' in line for line in below):
            why = "its numbers are quoted and those below are not"
        elif all(_WHOLE.fullmatch(cell.strip()) for cell in cells):
            why = _like_names([int(cell) for cell in cells], [self._cells(row) for row in below])
        if why:
            raise ValueError(
                f"header must be True or False for {self._file.path}, whose first row may be names "
                f"or numbers: {why}."
            )
        return False

    def _rows(self, block: int, begin: int, end: int, allocator: Allocator) -> Any:
        span = self._spans[block]
        raw = self._file.read(span.offset, span.size)
        text = raw.decode("utf-8-sig", errors="replace")
        if self.width == 1 and not self._missing:
            self._refuse_blank(text, block, begin)
        try:
            rows = np.loadtxt(
                io.StringIO(text),
                delimiter=self.delimiter,
                quotechar='"',
                comments=None,
                ndmin=2,
                usecols=None if self._chosen is None else self._chosen.tolist(),
                converters=_number_or_nan if self._missing else None,
                encoding=None,  # converters of NumPy 1 would get bytes
            )
        except ValueError as error:
            raise ValueError(self._wrong(text, begin) or f"{self.name}: {error}.") from None
        # Cells of other columns are not parsed, but every row must have all of them.
        as_many = text.count(self.delimiter) == (self.width - 1) * len(rows)
        if rows.shape != (end - begin, self._d) or (self._chosen is not None and not as_many):
            wrong = self._wrong(text, begin)
            if wrong or rows.shape != (end - begin, self._d):
                raise ValueError(wrong or f"{self.name} has changed since it was opened.")
        return rows

    def _refuse_blank(self, text: str, block: int, begin: int) -> None:
        """Where there is one column, a blank line above others is a missing value."""
        lines = text.splitlines()
        if block == len(self._spans) - 1:
            while lines and not lines[-1]:
                lines.pop()
        if "" in lines:
            row = begin + lines.index("")
            raise ValueError(f"{self.name}: row {row}, column {self._column(0)} is empty.")

    def _column(self, f: int) -> str:
        return repr(self.names[f]) if self.names else str(f)

    def _wrong(self, text: str, begin: int) -> str | None:
        """The first row that is not numbers, one per column, in words."""
        chosen = range(self.width) if self._chosen is None else self._chosen.tolist()
        lines = (line for line in text.splitlines() if line)
        for row, line in enumerate(lines, start=begin):
            cells = self._cells(line)
            if len(cells) != self.width:
                return f"{self.name}: row {row} has {len(cells)} columns, not {self.width}."
            for f in chosen:
                if self._missing and cells[f].strip().lower() in MISSING:
                    continue
                if not cells[f].strip():
                    return f"{self.name}: row {row}, column {self._column(f)} is empty."
                if not is_number(cells[f]):
                    where = f"row {row}, column {self._column(f)}"
                    return f"{self.name}: {where}: {cells[f]!r} is not a number."
        return None


def _number_or_nan(cell: str) -> float:
    return np.nan if cell.strip().lower() in MISSING else float(cell)


def _like_names(first: list[int], below: list[list[str]]) -> str:
    """Why a row of whole numbers may be names of columns; "" if nothing suggests that."""
    if not below:  # a file has rows
        return ""
    rows = [[cell.strip() for cell in row] for row in below]
    cells = [cell for row in rows for cell in row if cell]
    distinct = len(set(first)) == len(first)
    if distinct and not any(_WHOLE.fullmatch(cell) for cell in cells):
        return "it has whole numbers and the rows below have none"
    following = [int(c) if _WHOLE.fullmatch(c) else -1 for c in rows[0]]
    if _are_years(first) and not _are_years(following):
        return "its numbers may be years"
    if _count_up(first) and not _count_up(following):
        return "its numbers count up by one"
    return ""


def _are_years(numbers: list[int]) -> bool:
    ascending = all(a < b for a, b in pairwise(numbers))
    return len(numbers) > 1 and ascending and all(1800 <= n < 2200 for n in numbers)


def _count_up(numbers: list[int]) -> bool:
    """As numbers of columns do. Of two alone, only 0 and 1: others are too often data."""
    up = all(a + 1 == b for a, b in pairwise(numbers))
    return up and (len(numbers) > 2 or numbers == [0, 1])


# Matrix Market ------------------------------------------------------------------------------------

_MTX_ENTRY = re.compile(rb"^[ \t]*\d[^\r\n]*", re.MULTILINE)


class MtxRows(CutRows):
    """A coordinate matrix whose entries are listed row by row."""

    def __init__(self, path: Path, columns: Any, block_rows: int | None) -> None:
        self._path, self._file = path, TextFile(path)
        n, d, entries, after = self._header()
        rows = block_rows or max(1, int(BLOCK_BYTES / (16 * max(1, entries) / max(1, n) + 8)))
        edges = np.append(np.arange(0, n, rows, dtype=np.int64), np.int64(n))
        self._begins = self._index(edges, after, entries, (n, d))
        super().__init__(str(path), edges, d, np.float64, sparse=True)
        self.select(choose_columns(columns, None, d, str(path)))

    def _header(self) -> tuple[int, int, int, int]:
        with self._file.checked(), self._file.open() as file:
            words = file.readline().decode(errors="replace").lower().split()
            if words[:2] != ["%%matrixmarket", "matrix"] or len(words) != 5:
                raise ValueError(f"{self._path} does not begin as a Matrix Market file does.")
            layout, field, symmetry = words[2:]
            if (layout, symmetry) != ("coordinate", "general"):
                raise ValueError(
                    f"{self._path} must be a general coordinate matrix, but it is {symmetry} "
                    f"{layout}."
                )
            if field not in ("real", "double", "integer", "pattern"):
                raise ValueError(f"{self._path} must hold real numbers, but it is {field}.")
            self._fields = 2 if field == "pattern" else 3
            line = file.readline()
            while line and (line.startswith(b"%") or not line.strip()):
                line = file.readline()
            sizes = line.split()
            if len(sizes) != 3 or not all(size.isdigit() for size in sizes):
                raise ValueError(f"{self._path} lacks the line of rows, columns and entries.")
            n, d, entries = map(int, sizes)
            return n, d, entries, file.tell()

    def _index(
        self, edges: Edges, after: int, entries: int, shape: tuple[int, int]
    ) -> NDArray[np.int64]:
        """Where the first entry of each block begins, and the end."""
        begins = np.full(len(edges), -1, dtype=np.int64)
        last, seen, end = 0, 0, after
        for offset, text in self._file.chunks(after):
            table = self._table(text, seen)
            rows = table[:, 0]
            self._check(table, rows, last, seen, shape)
            starts = [match.start() for match in _MTX_ENTRY.finditer(text)]
            first = np.searchsorted(rows - 1, edges[:-1])
            for b in np.flatnonzero((begins[:-1] < 0) & (first < len(rows))):
                begins[b] = offset + starts[first[b]]
            if len(rows):
                last = int(rows[-1])
            seen += len(rows)
            end = offset + len(text)
        if seen != entries:
            raise ValueError(f"{self._path} has {seen} entries, but its header promises {entries}.")
        begins[begins < 0] = end
        return begins

    def _check(
        self, table: NDArray[Any], rows: NDArray[Any], last: int, seen: int, shape: tuple[int, int]
    ) -> None:
        for f, most in enumerate(shape):
            wrong = np.flatnonzero((table[:, f] < 1) | (table[:, f] > most))
            if wrong.size:
                raise ValueError(
                    f"{self._path}: entry {seen + wrong[0] + 1} is outside of {shape[0]} rows and "
                    f"{shape[1]} columns."
                )
        falls = np.flatnonzero(np.diff(rows, prepend=last) < 0)
        if falls.size:
            raise ValueError(
                f"{self._path} must list its entries row by row, but entry {seen + falls[0] + 1} "
                "goes back: save X.tocsr() with scipy.io.mmwrite."
            )

    def _table(self, text: bytes, seen: int) -> NDArray[np.float64]:
        try:
            table = np.loadtxt(io.BytesIO(text), ndmin=2) if text.strip() else np.empty((0, 3))
            if table.size and table.shape[1] != self._fields:
                raise ValueError
        except ValueError:
            lines = (m.group() for m in re.finditer(rb"^[^\r\n]*\S[^\r\n]*", text, re.MULTILINE))
            for entry, line in enumerate(lines, start=seen + 1):
                cells = line.decode(errors="replace").split()
                if len(cells) != self._fields or not all(map(is_number, cells)):
                    raise ValueError(
                        f"{self._path}: entry {entry} is {' '.join(cells)!r}, not {self._fields} "
                        "numbers."
                    ) from None
            raise
        return np.asarray(table.reshape(-1, self._fields))

    def _rows(self, block: int, begin: int, end: int, allocator: Allocator) -> Any:
        offset, stop = int(self._begins[block]), int(self._begins[block + 1])
        table = self._table(self._file.read(offset, stop - offset), 0)
        data = np.ones(len(table)) if self._fields == 2 else table[:, 2]
        rows, features = table[:, 0].astype(np.int64) - 1 - begin, table[:, 1].astype(np.int64) - 1
        block_shape = (end - begin, self._d)
        return sp.csr_matrix(sp.coo_matrix((data, (rows, features)), shape=block_shape))
