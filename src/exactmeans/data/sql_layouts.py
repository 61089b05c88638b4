"""How a result set becomes rows of a matrix: by columns, from arrays, or from triples."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from exactmeans.data.key_ranks import ranks
from exactmeans.data.record_batches import (
    cells,
    holds_lists,
    is_numeric,
    is_single,
    numbers,
    sparse_rows,
    type_name,
)
from exactmeans.data.spool import GrowingRows, Run, reordered
from exactmeans.database.names import check_name
from exactmeans.parameters import check_int


class Chunk(NamedTuple):
    """The rows of one record batch: an array, CSR rows, or the values of triples."""

    rows: Any
    weights: NDArray[np.float64] | None = None
    columns: NDArray[np.float64] | None = None  # of triples; NaN where NULL

    @property
    def values(self) -> NDArray[Any]:
        dense = isinstance(self.rows, np.ndarray)
        flat: NDArray[Any] = self.rows.reshape(-1) if dense else self.rows.data
        return flat

    def place(self, at: int) -> tuple[int, int]:
        """The row and the column of a value."""
        if not isinstance(self.rows, np.ndarray):
            row = int(np.searchsorted(self.rows.indptr, at, side="right")) - 1
            return row, int(self.rows.indices[at])
        if self.columns is not None:
            return at, -1 if np.isnan(self.columns[at]) else int(self.columns[at])
        row, column = divmod(at, int(self.rows.shape[1]))
        return row, column

    def only(self, kept: NDArray[np.int64]) -> Chunk:
        return Chunk(
            self.rows[kept],
            None if self.weights is None else self.weights[kept],
            None if self.columns is None else self.columns[kept],
        )


class Layout(ABC):
    """Makes chunks of record batches, collects them and sorts what it collected."""

    merges = False  # whether several rows of the result set make one row of the matrix
    names: list[str] | None = None  # of the features, where they have names

    def __init__(self, key: str, weight: str | None) -> None:
        self.key, self.weight = key, weight
        self.collected_bytes = 0

    def chunk(self, batch: Any) -> Chunk:
        weights = None
        if self.weight is not None:
            weights = _numeric(batch, self.weight, "weight").astype(np.float64)
        return self._chunk(batch)._replace(weights=weights)

    @abstractmethod
    def _chunk(self, batch: Any) -> Chunk: ...

    @abstractmethod
    def column_name(self, column: int) -> str:
        """What a message calls a column of the matrix."""

    def collect(self, chunk: Chunk) -> None:
        self.collected_bytes += chunk.values.nbytes + 8 * chunk.rows.shape[0]
        self._collect(chunk)

    @abstractmethod
    def _collect(self, chunk: Chunk) -> None: ...

    @abstractmethod
    def run(self, keys: Any, weights: NDArray[np.float64] | None) -> Run:
        """All collected rows, sorted by key; the layout is empty afterwards."""

    def width(self, runs: Sequence[Run]) -> int:
        return max(int(run.rows.shape[1]) for run in runs)


class RowLayout(Layout):
    """One row of the result set makes one row of the matrix."""

    def run(self, keys: Any, weights: NDArray[np.float64] | None) -> Run:
        """All collected rows, sorted by key, which must be unique."""
        self.collected_bytes = 0
        order = ascending(keys)
        if order is not None:
            keys = keys.take(order)
        refuse_repeats(keys, self.key)
        rows = self._taken()
        if order is not None:
            numpy_order = np.asarray(order)
            rows = reordered(rows, numpy_order)
            weights = None if weights is None else weights[numpy_order]
        return Run(rows, keys, weights)

    @abstractmethod
    def _taken(self) -> Any:
        """All collected rows; the layout is empty afterwards."""


class ColumnsLayout(RowLayout):
    """One column per feature."""

    def __init__(self, schema: Any, key: str, weight: str | None, features: list[str]) -> None:
        super().__init__(key, weight)
        self.names = features
        for name in features:
            kind = schema.field(name).type
            if holds_lists(kind) or type_name(kind) in ("vector", "halfvec", "sparsevec"):
                raise ValueError(
                    f"features must be columns of numbers, but column {name!r} holds arrays: pass "
                    "layout='array'."
                )
        single = all(is_single(schema.field(name).type) for name in features)
        self._dtype = np.dtype(np.float32 if single else np.float64)
        self._rows = GrowingRows(len(features), self._dtype)

    def _chunk(self, batch: Any) -> Chunk:
        assert self.names is not None
        out = np.empty((batch.num_rows, len(self.names)), dtype=self._dtype)
        for f, name in enumerate(self.names):
            out[:, f] = _numeric(batch, name, "features")
        return Chunk(out)

    def column_name(self, column: int) -> str:
        assert self.names is not None
        return repr(self.names[column])

    def _collect(self, chunk: Chunk) -> None:
        self._rows.append(chunk.rows)

    def _taken(self) -> Any:
        return self._rows.taken()


class ArrayLayout(RowLayout):
    """One column of arrays of one length, or of sparse vectors of one width."""

    def __init__(self, key: str, weight: str | None, feature: str) -> None:
        super().__init__(key, weight)
        self._feature = feature
        self._d: int | None = None
        self._dense: GrowingRows | None = None
        self._sparse: list[Any] = []

    def _chunk(self, batch: Any) -> Chunk:
        found = cells(batch.column(self._feature), self._feature)
        if found.columns is not None:
            self._d = found.width if self._d is None else self._d
            if found.width is not None and found.width != self._d:
                self._refuse_length(batch, int(np.flatnonzero(found.lengths >= 0)[-1]), found.width)
            return Chunk(sparse_rows(found, self._d or 1))
        present = np.flatnonzero(found.lengths >= 0)
        if self._d is None and len(present):
            self._d = int(found.lengths[present[0]])
        odd = present[found.lengths[present] != self._d]
        if len(odd):
            self._refuse_length(batch, int(odd[0]), int(found.lengths[odd[0]]))
        d = self._d or 0
        if d == 0 and len(present):
            raise ValueError(f"features must not be empty, but column {self._feature!r} is.")
        values = found.values if found.values.dtype == np.float32 else found.values.astype(float)
        if len(present) == batch.num_rows:
            return Chunk(values.reshape(-1, d))
        rows = np.full((batch.num_rows, max(d, 1)), np.nan, dtype=values.dtype)
        if len(present):
            rows[present] = values.reshape(-1, d)
        return Chunk(rows)

    def _refuse_length(self, batch: Any, row: int, length: int) -> NoReturn:
        raise ValueError(
            f"features must be arrays of one length, but column {self._feature!r} has {self._d} "
            f"numbers in one row and {length} in that with {self.key} = "
            f"{shown(batch.column(self.key)[row])}."
        )

    def column_name(self, column: int) -> str:
        return f"{self._feature!r}, at place {column} of its array"

    def _collect(self, chunk: Chunk) -> None:
        if sp.issparse(chunk.rows):
            self._sparse.append(chunk.rows)
            return
        if not chunk.rows.size:
            return
        if self._dense is None:
            self._dense = GrowingRows(chunk.rows.shape[1], chunk.rows.dtype)
        self._dense.append(chunk.rows)

    def _taken(self) -> Any:
        if self._dense is not None:
            return self._dense.taken()
        rows: Any = sp.vstack(self._sparse, format="csr")
        self._sparse = []
        return rows


class CooLayout(Layout):
    """Triples of key, column number and value."""

    merges = True

    def __init__(self, schema: Any, key: str, features: list[str], n_features: int | None) -> None:
        super().__init__(key, None)
        self._column, self._value = features
        self._n_features = n_features
        single = is_single(schema.field(self._value).type)
        self._dtype = np.dtype(np.float32 if single else np.float64)
        self._columns: list[NDArray[np.int32]] = []
        self._values: list[NDArray[Any]] = []

    def _chunk(self, batch: Any) -> Chunk:
        columns = _numeric(batch, self._column, "features")
        values = _numeric(batch, self._value, "features").astype(self._dtype, copy=False)
        known = columns[~np.isnan(columns)] if columns.dtype.kind == "f" else columns
        most = (np.iinfo(np.int32).max if self._n_features is None else self._n_features) - 1
        wrong = (known < 0) | (known > most)
        if known.dtype.kind == "f":
            wrong |= known != np.floor(known)
        if wrong.any():
            odd = known[wrong][0]
            at = int(np.flatnonzero(columns == odd)[0])
            raise ValueError(
                f"features must have column numbers from 0 to {most}, but column {self._column!r} "
                f"has {odd} in a row with {self.key} = {shown(batch.column(self.key)[at])}."
            )
        return Chunk(values, columns=columns)

    def column_name(self, column: int) -> str:
        return repr(self._column if column < 0 else self._value)

    def _collect(self, chunk: Chunk) -> None:
        assert chunk.columns is not None
        self._columns.append(chunk.columns.astype(np.int32))
        self._values.append(chunk.rows)
        self.collected_bytes += 4 * len(chunk.rows)

    def run(self, keys: Any, weights: NDArray[np.float64] | None) -> Run:
        self.collected_bytes = 0
        columns, values = np.concatenate(self._columns), np.concatenate(self._values)
        self._columns, self._values = [], []
        row, distinct = ranks(keys)
        del keys
        d = int(columns.max(initial=-1)) + 1
        rows: Any = sp.coo_matrix((values, (row, columns)), shape=(len(distinct), d)).tocsr()
        if rows.nnz < len(values):
            self._refuse_repeat(distinct, row, columns)
        return Run(rows, distinct, None)

    def _refuse_repeat(self, keys: Any, row: Any, columns: Any) -> NoReturn:
        order = np.lexsort((columns, row))
        again = (np.diff(row[order]) == 0) & (np.diff(columns[order]) == 0)
        at = order[int(np.flatnonzero(again)[0])]
        self.refuse_entry(keys[int(row[at])], int(columns[at]))

    def refuse_entry(self, key: Any, column: int) -> NoReturn:
        raise ValueError(
            f"features must have one value per row and column, but the row with {self.key} = "
            f"{shown(key)} has column {column} more than once: add them up in the query with GROUP "
            "BY."
        )

    def width(self, runs: Sequence[Run]) -> int:
        return self._n_features or super().width(runs)


def layout_for(
    layout: str,
    schema: Any,
    key: str,
    features: str | Sequence[str] | None,
    weight: str | None,
    n_features: int | None,
) -> Layout:
    """The layout of a result set with this schema; checks that it has the columns."""
    names = schema.names
    refuse_unknown(names, check_name(key, "key"), "key")
    if weight is not None:
        refuse_unknown(names, check_name(weight, "weight"), "weight")
    _refuse_key_type(schema.field(key).type, key)
    if features is None:
        chosen = [name for name in names if name not in (key, weight)]
    else:
        chosen = [features] if isinstance(features, str) else list(features)
        for name in chosen:
            refuse_unknown(names, check_name(name, "features"), "features")
    if not chosen:
        raise ValueError(f"features must name columns, but the query returns none beside {key!r}.")
    if n_features is not None and layout != "coo":
        raise ValueError("n_features must be None unless layout='coo'.")
    if layout == "columns":
        return ColumnsLayout(schema, key, weight, chosen)
    if layout == "array":
        if len(chosen) != 1:
            raise ValueError(
                f"features must name one column for layout='array', but there are {len(chosen)}: "
                f"{', '.join(map(repr, chosen[:5]))}."
            )
        return ArrayLayout(key, weight, chosen[0])
    if weight is not None:
        raise ValueError(
            "weight must be None for layout='coo', whose rows hold key, column number and value."
        )
    if len(chosen) != 2:
        raise ValueError(
            "features must name two columns for layout='coo', the column numbers and the values, "
            f"but there are {len(chosen)}."
        )
    return CooLayout(
        schema, key, chosen, None if n_features is None else check_int("n_features", n_features, 1)
    )


def refuse_unknown(names: list[str], name: str, argument: str) -> None:
    count = names.count(name)
    if count == 1:
        return
    if count:
        raise ValueError(
            f"{argument} must name one column, but the query returns {count} {name!r}."
        )
    some = ", ".join(map(repr, names[:5])) + (f" and {len(names) - 5} more" if names[5:] else "")
    raise ValueError(
        f"{argument} must be a column of the query, but {name!r} is not: it has {some}."
    )


def _refuse_key_type(kind: Any, key: str) -> None:
    import pyarrow.types as types

    if types.is_floating(kind) or types.is_nested(kind):
        raise ValueError(
            f"key must hold integers, text, dates or UUIDs, but column {key!r} holds "
            f"{type_name(kind)}."
        )


def _numeric(batch: Any, name: str, argument: str) -> NDArray[Any]:
    column = batch.column(name)
    if not is_numeric(column.type):
        kind = type_name(column.type)
        kind = {"string": "text", "large_string": "text"}.get(kind, kind)
        raise ValueError(f"{argument} must hold numbers, but column {name!r} holds {kind}.")
    return numbers(column)


def ascending(keys: Any) -> Any:
    """The order that sorts keys; None if they are in order."""
    import pyarrow.compute as pc

    if len(keys) < 2 or pc.all(pc.less_equal(keys[:-1], keys[1:])).as_py():
        return None
    return pc.sort_indices(keys)


def refuse_repeats(ordered: Any, key: str) -> None:
    import pyarrow.compute as pc

    same = np.asarray(pc.equal(ordered[1:], ordered[:-1]))
    if same.any():
        refuse_repeated_key(ordered[int(np.flatnonzero(same)[0])], key)


def refuse_repeated_key(value: Any, key: str) -> NoReturn:
    raise ValueError(f"key must be unique, but column {key!r} has {shown(value)} more than once.")


def shown(value: Any) -> str:
    """A key as a message shows it."""
    text = repr(value.as_py())
    return text if len(text) <= 60 else text[:60] + "…"
