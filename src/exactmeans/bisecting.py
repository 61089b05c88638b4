"""BisectingKMeans: scikit-learn's estimator on the machinery of trees."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import closing
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from exactmeans.data.centres import for_users
from exactmeans.data.rows import refuse_few_rows
from exactmeans.data.stream import is_source
from exactmeans.engine.frame import Frame
from exactmeans.engine.local.engine import LocalEngine
from exactmeans.estimators.base import RestoredOnError
from exactmeans.fit.problem import unscaled
from exactmeans.io import model_file
from exactmeans.memory import check_memory_limit
from exactmeans.parameters import check_choice, check_int, check_random_state, check_real, warn
from exactmeans.tree.bisect import BisectingGrowth, Bisector
from exactmeans.tree.fitted import FittedTree, refuse_over_limit
from exactmeans.tree.split import SplitParameters
from exactmeans.tree.stops import LARGEST

__all__ = ["BisectingKMeans"]


@model_file.loadable
class BisectingKMeans(
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc, unused-ignore]
    TransformerMixin,  # type: ignore[misc, unused-ignore]
    FittedTree,
):
    """Bisecting k-means, a drop-in replacement of scikit-learn's.

    Splits the cluster with the largest inertia, or the most rows, in two until there are
    `n_clusters`. The draws follow scikit-learn's: in float64 the same `random_state` gives its
    clustering, up to rows at the same distance from two centres to within rounding. The bits do
    not depend on the number of threads, and `labels_` is what `predict` gives.

    Parameters
    ----------
    n_clusters : int, default=8
        How many clusters to form.
    init : {'k-means++', 'random'} or callable, default='random'
        Initial centres of each bisection; a callable `init(X, 2, random_state)` gets the rows of
        the cluster and returns two centres.
    n_init : int, default=1
        Runs of each bisection, of which the one with the lowest inertia is kept.
    random_state : int, RandomState instance or None, default=None
        Makes the choice of initial centres reproducible.
    max_iter : int, default=300
        The most iterations of a bisection.
    verbose : int, default=0
        Accepted for compatibility.
    tol : float, default=1e-4
        A bisection ends when the squared distances that its centres moved sum to at most `tol`,
        in units of the data, as in scikit-learn; or earlier, when no label changes.
    copy_x : bool, default=True
        Accepted for compatibility: the data is never modified.
    algorithm : {'lloyd', 'elkan'}, default='lloyd'
        Accepted for compatibility: both give the same labels.
    bisecting_strategy : {'biggest_inertia', 'largest_cluster'}, default='biggest_inertia'
        Which cluster to split next: the one with the largest inertia or with the most rows.
    n_jobs : int or None, default=None
        Threads to use, as in `KMeans`.
    memory_limit : int, float, str or None, default=None
        The most memory to use beside the data, as in `KMeans`.

    Attributes
    ----------
    cluster_centers_ : ndarray or CSR array of shape (n_clusters, n_features)
    labels_ : ndarray of shape (n_samples,)
        The cluster of each row; always what `predict` gives.
    inertia_ : float
        Sum of squared distances of the rows to the centres of their clusters, weighted.
    parent_, children_, depth_, size_, node_inertia_, leaves_, leaf_of_row_ : ndarray
        The tree of bisections, as in `KMeansTree`.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Only when `X` has column names that are all strings.

    Examples
    --------
    >>> import numpy as np
    >>> from exactmeans import BisectingKMeans
    >>> X = np.array([[1, 1], [10, 1], [3, 1], [10, 0], [2, 1], [10, 2], [10, 8], [10, 9]])
    >>> bisecting = BisectingKMeans(n_clusters=3, random_state=0).fit(X)
    >>> bisecting.labels_
    array([0, 2, 0, 2, 0, 2, 1, 1], dtype=int32)
    >>> bisecting.predict([[0, 0], [12, 3]])
    array([0, 2], dtype=int32)
    """

    _saved_as = "BisectingKMeans"  # the class that exactmeans.load makes

    cluster_centers_: Any
    inertia_: float
    _frame: Frame
    _n_features_out: int

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        init: Literal["k-means++", "random"] | Callable[..., Any] = "random",
        n_init: int = 1,
        random_state: Any = None,
        max_iter: int = 300,
        verbose: int = 0,
        tol: float = 1e-4,
        copy_x: bool = True,
        algorithm: Literal["lloyd", "elkan"] = "lloyd",
        bisecting_strategy: Literal["biggest_inertia", "largest_cluster"] = "biggest_inertia",
        n_jobs: int | None = None,
        memory_limit: int | float | str | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.init = init
        self.n_init = n_init
        self.random_state = random_state
        self.max_iter = max_iter
        self.verbose = verbose
        self.tol = tol
        self.copy_x = copy_x
        self.algorithm = algorithm
        self.bisecting_strategy = bisecting_strategy
        self.n_jobs = n_jobs
        self.memory_limit = memory_limit

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Cluster the rows of X.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : Ignored
        sample_weight : array-like of shape (n_samples,), default=None
            How much each row counts; not used by a callable `init`.

        Returns
        -------
        self

        Examples
        --------
        >>> from exactmeans import BisectingKMeans
        >>> model = BisectingKMeans(2, random_state=0).fit([[0.0], [2.0], [9.0]])
        >>> model.cluster_centers_
        array([[1.],
               [9.]])
        """
        with RestoredOnError(self):
            k = check_int("n_clusters", self.n_clusters, 1)
            parameters = self._check_parameters()
            n_init = check_int("n_init", self.n_init, 1)
            strategies = ("biggest_inertia", "largest_cluster")
            strategy = check_choice("bisecting_strategy", self.bisecting_strategy, strategies)
            if is_source(X):
                raise ValueError(
                    "X must not come in blocks for BisectingKMeans: KMeansTree takes blocks."
                )
            with closing(self._open_rows(X, sample_weight, "euclidean", None)) as engine:
                refuse_few_rows(engine.n, k)
                self._refuse_over_limit(engine, k, parameters.memory_limit)
                rng = check_random_state(self.random_state)
                bisector = Bisector(engine, parameters, self.init, n_init, rng)
                growth = BisectingGrowth(bisector, k, by_inertia=strategy == "biggest_inertia")
                self._keep(growth.grow(), "euclidean")
                self._frame = bisector.whole.frame
            found = len(self.leaves_)
            if found < k:
                warn(
                    f"Number of distinct clusters ({found}) found smaller than n_clusters ({k}). "
                    "Possibly due to duplicate points in X.",
                    ConvergenceWarning,
                )
            if strategy == "biggest_inertia" or n_init > 1:
                self._warn_of_infinite_inertia()
            self.cluster_centers_ = for_users(self._node_centres[self.leaves_], "auto")
            self.inertia_ = math.fsum(self.node_inertia_[self.leaves_])
            self._n_features_out = found
        return self

    @staticmethod
    def _refuse_over_limit(engine: LocalEngine, k: int, limit: int | None) -> None:
        # Numbers of rows at two levels, labels and bounds; centres of all nodes; copies of rows.
        needed = 28 * engine.n
        if engine.sparse:
            needed += int(engine.bytes_of_rows())
        else:
            needed += (2 * k - 1) * engine.d * engine.dtype.itemsize
        what = f"{k:,} clusters of {engine.n:,} rows and {engine.d:,} columns"
        refuse_over_limit(needed, what, limit)

    def _check_parameters(self) -> SplitParameters:
        check_choice("algorithm", self.algorithm, ("lloyd", "elkan"))
        if not callable(self.init):
            check_choice("init", self.init, ("k-means++", "random"), "a callable")
        return SplitParameters(
            self.init if isinstance(self.init, str) else "given",
            min(check_int("max_iter", self.max_iter, 1), LARGEST),
            check_real("tol", self.tol, 0),
            check_memory_limit(self.memory_limit),
            relative=False,
        )

    def predict(self, X: Any) -> NDArray[np.int32]:
        """The cluster of each row, found by following the bisections from the first one on.

        Parameters
        ----------
        X : array-like, sparse matrix, BlockSource or path of shape (n_samples, n_features)

        Returns
        -------
        labels : ndarray of shape (n_samples,)

        Examples
        --------
        >>> from exactmeans import BisectingKMeans
        >>> model = BisectingKMeans(2, random_state=0).fit([[0.0], [2.0], [9.0]])
        >>> model.predict([[3.0], [8.0]])
        array([0, 1], dtype=int32)
        """
        leaves = self._leaves_of(X)
        return self._nodes().leaf_number[leaves].astype(np.int32)

    def transform(self, X: Any) -> NDArray[Any]:
        """Distances of each row to each centre.

        Parameters
        ----------
        X : array-like, sparse matrix, BlockSource or path of shape (n_samples, n_features)

        Returns
        -------
        distances : ndarray of shape (n_samples, n_clusters)

        Examples
        --------
        >>> from exactmeans import BisectingKMeans
        >>> model = BisectingKMeans(2, random_state=0).fit([[0.0], [2.0], [9.0]])
        >>> model.transform([[3.0], [8.0]])
        array([[2., 6.],
               [7., 1.]])
        """
        engine, frame = self._rows(X), self._frame
        centres = self._node_centres[self.leaves_]
        return engine.transform(centres, frame.shift_of(engine), frame.cost_exponent)

    def fit_transform(self, X: Any, y: Any = None, sample_weight: Any = None) -> NDArray[Any]:
        """Fit and return the distances of X to the centres.

        Examples
        --------
        >>> from exactmeans import BisectingKMeans
        >>> BisectingKMeans(2, random_state=0).fit_transform([[0.0], [2.0], [9.0]])
        array([[1., 9.],
               [1., 7.],
               [8., 0.]])
        """
        return self.fit(X, sample_weight=sample_weight).transform(X)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Minus the inertia of X at the nearest centres.

        Parameters
        ----------
        X : array-like, sparse matrix, BlockSource or path of shape (n_samples, n_features)
        y : Ignored
        sample_weight : array-like of shape (n_samples,), default=None

        Returns
        -------
        score : float

        Examples
        --------
        >>> from exactmeans import BisectingKMeans
        >>> model = BisectingKMeans(2, random_state=0).fit([[0.0], [2.0], [9.0]])
        >>> model.score([[3.0], [8.0]])
        -5.0
        """
        check_is_fitted(self)
        engine = self._rows(X, sample_weight)
        centres, exponent = self._node_centres[self.leaves_], self._frame.cost_exponent
        engine.start("lloyd", centres.shape[0])
        _, inertia = engine.cost(self._frame.centroids(centres, engine), centres, exponent)
        return -unscaled(inertia, exponent)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
