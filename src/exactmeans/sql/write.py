"""A table from an Arrow reader: all of it or nothing, by the bulk path of each driver."""

from __future__ import annotations

from typing import Any, Literal

from exactmeans.data.record_batches import type_name
from exactmeans.database.errors import DatabaseError
from exactmeans.database.names import check_name, column_type, quote
from exactmeans.database.protocol import Database
from exactmeans.parameters import check_choice

IfExists = Literal["fail", "replace", "append"]
IF_EXISTS: tuple[IfExists, ...] = ("fail", "replace", "append")


def check_target(table: Any, if_exists: Any, schema: Any, argument: str = "table") -> None:
    check_name(table, argument)
    if schema is not None:
        check_name(schema, "schema")
    check_choice("if_exists", if_exists, IF_EXISTS)


def table_exists(database: Database, table: str, schema: str | None) -> bool:
    """Whether a query can name the table."""
    try:
        for _ in database.batches(f"SELECT 1 FROM {database.quoted(table, schema)} WHERE 1 = 0"):
            pass
    except DatabaseError:
        return False
    return True


def write_table(
    database: Database, table: str, reader: Any, if_exists: IfExists, schema: str | None
) -> None:
    """Create a table, unless there is one to append to, and fill it. Call it in a transaction."""
    name = database.quoted(table, schema)
    columns = ", ".join(
        f"{quote(field.name, database.dialect)} {_column(field, database)}"
        for field in reader.schema
    )
    if if_exists == "replace":
        database.execute(f"DROP TABLE IF EXISTS {name}")
    new = "TABLE IF NOT EXISTS" if if_exists == "append" else "TABLE"
    try:
        database.execute(f"CREATE {new} {name} ({columns})")
    except DatabaseError as error:
        if "already exists" not in str(error):
            raise
        raise ValueError(
            f"table must not exist, but {table!r} does: pass if_exists='replace' or 'append', or "
            "another name."
        ) from None
    database.insert(table, schema, reader)


def _column(field: Any, database: Database) -> str:
    found = column_type(_kind(field.type), database.dialect)
    if found is None:
        raise ValueError(
            f"column {field.name!r} cannot be written to {database.title}, which has no type for "
            f"{type_name(field.type)}."
        )
    return found


def _kind(kind: Any) -> str:
    """What a column holds, as `database/names.py` calls it."""
    import pyarrow.types as types

    if types.is_list(kind):
        return f"{_kind(kind.value_type)}[]"
    if getattr(kind, "extension_name", "") == "arrow.uuid":
        return "uuid"
    if types.is_timestamp(kind):
        return "timestamp" if kind.tz is None else "timestamptz"
    for holds, name in (
        (types.is_boolean, "bool"),
        (types.is_date, "date"),
        (types.is_float32, "float32"),
        (types.is_floating, "float64"),
        (types.is_string, "text"),
        (types.is_large_string, "text"),
        (types.is_binary, "binary"),
        (types.is_large_binary, "binary"),
        (types.is_fixed_size_binary, "binary"),
    ):
        if holds(kind):
            return name
    if types.is_integer(kind):
        bits = kind.bit_width + (1 if types.is_unsigned_integer(kind) else 0)
        return "int16" if bits <= 16 else "int32" if bits <= 32 else "int64"
    raise ValueError(f"key must hold integers, text, dates or UUIDs to be written, not {kind}.")
