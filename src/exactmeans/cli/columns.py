"""The columns of a table: which there are, what they hold, which are chosen."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from glob import glob
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from exactmeans.data.lines import TextFile, is_number
from exactmeans.data.open import open_blocks
from exactmeans.data.text import MISSING, CsvRows

_CSV = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
_ARROW = (".parquet", ".arrow", ".feather")
_DESCRIBED_ROWS = 100_000  # first rows, by which `describe` says what a column holds


def is_csv(path: str) -> bool:
    return path.lower().endswith(_CSV)


def is_arrow(path: str) -> bool:
    """A file with a schema, or a folder of such files."""
    return path.lower().endswith(_ARROW) or Path(path).is_dir()


class Column(NamedTuple):
    """What the first rows of a column hold."""

    name: str
    kind: str  # "number", "text" or "empty"
    missing: int
    example: tuple[int, str] | None  # the first text and its row
    low: float
    high: float
    first_missing: int  # row; -1 if nothing is missing
    counts_up: bool  # whole numbers that go up by one, as numbers of rows do


class Csv(NamedTuple):
    """A CSV file as cells of text."""

    path: Path
    names: list[str] | None
    width: int
    delimiter: str

    @classmethod
    def open(cls, path: Path, header: bool | None, delimiter: str | None) -> Csv:
        """Find out about header and delimiter as `open_blocks` does; cells are not parsed."""
        rows: Any = open_blocks(
            str(path),
            header="auto" if header is None else header,
            delimiter="auto" if delimiter is None else delimiter,
        )
        assert isinstance(rows, CsvRows)
        return cls(path, rows.names, rows.width, rows.delimiter)

    def rows(self) -> Iterator[list[str]]:
        """Cells of each row below the names; blank lines are no rows, as for `open_blocks`."""
        with TextFile(self.path).open() as raw:
            lines = io.TextIOWrapper(raw, "utf-8-sig", errors="replace", newline="")
            cells = (row for row in csv.reader(lines, delimiter=self.delimiter) if row)
            if self.names is not None:
                next(cells, None)
            yield from cells

    def column(self, name: str) -> list[str]:
        """All cells of a column."""
        f = find(name, self.names, self.width, str(self.path))
        found = []
        for row, cells in enumerate(self.rows()):
            if f >= len(cells):
                raise ValueError(
                    f"{self.path}: row {row} has {len(cells)} columns, not {self.width}."
                )
            found.append(cells[f])
        return found

    def describe(self) -> tuple[list[Column], bool]:
        """What each column holds, by the first rows, and whether these are all rows."""
        cells: list[list[str]] = []
        whole = True
        for row in self.rows():
            if len(cells) == _DESCRIBED_ROWS:
                whole = False
                break
            if len(row) != self.width:
                raise ValueError(
                    f"{self.path}: row {len(cells)} has {len(row)} columns, not {self.width}."
                )
            cells.append(row)
        names = self.names or [str(f) for f in range(self.width)]
        own = list(zip(*cells, strict=True)) or [()] * self.width
        return [_column(name, values) for name, values in zip(names, own, strict=True)], whole


def _column(name: str, cells: Sequence[str]) -> Column:
    lacking = [row for row, cell in enumerate(cells) if cell.strip().lower() in MISSING]
    missing, first = len(lacking), lacking[0] if lacking else -1
    texts = (
        (row, cell)
        for row, cell in enumerate(cells)
        if cell.strip().lower() not in MISSING and not is_number(cell)
    )
    example = next(texts, None)
    if example is not None:
        return Column(name, "text", missing, example, np.nan, np.nan, first, False)
    values = np.array([float(c) for c in cells if c.strip().lower() not in MISSING])
    if not len(values):
        return Column(name, "empty", missing, None, np.nan, np.nan, first, False)
    ups = len(values) > 9 and not missing and bool((np.diff(values) == 1).all())
    low, high = float(values.min()), float(values.max())
    return Column(name, "number", missing, None, low, high, first, ups)


def split(given: Sequence[str]) -> list[str]:
    """Names from options, which separate them by commas; quotes keep commas in names."""
    found = []
    for option in given:
        found += [cell.strip() for cell in next(csv.reader([option], skipinitialspace=True), [])]
    return [name for name in found if name]


def find(name: str, names: Sequence[str] | None, width: int, where: str) -> int:
    """The number of a column by its name, or by its number from 0."""
    if names is not None and name in names:
        return list(names).index(name)
    if name.isdigit() and int(name) < width:
        return int(name)
    known = (
        f"its columns are {', '.join(map(repr, names[:12]))}"
        + (f" and {len(names) - 12} more" if len(names) > 12 else "")
        if names is not None
        else f"it has no column names, so number its {width} columns from 0"
    )
    raise ValueError(f"there is no column {name!r} in {where}: {known}.")


def choose(
    given: Sequence[str],
    without: Sequence[str],
    names: Sequence[str] | None,
    width: int,
    where: str,
) -> list[int]:
    """Numbers of the columns to use: those that are given, or all, but for those without."""
    chosen: list[int] = []
    for name in split(given):
        first, colon, last = name.partition(":")
        is_range = colon and first.isdigit() and last.isdigit() and name not in (names or ())
        if is_range:
            find(str(max(0, int(last) - 1)), None, width, where)
            chosen += range(int(first), int(last))
        else:
            chosen.append(find(name, names, width, where))
    out = {find(name, names, width, where) for name in split(without)}
    chosen = [f for f in (chosen or range(width)) if f not in out]
    if not chosen:
        raise ValueError(f"no column of {where} is left: name those to use with --columns.")
    return chosen


def arrow_dataset(path: Path) -> Any:
    """Parquet files, or an Arrow or Feather file, by their columns."""
    import pyarrow.dataset

    kind = "parquet" if path.is_dir() or path.suffix.lower() == ".parquet" else "ipc"
    return pyarrow.dataset.dataset(str(path), format=kind, partitioning="hive")


def cells(path: str, name: str, header: bool | None, delimiter: str | None) -> list[Any]:
    """All cells of one column of a table, or of the tables of a pattern."""
    if not (is_csv(path) or is_arrow(path)):
        raise ValueError(
            f"{name!r} must be a column of a CSV, Parquet or Arrow file, not of {path}."
        )
    found: list[Any] = []
    for file in [Path(path)] if Path(path).exists() else sorted(map(Path, glob(path))):
        if is_csv(path):
            found += Csv.open(file, header, delimiter).column(name)
            continue
        data = arrow_dataset(file)
        find(name, data.schema.names, len(data.schema.names), path)
        found += data.to_table(columns=[name]).column(name).to_pylist()
    return found
