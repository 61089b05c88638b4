"""Any other DB-API connection (PEP 249): sqlite3, psycopg and their like."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, suppress
from typing import Any

from exactmeans.database.names import quote
from exactmeans.database.protocol import Database

_ROWS = 2**14  # rows that are fetched at once: Python objects, some 30 bytes a number
_DIALECTS = {
    "sqlite3": ("sqlite", "SQLite"),
    "psycopg": ("postgresql", "PostgreSQL"),
    "psycopg2": ("postgresql", "PostgreSQL"),
    "pg8000": ("postgresql", "PostgreSQL"),
    "pymysql": ("mysql", "MySQL"),
    "MySQLdb": ("mysql", "MySQL"),
    "mysql": ("mysql", "MySQL"),
}
#: PostgreSQL's codes of real and real[], which Python would make float64 of, from rounded text.
_SINGLE: dict[int, Any] = {
    700: lambda pa: pa.float32(),
    1021: lambda pa: pa.list_(pa.float32()),
}
_SAVEPOINT = "exactmeans"


class DbapiDatabase(Database):
    def __init__(self, connection: Any, *, owned: bool, secrets: tuple[str, ...] = ()) -> None:
        super().__init__(connection, owned=owned, secrets=secrets)
        self._module = type(connection).__module__.split(".")[0]
        self.dialect, self.title = _DIALECTS.get(self._module, ("other", "the database"))
        self._single = _SINGLE if self.dialect == "postgresql" else {}
        self.threaded = self._module != "sqlite3"  # whose connections stay with their thread

    # -- reading -------------------------------------------------------------------------------

    def _batches(self, query: str, parameters: Any) -> Generator[Any, None, None]:
        with closing(self._streaming_cursor()) as cursor, self._interrupted_by_signals():
            cursor.execute(query) if parameters is None else cursor.execute(query, parameters)
            while rows := cursor.fetchmany(_ROWS):
                yield _batch(cursor.description, rows, single=self._single)

    def _streaming_cursor(self) -> Any:
        """A cursor that does not hold the whole result, where the driver has one."""
        if self._module in ("psycopg", "psycopg2") and not self.connection.autocommit:
            return self.connection.cursor(name=_SAVEPOINT)
        return self.connection.cursor()

    def _interrupted_by_signals(self) -> Any:
        return _SqliteSignals(self.connection if self._module == "sqlite3" else None)

    # -- writing -------------------------------------------------------------------------------

    def _execute(self, statement: str) -> None:
        with closing(self.connection.cursor()) as cursor:
            cursor.execute(statement)

    def _insert(self, table: str, schema: str | None, reader: Any) -> None:
        names = ", ".join(quote(name, self.dialect) for name in reader.schema.names)
        into = f"{self.quoted(table, schema)} ({names})"
        with closing(self.connection.cursor()) as cursor:
            if self._module == "psycopg":
                with cursor.copy(f"COPY {into} FROM STDIN") as copy:
                    for row in _python_rows(reader):
                        copy.write_row(row)
                return
            marks = ", ".join(self._mark(at) for at in range(len(reader.schema.names)))
            for batch in reader:
                rows = list(zip(*(_plain(column) for column in batch.columns), strict=True))
                cursor.executemany(f"INSERT INTO {into} VALUES ({marks})", rows)

    def _mark(self, at: int) -> str:
        """The placeholder of a value, as the driver spells it."""
        style = getattr(sys.modules.get(self._module), "paramstyle", "qmark")
        return {"numeric": f":{at + 1}", "format": "%s", "pyformat": "%s"}.get(style, "?")

    def cancel(self) -> None:
        for name in ("cancel_safe", "cancel", "interrupt"):
            if hasattr(self.connection, name):
                with suppress(Exception):
                    getattr(self.connection, name)()
                return

    # -- transactions --------------------------------------------------------------------------

    def _is_idle(self) -> bool:
        if self._module == "sqlite3":
            return not self.connection.in_transaction
        if self._module == "psycopg":
            return bool(self.connection.info.transaction_status == 0)
        if self._module == "psycopg2":
            return bool(self.connection.get_transaction_status() == 0)
        return True

    def _own_begin(self) -> bool:
        """Whether BEGIN must be sent; otherwise the first statement opens a transaction."""
        if self._module == "sqlite3":
            return True
        return self._module in ("psycopg", "psycopg2") and bool(self.connection.autocommit)

    def _begin(self, own: bool) -> None:
        if not own:
            self._execute(f"SAVEPOINT {_SAVEPOINT}")
        elif self._own_begin():
            self._execute("BEGIN")

    def _commit(self, own: bool) -> None:
        if not own:
            self._execute(f"RELEASE SAVEPOINT {_SAVEPOINT}")
        elif self._own_begin():
            self._execute("COMMIT")
        else:
            self.connection.commit()

    def _rollback(self, own: bool) -> None:
        if not own:
            self._execute(f"ROLLBACK TO SAVEPOINT {_SAVEPOINT}")
        elif self._own_begin():
            self._execute("ROLLBACK")
        else:
            self.connection.rollback()

    def _end_reading(self) -> None:
        if not self._is_idle() or self.dialect == "other":
            with suppress(Exception):
                self.connection.rollback()


class _SqliteSignals:
    """Lets Python handle signals while SQLite computes: Ctrl-C then interrupts the statement."""

    _STEPS = 100_000  # instructions of SQLite's machine between two checks, some milliseconds

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._interrupted = False

    def __enter__(self) -> None:
        if self._connection is not None:
            self._connection.set_progress_handler(self._check, self._STEPS)

    def _check(self) -> int:
        try:
            return int(self._interrupted)  # pending signals are handled about here
        except KeyboardInterrupt:
            self._interrupted = True
            return 1

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if self._connection is not None:
            self._connection.set_progress_handler(None, 0)
        if error is not None and "interrupted" in str(error).lower():
            raise KeyboardInterrupt from None


def _batch(description: Any, rows: list[Any], *, single: Any) -> Any:
    """A record batch of Python values; `single`: Arrow types by the driver's codes of float32."""
    import pyarrow as pa

    names, columns = [about[0] for about in description], []
    for (name, code, *_), values in zip(description, zip(*rows, strict=True), strict=True):
        kind = single.get(code)
        try:
            columns.append(pa.array(values, None if kind is None else kind(pa)))
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
            kinds = {type(value) for value in values} - {type(None)}
            if len(kinds) > 1:
                shown = " and ".join(sorted(kind.__name__ for kind in kinds))
                raise ValueError(f"column {name!r} has values of several types: {shown}") from None
            columns.append(_uuids(values) if kinds == {uuid.UUID} else _texts(values))
    return pa.record_batch(columns, names=names)


def _uuids(values: Sequence[Any]) -> Any:
    """UUIDs, which pyarrow before version 21 does not convert by itself."""
    import pyarrow as pa

    raw = pa.array([None if value is None else value.bytes for value in values], pa.binary(16))
    return pa.ExtensionArray.from_storage(pa.uuid(), raw)


def _texts(values: Sequence[Any]) -> Any:
    import pyarrow as pa

    return pa.array([None if value is None else str(value) for value in values])


def _python_rows(reader: Any) -> Iterator[tuple[Any, ...]]:
    for batch in reader:
        yield from zip(*(_plain(column) for column in batch.columns), strict=True)


def _plain(column: Any) -> list[Any]:
    values: list[Any] = column.to_pylist()
    return values
