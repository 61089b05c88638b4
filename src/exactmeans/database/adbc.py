"""ADBC connections: PostgreSQL, SQLite, Flight SQL and any other driver of the ADBC DB-API."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import suppress
from typing import Any

from exactmeans.database.protocol import Database

_VENDORS = {"postgresql": "postgresql", "sqlite": "sqlite", "duckdb": "duckdb"}
_VENDOR_NAME = 0  # ADBC's code
_STATUS = "adbc.postgresql.transaction_status"  # an option that only PostgreSQL's driver has
_AUTOCOMMIT = "adbc.connection.autocommit"


class AdbcDatabase(Database):
    def __init__(self, connection: Any, *, owned: bool, secrets: tuple[str, ...] = ()) -> None:
        super().__init__(connection, owned=owned, secrets=secrets)
        self._cursor: Any = None
        self._autocommit = self._option(_AUTOCOMMIT) == "true"
        vendor = self._vendor()
        self.dialect = next((d for name, d in _VENDORS.items() if name in vendor), "other")
        self.title = {"postgresql": "PostgreSQL", "sqlite": "SQLite", "duckdb": "DuckDB"}.get(
            self.dialect, "the database"
        )

    def _option(self, name: str) -> str | None:
        try:
            return str(self.connection.adbc_connection.get_option(name))
        except Exception:  # the driver has no such option
            return None

    def _vendor(self) -> str:
        """The name of the database; only that, because a version may need a query."""
        with suppress(Exception):
            import pyarrow as pa

            stream = self.connection.adbc_connection.get_info([_VENDOR_NAME])
            found = pa.RecordBatchReader._import_from_c(stream.address).read_all()
            return str(found.column("info_value")[0].as_py()).lower()
        return ""

    def _status(self) -> str | None:
        """What PostgreSQL says about its transaction; None for others.

        Older drivers of SQLite crash on options that they do not have.
        """
        return self._option(_STATUS) if self.dialect == "postgresql" else None

    def _batches(self, query: str, parameters: Any) -> Generator[Any, None, None]:
        with self.connection.cursor() as cursor:
            self._cursor = cursor
            try:
                cursor.execute(query, parameters)
                yield from map(_with_uuids, cursor.fetch_record_batch())
            finally:
                self._cursor = None

    def _execute(self, statement: str) -> None:
        with self.connection.cursor() as cursor:
            self._cursor = cursor
            try:
                cursor.execute(statement)
            finally:
                self._cursor = None

    def _insert(self, table: str, schema: str | None, reader: Any) -> None:
        with self.connection.cursor() as cursor:
            self._cursor = cursor
            try:
                cursor.adbc_ingest(table, reader, mode="append", db_schema_name=schema)
            finally:
                self._cursor = None

    def cancel(self) -> None:
        cursor = self._cursor
        if cursor is not None:
            with suppress(Exception):  # it may have ended by now, or the driver cannot cancel
                cursor.adbc_cancel()

    def _is_idle(self) -> bool:
        status = self._status()
        return self._autocommit or status is None or status == "idle"

    def _recover(self) -> None:
        # The driver takes no statement, not even a rollback to a savepoint, before this.
        if not self._autocommit and self._status() == "inerror":
            with suppress(Exception):
                self.connection.rollback()

    def _end_reading(self) -> None:
        if not self._autocommit and self._status() == "intrans":
            with suppress(Exception):
                self.connection.rollback()

    def _begin(self, own: bool) -> None:
        if self._autocommit:
            self.connection.adbc_connection.set_autocommit(False)

    def _commit(self, own: bool) -> None:
        if own:
            self.connection.commit()
            self._restore()

    def _rollback(self, own: bool) -> None:
        # Of a failed transaction PostgreSQL keeps nothing, the user's part included.
        self.connection.rollback()
        self._restore()

    def _restore(self) -> None:
        if self._autocommit:
            self.connection.adbc_connection.set_autocommit(True)


def _with_uuids(batch: Any) -> Any:
    """The batch with its UUIDs as such: PostgreSQL's driver before 1.13 hands over opaque bytes."""
    import pyarrow as pa

    for i, field in enumerate(batch.schema):
        opaque = getattr(field.type, "extension_name", "") == "arrow.opaque"
        if opaque and field.type.type_name == "uuid":
            raw = batch.column(i).storage.cast(pa.binary(16))
            column = pa.ExtensionArray.from_storage(pa.uuid(), raw)
            batch = batch.set_column(i, pa.field(field.name, column.type), column)
    return batch
