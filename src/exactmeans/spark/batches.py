"""How many rows Spark puts into a record batch while a fit runs."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

_SETTING = "spark.sql.execution.arrow.maxRecordsPerBatch"
# Spark grows the buffers of a batch step by step, which costs more per row the larger they are: of
# covtype (150,000 x 54, dense) two tasks read batches of 2,000 rows in 0.45 s, of 10,000 (Spark's
# default) in 1.3 s, of 50,000 in 5 s.
_ROWS = 1000

_lock = threading.Lock()
_users: dict[int, int] = {}  # fits that run, by session
_before: dict[int, str | None] = {}


@contextlib.contextmanager
def small_batches(spark: Any) -> Iterator[None]:
    """Lower the setting of a session. Fits may overlap: the last one restores what was before."""
    key = id(spark)
    with _lock:
        _users[key] = _users.get(key, 0) + 1
        if _users[key] == 1:
            _before[key] = given = spark.conf.get(_SETTING, None)
            if given is None or not 0 < int(given) <= _ROWS:
                spark.conf.set(_SETTING, str(_ROWS))
    try:
        yield
    finally:
        with _lock:
            _users[key] -= 1
            if not _users[key]:
                del _users[key]
                _restore(spark, _before.pop(key))


def _restore(spark: Any, value: str | None) -> None:
    with contextlib.suppress(Exception):  # the session may be gone
        if value is None:
            spark.conf.unset(_SETTING)
        else:
            spark.conf.set(_SETTING, value)
