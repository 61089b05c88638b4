"""Identifiers and column types, as each dialect of SQL writes them."""

from __future__ import annotations

from typing import Any

__all__ = ["check_name", "column_type", "quote", "quote_table"]

#: Types by what a column holds. Arrays of numbers end in "[]"; None where a dialect has none.
_TYPES: dict[str, dict[str, str | None]] = {
    "postgresql": {
        "bool": "boolean",
        "int16": "smallint",
        "int32": "integer",
        "int64": "bigint",
        "float32": "real",
        "float64": "double precision",
        "text": "text",
        "binary": "bytea",
        "date": "date",
        "timestamp": "timestamp",
        "timestamptz": "timestamptz",
        "uuid": "uuid",
        "float32[]": "real[]",
        "float64[]": "double precision[]",
    },
    "duckdb": {
        "bool": "BOOLEAN",
        "int16": "SMALLINT",
        "int32": "INTEGER",
        "int64": "BIGINT",
        "float32": "FLOAT",
        "float64": "DOUBLE",
        "text": "VARCHAR",
        "binary": "BLOB",
        "date": "DATE",
        "timestamp": "TIMESTAMP",
        "timestamptz": "TIMESTAMPTZ",
        "uuid": "UUID",
        "float32[]": "FLOAT[]",
        "float64[]": "DOUBLE[]",
    },
    "sqlite": {
        "bool": "INTEGER",
        "int16": "INTEGER",
        "int32": "INTEGER",
        "int64": "INTEGER",
        "float32": "REAL",
        "float64": "REAL",
        "text": "TEXT",
        "binary": "BLOB",
        "date": "TEXT",
        "timestamp": "TEXT",
        "timestamptz": "TEXT",
        "uuid": "BLOB",
        "float32[]": None,
        "float64[]": None,
    },
    "other": {
        "bool": "BOOLEAN",
        "int16": "SMALLINT",
        "int32": "INTEGER",
        "int64": "BIGINT",
        "float32": "REAL",
        "float64": "DOUBLE PRECISION",
        "text": "VARCHAR(4000)",
        "binary": None,
        "date": "DATE",
        "timestamp": "TIMESTAMP",
        "timestamptz": "TIMESTAMP WITH TIME ZONE",
        "uuid": None,
        "float32[]": None,
        "float64[]": None,
    },
}


def check_name(name: Any, argument: str) -> str:
    """Any text may name a table or a column, but for an empty one or one with a NUL."""
    if not isinstance(name, str) or not name or "\0" in name:
        raise ValueError(f"{argument} must be a name, not {name!r}.")
    return name


def quote(name: str, dialect: str) -> str:
    """An identifier: whatever it holds, it is only a name."""
    mark = "`" if dialect == "mysql" else '"'
    return mark + name.replace(mark, mark * 2) + mark


def quote_table(table: str, schema: str | None, dialect: str) -> str:
    own = quote(table, dialect)
    return own if schema is None else f"{quote(schema, dialect)}.{own}"


def column_type(kind: str, dialect: str) -> str | None:
    """The type of a column that holds `kind`; None if the dialect has none."""
    return _TYPES.get(dialect, _TYPES["other"])[kind]
