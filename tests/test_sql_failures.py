"""Servers that go away, full disks, Ctrl-C, tables that change: nothing is half-written."""

from __future__ import annotations

import os
import random
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import psycopg
import pyarrow as pa
import pytest

from databases import SERVED, opened, put, rows_of
from exactmeans import KMeans, open_sql
from exactmeans.database.connect import connect
from exactmeans.sql import DatabaseError, labels_to_sql, predict_table
from exactmeans.sql.write import write_table
from postgres import PASSWORD, Server, why_none

N = 200_000
TABLE = f"""CREATE TABLE t AS SELECT i AS id, sin(i) AS a, cos(i * 0.7) AS b, sin(i * 0.3) AS c
FROM generate_series(1, {N}) i"""


@pytest.fixture(scope="module")
def own_server() -> Iterator[Server]:
    """A server that tests may kill."""
    if why := why_none():
        pytest.skip(why)
    with Server() as server:
        with psycopg.connect(server.uri) as connection:
            connection.execute(TABLE.encode())
        yield server


@contextmanager
def _killed(server: Server, after: float) -> Iterator[None]:
    """Kill the server at a moment; start it again at the end."""
    timer = threading.Timer(after, server.kill)
    timer.start()
    try:
        yield
    finally:
        timer.join()
        server.start()


def _one_sentence(error: BaseException) -> bool:
    said = str(error)
    return "\n" not in said and said.endswith(".") and PASSWORD not in said


def _outcome(call: Callable[[], Any]) -> tuple[Any, Exception | None]:
    """The result of a call, or what a database that went away made it raise."""
    try:
        return call(), None
    except (DatabaseError, psycopg.Error) as error:
        return None, error


def _moments(duration: float, count: int) -> list[float]:
    chosen = random.Random(33)
    return [duration * (at + chosen.random()) / count for at in range(count)]


def _timed(call: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


@pytest.mark.slow
def test_a_server_killed_while_reading(own_server: Server) -> None:
    def read() -> Any:
        return open_sql("SELECT * FROM t", own_server.uri, key="id")

    expected = read().read(0).copy()
    duration = _timed(read)
    for moment in _moments(duration, 5):
        with _killed(own_server, moment):
            found, said = _outcome(read)
        assert found is None or np.array_equal(found.read(0), expected)
        assert said is None or _one_sentence(said)
    assert np.array_equal(read().read(0), expected)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["adbc", "psycopg"])
def test_a_server_killed_while_writing(own_server: Server, how: str) -> None:
    rows = open_sql("SELECT * FROM t", own_server.uri, key="id")
    model = KMeans(3, random_state=0, max_iter=2).fit(rows)

    def write() -> None:
        if how == "adbc":
            labels_to_sql(model, own_server.uri, "out", rows, if_exists="replace")
        else:
            with psycopg.connect(own_server.uri) as connection:
                labels_to_sql(model, connection, "out", rows, if_exists="replace")

    duration = _timed(write)
    for moment in _moments(duration, 5):
        put(own_server.uri, "out", {"id": [1], "old": [2]})
        with _killed(own_server, moment):
            _, said = _outcome(write)
        assert said is None or isinstance(said, psycopg.Error) or _one_sentence(said)
        count = rows_of(own_server.uri, "SELECT count(*) FROM out")
        assert count in ([(1,)], [(N,)]), moment
        if count == [(1,)]:
            assert rows_of(own_server.uri, "SELECT * FROM out") == [(1, 2)]


def test_a_server_killed_between_two_batches(own_server: Server) -> None:
    """The kill comes while the second batch is being written, at no other moment."""
    put(own_server.uri, "out", {"id": [1]})
    batch = pa.record_batch({"id": np.arange(100_000)})

    def batches() -> Iterator[Any]:
        yield batch
        own_server.kill()
        yield batch

    reader = pa.RecordBatchReader.from_batches(batch.schema, batches())
    try:
        with (
            pytest.raises(DatabaseError, match="table 'out' could not be written") as failure,
            connect(own_server.uri) as database,
            database.transaction(),
        ):
            write_table(database, "out", reader, "replace", None)
    finally:
        own_server.start()
    assert _one_sentence(failure.value)
    assert rows_of(own_server.uri, "SELECT * FROM out") == [(1,)]


@pytest.mark.slow
def test_a_server_killed_while_labelling_a_table(own_server: Server, tmp_path: Path) -> None:
    rows = open_sql("SELECT * FROM t", own_server.uri, key="id")
    model = KMeans(3, random_state=0, max_iter=2).fit(rows)
    options: dict[str, Any] = {"key": "id", "if_exists": "replace", "spool": tmp_path}

    def label() -> int:
        return predict_table(own_server.uri, "SELECT * FROM t", model, into="labels", **options)

    duration = _timed(label)
    for moment in _moments(duration, 3):
        put(own_server.uri, "labels", {"id": [1]})
        with _killed(own_server, moment), suppress(DatabaseError):
            label()
        assert rows_of(own_server.uri, "SELECT count(*) FROM labels") in ([(1,)], [(N,)])
    assert list(tmp_path.iterdir()) == []


def test_a_connection_that_the_server_closes(postgres: Server) -> None:
    """pg_terminate_backend in the middle of reading, at a batch that is known."""
    query = "SELECT i AS id, repeat('x', 1000)::bytea AS v FROM generate_series(1, 1000000) i"
    ended = query.replace(
        "1000000) i", "1000000) i WHERE i < 50000 OR pg_terminate_backend(pg_backend_pid())"
    )
    with pytest.raises(DatabaseError, match="query failed in PostgreSQL: ") as failure:
        open_sql(ended, postgres.uri, key="id", layout="array")
    assert _one_sentence(failure.value)


# a full disk --------------------------------------------------------------------------------------


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("there is no /dev/full")

    def full(**options: Any) -> Any:
        return open("/dev/full", "w+b", buffering=0)

    monkeypatch.setattr(tempfile, "TemporaryFile", full)


@pytest.mark.usefixtures("full_disk")
def test_a_full_disk_while_spooling(tmp_path: Path) -> None:
    with duckdb.connect() as made:
        query = "SELECT i AS id, i * 1.0 AS x FROM range(1000) r(i)"
        with pytest.raises(OSError, match="spool must name a folder with room") as failure:
            open_sql(query, made, key="id", spool=tmp_path)
        assert "No space left on device" in str(failure.value)
        assert open_sql(query, made, key="id").shape == (1000, 1)


@pytest.mark.usefixtures("full_disk")
def test_a_full_disk_while_labelling(tmp_path: Path) -> None:
    model = KMeans(2).fit(np.array([[0.0], [9.0]]))
    with duckdb.connect() as made:
        query = "SELECT i AS id, i * 1.0 AS x FROM range(1000) r(i)"
        with pytest.raises(OSError, match="spool must name a folder with room"):
            predict_table(made, query, model, into="out", key="id", spool=tmp_path)
        assert made.execute("SHOW TABLES").fetchall() == []


# Ctrl-C -------------------------------------------------------------------------------------------

#: Queries that would take hours.
_LONG = {
    "duckdb": "SELECT sum(a.i * b.i) AS id, 1 AS x FROM range(10000000) a(i), range(10000000) b(i)",
    "sqlite3": """WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r)
        SELECT count(*) AS id, 1 AS x FROM r WHERE i < 0""",
    "postgresql": "SELECT 1 AS id, pg_sleep(10000)::text AS x",
}


@pytest.mark.parametrize("kind", ["duckdb", "sqlite3", *SERVED])
def test_ctrl_c_cancels_the_statement(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    uri = request.getfixturevalue("postgres").new_database() if kind in SERVED else ""
    query = _LONG.get(kind, _LONG["postgresql"])
    with opened(kind, tmp_path, uri) as made:
        put(made, "t", {"id": [1, 2], "x": [1.0, 2.0]})
        timer = threading.Timer(0.5, signal.raise_signal, [signal.SIGINT])
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            open_sql(query, made, key="id")
        timer.join()
        assert open_sql("SELECT * FROM t", made, key="id").shape == (2, 1)  # usable
    if kind in SERVED:
        active = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(10000)%' "
        active += "AND state = 'active' AND pid <> pg_backend_pid()"
        assert rows_of(uri, active) == [(0,)]


@pytest.mark.parametrize("kind", ["postgresql adbc", "psycopg"])
def test_ctrl_c_while_writing_writes_nothing(kind: str, postgres: Server, tmp_path: Path) -> None:
    """The table is locked by another session, so that writing waits."""
    uri = postgres.new_database()
    with opened(kind, tmp_path, uri) as made, psycopg.connect(uri) as other:
        put(made, "t", {"id": [1, 2], "x": [1.0, 2.0]})
        put(made, "out", {"id": [7]})
        rows = open_sql("SELECT * FROM t", made, key="id")
        model = KMeans(2).fit(rows)
        other.execute("LOCK TABLE out")
        timer = threading.Timer(0.5, signal.raise_signal, [signal.SIGINT])
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            model.to_sql(made, "out", rows, if_exists="replace")
        timer.join()
        other.rollback()
        assert rows_of(made, "SELECT * FROM out") == [(7,)]
        made.rollback()
        assert model.to_sql(made, "out", rows, if_exists="replace") == 2


# other sessions -----------------------------------------------------------------------------------


def test_a_table_that_changes_changes_nothing(postgres: Server) -> None:
    uri = postgres.new_database()
    X = np.random.default_rng(0).normal(size=(500, 2))
    put(uri, "t", {"id": np.arange(500), "a": X[:, 0], "b": X[:, 1]})
    rows = open_sql("SELECT * FROM t", uri, key="id")
    with psycopg.connect(uri) as other:
        other.execute("UPDATE t SET a = a + 100")
        other.execute("DELETE FROM t WHERE id % 2 = 0")
    expected = KMeans(4, random_state=0).fit(X)
    model = KMeans(4, random_state=0).fit(rows)
    assert np.array_equal(model.labels_, expected.labels_)
    assert np.array_equal(model.predict(rows), expected.labels_)


def test_a_stream_that_nobody_reads_on_is_closed() -> None:
    """A bad row early in a long result ends the query, and the connection is free."""
    with duckdb.connect() as made:
        query = "SELECT i AS id, nullif(i, 5) AS x FROM range(100000000) r(i)"
        with pytest.raises(ValueError, match="id = 5"):
            open_sql(query, made, key="id")
        assert made.execute("SELECT 1").fetchall() == [(1,)]
