"""What seeding shares, whether the rows are in this process or on a cluster."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from exactmeans import _core
from exactmeans.data.arrays import Double
from exactmeans.engine.protocol import Seeding

ONE = np.ones(1)  # the largest that counts are made of
# A grid is laid anew when the potential has fallen this far: its words then have bits to spare.
FALL = 2.0**-20


def best_of_drawn(seeding: Seeding, places: Double) -> int:
    """`greedy` by steps, wherever the rows are."""
    drawn = seeding.draw(places)
    left = seeding.potentials(drawn)
    best = left.index(min(left))
    seeding.accept(best)
    return drawn[best]


def weight_sums(k: int, weight_grid: _core.Grid) -> tuple[int, int, _core.Grid, _core.Grid, bool]:
    """What sums are made of that are about nothing but weights."""
    return k, 1, _core.Grid(ONE, 1), weight_grid, False


def add_weights(
    sums: _core.Sums, labels: NDArray[np.int32] | None, n: int, weights: Double | None, n_jobs: int
) -> None:
    """Add the weights of n rows to those of their labels."""
    rows = _core.Rows.dense(np.zeros((n, 1)), weights)
    sums.relabel(rows, labels, np.full(n, -1, dtype=np.int32), n_jobs)
