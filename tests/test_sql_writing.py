"""Labels and models in tables of databases, and the transactions of users."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import psycopg
import pytest
import scipy.sparse as sp

from databases import KINDS, SERVED, always_in_transaction, keep, opened, put, rows_of, run
from exactmeans import KMeans, MiniBatchKMeans, from_sql, open_sql
from exactmeans.sql import DatabaseError
from postgres import Server
from sql_rows import IDS, NASTY, K, N, X, columns, fitted, with_table


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


def test_labels_are_written_with_their_keys(connection: Any) -> None:
    rows = open_sql("SELECT * FROM t", connection, key="id")
    model = fitted(rows)
    assert model.to_sql(connection, "out", rows) == N
    found = rows_of(connection, "SELECT id, cluster, distance FROM out ORDER BY id")
    assert [row[0] for row in found] == list(range(N))
    assert [row[1] for row in found] == model.labels_.tolist()
    own = model.transform(X)[np.arange(N), model.labels_]
    assert np.allclose([row[2] for row in found], own, rtol=1e-12)


def test_if_exists(connection: Any) -> None:
    rows = open_sql("SELECT * FROM t", connection, key="id")
    model = fitted(rows)
    model.to_sql(connection, "out", rows)
    keep(connection)
    with pytest.raises(ValueError, match="table must not exist, but 'out' does"):
        model.to_sql(connection, "out", rows)
    model.to_sql(connection, "out", rows, if_exists="append")
    assert rows_of(connection, "SELECT count(*) FROM out") == [(2 * N,)]
    model.to_sql(connection, "out", rows, if_exists="replace")
    assert rows_of(connection, "SELECT count(*) FROM out") == [(N,)]
    with pytest.raises(ValueError, match="if_exists must be one of"):
        model.to_sql(connection, "out", rows, if_exists="zap")  # type: ignore[arg-type]


def test_names_are_only_names(connection: Any) -> None:
    put(connection, NASTY, {NASTY: IDS, "a'b": X[IDS, 0]})
    quoted = '"' + NASTY.replace('"', '""') + '"'
    rows = open_sql(f"SELECT * FROM {quoted}", connection, key=NASTY)
    model = fitted(rows)
    model.to_sql(connection, NASTY + "2", rows)
    model.centers_to_sql(connection, NASTY + "3")
    assert np.array_equal(from_sql(connection, NASTY + "3").predict(rows), model.labels_)
    table = '"' + (NASTY + "2").replace('"', '""') + '"'
    found = rows_of(connection, f"SELECT * FROM {table}")
    assert sorted(row[0] for row in found) == list(range(N))
    assert open_sql("SELECT * FROM t", connection, key="id").shape == X.shape  # still there


def test_what_fails_leaves_the_table_as_it_was(connection: Any) -> None:
    rows = open_sql("SELECT * FROM t", connection, key="id")
    model = fitted(rows)
    put(connection, "out", {"id": [1], "other": [2.0]})
    with pytest.raises(DatabaseError):
        model.to_sql(connection, "out", rows, if_exists="append")
    assert rows_of(connection, "SELECT * FROM out") == [(1, 2.0)]
    with pytest.raises(ValueError, match="table must not exist"):
        model.centers_to_sql(connection, "out")
    assert rows_of(connection, "SELECT * FROM out") == [(1, 2.0)]


def test_a_failure_in_the_second_table_undoes_the_first(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path / 'x.sqlite'}"  # which has no arrays
    put(uri, "centres_entries", {"x": [1]})
    with pytest.raises(ValueError, match="'centres_entries' does"):
        fitted().centers_to_sql(uri, "centres")
    assert rows_of(uri, "SELECT name FROM sqlite_master") == [("centres_entries",)]


def test_a_model_comes_back_from_a_table(connection: Any) -> None:
    for form, dtype in product(("dense", "csr", "sparse centres"), (np.float32, np.float64)):
        _comes_back(connection, form, dtype)


def _comes_back(connection: Any, form: str, dtype: Any) -> None:
    data: Any = X.astype(dtype) if form == "dense" else sp.csr_array(np.maximum(X, 0).astype(dtype))
    model = KMeans(K, random_state=0, sparse_centers=form == "sparse centres").fit(data)
    table = f"{form} {np.dtype(dtype)}"
    model.centers_to_sql(connection, table, data)
    back = from_sql(connection, table)
    assert type(back) is KMeans
    assert back.get_params() == model.get_params()
    assert sp.issparse(back.cluster_centers_) == sp.issparse(model.cluster_centers_), table
    assert back.cluster_centers_.dtype == dtype
    assert abs(back.cluster_centers_ - model.cluster_centers_).max() == 0, table
    assert np.array_equal(back.predict(data), model.labels_)
    assert back.explain() == model.explain()
    found = rows_of(connection, f'SELECT id, size, inertia FROM "{table}" ORDER BY id')
    assert [row[:2] for row in found] == list(enumerate(np.bincount(model.labels_).tolist()))
    assert np.isclose(sum(row[2] for row in found), model.inertia_)


def test_a_table_that_is_no_model_is_refused(connection: Any) -> None:
    with pytest.raises(ValueError, match="table must come from centers_to_sql"):
        from_sql(connection, "t")
    with pytest.raises(DatabaseError, match="nowhere"):
        from_sql(connection, "nowhere")
    fitted().centers_to_sql(connection, "centres")
    with pytest.raises(ValueError, match="if_exists must be 'fail' or 'replace'"):
        fitted().centers_to_sql(connection, "centres", if_exists="append")
    run(connection, "DELETE FROM centres WHERE id = 2")
    with pytest.raises(ValueError, match="must hold the centres 0 to 4 once each"):
        from_sql(connection, "centres")
    run(connection, "DELETE FROM centres WHERE id = 0")
    with pytest.raises(ValueError, match="must hold one model, but 'centres' holds 0"):
        from_sql(connection, "centres")


def test_minibatch_models_come_back(duck: Any) -> None:
    model = MiniBatchKMeans(K, random_state=0).fit(X)
    model.centers_to_sql(duck, "centres")
    back = from_sql(duck, "centres")
    assert type(back) is MiniBatchKMeans
    assert np.array_equal(back.predict(X), model.predict(X))


def test_schemas(postgres: Server) -> None:
    uri = postgres.new_database()
    put(uri, "t", columns())
    run(uri, 'CREATE SCHEMA "my ""own"')  # beside the one that stands for a database
    rows = open_sql("SELECT * FROM t", uri, key="id")
    model = fitted(rows)
    model.to_sql(uri, "out", rows, schema='my "own')
    assert rows_of(uri, 'SELECT count(*) FROM "my ""own".out') == [(N,)]
    model.centers_to_sql(uri, "centres", schema='my "own')
    assert np.array_equal(from_sql(uri, "centres", schema='my "own').predict(X), model.labels_)


@pytest.mark.parametrize("kind", SERVED)
def test_keys_keep_their_types(kind: str, postgres: Server, tmp_path: Path) -> None:
    uri = postgres.new_database()
    run(uri, "CREATE TABLE k AS SELECT gen_random_uuid() AS u, '2020-01-01'::date + i AS d, "
        "now() + i * interval '1 s' AS t, i::smallint AS s, i * 1.5::float8 AS x "
        "FROM generate_series(1, 50) i")  # fmt: skip
    with opened(kind, tmp_path, uri) as made:
        for key in "udts":
            rows = open_sql(f"SELECT {key}, x FROM k", made, key=key)
            KMeans(3, random_state=0).fit(rows).to_sql(made, f"out_{key}", rows)
            query = f"SELECT count(*) FROM k JOIN out_{key} USING ({key})"
            assert rows_of(made, query) == [(50,)]


def test_only_rows_of_a_query_have_keys(duck: Any) -> None:
    with pytest.raises(TypeError, match="source must be what open_sql returned"):
        fitted().to_sql(duck, "out", X)
    rows = open_sql("SELECT id AS cluster, a FROM t", duck, key="cluster")
    with pytest.raises(ValueError, match="key must not be called 'cluster'"):
        fitted(rows).to_sql(duck, "out", rows)


def test_distances_of_other_metrics(duck: Any) -> None:
    positive = np.abs(X) + 0.1
    positive[3] = 0
    put(duck, "p", columns(positive))
    rows = open_sql("SELECT * FROM p", duck, key="id")
    for metric in ("cosine", "angular", "manhattan"):
        model = fitted(rows, metric=metric, zero_rows="keep")
        model.to_sql(duck, "out", rows, if_exists="replace")
        found = rows_of(duck, "SELECT cluster, distance FROM out ORDER BY id")
        assert [row[0] for row in found] == model.labels_.tolist()
        inside = model.labels_ >= 0
        own = model.transform(positive)[np.arange(N), model.labels_]
        written = np.array([row[1] for row in found], dtype=float)
        assert np.allclose(written[inside], own[inside], atol=1e-7)
        if metric != "manhattan":
            assert found[3] == (-1, None)


# transactions of the user -------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["duckdb", "sqlite3", "psycopg", "postgresql adbc"])
def test_an_open_transaction_stays_the_users(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    uri = request.getfixturevalue("postgres").new_database() if kind in SERVED else ""
    with opened(kind, tmp_path, uri) as made:
        put(made, "t", columns())
        if always_in_transaction(made):
            pytest.skip("the driver has a transaction open at all times")
        rows = open_sql("SELECT * FROM t", made, key="id")
        model = fitted(rows)
        execute = made.execute if kind != "postgresql adbc" else made.cursor().execute
        if kind == "duckdb":
            execute("BEGIN")
        execute("CREATE TABLE mine (x INT)")
        execute("INSERT INTO mine VALUES (1)")
        assert open_sql("SELECT * FROM t", made, key="id").shape == X.shape
        model.to_sql(made, "out", rows)
        made.rollback()
        with pytest.raises(DatabaseError):
            open_sql("SELECT * FROM out", made, key="id")
        model.to_sql(made, "out", rows)  # in a transaction of its own
        if kind != "duckdb":  # which refuses to roll back what has ended
            made.rollback()
        assert rows_of(made, "SELECT count(*) FROM out") == [(N,)]


def test_reading_leaves_no_transaction_open(postgres: Server) -> None:
    uri = postgres.new_database()
    put(uri, "t", columns())
    with psycopg.connect(uri) as made:
        open_sql("SELECT * FROM t", made, key="id")
        assert made.info.transaction_status == 0
        with pytest.raises(DatabaseError):
            open_sql("SELECT * FROM nowhere", made, key="id")
        assert made.info.transaction_status == 0


def test_uuid_keys_of_python(duck: Any, tmp_path: Path) -> None:
    with opened("sqlite3", tmp_path) as made:
        put(made, "u", {"u": [str(uuid.UUID(int=i)) for i in range(9)], "x": np.arange(9.0)})
        rows = open_sql("SELECT * FROM u", made, key="u")
        assert KMeans(2).fit(rows).to_sql(made, "out", rows) == 9
