"""Chooses 8-bit coordinates that prune most seeding candidates, by a sample of rows.

They affect the time of seeding, never which rows become seeds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from exactmeans import _core
from exactmeans.data.arrays import Double

# Numbers of principal axes that are considered.
_AXES = (4, 8, 16, 32, 48, 64)
# Cost of an 8-bit coordinate relative to a float64 feature.
_COORDINATE = 1 / 6
# Cost of rounding all features of all rows, and of projecting all rows on one axis, in candidates
# whose distances could be computed instead.
_ROUNDING, _AXIS = 12, 0.5
# New coordinates must cost less than this share of those in use.
_MIN_GAIN = 0.9


@dataclass
class Coordinates:
    """Coordinates relative to an origin: along axes, or by feature if there are no axes.

    Most coordinates of rows lie within +-range.
    """

    origin: Double
    axes: Double
    range: float


@dataclass
class _Estimate:
    """Number of coordinates, their range, and the cost of the pairs that they do not prune."""

    count: int
    range: float
    left: float


def bytes_per_row(d: int) -> int:
    """Upper bound for all coordinates: axes are padded to pairs, features to multiples of 16."""
    return 16 * -(-d // 16) + 2 * (_most_axes(d) // 2 + 1) + 24


class Survey:
    """A centred sample of rows and its principal directions."""

    def __init__(self, sample: Double) -> None:
        self._origin = sample.mean(axis=0)
        self._rows = sample - self._origin
        self._norm2 = _norm2(self._rows)
        few = _most_axes(sample.shape[1]) if self.usable else 0
        self._basis = _core.leading_directions(self._rows, few)
        self._axes = 0  # in use
        self._features = False

    @property
    def usable(self) -> bool:
        return bool(np.isfinite(self._norm2).all() and self._norm2.any())

    @np.errstate(over="ignore", invalid="ignore")
    def better(
        self, candidates: Double, near2: Double, *, usual: float, planned: int
    ) -> list[Coordinates]:
        """Coordinates that cost less than those in use, for `planned` further candidates.

        Costs are in features per pair of row and candidate: a full distance counts d. `usual` is
        the share of pairs whose distances are computed without coordinates. Axes prune first, then
        features the remaining rows.
        """
        d = self._rows.shape[1]
        points = candidates - self._origin
        features = self._by_feature(points, near2)
        along = {estimate.count: estimate for estimate in self._along_axes(points, near2)}

        def cost(axes: int, by_feature: bool) -> float:
            first = (axes + 1) * _COORDINATE if axes else 0.0
            left = along[axes].left if axes else 1.0
            if by_feature:
                left = left * _COORDINATE + features.left
            return first + left * float(d)

        def effort(option: tuple[int, bool]) -> float:
            axes, by_feature = option
            made = _ROUNDING * d if by_feature and not self._features else 0.0
            if axes != self._axes:
                made += (axes + 1) * _AXIS * d
            return made + planned * cost(*option)

        in_use = (self._axes, self._features)
        now = cost(*in_use) if any(in_use) else min(1.0, 2 * usual) * d
        # Coordinates in use are replaced, never dropped.
        options = [
            (axes, by_feature)
            for axes in (0, *along)
            for by_feature in (False, True)
            if bool(axes) >= bool(self._axes) and by_feature >= self._features
        ]
        best = min(options, key=effort)
        if best == in_use or effort(best) > _MIN_GAIN * now * planned:
            return []
        self._axes, self._features = best
        found = [features] if best[1] > in_use[1] else []
        found += [along[best[0]]] if best[0] != in_use[0] else []
        return [Coordinates(self._origin, self._basis[: one.count], one.range) for one in found]

    def _by_feature(self, points: Double, near2: Double) -> _Estimate:
        apart2 = np.array([_norm2(self._rows - point) for point in points]).T
        reach = float(np.abs(self._rows).max())
        return _Estimate(0, reach, _left(apart2, near2, self._rows.shape[1], reach))

    def _along_axes(self, points: Double, near2: Double) -> Iterator[_Estimate]:
        # Not by BLAS: its threads may spin longer than this takes.
        rows_in, points_in = (np.einsum("if,mf->im", a, self._basis) for a in (self._rows, points))
        rest2, points_rest2 = self._norm2.copy(), _norm2(points)
        apart2 = np.zeros((len(rest2), len(points)))
        for m in range(1, len(self._basis) + 1):
            along, points_along = rows_in[:, m - 1], points_in[:, m - 1]
            apart2 += np.square(np.subtract.outer(along, points_along))
            rest2 -= np.square(along)
            points_rest2 -= np.square(points_along)
            if m not in _AXES:
                continue
            rest, points_rest = (np.sqrt(np.maximum(0, a)) for a in (rest2, points_rest2))
            reach = float(max(np.abs(rows_in[:, :m]).max(), rest.max()))
            both = apart2 + np.square(np.subtract.outer(rest, points_rest))
            yield _Estimate(m, reach, _left(both, near2, m + 1, reach))


def _left(apart2: Double, near2: Double, m: int, reach: float) -> float:
    """Cost of the pairs left, relative to all pairs; fetching a row once is most of it."""
    # The standard error of rounding is 1 / sqrt(12) of a quantisation step.
    near = np.sqrt(near2) + reach / 127 * np.sqrt(m / 12)
    left: NDArray[np.bool_] = apart2 < np.square(near)[:, np.newaxis]
    return min(1.0, float(left.any(axis=1).mean() + 0.5 * left.mean()))


def _most_axes(d: int) -> int:
    return min(max(_AXES), d // 2)


def _norm2(rows: Double) -> Double:
    return np.asarray(np.einsum("if,if->i", rows, rows))
