"""Databases for tests: the same table in DuckDB, SQLite and PostgreSQL, through every driver."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import adbc_driver_manager.dbapi
import adbc_driver_postgresql.dbapi
import adbc_driver_sqlite.dbapi
import duckdb
import psycopg
import pyarrow as pa

from exactmeans.database.connect import connect
from exactmeans.sql.write import write_table

#: What makes a connection of each kind, from a folder and the URI of a PostgreSQL server.
KINDS: dict[str, Callable[[Path, str], Any]] = {
    "duckdb": lambda folder, uri: duckdb.connect(),
    "duckdb uri": lambda folder, uri: f"duckdb:///{folder / 'file.duckdb'}",
    "sqlite3": lambda folder, uri: sqlite3.connect(folder / "own.sqlite"),
    "sqlite adbc": lambda folder, uri: adbc_driver_sqlite.dbapi.connect(
        str(folder / "adbc.sqlite")
    ),
    "sqlite uri": lambda folder, uri: f"sqlite:///{folder / 'file.sqlite'}",
    "postgresql adbc": lambda folder, uri: adbc_driver_postgresql.dbapi.connect(uri),
    "postgresql autocommit": lambda folder, uri: adbc_driver_postgresql.dbapi.connect(
        uri, autocommit=True
    ),
    "postgresql uri": lambda folder, uri: uri,
    "psycopg": lambda folder, uri: psycopg.connect(uri),
    "psycopg autocommit": lambda folder, uri: psycopg.connect(uri, autocommit=True),
}
EMBEDDED = [kind for kind in KINDS if "postgres" not in kind and "psycopg" not in kind]
SERVED = [kind for kind in KINDS if kind not in EMBEDDED]


@contextmanager
def opened(kind: str, folder: Path, uri: str = "") -> Iterator[Any]:
    connection = KINDS[kind](folder, uri)
    try:
        yield connection
    finally:
        if not isinstance(connection, str):
            connection.close()


def put(connection: Any, table: str, columns: Any) -> None:
    """A table of these columns in place of one that is there."""
    data = columns if isinstance(columns, pa.Table) else pa.table(columns)
    with connect(connection, existing=False) as database, database.transaction():
        write_table(database, table, data.to_reader(), "replace", None)
    keep(connection)


def keep(connection: Any) -> None:
    """Commit what was written, where the driver leaves that to the user."""
    if always_in_transaction(connection):
        connection.commit()


def always_in_transaction(connection: Any) -> bool:
    """Whether a connection is in a transaction although the last one has just ended.

    That of PostgreSQL's ADBC driver is before version 1.12. What is written then belongs to that
    transaction, which is the user's to end.
    """
    if not isinstance(connection, adbc_driver_manager.dbapi.Connection):
        return False
    if connection.adbc_get_info()["vendor_name"] != "PostgreSQL":
        return False
    status = connection.adbc_connection.get_option("adbc.postgresql.transaction_status")
    return bool(status == "intrans")


def run(connection: Any, statement: str) -> None:
    with connect(connection, existing=False) as database, database.transaction():
        database.execute(statement)


def rows_of(connection: Any, query: str) -> list[tuple[Any, ...]]:
    """All rows of a query, in its order; read by other code than the one that is tested."""
    if isinstance(connection, str):
        scheme, _, path = connection.partition(":///")
        if scheme == "duckdb":
            with duckdb.connect(path) as own:
                return list(own.execute(query).fetchall())
        make = psycopg.connect if scheme.startswith("postgresql:") else sqlite3.connect
        other = make(connection if make is psycopg.connect else path)
        try:
            return list(other.execute(query).fetchall())
        finally:
            other.close()
    if hasattr(connection, "adbc_connection"):
        with connection.cursor() as cursor:
            cursor.execute(query)
            return [tuple(row) for row in cursor.fetchall()]
    return [tuple(row) for row in connection.execute(query).fetchall()]
