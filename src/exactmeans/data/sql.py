"""`open_sql`: the rows of a query as a source of blocks, ordered by a key.

The result set is read once and kept (`spool.py`), because queries have no stable order and other
sessions write to the tables. Rows are ordered here, not by the server, so that the result depends
neither on its plan nor on its collation.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any, Literal, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from exactmeans.data.arrow import pyarrow_or_refuse
from exactmeans.data.record_batches import key_array
from exactmeans.data.source import check_block_rows
from exactmeans.data.spool import Run, Spool, SpooledRows
from exactmeans.data.sql_layouts import (
    Chunk,
    CooLayout,
    Layout,
    layout_for,
    refuse_repeated_key,
    shown,
)
from exactmeans.database.connect import connect
from exactmeans.memory import check_memory_limit, memory_of_machine
from exactmeans.parameters import check_choice

__all__ = ["Keys", "SqlRows", "open_sql"]

LayoutName = Literal["columns", "array", "coo"]
LAYOUT_NAMES: tuple[LayoutName, ...] = ("columns", "array", "coo")


def open_sql(
    query: str,
    connection: Any,
    *,
    key: str,
    features: str | Sequence[str] | None = None,
    layout: LayoutName = "columns",
    weight: str | None = None,
    nulls: Literal["error", "drop"] = "error",
    parameters: Any = None,
    n_features: int | None = None,
    block_rows: int | None = None,
    memory_limit: int | float | str | None = None,
    spool: str | os.PathLike[str] | None = None,
) -> SqlRows:
    """Make a source of row blocks from what a query returns, ordered by a key.

    The query runs once. Its rows are kept in memory, or in a temporary file if they do not fit, so
    that a fit works on one snapshot, whatever others write meanwhile.

    Parameters
    ----------
    query : str
        A statement that returns rows.
    connection : URI or connection
        'postgresql://user@host/database', 'duckdb:///file' or 'sqlite:///file'; or a connection of
        ADBC's DB-API (PostgreSQL, SQLite, Flight SQL), of DuckDB, or of any other DB-API driver. A
        connection that is given stays open.
    key : str
        The column that identifies rows: integers, text, dates, UUIDs. Rows are ordered by it, text
        by its bytes, so that seeds and labels do not depend on the order in which the database
        returns them. A key that is NULL or not unique is refused.
    features : str, sequence of str or None, default=None
        The columns of numbers; None means all but `key` and `weight`. For layout='array' the one
        column of arrays. For layout='coo' the column numbers and the values.
    layout : {'columns', 'array', 'coo'}, default='columns'
        'columns': one column per feature. 'array': one column of arrays, lists, vectors of pgvector
        (vector, halfvec, sparsevec), text such as '[1, 2]', or bytes of little-endian float32.
        'coo': triples of key, column number from 0, and value, which become CSR rows.
    weight : str or None, default=None
        A column of sample weights, which `fit` and `score` then use by themselves.
    nulls : {'error', 'drop'}, default='error'
        Rows with NULL or NaN are refused with their key and column, or left out: `n_dropped` counts
        them.
    parameters : sequence, mapping or None, default=None
        Values for the query's placeholders, as the driver takes them.
    n_features : int or None, default=None
        For layout='coo', the number of columns; None means the highest column number and one.
    block_rows : int or None, default=None
        Rows per block; None means one block in memory, or blocks of about 8 MB in a file.
    memory_limit : int, float, str or None, default=None
        The most memory to take for the rows, as for `KMeans`; None means a quarter of the
        machine's.
    spool : path or None, default=None
        The folder of the temporary file, which rows go to in any case if it is given. None means
        memory if `memory_limit` lets them, else the system's folder for temporary files.

    Returns
    -------
    SqlRows
        A `BlockSource` with `keys`, an Arrow array in the order of the rows, `sample_weight` and
        `n_dropped`.

    Examples
    --------
    >>> import duckdb
    >>> from exactmeans import KMeans, open_sql
    >>> connection = duckdb.connect()
    >>> _ = connection.execute("CREATE TABLE t (id INT, x DOUBLE, y DOUBLE)")
    >>> _ = connection.execute("INSERT INTO t VALUES (3, 9, 9), (1, 0, 1), (2, 0, 0), (4, 9, 8)")
    >>> rows = open_sql("SELECT * FROM t", connection, key="id")
    >>> rows
    <1 blocks, 4 rows x 2 columns>
    >>> rows.keys.to_pylist()
    [1, 2, 3, 4]
    >>> KMeans(2, random_state=0).fit(rows).labels_
    array([1, 1, 0, 0], dtype=int32)
    """
    if not isinstance(query, str) or not query.strip():
        raise ValueError(f"query must be a statement that returns rows, not {query!r}.")
    check_choice("layout", layout, LAYOUT_NAMES)
    check_choice("nulls", nulls, ("error", "drop"))
    check_block_rows(block_rows)
    limit = check_memory_limit(memory_limit) or memory_of_machine() // 4
    reader = _Reader(
        lambda schema: layout_for(layout, schema, key, features, weight, n_features),
        Spool(limit, spool, to_file=spool is not None),
        drop=nulls == "drop",
    )
    with connect(connection) as database, closing(database.batches(query, parameters)) as batches:
        reader.read(batches)
    return reader.rows(block_rows)


class Keys(NamedTuple):
    """What identifies the rows of a query, in their order."""

    values: Any  # an Arrow array
    name: str  # of the column
    kind: Any  # the Arrow type that the column had, which `values` may have lost (UUIDs)

    def column(self) -> Any:
        """The keys with the type that they had, in the forms that all drivers know."""
        pa = pyarrow_or_refuse()
        if getattr(self.kind, "extension_name", "") == "arrow.uuid":
            return pa.ExtensionArray.from_storage(self.kind, self.values)
        if pa.types.is_large_string(self.values.type):
            return pa.chunked_array([self.values]).cast(pa.string())
        if pa.types.is_large_binary(self.values.type):
            return pa.chunked_array([self.values]).cast(pa.binary())
        return self.values


class SqlRows(SpooledRows):
    """Rows of a query, ordered by key."""

    #: An Arrow array with the key of every row, in their order.
    keys: Any
    #: The name of the column that `keys` come from.
    key: str
    #: The Arrow type that the column had, which `keys` may have lost (UUIDs are bytes there).
    key_type: Any
    #: Rows that nulls='drop' left out.
    n_dropped: int = 0


class _Reader:
    """Collects chunks of rows into sorted runs, and the runs into a source."""

    def __init__(self, make_layout: Any, spool: Spool, *, drop: bool) -> None:
        self._make_layout, self._spool, self._drop = make_layout, spool, drop
        self._layout: Layout | None = None
        self._keys: list[Any] = []
        self._weights: list[NDArray[np.float64]] = []
        self._dropped = 0

    def read(self, batches: Iterator[Any]) -> None:
        for batch in batches:
            if self._layout is None:
                self._layout = self._make_layout(batch.schema)
            if batch.num_rows:
                self._take(self._layout, batch)
            if self._spool.full(self._layout.collected_bytes):
                self._spool.spill(self._run(self._layout))

    def _take(self, layout: Layout, batch: Any) -> None:
        keys, chunk, dropped = checked_chunk(layout, batch, drop=self._drop)
        self._dropped += dropped
        self._key_type = batch.schema.field(layout.key).type
        if not len(keys):
            return
        layout.collect(chunk)
        self._keys.append(keys)
        if chunk.weights is not None:
            self._weights.append(chunk.weights)

    def _run(self, layout: Layout) -> Run:
        """What was collected since the last run, sorted by key."""
        pa = pyarrow_or_refuse()
        kinds = sorted({str(keys.type) for keys in self._keys})
        if len(kinds) > 1:  # SQLite allows several types in a column
            raise ValueError(
                f"key must hold values of one type, but column {layout.key!r} holds "
                f"{' and '.join(kinds)}."
            )
        keys = pa.concat_arrays(self._keys)
        weights = np.concatenate(self._weights) if self._weights else None
        self._keys, self._weights = [], []
        return layout.run(keys, weights)

    def rows(self, block_rows: int | None) -> SqlRows:
        layout = self._layout
        if layout is not None and self._keys:
            self._spool.add(self._run(layout))
        mapped, runs = self._spool.finish()
        if layout is None or not runs:
            left = f", after {self._dropped} with NULL or NaN were dropped" if self._dropped else ""
            raise ValueError(f"query must return rows, but it returned none{left}.")
        keys, places = _places(runs, layout)
        parts = [run.rows for run in runs]
        source = SqlRows("query", mapped, parts, places, layout.width(runs), block_rows)
        if isinstance(layout, CooLayout) and len(runs) > 1:
            _refuse_repeated_entries(source, keys, layout)
        source.keys, source.key, source.names = keys, layout.key, layout.names
        source.key_type = self._key_type
        source.n_dropped = self._dropped
        if layout.weight is not None:
            source.sample_weight = np.empty(len(keys))
            for run, own in zip(runs, places, strict=True):
                source.sample_weight[own] = run.weights
        return source


def checked_chunk(layout: Layout, batch: Any, *, drop: bool) -> tuple[Any, Chunk, int]:
    """Keys and rows of a batch without those to drop, and how many these were."""
    keys = key_array(batch.column(layout.key))
    if keys.null_count:
        raise ValueError(
            f"key must not be NULL, but column {layout.key!r} is NULL in a row of the query."
        )
    chunk = layout.chunk(batch)
    missing = _missing(layout, chunk, keys, drop=drop)
    if len(missing):
        kept = np.delete(np.arange(batch.num_rows), missing)
        keys, chunk = keys.take(pyarrow_or_refuse().array(kept)), chunk.only(kept)
    return keys, chunk, len(missing)


def _missing(layout: Layout, chunk: Chunk, keys: Any, *, drop: bool) -> NDArray[np.int64]:
    """Rows to drop. Infinity is always refused, NULL and NaN if they are not to be dropped."""
    values = chunk.values
    bad = np.flatnonzero(~np.isfinite(values))
    places = [(*chunk.place(at), bool(np.isnan(values[at]))) for at in bad.tolist()]
    for row, column, missing in places:
        where = f"the row with {layout.key} = {shown(keys[row])}"
        if not missing:
            raise ValueError(
                f"features must be finite, but {where} has infinity (inf) in column "
                f"{layout.column_name(column)}."
            )
        if not drop:
            _refuse_missing("features", where, layout.column_name(column))
    rows = [row for row, _, _ in places]
    for argument, numbers in (("features", chunk.columns), ("weight", chunk.weights)):
        lacking = [] if numbers is None else np.flatnonzero(np.isnan(numbers)).tolist()
        if lacking and not drop:
            where = f"the row with {layout.key} = {shown(keys[lacking[0]])}"
            name = repr(layout.weight) if argument == "weight" else layout.column_name(-1)
            _refuse_missing(argument, where, name)
        rows += lacking
    return np.unique(np.array(rows, dtype=np.int64))


def _refuse_missing(argument: str, where: str, column: str) -> NoReturn:
    raise ValueError(
        f"{argument} must not be NULL or NaN, but {where} has such a value in column {column}: "
        "leave such rows out in the query, or pass nulls='drop'."
    )


def _places(runs: list[Run], layout: Layout) -> tuple[Any, list[NDArray[np.int64]]]:
    """All keys in order, and the number of every row of every run among them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if len(runs) == 1:
        return runs[0].keys, [np.arange(len(runs[0].keys), dtype=np.int64)]
    keys = pa.concat_arrays([run.keys for run in runs])
    order = pc.sort_indices(keys)
    ordered = keys.take(order)
    new = np.concatenate([[True], np.asarray(pc.not_equal(ordered[1:], ordered[:-1]))])
    if not layout.merges and not new.all():
        refuse_repeated_key(ordered[int(np.flatnonzero(~new)[0])], layout.key)
    place = np.empty(len(keys), dtype=np.int64)
    place[np.asarray(order)] = np.cumsum(new) - 1
    ends = np.cumsum([len(run.keys) for run in runs])[:-1]
    return ordered.filter(pa.array(new)), np.split(place, ends)


def _refuse_repeated_entries(source: SqlRows, keys: Any, layout: CooLayout) -> None:
    """Triples of one row and column that came in different runs."""
    for block in range(len(source)):
        rows = source.read(block)
        again = (np.diff(rows.indices) == 0) & (np.diff(_row_numbers(rows)) == 0)
        if again.any():
            at = int(np.flatnonzero(again)[0])
            row = int(source.edges[block]) + int(_row_numbers(rows)[at])
            layout.refuse_entry(keys[row], int(rows.indices[at]))


def _row_numbers(rows: Any) -> NDArray[np.int64]:
    return np.repeat(np.arange(rows.shape[0], dtype=np.int64), np.diff(rows.indptr))
