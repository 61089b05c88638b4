"""What offers an Arrow stream (`__arrow_c_stream__`): relations, readers, tables of lists."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exactmeans.data.arrow import pyarrow_or_refuse
from exactmeans.data.memory import ArrayBlocks
from exactmeans.data.record_batches import cells, holds_lists, is_numeric, is_single, numbers
from exactmeans.data.source import CutRows, choose_columns
from exactmeans.data.spool import GrowingRows, Run, Spool, SpooledRows
from exactmeans.memory import memory_of_machine

_IN_MEMORY = ("pyarrow", "polars")  # whose tables need not be read to be kept


def is_arrow_stream(X: Any) -> bool:
    """Whether X offers an Arrow stream and NumPy cannot make a matrix of it.

    Frames of plain numbers stay with NumPy, and so with the names and messages of scikit-learn.
    """
    if not hasattr(X, "__arrow_c_stream__"):
        return False
    if not hasattr(X, "__array__"):
        return True
    schema = getattr(X, "schema", None)
    if schema is None:
        return False
    if type(X).__module__.split(".")[0] == "polars":
        return any(dtype.is_nested() for dtype in schema.values())
    return any(holds_lists(kind) for kind in getattr(schema, "types", ()))


def open_stream(X: Any, columns: Any, block_rows: int | None) -> CutRows:
    """The rows of a stream, in its order. A stream may be read only once, so they are kept."""
    pa = pyarrow_or_refuse()
    reader = pa.RecordBatchReader.from_stream(X)
    chosen = choose_columns(columns, reader.schema.names, len(reader.schema.names), "source")
    picked = range(len(reader.schema.names)) if chosen is None else chosen.tolist()
    rows = _BatchRows([reader.schema.field(f) for f in picked])
    held = type(X).__module__.split(".")[0] in _IN_MEMORY and hasattr(X, "__len__")
    if held and rows.one_list and block_rows is None:
        found: CutRows = ArrayBlocks(
            [rows.of(batch, picked) for batch in reader if batch.num_rows] or [np.empty((0, 0))]
        )
    else:
        found = _spooled(reader, picked, rows, block_rows)
    found.names = rows.names
    return found


def _spooled(reader: Any, picked: Any, rows: _BatchRows, block_rows: int | None) -> CutRows:
    spool = Spool(memory_of_machine() // 4, None, to_file=False)
    growing: GrowingRows | None = None
    sizes = []
    for batch in reader:
        if not batch.num_rows:
            continue
        matrix = rows.of(batch, picked)
        if growing is None:
            growing = GrowingRows(matrix.shape[1], rows.dtype or matrix.dtype)
        growing.append(matrix)
        if spool.full(growing.n * matrix.shape[1] * growing.itemsize):
            sizes.append(growing.n)
            spool.spill(Run(growing.taken(), None, None))
    if growing is None:
        raise ValueError("source must have rows, but its stream has none, or was read before.")
    if growing.n:
        sizes.append(growing.n)
        spool.add(Run(growing.taken(), None, None))
    mapped, runs = spool.finish()
    ends = np.concatenate([[0], np.cumsum(sizes)])
    places = [np.arange(*span, dtype=np.int64) for span in pairwise(ends)]
    parts = [run.rows for run in runs]
    return SpooledRows("source", mapped, parts, places, parts[0].shape[1], block_rows)


class _BatchRows:
    """Record batches as matrices: numeric columns, and lists of numbers side by side."""

    def __init__(self, fields: list[Any]) -> None:
        for field in fields:
            if not is_numeric(field.type) and not holds_lists(field.type):
                raise ValueError(
                    f"source: column {field.name!r} holds {field.type}, not numbers; name the "
                    "columns to use with columns=."
                )
        lists = [holds_lists(field.type) for field in fields]
        self.one_list = lists == [True]
        self.names = None if any(lists) else [field.name for field in fields]
        self._names = [field.name for field in fields]
        self._widths: list[int] | None = None
        single = all(
            is_single(field.type.value_type if own else field.type)
            for field, own in zip(fields, lists, strict=True)
        )
        self.dtype = np.dtype(np.float32 if single else np.float64)

    def of(self, batch: Any, picked: Any) -> NDArray[Any]:
        columns = [batch.column(f) for f in picked]
        parts = [self._part(*named) for named in zip(columns, self._names, strict=True)]
        widths = [part.shape[1] for part in parts]
        self._widths = self._widths or widths
        if widths != self._widths:
            raise ValueError(
                f"source must have lists of one length, but they have {sum(self._widths)} numbers "
                f"in one row and {sum(widths)} in another."
            )
        if len(parts) == 1:
            return parts[0]
        out = np.empty((batch.num_rows, sum(widths)), dtype=self.dtype)
        np.concatenate(parts, axis=1, out=out)
        return out

    def _part(self, column: Any, name: str) -> NDArray[Any]:
        if not holds_lists(column.type):
            return numbers(column).reshape(-1, 1)
        found = cells(column, name)
        if (found.lengths < 0).any():
            raise ValueError(f"source: column {name!r} has missing lists.")
        if (found.lengths != found.lengths[0]).any():
            raise ValueError(f"source: column {name!r} has lists of different lengths.")
        return found.values.reshape(len(column), -1)
