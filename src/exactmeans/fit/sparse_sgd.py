"""Gradient steps for sparse rows, at the cost of the features that a batch has."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from exactmeans import _core
from exactmeans.data.arrays import Double, as_array
from exactmeans.data.centres import DENSE_CENTRES_BYTES, like_rows
from exactmeans.engine.local.engine import LocalEngine
from exactmeans.engine.protocol import AssignStats
from exactmeans.fit.problem import MIN_MEAN_LENGTH
from exactmeans.fit.reassignment import NONE, Reassignment
from exactmeans.fit.sgd import Sgd, State, total_weight


def sgd_for(engine: LocalEngine, state: State, counts: Double, reassignment: Reassignment) -> Sgd:
    """Gradient steps for the layout of these rows: SparseSgd where its dense sums fit in memory."""
    k, d = state.centres.shape
    if engine.sparse and 24 * k * d <= (engine.scratch_limit or DENSE_CENTRES_BYTES):
        return SparseSgd(state, counts, reassignment)
    # partial_fit may go on with rows of the other layout.
    centres = like_rows(state.centres, sparse=engine.sparse, n_jobs=engine.n_jobs)
    return Sgd(replace(state, centres=centres), counts, reassignment)


class SparseSgd(Sgd):
    """Keeps each centre as a sum of rows and a weight that divides it.

    A step changes only the sums of features that the batch has; the other features of a centre
    change through the weight alone. Rows are added in order, so threads do not matter.
    """

    def __init__(
        self, state: State, counts: NDArray[np.float64], reassignment: Reassignment
    ) -> None:
        super().__init__(state, counts, reassignment)
        self._directed = state.lengths is not None
        self._weight = np.where(counts > 0, counts, 1.0)
        directions = as_array(state.centres).T.astype(np.float64, order="C")
        means = directions if state.lengths is None else directions * state.lengths
        self._scale = math.ldexp(1.0, self.frame.exponent)
        self._sums = means * self._scale * self._weight  # feature by feature
        self._norms2 = np.einsum("fj,fj->j", self._sums, self._sums)
        # Kept directions of centres whose sums are too short to have one. partial_fit may begin
        # with such centres.
        self._lost: dict[int, Double] = {}
        if state.lengths is not None:
            self._lost = {
                int(j): directions[:, j] for j in np.flatnonzero(state.lengths <= MIN_MEAN_LENGTH)
            }
        self._place = np.empty(len(means), dtype=np.int32)

    @property
    def state(self) -> State:
        centres = self._in_units(self._means(self._sums, slice(None)))
        lengths = np.sqrt(self._norms2) / self._weight if self._directed else None
        return State(self.frame, sp.csr_array(centres), lengths)

    def step(
        self, batch: LocalEngine, rng: np.random.RandomState
    ) -> tuple[AssignStats, float, float]:
        reassigning = self._reassignment.is_due(self.counts, batch)
        features, few = self._compact(batch)
        block, k = sp.csr_array(few.whole()), len(self.counts)
        sums = self._sums[features]
        means = self._means(sums, features)
        norms2 = self._norms2 * self._inverses() ** 2
        stats = self._assign(few, means, norms2)
        labels = few.labels()
        counted = few.counted()
        weights = np.ones(few.n) if counted is None else counted
        lengths = np.diff(block.indptr)
        values, of_row = self._values(few, block, lengths), np.repeat(weights, lengths)
        cells = block.indices.astype(np.intp) * k + np.repeat(labels, lengths)
        at_centre = means.reshape(-1)[cells]
        # Not by BLAS: its threads may spin for longer than this takes.
        if self._directed:
            cost = total_weight(batch) - float(np.einsum("e,e,e->", of_row, values, at_centre))
        else:
            cost = float(np.einsum("e,e,e->", of_row, values, values - 2 * at_centre))
            cost += float(np.einsum("i,i->", weights, norms2[labels]))

        seen = np.bincount(labels, weights, k)
        cleared = (self.counts == 0) & (seen > 0)  # an initial centre is no row
        self.counts += seen
        # Of no entries, bincount gives integers.
        after: Any = np.bincount(cells, of_row * values, means.size).astype(np.float64, copy=False)
        after = after.reshape(-1, k)
        chosen, rows = self._reassignment.draw(self.counts, batch, rng) if reassigning else NONE
        if len(chosen):
            # The new count is 0 if another centre has seen no row.
            weight = np.where(self.counts[chosen] > 0, self.counts[chosen], 1.0)
            after[:, chosen] = as_array(few.take(rows)).T * self._scale * weight
            cleared[chosen] = True
        after += np.where(cleared, 0.0, sums) if cleared.any() else sums
        moved2 = self._put(features, sums, after, cleared)
        return stats, max(0.0, cost) / total_weight(batch), moved2

    def _compact(self, batch: LocalEngine) -> tuple[NDArray[np.intp], LocalEngine]:
        """The features that the batch has, and its rows in those alone."""
        block = sp.csr_array(batch.whole())
        block.has_canonical_format = False  # the flag may be out of date
        if not block.has_canonical_format:
            block = block.copy()
            block.sum_duplicates()
        present = np.zeros(batch.d, dtype=bool)
        present[block.indices] = True
        present[0] = True  # a matrix needs a column
        features = np.flatnonzero(present)
        self._place[features] = np.arange(len(features), dtype=np.int32)
        shape = (batch.n, len(features))
        rows = sp.csr_array((block.data, self._place[block.indices], block.indptr), shape=shape)
        return features, batch.alone(rows, np.arange(batch.n))

    def _inverses(self) -> Double:
        """Factors that turn sums into centres."""
        if not self._directed:
            return 1 / self._weight
        lengths = np.sqrt(self._norms2)
        return np.where(lengths > 0, 1 / np.where(lengths > 0, lengths, 1.0), 0.0)

    def _means(self, sums: Double, features: Any) -> Double:
        """The centres of these sums, feature by feature."""
        means = sums * self._inverses()
        for j, direction in self._lost.items():
            means[:, j] = direction[features]
        return means

    def _in_units(self, means: Double) -> NDArray[Any]:
        """Centre by centre, in the units and the dtype of the data."""
        dtype = self._state.centres.dtype
        return (means if self._scale == 1 else means / self._scale).T.astype(dtype, order="C")

    def _assign(self, few: LocalEngine, means: Double, norms2: Double) -> AssignStats:
        frame, n_jobs, centres = self.frame, few.n_jobs, self._in_units(means)
        centroids = _core.Centroids.make(
            centres, None, frame.exponent, None, n_jobs, frame.metric, frame.packing
        )
        if not self._directed:
            centroids.set_norms(norms2, len(self._place) + 1)  # of all features
        few.start("lloyd", len(centres))
        return few.assign(centroids)

    def _values(self, few: LocalEngine, block: Any, lengths: NDArray[Any]) -> Double:
        """Entries on the scale of the frame; of unit rows where only directions count."""
        values: Double = block.data.astype(np.float64) * self._scale
        if few.norms is not None:
            norms = np.repeat(few.norms, lengths)
            np.divide(values, norms, out=values, where=norms > 0)  # others have no weight
        return values

    def _put(self, features: NDArray[np.intp], sums: Double, after: Double, cleared: Any) -> float:
        """The new sums in place of the old; gives squared distances that centres moved."""
        inverses, weight = self._inverses(), self._weight
        elsewhere = np.maximum(0.0, self._norms2 - np.einsum("fj,fj->j", sums, sums))
        elsewhere[cleared] = 0.0
        norms2 = elsewhere + np.einsum("fj,fj->j", after, after)
        product = elsewhere + np.einsum("fj,fj->j", sums, after)
        before2 = self._norms2 * inverses**2
        self._weight = np.where(self.counts > 0, self.counts, weight)
        found = np.sqrt(norms2) > MIN_MEAN_LENGTH * self._weight
        for j in np.flatnonzero(~found) if self._directed else ():
            self._lost.setdefault(int(j), self._sums[:, j] * inverses[j])
        self._lost = {j: lost for j, lost in self._lost.items() if not found[j]}
        self._sums[:, cleared] = 0.0
        self._sums[features] = after
        self._norms2 = norms2
        now = self._inverses()
        moved2 = before2 + norms2 * now**2 - 2 * product * inverses * now
        moved2[list(self._lost)] = 0.0
        return float(np.maximum(0.0, moved2).sum())
