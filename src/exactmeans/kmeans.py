"""KMeans: scikit-learn's estimator, exact and the same on any number of threads."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    ClusterMixin,
    TransformerMixin,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from exactmeans import _core
from exactmeans.callbacks import (
    Callback,
    Iteration,
    Progress,
    TakesCallbacks,
    Tasks,
)
from exactmeans.data.arrays import Matrix
from exactmeans.data.centres import as_directions, call_init, check_centres, for_users
from exactmeans.data.rows import refuse_few_rows
from exactmeans.data.stream import Stream, as_blocks, count_rows, is_source
from exactmeans.data.weights import check_weights, weights_of
from exactmeans.engine.frame import Frame
from exactmeans.engine.local.digest import Digest
from exactmeans.engine.local.engine import LocalEngine
from exactmeans.engine.protocol import Engine
from exactmeans.fit.centres_cache import CentroidsCache
from exactmeans.fit.cost_model import Workload
from exactmeans.fit.generator import FitGenerator
from exactmeans.fit.loop import Run, lloyd_loop
from exactmeans.fit.policy import (
    ALGORITHM_NAMES,
    AlgorithmName,
    Choice,
    Policy,
    choose_algorithm,
    may_deduplicate,
)
from exactmeans.fit.problem import Problem, analyse, unscaled
from exactmeans.io import model_file
from exactmeans.io.checkpoint import Checkpoint, Completed, Resume
from exactmeans.memory import check_memory_limit, memory_of_machine
from exactmeans.metrics import METRIC_NAMES, METRICS, Metric, MetricName, ZeroRows
from exactmeans.parameters import (
    REALS,
    check_choice,
    check_dtype,
    check_int,
    check_n_jobs,
    check_random_state,
    check_real,
)
from exactmeans.seeding.init import InitName, check_init, check_options, choose_seeds
from exactmeans.sql import IfExists, centers_to_sql, labels_to_sql

__all__ = ["KMeans"]


@model_file.loadable
class KMeans(
    TakesCallbacks,
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc, unused-ignore]
    TransformerMixin,  # type: ignore[misc, unused-ignore]
    ClusterMixin,  # type: ignore[misc, unused-ignore]
    BaseEstimator,  # type: ignore[misc, unused-ignore]
):
    """K-means clustering, a drop-in replacement of scikit-learn's.

    Every `algorithm` gives the labels and centres of plain Lloyd to the last bit, on any number of
    threads and however the rows are cut into blocks. In float64 the same `random_state` gives
    scikit-learn's clustering, up to rows that are at the same distance from two centres to within
    rounding: few in measurements, but many in dense tables of 0 and 1 or small counts
    (docs/compatibility.md).

    Parameters
    ----------
    n_clusters : int, default=8
        How many clusters to form.
    init : {'k-means++', 'k-means||', 'random', 'furthest'}, ('d', alpha), callable or array-like \
            of shape (n_clusters, n_features), default='k-means++'
        Initial centres: greedy k-means++; k-means||; random rows; the mean and then the farthest
        rows; rows drawn by distance**alpha, 2 being plain k-means++; given centres; or a
        callable `init(X, n_clusters, random_state)` that returns them. See
        `exactmeans.seeding`.
    n_init : 'auto' or int, default='auto'
        Runs from different initial centres, of which the one with the lowest inertia is kept.
        'auto' means 10 for random and callable `init`, else 1.
    max_iter : int, default=300
        The most iterations of a run.
    tol : float, default=1e-4
        A run ends when the squared distances that the centres moved sum to at most `tol` times the
        mean variance of the features, or earlier, when no label changes.
    verbose : int or bool, default=0
        1 shows every iteration: a bar in a terminal, a record of the logger "exactmeans" where
        logging at level INFO is set up and there is no terminal, else a printed line.
    random_state : int, RandomState instance or None, default=None
        Makes the choice of initial centres reproducible. Of a NumPy Generator `rng`, pass
        `int(rng.integers(2**31))`.
    copy_x : bool, default=True
        Accepted for compatibility: the data is never modified.
    algorithm : {'auto', 'lloyd', 'elkan', 'hamerly', 'yinyang', 'kdtree', 'products', 'pca', \
            'moving'}, default='auto'
        How to find the nearest centres. The choice changes time and memory, never the result. For
        one cluster, 'elkan' warns and runs as 'lloyd', as in scikit-learn.
    metric : {'euclidean', 'cosine', 'angular', 'manhattan'}, default='euclidean'
        'cosine' and 'angular' look at the directions of rows only; centres are unit vectors,
        directions of means or geodesic means. 'manhattan' makes centres of medians. See
        docs/metrics.md.
    n_jobs : int or None, default=None
        Threads to use; -1 means all cores that this process may use, -2 all but one. None means
        all, too, but in a task of joblib only the share that joblib leaves to it. See
        docs/threads.md.
    memory_limit : int, float, str or None, default=None
        The most memory to use beside the data: bytes, a string such as '2GB', '512m' (both powers
        of 1000) or '1GiB', '1Gi' (powers of 1024), or a fraction of the machine's memory. What
        cannot fit is refused with the bytes it needs, and so is what `predict`, `transform` and
        `score` would need beside the data.
    callbacks : callable, sequence of callables or None, default=None
        Called with an `Iteration` record after each iteration; returning True stops the run.
    checkpoint : path or None, default=None
        A file to keep the fit in while it runs, every few seconds at most. A fit of the same data
        with the same parameters goes on from it and ends with the same bits; one that was
        finished returns at once. Needs `pip install exactmeans[io]`.
    sparse_centers : 'auto' or bool, default='auto'
        Whether `cluster_centers_` is a CSR array. 'auto' makes it one if X is sparse and an ndarray
        would take more than half a gigabyte.
    zero_rows : {'error', 'keep'}, default='error'
        What to do with rows of zeros, or shorter than the smallest normal number of their dtype,
        which have no direction, under 'cosine' and 'angular'. Those that are kept belong to no
        cluster: their label is -1, they move no centre, and their similarity to every centre is 0.
    init_options : dict or None, default=None
        What `init` takes besides: `oversampling` (2.0) and `rounds` (5) for 'k-means||',
        `n_local_trials` for 'k-means++'.
    dtype : {'float32', 'float64'} or None, default=None
        What to compute in. None keeps float32 as it is and makes everything else float64.

    Attributes
    ----------
    cluster_centers_ : ndarray or CSR array of shape (n_clusters, n_features)
    labels_ : ndarray of shape (n_samples,)
        The nearest centre of each row; always what `predict` gives. -1 for rows of zeros that
        `zero_rows='keep'` keeps.
    inertia_ : float
        Sum of squared distances of the rows to their centres, weighted; for 'cosine' of 1 - cos,
        for 'angular' of squared angles, for 'manhattan' of distances. Where it does not fit float64
        (values beyond 1e150 or so), it is infinite and a warning says so.
    n_iter_ : int
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Only when `X` has column names that are all strings.
    algorithm_ : str
        The algorithm that ran; where 'auto' changed its mind, the last one. `explain()` tells when
        and why, and `history_` what each iteration used.
    n_distances_ : int
        Row-centre distances computed by the run that was kept.
    history_ : list of Iteration
        One record per iteration of the run that was kept.

    Examples
    --------
    >>> import numpy as np
    >>> from exactmeans import KMeans
    >>> X = np.array([[1., 2], [1, 4], [1, 0], [10, 2], [10, 4], [10, 0]])
    >>> kmeans = KMeans(n_clusters=2, random_state=0).fit(X)
    >>> kmeans.labels_
    array([1, 1, 1, 0, 0, 0], dtype=int32)
    >>> kmeans.predict([[0, 0], [12, 3]])
    array([1, 0], dtype=int32)
    >>> kmeans.cluster_centers_
    array([[10.,  2.],
           [ 1.,  2.]])
    """

    _saved_as = "KMeans"  # the class that exactmeans.load makes

    cluster_centers_: Any
    labels_: NDArray[np.int32]
    inertia_: float
    n_iter_: int
    algorithm_: str
    n_distances_: int
    history_: list[Iteration]

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        init: InitName | Callable[..., Any] | Any = "k-means++",
        n_init: Literal["auto"] | int = "auto",
        max_iter: int = 300,
        tol: float = 1e-4,
        verbose: int = 0,
        random_state: Any = None,
        copy_x: bool = True,
        algorithm: AlgorithmName = "auto",
        metric: MetricName = "euclidean",
        n_jobs: int | None = None,
        memory_limit: int | float | str | None = None,
        callbacks: Callback | Sequence[Callback] | None = None,
        sparse_centers: Literal["auto"] | bool = "auto",
        checkpoint: str | os.PathLike[str] | None = None,
        zero_rows: ZeroRows = "error",
        init_options: Mapping[str, Any] | None = None,
        dtype: Any = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.verbose = verbose
        self.random_state = random_state
        self.copy_x = copy_x
        self.algorithm = algorithm
        self.metric = metric
        self.n_jobs = n_jobs
        self.memory_limit = memory_limit
        self.callbacks = callbacks
        self.checkpoint = checkpoint
        self.sparse_centers = sparse_centers
        self.zero_rows = zero_rows
        self.init_options = init_options
        self.dtype = dtype

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Cluster the rows of X.

        Parameters
        ----------
        X : array-like, sparse matrix, BlockSource or path of shape (n_samples, n_features)
            The data. It is used where it is, unless it has to become float64 or CSR first. Files
            (a path, a list of paths, a pattern) are opened by `open_blocks`.
        y : Ignored
        sample_weight : array-like of shape (n_samples,), default=None
            How much each row counts; not used by a callable or given `init`.

        Returns
        -------
        self
        """
        with RestoredOnError(self), Progress(self.verbose) as progress:
            if Tasks.wanted(self):
                Tasks.managed(type(self)._fit)(self, X, y, sample_weight, progress)
            else:
                self._fit(X, y, sample_weight, progress)
        return self

    def _fit(self, X: Any, y: Any, sample_weight: Any, progress: Progress) -> None:
        k = check_int("n_clusters", self.n_clusters, 1)
        max_iter = check_int("max_iter", self.max_iter, 1)
        tol = check_real("tol", self.tol, 0)
        algorithm = self._algorithm(k)
        metric = self._metric()
        memory_limit = check_memory_limit(self.memory_limit)
        if not isinstance(self.sparse_centers, (bool, np.bool_)):
            check_choice("sparse_centers", self.sparse_centers, ("auto",), "True or False")
        callbacks = [*progress.callbacks, *self._callbacks()]
        scratch_limit = None if memory_limit is None else memory_limit // 4
        sample_weight = weights_of(X, sample_weight)
        engine = self._engine_to_fit(X, sample_weight, k, metric, scratch_limit)
        progress.rows = engine.n
        size, reading = engine.dtype.itemsize, engine.reading_bytes
        width = engine.nonzeros / engine.n
        work = Workload(
            engine.n,
            engine.d,
            k,
            engine.sparse,
            size,
            width,
            reading,
            metric.name,
            engine.overlap(),
        )
        if may_deduplicate(algorithm, work, memory_limit):
            work = replace(work, distinct_rows=engine.deduplicate())
        here = work if engine.most_rows == work.n else replace(work, n=engine.most_rows)
        choice = choose_algorithm(algorithm, here, memory_limit)
        # A quarter is left to the allocator, which does not return all freed memory.
        budget = (memory_limit or memory_of_machine() // 4) * 3 // 4
        if staying := engine.keep(budget - choice.bytes_needed):
            choice = replace(choice, bytes_needed=choice.bytes_needed + staying)
        init, n_init = self._init(k, engine)
        progress.runs, progress.most = n_init, max_iter
        options = check_options(self.init_options, init)
        rng = self._generator(init)
        kept = self._open_checkpoint(engine)
        found = None if kept is None else kept.found
        if isinstance(found, Completed):
            rng.set_state(found.rng)
            self._keep(found.best, found.frame, found.choice, engine)
            return

        tasks = Tasks.opened(self, n_init * max_iter, X, y, sample_weight)
        problem = analyse(engine, tol)
        best = None if found is None else _with_labels(found.best, problem)
        for run in range(0 if found is None else found.run, n_init):
            done: list[Iteration] = []
            stop = False
            if found is not None and run == found.run:
                centres, done, stop = found.centres, found.history, found.stop
                rng.set_state(found.rng)
            else:
                centres = self._initial_centres(init, options, problem, X, k, rng)
                if kept is not None:
                    kept.seeded(run, centres, rng.get_state(legacy=False), best)
            outcome = lloyd_loop(
                problem,
                centres,
                policy=Policy(choice, work, max_iter),
                max_iter=max_iter,
                run=run,
                callbacks=callbacks,
                tasks=tasks,
                done=done,
                stop=stop,
                checkpoint=kept,
            )
            if best is None or (
                outcome.inertia < best.inertia
                and not self._same_clustering(outcome.labels, best.labels, k)
            ):
                best = outcome
        assert best is not None
        if kept is not None:
            kept.finish(best, problem.frame, choice, rng.get_state(legacy=False))
        self._keep(best, problem.frame, choice, engine)
        if tasks is not None:
            tasks.close()

    def fit_predict(self, X: Any, y: Any = None, sample_weight: Any = None) -> NDArray[np.int32]:
        """Fit and return `labels_`."""
        return self.fit(X, sample_weight=sample_weight).labels_

    def fit_transform(self, X: Any, y: Any = None, sample_weight: Any = None) -> NDArray[Any]:
        """Fit and return the distances of X to the centres."""
        distances: NDArray[Any] = self.fit(X, sample_weight=sample_weight).transform(X)
        return distances

    def predict(self, X: Any) -> NDArray[np.int32]:
        """The nearest centre of each row; -1 for rows of zeros that `zero_rows='keep'` keeps.

        Parameters
        ----------
        X : array-like, sparse matrix, BlockSource or path of shape (n_samples, n_features)

        Returns
        -------
        labels : ndarray of shape (n_samples,)
        """
        return self._assigned(X).final_labels()

    def transform(self, X: Any) -> NDArray[Any]:
        """Distances of each row to each centre: 1 - cos for 'cosine', the angle for 'angular'.

        Parameters
        ----------
        X : array-like, sparse matrix, BlockSource or path of shape (n_samples, n_features)

        Returns
        -------
        distances : ndarray of shape (n_samples, n_clusters)
        """
        check_is_fitted(self)
        engine, centres = self._engine(X), self._centres()
        self._refuse_over_limit(
            engine.n * centres.shape[0] * engine.dtype.itemsize,
            f"the {engine.n:,} x {centres.shape[0]:,} distances that transform returns",
            "transform fewer rows at a time, or use predict",
        )
        return engine.transform(centres, self._frame.shift_of(engine), self._frame.cost_exponent)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Minus the inertia of X at the fitted centres, as `metric` has it.

        Parameters
        ----------
        X : array-like, sparse matrix, BlockSource or path of shape (n_samples, n_features)
        y : Ignored
        sample_weight : array-like of shape (n_samples,), default=None

        Returns
        -------
        score : float
        """
        check_is_fitted(self)
        engine, centres = self._engine(X, weights_of(X, sample_weight)), self._centres()
        exponent = self._frame.cost_exponent
        engine.start("lloyd", centres.shape[0])
        _, inertia = engine.cost(self._frame.centroids(centres, engine), centres, exponent)
        return -unscaled(inertia, exponent)

    def explain(self) -> str:
        """What ran, why, how much work it saved and what memory it took, in a few lines."""
        check_is_fitted(self)
        check_is_fitted(self, "history_", msg="explain() needs a fitted model: call fit first.")
        n, k = self._n_rows, self.cluster_centers_.shape[0]
        plain = n * k * (self.n_iter_ + (self.history_[-1].changed > 0))
        passes = [
            f"passes over blocks that are not in memory: {self._passes:.3g}; {self._unread} times "
            "a block was not read, since no label in it could change"
        ]
        share = f" of {plain} that plain Lloyd computes ({self.n_distances_ / plain:.1%})"
        shift = "shifted to the mean" if self._frame.shift is not None else "used as given"
        return "\n".join(
            [
                *(
                    f"algorithm: {name} from iteration {first} ({why})"
                    if len(self._stages) > 1
                    else f"algorithm: {name} ({why})"
                    for first, name, why in self._stages
                ),
                f"data: {n} x {self.n_features_in_}, {self.cluster_centers_.dtype}, {shift}",
                *(
                    [f"rows compared: {self._choice.distinct_rows}, copies of which are all others"]
                    if self._choice.distinct_rows is not None
                    else []
                ),
                f"threads: {self._n_jobs_used}, instruction set: {_core.active_isa()}",
                f"iterations: {self.n_iter_}; stopped because {self._stopped}",
                f"distances: {self.n_distances_}" + (share if self.n_distances_ <= plain else ""),
                *(passes if self._passes else []),
                f"memory beside the data: about {self._choice.bytes_needed / 1e6:.1f} MB",
            ]
        )

    def to_sql(
        self,
        connection: Any,
        table: str,
        source: Any,
        *,
        if_exists: IfExists = "fail",
        schema: str | None = None,
    ) -> int:
        """Write key, cluster and distance of the rows of `open_sql` to a table, or write nothing.

        See `exactmeans.sql.labels_to_sql`.
        """
        return labels_to_sql(self, connection, table, source, if_exists=if_exists, schema=schema)

    def centers_to_sql(
        self,
        connection: Any,
        table: str,
        source: Any = None,
        *,
        if_exists: IfExists = "fail",
        schema: str | None = None,
    ) -> None:
        """Write the centres to a table that `exactmeans.from_sql` reads, or write nothing.

        See `exactmeans.sql.centers_to_sql`.
        """
        centers_to_sql(self, connection, table, source, if_exists=if_exists, schema=schema)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to a file that `exactmeans.load` reads, and nothing can run.

        Callables (`init`, `callbacks`) are left out, and subclasses are refused: a file holds no
        code. Needs `pip install exactmeans[io]`.

        Parameters
        ----------
        path : str or path
            Replaced at once, or not at all.
        """
        check_is_fitted(self)
        model_file.save(self, path)

    # -- parts of fit --------------------------------------------------------------------------

    def _algorithm(self, k: int) -> str:
        algorithm = check_choice("algorithm", self.algorithm, ALGORITHM_NAMES)
        if algorithm == "elkan" and k == 1:  # as in scikit-learn
            warnings.warn(
                "algorithm='elkan' doesn't make sense for a single cluster, so 'lloyd' is used.",
                RuntimeWarning,
                stacklevel=4,
            )
            return "lloyd"
        return algorithm

    def _metric(self) -> Metric:
        check_choice("zero_rows", self.zero_rows, ("error", "keep"))
        return METRICS[check_choice("metric", self.metric, METRIC_NAMES)]

    def _engine_to_fit(
        self, X: Any, sample_weight: Any, k: int, metric: Metric, scratch_limit: int | None
    ) -> Engine:
        blocks = as_blocks(self, X, reset=True, dtype=check_dtype(self.dtype))
        n = count_rows(blocks)
        refuse_few_rows(n, k)
        weights = check_weights(sample_weight, n)
        if isinstance(blocks, Stream) or len(blocks) > 1:
            metric.refuse_blocks()
        n_jobs = check_n_jobs(self.n_jobs)
        return LocalEngine(
            blocks,
            weights,
            n_jobs,
            metric,
            self.zero_rows,
            scratch_limit=scratch_limit,
            feature_names=getattr(self, "feature_names_in_", None),
            digest=None if self.checkpoint is None else Digest(),
        )

    def _callbacks(self) -> list[Callback]:
        given = self.callbacks
        if given is None:
            return []
        if callable(given):
            given = [given]
        callbacks = list(given) if isinstance(given, Sequence) else [None]
        if not all(callable(callback) for callback in callbacks):
            raise ValueError("callbacks must be a callable or a sequence of callables.")
        return callbacks

    def _init(self, k: int, engine: Engine) -> tuple[Any, int]:
        """`init` as a name, a callable or valid centres, and the number of runs."""
        init: Any = self.init
        named = isinstance(init, str) or (
            isinstance(init, tuple) and len(init) > 0 and isinstance(init[0], str)
        )
        given = not named and not callable(init)
        if given:
            init = check_centres(init, k, engine.d, engine.dtype, sparse=engine.sparse)
            init = as_directions(init, engine.metric, "init")
        elif named:
            init = check_init(init)
        if isinstance(self.n_init, str):
            check_choice("n_init", self.n_init, ("auto",), "an int of at least 1")
            return init, 10 if callable(init) or (named and init == "random") else 1
        n_init = check_int("n_init", self.n_init, 1)
        if given and n_init != 1:
            warnings.warn(
                "Explicit initial center position passed: performing only one init in "
                f"{type(self).__name__} instead of n_init={n_init}.",
                RuntimeWarning,
                stacklevel=4,
            )
            n_init = 1
        return init, n_init

    def _generator(self, init: Any) -> np.random.RandomState:
        """`random_state` as a generator, which nothing else uses during the fit if it is an int.

        A callable may copy its generator and use it after the fit, so it gets a plain one.
        """
        seed = self.random_state
        if seed is None and self.checkpoint is not None:
            seed = np.random.randint(2**31)  # its state can be kept
        if isinstance(seed, (int, np.integer)) and 0 <= seed < 2**32 and not callable(init):
            return FitGenerator.seeded(int(seed))
        own: np.random.RandomState = check_random_state(seed)
        return own

    def _open_checkpoint(self, engine: Engine) -> Checkpoint | None:
        if self.checkpoint is None:
            return None
        params = {"class": type(self).__name__, **self.get_params(deep=False)}
        kept = Checkpoint.open(self.checkpoint, params, engine.fingerprint())
        kept.check_centres(self.n_clusters, engine.d, engine.dtype)
        if isinstance(kept.found, Resume):
            kept.resume(kept.found)
        return kept

    def _initial_centres(
        self,
        init: Any,
        options: Mapping[str, Any],
        problem: Problem,
        X: Any,
        k: int,
        rng: np.random.RandomState,
    ) -> Matrix:
        engine = problem.engine
        if callable(init):
            if is_source(X):
                raise ValueError("init must not be a callable when X comes in blocks.")
            centres = call_init(init, engine.one_block().whole(), k, rng)
            given = check_centres(
                centres, k, engine.d, engine.dtype, "what init returned", sparse=engine.sparse
            )
            return as_directions(given, engine.metric, "what init returned")
        if not isinstance(init, (str, tuple)):
            return init
        return choose_seeds(engine, init, k, rng, problem.frame.cost_exponent, options)[0]

    @staticmethod
    def _same_clustering(a: Any, b: Any, k: int) -> bool:
        """Whether two labellings are equal up to a renaming of clusters."""
        name = np.full(k + 1, -1, dtype=np.int32)  # the last is that of rows in no cluster, -1
        name[a] = b
        return bool(np.array_equal(name[a], b))

    @staticmethod
    def _distinct(labels: Any) -> int:
        return int(np.count_nonzero(np.bincount(labels + 1)[1:]))  # -1 is no cluster

    def _keep(self, best: Run, frame: Frame, choice: Choice, engine: Engine) -> None:
        k, found = best.centres.shape[0], self._distinct(best.labels)
        if found < k:
            warnings.warn(
                f"Number of distinct clusters ({found}) found smaller than n_clusters "
                f"({k}). Possibly due to duplicate points in X.",
                ConvergenceWarning,
                stacklevel=4,
            )
        if not math.isfinite(best.inertia):
            warnings.warn(
                "inertia_ is infinite, since squared distances of X do not fit float64, and runs "
                "of n_init cannot be compared, but labels_ and cluster_centers_ are right: divide "
                "X by a power of two.",
                RuntimeWarning,
                stacklevel=4,
            )
        self.cluster_centers_ = for_users(best.centres, self.sparse_centers, engine.n_jobs)
        self.labels_ = best.labels
        self.inertia_ = best.inertia
        self.n_iter_ = len(best.history)
        self.history_ = best.history
        self.n_distances_ = best.distances
        self.algorithm_ = best.stages[-1][1]
        self._n_features_out, self._n_rows = k, engine.n
        self._frame = frame
        self._centroids_cache = CentroidsCache()
        self._choice = choice
        self._stages = best.stages
        self._stopped = best.stopped
        self._n_jobs_used = engine.n_jobs
        self._passes, self._unread = engine.passes, engine.unread

    # -- using a fitted model ------------------------------------------------------------------

    def _given_centres(self) -> Any:
        given: Any = self.cluster_centers_
        return given if sp.issparse(given) else np.asarray(given)

    def _centres(self) -> Matrix:
        """`cluster_centers_`, which users may have replaced."""
        given = self._given_centres()
        centres = check_centres(
            given,
            given.shape[0] if given.ndim else 0,
            self.n_features_in_,
            _real(given.dtype),
            "cluster_centers_",
            sparse=bool(sp.issparse(given)),
        )
        return as_directions(centres, METRICS[self._frame.metric], "cluster_centers_")

    def _engine(
        self, X: Any, sample_weight: Any = None, *, part: bool = False, labelled: bool = False
    ) -> LocalEngine:
        """The engine of X; checks that values are finite, unless labelling checks it next."""
        dtype = _real(self._given_centres().dtype)
        blocks = as_blocks(self, X, reset=False, dtype=dtype)
        n = count_rows(blocks)
        weights = check_weights(sample_weight, n, part=part)
        reading = blocks.reading_bytes if isinstance(blocks, Stream) else 0
        what = f"the labels of {n:,} rows{' and the blocks they are read in' if reading else ''}"
        self._refuse_over_limit(8 * n + reading, what, "take fewer rows at a time")
        metric = METRICS[self._frame.metric]  # that of fit, whatever was set since
        n_jobs = check_n_jobs(self.n_jobs)
        zero_rows = self.zero_rows if metric.directed else "error"
        names = getattr(self, "feature_names_in_", None)
        engine = LocalEngine(blocks, weights, n_jobs, metric, zero_rows, feature_names=names)
        if metric.directed or metric.l1:
            engine.examine(to_fit=False)
        elif engine.sparse or engine.streamed or not labelled:
            engine.refuse_nonfinite()
        return engine

    def _refuse_over_limit(self, needed: int, what: str, instead: str) -> None:
        limit = check_memory_limit(self.memory_limit)
        if limit is not None and needed > limit:
            raise ValueError(
                f"memory_limit must be at least {needed:,} bytes for {what}, but it is {limit:,}: "
                f"{instead}."
            )

    def _assigned(self, X: Any, sample_weight: Any = None, *, part: bool = False) -> LocalEngine:
        """X, all of it or a part, with every row labelled."""
        check_is_fitted(self)
        engine = self._engine(X, sample_weight, part=part, labelled=True)
        given = self._given_centres()
        # A new attribute only for models that were loaded or unpickled.
        cache: CentroidsCache = self.__dict__.setdefault("_centroids_cache", CentroidsCache())
        centroids = cache.get(given, self._frame, engine, self._centres)
        engine.start("lloyd", given.shape[0])
        engine.assign(centroids)
        engine.refuse_doubtful()
        return engine

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_centroids_cache"}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _real(dtype: Any) -> Any:
    """The dtype in which centres of this dtype are compared."""
    return dtype if dtype in REALS else np.dtype(np.float64)


class RestoredOnError:
    """Restores the estimator if its fit fails or is interrupted."""

    def __init__(self, estimator: Any) -> None:
        self._now, self._before = estimator.__dict__, estimator.__dict__.copy()

    def __enter__(self) -> None:
        pass

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is not None:  # Ctrl-C too
            self._now.clear()
            self._now.update(self._before)


def _with_labels(known: dict[str, Any] | None, problem: Problem) -> Run | None:
    """A run from a checkpoint, with labels recomputed from its centres."""
    if known is None:
        return None
    engine, centres = problem.engine, known["centres"]
    engine.start("lloyd", centres.shape[0])
    engine.assign(problem.frame.centroids(centres, engine))
    return Run(labels=engine.final_labels(), **known)
