"""The interface to a database, the same for all drivers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Self

from exactmeans.database.errors import DatabaseError, one_sentence
from exactmeans.database.interrupt import interruptible, prefetched
from exactmeans.database.names import quote_table


class Database(ABC):
    """A connection; `with` closes it at the end if this package opened it, not if the user did."""

    dialect = "other"
    title = "the database"  # for messages
    threaded = True  # whether another thread than its maker's may use the connection

    def __init__(self, connection: Any, *, owned: bool, secrets: tuple[str, ...] = ()) -> None:
        self.connection = connection
        self._owned, self._secrets = owned, secrets

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._owned:
            with suppress(Exception):  # of a server that went away
                self.connection.close()

    # -- reading -------------------------------------------------------------------------------

    def batches(self, query: str, parameters: Any = None) -> Generator[Any, None, None]:
        """The rows of a query, once, as Arrow record batches; the first may be empty.

        What a failure, an interruption or a caller who stops early leaves behind is undone, so that
        the connection can be used again.
        """
        idle = self._owned or self._is_idle()
        found = self._batches(query, parameters)
        try:
            with self._failing("query failed in"):
                yield from prefetched(found, self.cancel) if self.threaded else found
        except BaseException:
            self._recover()
            raise
        finally:
            found.close()
            if idle and not self._owned:
                self._end_reading()

    @abstractmethod
    def _batches(self, query: str, parameters: Any) -> Generator[Any, None, None]:
        """Record batches of a query, as the driver gives them."""

    # -- writing -------------------------------------------------------------------------------

    def execute(self, statement: str) -> None:
        """A statement without a result."""
        with self._failing("a statement failed in"):
            self._call(lambda: self._execute(statement))

    def insert(self, table: str, schema: str | None, reader: Any) -> None:
        """All rows of an Arrow reader, by the driver's bulk path."""
        with self._failing(f"table {table!r} could not be written to"):
            self._call(lambda: self._insert(table, schema, reader))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All that happens inside, or nothing of it.

        Begins a transaction, unless the user has one open. Then the work becomes a part of that,
        which the user commits.
        """
        own = self._owned or self._is_idle()
        with self._failing("no transaction could begin in"):
            self._begin(own)
        try:
            yield
            with self._failing("the transaction could not be committed in"):
                self._call(lambda: self._commit(own))
        except BaseException:  # Ctrl-C too
            with suppress(Exception):  # of a server that went away, which rolls back by itself
                self._rollback(own)
            raise

    @abstractmethod
    def _execute(self, statement: str) -> None: ...

    @abstractmethod
    def _insert(self, table: str, schema: str | None, reader: Any) -> None: ...

    @abstractmethod
    def _is_idle(self) -> bool:
        """Whether the user's connection has no transaction open."""

    @abstractmethod
    def _begin(self, own: bool) -> None: ...

    @abstractmethod
    def _commit(self, own: bool) -> None: ...

    @abstractmethod
    def _rollback(self, own: bool) -> None: ...

    @abstractmethod
    def cancel(self) -> None:
        """End the statement that another thread waits for."""

    def _recover(self) -> None:  # noqa: B027
        """Make the connection usable after a statement failed while reading."""

    def _end_reading(self) -> None:  # noqa: B027
        """Close a transaction that reading opened."""

    # -- names and errors ----------------------------------------------------------------------

    def quoted(self, table: str, schema: str | None) -> str:
        return quote_table(table, schema, self.dialect)

    def _call(self, call: Any) -> None:
        if self.threaded:
            interruptible(call, self.cancel)
        else:
            call()

    @contextmanager
    def _failing(self, what: str) -> Iterator[None]:
        """One sentence for whatever a driver raises; its own words may hold a password."""
        try:
            yield
        except (DatabaseError, ImportError):
            raise
        except Exception as error:
            said = one_sentence(error, self._secrets)
            raise DatabaseError(f"{what} {self.title}: {said}.") from None
