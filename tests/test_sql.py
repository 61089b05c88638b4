"""Rows from databases, through every driver."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import psycopg
import pyarrow as pa
import pytest
import scipy.sparse as sp

import exactmeans.data.spool
import exactmeans.database.dbapi
import exactmeans.database.duckdb
from databases import EMBEDDED, KINDS, SERVED, opened, put
from exactmeans import KMeans, MiniBatchKMeans, open_blocks, open_sql
from exactmeans.data.key_ranks import ranks
from exactmeans.database.errors import one_sentence, secrets_of
from exactmeans.sql import DatabaseError
from postgres import PASSWORD, Server
from sql_rows import IDS, NAMES, D, K, N, X, columns, fitted, same, with_table

RNG = np.random.default_rng(34)


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


# reading ------------------------------------------------------------------------------------------


def test_a_query_gives_the_bits_of_the_same_rows_in_a_file(connection: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    expected = fitted(tmp_path / "x.npy")
    rows = open_sql("SELECT * FROM t", connection, key="id")
    assert rows.shape == X.shape
    assert rows.keys.to_pylist() == list(range(N))
    assert rows.feature_names == NAMES
    assert np.array_equal(rows.read(0), X)
    same(fitted(rows), expected)


def test_the_order_of_the_server_does_not_matter(connection: Any) -> None:
    up = open_sql("SELECT * FROM t ORDER BY a", connection, key="id")
    down = open_sql("SELECT * FROM t ORDER BY b DESC", connection, key="id")
    assert np.array_equal(up.read(0), down.read(0))


def test_features_are_chosen_in_order(connection: Any) -> None:
    rows = open_sql("SELECT * FROM t", connection, key="id", features=["c", "a"])
    assert np.array_equal(rows.read(0), X[:, [2, 0]])
    rows = open_sql("SELECT * FROM t", connection, key="id", features="d")
    assert np.array_equal(rows.read(0), X[:, [3]])


def test_text_keys_are_ordered_by_their_bytes(connection: Any) -> None:
    names = [f"{'éaZ'[i % 3]}{i:03}" for i in range(N)]
    put(connection, "named", {"name": names, "x": np.arange(N) * 1.0})
    rows = open_sql("SELECT * FROM named", connection, key="name")
    order = sorted(range(N), key=lambda i: names[i].encode())
    assert rows.keys.to_pylist() == [names[i] for i in order]
    assert np.array_equal(rows.read(0)[:, 0], np.array(order) * 1.0)


def test_weights_of_a_column_are_used(connection: Any) -> None:
    weights = RNG.random(N)
    put(connection, "weighted", columns() | {"w": weights[IDS]})
    rows = open_sql("SELECT * FROM weighted", connection, key="id", weight="w")
    assert rows.sample_weight is not None
    assert np.array_equal(rows.sample_weight, weights)
    expected = KMeans(K, random_state=0).fit(X, sample_weight=weights)
    model = fitted(rows)
    same(model, expected)
    assert model.score(rows) == expected.score(X, sample_weight=weights)
    assert model.score(rows, sample_weight=np.ones(N)) == expected.score(X)
    small = MiniBatchKMeans(K, random_state=0).fit(rows)
    other = MiniBatchKMeans(K, random_state=0).fit(open_blocks([X]), sample_weight=weights)
    assert np.array_equal(small.labels_, other.labels_)


def test_parameters_are_bound(connection: Any) -> None:
    mark = "?"
    if isinstance(connection, psycopg.Connection):
        mark = "%s"
    elif getattr(connection, "adbc_connection", None) or str(connection).startswith("postgresql"):
        mark = "?" if "sqlite" in type(connection).__module__ else "$1"
    rows = open_sql(f"SELECT * FROM t WHERE id < {mark}", connection, key="id", parameters=[10])
    assert rows.shape == (10, D)


@pytest.mark.parametrize("block_rows", [None, 50])
def test_a_file_gives_the_bits_of_memory(
    duck: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block_rows: int | None
) -> None:
    monkeypatch.setattr(exactmeans.database.duckdb, "_ROWS", 64)
    monkeypatch.setattr(exactmeans.data.spool, "_LEAST_RUN", 2**12)
    put(duck, "weighted", columns() | {"w": np.arange(N)[IDS] + 1.0})
    query = "SELECT * FROM weighted"
    rows = open_sql(query, duck, key="id", weight="w", memory_limit=2**14, block_rows=block_rows)
    assert not rows.in_memory
    assert len(rows._runs) > 3
    assert rows.keys.to_pylist() == list(range(N))
    assert rows.sample_weight is not None
    assert np.array_equal(rows.sample_weight, np.arange(N) + 1.0)
    assert np.array_equal(np.concatenate([rows.read(b) for b in range(len(rows))]), X)
    whole = open_sql(query, duck, key="id", weight="w", block_rows=block_rows)
    assert whole.in_memory
    same(fitted(rows), fitted(whole))
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(rows)
    again = pickle.loads(pickle.dumps(whole))
    assert np.array_equal(again.read(0), whole.read(0))


def test_spool_names_the_folder_of_the_file(duck: Any, tmp_path: Path) -> None:
    rows = open_sql("SELECT * FROM t", duck, key="id", spool=tmp_path)
    assert not rows.in_memory
    assert list(tmp_path.iterdir()) == []  # it has no name
    same(fitted(rows), fitted())
    with pytest.raises(OSError, match="spool must name a folder with room"):
        open_sql("SELECT * FROM t", duck, key="id", spool=tmp_path / "nowhere")


def test_a_query_without_rows_and_a_folder(duck: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="query must return rows"):
        open_sql("SELECT * FROM t WHERE id < 0", duck, key="id", spool=tmp_path)


def test_keys_of_several_types_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exactmeans.database.dbapi, "_ROWS", 1)
    with opened("sqlite3", tmp_path) as made:
        query = "SELECT 1 AS id, 2.0 AS x UNION ALL SELECT 'b', 3.0"
        with pytest.raises(ValueError, match="key must hold values of one type, but column 'id'"):
            open_sql(query, made, key="id")
        monkeypatch.setattr(exactmeans.database.dbapi, "_ROWS", 9)
        with pytest.raises(DatabaseError, match="column 'id' has values of several types: int and"):
            open_sql(query, made, key="id")


def test_keys_that_repeat_in_different_runs_are_refused(
    duck: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exactmeans.database.duckdb, "_ROWS", 64)
    monkeypatch.setattr(exactmeans.data.spool, "_LEAST_RUN", 2**12)
    query = "SELECT * FROM t UNION ALL (SELECT * FROM t WHERE id = 77)"
    with pytest.raises(ValueError, match="column 'id' has 77 more than once"):
        open_sql(query, duck, key="id", memory_limit=2**14)


# layouts ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["duckdb", "postgresql adbc", "postgresql uri", "psycopg"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_arrays(kind: str, dtype: Any, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    uri = request.getfixturevalue("postgres").new_database() if kind in SERVED else ""
    own = X.astype(dtype)
    with opened(kind, tmp_path, uri) as made:
        put(made, "t", {"id": IDS, "v": pa.array(list(own[IDS]))})
        rows = open_sql("SELECT * FROM t", made, key="id", layout="array")
        assert rows.dtype == dtype
        assert np.array_equal(rows.read(0), own)
        assert rows.feature_names is None


def test_arrays_of_duckdb_and_text_and_bytes() -> None:
    with duckdb.connect() as made:
        query = "SELECT 1 AS id, [1, 2]::FLOAT[2] AS v UNION ALL SELECT 2, [3, 4]::FLOAT[2]"
        rows = open_sql(query, made, key="id", layout="array")
        assert rows.read(0).tolist() == [[1, 2], [3, 4]]
        assert rows.dtype == np.float32
        for text in ("[1, 2.5]", "{1,2.5}", " [1 , 2.5] "):
            rows = open_sql(f"SELECT 1 AS id, '{text}' AS v", made, key="id", layout="array")
            assert rows.read(0).tolist() == [[1, 2.5]]
    with duckdb.connect() as made:
        put(made, "b", {"id": [1], "v": [np.array([1, 2.5], "<f4").tobytes()]})
        rows = open_sql("SELECT * FROM b", made, key="id", layout="array")
        assert rows.read(0).tolist() == [[1, 2.5]]


@pytest.mark.parametrize("kind", ["postgresql uri", "psycopg"])
def test_pgvector(kind: str, pgvector: Server, tmp_path: Path) -> None:
    single = X.astype(np.float32)
    sparse: Any = sp.random_array(
        (N, 30), density=0.2, random_state=RNG, dtype=np.float32, format="csr"
    )
    uri = pgvector.new_database()
    with psycopg.connect(uri, autocommit=True) as maker, maker.cursor() as cursor:
        cursor.execute("CREATE EXTENSION IF NOT EXISTS vector SCHEMA public")
        cursor.execute("CREATE TABLE t (id int, v vector(4), h halfvec(4), s sparsevec(30))")
        with cursor.copy("COPY t FROM STDIN") as copy:
            for i in IDS.tolist():
                row = sparse[[i]]
                entries = zip(row.indices.tolist(), row.data.tolist(), strict=True)
                text = ",".join(f"{f + 1}:{value!r}" for f, value in entries)
                vector = str(single[i].tolist())
                copy.write_row((i, vector, vector, f"{{{text}}}/30"))
    with opened(kind, tmp_path, uri) as made:
        query = "SELECT * FROM t"
        rows = open_sql(query, made, key="id", features="v", layout="array")
        assert np.array_equal(rows.read(0).astype(np.float32), single)  # psycopg gives text
        rows = open_sql(query, made, key="id", features="h", layout="array")
        assert np.array_equal(rows.read(0).astype(np.float16), single.astype(np.float16))
        rows = open_sql(query, made, key="id", features="s", layout="array")
        assert rows.sparse
        assert rows.dtype == np.float32
        assert rows.shape == sparse.shape
        assert abs(rows.read(0) - sp.csr_matrix(sparse)).nnz == 0
        same(fitted(rows), fitted(sparse))
        left = open_sql(
            "SELECT id, CASE WHEN id <> 3 THEN s END AS s FROM t",
            made, key="id", layout="array", nulls="drop",
        )  # fmt: skip
        assert left.n_dropped == 1
        assert left.shape == (N - 1, 30)


def _triples(matrix: Any, dtype: Any = np.float64) -> dict[str, Any]:
    found = sp.coo_array(matrix)
    order = RNG.permutation(found.nnz)
    return {
        "doc": found.row[order].astype(np.int64) * 10,
        "term": found.col[order].astype(np.int32),
        "n": found.data[order].astype(dtype),
    }


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_triples_become_csr(connection: Any, dtype: Any) -> None:
    matrix: Any = sp.random_array(
        (300, 40), density=0.1, random_state=RNG, dtype=dtype, format="csr"
    )
    stack: Any = sp.hstack
    matrix = stack([np.ones((300, 1), dtype), matrix[:, 1:]], format="csr")  # no empty row
    put(connection, "coo", _triples(matrix, dtype))
    rows = open_sql("SELECT * FROM coo", connection, key="doc", layout="coo")
    assert rows.keys.to_pylist() == list(range(0, 3000, 10))
    assert rows.read(0).has_canonical_format
    assert abs(rows.read(0) - sp.csr_matrix(matrix)).nnz == 0
    same(fitted(rows, dtype=dtype), fitted(matrix))
    wide = open_sql("SELECT * FROM coo", connection, key="doc", layout="coo", n_features=50)
    assert wide.shape == (300, 50)


@pytest.mark.parametrize("kind", ["int8", "uint8", "int64", "uint64", "string", "date32"])
@pytest.mark.parametrize("spread", [1, 1000])
def test_ranks_of_keys(kind: str, spread: int) -> None:
    """Keys that fill their range and keys that do not, at both ends of their types."""
    small = kind in ("int8", "uint8")
    whole = np.arange(256 if small else 50) * (1 if small else spread)
    if kind in ("int8", "int64"):
        whole = whole + np.iinfo(kind).min
    distinct = pa.array(whole.astype(str)) if kind == "string" else pa.array(whole)
    if kind == "uint64":
        distinct = pa.array(whole.astype(np.uint64) + np.uint64(2**63))
    elif kind != "string":
        distinct = distinct.cast("int32" if kind == "date32" else kind).cast(kind)
    given = distinct.take(pa.array(RNG.integers(0, len(distinct), 4000)))
    found, keys = ranks(given)
    assert keys.type == distinct.type
    assert keys.to_pylist() == sorted(set(given.to_pylist()))
    assert keys.take(pa.array(found)).to_pylist() == given.to_pylist()


def test_triples_in_a_file(duck: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exactmeans.database.duckdb, "_ROWS", 64)
    monkeypatch.setattr(exactmeans.data.spool, "_LEAST_RUN", 2**11)
    matrix: Any = sp.random_array((300, 40), density=0.1, random_state=RNG, format="csr")
    stack: Any = sp.hstack
    matrix = stack([np.ones((300, 1)), matrix[:, 1:]], format="csr")
    put(duck, "coo", _triples(matrix))
    options: dict[str, Any] = {"key": "doc", "layout": "coo", "memory_limit": 2**13}
    rows = open_sql("SELECT * FROM coo", duck, block_rows=30, **options)
    assert not rows.in_memory
    assert len(rows._runs) > 3
    whole = sp.vstack([rows.read(b) for b in range(len(rows))])
    assert abs(whole - sp.csr_matrix(matrix)).nnz == 0
    same(fitted(rows), fitted(matrix))
    again = "SELECT * FROM coo UNION ALL (SELECT * FROM coo WHERE doc = 70 AND term = 0)"
    with pytest.raises(ValueError, match="doc = 70 has column 0 more than once"):
        open_sql(again, duck, **options)


# what is refused ----------------------------------------------------------------------------------


#: Queries, options and the error that each raises. One connection runs all of them.
BAD_ROWS: list[tuple[str, dict[str, Any], str]] = [
    ("SELECT id, 'x' AS a FROM t", {}, "features must hold numbers, but column 'a' holds text"),
    ("SELECT * FROM t", {"key": "no"}, "key must be a column of the query, but 'no' is not"),
    ("SELECT * FROM t", {"features": ["a", "no"]}, "features must be a column of the query"),
    ("SELECT * FROM t", {"weight": "no"}, "weight must be a column of the query"),
    ("SELECT id FROM t", {}, "features must name columns"),
    ("SELECT * FROM t WHERE id < 0", {}, "query must return rows, but it returned none"),
    ("SELECT * FROM t UNION ALL SELECT * FROM t", {}, "column 'id' has 0 more than once"),
    ("SELECT nullif(id, 3) AS id, a FROM t", {}, "key must not be NULL"),
    ("SELECT id, nullif(id, 3) AS a FROM t", {}, "id = 3 has such a value in column 'a'"),
    ("SELECT id, a, nullif(id, 7) AS w FROM t", {"weight": "w"}, "id = 7 has such .* 'w'"),
    ("SELECT * FROM t", {"key": "a"}, "key must hold integers, text, dates or UUIDs"),
    ("SELECT * FROM t", {"layout": "array"}, "features must name one column for"),
    ("SELECT * FROM t", {"layout": "coo"}, "features must name two columns for layout='coo'"),
    ("SELECT id, a FROM t", {"layout": "array"}, "a column of arrays .* holds double"),
    ("SELECT id, a, a AS n FROM t", {"layout": "coo"}, "must have column numbers from"),
    ("SELECT id, id + 5 AS c, a FROM t", {"layout": "coo", "n_features": 9}, "from 0 to 8"),
]  # fmt: skip


def test_bad_rows_are_refused(connection: Any) -> None:
    for query, options, message in BAD_ROWS:
        with pytest.raises(ValueError, match=message):
            open_sql(query, connection, **({"key": "id"} | options))
        assert open_sql("SELECT * FROM t", connection, key="id").shape == X.shape, query


def test_bad_queries_are_refused_in_one_sentence(connection: Any) -> None:
    bad = {"SELECT * FROM nowhere": "nowhere", "SELEC 1": "SELEC", "SELECT zap FROM t": "zap"}
    for query, message in bad.items():
        with pytest.raises(DatabaseError, match=message) as failure:
            open_sql(query, connection, key="id")
        said = str(failure.value)
        assert said.startswith("query failed in ")
        assert "\n" not in said
        assert said.endswith(".")
        assert failure.value.__cause__ is None
        assert open_sql("SELECT * FROM t", connection, key="id").shape == X.shape, "usable"


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"query": ""}, ValueError, "query must be a statement"),
        ({"layout": "rows"}, ValueError, "layout must be one of"),
        ({"nulls": "keep"}, ValueError, "nulls must be one of"),
        ({"key": ""}, ValueError, "key must be a name"),
        ({"block_rows": 0}, ValueError, "block_rows must be"),
        ({"memory_limit": "much"}, ValueError, "memory_limit must be"),
        ({"n_features": 3}, ValueError, "n_features must be None unless layout='coo'"),
        ({"connection": 7}, TypeError, "connection must be a URI"),
        ({"connection": "mysql://x/y"}, ValueError, "connection must be a URI that begins"),
        ({"connection": "sqlite://x"}, ValueError, "three slashes"),
        ({"connection": "sqlite:///no.db"}, FileNotFoundError, "that exists, but 'no.db'"),
        ({"connection": "duckdb:///no.db"}, FileNotFoundError, "that exists, but 'no.db'"),
    ],
)  # fmt: skip
def test_bad_arguments(
    duck: Any, arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    given = {"query": "SELECT * FROM t", "connection": duck, "key": "id"} | arguments
    with pytest.raises(error, match=message):
        open_sql(**given)


def test_infinity_is_refused_and_nan_can_be_dropped(duck: Any) -> None:
    put(duck, "n", {"id": [1, 2, 3, 4], "a": [1.0, np.nan, None, 4.0], "w": [1.0, 1, 1, None]})
    with pytest.raises(ValueError, match="id = 2 has such a value in column 'a'"):
        open_sql("SELECT id, a FROM n", duck, key="id")
    rows = open_sql("SELECT id, a FROM n", duck, key="id", nulls="drop")
    assert rows.keys.to_pylist() == [1, 4]
    assert rows.n_dropped == 2
    rows = open_sql("SELECT * FROM n", duck, key="id", weight="w", nulls="drop")
    assert rows.keys.to_pylist() == [1]
    query = "SELECT 1 AS id, 'inf'::DOUBLE AS a"
    with pytest.raises(ValueError, match=r"id = 1 has infinity \(inf\) in column 'a'"):
        open_sql(query, duck, key="id", nulls="drop")
    with pytest.raises(ValueError, match="returned none, after 1 with NULL or NaN"):
        open_sql("SELECT id, a FROM n WHERE id = 3", duck, key="id", nulls="drop")


def test_arrays_that_do_not_fit_are_refused(duck: Any) -> None:
    def read(*cells: str) -> Any:
        query = " UNION ALL ".join(f"SELECT {i} AS id, {cell} AS v" for i, cell in enumerate(cells))
        return open_sql(query, duck, key="id", layout="array")

    with pytest.raises(ValueError, match="2 numbers in one row and 1 in that with id = 1"):
        read("[1, 2]", "[3]")
    with pytest.raises(ValueError, match="id = 1 has such a value in column 'v', at place 0"):
        read("[1, 2]", "NULL")
    with pytest.raises(ValueError, match="id = 0 has such a value in column 'v', at place 1"):
        read("[1, NULL]", "[3, 4]")
    with pytest.raises(ValueError, match="holds arrays of string"):
        read("['x']", "['y']")
    with pytest.raises(ValueError, match="column 'v' does not"):
        read("'[1, x]'")
    with pytest.raises(ValueError, match="pass layout='array'"):
        open_sql("SELECT 1 AS id, [1, 2] AS v", duck, key="id")


def test_a_password_never_shows(postgres: Server, tmp_path: Path) -> None:
    uri = postgres.uri
    wrong = uri.replace("tester:", "nobody:")
    gone = uri.replace(str(postgres.port), "1")
    lost = uri + "?sslmode=strange"
    for bad in (wrong, gone, lost, "postgresql://u:s3cr%3At%2Fp%40ss@[::bad/x"):
        with pytest.raises((DatabaseError, ValueError)) as failure:
            open_sql("SELECT 1", bad, key="id")
        said = repr(failure.value)
        assert PASSWORD not in said
        assert "s3cr" not in said
        assert failure.value.__cause__ is None
        assert failure.value.__suppress_context__
    rows = open_sql("SELECT 1 AS id, 2.0::float8 AS a", uri, key="id")
    model = KMeans(1).fit(rows)
    assert "s3cr" not in repr(rows) + repr(vars(rows)) + model.explain() + repr(vars(model))


@pytest.mark.parametrize(
    "said",
    [
        "could not connect to postgresql://me:s3cr%3At@host/x",
        "invalid dsn: host=h password=s3cr:t user=me",
        "invalid dsn: host=h password='s3cr:t' user=me",
        "IO: [libpq] auth of me with s3cr:t failed\n\tat host\n",
        "IO: [libpq] auth of me with s3cr%3At failed. Query was: SELECT 1",
    ],
)
def test_what_a_driver_says_loses_its_passwords(said: str) -> None:
    secrets = secrets_of("postgresql://me:s3cr%3At@host/x?sslpassword=s3cr")
    shown = one_sentence(RuntimeError(said), secrets)
    assert "s3cr" not in shown
    assert "***" in shown
    assert "\n" not in shown
    assert "Query was" not in shown
    if "://" in said or "dsn" in said:  # known by their place, too
        assert "s3cr" not in one_sentence(RuntimeError(said))
    assert secrets_of("postgresql://host/x") == ()


def test_embedded_kinds_are_tested_without_a_server() -> None:
    assert len(EMBEDDED) == 5
    assert len(SERVED) == 5
