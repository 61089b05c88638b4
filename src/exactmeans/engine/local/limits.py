"""Labels within size limits, and labels by prices, over the blocks of a LocalEngine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from exactmeans import _core
from exactmeans.data.arrays import Double, Labels, Matrix
from exactmeans.data.centres import for_core, like_rows
from exactmeans.engine.limits import BorderRows, Hashes, LimitedResult, Limits
from exactmeans.engine.local.blocks import unlabelled
from exactmeans.engine.protocol import AssignStats

if TYPE_CHECKING:
    from exactmeans.engine.local.engine import LocalEngine

# With fewer pairs of a row and a cluster per pass, prices would be inaccurate.
_LEAST_OPTIONS_PER_CLUSTER = 64


class LocalLimitedAssign:
    """The assignment step within limits; the core solves a transport problem of the open rows."""

    def __init__(self, engine: LocalEngine, limits: Limits, k: int) -> None:
        self._engine, self._limits, self._k = engine, limits, k
        self._changed = 0  # rows, by the last assignment
        core, limit = _core.LimitedAssignment, engine.scratch_limit
        most_options = core.most_options if limit is None else limit // core.option_bytes
        if most_options < (least := _LEAST_OPTIONS_PER_CLUSTER * k):
            raise ValueError(
                f"memory_limit must be at least {4 * core.option_bytes * least:,} bytes for {k} "
                f"clusters with size limits, but it is {4 * (limit or 0):,}."
            )
        # Limits on weights bound what a unit of weight costs, so weights cancel out of the costs.
        self._core = core(
            n=engine.directions(),
            total=limits.total,
            k=k,
            least=limits.least,
            most=limits.most,
            weighted=engine.weighted and not limits.scale,
            mass_scale=limits.scale,
            most_options=most_options,
        )

    @property
    def state(self) -> Double:
        return np.append(self._core.prices, [self._core.reach, self._changed])

    def resume(self, state: Double) -> None:
        self._core.set_state(np.ascontiguousarray(state[:-2]), float(state[-2]))
        self._changed = int(state[-1])

    def moved(self, movement: _core.Movement) -> None:
        """Update bounds by the movement of the centres since the last assignment."""
        self._core.moved(movement)

    def assign(self, centroids: _core.Centroids) -> AssignStats:
        """Passes over all blocks, until the labels are certain to be optimal."""
        # After more than a tenth of the labels changed, the prices predict the next ones poorly.
        engine, core = self._engine, self._core
        before = engine.labels().copy()
        scored = core.rows_scored
        core.start(10 * self._changed > engine.n)
        while True:
            core.begin()
            for block in engine.walk():
                core.add(
                    block.number, block.begin, block.rows, centroids, block.labels, engine.n_jobs
                )
            if core.solve():
                break
        for block in engine.blocks:
            core.write(block.number, block.labels)
        self._changed = int(np.count_nonzero(before != engine.labels()))
        scored = core.rows_scored - scored
        return AssignStats(self._changed, scored * self._k, max(0, engine.n - scored))

    def result(self, centroids: _core.Centroids, points: Matrix, exponent: int) -> LimitedResult:
        engine, prices = self._engine, self._core.prices
        labels = engine.labels()
        differ = labels_by_prices(engine, centroids, prices) != labels
        if engine.norms is not None:
            differ &= engine.norms > 0
        border = BorderRows.none()
        if differ.any():
            border = BorderRows.of(row_hashes(engine), labels, differ)
        nearest = labels_by_prices(engine, centroids, np.zeros(self._k))
        total, own_points = _core.ExactSum(), for_core(like_rows(points, sparse=engine.sparse))
        for block in engine.walk():
            near = nearest[block.begin : block.end]
            total.add(block.rows.scatter(own_points, near, exponent, engine.n_jobs)[0])
        moved = int(np.count_nonzero(nearest != labels))
        return LimitedResult(self._limits, prices, border, moved, total.value)


def labels_by_prices(engine: LocalEngine, centroids: _core.Centroids, prices: Double) -> Labels:
    """The cheapest cluster of every row at these prices, whatever its weight."""
    labels = unlabelled(engine.n)
    for block in engine.walk():
        own = labels[block.begin : block.end]
        _core.label_by_prices(block.rows, centroids, prices, own, engine.n_jobs)
    return labels


def row_hashes(engine: LocalEngine) -> Hashes:
    """A hash of the values of every row."""
    hashes = np.empty((engine.n, 2), dtype=np.uint64)
    for block in engine.walk():
        _core.hash_rows(block.rows, hashes[block.begin : block.end], engine.n_jobs)
    return hashes
