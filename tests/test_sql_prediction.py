"""Prediction inside a database: functions, plain SQL and tables of labels."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import psycopg
import pyarrow as pa
import pytest

from databases import KINDS, keep, put, rows_of
from exactmeans import KMeans, open_sql
from exactmeans.sql import predict_function, predict_table, register
from oracle import near_ties
from postgres import Server
from sql_rows import NASTY, N, X, columns, fitted, with_table

RNG = np.random.default_rng(35)


@pytest.fixture(params=list(KINDS))
def connection(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """A database with the table t, by each driver in turn."""
    with with_table(request.param, tmp_path, request) as made:
        yield made


@pytest.fixture
def duck() -> Iterator[Any]:
    with duckdb.connect() as made:
        put(made, "t", columns())
        yield made


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_function_of_duckdb_predicts(duck: Any, dtype: Any) -> None:
    model = fitted(X.astype(dtype))
    register(duck, model, "cluster_of")
    found = rows_of(duck, "SELECT cluster_of([a, b, c, d]) FROM t ORDER BY id")
    assert [row[0] for row in found] == model.predict(X.astype(dtype)).tolist()
    assert rows_of(duck, "SELECT cluster_of(NULL)") == [(None,)]
    with pytest.raises(duckdb.Error, match="must be called with 4 numbers, but it got 2"):
        duck.execute("SELECT cluster_of([a, b]) FROM t").fetchall()
    with pytest.raises(duckdb.Error, match="NaN"):
        duck.execute("SELECT cluster_of([a, b, c, 'nan'::DOUBLE]) FROM t").fetchall()
    with pytest.raises(TypeError, match="connection must be a DuckDB connection"):
        register("duckdb:///:memory:", model, "f")


def test_a_registered_model_does_not_change(duck: Any) -> None:
    model = fitted(open_sql("SELECT * FROM t", duck, key="id"))
    labels = model.labels_
    register(duck, model, "cluster_of")
    model.cluster_centers_[:] = 0
    found = rows_of(duck, "SELECT cluster_of([a, b, c, d]) FROM t ORDER BY id")
    assert [row[0] for row in found] == labels.tolist()


def _true_score(metric: str, x: Any, c: Any) -> tuple[Fraction, Fraction]:
    """What the SQL function minimises, and the sum of the magnitudes that it adds up."""
    a, b = (list(map(Fraction, values.astype(np.float64).tolist())) for values in (x, c))
    if metric in ("cosine", "angular"):
        products = [p * q for p, q in zip(a, b, strict=True)]
        return -sum(products, Fraction()), sum(map(abs, products), Fraction())
    power = 2 if metric == "euclidean" else 1
    found = sum((abs(p - q) ** power for p, q in zip(a, b, strict=True)), Fraction())
    return found, found


def _refuse_all_but_ties(metric: str, rows: Any, model: KMeans, labels: Any) -> int:
    """Labels of SQL and of the model differ only where rounding can swap the two; how often.

    A chain of d sums and products in a type of unit roundoff u is off by at most (d + 16) u times
    the sum of magnitudes. Euclidean scores of the model, ½‖c‖² − x·c, add up (‖x‖ + ‖c‖)².
    """
    u = {4: Fraction(1, 2**24), 8: Fraction(1, 2**53)}[rows.dtype.itemsize]
    d, centres = rows.shape[1], model.cluster_centers_
    ties = np.flatnonzero(labels != model.predict(rows))
    for i in ties.tolist():
        pair = [centres[labels[i]], centres[model.predict(rows[i : i + 1])[0]]]
        (ours, size), (theirs, other) = (_true_score(metric, rows[i], c) for c in pair)
        magnitude = max(size, other)
        if metric == "euclidean":
            lengths = [Fraction(float(np.linalg.norm(c.astype(float)))) for c in (rows[i], *pair)]
            magnitude = max(magnitude, (lengths[0] + max(lengths[1:])) ** 2)
        slack = 2 * (d + 16) * (u + Fraction(1, 2**53)) * magnitude
        assert abs(ours - theirs) <= slack, (metric, i, float(ours - theirs), float(slack))
    return len(ties)


def _between(metric: str, centres: Any) -> Any:
    """Rows as far from one centre as from another, but for rounding."""
    pairs = [(a, b) for a in range(len(centres)) for b in range(a)]
    halves = [(centres[a] + centres[b]) / 2 for a, b in pairs]
    weights = RNG.normal(size=(40, len(pairs), 1)) * 1e-7  # and rows that are close to them
    near = (1 + weights) * np.stack(halves)
    return np.concatenate([np.stack(halves), near.reshape(-1, centres.shape[1])])


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "angular", "manhattan"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_plain_sql_predicts_up_to_ties(postgres: Server, metric: Any, dtype: Any) -> None:
    uri = postgres.new_database()
    model = fitted((X + 10).astype(dtype), metric=metric)
    between = _between(metric, model.cluster_centers_.astype(np.float64))
    own = np.concatenate([X + 10, between]).astype(dtype)
    order = RNG.permutation(len(own))
    put(uri, "t", {"id": order, "v": pa.array(list(own[order]))})
    with psycopg.connect(uri) as made:
        made.execute(predict_function(model, NASTY).encode())
        quoted = '"' + NASTY.replace('"', '""') + '"'
        found = made.execute(f"SELECT {quoted}(v) FROM t ORDER BY id".encode()).fetchall()
        labels = np.array([row[0] for row in found])
        ties = _refuse_all_but_ties(metric, own, model, labels)
        assert ties <= len(between)
        if metric == "euclidean":
            near_ties(own, model.cluster_centers_, labels)
        odd = "SELECT {0}(NULL), {0}(ARRAY[1.0]), {0}(ARRAY[1, 2, 3, NULL]::float8[])"
        assert made.execute(odd.format(quoted).encode()).fetchall() == [(None, None, None)]


def test_plain_sql_breaks_exact_ties_as_predict_does(postgres: Server) -> None:
    model = KMeans(3, init=np.array([[0.0], [2.0], [4.0]]), max_iter=1, n_init=1).fit(
        np.array([[0.0], [2.0], [4.0]])
    )
    points = np.array([[1.0], [3.0], [2.0]])
    with psycopg.connect(postgres.uri) as made:
        made.execute(predict_function(model, "f").encode())
        query = "SELECT f(ARRAY[x]) FROM (VALUES (1, 1.0), (2, 3.0), (3, 2.0)) t (i, x) ORDER BY i"
        assert [row[0] for row in made.execute(query).fetchall()] == model.predict(points).tolist()
        made.rollback()


def test_plain_sql_of_large_models_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exactmeans.sql.inside._MOST_VALUES", 10)
    with pytest.raises(ValueError, match="at most 10 values in its centres"):
        predict_function(fitted(), "f")
    with pytest.raises(ValueError, match="dialect must be"):
        predict_function(fitted(), "f", dialect="oracle")  # type: ignore[arg-type]


def test_predict_table_gives_the_labels_of_predict(connection: Any) -> None:
    model = fitted(open_sql("SELECT * FROM t", connection, key="id"))
    assert predict_table(connection, "SELECT * FROM t", model, into="out", key="id") == N
    found = rows_of(connection, "SELECT id, cluster, distance FROM out ORDER BY id")
    assert [row[1] for row in found] == model.labels_.tolist()
    own = model.transform(X)[np.arange(N), model.labels_]
    assert np.allclose([row[2] for row in found], own, rtol=1e-12)
    keep(connection)
    with pytest.raises(ValueError, match="table must not exist, but 'out' does"):
        predict_table(connection, "SELECT * FROM t", model, into="out", key="id")
    assert rows_of(connection, "SELECT count(*) FROM out") == [(N,)]


def test_predict_table_refuses_bad_rows(duck: Any) -> None:
    model = fitted()
    options: dict[str, Any] = {"into": "out", "key": "id"}
    with pytest.raises(ValueError, match="id = 3 has such a value in column 'a'"):
        predict_table(duck, "SELECT id, nullif(id, 3) AS a, b, c, d FROM t", model, **options)
    with pytest.raises(ValueError, match="4 features"):
        predict_table(duck, "SELECT id, a FROM t", model, **options)
    with pytest.raises(ValueError, match="layout must be one of"):
        predict_table(duck, "SELECT * FROM t", model, layout="coo", **options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="into must be a name"):
        predict_table(duck, "SELECT * FROM t", model, into="", key="id")
    assert duck.execute("SHOW TABLES").fetchall() == [("t",)]
    query = "SELECT id, nullif(id, 3) AS a, b, c, d FROM t"
    assert predict_table(duck, query, model, nulls="drop", **options) == N - 1


def test_predict_table_reads_arrays_with_names(duck: Any) -> None:
    model = fitted(open_sql("SELECT * FROM t", duck, key="id"))
    query = "SELECT id, [a, b, c, d] AS v FROM t"
    predict_table(duck, query, model, into="out", key="id", layout="array")
    found = rows_of(duck, "SELECT cluster FROM out ORDER BY id")
    assert [row[0] for row in found] == model.labels_.tolist()
