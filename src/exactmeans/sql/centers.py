"""Models in tables: `centers_to_sql` and `from_sql`."""

from __future__ import annotations

import base64
import json
from contextlib import closing
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from exactmeans.data.record_batches import cells, numbers
from exactmeans.data.weights import check_weights, weights_of
from exactmeans.database.connect import connect
from exactmeans.database.names import check_name, column_type
from exactmeans.database.protocol import Database
from exactmeans.io import model_file
from exactmeans.metrics import METRICS
from exactmeans.parameters import check_model
from exactmeans.sql.labels import labelled
from exactmeans.sql.write import IfExists, check_target, write_table

if TYPE_CHECKING:
    from exactmeans.estimators.fitted import FittedKMeans
    from exactmeans.kmeans import KMeans

_ENTRIES = "_entries"  # ends the name of the table of triples
_NOT_KEPT = ("cluster_centers_", "labels_")


def centers_to_sql(
    model: FittedKMeans,
    connection: Any,
    table: str,
    source: Any = None,
    *,
    if_exists: IfExists = "fail",
    schema: str | None = None,
) -> None:
    """Write the centres of a model to a table: `id`, `size`, `inertia`, `vector` and `model`.

    `vector` is an array. CSR centres, and all centres in databases without arrays such as SQLite,
    go to a second table instead, called like the first with '_entries': triples of `id`, `feature`
    (from 0) and `value`, without zeros. `model` is the rest of the model as JSON, in the row of
    centre 0, for `from_sql`. Everything is written in one transaction.

    Parameters
    ----------
    model : KMeans or MiniBatchKMeans
        A fitted model.
    connection, table, if_exists, schema
        As for `labels_to_sql`; 'append' is not possible.
    source : BlockSource, array-like or None, default=None
        Rows whose number and inertia per cluster to write. None means the rows of the fit; the
        model does not keep their inertia per cluster, so it is NULL.

    Examples
    --------
    >>> import duckdb
    >>> import numpy as np
    >>> import exactmeans
    >>> X = np.array([[0.0, 1.0], [0.0, 3.0], [9.0, 9.0]])
    >>> model = exactmeans.KMeans(2, random_state=0).fit(X)
    >>> connection = duckdb.connect()
    >>> model.centers_to_sql(connection, "centres", X)
    >>> connection.sql("SELECT id, size, inertia, vector FROM centres").fetchall()
    [(0, 2, 2.0, [0.0, 2.0]), (1, 1, 0.0, [9.0, 9.0])]
    >>> exactmeans.from_sql(connection, "centres").predict(X)
    array([0, 0, 1], dtype=int32)
    """
    check_target(table, if_exists, schema)
    if if_exists == "append":
        raise ValueError("if_exists must be 'fail' or 'replace' for centres, which are one model.")
    check_model(model)
    import pyarrow as pa

    centres = model._given_centres()
    k = centres.shape[0]
    sizes, inertias = _statistics(model, source, k)
    columns: dict[str, Any] = {
        "id": pa.array(np.arange(k, dtype=np.int32)),
        "size": sizes,
        "inertia": inertias,
    }
    kept = pa.array([_json(model, centres)] + [None] * (k - 1), pa.string())
    with connect(connection, existing=False) as database, database.transaction():
        in_array = not sp.issparse(centres) and _has_arrays(database)
        if in_array:
            flat = pa.array(np.ascontiguousarray(centres).reshape(-1))
            offsets = pa.array(np.arange(k + 1, dtype=np.int32) * centres.shape[1])
            columns["vector"] = pa.ListArray.from_arrays(offsets, flat)
        columns["model"] = kept
        write_table(database, table, pa.table(columns).to_reader(), if_exists, schema)
        if not in_array:
            entries = _entries(centres).to_reader(2**16)
            write_table(database, table + _ENTRIES, entries, if_exists, schema)
        elif if_exists == "replace":  # those of a model that was there before
            database.execute(f"DROP TABLE IF EXISTS {database.quoted(table + _ENTRIES, schema)}")


def _has_arrays(database: Database) -> bool:
    return column_type("float64[]", database.dialect) is not None


def _statistics(model: FittedKMeans, source: Any, k: int) -> tuple[Any, Any]:
    """Rows and inertia of each cluster, as Arrow arrays."""
    import pyarrow as pa

    nothing = np.ones(k, dtype=bool)
    if source is None:
        known = hasattr(model, "labels_")
        labels = model.labels_ if known else np.empty(0, dtype=np.int32)
        sizes = np.bincount(labels[labels >= 0], minlength=k)
        return (
            pa.array(sizes, pa.int64(), mask=None if known else nothing),
            pa.array(np.zeros(k), mask=nothing),
        )
    labels, distances = labelled(model, source)
    inside = labels >= 0
    costs = distances**2 if METRICS[model._frame.metric].squared else distances
    weights = check_weights(weights_of(source, None), len(labels))
    if weights is not None:
        costs = costs * weights
    inertias = np.bincount(labels[inside], costs[inside], minlength=k)
    return pa.array(np.bincount(labels[inside], minlength=k), pa.int64()), pa.array(inertias)


def _entries(centres: Any) -> Any:
    import pyarrow as pa

    found = sp.coo_array(centres)
    return pa.table(
        {
            "id": pa.array(found.row.astype(np.int32)),
            "feature": pa.array(found.col.astype(np.int32)),
            "value": pa.array(found.data),
        }
    )


def _json(model: FittedKMeans, centres: Any) -> str:
    """All of a model but its centres and labels."""
    content, tensors = model_file.content_of(model, _NOT_KEPT)
    stored = {
        name: [str(array.dtype), array.shape, base64.b64encode(array.tobytes()).decode()]
        for name, array in tensors.items()
    }
    about = {"dtype": str(centres.dtype), "shape": centres.shape, "sparse": sp.issparse(centres)}
    return json.dumps(
        {"schema": model_file.SCHEMA, "centers": about, "content": content, "tensors": stored}
    )


def from_sql(connection: Any, table: str, *, schema: str | None = None) -> KMeans:
    """Read a model that `centers_to_sql` wrote; it predicts the same labels, bit for bit.

    Parameters
    ----------
    connection : URI or connection
        As for `open_sql`.
    table : str
        The table of the centres.
    schema : str or None, default=None
        Its schema; None means the connection's own.

    Returns
    -------
    KMeans or MiniBatchKMeans
        Without `labels_`, which belong to the rows of the fit.

    Examples
    --------
    >>> import duckdb
    >>> import numpy as np
    >>> import exactmeans
    >>> X = np.array([[0.0], [1.0], [9.0]])
    >>> connection = duckdb.connect()
    >>> exactmeans.KMeans(2, random_state=0).fit(X).centers_to_sql(connection, "centres")
    >>> exactmeans.from_sql(connection, "centres").predict(X)
    array([0, 0, 1], dtype=int32)
    """
    check_name(table, "table")
    if schema is not None:
        check_name(schema, "schema")
    with connect(connection) as database:
        found = _read(database, table, schema)
        if not {"id", "model"} <= set(found.column_names):
            raise ValueError(f"table must come from centers_to_sql, but {table!r} does not.")
        kept = [text for text in found.column("model").to_pylist() if text is not None]
        if len(kept) != 1:
            raise ValueError(f"table must hold one model, but {table!r} holds {len(kept)}.")
        try:
            whole = json.loads(kept[0])
            about, content = whole["centers"], whole["content"]
            tensors = {name: _array(*stored) for name, stored in whole["tensors"].items()}
            shape, dtype = tuple(about["shape"]), np.dtype(about["dtype"])
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{table} is not a model that can be read: {error!r}.") from None
        if whole["schema"] != model_file.SCHEMA:
            raise ValueError(
                f"{table} has schema {whole['schema']}, but this version of exactmeans reads "
                f"schema {model_file.SCHEMA}."
            )
        _refuse_other_ids(found, shape[0], table)
        if "vector" in found.column_names:
            centres: Any = _from_vectors(found, shape, dtype, table)
        else:
            entries = _read(database, table + _ENTRIES, schema)
            centres = _from_entries(entries, shape, dtype, table)
            centres = centres if about["sparse"] else centres.toarray()
    content["fitted"]["cluster_centers_"] = model_file.encode(centres, tensors, "cluster_centers_")
    return model_file.model_of(content, tensors, table)


def _read(database: Database, table: str, schema: str | None) -> Any:
    import pyarrow as pa

    query = f"SELECT * FROM {database.quoted(table, schema)}"
    with closing(database.batches(query)) as batches:
        found = list(batches)
    if not sum(batch.num_rows for batch in found):
        return pa.table({name: [] for name in (found[0].schema.names if found else ())})
    return pa.Table.from_batches([batch for batch in found if batch.num_rows])


def _array(dtype: str, shape: list[int], encoded: str) -> NDArray[Any]:
    return np.frombuffer(base64.b64decode(encoded), np.dtype(dtype)).reshape(shape).copy()


def _refuse_other_ids(found: Any, k: int, table: str) -> None:
    if sorted(found.column("id").to_pylist()) != list(range(k)):
        raise ValueError(
            f"table must hold the centres 0 to {k - 1} once each, but {table!r} does not."
        )


def _from_vectors(found: Any, shape: Any, dtype: np.dtype[Any], table: str) -> NDArray[Any]:
    vectors = cells(found.column("vector"), "vector")
    if (vectors.lengths != shape[1]).any():
        raise ValueError(f"table must hold vectors of {shape[1]} numbers, but {table!r} does not.")
    centres = np.empty(shape, dtype=dtype)
    centres[np.asarray(found.column("id"))] = vectors.values.reshape(shape)
    return centres


def _from_entries(found: Any, shape: Any, dtype: np.dtype[Any], table: str) -> Any:
    if not found.num_rows:
        return sp.csr_array(shape, dtype=dtype)
    values = numbers(found.column("value").combine_chunks()).astype(dtype)
    places = tuple(np.asarray(found.column(name)).astype(np.int64) for name in ("id", "feature"))
    try:
        return sp.coo_array((values, places), shape=shape).tocsr()
    except ValueError as error:
        raise ValueError(f"{table}{_ENTRIES} is damaged: {error}.") from None
