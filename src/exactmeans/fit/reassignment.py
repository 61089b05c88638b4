"""Reassigns centres with few rows to random rows, by scikit-learn's rules."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from exactmeans.data.arrays import Double
from exactmeans.engine.local.engine import LocalEngine
from exactmeans.fit.batches import usable_rows

NONE = np.empty(0, dtype=np.intp), np.empty(0, dtype=np.intp)


@dataclass
class Reassignment:
    """Moves centres with few rows to random rows; draws as scikit-learn does."""

    ratio: float  # of the largest count, below which a centre is reassigned
    batch_size: int
    since: int = 0  # rows since the last reassignment

    def is_due(self, counts: Double, batch: LocalEngine) -> bool:
        """True every 10 rows per centre, and while a centre has no row; call it before a step."""
        self.since += min(batch.n, self.batch_size)
        if self.since < 10 * len(counts) and counts.all():
            return False
        self.since = 0
        return True

    def draw(
        self, counts: Double, batch: LocalEngine, rng: np.random.RandomState
    ) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Centres, and rows of the batch to put them on: at most half a batch.

        The new count of these centres is the least that any other centre has.
        """
        few = np.flatnonzero(counts < self.ratio * counts.max())
        if not len(few):
            return NONE
        usable = usable_rows(batch.counted(), 0, batch.n)
        chosen = few[np.argsort(counts[few], kind="stable")][: len(usable) // 2]
        if not len(chosen):
            return NONE
        rows = rng.choice(usable, len(chosen), replace=False)
        others = np.setdiff1d(np.arange(len(counts)), chosen)
        counts[chosen] = counts[others].min() if len(others) else 1.0
        return np.sort(chosen), rows
