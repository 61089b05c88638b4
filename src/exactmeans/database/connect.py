"""From a URI or a connection of any driver to a `Database`."""

from __future__ import annotations

import importlib
import os
from typing import Any
from urllib.parse import unquote

from exactmeans.database.adbc import AdbcDatabase
from exactmeans.database.dbapi import DbapiDatabase
from exactmeans.database.duckdb import DuckdbDatabase
from exactmeans.database.errors import DatabaseError, one_sentence, secrets_of
from exactmeans.database.protocol import Database

__all__ = ["connect", "is_uri"]

_SCHEMES = ("postgresql", "postgres", "duckdb", "sqlite")


def is_uri(text: str) -> bool:
    """Whether a text names a database, not a file; `connect` refuses schemes it does not know."""
    return "://" in text


def connect(connection: Any, *, existing: bool = True) -> Database:
    """The database of a connection, or of a URI; `existing`: a file must be there already."""
    if isinstance(connection, str):
        return _open(connection, existing=existing)
    module = type(connection).__module__.split(".")[0]
    if hasattr(connection, "adbc_connection"):
        return AdbcDatabase(connection, owned=False)
    if module in ("duckdb", "_duckdb"):
        return DuckdbDatabase(connection, owned=False)
    if hasattr(connection, "cursor") and hasattr(connection, "commit"):
        return DbapiDatabase(connection, owned=False)
    hint = ", which engine.raw_connection() has inside" if module == "sqlalchemy" else ""
    raise TypeError(
        "connection must be a URI such as 'postgresql://…', 'duckdb:///file' or 'sqlite:///file', "
        f"or a DB-API connection{hint}, not {type(connection).__name__}."
    )


def _open(uri: str, *, existing: bool) -> Database:
    scheme, _, rest = uri.partition("://")
    if scheme not in _SCHEMES:
        raise ValueError(
            "connection must be a URI that begins with 'postgresql://', 'duckdb:///' or "
            "'sqlite:///', or a DB-API connection, but it is a string of another kind."
        )
    secrets = secrets_of(uri)
    if scheme in ("postgresql", "postgres"):
        driver = _driver("adbc_driver_postgresql.dbapi", "adbc-driver-postgresql")
        return AdbcDatabase(_connected(driver.connect, uri, secrets), owned=True, secrets=secrets)
    path = unquote(rest.removeprefix("/"))
    if not rest.startswith("/") or not path:
        raise ValueError(
            f"connection must have three slashes before the name of the file, as '{scheme}:///file'."
        )
    if existing and path != ":memory:" and not os.path.exists(path):
        raise FileNotFoundError(
            f"connection must name a database that exists, but {path!r} does not."
        )
    if scheme == "sqlite":
        driver = _driver("adbc_driver_sqlite.dbapi", "adbc-driver-sqlite")
        return AdbcDatabase(_connected(driver.connect, path, secrets), owned=True)
    driver = _driver("duckdb", "duckdb")
    return DuckdbDatabase(_connected(driver.connect, path, secrets), owned=True)


def _driver(module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise ImportError(
            f"This database needs the {package} package: pip install exactmeans[sql]."
        ) from None


def _connected(make: Any, where: str, secrets: tuple[str, ...]) -> Any:
    try:
        return make(where)
    except Exception as error:
        raise DatabaseError(f"connection failed: {one_sentence(error, secrets)}.") from None
