"""Seeding over all workers: what LocalSeeding does in one process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from exactmeans import _core
from exactmeans.data.arrays import Double, Matrix
from exactmeans.engine.protocol import Seeding
from exactmeans.engine.seeding import FALL, best_of_drawn

if TYPE_CHECKING:
    from exactmeans.engine.cluster.engine import DaskEngine

Words = tuple[float, float]


class DaskSeeding(Seeding):
    """Seeding of rows on the workers of a cluster."""

    def __init__(self, engine: DaskEngine, exponent: int, alpha: float, *, width: float) -> None:
        self.n, self.width = engine.n, width
        self._engine, self._alpha = engine, alpha
        self._bound = 0.0
        self._totals: list[tuple[int, Words]] = []  # by block
        self.seeds = 0
        self._deferred = 0
        engine.mutate("seed", "open", alpha, exponent)

    @property
    def potential(self) -> float:
        return sum(high for _, (high, _) in self._totals) + sum(low for _, (_, low) in self._totals)

    def start(self, seed: int | Double) -> None:
        point = seed if isinstance(seed, np.ndarray) else self._rows([seed])
        self._first_grid(self._engine.mutate("seed", "start", point))
        self.seeds = 1

    def draw(self, places: Double) -> list[int]:
        targets = (places * self.potential).tolist()
        befores, before = {}, (0.0, 0.0)
        for block, total in sorted(self._totals):
            befores[block] = before
            before = before[0] + total[0], before[1] + total[1]
        drawn = [0] * len(targets)
        for block, found in sorted(self._engine.query("seed", "find", befores, targets)):
            begin = int(self._engine.begins[block])
            # A block that ends below the target gives its length: where the next one begins.
            drawn = [
                begin + row if so_far == begin else so_far
                for so_far, row in zip(drawn, found, strict=True)
            ]
        return [min(row, self.n - 1) for row in drawn]

    def potentials(self, rows: list[int]) -> list[float]:
        left = self._engine.mutate("seed", "potentials", self._rows(rows))
        return [high + low for high, low in left]

    def accept(self, candidate: int) -> None:
        self._totals = self._engine.mutate("seed", "accept", candidate)
        self.seeds += 1
        self._refine_grid()

    def greedy(self, places: Double) -> list[int]:
        return [best_of_drawn(self, own) for own in places]

    def absorb(self, rows: list[int]) -> None:
        if rows:
            self._totals = self._engine.mutate("seed", "absorb", self._rows(rows))
            self.seeds += len(rows)
        self._refine_grid()

    def farthest(self) -> int:
        minus, row = self._engine.query("seed", "farthest")
        return int(row) if minus < 0 else -1

    def sample_bernoulli(self, key: int, expected: float) -> list[int]:
        return sorted(
            self._engine.query("seed", "sample_bernoulli", key, expected / self.potential)
        )

    def followers(self) -> Double:
        blank, exported = self._engine.query(
            "seed", "followers", self.seeds, self._engine.weight_grid()
        )
        sums = _core.Sums(*blank)
        sums.absorb(exported)
        return sums.weights

    @property
    def pending(self) -> int:
        return self._deferred

    def put_off(self, row: int) -> None:
        self._engine.mutate("seed", "put_off", self._rows([row]))
        self._deferred += 1

    def refresh(self, row: int) -> tuple[float, float]:
        ((place, total, before, now),) = self._engine.mutate("seed", "refresh", row)
        self._totals = [(block, total if block == place else own) for block, own in self._totals]
        return before, now

    def catch_up(self) -> None:
        self._totals = self._engine.mutate("seed", "catch_up")
        self.seeds += self._deferred
        self._deferred = 0
        self._refine_grid()

    def _rows(self, rows: list[int]) -> Matrix:
        """Rows by number, in this order, repeated numbers included."""
        numbers, back = np.unique(np.array(rows, dtype=np.intp), return_inverse=True)
        return self._engine.pick(numbers)[back]

    def _lay_grid(self, bound: float) -> None:
        self._bound = bound
        self._totals = self._engine.mutate("seed", "lay_grid", bound, self.n)

    def _first_grid(self, largest: tuple[float, float]) -> None:
        if self._alpha not in (1.0, 2.0):
            largest = self._engine.mutate("seed", "set_unit2", largest[1] or 1.0)
        self._lay_grid(self.n * largest[0])
        if 0 < self.potential < self._bound * FALL:
            self._lay_grid(2 * self.potential)

    def _refine_grid(self) -> None:
        if self.potential < self._bound * FALL and self._bound > 0:
            self._first_grid(self._engine.query("seed", "largest"))
