"""MiniBatchKMeans: a few rows at a time, by gradient steps or by statistics that are exchanged."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from exactmeans import _core
from exactmeans.callbacks import Callback, Iteration, Progress, Tasks
from exactmeans.data.arrays import Double, Matrix
from exactmeans.data.centres import for_users, from_core
from exactmeans.data.stream import as_blocks, count_rows, is_source
from exactmeans.data.weights import check_weights, weights_of
from exactmeans.engine.local.engine import LocalEngine
from exactmeans.engine.protocol import Engine
from exactmeans.fit.cost_model import Workload
from exactmeans.fit.loop import Run, finished_run, first_centroids, is_true
from exactmeans.fit.policy import Choice, refuse_over_limit
from exactmeans.fit.problem import Problem, analyse, unscaled
from exactmeans.fit.sgd import (
    FALL,
    STAGES,
    EarlyStopping,
    Reassignment,
    Sgd,
    State,
    block_batches,
    drawn_batches,
    sample_ids,
    sample_of,
    usable_rows,
)
from exactmeans.fit.update import relocate_rows
from exactmeans.io.model_file import loadable
from exactmeans.kmeans import KMeans, RestoredOnError
from exactmeans.memory import check_memory_limit, memory_of_machine
from exactmeans.metrics import ZeroRows
from exactmeans.parameters import (
    check_choice,
    check_dtype,
    check_int,
    check_n_jobs,
    check_random_state,
    check_real,
)
from exactmeans.seeding.init import InitName, check_options

__all__ = ["MiniBatchKMeans"]

_METHODS = ("sgd", "memoized")
_METRICS = ("euclidean", "cosine")


@loadable
class MiniBatchKMeans(KMeans):
    """K-means on a few rows at a time, with scikit-learn's parameters.

    `method='sgd'` draws batches and moves each centre towards the rows it is nearest to, the less
    the more rows it has seen: a good clustering after a fraction of a pass. It draws the rows that
    scikit-learn draws for the same `random_state`, and stops when scikit-learn does.
    `method='memoized'`
    visits the batches in turn and exchanges what each contributes to the centres' exact sums. It
    refreshes the centres after every batch, never raises the inertia, and ends where Lloyd's
    algorithm would not move either. Where one batch holds all rows, both are Lloyd's algorithm.

    Parameters
    ----------
    n_clusters : int, default=8
    init : as for `KMeans`, default='k-means++'
        For 'sgd', chosen from `init_size` random rows; a callable gets these rows.
    max_iter : int, default=100
        The most passes over the data.
    batch_size : int, default=1024
        Rows per batch.
    verbose : int, default=0
    compute_labels : bool, default=True
        Label all rows in the end; otherwise there are no `labels_`, and the `inertia_` of 'sgd' is
        an estimate from the last batches.
    random_state : int, RandomState instance or None, default=None
    tol : float, default=0.0
        Stop when the squared distances that the centres moved, in a batch of 'sgd' or summed over a
        pass, are at most `tol` times the mean variance of the features. 0 is off.
    max_no_improvement : int or None, default=10
        'sgd' stops when this many batches in a row did not lower the smoothed inertia. None: never.
    init_size : int or None, default=None
        Random rows that 'sgd' chooses initial centres from; None means three batches. Three times
        `n_clusters` where that is fewer than `n_clusters`. 'memoized' uses all rows.
    n_init : 'auto' or int, default='auto'
        Initial centres to try on `init_size` rows, of which the best are used; 'auto' means 3 for
        random and callable `init`, else 1. `partial_fit` tries 1.
    reassignment_ratio : float, default=0.01
        Centres of 'sgd' that have seen less than this share of the rows that the largest has seen
        are put on random rows of the batch, every 10 * `n_clusters` rows.
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
        Passes over the data, the last of which may be incomplete.
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

    _saved_as = "MiniBatchKMeans"  # the class that exactmeans.load makes

    n_steps_: int

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        init: InitName | Callable[..., Any] | Any = "k-means++",
        max_iter: int = 100,
        batch_size: int = 1024,
        verbose: int = 0,
        compute_labels: bool = True,
        random_state: Any = None,
        tol: float = 0.0,
        max_no_improvement: int | None = 10,
        init_size: int | None = None,
        n_init: Literal["auto"] | int = "auto",
        reassignment_ratio: float = 0.01,
        method: Literal["sgd", "memoized"] = "sgd",
        metric: Literal["euclidean", "cosine"] = "euclidean",
        n_jobs: int | None = None,
        memory_limit: int | float | str | None = None,
        callbacks: Callback | Sequence[Callback] | None = None,
        sparse_centers: Literal["auto"] | bool = "auto",
        zero_rows: ZeroRows = "error",
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

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
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
        with RestoredOnError(self):
            self._partial_fit(X, weights_of(X, sample_weight))
        return self

    # -- parts of fit --------------------------------------------------------------------------

    def _fit(self, X: Any, y: Any, sample_weight: Any, progress: Progress) -> None:
        k = self._check_parameters()
        tol = check_real("tol", self.tol, 0)
        max_iter = check_int("max_iter", self.max_iter, 1)
        callbacks = [*progress.callbacks, *self._callbacks()]
        dtype = check_dtype(self.dtype)
        sample_weight = weights_of(X, sample_weight)
        engine = self._whole_engine(as_blocks(self, X, reset=True, dtype=dtype), k, sample_weight)
        cuts = self._cuts(engine)
        batches = sum(cuts)
        exact = self.method == "memoized" or batches == 1  # a step that sees all goes all the way
        in_blocks, size = is_source(X), min(self.batch_size, engine.n)
        most = (
            max_iter if exact else max_iter * batches if in_blocks else max_iter * engine.n // size
        )
        progress.rows = engine.n if exact else engine.n // batches if in_blocks else size
        progress.most, progress.relabels = most, exact
        tasks = Tasks.opened(self, most, X, y, sample_weight)
        init, n_init = self._init(k, engine)
        options = check_options(self.init_options, init)
        rng = check_random_state(self.random_state)

        reassignment = Reassignment(float(self.reassignment_ratio), self.batch_size)
        if exact:
            problem = analyse(engine, tol)
            if self.method == "memoized":
                centres = self._initial_centres(init, options, problem, X, k, rng)
            else:
                centres = self._start(engine, init, options, X, k, n_init, rng).centres
            outcome, steps = memoized(problem, centres, self.batch_size, max_iter, callbacks, tasks)
            frame, counts = problem.frame, _by_label(outcome.labels, engine.weights, k)
            lengths = _mean_lengths(engine, outcome, counts)
        else:
            start = self._start(engine, init, options, X, k, n_init, rng)
            stopping = EarlyStopping(
                smoothing=min(1.0, 2.0 * size / (engine.n + 1)),
                tolerance=analyse(engine, tol).tolerance if tol > 0 else 0.0,
                max_no_improvement=self.max_no_improvement,
            )
            if in_blocks:
                stopping.least_fall = FALL * stopping.smoothing
                source = block_batches(engine, cuts, rng)
            else:
                source = drawn_batches(engine, size, rng)
            sgd = Sgd.of(engine, start, np.zeros(k), reassignment)
            history = sgd.run(source, most, rng, stopping, callbacks, tasks)
            frame, counts, steps = sgd.frame, sgd.counts, len(history)
            lengths = sgd.state.lengths
            outcome = sgd.outcome(engine, history, label=self.compute_labels)
            if not self.compute_labels:
                outcome.inertia = history[-1].inertia * engine.total_weight()
        width = engine.nonzeros / engine.n
        work = Workload(engine.n, engine.d, k, engine.sparse, engine.dtype.itemsize, width)
        choice = Choice("lloyd", "batch by batch", work.bytes_needed("lloyd"))
        self._keep(outcome, frame, choice, engine)
        self._counts, self._lengths, self._since = counts, lengths, reassignment.since
        self.__dict__.pop("_random_state", None)  # as in scikit-learn, partial_fit makes its own
        self.n_steps_ = steps
        if not exact:
            self.n_iter_ = -(-steps // batches) if in_blocks else -(-steps * size // engine.n)
        if not self.compute_labels:
            del self.labels_
        if tasks is not None:
            tasks.close()

    def _check_parameters(self) -> int:
        check_choice("method", self.method, _METHODS)
        check_int("batch_size", self.batch_size, 1)
        check_real("reassignment_ratio", self.reassignment_ratio, 0)
        if self.max_no_improvement is not None:
            check_int("max_no_improvement", self.max_no_improvement, 0)
        if self.init_size is not None:
            check_int("init_size", self.init_size, 1)
        check_choice("metric", self.metric, _METRICS)
        return check_int("n_clusters", self.n_clusters, 1)

    def _whole_engine(self, blocks: Any, k: int, sample_weight: Any) -> LocalEngine:
        n = count_rows(blocks)
        if n < k:
            raise ValueError(f"n_samples={n} should be >= n_clusters={k}.")
        weights = check_weights(sample_weight, n)
        n_jobs = check_n_jobs(self.n_jobs)
        metric, given = self._metric(), check_memory_limit(self.memory_limit)
        engine = LocalEngine(
            blocks,
            weights,
            n_jobs,
            metric,
            self.zero_rows,
            scratch_limit=None if given is None else given // 4,
            feature_names=getattr(self, "feature_names_in_", None),
        )
        engine.examine()
        if given is not None:
            self._refuse_fit_over_limit(engine, k, given)
        limit = given or memory_of_machine() // 4
        engine.keep(limit * 3 // 4 - engine.reading_bytes - 60 * n)
        return engine

    def _refuse_fit_over_limit(self, engine: LocalEngine, k: int, limit: int) -> None:
        size, width = engine.dtype.itemsize, engine.nonzeros / engine.n
        reading, metric = engine.reading_bytes, engine.metric.name
        work = Workload(engine.n, engine.d, k, engine.sparse, size, width, reading, metric)
        if self.method == "memoized" or engine.n <= self.batch_size:
            needed, instead = work.bytes_needed("lloyd"), ": method='sgd' keeps fewer"
        else:
            sample = self.init_size or max(3 * self.batch_size, 3 * k)
            needed, instead = work.bytes_of_batches(self.batch_size, sample), ""
        refuse_over_limit(f"method={self.method!r}", needed, work, limit, instead)

    def _init(self, k: int, engine: Engine) -> tuple[Any, int]:
        init, n_init = super()._init(k, engine)
        return init, 3 if isinstance(self.n_init, str) and n_init == 10 else n_init

    def _start(
        self, engine: LocalEngine, init: Any, options: Any, X: Any, k: int, n_init: int, rng: Any
    ) -> State:
        """The best of several initial centres, as judged by a sample of the rows."""
        size = self._sample_size(engine.n, k, stacklevel=5)
        ids = rng.randint(0, engine.n, size)  # even if not needed: later draws are scikit-learn's
        best = self._seeded(engine, init, options, X, k, size, rng)
        if n_init > 1:
            sample = sample_of(engine, ids)
            least = best.cost(sample)
            for _ in range(n_init - 1):
                state = self._seeded(engine, init, options, X, k, size, rng)
                inertia = state.cost(sample)
                if inertia < least:
                    best, least = state, inertia
        return best

    def _seeded(
        self, engine: LocalEngine, init: Any, options: Any, X: Any, k: int, size: int, rng: Any
    ) -> State:
        """Initial centres from `size` random rows, or from all rows if there are no more."""
        few = engine
        if size < engine.n:
            few = sample_of(engine, sample_ids(engine, size, k, rng))
        problem = analyse(few, 0.0)
        largest = engine.survey(weighted=False).largest
        exponent = _core.safe_exponent(largest, engine.dtype == np.float32)
        centres = self._initial_centres(init, options, problem, X, k, rng)
        return State.at(problem.frame.scaled(exponent), centres)

    def _sample_size(self, n: int, k: int, stacklevel: int) -> int:
        """How many rows initial centres are chosen from, by scikit-learn's rules."""
        size = 3 * min(self.batch_size, n) if self.init_size is None else self.init_size
        if size < k and self.init_size is not None:
            warnings.warn(
                f"init_size={size} should be larger than n_clusters={k}: three times n_clusters "
                "rows are used, or all if there are fewer.",
                RuntimeWarning,
                stacklevel=stacklevel,
            )
        return min(size if size >= k else 3 * k, n)

    def _cuts(self, engine: LocalEngine) -> list[int]:
        """How many batches each block is cut into."""
        counted = engine.counted()
        return [-(-len(usable_rows(counted, *span)) // self.batch_size) for span in engine.spans]

    def _partial_fit(self, X: Any, sample_weight: Any) -> None:
        k = self._check_parameters()
        first = not hasattr(self, "cluster_centers_")
        if not first and k != self._n_features_out:
            raise ValueError(
                f"n_clusters must stay {self._n_features_out}, since partial_fit goes on with the "
                f"centres there are, but it is {k}."
            )
        if first:
            dtype = check_dtype(self.dtype)
            blocks = as_blocks(self, X, reset=True, dtype=dtype)
            engine = self._whole_engine(blocks, k, sample_weight)
            init, _ = self._init(k, engine)  # one seeding, as in scikit-learn
            options = check_options(self.init_options, init)
            size = self._sample_size(engine.n, k, stacklevel=4)
            rng = self._random_state = check_random_state(self.random_state)
            state = self._seeded(engine, init, options, X, k, size, rng)
            counts, since, self.n_steps_ = np.zeros(k), 0, 0
        else:
            engine = self._engine(X, sample_weight)
            engine.examine(to_fit=False)  # rows without direction move nothing
            if not hasattr(self, "_random_state"):
                self._random_state = check_random_state(self.random_state)
            state = State(self._frame, self._centres(), self._lengths)
            counts, since = self._counts.copy(), self._since
        reassignment = Reassignment(float(self.reassignment_ratio), self.batch_size, since)
        sgd = Sgd.of(engine, state, counts, reassignment)
        sgd.step(engine, self._random_state)
        state = sgd.state
        self.cluster_centers_ = for_users(state.centres, self.sparse_centers)
        self._frame, self._counts, self._since = state.frame, sgd.counts, reassignment.since
        self._lengths = state.lengths
        self._n_features_out = k
        self.n_steps_ += 1
        if self.compute_labels:
            inertia = state.cost(engine)
            self.labels_ = engine.final_labels()
            self.inertia_ = unscaled(inertia, state.frame.cost_exponent)


# Memoized -----------------------------------------------------------------------------------------


def memoized(
    problem: Problem,
    centres: Matrix,
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

    def now() -> Matrix:
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
        relocated = []
        if sums.any_empty:
            relocated = relocate_rows(problem, sums, now())
        movement = advance.run(sums, centroids, engine.n_jobs)
        for row, source, empty in relocated:
            engine.move_row(sums, row, empty, source)
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
        stop_requested = any([is_true(callback(record)) for callback in callbacks])
        if tasks is not None and tasks.end(problem.frame, now):
            stop_requested = True
        if changed == 0 and not relocated:
            stopped = "no label changed"
            break
        if shift2 <= problem.tolerance:
            stopped = "the centres moved less than tol"
            break
        if stop_requested:
            stopped = "a callback asked to"
            break
    again = changed > 0 or movement.moved > 0 or shift2 > 0
    return finished_run(problem, centroids, k, history, stopped, STAGES, again=again), steps


def _by_label(labels: NDArray[np.int32], weights: Double | None, k: int) -> NDArray[np.float64]:
    """Sums of weights; rows in no cluster have label -1."""
    return np.asarray(np.bincount(labels + 1, weights, k + 1)[1:], dtype=np.float64)


def _mean_lengths(engine: LocalEngine, outcome: Run, counts: Double) -> Double | None:
    """Lengths of the means of unit rows whose directions the centres are: 1 less the mean cost."""
    if not engine.metric.directed:
        return None
    costs = engine.own_distances(outcome.centres, 0)
    if engine.weights is not None:
        costs *= engine.weights
    total = _by_label(outcome.labels, costs, len(counts))
    return 1 - np.divide(total, counts, out=np.ones_like(counts), where=counts > 0)
