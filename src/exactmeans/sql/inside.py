"""Prediction inside a database: a function of DuckDB, plain SQL for PostgreSQL."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from exactmeans.data.record_batches import cells
from exactmeans.database.connect import connect
from exactmeans.database.duckdb import DuckdbDatabase
from exactmeans.database.errors import DatabaseError, one_sentence
from exactmeans.database.names import check_name, quote_table
from exactmeans.metrics import METRICS
from exactmeans.parameters import check_choice, check_model
from exactmeans.sql.labels import named_block

if TYPE_CHECKING:
    from exactmeans.estimators.fitted import FittedKMeans

_MOST_VALUES = 10_000_000  # of centres in the text of a function; some 200 MB of SQL


def register(connection: Any, model: FittedKMeans, name: str) -> None:
    """Make a function of DuckDB that predicts: `name(list of numbers) -> INTEGER`.

    DuckDB calls it for some thousand rows at a time. It gives the labels of `predict`; NULL for a
    NULL.

    Parameters
    ----------
    connection : DuckDB connection
        The function exists as long as the connection, and keeps the model's present centres.
    model : KMeans or MiniBatchKMeans
        A fitted model.
    name : str
        The name of the function.

    Examples
    --------
    >>> import duckdb
    >>> import numpy as np
    >>> from exactmeans import KMeans
    >>> from exactmeans.sql import register
    >>> model = KMeans(2, random_state=0).fit(np.array([[0.0, 0.0], [1.0, 0.0], [9.0, 9.0]]))
    >>> connection = duckdb.connect()
    >>> register(connection, model, "cluster_of")
    >>> connection.sql("SELECT cluster_of([x, x]) FROM (VALUES (0), (8)) t(x)").fetchall()
    [(0,), (1,)]
    """
    check_model(model)
    check_name(name, "name")
    if isinstance(connection, str) or not isinstance(connect(connection), DuckdbDatabase):
        raise TypeError("connection must be a DuckDB connection: register makes a DuckDB function.")
    own = copy.copy(model)
    own.n_jobs = 1  # DuckDB has its own threads
    own.cluster_centers_ = copy.copy(model.cluster_centers_)
    d = model.n_features_in_

    def predict(lists: Any) -> Any:
        import pyarrow as pa

        found = cells(lists, "x")
        missing = found.lengths < 0
        odd = found.lengths[~missing & (found.lengths != d)]
        if len(odd):
            raise ValueError(f"{name} must be called with {d} numbers, but it got {odd[0]}.")
        labels = np.zeros(len(missing), dtype=np.int32)
        if not missing.all():
            rows = found.values.reshape(-1, d)
            labels[~missing] = own.predict(named_block(own, rows, None))
        return pa.array(labels, mask=missing)

    try:
        connection.create_function(name, predict, ["DOUBLE[]"], "INTEGER", type="arrow")
    except Exception as error:
        raise DatabaseError(
            f"no function could be made in DuckDB: {one_sentence(error)}."
        ) from None


_SCORES = {
    "euclidean": "sum((a - b) * (a - b))",
    "cosine": "-sum(a * b)",
    "angular": "-sum(a * b)",
    "manhattan": "sum(abs(a - b))",
}


def predict_function(
    model: FittedKMeans,
    name: str,
    *,
    dialect: Literal["postgresql"] = "postgresql",
    schema: str | None = None,
) -> str:
    """The SQL of a function that predicts: `name(double precision[]) -> integer`.

    Plain SQL, which needs no extension. It computes distances in float64 from differences, so it
    gives the labels of `predict` but for rounding ties, and takes some microseconds per row, centre
    and 10 features: for many rows `predict_table` is faster. It gives NULL for a NULL, for arrays
    of another length, and for arrays with a NULL inside.

    Parameters
    ----------
    model : KMeans or MiniBatchKMeans
        A fitted model.
    name : str
        The name of the function; one that exists is replaced.
    dialect : {'postgresql'}, default='postgresql'
    schema : str or None, default=None
        The schema of the function; None means the first of the search path.

    Returns
    -------
    str
        A statement to execute.

    Examples
    --------
    >>> import numpy as np
    >>> from exactmeans import KMeans
    >>> from exactmeans.sql import predict_function
    >>> model = KMeans(2, random_state=0).fit(np.array([[0.0], [1.0], [9.0]]))
    >>> print(predict_function(model, "cluster_of").split(" LANGUAGE")[0])
    CREATE OR REPLACE FUNCTION "cluster_of"(x double precision[]) RETURNS integer
    """
    check_model(model)
    check_choice("dialect", dialect, ("postgresql",))
    check_name(name, "name")
    if schema is not None:
        check_name(schema, "schema")
    if hasattr(model, "prices_"):
        raise ValueError(
            "model must have no size limits to be written as SQL, which has no prices: use "
            "predict_table."
        )
    centres = model._centres()
    k, d = centres.shape
    if k * d > _MOST_VALUES:
        raise ValueError(
            f"model must have at most {_MOST_VALUES:,} values in its centres to be written as SQL, "
            f"but it has {k * d:,}: use predict_table."
        )
    dense = centres if isinstance(centres, np.ndarray) else centres.toarray()
    rows = ",\n    ".join(
        f"({j}, '{{{','.join(map(repr, row))}}}'::double precision[])"
        for j, row in enumerate(dense.astype(np.float64).tolist())
    )
    metric = model._frame.metric
    nearest = (
        f"(SELECT c.id FROM (VALUES\n    {rows}\n  ) AS c (id, vector) ORDER BY "
        f"(SELECT {_SCORES[metric]} FROM unnest(x, c.vector) AS t (a, b)), c.id LIMIT 1)"
    )
    if METRICS[metric].directed:  # rows of zeros have no direction
        none = "-1" if model.zero_rows == "keep" else "NULL"
        nearest = f"CASE WHEN 0 = ALL (x) THEN {none} ELSE {nearest} END"
    return (
        f"CREATE OR REPLACE FUNCTION {quote_table(name, schema, dialect)}(x double precision[]) "
        "RETURNS integer LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $exactmeans$\n"
        f"  SELECT CASE WHEN cardinality(x) = {d} AND array_position(x, NULL) IS NULL "
        f"THEN {nearest} END\n$exactmeans$;\n"
    )
