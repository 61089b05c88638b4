"""MiniBatchKMeans: a few rows at a time, by gradient steps or by statistics that are exchanged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from exactmeans import _core
from exactmeans.callbacks import Callback, Progress, Reports, Tasks
from exactmeans.data.arrays import Double
from exactmeans.data.centres import for_users
from exactmeans.data.stream import is_source
from exactmeans.data.weights import weights_of
from exactmeans.engine.frame import Frame
from exactmeans.engine.local.engine import LocalEngine
from exactmeans.estimators.base import BaseKMeans, FitParameters, RestoredOnError
from exactmeans.estimators.limits import refuse_limits
from exactmeans.fit.batches import Batches, sample_ids, sample_of
from exactmeans.fit.cost_model import Workload
from exactmeans.fit.early_stopping import LEAST_FALL, EarlyStopping
from exactmeans.fit.loop import Run
from exactmeans.fit.memoized import mean_lengths, memoized, weights_by_label
from exactmeans.fit.plan import block_budget
from exactmeans.fit.policy import Choice, refuse_over_limit
from exactmeans.fit.problem import analyse, unscaled
from exactmeans.fit.reassignment import Reassignment
from exactmeans.fit.sgd import State
from exactmeans.fit.sparse_sgd import sgd_for
from exactmeans.io.model_file import loadable
from exactmeans.metrics import ZeroRows
from exactmeans.parameters import (
    check_choice,
    check_int,
    check_random_state,
    check_real,
    refuse,
    warn,
)
from exactmeans.seeding.init import Init, InitName

__all__ = ["MiniBatchKMeans"]

_METHODS = ("sgd", "memoized")
_METRICS = ("euclidean", "cosine")


@loadable
class MiniBatchKMeans(BaseKMeans):
    """K-means on a few rows at a time, with scikit-learn's parameters.

    `method='sgd'` draws batches and moves each centre towards the rows it is nearest to, by steps
    that shrink with the rows so far: a good clustering after a fraction of a pass. It draws the
    rows that scikit-learn 1.9 draws for the same `random_state`, and stops when scikit-learn does.

    `method='memoized'` visits the batches in turn and replaces what each contributes to the exact
    sums of the clusters. It recomputes the centres after every batch, never raises the inertia, and
    ends at a fixed point of Lloyd's algorithm.

    Where one batch holds all rows, both are Lloyd's algorithm.

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
        Random rows that 'sgd' chooses initial centres from; None means three batches. If that is
        fewer than `n_clusters`, three times `n_clusters` rows are used. 'memoized' uses all rows.
    n_init : 'auto' or int, default='auto'
        Initial centres to try on `init_size` rows, of which the best are used; 'auto' means 3 for
        random and callable `init`, else 1. `partial_fit` tries 1.
    reassignment_ratio : float, default=0.01
        Centres of 'sgd' that have seen less than this share of the rows that the largest has seen
        are put on random rows of the batch, every 10 * `n_clusters` rows.
    method : {'sgd', 'memoized'}, default='sgd'
    metric : {'euclidean', 'cosine'}, default='euclidean'
        With 'cosine', rows count as unit vectors, and centres are scaled to length 1.
    n_jobs, memory_limit, callbacks, sparse_centers, zero_rows : as for `KMeans`
    init_options, dtype : as for `KMeans`
    size_min, size_max : None
        Only `KMeans` keeps size limits.
    size_of : {'rows', 'weight'}, default='rows'
        Without limits it has no effect.

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
    _counts: Double
    _lengths: Double | None
    _since: int
    _random_state: np.random.RandomState

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
        size_min: int | float | None = None,
        size_max: int | float | None = None,
        size_of: Literal["rows", "weight"] = "rows",
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
        self.size_min = size_min
        self.size_max = size_max
        self.size_of = size_of

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

        Examples
        --------
        >>> import numpy as np
        >>> from exactmeans import MiniBatchKMeans
        >>> model = MiniBatchKMeans(2, random_state=0)
        >>> for batch in np.array_split(np.arange(100.0)[:, None], 4):
        ...     model = model.partial_fit(batch)
        >>> model.predict([[0.0], [99.0]]).tolist() in ([0, 1], [1, 0])
        True
        """
        with RestoredOnError(self):
            self._partial_fit(X, sample_weight)
        return self

    def fit_predict(self, X: Any, y: Any = None, sample_weight: Any = None) -> NDArray[np.int32]:
        """Fit and return `labels_`, which `compute_labels=False` would not keep.

        Examples
        --------
        >>> from exactmeans import MiniBatchKMeans
        >>> MiniBatchKMeans(2, init=[[0.0], [9.0]]).fit_predict([[0.0], [1.0], [9.0]])
        array([0, 0, 1], dtype=int32)
        """
        if not self.compute_labels:
            raise ValueError("compute_labels must be True for fit_predict, which returns labels_.")
        return super().fit_predict(X, y, sample_weight)

    # -- parts of fit --------------------------------------------------------------------------

    def _fit(self, X: Any, y: Any, sample_weight: Any, progress: Progress) -> None:
        parameters = self._check_parameters(_METRICS)
        engine = self._open_engine(X, sample_weight, parameters)
        batches = Batches.of(engine, self.batch_size, in_blocks=is_source(X))
        # A batch of all rows is Lloyd's algorithm, whatever the method.
        exact = self.method == "memoized" or batches.per_pass == 1
        steps = parameters.max_iter if exact else batches.most_steps(parameters.max_iter)
        rows = engine.n if exact else batches.rows
        progress.expect(rows=rows, iterations=steps, relabels=exact)
        tasks = Tasks.opened(self, steps, X, y, sample_weight)
        init = Init.check(self, parameters.k, engine, auto=3, in_blocks=batches.in_blocks)
        rng = check_random_state(self.random_state)
        reports = Reports([*progress.callbacks, *parameters.callbacks], tasks)
        fit = Fit(engine, parameters, init, rng, reports)
        result = self._fit_exactly(fit) if exact else self._fit_by_steps(fit, batches, steps)
        needed = Workload.of(engine, parameters.k).bytes_needed("lloyd")
        self._keep(result.run, result.frame, Choice("lloyd", "batch by batch", needed), engine)
        self._counts, self._lengths = result.counts, result.lengths
        self._since = result.since
        self.__dict__.pop("_random_state", None)  # as in scikit-learn, partial_fit makes its own
        self.n_steps_ = result.steps
        if not exact:
            self.n_iter_ = batches.passes(result.steps)
        if not self.compute_labels:
            del self.labels_
        reports.close()

    def _fit_exactly(self, fit: Fit) -> Result:
        """Memoized steps, which end at a fixed point of Lloyd's algorithm."""
        engine, parameters = fit.engine, fit.parameters
        problem = analyse(engine, parameters.tol)
        if self.method == "memoized":
            centres = fit.init.centres(problem, parameters.k, fit.rng)
        else:
            centres = self._best_start(fit).centres
        run, steps = memoized(problem, centres, self.batch_size, parameters.max_iter, fit.reports)
        counts = weights_by_label(engine.final_labels(), engine.weights, parameters.k)
        return Result(run, problem.frame, counts, mean_lengths(engine, run, counts), steps)

    def _fit_by_steps(self, fit: Fit, batches: Batches, steps: int) -> Result:
        """Gradient steps."""
        engine, tol = fit.engine, fit.parameters.tol
        start = self._best_start(fit)
        smoothing = min(1.0, 2.0 * batches.size / (engine.n + 1))
        stopping = EarlyStopping(
            smoothing=smoothing,
            tolerance=analyse(engine, tol).tolerance if tol > 0 else 0.0,
            max_no_improvement=self.max_no_improvement,
            least_fall=LEAST_FALL * smoothing if batches.in_blocks else 0.0,
        )
        reassignment = Reassignment(float(self.reassignment_ratio), self.batch_size)
        sgd = sgd_for(engine, start, np.zeros(fit.parameters.k), reassignment)
        drawn = batches.draw(engine, fit.rng)
        history = sgd.run(drawn, steps, fit.rng, stopping, fit.reports)
        run = sgd.outcome(engine, history, label=self.compute_labels)
        if not self.compute_labels:
            run.inertia = history[-1].inertia * engine.total_weight()
        lengths = sgd.state.lengths
        return Result(run, sgd.frame, sgd.counts, lengths, len(history), reassignment.since)

    def _check_parameters(self, metrics: tuple[str, ...] = _METRICS) -> FitParameters:
        refuse_limits(self, "MiniBatchKMeans", "KMeans keeps limits")
        check_choice("method", self.method, _METHODS)
        if not isinstance(self.compute_labels, (bool, np.bool_)):
            refuse("compute_labels", self.compute_labels, "True or False")
        check_int("batch_size", self.batch_size, 1)
        check_real("reassignment_ratio", self.reassignment_ratio, 0)
        if self.max_no_improvement is not None:
            check_int("max_no_improvement", self.max_no_improvement, 0)
        if self.init_size is not None:
            check_int("init_size", self.init_size, 1)
        return super()._check_parameters(metrics)

    def _open_engine(self, X: Any, sample_weight: Any, parameters: FitParameters) -> LocalEngine:
        engine = self._open_rows(X, sample_weight, parameters)
        engine.examine()
        work, limit = Workload.of(engine, parameters.k), parameters.memory_limit
        if self.method == "memoized" or engine.n <= self.batch_size:
            needed, instead = work.bytes_needed("lloyd"), ": method='sgd' keeps fewer"
        else:
            sample = self.init_size or max(3 * self.batch_size, 3 * parameters.k)
            needed, instead = work.bytes_of_batches(self.batch_size, sample), ""
        refuse_over_limit(f"method={self.method!r}", needed, work, limit, instead)
        engine.keep(block_budget(limit) - engine.reading_bytes - 60 * engine.n)
        return engine

    def _best_start(self, fit: Fit) -> State:
        """The best of several initial centres, as judged by a sample of the rows."""
        engine, rng, k = fit.engine, fit.rng, fit.parameters.k
        size = self._sample_size(engine.n, k)
        ids = rng.randint(0, engine.n, size)  # even if not needed: later draws are scikit-learn's
        best = _seeded(engine, fit.init, k, size, rng)
        if fit.init.n_init > 1:
            sample = sample_of(engine, ids)
            _, least = best.cost(sample)
            for _ in range(fit.init.n_init - 1):
                state = _seeded(engine, fit.init, k, size, rng)
                _, inertia = state.cost(sample)
                if inertia < least:
                    best, least = state, inertia
        return best

    def _sample_size(self, n: int, k: int) -> int:
        """How many rows initial centres are chosen from, by scikit-learn's rules."""
        size = 3 * min(self.batch_size, n) if self.init_size is None else self.init_size
        if size < k and self.init_size is not None:
            warn(
                f"init_size={size} should be larger than n_clusters={k}: three times n_clusters "
                "rows are used, or all if there are fewer.",
                RuntimeWarning,
            )
        return min(size if size >= k else 3 * k, n)

    def _partial_fit(self, X: Any, sample_weight: Any) -> None:
        parameters = self._check_parameters()
        k, first = parameters.k, not hasattr(self, "cluster_centers_")
        if not first and k != self._n_features_out:
            raise ValueError(
                f"n_clusters must stay {self._n_features_out}, but it is {k}: partial_fit "
                "continues with the centres of earlier calls."
            )
        if first:
            engine = self._open_engine(X, sample_weight, parameters)
            init = Init.check(self, k, engine, auto=1, in_blocks=is_source(X))
            size = self._sample_size(engine.n, k)
            rng = self._random_state = check_random_state(self.random_state)
            state = _seeded(engine, init, k, size, rng)  # one seeding, as in scikit-learn
            counts, since, self.n_steps_ = np.zeros(k), 0, 0
        else:
            engine = self._engine(X, weights_of(X, sample_weight))
            engine.examine(to_fit=False)  # rows without direction move nothing
            if not hasattr(self, "_random_state"):
                self._random_state = check_random_state(self.random_state)
            state = State(self._frame, self._centres(), self._lengths)
            counts, since = self._counts.copy(), self._since
        reassignment = Reassignment(float(self.reassignment_ratio), self.batch_size, since)
        sgd = sgd_for(engine, state, counts, reassignment)
        sgd.step(engine, self._random_state)
        state = sgd.state
        self.cluster_centers_ = for_users(state.centres, self.sparse_centers)
        self._frame, self._counts, self._since = state.frame, sgd.counts, reassignment.since
        self._lengths = state.lengths
        self._n_features_out = k
        self.n_steps_ += 1
        if not self.compute_labels:
            self.__dict__.pop("labels_", None)  # those of an earlier call
        else:
            _, inertia = state.cost(engine)
            self.labels_ = engine.final_labels()
            self.inertia_ = unscaled(inertia, state.frame.cost_exponent)


@dataclass(frozen=True)
class Fit:
    """What both methods need."""

    engine: LocalEngine
    parameters: FitParameters
    init: Init
    rng: np.random.RandomState
    reports: Reports


@dataclass(frozen=True)
class Result:
    """The run, and what `partial_fit` continues with."""

    run: Run
    frame: Frame
    counts: Double  # weight of the rows that each centre has seen
    lengths: Double | None  # of means of unit rows
    steps: int
    since: int = 0  # rows since the last reassignment


def _seeded(
    engine: LocalEngine, init: Init, k: int, size: int, rng: np.random.RandomState
) -> State:
    """Initial centres from `size` random rows, or from all rows if there are no more."""
    few = engine
    if size < engine.n:
        few = sample_of(engine, sample_ids(engine, size, k, rng))
    problem = analyse(few, 0.0)
    largest = engine.survey(weighted=False).largest
    exponent = _core.safe_exponent(largest, engine.dtype == np.float32)
    return State.at(problem.frame.scaled(exponent), init.centres(problem, k, rng))
