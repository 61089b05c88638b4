"""Labels in tables: `labels_to_sql` for the rows of a fit, `predict_table` for any number."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from exactmeans.data.memory import ArrayBlocks
from exactmeans.data.spool import refused_if_full
from exactmeans.data.sql import Keys, SqlRows, checked_chunk
from exactmeans.data.sql_layouts import Layout, layout_for
from exactmeans.database.connect import connect
from exactmeans.metrics import METRICS
from exactmeans.parameters import check_choice, check_model
from exactmeans.sql.write import IfExists, check_target, write_table

if TYPE_CHECKING:
    from exactmeans.estimators.fitted import FittedKMeans

_ROWS = 2**16  # rows of a batch that is written


def labels_to_sql(
    model: FittedKMeans,
    connection: Any,
    table: str,
    source: Any,
    *,
    if_exists: IfExists = "fail",
    schema: str | None = None,
) -> int:
    """Write the cluster of every row to a table: the key, `cluster` and `distance`.

    Everything is written in one transaction, by the bulk path of the driver (COPY, ADBC's ingest).
    If it fails, the table is as it was before. Where the connection has a transaction open, the
    rows become a part of it, which you commit.

    Parameters
    ----------
    model : KMeans or MiniBatchKMeans
        A fitted model.
    connection : URI or connection
        As for `open_sql`; it need not be the one that the rows came from.
    table : str
        Any name; it is quoted.
    source : SqlRows
        What `open_sql` returned.
    if_exists : {'fail', 'replace', 'append'}, default='fail'
        What to do if there is such a table.
    schema : str or None, default=None
        The schema of the table; None means the connection's own.

    Returns
    -------
    int
        The number of rows written.

    Examples
    --------
    >>> import duckdb
    >>> from exactmeans import KMeans, open_sql
    >>> connection = duckdb.connect()
    >>> _ = connection.execute("CREATE TABLE t AS SELECT i AS id, i * i AS x FROM range(4) r(i)")
    >>> rows = open_sql("SELECT * FROM t", connection, key="id")
    >>> KMeans(2, random_state=0).fit(rows).to_sql(connection, "clusters", rows)
    4
    >>> connection.sql("SELECT id, cluster, distance FROM clusters WHERE id = 3").fetchall()
    [(3, 1, 0.0)]
    """
    check_target(table, if_exists, schema)
    if not isinstance(source, SqlRows):
        raise TypeError(
            f"source must be what open_sql returned, which has keys, not {type(source).__name__}."
        )
    check_model(model)
    keys = Keys(source.keys, source.key, source.key_type)
    check_key(keys.name)
    labels, distances = labelled(model, source)
    write_labels(connection, table, keys, labels, distances, if_exists=if_exists, schema=schema)
    return len(labels)


def write_labels(
    connection: Any,
    table: str,
    keys: Keys,
    labels: NDArray[np.int32],
    distances: NDArray[np.float64],
    *,
    if_exists: IfExists = "fail",
    schema: str | None = None,
) -> None:
    """Labels that are known already, as `labels_to_sql` writes them."""
    import pyarrow as pa

    columns = _columns(keys, labels, distances)
    whole = pa.table(dict(zip((keys.name, "cluster", "distance"), columns, strict=True)))
    with connect(connection, existing=False) as database, database.transaction():
        write_table(database, table, whole.to_reader(_ROWS), if_exists, schema)


def predict_table(
    connection: Any,
    query: str,
    model: FittedKMeans,
    *,
    into: str,
    key: str,
    features: str | Sequence[str] | None = None,
    layout: Literal["columns", "array"] = "columns",
    nulls: Literal["error", "drop"] = "error",
    parameters: Any = None,
    if_exists: IfExists = "fail",
    schema: str | None = None,
    spool: str | os.PathLike[str] | None = None,
) -> int:
    """Label what a query returns and write the labels to a table, in memory of constant size.

    Rows are read and labelled batch by batch. Labels wait in a temporary file until the query has
    ended, because a connection cannot read and write at once; then they are written in one
    transaction.

    Parameters
    ----------
    connection : URI or connection
        As for `open_sql`.
    query : str
        A statement that returns rows.
    model : KMeans or MiniBatchKMeans
        A fitted model.
    into : str
        The table to write: the key, `cluster` and `distance`.
    key : str
        The column that identifies rows. It need not be unique, but it must not be NULL.
    features, nulls, parameters
        As for `open_sql`.
    layout : {'columns', 'array'}, default='columns'
        As for `open_sql`. Triples need `open_sql` and `to_sql`, because they have to be sorted.
    if_exists, schema
        As for `labels_to_sql`.
    spool : path or None, default=None
        The folder of the temporary file, some 20 bytes a row.

    Returns
    -------
    int
        The number of rows written.

    Examples
    --------
    >>> import duckdb
    >>> import numpy as np
    >>> from exactmeans import KMeans
    >>> from exactmeans.sql import predict_table
    >>> model = KMeans(2, random_state=0).fit(np.array([[0.0], [1.0], [9.0]]))
    >>> connection = duckdb.connect()
    >>> query = "SELECT i AS id, i * 1.0 AS x FROM range(100000) r(i)"
    >>> predict_table(connection, query, model, into="clusters", key="id")
    100000
    >>> connection.sql("SELECT cluster, count(*) FROM clusters GROUP BY 1 ORDER BY 1").fetchall()
    [(0, 5), (1, 99995)]
    """
    check_target(into, if_exists, schema, "into")
    check_choice("layout", layout, ("columns", "array"))
    check_choice("nulls", nulls, ("error", "drop"))
    check_model(model)
    check_key(key)
    with connect(connection) as database, _LabelFile(spool) as file:
        made: Layout | None = None
        with closing(database.batches(query, parameters)) as batches:
            for batch in batches:
                made = made or layout_for(layout, batch.schema, key, features, None, None)
                if batch.num_rows:
                    file.write(_labelled_batch(model, made, batch, drop=nulls == "drop"), key)
        if file.n == 0:
            raise ValueError("query must return rows, but it returned none.")
        with file.reader() as reader, database.transaction():
            write_table(database, into, reader, if_exists, schema)
        return file.n


def _labelled_batch(model: FittedKMeans, layout: Layout, batch: Any, *, drop: bool) -> list[Any]:
    """Keys, clusters and distances of a batch."""
    values, chunk, _ = checked_chunk(layout, batch, drop=drop)
    rows = chunk.rows
    if not rows.shape[0]:
        labels, distances = np.empty(0, np.int32), np.empty(0)
    else:
        labels, distances = labelled(model, named_block(model, rows, layout.names))
    keys = Keys(values, layout.key, batch.schema.field(layout.key).type)
    return _columns(keys, labels, distances)


def named_block(model: FittedKMeans, rows: Any, names: list[str] | None) -> ArrayBlocks:
    """Rows with the column names of the query if the model has names; arrays get the model's."""
    known = getattr(model, "feature_names_in_", None)
    block = ArrayBlocks([rows])
    if known is not None:
        block.names = list(known) if names is None else names
    return block


def labelled(model: FittedKMeans, X: Any) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """The label of every row, and its distance to that centre; NaN for rows in no cluster."""
    engine = model._assigned(X)
    labels = engine.final_labels()
    frame = model._frame
    costs = engine.own_distances(model._centres(), frame.cost_exponent)
    if METRICS[frame.metric].squared:
        costs = np.ldexp(np.sqrt(costs), -frame.cost_exponent)
    return labels, np.where(labels < 0, np.nan, costs)


def check_key(key: Any) -> None:
    if key in ("cluster", "distance"):
        raise ValueError(
            f"key must not be called {key!r}, which the table has already: rename it in the query."
        )


def _columns(keys: Keys, labels: Any, distances: Any) -> list[Any]:
    import pyarrow as pa

    return [keys.column(), pa.array(labels), pa.array(distances, mask=np.isnan(distances))]


class _LabelFile:
    """Labelled rows in a temporary Arrow IPC file without a name."""

    def __init__(self, folder: str | os.PathLike[str] | None) -> None:
        self._folder = folder
        self.n = 0

    def __enter__(self) -> _LabelFile:
        with refused_if_full(self._folder):
            self._file = tempfile.TemporaryFile(dir=self._folder, prefix="exactmeans-")
        self._writer: Any = None
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, columns: list[Any], key: str) -> None:
        import pyarrow as pa

        table = pa.table(columns, names=[key, "cluster", "distance"])
        with refused_if_full(self._folder):
            if self._writer is None:
                self._writer = pa.ipc.new_stream(pa.PythonFile(self._file, "w"), table.schema)
            self._writer.write_table(table)
        self.n += table.num_rows

    def reader(self) -> Any:
        import pyarrow as pa

        with refused_if_full(self._folder):
            self._writer.close()
            self._file.seek(0)
        return pa.ipc.open_stream(pa.PythonFile(self._file, "r"))
