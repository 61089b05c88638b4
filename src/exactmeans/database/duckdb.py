"""DuckDB's own connections."""

from __future__ import annotations

import secrets
from collections.abc import Generator
from contextlib import suppress
from typing import Any

from exactmeans.database.protocol import Database

_ROWS = 2**16  # rows of a batch


class DuckdbDatabase(Database):
    dialect = "duckdb"
    title = "DuckDB"

    def _batches(self, query: str, parameters: Any) -> Generator[Any, None, None]:
        relation = self.connection.sql(query, params=parameters)
        if relation is None:  # a statement without a result
            return
        # Older versions have the second name only, newer ones warn of it.
        read = getattr(relation, "to_arrow_reader", None) or relation.fetch_record_batch
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
        return True  # `_begin` finds out: DuckDB does not tell

    def _begin(self, own: bool) -> None:
        self._joined = False
        try:
            self.connection.execute("BEGIN TRANSACTION")
        except Exception as error:
            if "within a transaction" not in str(error):
                raise
            self._joined = True  # the user's: DuckDB has no savepoints

    def _commit(self, own: bool) -> None:
        if not self._joined:
            self.connection.execute("COMMIT")

    def _rollback(self, own: bool) -> None:
        if not self._joined:
            self.connection.execute("ROLLBACK")
