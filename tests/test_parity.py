"""The same random_state gives scikit-learn's clustering; every difference is a proved rounding tie.

`python tests/parity_table.py 50` prints the table for more seeds.
"""

from __future__ import annotations

from typing import Any

import pytest

import datasets
import parity
from parity_table import RANDOM, TABLE, TIES, Comparison


@pytest.mark.parametrize(
    ("comparison", "seeds"), [pytest.param(c, n, id=str(c)) for c, n in TABLE + RANDOM]
)
def test_a_fit_is_scikit_learns(comparison: Comparison, seeds: int) -> None:
    row = comparison.run(range(seeds))
    assert row.tried == seeds
    assert row.equal + row.ties_proved == seeds, row.details


@pytest.mark.parametrize(
    ("comparison", "seeds"),
    [pytest.param(c, n, id=str(c)) for c, n in TIES if (c, n) not in TABLE],
)
def test_fits_part_at_ties_alone(comparison: Comparison, seeds: int) -> None:
    """Of the data in docs/compatibility.md, whose table counts how often they do."""
    row = comparison.run(range(seeds))
    assert row.equal + row.ties_proved == seeds, row.details


@pytest.mark.parametrize("name", ["blobs_overlapping", "blobs_many", "wine"])
def test_easy_data_needs_no_proof(name: str) -> None:
    data = datasets.load(name)
    row = parity.compare(data.X, data.k, range(10), name=name)
    assert row.equal == 10


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", ["iris", "digits", "blobs_many", "sparse_random", "sparse_unit"])
def test_kmeans_plusplus_draws_scikit_learns_rows(name: str, weighted: bool) -> None:
    data = datasets.load(name)
    n = data.X.shape[0]
    weights = [1.0 + i % 3 for i in range(n)] if weighted else None
    same = [parity.same_seeds(data.X, data.k, seed, sample_weight=weights)[0] for seed in range(10)]
    assert all(same), same


@pytest.mark.parametrize(
    "options", [{"tol": 0.0}, {"max_iter": 3}, {"tol": 0.01}], ids=lambda options: str(options)
)
@pytest.mark.parametrize("name", ["iris", "blobs_overlapping", "sparse_random"])
def test_stopping_is_scikit_learns(name: str, options: dict[str, Any]) -> None:
    data = datasets.load(name)
    row = parity.compare(data.X, data.k, range(5), name=name, **options)
    assert row.equal + row.ties_proved == 5
