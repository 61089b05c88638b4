"""Rows in a table of every kind of database, and fits of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from databases import SERVED, opened, put
from exactmeans import KMeans
from postgres import Server

N, D, K = 700, 4, 5
_rng = np.random.default_rng(33)
X = _rng.normal(size=(N, D)) + _rng.integers(0, 4, (N, 1))
IDS = _rng.permutation(N)  # the order in which the table has its rows
NAMES = ["a", "b", "c", "d"]
NASTY = 'x"; drop table t; --'


def columns(rows: Any = X) -> dict[str, Any]:
    return {"id": IDS} | {name: rows[IDS, f] for f, name in enumerate(NAMES)}


@contextmanager
def with_table(kind: str, folder: Path, request: pytest.FixtureRequest) -> Iterator[Any]:
    """A database with the table t, by one driver."""
    uri = ""
    if kind in SERVED:
        server: Server = request.getfixturevalue("postgres")
        uri = server.new_database()
    with opened(kind, folder, uri) as made:
        put(made, "t", columns())
        yield made


def fitted(source: Any = X, **options: Any) -> KMeans:
    return KMeans(K, random_state=0, **options).fit(source)


def same(model: KMeans, other: KMeans) -> None:
    assert np.array_equal(model.labels_, other.labels_)
    assert np.array_equal(model.cluster_centers_, other.cluster_centers_)
    assert model.inertia_ == other.inertia_
