"""Rows of Arrow record batches, as Spark hands them to tasks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse as sp
from numpy.typing import NDArray

from exactmeans.data.arrays import Matrix
from exactmeans.engine.cluster.layout import BlockInfo, Layout

#: Columns of the record batches that tasks read.
FEATURES, WEIGHT, ID = "features", "weight", "id"
_DENSE = 1  # the type of a dense vector in the struct of Spark's VectorUDT


@dataclass
class TaskRows:
    """The rows of one task."""

    parts: list[Matrix] = field(default_factory=list)
    weights: list[NDArray[np.float64]] = field(default_factory=list)

    @staticmethod
    def read(batches: Iterable[Any]) -> TaskRows:
        """Refuses nulls, empty vectors, vectors of several sizes, and equal neighbouring ids."""
        rows, last = TaskRows(), None
        for batch in batches:
            if not batch.num_rows:
                continue
            names = batch.schema.names
            rows.parts.append(features_of(batch.column(names.index(FEATURES))))
            if WEIGHT in names:
                rows.weights.append(_weights(batch.column(names.index(WEIGHT))))
            if ID in names:
                last = _check_ids(batch.column(names.index(ID)), last)
        if len({part.shape[1] for part in rows.parts}) > 1:
            sizes = sorted({part.shape[1] for part in rows.parts})
            raise ValueError(f"featuresCol must have rows of one size, but they have {sizes}.")
        if rows.parts and not rows.parts[0].shape[1]:
            raise ValueError("featuresCol must have at least one value per row, but it has none.")
        return rows

    @property
    def info(self) -> BlockInfo:
        """Counts a block as sparse if one of its rows is."""
        if not self.parts:
            return BlockInfo(0, 0, None, False, 0)
        infos = [BlockInfo.of(part) for part in self.parts]
        return BlockInfo(
            sum(info.rows for info in infos),
            infos[0].columns,
            str(np.result_type(*(part.dtype for part in self.parts))),
            any(info.sparse for info in infos),
            sum(info.values for info in infos),
        )

    def matrix(self, dtype: str, *, sparse: bool) -> Matrix:
        """All rows as one matrix; releases the parts, so that only one copy stays."""
        parts, self.parts = self.parts, []
        return stacked(parts, dtype, sparse=sparse)


def stacked(parts: Sequence[Matrix], dtype: str, *, sparse: bool) -> Matrix:
    """One matrix of this layout."""
    if sparse:
        rows = sp.vstack([sp.csr_array(part) for part in parts], format="csr", dtype=dtype)
        return sp.csr_array(rows)
    dense = [part if isinstance(part, np.ndarray) else part.toarray() for part in parts]
    return np.ascontiguousarray(np.concatenate(dense), dtype=dtype)


def common_layout(infos: Sequence[BlockInfo]) -> Layout:
    """One block per task. All rows are CSR if one is, and at most half of all values are stored."""
    stored, all_values = 0, 0
    for info in infos:
        stored += info.values
        all_values += info.rows * info.columns
    sparse = any(info.sparse for info in infos) and 2 * stored <= all_values
    return Layout(
        [
            replace(info, sparse=sparse, values=info.values if sparse else info.rows * info.columns)
            for info in infos
        ]
    )


def features_of(column: Any) -> Matrix:
    """A column of vectors (as structs) or of arrays."""
    if column.null_count:
        raise ValueError("featuresCol must not have nulls: drop or fill such rows.")
    if pa.types.is_struct(column.type):
        return _vectors(column)
    lengths = _lengths(column)
    if len(np.unique(lengths)) > 1:
        raise ValueError("featuresCol must have arrays of one length.")
    flat = column.flatten()
    if flat.null_count:
        raise ValueError("featuresCol must not have nulls: drop or fill such rows.")
    values = flat.to_numpy(zero_copy_only=False)
    if values.dtype not in (np.float32, np.float64):
        values = values.astype(np.float64)
    return np.asarray(values.reshape(len(column), -1))


def columns_of(columns: Sequence[Any]) -> Matrix:
    """Several columns of numbers as dense rows."""
    if any(column.null_count for column in columns):
        raise ValueError("featuresCol must not have nulls: drop or fill such rows.")
    values = [column.to_numpy(zero_copy_only=False).astype(np.float64) for column in columns]
    return np.ascontiguousarray(np.stack(values, axis=1))


def _vectors(column: Any) -> Matrix:
    kinds = column.field("type").to_numpy(zero_copy_only=False)
    values, lengths = column.field("values"), _lengths(column.field("values"))
    flat = values.flatten().to_numpy(zero_copy_only=False)
    dense = kinds == _DENSE
    if dense.all():
        if len(np.unique(lengths)) > 1:
            raise ValueError("featuresCol must have vectors of one size.")
        return np.asarray(flat.reshape(len(column), -1))
    sizes = column.field("size").to_numpy(zero_copy_only=False)
    sizes = np.unique(np.where(dense, lengths, sizes).astype(np.int64))
    if len(sizes) > 1:
        raise ValueError("featuresCol must have vectors of one size.")
    d = int(sizes[0])
    # Dense vectors have no indices.
    indices = np.empty(len(flat), dtype=np.int32)
    of_sparse = np.repeat(~dense, lengths)
    indices[of_sparse] = column.field("indices").flatten().to_numpy(zero_copy_only=False)
    indices[~of_sparse] = np.tile(np.arange(d, dtype=np.int32), int(dense.sum()))
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    rows = sp.csr_array((flat.copy(), indices, indptr), shape=(len(column), d))
    if dense.any():
        rows.eliminate_zeros()
    return rows


def _lengths(lists: Any) -> NDArray[np.int64]:
    lengths = lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    return np.asarray(lengths, dtype=np.int64)


def _weights(column: Any) -> NDArray[np.float64]:
    if column.null_count:
        raise ValueError("weightCol must not have nulls: drop or fill such rows.")
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.float64)


def _check_ids(column: Any, last: Any) -> Any:
    """Rows are sorted by id; returns the last one."""
    ids = column.to_pylist()
    if None in ids:
        raise ValueError("idCol must not have nulls: give every row an id.")
    before = [last, *ids[:-1]]
    # For Spark's order, NaN equals NaN.
    if any(a == b or (a != a and b != b) for a, b in zip(before, ids, strict=True)):
        raise ValueError("idCol must be different for every row, but some rows share an id.")
    return ids[-1]
