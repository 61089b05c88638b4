"""KMeans: scikit-learn's estimator, exact and the same on any number of threads."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from exactmeans.callbacks import Callback, Progress, Reports, Tasks
from exactmeans.data.arrays import Matrix
from exactmeans.data.stream import is_source
from exactmeans.engine.labels import same_clustering
from exactmeans.engine.local.digest import Digest
from exactmeans.engine.protocol import Engine
from exactmeans.estimators.base import BaseKMeans, FitParameters
from exactmeans.estimators.limits import SizeLimits
from exactmeans.fit.generator import FitGenerator
from exactmeans.fit.loop import Resumed, Run, lloyd_loop
from exactmeans.fit.plan import Plan, plan_fit
from exactmeans.fit.policy import ALGORITHM_NAMES, AlgorithmName, Policy
from exactmeans.fit.problem import Problem, analyse
from exactmeans.io import model_file
from exactmeans.io.checkpoint import Checkpoint, Completed, Resume
from exactmeans.metrics import MetricName, ZeroRows
from exactmeans.parameters import check_choice, check_random_state, warn
from exactmeans.seeding.init import Init, InitName

__all__ = ["KMeans"]


@model_file.loadable
class KMeans(BaseKMeans):
    """K-means clustering, a drop-in replacement of scikit-learn's.

    Every `algorithm` gives the labels and centres of plain Lloyd to the last bit, on any number of
    threads and however the rows are cut into blocks. In float64 the same `random_state` gives
    scikit-learn's clustering, up to rows that are at the same distance from two centres to within
    rounding: few in measurements, but many in dense tables of 0 and 1 or small counts
    (see the page "Compatibility in figures").

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
        Makes the choice of initial centres reproducible. For a NumPy Generator `rng`, pass
        `int(rng.integers(2**31))`.
    copy_x : bool, default=True
        Accepted for compatibility: the data is never modified.
    algorithm : {'auto', 'lloyd', 'elkan', 'hamerly', 'yinyang', 'kdtree', 'products', 'pca', \
            'moving'}, default='auto'
        How to find the nearest centres. The choice changes time and memory, never the result. For
        one cluster, 'elkan' warns and runs as 'lloyd', as in scikit-learn.
    metric : {'euclidean', 'cosine', 'angular', 'manhattan'}, default='euclidean'
        'cosine' and 'angular' compare the directions of rows only; centres are unit vectors,
        directions of means or geodesic means. 'manhattan' makes centres of medians. See
        the guide "Metrics".
    n_jobs : int or None, default=None
        Threads to use; -1 means all cores that this process may use, -2 all but one. None means
        all, too, but in a task of joblib only the share that joblib leaves to it. See
        the guide "Threads".
    memory_limit : int, float, str or None, default=None
        The most memory to use beside the data: bytes, a string such as '2GB', '512m' (both powers
        of 1000) or '1GiB', '1Gi' (powers of 1024), or a fraction of the machine's memory. `fit`,
        `predict`, `transform` and `score` refuse calls that need more, and say how many bytes they
        need.
    callbacks : callable, sequence of callables or None, default=None
        Called with an `Iteration` record after each iteration; returning True stops the run.
    checkpoint : path or None, default=None
        A file for the state of the fit, written every few seconds at most. A fit of the same data
        with the same parameters resumes from it and ends with the same bits; a finished one
        returns at once. Needs `pip install exactmeans[io]`.
    sparse_centers : 'auto' or bool, default='auto'
        Whether `cluster_centers_` is a CSR array. 'auto' makes it one if X is sparse and an ndarray
        would take more than half a gigabyte.
    zero_rows : {'error', 'keep'}, default='error'
        For 'cosine' and 'angular': what to do with rows that have no direction, because they are
        zeros or shorter than the smallest normal number of their dtype. 'error' refuses them.
        'keep' leaves them outside all clusters: their label is -1, they move no centre, and their
        similarity to every centre is 0.
    init_options : dict or None, default=None
        Options of `init`: `oversampling` (2.0) and `rounds` (5) for 'k-means||',
        `n_local_trials` for 'k-means++'.
    dtype : {'float32', 'float64'} or None, default=None
        The dtype to compute in. None keeps float32 and converts everything else to float64.
    size_min, size_max : int, float or None, default=None
        The fewest and the most rows of a cluster. Ints count rows. Floats are shares of the mean
        size n_samples / n_clusters, so that 1.1 is ten per cent above it; minima are rounded down,
        maxima up. Every assignment has the least inertia that the limits allow. For 'euclidean'
        and 'cosine'; see the guide "Size limits".
    size_of : {'rows', 'weight'}, default='rows'
        What the limits count. With 'weight', ints are sums of `sample_weight` and floats shares of
        the total weight / n_clusters. To meet such limits exactly is NP-hard: the weight of a
        cluster may exceed them, or fall short, by less than the largest weight of a row. No
        assignment with the same weights of clusters has a lower inertia.

    Attributes
    ----------
    cluster_centers_ : ndarray or CSR array of shape (n_clusters, n_features)
    labels_ : ndarray of shape (n_samples,)
        The nearest centre of each row, or its cluster within the size limits; always what `predict`
        gives. -1 for rows of zeros that `zero_rows='keep'` keeps.
    inertia_ : float
        Sum of squared distances of the rows to their centres, weighted; for 'cosine' of 1 - cos,
        for 'angular' of squared angles, for 'manhattan' of distances. Where it does not fit float64
        (values beyond 1e150 or so), it is infinite and a warning says so.
    prices_ : ndarray of shape (n_clusters,)
        Only with size limits: a row is in the cluster whose squared distance (or 1 - cos) plus
        price is lowest. A price above 0 keeps a full cluster from growing, one below 0 keeps a
        cluster at its least size.
    n_iter_ : int
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Only when `X` has column names that are all strings.
    algorithm_ : str
        The algorithm that ran; if 'auto' switched, the last one. `explain()` says when
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
        size_min: int | float | None = None,
        size_max: int | float | None = None,
        size_of: Literal["rows", "weight"] = "rows",
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
        self.size_min = size_min
        self.size_max = size_max
        self.size_of = size_of

    # -- parts of fit --------------------------------------------------------------------------

    def _fit(self, X: Any, y: Any, sample_weight: Any, progress: Progress) -> None:
        parameters = self._check_parameters()
        k, max_iter = parameters.k, parameters.max_iter
        wanted = SizeLimits.check(self.size_min, self.size_max, parameters.metric, self.size_of)
        algorithm = self._check_algorithm(k, limited=wanted is not None)
        with closing(self._open_engine(X, sample_weight, parameters)) as engine:
            plan = plan_fit(engine, k, algorithm, parameters.memory_limit, max_iter)
            if wanted is not None:
                plan = replace(plan, choice=replace(plan.choice, why="size limits"))
            init = Init.check(self, k, engine, auto=10, in_blocks=is_source(X))
            progress.expect(rows=engine.n, iterations=max_iter, runs=init.n_init)
            rng = self._generator(init)
            checkpoint = self._open_checkpoint(engine)
            if checkpoint is not None and isinstance(checkpoint.found, Completed):
                done = checkpoint.found
                rng.set_state(done.rng)
                self._keep(done.best, done.frame, done.choice, engine)
                return
            tasks = Tasks.opened(self, init.n_init * max_iter, X, y, sample_weight)
            reports = Reports([*progress.callbacks, *parameters.callbacks], tasks)
            problem = analyse(engine, parameters.tol)
            if wanted is not None:
                engine.limit(wanted.of(engine, k))
            runs = Runs(problem, k, plan, max_iter, reports)
            best = self._best_run(runs, init, rng, checkpoint)
            if checkpoint is not None:
                checkpoint.finish(best, problem.frame, plan.choice, rng.get_state(legacy=False))
            self._keep(best, problem.frame, plan.choice, engine)
            reports.close()

    def _best_run(
        self, runs: Runs, init: Init, rng: np.random.RandomState, checkpoint: Checkpoint | None
    ) -> Run:
        """The run with the lowest inertia; resumes the one that the checkpoint holds."""
        resume = checkpoint.found if checkpoint is not None else None
        assert not isinstance(resume, Completed)
        best = None if resume is None else runs.with_labels(resume.best)
        for number in range(0 if resume is None else resume.run, init.n_init):
            if resume is not None and number == resume.run:
                rng.set_state(resume.rng)
                run = runs.resume(resume, checkpoint)
            else:
                centres = init.centres(runs.problem, runs.k, rng)
                if checkpoint is not None:
                    checkpoint.seeded(number, centres, rng.get_state(legacy=False), best)
                run = runs.run(number, centres, checkpoint)
            if best is None or (
                run.inertia < best.inertia and not same_clustering(run.labels, best.labels, runs.k)
            ):
                best = run
        assert best is not None
        return best

    def _open_engine(self, X: Any, sample_weight: Any, parameters: FitParameters) -> Engine:
        digest = None if self.checkpoint is None else Digest()
        return self._open_rows(X, sample_weight, parameters, digest)

    def _check_algorithm(self, k: int, *, limited: bool) -> str:
        algorithm = check_choice("algorithm", self.algorithm, ALGORITHM_NAMES)
        if limited:
            if algorithm not in ("auto", "lloyd"):
                raise ValueError(
                    "algorithm must be 'auto' or 'lloyd' with size_min or size_max, but it is "
                    f"{algorithm!r}."
                )
            return "lloyd"
        if algorithm == "elkan" and k == 1:  # as in scikit-learn
            warn(
                "algorithm='elkan' doesn't make sense for a single cluster, so 'lloyd' is used.",
                RuntimeWarning,
            )
            return "lloyd"
        return algorithm

    def _generator(self, init: Init) -> np.random.RandomState:
        """The random generator; for an int, one that only this fit uses.

        A callable `init` may keep the generator beyond the fit, so it gets one of NumPy's.
        """
        seed = self.random_state
        if seed is None and self.checkpoint is not None:
            seed = np.random.randint(2**31)  # the checkpoint stores the state of its generator
        if isinstance(seed, (int, np.integer)) and 0 <= seed < 2**32 and not callable(init.method):
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


@dataclass(frozen=True)
class Runs:
    """What the runs of one fit have in common."""

    problem: Problem
    k: int
    plan: Plan
    max_iter: int
    reports: Reports

    def run(
        self,
        number: int,
        centres: Matrix,
        checkpoint: Checkpoint | None,
        resumed: Resumed | None = None,
    ) -> Run:
        return lloyd_loop(
            self.problem,
            centres,
            policy=Policy(self.plan.choice, self.plan.work, self.max_iter),
            max_iter=self.max_iter,
            run=number,
            reports=self.reports,
            resumed=resumed,
            checkpoint=checkpoint,
        )

    def resume(self, state: Resume, checkpoint: Checkpoint | None) -> Run:
        """The run that a checkpoint holds."""
        resumed = Resumed(state.history, state.limited, state.stop)
        return self.run(state.run, state.centres, checkpoint, resumed)

    def with_labels(self, known: dict[str, Any] | None) -> Run | None:
        """A run from a checkpoint, with labels recomputed from its centres."""
        if known is None:
            return None
        engine, centres = self.problem.engine, known["centres"]
        self.problem.start("lloyd", centres.shape[0])
        centroids, limited = self.problem.frame.centroids(centres, engine), known["limited"]
        if limited is None:
            engine.assign(centroids)
        else:
            engine.assign_by_prices(centroids, limited.prices, limited.border)
        return Run(labels=engine.final_labels(), **known)
