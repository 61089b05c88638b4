"""Means of coefficients by cluster from exact sums, which do not depend on the order of rows."""

from __future__ import annotations

import math

import numpy as np

from exactmeans import _core
from exactmeans.data.arrays import Double, Labels

# Coefficients are quotients of doubles: at most 1, and at least 2**-53 unless they are 0. No
# coefficient needs more bins than these two values.
_EXTREMES = np.array([[1.0], [2.0**-53 * (1 + 2.0**-52)]])


class CoefficientSums:
    """Sums of coefficients from -1 to 1 over each of k clusters, for up to n rows in total."""

    def __init__(self, k: int, n: int) -> None:
        grid = _core.Grid(np.ones(1), max(1, n))
        grid.bins = _core.Rows.dense(_EXTREMES, None).bins_needed(grid, 1)
        counts = _core.Grid(np.ones(1), max(1, n))
        self._k = k
        self._of = _core.Sums(k, 1, grid, counts)
        self._all = _core.Sums(1, 1, grid, counts)

    def add(self, coefficients: Double, labels: Labels) -> None:
        """Rows in no cluster (label -1) do not count."""
        inside = labels >= 0
        if not inside.any():
            return
        rows = _core.Rows.dense(np.ascontiguousarray(coefficients[inside, np.newaxis]), None)
        own = np.ascontiguousarray(labels[inside], dtype=np.int32)
        self._of.relabel(rows, own, np.full(len(own), -1, np.int32), 1)
        self._all.relabel(rows, None, np.full(len(own), -1, np.int32), 1)

    def export(self) -> tuple[_core.Exported, _core.Exported]:
        return self._of.export(), self._all.export()

    def absorb(self, exported: tuple[_core.Exported, _core.Exported]) -> None:
        self._of.absorb(exported[0])
        self._all.absorb(exported[1])

    def clusters(self) -> Double:
        """The mean over each cluster; NaN for clusters without rows."""
        means = np.zeros((self._k, 1))
        self._of.average(means)
        return np.where(self._of.members > 0, means[:, 0], np.nan)

    def mean(self) -> float:
        """The mean over all rows that are in a cluster."""
        mean = np.zeros((1, 1))
        self._all.average(mean)
        return float(mean[0, 0]) if self._all.members[0] else math.nan
