"""Seeding over blocks of rows, wherever they are: draws, grids of sampling weights, deferred seeds.

`SeedRows` is what the rows contribute, block by block. `BlockSeeding` combines it, so that draws
are written once for rows in this process and for rows on a cluster. Results do not depend on block
boundaries: distances are per row, and sampling weights are added up exactly (docs/numerics.md,
"Seeding").
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from exactmeans import _core
from exactmeans.data.arrays import Double
from exactmeans.engine.protocol import Seeding

ONE = np.ones(1)  # the bound of a grid of counts: every row adds 1
# Lay a new grid when the potential has fallen this far: the bins of the old one then have too few
# bits for it.
REGRID_FALL = _core.regrid_fall

Pair: TypeAlias = tuple[float, float]  # an exact total, as a high and a low part
Blank: TypeAlias = tuple[int, int, _core.Grid, _core.Grid, bool]  # arguments of `_core.Sums`


class BlockTotal(NamedTuple):
    """The sampling weights of a block, added up."""

    block: int
    total: Pair


class Found(NamedTuple):
    """Rows of a block at which cumulated sampling weights reach some targets."""

    begin: int  # the first row of the block
    rows: list[int]  # counted from there; the length of the block where it ends below a target


class Refreshed(NamedTuple):
    """The sampling weight of a row before and after deferred seeds were taken into account."""

    total: BlockTotal
    before: float
    now: float


class SeedRows(Protocol):
    """The rows of a seeding, identified by their number among all rows."""

    def start(self, seed: int | Double) -> float:
        """Set the first seed, a row or any point; returns the largest sampling weight."""

    def set_unit2(self, unit2: float) -> float:
        """Set the squared distance of weight 1; returns the largest sampling weight."""

    def largest(self) -> float:
        """The largest sampling weight."""

    def farthest(self) -> tuple[float, int]:
        """(-squared distance to the nearest seed, row) of the first farthest row."""

    def lay_grid(self, bound: float, n: int) -> list[BlockTotal]:
        """Add up sampling weights on a new grid, for n rows of weight up to bound / n."""

    def find(self, before: dict[int, Pair], targets: list[float]) -> list[Found]:
        """Rows that reach the targets; `before`: the total of all earlier blocks, by block."""

    def potentials(self, rows: list[int]) -> list[Pair]:
        """The potential if each row, alone, became a seed."""

    def accept(self, candidate: int) -> list[BlockTotal]:
        """Make a seed of one of the candidates of `potentials`."""

    def add(self, rows: list[int]) -> list[BlockTotal]:
        """Make seeds of all these rows."""

    def sample_bernoulli(self, key: int, factor: float) -> list[int]:
        """Rows kept by independent draws with probability factor * sampling weight."""

    def seed_weights(self, seeds: int) -> Double:
        """The exact total weight of the rows nearest to each seed."""

    def defer(self, row: int) -> None:
        """Make this row a deferred seed."""

    def refresh(self, row: int) -> list[Refreshed]:
        """Bring the sampling weight of one row up to date with the deferred seeds; one result."""

    def add_deferred(self) -> list[BlockTotal]:
        """Make plain seeds of the deferred ones."""


class BlockSeeding(Seeding):
    """Draws and grids of a seeding, from the totals of its blocks."""

    def __init__(self, rows: SeedRows, n: int, *, alpha: float, width: float) -> None:
        self.n, self.width = n, width
        self.seeds = 0
        self._rows, self._alpha = rows, alpha
        self._bound = 0.0
        self._totals: list[BlockTotal] = []
        self._candidates: list[int] = []
        self._deferred = 0

    @property
    def potential(self) -> float:
        return sum(own.total[0] for own in self._totals) + sum(own.total[1] for own in self._totals)

    def start(self, seed: int | Double) -> None:
        self._first_grid(self._rows.start(seed))
        self.seeds = 1

    def draw(self, places: Double) -> list[int]:
        targets = (places * self.potential).tolist()
        before, so_far = {}, (0.0, 0.0)
        for block, total in sorted(self._totals):
            before[block] = so_far
            so_far = so_far[0] + total[0], so_far[1] + total[1]
        drawn = [0] * len(targets)
        for begin, found in sorted(self._rows.find(before, targets)):
            # A block that ends below the target gives its length: where the next one begins.
            drawn = [
                begin + row if so_far == begin else so_far
                for so_far, row in zip(drawn, found, strict=True)
            ]
        return [min(row, self.n - 1) for row in drawn]

    def potentials(self, rows: list[int]) -> list[float]:
        self._candidates = rows
        return [high + low for high, low in self._rows.potentials(rows)]

    def accept(self, candidate: int) -> None:
        if candidate >= len(self._candidates):
            raise RuntimeError("accept must name a candidate of the last call of potentials.")
        self._candidates = []
        self._totals = self._rows.accept(candidate)
        self.seeds += 1
        self._refine_grid()

    def greedy(self, places: Double) -> list[int]:
        return [self.best_of_drawn(own) for own in places]

    def best_of_drawn(self, places: Double) -> int:
        """One step of greedy k-means++."""
        drawn = self.draw(places)
        left = self.potentials(drawn)
        best = left.index(min(left))
        self.accept(best)
        return drawn[best]

    def add(self, rows: list[int]) -> None:
        if rows:
            self._totals = self._rows.add(rows)
            self.seeds += len(rows)
        self._refine_grid()

    def farthest(self) -> int:
        minus, row = self._rows.farthest()
        return row if minus < 0 else -1

    def sample_bernoulli(self, key: int, expected: float) -> list[int]:
        return sorted(self._rows.sample_bernoulli(key, expected / self.potential))

    def seed_weights(self) -> Double:
        return self._rows.seed_weights(self.seeds)

    @property
    def deferred(self) -> int:
        return self._deferred

    def defer(self, row: int) -> None:
        self._rows.defer(row)
        self._deferred += 1

    def refresh(self, row: int) -> tuple[float, float]:
        ((new, before, now),) = self._rows.refresh(row)
        self._totals = [new if own.block == new.block else own for own in self._totals]
        return before, now

    def add_deferred(self) -> None:
        self._totals = self._rows.add_deferred()
        self.seeds += self._deferred
        self._deferred = 0
        self._refine_grid()

    def _lay_grid(self, bound: float) -> None:
        self._bound = bound
        self._totals = self._rows.lay_grid(bound, self.n)

    def _first_grid(self, largest: float) -> None:
        if self._alpha not in (1.0, 2.0):
            unit2 = -self._rows.farthest()[0]
            largest = self._rows.set_unit2(unit2 if unit2 > 0 else 1.0)
        self._lay_grid(self.n * largest)
        if 0 < self.potential < self._bound * REGRID_FALL:
            self._lay_grid(2 * self.potential)

    def _refine_grid(self) -> None:
        if self.potential < self._bound * REGRID_FALL and self._bound > 0:
            self._first_grid(self._rows.largest())


def weight_sums(k: int, weight_grid: _core.Grid) -> Blank:
    """Arguments of `_core.Sums` for exact sums of weights alone."""
    return k, 1, _core.Grid(ONE, 1), weight_grid, False


def add_weights(
    sums: _core.Sums, labels: NDArray[np.int32] | None, n: int, weights: Double | None, n_jobs: int
) -> None:
    """Add the weights of n rows to those of their labels."""
    rows = _core.Rows.dense(np.zeros((n, 1)), weights)
    sums.relabel(rows, labels, np.full(n, -1, dtype=np.int32), n_jobs)
