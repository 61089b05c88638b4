"""Coordinates that rule out most candidates of seeding for little effort, by a sample of rows.

Nothing here decides which rows become seeds, only how fast they are found.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from exactmeans import _core
from exactmeans._validation import Double

# Numbers of axes that are asked about.
_AXES = (4, 8, 16, 32, 48, 64, 96, 128)
# What a coordinate in 8 bits costs of a feature in float64, when rows are read in order; and how
# many candidates could be measured while the features of all rows are rounded.
_COORDINATE, _ROUNDING = 1 / 6, 8
# Others must be better than those in use by this factor.
_BETTER = 0.9


@dataclass
class Coordinates:
    """Features about an origin, or if there are any, what rows have along axes from there.

    `points` are the origin and one point at `length` along each axis. Most coordinates of rows lie
    within the range.
    """

    points: Double
    length: float
    range: float


class Survey:
    """Centred rows of a sample, and their leading directions."""

    def __init__(self, sample: Double) -> None:
        self._origin = sample.mean(axis=0)
        self._rows = sample - self._origin
        self._norm2 = _norm2(self._rows)
        few = min(max(_AXES), sample.shape[1] // 2)
        self._basis = _core.leading_directions(self._rows, few if self.usable else 0)
        self._in_use = -1

    @property
    def usable(self) -> bool:
        return bool(np.isfinite(self._norm2).all() and self._norm2.any())

    @np.errstate(over="ignore", invalid="ignore")
    def better(
        self, candidates: Double, near2: Double, *, usual: float, planned: int
    ) -> Coordinates | None:
        """Coordinates that pay if so many more candidates will come, and pay more than now.

        Costs are in features per pair of row and candidate: a full distance counts d. `usual` is
        the share of pairs that are measured when no coordinates are in use. Rows that are left over
        must each be fetched, for one candidate or for all of them, and then measured.
        """
        d = self._rows.shape[1]
        found = {
            m: (cost, reach) for m, cost, reach in self._costs(candidates - self._origin, near2)
        }
        now = found[self._in_use][0] if self._in_use in found else min(1, 2 * usual) * d
        efforts = {m: (m + 1 if m else _ROUNDING) * d + planned * found[m][0] for m in found}
        best = min(efforts, key=efforts.__getitem__)
        if best == self._in_use or efforts[best] > _BETTER * now * planned:
            return None
        self._in_use = best
        length = 2.0 ** np.round(np.log2(np.sqrt(self._norm2.mean())))
        points = np.vstack([self._origin, self._origin + length * self._basis[:best]])
        return Coordinates(points, float(length), found[best][1])

    def _costs(self, points: Double, near2: Double) -> Iterator[tuple[int, float, float]]:
        """Number of axes, cost per pair, and range; first of features, which are 0 axes."""
        rows, d = self._rows, self._rows.shape[1]

        def cost(apart2: Double, m: int, reach: float) -> float:
            # Rounding to whole steps puts a coordinate off by 1 / sqrt(12) of a step.
            near = np.sqrt(near2) + reach / 127 * np.sqrt(m / 12)
            left: NDArray[np.bool_] = apart2 < np.square(near)[:, np.newaxis]
            share = float(left.any(axis=1).mean() + left.mean())
            return float(m * _COORDINATE + min(1.0, share) * d)

        apart2 = np.array([_norm2(rows - point) for point in points]).T
        reach = float(np.abs(rows).max())
        yield 0, cost(apart2, d, reach), reach
        # Not by BLAS: its threads may spin for longer than this takes.
        rows_in, points_in = (np.einsum("if,mf->im", a, self._basis) for a in (rows, points))
        rest2, points_rest2 = self._norm2.copy(), _norm2(points)
        apart2 = np.zeros_like(apart2)
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
            yield m, cost(both, m + 1, reach), reach


def _norm2(rows: Double) -> Double:
    return np.asarray(np.einsum("if,if->i", rows, rows))
