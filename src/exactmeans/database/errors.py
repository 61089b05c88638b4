"""What drivers say, as one sentence without passwords."""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import parse_qsl, unquote, urlsplit

__all__ = ["DatabaseError", "one_sentence", "secrets_of"]


class DatabaseError(RuntimeError):
    """A database refused a statement, or went away.

    Examples
    --------
    >>> import duckdb
    >>> from exactmeans import open_sql
    >>> from exactmeans.sql import DatabaseError
    >>> try:
    ...     open_sql("SELECT * FROM nowhere", duckdb.connect(), key="id")
    ... except DatabaseError as error:
    ...     print("refused")
    refused
    """


_LONGEST = 300  # characters of what a driver says; some repeat the whole statement
_NOISE = (
    re.compile(r"^[A-Z_]+: (?=\[|Failed)"),  # ADBC's status
    re.compile(r"^\[[\w .]+\] "),  # the library that it came from
    re.compile(r"^.*?(?:ERROR|FATAL|PANIC): +", re.DOTALL),  # PostgreSQL's own words begin here
    re.compile(r"^(?:\w+ )+Error: "),  # DuckDB's
    re.compile(r"\n\s*LINE \d.*", re.DOTALL),  # the place in the statement
    re.compile(r"\s*Query was: .*", re.DOTALL),
)
_PASSWORD = (
    (re.compile(r"(://[^\s:/@]*):[^\s@]*@"), r"\1:***@"),
    (re.compile(r"(password\s*=\s*)('[^']*'|[^\s&']+)", re.IGNORECASE), r"\1***"),
)


def one_sentence(error: object, secrets: Iterable[str] = ()) -> str:
    """The message of an error: one line, without the driver's decoration and without passwords."""
    said = str(error)
    for noise in _NOISE:
        said = noise.sub("", said)
    said = hide(" ".join(said.split()), secrets) or type(error).__name__
    if len(said) > _LONGEST:
        said = said[:_LONGEST] + "…"
    return said.rstrip(".?! ")


def hide(text: str, secrets: Iterable[str]) -> str:
    """The text with every password replaced by three stars."""
    for secret in secrets:
        text = text.replace(secret, "***")
    for pattern, shown in _PASSWORD:
        text = pattern.sub(shown, text)
    return text


def secrets_of(uri: str) -> tuple[str, ...]:
    """The password of a URI, as it stands there and decoded; longest first."""
    try:
        parts = urlsplit(uri)
        found = [parts.password or ""]
        found += [value for name, value in parse_qsl(parts.query) if "password" in name.lower()]
    except ValueError:  # what cannot be parsed may hold one anywhere
        found = [uri.partition("://")[2]]
    both = {form for secret in found for form in (secret, unquote(secret)) if form}
    return tuple(sorted(both, key=len, reverse=True))
