"""What seeding asks of the rows of a LocalEngine: draws, potentials, nearest seeds.

Every answer is the same however the rows are cut: distances are per row, and masses are added up
exactly (docs/numerics.md, "Seeding").
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exactmeans import _core
from exactmeans._validation import Double

# A grid is laid anew when the potential has fallen this far: its words then have bits to spare.
_FALL = 2.0**-20


@dataclass
class _Part:
    begin: int
    end: int
    rows: _core.Rows
    block: _core.SeedBlock


class LocalSeeding:
    """Rows, the distance of each to its nearest seed, and its mass: weight * distance**alpha."""

    def __init__(
        self,
        parts: Iterable[tuple[int, int, _core.Rows]],
        shape: tuple[int, int],
        *,
        sparse: bool,
        exponent: int,
        alpha: float,
        n_jobs: int,
    ) -> None:
        self.n, d = shape
        self.n_jobs = n_jobs
        self._points = _core.SeedPoints(d, exponent, sparse)
        self._parts = [
            _Part(begin, end, rows, _core.SeedBlock.make(rows, alpha, exponent, n_jobs))
            for begin, end, rows in parts
        ]
        self._bound = 0.0
        self._total = (0.0, 0.0)

    @property
    def seeds(self) -> int:
        return self._points.seeds

    @property
    def potential(self) -> float:
        """The mass of all rows."""
        return self._total[0] + self._total[1]

    def start(self, seed: int | Double) -> None:
        """The first seed: a row, or any point."""
        if isinstance(seed, np.ndarray):
            self._points.unstage()
            self._points.stage_point(seed)
        else:
            self._stage([seed])
        for part in self._parts:
            part.block.absorb(self._points, self.n_jobs)
        self._points.accept(0)
        self._lay_grid(self.n * max(part.block.largest() for part in self._parts))
        self._refine_grid()

    def draw(self, places: Double) -> list[int]:
        """Rows at which the running total of masses reaches these shares of the potential."""
        return [self._find(place * self.potential) for place in places]

    def potentials(self, rows: Iterable[int]) -> list[float]:
        """What each of these rows would leave of the potential; `accept` takes one of them."""
        self._stage(rows)
        left = [part.block.totals_left(self._points, self.n_jobs) for part in self._parts]
        return [sum(w[0] for w in words) + sum(w[1] for w in words) for words in zip(*left)]

    def accept(self, candidate: int) -> None:
        for part in self._parts:
            part.block.accept(self._points, candidate, self.n_jobs)
        self._points.accept(candidate)
        self._refine_grid()

    def absorb(self, rows: list[int]) -> None:
        """All of these rows become seeds."""
        self._stage(rows)
        for part in self._parts:
            part.block.absorb(self._points, self.n_jobs)
        for candidate in range(len(rows)):
            self._points.accept(candidate)
        self._refine_grid()

    def nearest2(self) -> Double:
        """Squared distances to the nearest seed, on the frame's scale; below 0 if excluded."""
        return np.concatenate([part.block.d2 for part in self._parts])

    def owners(self) -> NDArray[np.int32]:
        """The nearest seed of every row."""
        return np.concatenate([part.block.own for part in self._parts])

    def _find(self, target: float) -> int:
        before = (0.0, 0.0)
        for part in self._parts:
            row = part.block.find(before, target)
            if row < part.end - part.begin:
                return part.begin + row
            before = _plus(before, part.block.total)
        return self.n - 1

    def _stage(self, rows: Iterable[int]) -> None:
        self._points.unstage()
        for row in rows:
            part = self._part_of(row)
            self._points.stage(part.rows, row - part.begin)

    def _part_of(self, row: int) -> _Part:
        return next(part for part in self._parts if part.begin <= row < part.end)

    def _lay_grid(self, bound: float) -> None:
        self._bound = bound
        for part in self._parts:
            part.block.lay_grid(bound, self.n, self.n_jobs)
        self._add_up()

    def _refine_grid(self) -> None:
        self._add_up()
        if 0 < self.potential < self._bound * _FALL:
            self._lay_grid(2 * self.potential)

    def _add_up(self) -> None:
        self._total = (0.0, 0.0)
        for part in self._parts:
            self._total = _plus(self._total, part.block.total)


def _plus(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
    return a[0] + b[0], a[1] + b[1]
