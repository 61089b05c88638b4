"""Stochastic gradient steps: each batch moves its nearest centres towards its rows."""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from exactmeans.callbacks import Iteration, Reports
from exactmeans.data.arrays import Double, Matrix, as_array
from exactmeans.data.centres import lengths_of, normalise
from exactmeans.engine.frame import Frame
from exactmeans.engine.local.engine import LocalEngine
from exactmeans.engine.protocol import AssignStats
from exactmeans.fit.early_stopping import EarlyStopping
from exactmeans.fit.loop import CALLBACK_STOPPED, MAX_ITER_REACHED, Run
from exactmeans.fit.problem import MIN_MEAN_LENGTH, means_of, sums_of, unscaled
from exactmeans.fit.reassignment import NONE, Reassignment
from exactmeans.metrics import METRICS

STAGES = [(1, "lloyd", "batch by batch")]  # first iteration, algorithm, why


@dataclass
class State:
    """Centres, and how rows are compared with them.

    Where only directions count, a centre is the direction of a mean of unit rows; `lengths` are the
    lengths of these means.
    """

    frame: Frame
    centres: Matrix
    lengths: Double | None

    @staticmethod
    def at(frame: Frame, centres: Matrix) -> State:
        """Initial centres."""
        directed = METRICS[frame.metric].directed
        return State(frame, centres, np.ones(centres.shape[0]) if directed else None)

    def cost(self, engine: LocalEngine) -> tuple[AssignStats, float]:
        """Label these rows; returns the statistics, and inertia on the frame's scale."""
        engine.start("lloyd", self.centres.shape[0])
        centroids = self.frame.centroids(self.centres, engine)
        return engine.cost(centroids, self.centres, self.frame.cost_exponent)

    def stepped(self, means: Matrix, step: NDArray[Any]) -> State:
        """Centres moved towards the means by a step size per centre; 1 reaches the mean."""
        if self.lengths is None:
            return replace(self, centres=_stepped(self.centres, means, step))
        before = _scaled(self.centres.astype(np.float64), self.lengths)
        after = _stepped(before, means, step)
        lengths = lengths_of(after)
        lost = np.flatnonzero(lengths <= MIN_MEAN_LENGTH)
        if len(lost):  # means without a direction: keep the centres
            after = _replaced(after, lost, self.centres[lost])
        normalise(after)
        return State(self.frame, after.astype(self.centres.dtype), lengths)


class Sgd:
    """Each batch moves its nearest centres by a step size of 1 / (weight seen so far).

    So a centre is the mean of all rows that it was nearest to in their batch (Bottou & Bengio
    1995; Sculley 2010). Means of a batch are exact, so threads do not matter.
    """

    def __init__(
        self, state: State, counts: NDArray[np.float64], reassignment: Reassignment
    ) -> None:
        self._state, self.counts, self._reassignment = state, counts, reassignment
        self.frame = state.frame

    @property
    def state(self) -> State:
        return self._state

    def run(
        self,
        batches: Generator[LocalEngine, None, None],
        steps: int,
        rng: np.random.RandomState,
        stopping: EarlyStopping,
        reports: Reports,
    ) -> list[Iteration]:
        history: list[Iteration] = []
        began = time.perf_counter()
        self.stopped = MAX_ITER_REACHED
        frame = self.frame
        for step in range(1, steps + 1):
            reports.begin(frame, lambda: self.state.centres)
            batch = next(batches)
            stats, inertia, shift2 = self.step(batch, rng)
            stop = stopping.reason(inertia, shift2)
            record = Iteration(
                run=0,
                iteration=step,
                inertia=unscaled(stopping.inertia, frame.cost_exponent),
                shift=unscaled(shift2, frame.exponent),
                changed=0,
                distances=stats.distances,
                skipped=stats.skipped,
                algorithm="lloyd",
                seconds=time.perf_counter() - began,
                filtered=stats.filtered,
                decided=stats.decided,
                verified=stats.verified,
            )
            history.append(record)
            if reports.end(record, frame, lambda: self.state.centres):
                stop = stop or CALLBACK_STOPPED
            if stop:
                self.stopped = stop
                break
        batches.close()
        return history

    def step(
        self, batch: LocalEngine, rng: np.random.RandomState
    ) -> tuple[AssignStats, float, float]:
        """Move the centres.

        Returns the statistics of the labels before, inertia per weight before, and squared
        distances moved.
        """
        before, reassigning = self._state, self._reassignment.is_due(self.counts, batch)
        stats, cost = before.cost(batch)
        means, weights = _batch_means(batch, len(self.counts))
        self.counts += weights
        step = np.divide(weights, self.counts, out=np.zeros_like(weights), where=weights > 0)
        chosen, rows = self._reassignment.draw(self.counts, batch, rng) if reassigning else NONE
        if len(chosen):
            step[chosen] = 1.0
            means = _replaced(means, chosen, batch.take(rows))
        self._state = before.stepped(means, step)
        moved2 = _distance2(before.centres, self._state.centres, self.frame.exponent)
        return stats, cost / total_weight(batch), moved2

    def outcome(self, engine: LocalEngine, history: list[Iteration], *, label: bool) -> Run:
        inertia, state, extra = np.nan, self.state, 0
        if label:
            stats, cost = state.cost(engine)
            inertia, extra = unscaled(cost, self.frame.cost_exponent), stats.distances
        k = len(self.counts)
        return Run(
            centres=state.centres,
            labels=engine.final_labels() if label else np.arange(k, dtype=np.int32),
            inertia=inertia,
            history=history,
            stopped=self.stopped,
            distances=sum(record.distances for record in history) + extra,
            stages=STAGES,
        )


def total_weight(batch: LocalEngine) -> float:
    """The weight of all rows."""
    return float(batch.n if batch.weights is None else batch.weights.sum())


def _batch_means(batch: LocalEngine, k: int) -> tuple[Matrix, NDArray[np.float64]]:
    """Exact means and weights of the clusters in a batch."""
    sums = sums_of(batch, k)
    batch.sum_all(sums)
    return means_of(sums, batch, k), sums.weights


def _stepped(centres: Matrix, means: Matrix, step: NDArray[Any]) -> Matrix:
    """Centres moved towards the means by a step size per centre; 1 reaches the mean."""
    if not isinstance(centres, np.ndarray):
        kept = sp.diags_array(1 - step) @ centres.astype(np.float64)
        moved = sp.csr_array(kept + sp.diags_array(step) @ means)
        moved.eliminate_zeros()
        moved.sort_indices()
        return moved.astype(centres.dtype)
    share, means = step[:, np.newaxis], as_array(means)
    return np.where(share == 1, means, centres + share * (means - centres)).astype(centres.dtype)


def _scaled(vectors: Matrix, lengths: Double) -> Matrix:
    if isinstance(vectors, np.ndarray):
        return vectors * lengths[:, np.newaxis]
    return sp.csr_array(sp.diags_array(lengths) @ vectors)


def _replaced(means: Matrix, which: NDArray[np.intp], rows: Matrix) -> Matrix:
    """Means with some of them replaced."""
    if isinstance(means, np.ndarray):
        means[which] = rows
        return means
    keep = np.ones(means.shape[0])
    keep[which] = 0
    shape = (means.shape[0], len(which))
    place = sp.csr_array((np.ones(len(which)), (which, np.arange(len(which)))), shape=shape)
    return sp.csr_array(sp.diags_array(keep) @ means + place @ rows.astype(np.float64))


def _distance2(a: Matrix, b: Matrix, exponent: int) -> float:
    step = (b - a).astype(np.float64)
    values = step.ravel() if isinstance(step, np.ndarray) else step.data
    return float(np.square(np.ldexp(values, exponent)).sum())
