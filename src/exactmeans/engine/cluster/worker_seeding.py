"""Seeding over the blocks of one worker; `DaskSeeding` combines the results of all workers."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from exactmeans import _core
from exactmeans.data.arrays import Double, Matrix
from exactmeans.engine.local.engine import LocalEngine
from exactmeans.engine.seeding import add_weights, weight_sums

Words = tuple[float, float]
BATCH = 8  # seeds whose distances are computed together where all of them are accepted


class WorkerSeeding:
    """Nearest seeds and sampling weights of the rows of one worker."""

    def __init__(
        self, engine: LocalEngine, begins: list[int], places: list[int], alpha: float, exponent: int
    ) -> None:
        self._engine, self._begins, self._places = engine, begins, places
        self._exponent = exponent
        self._points, self._deferred = self._new_points(), self._new_points()
        self._deferred_rows: list[Matrix] = []
        self._blocks = [
            _core.SeedBlock.make(part.rows, alpha, exponent, engine.n_jobs)
            for part in engine.walk()
        ]

    def start(self, seed: Matrix | Double) -> tuple[float, float]:
        """Set the first seed, a row or any point; returns `largest()`."""
        if isinstance(seed, np.ndarray) and seed.ndim == 1:
            self._points.unstage()
            self._points.stage_point(seed)
        else:
            self._stage(seed)
        for block in self._blocks:
            block.absorb(self._points, self._engine.n_jobs)
        self._points.accept(0)
        return self.largest()

    def largest(self) -> tuple[float, float]:
        """The largest sampling weight and the largest squared distance of a row."""
        return (
            max(block.largest() for block in self._blocks),
            max(block.farthest()[1] for block in self._blocks),
        )

    def set_unit2(self, unit2: float) -> tuple[float, float]:
        for block in self._blocks:
            block.set_unit2(unit2)
        return self.largest()

    def lay_grid(self, bound: float, n: int) -> list[tuple[int, Words]]:
        for block in self._blocks:
            block.lay_grid(bound, n, self._engine.n_jobs)
        return self._totals()

    def _totals(self) -> list[tuple[int, Words]]:
        return [
            (place, block.total) for place, block in zip(self._places, self._blocks, strict=True)
        ]

    def find(self, befores: dict[int, Words], targets: list[float]) -> list[tuple[int, list[int]]]:
        return [
            (place, block.find(befores[place], targets))
            for place, block in zip(self._places, self._blocks, strict=True)
        ]

    def potentials(self, rows: Matrix) -> list[Words]:
        """The potential of these blocks if each row, alone, became a seed."""
        self._stage(rows)
        left = [block.totals_left(self._points, self._engine.n_jobs) for block in self._blocks]
        return [
            (sum(high for high, _ in own), sum(low for _, low in own))
            for own in zip(*left, strict=True)
        ]

    def accept(self, candidate: int) -> list[tuple[int, Words]]:
        for block in self._blocks:
            block.accept(self._points, candidate, self._engine.n_jobs)
        self._points.accept(candidate)
        return self._totals()

    def absorb(self, rows: Matrix) -> list[tuple[int, Words]]:
        for begin in range(0, rows.shape[0], BATCH):
            batch = rows[begin : begin + BATCH]
            self._stage(batch)
            for block in self._blocks:
                block.absorb(self._points, self._engine.n_jobs)
            for candidate in range(batch.shape[0]):
                self._points.accept(candidate)
        return self._totals()

    def put_off(self, row: Matrix) -> None:
        """One row becomes a deferred seed."""
        self._stage(row, self._deferred)
        self._deferred.accept(0)
        self._deferred_rows.append(row)

    def refresh(self, row: int) -> list[tuple[int, Words, float, float]]:
        """If the row is here: its block, the block's new total, the row's old and new weight."""
        for begin, place, block, part in zip(
            self._begins, self._places, self._blocks, self._engine.walk(), strict=True
        ):
            if begin <= row < begin + part.n:
                before = block.mass(row - begin)
                now = block.refresh(self._deferred, row - begin)
                return [(place, block.total, before, now)]
        return []

    def catch_up(self) -> list[tuple[int, Words]]:
        """Deferred seeds become plain ones."""
        rows, self._deferred_rows = self._deferred_rows, []
        self._deferred = self._new_points()
        if not rows:
            return self._totals()
        return self.absorb(
            sp.vstack(rows, format="csr") if self._engine.sparse else np.vstack(rows)
        )

    def sample_bernoulli(self, key: int, factor: float) -> list[int]:
        return [
            begin + row
            for begin, block in zip(self._begins, self._blocks, strict=True)
            for row in block.toss(key, begin, factor)
        ]

    def farthest(self) -> tuple[float, int]:
        """(-squared distance, row): the minimum over blocks is the first farthest row."""
        found = [
            (-d2, begin + row)
            for begin, (row, d2) in zip(
                self._begins, (block.farthest() for block in self._blocks), strict=True
            )
        ]
        return min(found)

    def followers(self, seeds: int, weight_grid: _core.Grid) -> tuple[Any, _core.Exported]:
        """The weight of the rows that are nearest to each seed, as exact sums."""
        blank = weight_sums(seeds, weight_grid)
        sums = _core.Sums(*blank)
        engine = self._engine
        owners = np.concatenate([block.own for block in self._blocks])
        add_weights(sums, owners, engine.n, engine.counted(), engine.n_jobs)
        return blank, sums.export()

    def _new_points(self) -> _core.SeedPoints:
        engine = self._engine
        return _core.SeedPoints(engine.d, self._exponent, engine.sparse, engine.metric.directed)

    def _stage(self, rows: Matrix, points: _core.SeedPoints | None = None) -> None:
        points = self._points if points is None else points
        points.unstage()
        few = LocalEngine([rows], None, 1, self._engine.metric)
        points.stage(few.block_of(0).rows, list(range(rows.shape[0])))
