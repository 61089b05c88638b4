"""Stochastic gradient steps: each batch moves its nearest centres towards its rows."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from exactmeans import _core
from exactmeans.callbacks import Callback, Iteration, Tasks
from exactmeans.data.arrays import Double, Matrix
from exactmeans.data.centres import COMFORTABLE, from_core, lengths_of, like_rows, normalise
from exactmeans.engine.frame import Frame
from exactmeans.engine.local.engine import LocalEngine
from exactmeans.fit.loop import Run, is_true
from exactmeans.fit.problem import FAINT, sums_of, unscaled
from exactmeans.metrics import METRICS

# The least share by which the inertia of a batch must fall where batches are cut from blocks. Such
# batches repeat in every pass, so the smoothed inertia has little noise, and ever shorter steps
# could lower it by ever less for all of max_iter.
FALL = 1e-3
STAGES = [(1, "lloyd", "batch by batch")]  # first iteration, algorithm, why


@dataclass
class State:
    """Centres, and how rows are compared with them.

    Where only directions count, a centre is a unit vector and stands for a mean of such, which is
    shorter: `lengths` are those of the means.
    """

    frame: Frame
    centres: Matrix
    lengths: Double | None

    @staticmethod
    def at(frame: Frame, centres: Matrix) -> State:
        """Initial centres."""
        directed = METRICS[frame.metric].directed
        return State(frame, centres, np.ones(centres.shape[0]) if directed else None)

    def cost(self, engine: LocalEngine) -> float:
        """Inertia of these rows, on the frame's scale; labels them."""
        engine.start("lloyd", self.centres.shape[0])
        centroids = self.frame.centroids(self.centres, engine)
        return engine.cost(centroids, self.centres, self.frame.cost_exponent)[1]

    def pulled(self, means: Matrix, pull: NDArray[Any]) -> State:
        """Centres moved towards the means by a step size per centre; 1 reaches the mean."""
        if self.lengths is None:
            return replace(self, centres=_pulled(self.centres, means, pull))
        before = _scaled(self.centres.astype(np.float64), self.lengths)
        after = _pulled(before, means, pull)
        lengths = lengths_of(after)
        lost = np.flatnonzero(lengths <= FAINT)  # means without a direction: keep the centres
        if len(lost):
            after = _replaced(after, lost, self.centres[lost])
        normalise(after)
        return State(self.frame, after.astype(self.centres.dtype), lengths)


@dataclass
class EarlyStopping:
    """Stops when the smoothed inertia no longer falls, or when the centres hardly move.

    The rules are scikit-learn's. The first batch does not count: it moves the initial centres all
    the way to its means.
    """

    smoothing: float  # weight of the last batch in the smoothed inertia
    tolerance: float
    max_no_improvement: int | None
    least_fall: float = 0.0  # share by which the smoothed inertia must fall
    inertia: float = np.nan  # smoothed
    least: float = np.inf
    steps: int = 0
    no_improvement: int = 0

    def reason(self, inertia: float, shift2: float) -> str | None:
        """Why to stop after a step with this inertia and this movement, or None to go on."""
        self.steps += 1
        last = 1.0 if self.steps <= 2 else self.smoothing
        self.inertia = inertia if last == 1 else (1 - last) * self.inertia + last * inertia
        if self.steps == 1:
            return None
        if self.tolerance > 0 and shift2 <= self.tolerance:
            return "the centres moved less than tol"
        if self.inertia < self.least * (1 - self.least_fall):
            self.least, self.no_improvement = self.inertia, 0
        else:
            self.no_improvement += 1
        if self.max_no_improvement is not None and self.no_improvement >= self.max_no_improvement:
            return "the inertia did not fall any more"
        return None


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


class Sgd:
    """Each batch moves its nearest centres by a step size of 1 / (weight seen so far).

    So a centre is the mean of all rows that it was nearest to when they came by (Bottou & Bengio
    1995; Sculley 2010). Means of a batch are exact, so threads do not matter.
    """

    def __init__(
        self, state: State, counts: NDArray[np.float64], reassignment: Reassignment
    ) -> None:
        self._state, self.counts, self._reassignment = state, counts, reassignment
        self.frame = state.frame

    @staticmethod
    def of(
        engine: LocalEngine, state: State, counts: NDArray[np.float64], reassignment: Reassignment
    ) -> Sgd:
        """The implementation for these rows: scaled CSR centres (`ThinSgd`) or plain ones."""
        k, d = state.centres.shape
        if engine.sparse and 24 * k * d <= (engine.scratch_limit or COMFORTABLE):
            return ThinSgd(state, counts, reassignment)
        # partial_fit may go on with rows of the other layout.
        centres = like_rows(state.centres, sparse=engine.sparse, n_jobs=engine.n_jobs)
        return Sgd(replace(state, centres=centres), counts, reassignment)

    @property
    def state(self) -> State:
        return self._state

    def run(
        self,
        batches: Iterator[LocalEngine],
        steps: int,
        rng: np.random.RandomState,
        stopping: EarlyStopping,
        callbacks: Sequence[Callback],
        tasks: Tasks | None,
    ) -> list[Iteration]:
        history: list[Iteration] = []
        began = time.perf_counter()
        self.stopped = "max_iter reached"
        frame = self.frame
        for step in range(1, steps + 1):
            if tasks is not None:
                tasks.begin(frame, lambda: self.state.centres)
            batch = next(batches)
            inertia, shift2 = self.step(batch, rng)
            stop = stopping.reason(inertia, shift2)
            record = Iteration(
                run=0,
                iteration=step,
                inertia=unscaled(stopping.inertia, frame.cost_exponent),
                shift=unscaled(shift2, frame.exponent),
                changed=0,
                distances=batch.n * len(self.counts),
                skipped=0,
                algorithm="lloyd",
                seconds=time.perf_counter() - began,
            )
            history.append(record)
            stop_requested = any([is_true(callback(record)) for callback in callbacks])
            if tasks is not None and tasks.end(frame, lambda: self.state.centres):
                stop_requested = True
            if stop_requested:
                stop = stop or "a callback asked to"
            if stop:
                self.stopped = stop
                break
        batches.close()  # type: ignore[attr-defined]
        return history

    def step(self, batch: LocalEngine, rng: np.random.RandomState) -> tuple[float, float]:
        """Move the centres; returns inertia per weight before, and squared distances moved."""
        before, reassigning = self._state, self._reassignment.is_due(self.counts, batch)
        cost = before.cost(batch)
        means, weights = _batch_means(batch, len(self.counts))
        self.counts += weights
        pull = np.divide(weights, self.counts, out=np.zeros_like(weights), where=weights > 0)
        chosen, rows = self._reassignment.draw(self.counts, batch, rng) if reassigning else NONE
        if len(chosen):
            pull[chosen] = 1.0
            means = _replaced(means, chosen, batch.take(rows))
        self._state = before.pulled(means, pull)
        moved2 = _distance2(before.centres, self._state.centres, self.frame.exponent)
        return cost / _total(batch), moved2

    def outcome(self, engine: LocalEngine, history: list[Iteration], *, label: bool) -> Run:
        inertia, state = np.nan, self.state
        if label:
            inertia = unscaled(state.cost(engine), self.frame.cost_exponent)
        k = len(self.counts)
        return Run(
            centres=state.centres,
            labels=engine.final_labels() if label else np.arange(k, dtype=np.int32),
            inertia=inertia,
            history=history,
            stopped=self.stopped,
            distances=sum(record.distances for record in history) + label * engine.n * k,
            stages=STAGES,
        )


class ThinSgd(Sgd):
    """The same for sparse rows, at the cost of the features that a batch has, not of all.

    A centre is kept as the sum of the rows it stands for. What a batch has no entries for stays as
    it is, and gets smaller only by the weight that the sum is divided by. Sums are made in the
    order of the rows, so threads do not matter here either.
    """

    def __init__(
        self, state: State, counts: NDArray[np.float64], reassignment: Reassignment
    ) -> None:
        super().__init__(state, counts, reassignment)
        self._directed = state.lengths is not None
        self._weight = np.where(counts > 0, counts, 1.0)
        directions = like_rows(state.centres, sparse=False).T.astype(np.float64, order="C")
        means = directions if state.lengths is None else directions * state.lengths
        self._scale = math.ldexp(1.0, self.frame.exponent)
        self._sums = means * self._scale * self._weight  # feature by feature
        self._norms2 = np.einsum("fj,fj->j", self._sums, self._sums)
        # Directions of centres whose sums have none, as partial_fit may find them at its start.
        self._lost: dict[int, Double] = {}
        if state.lengths is not None:
            self._lost = {int(j): directions[:, j] for j in np.flatnonzero(state.lengths <= FAINT)}
        self._place = np.empty(len(means), dtype=np.int32)

    @property
    def state(self) -> State:
        centres = self._in_units(self._means(self._sums, slice(None)))
        lengths = np.sqrt(self._norms2) / self._weight if self._directed else None
        return State(self.frame, sp.csr_array(centres), lengths)

    def step(self, batch: LocalEngine, rng: np.random.RandomState) -> tuple[float, float]:
        reassigning = self._reassignment.is_due(self.counts, batch)
        features, few = self._thin(batch)
        block, k = few.whole(), len(self.counts)
        sums = self._sums[features]
        means = self._means(sums, features)
        norms2 = self._norms2 * self._inverses() ** 2
        labels = self._labels(few, means, norms2)
        counted = few.counted()
        weights = np.ones(few.n) if counted is None else counted
        lengths = np.diff(block.indptr)
        values, of_row = self._values(few, block, lengths), np.repeat(weights, lengths)
        cells = block.indices.astype(np.intp) * k + np.repeat(labels, lengths)
        at_centre = means.reshape(-1)[cells]
        # Not by BLAS: its threads may spin for longer than this takes.
        if self._directed:
            cost = _total(batch) - float(np.einsum("e,e,e->", of_row, values, at_centre))
        else:
            cost = float(np.einsum("e,e,e->", of_row, values, values - 2 * at_centre))
            cost += float(np.einsum("i,i->", weights, norms2[labels]))

        seen = np.bincount(labels, weights, k)
        cleared = (self.counts == 0) & (seen > 0)  # initial centres are forgotten
        self.counts += seen
        # Of no entries, bincount gives integers.
        after: Any = np.bincount(cells, of_row * values, means.size).astype(np.float64, copy=False)
        after = after.reshape(-1, k)
        chosen, rows = self._reassignment.draw(self.counts, batch, rng) if reassigning else NONE
        if len(chosen):
            # Counts are 0 if centres without any row are left over.
            weight = np.where(self.counts[chosen] > 0, self.counts[chosen], 1.0)
            after[:, chosen] = few.take(rows).toarray().T * self._scale * weight
            cleared[chosen] = True
        after += np.where(cleared, 0.0, sums) if cleared.any() else sums
        moved2 = self._put(features, sums, after, cleared)
        return max(0.0, cost) / _total(batch), moved2

    def _thin(self, batch: LocalEngine) -> tuple[NDArray[np.intp], LocalEngine]:
        """The features that the batch has, and its rows in those alone."""
        block = sp.csr_array(batch.whole())
        block.has_canonical_format = False  # the flag may be out of date
        if not block.has_canonical_format:
            block = block.copy()
            block.sum_duplicates()
        present = np.zeros(batch.d, dtype=bool)
        present[block.indices] = True
        present[0] = True  # there must be one
        features = np.flatnonzero(present)
        self._place[features] = np.arange(len(features), dtype=np.int32)
        shape = (batch.n, len(features))
        rows = sp.csr_array((block.data, self._place[block.indices], block.indptr), shape=shape)
        return features, batch.alone(rows, np.arange(batch.n))

    def _inverses(self) -> Double:
        """What makes centres of the sums."""
        if not self._directed:
            return 1 / self._weight
        lengths = np.sqrt(self._norms2)
        return np.where(lengths > 0, 1 / np.where(lengths > 0, lengths, 1.0), 0.0)

    def _means(self, sums: Double, features: Any) -> Double:
        """Centres, feature by feature, of which these are the sums."""
        means = sums * self._inverses()
        for j, direction in self._lost.items():
            means[:, j] = direction[features]
        return means

    def _in_units(self, means: Double) -> NDArray[Any]:
        """Centre by centre, in the units and the dtype of the data."""
        dtype = self._state.centres.dtype
        return (means if self._scale == 1 else means / self._scale).T.astype(dtype, order="C")

    def _labels(self, few: LocalEngine, means: Double, norms2: Double) -> NDArray[np.int32]:
        frame, n_jobs, centres = self.frame, few.n_jobs, self._in_units(means)
        centroids = _core.Centroids.make(
            centres, None, frame.exponent, None, n_jobs, frame.metric, frame.packing
        )
        if not self._directed:
            centroids.set_norms(norms2, len(self._place) + 1)  # of all features
        few.start("lloyd", len(centres))
        few.assign(centroids)
        return few.labels()

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
        found = np.sqrt(norms2) > FAINT * self._weight
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


def _total(batch: LocalEngine) -> float:
    """The weight of all rows."""
    return float(batch.n if batch.weights is None else batch.weights.sum())


def usable_rows(counted: Double | None, begin: int, end: int) -> NDArray[np.intp]:
    """Rows from `begin` to `end` that count for centres."""
    if counted is None:
        return np.arange(begin, end)
    return begin + np.flatnonzero(counted[begin:end])


def drawn_batches(
    engine: LocalEngine, size: int, rng: np.random.RandomState
) -> Iterator[LocalEngine]:
    """Endless batches of rows of a matrix, drawn by weight with replacement, as scikit-learn does.

    A row of a batch counts once, since its weight has made its draw more or less likely.
    """
    X, cumulated = engine.whole(), _cumulated_probabilities(engine)
    even = engine.counted() is None
    while True:
        ids = _positions(cumulated, rng.random_sample(size), even=even)
        yield engine.batch(X[ids], ids, weighted=False)


def _positions(cumulated: Double, places: Double, *, even: bool) -> NDArray[np.intp]:
    """The rows in which these places lie: what rng.choice finds by a search.

    Even probabilities need none: the row follows from the place, up to the rounding of the sums.
    """
    if not even:
        return cumulated.searchsorted(places, side="right")
    ids = np.minimum((places * len(cumulated)).astype(np.intp), len(cumulated) - 1)
    while True:
        after, before = places >= cumulated[ids], (ids > 0) & (places < cumulated[ids - 1])
        if not (after | before).any():
            return ids
        ids += after.astype(np.intp) - before


def _cumulated_probabilities(engine: LocalEngine) -> Double:
    """What rng.choice makes of scikit-learn's probabilities, which it computes in X's dtype."""
    counted = engine.counted()
    if counted is None:
        weights = np.ones(engine.n, dtype=engine.dtype)
    else:  # scaled by a power of 2, so that float32 can hold them
        exponent = math.frexp(float(counted.max()))[1]
        weights = np.ldexp(counted, -exponent).astype(engine.dtype)
    cumulated: Double = (weights / weights.sum()).astype(np.float64).cumsum()
    cumulated /= cumulated[-1]
    return cumulated


def block_batches(
    engine: LocalEngine, cuts: list[int], rng: np.random.RandomState
) -> Iterator[LocalEngine]:
    """Endless batches, block by block: all rows in each pass, in random order within a block.

    The batches of a block have one size: a short one at its end would say little about the inertia
    and count as much as others.
    """
    counted = engine.counted()
    while True:
        for block in engine.walk(lambda block: cuts[block.number] > 0):
            order = rng.permutation(usable_rows(counted, block.begin, block.end))
            for some in np.array_split(order, cuts[block.number]):
                ids = np.sort(some)
                yield engine.batch(block.matrix[ids - block.begin], ids)


def sample_ids(
    engine: LocalEngine, size: int, k: int, rng: np.random.RandomState
) -> NDArray[np.intp]:
    """Rows drawn with replacement, as scikit-learn draws them; at least k of them count."""
    ids, counted = rng.randint(0, engine.n, size), engine.counted()
    if counted is not None and np.count_nonzero(counted[ids]) < k:
        usable = usable_rows(counted, 0, engine.n)
        ids = usable[rng.randint(0, len(usable), size)]
    return ids


def sample_of(engine: LocalEngine, ids: NDArray[np.intp]) -> LocalEngine:
    """These rows in this order, copies included."""
    order = np.argsort(ids, kind="stable")
    return engine.alone(engine.pick(ids[order])[np.argsort(order)], ids)


def _batch_means(batch: LocalEngine, k: int) -> tuple[Matrix, NDArray[np.float64]]:
    """Exact means and weights of the clusters in a batch."""
    sums = sums_of(batch, k)
    batch.sum_up(sums, batch.n)
    if batch.sparse:
        return from_core(sums.sparse_average(False), (k, batch.d)), sums.weights
    means = np.empty((k, batch.d))
    sums.average(means)
    return means, sums.weights


def _pulled(centres: Matrix, means: Matrix, pull: NDArray[Any]) -> Matrix:
    """Centres moved towards the means by a step size per centre; 1 reaches the mean."""
    if not isinstance(centres, np.ndarray):
        kept = sp.diags_array(1 - pull) @ centres.astype(np.float64)
        moved = sp.csr_array(kept + sp.diags_array(pull) @ means)
        moved.eliminate_zeros()
        moved.sort_indices()
        return moved.astype(centres.dtype)
    share = pull[:, np.newaxis]
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
