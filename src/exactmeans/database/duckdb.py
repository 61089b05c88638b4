"""DuckDB's own connections."""

from __future__ import annotations

import secrets
from collections.abc import Generator
from contextlib import suppress
from typing import Any

from exactmeans.database.protocol import Database

_ROWS = 2**16  # rows of a batch
_TRANSACTION = "SELECT txid_current()"


class DuckdbDatabase(Database):
    dialect = "duckdb"
    title = "DuckDB"

    def _batches(self, query: str, parameters: Any) -> Generator[Any, None, None]:
        relation = self.connection.sql(query, params=parameters)
        if relation is None:  # a statement without a result
            return
        names = ("to_arrow_reader", "fetch_record_batch", "fetch_arrow_reader")  # newest first
        read = next(getattr(relation, name) for name in names if hasattr(relation, name))
        reader = read(_ROWS)
        try:
            yield from reader
        finally:
            reader.close()  # an open result would keep the connection busy

    def _execute(self, statement: str) -> None:
        self.connection.execute(statement)

    def _insert(self, table: str, schema: str | None, reader: Any) -> None:
        view = f"exactmeans_{secrets.token_hex(8)}"
        self.connection.register(view, reader)
        try:
            self.connection.execute(
                f"INSERT INTO {self.quoted(table, schema)} SELECT * FROM {view}"
            )
        finally:
            self.connection.unregister(view)

    def cancel(self) -> None:
        with suppress(Exception):
            self.connection.interrupt()

    def _is_idle(self) -> bool:
        # Without a transaction, every statement has one of its own.
        first, second = (self.connection.execute(_TRANSACTION).fetchall() for _ in range(2))
        return bool(first != second)

    def _begin(self, own: bool) -> None:
        if own:
            self.connection.execute("BEGIN TRANSACTION")

    def _commit(self, own: bool) -> None:
        if own:
            self.connection.execute("COMMIT")

    def _rollback(self, own: bool) -> None:
        if own:  # DuckDB has no savepoints: a failure aborts the user's transaction
            self.connection.execute("ROLLBACK")
