"""The base of the estimators: checks parameters, fits, and keeps the result."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from exactmeans.callbacks import Callback, Progress, TakesCallbacks, Tasks, check_callbacks
from exactmeans.data.centres import for_users
from exactmeans.data.rows import refuse_few_rows
from exactmeans.data.stream import Stream, as_blocks, count_rows
from exactmeans.data.weights import check_weights, weights_of
from exactmeans.engine.frame import Frame
from exactmeans.engine.labels import FinalLabels, count_clusters
from exactmeans.engine.local.digest import Digest
from exactmeans.engine.local.engine import LocalEngine
from exactmeans.engine.protocol import Engine
from exactmeans.estimators.fitted import FittedKMeans
from exactmeans.fit.centres_cache import CentroidsCache
from exactmeans.fit.loop import Run
from exactmeans.fit.policy import Choice
from exactmeans.memory import check_memory_limit
from exactmeans.metrics import METRIC_NAMES, METRICS, Metric, MetricName
from exactmeans.parameters import (
    check_choice,
    check_dtype,
    check_int,
    check_n_jobs,
    check_real,
    warn,
)


@dataclass(frozen=True)
class FitParameters:
    """Parameters that every estimator has, checked."""

    k: int
    max_iter: int
    tol: float
    metric: Metric
    memory_limit: int | None
    callbacks: list[Callback]
    dtype: np.dtype[Any] | None

    @property
    def scratch_limit(self) -> int | None:
        """Bytes that dense copies of sparse centres, or projections of rows, may take."""
        return None if self.memory_limit is None else self.memory_limit // 4


class BaseKMeans(TakesCallbacks, FittedKMeans, ABC):
    """The parameters that all estimators have, and what a fit does with them.

    `KMeans` documents them.
    """

    n_clusters: int
    init: Any
    n_init: Literal["auto"] | int
    max_iter: int
    tol: float
    verbose: int
    random_state: Any
    metric: MetricName
    callbacks: Callback | Sequence[Callback] | None
    sparse_centers: Literal["auto"] | bool
    init_options: Mapping[str, Any] | None
    dtype: Any

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Cluster the rows of X.

        Parameters
        ----------
        X : array-like, sparse matrix, BlockSource or path of shape (n_samples, n_features)
            The data, used without a copy unless it has to be converted to float64 or CSR. Files
            (a path, a list of paths, a pattern) are opened by `open_blocks`.
        y : Ignored
        sample_weight : array-like of shape (n_samples,), default=None
            The weight of each row; a callable or given `init` does not use it.

        Returns
        -------
        self

        Examples
        --------
        >>> from exactmeans import KMeans
        >>> kmeans = KMeans(2, random_state=0).fit([[0.0], [1.0], [9.0]], sample_weight=[3, 1, 1])
        >>> sorted(kmeans.cluster_centers_.tolist())
        [[0.25], [9.0]]
        """
        with RestoredOnError(self), Progress(self.verbose) as progress:
            if Tasks.wanted(self):
                Tasks.managed(type(self)._fit)(self, X, y, sample_weight, progress)
            else:
                self._fit(X, y, sample_weight, progress)
        return self

    def fit_predict(self, X: Any, y: Any = None, sample_weight: Any = None) -> NDArray[np.int32]:
        """Fit and return `labels_`.

        Examples
        --------
        >>> from exactmeans import KMeans
        >>> KMeans(2, init=[[0.0], [9.0]]).fit_predict([[0.0], [1.0], [9.0]])
        array([0, 0, 1], dtype=int32)
        """
        return self.fit(X, sample_weight=sample_weight).labels_

    def fit_transform(self, X: Any, y: Any = None, sample_weight: Any = None) -> NDArray[Any]:
        """Fit and return the distances of X to the centres.

        Examples
        --------
        >>> from exactmeans import KMeans
        >>> KMeans(2, init=[[0.0], [9.0]]).fit_transform([[0.0], [2.0], [9.0]])
        array([[1., 9.],
               [1., 7.],
               [8., 0.]])
        """
        distances: NDArray[Any] = self.fit(X, sample_weight=sample_weight).transform(X)
        return distances

    # -- parts of fit --------------------------------------------------------------------------

    @abstractmethod
    def _fit(self, X: Any, y: Any, sample_weight: Any, progress: Progress) -> None:
        """Fit, and set the attributes by `_keep`; `fit` restores them if this fails."""

    def _check_parameters(self, metrics: tuple[str, ...] = METRIC_NAMES) -> FitParameters:
        """The parameters that every estimator has; those about X and `init` are checked later."""
        k = check_int("n_clusters", self.n_clusters, 1)
        max_iter = check_int("max_iter", self.max_iter, 1)
        tol = check_real("tol", self.tol, 0)
        check_choice("zero_rows", self.zero_rows, ("error", "keep"))
        metric = METRICS[check_choice("metric", self.metric, metrics)]
        if not isinstance(self.sparse_centers, (bool, np.bool_)):
            check_choice("sparse_centers", self.sparse_centers, ("auto",), "True or False")
        return FitParameters(
            k,
            max_iter,
            tol,
            metric,
            check_memory_limit(self.memory_limit),
            check_callbacks(self.callbacks),
            check_dtype(self.dtype),
        )

    def _open_rows(
        self, X: Any, sample_weight: Any, parameters: FitParameters, digest: Digest | None = None
    ) -> LocalEngine:
        """The engine of the rows of X in this process."""
        blocks = as_blocks(self, X, reset=True, dtype=parameters.dtype)
        n = count_rows(blocks)
        refuse_few_rows(n, parameters.k)
        weights = check_weights(weights_of(X, sample_weight), n)
        if isinstance(blocks, Stream) or len(blocks) > 1:
            parameters.metric.refuse_blocks()
        return LocalEngine(
            blocks,
            weights,
            check_n_jobs(self.n_jobs),
            parameters.metric,
            self.zero_rows,
            scratch_limit=parameters.scratch_limit,
            feature_names=getattr(self, "feature_names_in_", None),
            digest=digest,
        )

    def _labels_for_users(self, labels: FinalLabels, engine: Engine) -> Any:
        """`labels_` from the labels of this engine; `cluster_centers_` is already set."""
        return labels

    def _keep(self, best: Run, frame: Frame, choice: Choice, engine: Engine) -> None:
        k, found = best.centres.shape[0], count_clusters(best.labels)
        if found < k:
            warn(
                f"Number of distinct clusters ({found}) found smaller than n_clusters "
                f"({k}). Possibly due to duplicate points in X.",
                ConvergenceWarning,
            )
        if not math.isfinite(best.inertia):
            warn(
                "inertia_ is infinite, because squared distances of X exceed float64; labels_ and "
                "cluster_centers_ are right, but runs of n_init cannot be compared: divide X by a "
                "power of two.",
                RuntimeWarning,
            )
        self.cluster_centers_ = for_users(best.centres, self.sparse_centers, engine.n_jobs)
        self._n_features_out, self._n_rows = k, engine.n
        self._frame = frame
        self._centroids_cache = CentroidsCache()
        self.labels_ = self._labels_for_users(best.labels, engine)
        self.inertia_ = best.inertia
        self.n_iter_ = len(best.history)
        self.history_ = best.history
        self.n_distances_ = best.distances
        self.algorithm_ = best.stages[-1][1]
        self._choice = choice
        self._stages = best.stages
        self._stopped = best.stopped
        self._n_jobs_used = engine.n_jobs
        self._keep_limited(best.limited)
        self._passes, self._unread = engine.passes, engine.unread


class RestoredOnError:
    """Restores the estimator if its fit fails or is interrupted."""

    def __init__(self, estimator: object) -> None:
        self._now, self._before = estimator.__dict__, estimator.__dict__.copy()

    def __enter__(self) -> None:
        pass

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is not None:  # Ctrl-C too
            self._now.clear()
            self._now.update(self._before)


def with_defaults(init: Any, /, **defaults: Any) -> Any:
    """The same `__init__` with other defaults of keyword parameters.

    A function of its own, not a wrapper, so that `inspect.signature`, `get_params` and `clone` see
    the new defaults, and the parameters are written once.
    """
    own = FunctionType(init.__code__, init.__globals__, "__init__", init.__defaults__)
    own.__kwdefaults__ = {**(init.__kwdefaults__ or {}), **defaults}
    own.__annotations__, own.__doc__ = init.__annotations__, init.__doc__
    return own
