"""MiniBatchKMeans: a few rows at a time, by gradient steps or by statistics that are exchanged."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from exactmeans import _algorithms, _core, _metrics
from exactmeans import _validation as check
from exactmeans._centres import for_users, from_core, lengths_of, normalise
from exactmeans._fit import Run, first_centroids, is_true, settled_run
from exactmeans._problem import FAINT, Frame, Problem, analyse, sums_of, unscaled
from exactmeans._update import lend_rows
from exactmeans.callbacks import Callback, Iteration, Progress, Tasks
from exactmeans.engines.engine import Engine
from exactmeans.engines.local import LocalEngine
from exactmeans.kmeans import KMeans, restored_on_error
from exactmeans.seeding import check_options

__all__ = ["MiniBatchKMeans"]

_METHODS = ("sgd", "memoized")
_METRICS = ("euclidean", "cosine")
_STAGES = [(1, "lloyd", "batch by batch")]  # first iteration, algorithm, why


class MiniBatchKMeans(KMeans):
    """K-means on a few rows at a time, with scikit-learn's parameters.

    `method='sgd'` draws batches and moves each centre towards the rows it is nearest to, the less
    the more rows it has seen: a good clustering after a fraction of a pass. `method='memoized'`
    visits the batches in turn and exchanges what each contributes to the centres' exact sums. It
    refreshes the centres after every batch, never raises the inertia, and ends where Lloyd's
    algorithm would not move either; with one batch it is Lloyd's algorithm.

    Parameters
    ----------
    n_clusters : int, default=8
    init : as for `KMeans`, default='k-means++'
        For 'sgd', chosen from `init_size` random rows.
    max_iter : int, default=100
        The most passes over the data.
    batch_size : int, default=1024
        Rows per batch.
    verbose : int, default=0
    compute_labels : bool, default=True
        Label all rows in the end; otherwise there are no `labels_` and `inertia_`.
    random_state : int, RandomState instance or None, default=None
    tol : float, default=0.0
        Stop when the squared distances that the centres moved, smoothed over batches or summed up
        over a pass, are at most `tol` times the mean variance of the features. 0 is off.
    max_no_improvement : int or None, default=10
        'sgd' stops when this many batches in a row did not lower the smoothed inertia. None: never.
    init_size : int or None, default=None
        Random rows that 'sgd' chooses initial centres from; None means three batches, or three
        times `n_clusters` if that is more. 'memoized' uses all rows.
    n_init : 'auto' or int, default='auto'
        Initial centres to try on `init_size` rows, of which the best are used; 'auto' means 3 for
        random and callable `init`, else 1.
    reassignment_ratio : float, default=0.01
        Centres of 'sgd' that have seen less than this share of the rows that the largest has seen
        are put on rows of the batch from time to time.
    method : {'sgd', 'memoized'}, default='sgd'
    metric : {'euclidean', 'cosine'}, default='euclidean'
        With 'cosine', a centre is the direction of what it would be for rows of length 1.
    n_jobs, memory_limit, callbacks, sparse_centers, zero_rows : as for `KMeans`
    init_options, dtype : as for `KMeans`

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (n_clusters, n_features)
    labels_ : ndarray of shape (n_samples,)
    inertia_ : float
    n_iter_ : int
        Passes over the data.
    n_steps_ : int
        Batches.
    history_ : list of Iteration
        One record per batch ('sgd': smoothed inertia, no count of changed labels) or per pass.

    Examples
    --------
    >>> import numpy as np
    >>> from exactmeans import MiniBatchKMeans
    >>> X = np.array([[1., 2], [1, 4], [1, 0], [10, 2], [10, 4], [10, 0]])
    >>> model = MiniBatchKMeans(n_clusters=2, random_state=0, method="memoized", batch_size=2)
    >>> model.fit(X).cluster_centers_
    array([[10.,  2.],
           [ 1.,  2.]])
    """

    n_steps_: int

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        init: str | Callable[..., Any] | Any = "k-means++",
        max_iter: int = 100,
        batch_size: int = 1024,
        verbose: int = 0,
        compute_labels: bool = True,
        random_state: Any = None,
        tol: float = 0.0,
        max_no_improvement: int | None = 10,
        init_size: int | None = None,
        n_init: str | int = "auto",
        reassignment_ratio: float = 0.01,
        method: str = "sgd",
        metric: str = "euclidean",
        n_jobs: int | None = None,
        memory_limit: int | float | str | None = None,
        callbacks: Callback | Sequence[Callback] | None = None,
        sparse_centers: bool | str = "auto",
        zero_rows: str = "error",
        init_options: Mapping[str, Any] | None = None,
        dtype: Any = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.init = init
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.verbose = verbose
        self.compute_labels = compute_labels
        self.random_state = random_state
        self.tol = tol
        self.max_no_improvement = max_no_improvement
        self.init_size = init_size
        self.n_init = n_init
        self.reassignment_ratio = reassignment_ratio
        self.method = method
        self.metric = metric
        self.n_jobs = n_jobs
        self.memory_limit = memory_limit
        self.callbacks = callbacks
        self.sparse_centers = sparse_centers
        self.zero_rows = zero_rows
        self.init_options = init_options
        self.dtype = dtype

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> MiniBatchKMeans:
        """One step with the rows of X, whatever `method` is: they are not seen again.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            The first time, also what initial centres are chosen from.
        y : Ignored
        sample_weight : array-like of shape (n_samples,), default=None

        Returns
        -------
        self
        """
        with restored_on_error(self):
            self._partial_fit(X, sample_weight)
        return self

    # -- parts of fit --------------------------------------------------------------------------

    def _fit(self, X: Any, y: Any, sample_weight: Any, progress: Progress) -> None:
        k = self._check_parameters()
        tol = check.check_real("tol", self.tol, 0)
        max_iter = check.check_int("max_iter", self.max_iter, 1)
        callbacks = [*progress.callbacks, *self._callbacks()]
        dtype = check.check_dtype(self.dtype)
        engine = self._whole_engine(
            check.as_blocks(self, X, reset=True, dtype=dtype), k, sample_weight
        )
        cuts = self._cuts(engine)
        batches = sum(cuts)
        progress.rows = engine.n if self.method == "memoized" else engine.n // batches
        most = max_iter if self.method == "memoized" else max_iter * batches
        progress.most, progress.relabels = most, self.method == "memoized"
        tasks = Tasks.opened(self, most, X, y, sample_weight)
        init, n_init = self._init(k, engine)
        options = check_options(self.init_options, init)
        rng = check_random_state(self.random_state)

        if self.method == "memoized":
            problem = analyse(engine, tol)
            centres = self._initial_centres(init, options, problem, X, k, rng)
            outcome, steps = memoized(problem, centres, self.batch_size, max_iter, callbacks, tasks)
            frame, counts = problem.frame, _weights_of(outcome.labels, engine.weights, k)
            lengths = _mean_lengths(engine, outcome, counts)
        else:
            start = self._start(engine, init, options, X, k, n_init, rng)
            tolerance = analyse(engine, tol).tolerance if tol > 0 else 0.0
            sgd = Sgd(start, np.zeros(k), float(self.reassignment_ratio))
            history = sgd.run(
                _batches(engine, cuts, rng),
                most,
                rng,
                Patience(min(1.0, 2.0 / batches), tolerance, self.max_no_improvement),
                callbacks,
                tasks,
            )
            frame, counts, steps = sgd.state.frame, sgd.counts, len(history)
            lengths = sgd.state.lengths
            outcome = sgd.outcome(engine, history, label=self.compute_labels)
        size, width = engine.dtype.itemsize, engine.nonzeros / engine.n
        work = _algorithms.Workload(engine.n, engine.d, k, engine.sparse, size, width)
        choice = _algorithms.Choice("lloyd", "batch by batch", work.bytes_needed("lloyd"))
        self._keep(outcome, frame, choice, engine)
        self._counts, self._lengths = counts, lengths
        self._random_state = rng
        self.n_steps_ = steps
        self.n_iter_ = len(outcome.history) if self.method == "memoized" else -(-steps // batches)
        if not self.compute_labels:
            del self.labels_, self.inertia_
        if tasks is not None:
            tasks.close()

    def _check_parameters(self) -> int:
        check.check_choice("method", self.method, _METHODS)
        check.check_int("batch_size", self.batch_size, 1)
        check.check_real("reassignment_ratio", self.reassignment_ratio, 0)
        if self.max_no_improvement is not None:
            check.check_int("max_no_improvement", self.max_no_improvement, 0)
        if self.init_size is not None:
            check.check_int("init_size", self.init_size, 1)
        check.check_choice("metric", self.metric, _METRICS)
        return check.check_int("n_clusters", self.n_clusters, 1)

    def _whole_engine(self, blocks: Any, k: int, sample_weight: Any) -> LocalEngine:
        n = check.count_rows(blocks)
        if n < k:
            raise ValueError(f"n_samples={n} should be >= n_clusters={k}.")
        weights = check.check_weights(sample_weight, n)
        n_jobs = check.check_n_jobs(self.n_jobs)
        engine = LocalEngine(blocks, weights, n_jobs, self._metric(), self.zero_rows)
        engine.examine()
        limit = check.check_memory_limit(self.memory_limit) or check.memory_of_machine() // 4
        engine.keep(limit * 3 // 4 - engine.reading_bytes - 60 * n)
        return engine

    def _init(self, k: int, engine: Engine) -> tuple[Any, int]:
        init, n_init = super()._init(k, engine)
        return init, 3 if isinstance(self.n_init, str) and n_init == 10 else n_init

    def _start(
        self, engine: LocalEngine, init: Any, options: Any, X: Any, k: int, n_init: int, rng: Any
    ) -> State:
        """The best of several initial centres, as judged by a sample of the rows."""
        size = self.init_size or max(3 * self.batch_size, 3 * k)
        sample = _sample(engine, min(engine.n, max(size, k)), rng)
        largest = engine.survey(weighted=False).largest
        exponent = _core.safe_exponent(largest, engine.dtype == np.float32)
        best: State | None = None
        least = np.inf
        problem = analyse(sample, 0.0)
        whole = analyse(engine, 0.0) if callable(init) else problem
        for _ in range(n_init):
            centres = self._initial_centres(init, options, whole, X, k, rng)
            state = State.at(problem.frame.scaled(exponent), centres)
            inertia = state.cost(sample)
            if best is None or inertia < least:
                best, least = state, inertia
        assert best is not None
        return best

    def _cuts(self, engine: LocalEngine) -> list[int]:
        """How many batches each block is cut into."""
        counted = engine.counted()
        return [-(-len(_usable(counted, *span)) // self.batch_size) for span in engine.spans]

    def _partial_fit(self, X: Any, sample_weight: Any) -> None:
        k = self._check_parameters()
        first = not hasattr(self, "cluster_centers_")
        if first:
            dtype = check.check_dtype(self.dtype)
            blocks = check.as_blocks(self, X, reset=True, dtype=dtype)
            engine = self._whole_engine(blocks, k, sample_weight)
            init, n_init = self._init(k, engine)
            options = check_options(self.init_options, init)
            self._random_state = check_random_state(self.random_state)
            state = self._start(engine, init, options, X, k, n_init, self._random_state)
            counts, self.n_steps_ = np.zeros(k), 0
        else:
            engine = self._engine(X, sample_weight)
            engine.examine()
            state = State(self._frame, self._centres(), self._lengths)
            counts = self._counts.copy()
        sgd = Sgd(state, counts, float(self.reassignment_ratio))
        sgd.since = getattr(self, "_since", 0)
        sgd.step(engine, self._random_state)
        self.cluster_centers_ = for_users(sgd.state.centres, self.sparse_centers)
        self._frame, self._counts, self._since = state.frame, sgd.counts, sgd.since
        self._lengths = sgd.state.lengths
        self._n_features_out = k
        self.n_steps_ += 1
        if self.compute_labels:
            inertia = sgd.state.cost(engine)
            self.labels_ = engine.labels()
            self.inertia_ = unscaled(inertia, state.frame.cost_exponent)


# Gradient steps -----------------------------------------------------------------------------------


@dataclass
class State:
    """Centres, and how rows are compared with them.

    Where only directions count, a centre is a unit vector and stands for a mean of such, which is
    shorter: `lengths` are those of the means.
    """

    frame: Frame
    centres: check.Matrix
    lengths: check.Double | None

    @staticmethod
    def at(frame: Frame, centres: check.Matrix) -> State:
        """Initial centres."""
        directed = _metrics.METRICS[frame.metric].directed
        return State(frame, centres, np.ones(centres.shape[0]) if directed else None)

    def cost(self, engine: LocalEngine) -> float:
        """Inertia of these rows, on the frame's scale; labels them."""
        engine.start("lloyd", self.centres.shape[0])
        centroids = self.frame.centroids(self.centres, engine)
        return engine.cost(centroids, self.centres, self.frame.cost_exponent)[1]

    def pulled(self, means: check.Matrix, pull: NDArray[Any]) -> State:
        """Centres on their way to the means: all the way where pull is 1."""
        if self.lengths is None:
            return replace(self, centres=_pulled(self.centres, means, pull))
        before = _scaled(self.centres.astype(np.float64), self.lengths)
        after = _pulled(before, means, pull)
        lengths = lengths_of(after)
        lost = np.flatnonzero(lengths <= FAINT)  # means without a direction: centres stay
        if len(lost):
            after = _replaced(after, lost, self.centres[lost])
        normalise(after)
        return State(self.frame, after.astype(self.centres.dtype), lengths)


@dataclass
class Patience:
    """When to stop: smoothed inertia that does not fall, or centres that hardly move."""

    smooth: float  # how much the last batch counts
    tolerance: float
    most: int | None
    inertia: float = np.nan
    shift2: float = np.nan
    least: float = np.inf
    waited: int = 0

    def stop(self, inertia: float, shift2: float) -> str | None:
        first = np.isnan(self.inertia)
        keep = 0.0 if first else 1 - self.smooth
        self.inertia = inertia if first else keep * self.inertia + self.smooth * inertia
        self.shift2 = shift2 if first else keep * self.shift2 + self.smooth * shift2
        if self.tolerance > 0 and self.shift2 <= self.tolerance:
            return "the centres moved less than tol"
        self.waited = 0 if self.inertia < self.least else self.waited + 1
        self.least = min(self.least, self.inertia)
        if self.most is not None and self.waited >= self.most:
            return "the inertia did not fall any more"
        return None


@dataclass
class Sgd:
    """Each batch pulls the centres it is nearest to, by 1 / (weight seen so far).

    So a centre is the mean of all rows that it was nearest to when they came by (Bottou & Bengio
    1995; Sculley 2010). Means of a batch are exact, so threads do not matter.
    """

    state: State
    counts: NDArray[np.float64]
    ratio: float
    since: int = 0  # rows since starving centres were looked for

    def run(
        self,
        batches: Iterator[LocalEngine],
        steps: int,
        rng: np.random.RandomState,
        patience: Patience,
        callbacks: Sequence[Callback],
        tasks: Tasks | None,
    ) -> list[Iteration]:
        history: list[Iteration] = []
        began = time.perf_counter()
        self.stopped = "max_iter reached"
        frame = self.state.frame
        for step in range(1, steps + 1):
            if tasks is not None:
                tasks.begin(frame, lambda: self.state.centres)
            batch = next(batches)
            inertia, shift2 = self.step(batch, rng)
            stop = patience.stop(inertia, shift2)
            record = Iteration(
                run=0,
                iteration=step,
                inertia=unscaled(patience.inertia, frame.cost_exponent),
                shift=unscaled(shift2, frame.exponent),
                changed=0,
                distances=batch.n * len(self.counts),
                skipped=0,
                algorithm="lloyd",
                seconds=time.perf_counter() - began,
            )
            history.append(record)
            asked_to_stop = any([is_true(callback(record)) for callback in callbacks])
            if tasks is not None and tasks.end(frame, lambda: self.state.centres):
                asked_to_stop = True
            if asked_to_stop:
                stop = stop or "a callback asked to"
            if stop:
                self.stopped = stop
                break
        batches.close()  # type: ignore[attr-defined]
        return history

    def step(self, batch: LocalEngine, rng: np.random.RandomState) -> tuple[float, float]:
        """Move the centres; returns inertia per weight before, and squared distances moved."""
        cost = self.state.cost(batch)
        means, weights = _batch_means(batch, len(self.counts))
        self.counts += weights
        pull = np.divide(weights, self.counts, out=np.zeros_like(weights), where=weights > 0)
        self.since += batch.n
        if self.ratio > 0 and (self.since >= 10 * len(self.counts) or not self.counts.all()):
            self.since = 0
            means = self._feed(batch, means, pull, rng)
        before = self.state
        self.state = before.pulled(means, pull)
        total = batch.n if batch.weights is None else batch.weights.sum()
        exponent = before.frame.exponent
        return cost / total, _distance2(before.centres, self.state.centres, exponent)

    def _feed(
        self, batch: LocalEngine, means: check.Matrix, pull: NDArray[Any], rng: Any
    ) -> check.Matrix:
        """Put centres that few rows come to on rows of the batch; at most half a batch of them."""
        starving = np.flatnonzero(self.counts < self.ratio * self.counts.max())
        usable = _usable(batch.counted(), 0, batch.n)
        starving = starving[np.argsort(self.counts[starving], kind="stable")][: len(usable) // 2]
        if not len(starving):
            return means
        rows = np.sort(rng.choice(usable, len(starving), replace=False))
        fed = np.setdiff1d(np.arange(len(self.counts)), starving)
        self.counts[starving] = self.counts[fed].min() if len(fed) else 1.0
        pull[starving] = 1.0
        return _replaced(means, np.sort(starving), batch.take(rows))

    def outcome(self, engine: LocalEngine, history: list[Iteration], *, label: bool) -> Run:
        inertia = np.nan
        if label:
            inertia = unscaled(self.state.cost(engine), self.state.frame.cost_exponent)
        k = len(self.counts)
        return Run(
            centres=self.state.centres,
            labels=engine.labels() if label else np.arange(k, dtype=np.int32),
            inertia=inertia,
            history=history,
            stopped=self.stopped,
            distances=sum(record.distances for record in history) + label * engine.n * k,
            stages=_STAGES,
        )


def _usable(counted: check.Double | None, begin: int, end: int) -> NDArray[np.intp]:
    """Rows from `begin` to `end` that count for centres."""
    if counted is None:
        return np.arange(begin, end)
    return begin + np.flatnonzero(counted[begin:end])


def _batches(
    engine: LocalEngine, cuts: list[int], rng: np.random.RandomState
) -> Iterator[LocalEngine]:
    """Batches for ever: all rows in each pass, block by block, in random order within one.

    The batches of a block are of one size, for a short one at the end would tell little of the
    inertia and count as much as others.
    """
    counted = engine.counted()
    while True:
        for part in engine.walk(lambda part: cuts[part.number] > 0):
            order = rng.permutation(_usable(counted, part.begin, part.end))
            for some in np.array_split(order, cuts[part.number]):
                ids = np.sort(some)
                yield engine.alone(part.block[ids - part.begin], ids)


def _sample(engine: LocalEngine, size: int, rng: np.random.RandomState) -> LocalEngine:
    """Random rows, of those that count if there are enough."""
    usable = _usable(engine.counted(), 0, engine.n)
    ids = np.sort(rng.choice(usable, min(size, len(usable)), replace=False))
    if len(ids) < size:
        rest = np.setdiff1d(np.arange(engine.n), usable)
        ids = np.sort(np.concatenate([ids, rest[: size - len(ids)]]))
    return engine.alone(engine.pick(ids), ids)


def _weights_of(
    labels: NDArray[np.int32], weights: check.Double | None, k: int
) -> NDArray[np.float64]:
    return np.asarray(np.bincount(labels, weights, k), dtype=np.float64)


def _mean_lengths(engine: LocalEngine, outcome: Run, counts: check.Double) -> check.Double | None:
    """Lengths of the means of unit rows whose directions the centres are: 1 less the mean cost."""
    if not engine.metric.directed:
        return None
    costs = engine.own_distances(outcome.centres, 0)
    if engine.weights is not None:
        costs *= engine.weights
    total = np.bincount(outcome.labels, costs, len(counts))
    return 1 - np.divide(total, counts, out=np.ones_like(counts), where=counts > 0)


def _batch_means(batch: LocalEngine, k: int) -> tuple[check.Matrix, NDArray[np.float64]]:
    """Exact means and weights of the clusters in a batch."""
    sums = sums_of(batch, k)
    batch.sum_up(sums, batch.n)
    if batch.sparse:
        return from_core(sums.sparse_average(False), (k, batch.d)), sums.weights
    means = np.empty((k, batch.d))
    sums.average(means)
    return means, sums.weights


def _pulled(centres: check.Matrix, means: check.Matrix, pull: NDArray[Any]) -> check.Matrix:
    """Centres on their way to the means: all the way where pull is 1."""
    if not isinstance(centres, np.ndarray):
        kept = sp.diags_array(1 - pull) @ centres.astype(np.float64)
        moved = sp.csr_array(kept + sp.diags_array(pull) @ means)
        moved.eliminate_zeros()
        moved.sort_indices()
        return moved.astype(centres.dtype)
    share = pull[:, np.newaxis]
    return np.where(share == 1, means, centres + share * (means - centres)).astype(centres.dtype)


def _scaled(vectors: check.Matrix, lengths: check.Double) -> check.Matrix:
    if isinstance(vectors, np.ndarray):
        return vectors * lengths[:, np.newaxis]
    return sp.csr_array(sp.diags_array(lengths) @ vectors)


def _replaced(means: check.Matrix, which: NDArray[np.intp], rows: check.Matrix) -> check.Matrix:
    """Means with some of them replaced."""
    if isinstance(means, np.ndarray):
        means[which] = rows
        return means
    keep = np.ones(means.shape[0])
    keep[which] = 0
    shape = (means.shape[0], len(which))
    place = sp.csr_array((np.ones(len(which)), (which, np.arange(len(which)))), shape=shape)
    return sp.csr_array(sp.diags_array(keep) @ means + place @ rows.astype(np.float64))


def _distance2(a: check.Matrix, b: check.Matrix, exponent: int) -> float:
    step = (b - a).astype(np.float64)
    values = step.ravel() if isinstance(step, np.ndarray) else step.data
    return float(np.square(np.ldexp(values, exponent)).sum())


# Memoized -----------------------------------------------------------------------------------------


def memoized(
    problem: Problem,
    centres: check.Matrix,
    batch_size: int,
    max_iter: int,
    callbacks: Sequence[Callback],
    tasks: Tasks | None,
) -> tuple[Run, int]:
    """Batch after batch: take its old share out of the sums, put its new one in, move the centres.

    M. C. Hughes & E. B. Sudderth, Memoized online variational inference, NIPS 2013, for k-means.
    The first pass labels all rows at the initial centres, so that sums are those of all rows.
    """
    engine, began = problem.engine, time.perf_counter()
    assert isinstance(engine, LocalEngine)
    k, d = centres.shape
    centroids = first_centroids(problem, centres)
    engine.start("lloyd", k)
    sums, advance = problem.sums(k), problem.advance(k)
    history: list[Iteration] = []
    stopped, steps = "max_iter reached", 0

    def now() -> check.Matrix:
        return from_core(centroids.centres, (k, d))

    for iteration in range(1, max_iter + 1):
        if tasks is not None:
            tasks.begin(problem.frame, now)
        changed, shift2 = 0, 0.0
        for own, last in engine.exchange(centroids, sums, batch_size):
            changed += own
            steps += 1
            if own and not last and iteration > 1:
                shift2 += advance.run(sums, centroids, engine.n_jobs).shift2
        lent = []
        if sums.any_empty:
            lent = lend_rows(problem, sums, now())
        movement = advance.run(sums, centroids, engine.n_jobs)
        for row, owner, borrower in lent:
            engine.move_row(sums, row, borrower, owner)
        shift2 += movement.shift2
        advance.observe(sums, centroids)
        record = Iteration(
            run=0,
            iteration=iteration,
            inertia=problem.inertia(advance.explained),
            shift=problem.unscaled(shift2),
            changed=changed,
            distances=engine.n * k,
            skipped=0,
            algorithm="lloyd",
            seconds=time.perf_counter() - began,
        )
        history.append(record)
        asked_to_stop = any([is_true(callback(record)) for callback in callbacks])
        if tasks is not None and tasks.end(problem.frame, now):
            asked_to_stop = True
        if changed == 0 and not lent:
            stopped = "no label changed"
            break
        if shift2 <= problem.tolerance:
            stopped = "the centres moved less than tol"
            break
        if asked_to_stop:
            stopped = "a callback asked to"
            break
    again = changed > 0 or movement.moved > 0 or shift2 > 0
    return settled_run(problem, centroids, k, history, stopped, _STAGES, again=again), steps
