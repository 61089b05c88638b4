"""KMeansTree: hierarchical k-means for labels, indexes and very large numbers of clusters."""

from __future__ import annotations

from contextlib import closing
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from exactmeans.data.arrays import Matrix
from exactmeans.engine.local.engine import LocalEngine
from exactmeans.estimators.base import RestoredOnError
from exactmeans.fit.problem import refuse_large_sums
from exactmeans.io import model_file
from exactmeans.memory import check_memory_limit
from exactmeans.metrics import METRIC_NAMES, METRICS, MetricName
from exactmeans.parameters import (
    check_choice,
    check_dtype,
    check_int,
    check_random_state,
    check_real,
    refuse,
    warn,
)
from exactmeans.seeding.init import InitName, check_init
from exactmeans.tree.fitted import FittedTree, refuse_over_limit
from exactmeans.tree.growth import Growth
from exactmeans.tree.split import CORE_INITS, SplitParameters, Splitter, least_gathered
from exactmeans.tree.stops import LARGEST, Stops

__all__ = ["KMeansTree"]


@model_file.loadable
class KMeansTree(
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc, unused-ignore]
    TransformerMixin,  # type: ignore[misc, unused-ignore]
    FittedTree,
):
    """A tree of clusters: k-means of all rows, then of the rows of each cluster, and so on.

    Every node is split by the k-means of its own rows, which `KMeans` gives for the same rows and
    the node's seed, up to float64 rows at the same distance from two initial centres. Seeds are
    derived from the path of the node, so the tree has the same bits for any number of threads and
    any order of work. Small nodes are split inside the core, thousands of them per call.

    Parameters
    ----------
    branching : int, default=100
        The most children of a node. A node with fewer distinct rows has fewer; no child is empty.
    max_leaf_size : int or None, default=None
        Nodes with at most this many rows are leaves. None means `branching` if `max_depth` and
        `n_leaves` are None as well, else 1. The stops complement each other: the first that
        applies makes a node a leaf. So with `max_depth` or `n_leaves` a leaf may have more rows.
    max_depth : int or None, default=None
        Nodes at this depth are leaves; the root has depth 0.
    n_leaves : int or None, default=None
        Always split the leaf with the largest inertia, until there are this many leaves. The last
        split may have fewer than `branching` children. There are fewer leaves if other stops or
        equal rows leave none to split. Refused if it contradicts another stop: fewer leaves than
        the rows need with `max_leaf_size`, or more than any tree has under the other stops.
    balanced : bool, default=False
        Give the children of a node equal sizes, up to one row, at the least cost; with
        `branching=2` this is the median split. A node of n rows gets at most
        ceil(n / max_leaf_size) children. Rows that are equal stay together. `predict` applies the
        prices that balance the children of each node, so it gives `labels_` for the rows of fit;
        new rows are not balanced.
    metric : {'euclidean', 'cosine', 'angular', 'manhattan'}, default='euclidean'
        As in `KMeans`. 'angular' and 'manhattan' have no fast path for small nodes, and take
        neither blocks nor `balanced=True`.
    init : {'k-means++', 'random', 'k-means||', 'furthest'} or ('d', alpha), default='k-means++'
        Initial centres of each node, as in `KMeans`. 'k-means++' and 'random' are drawn inside the
        core, which is faster where nodes are small.
    max_iter : int, default=300
        The most iterations of a node.
    tol : float, default=1e-4
        As in `KMeans`, for each node.
    random_state : int, RandomState instance or None, default=None
        The seed of the root, from which all others are derived.
    n_jobs : int or None, default=None
        Threads to use, as in `KMeans`.
    memory_limit : int, float, str or None, default=None
        The most memory to use beside the data, as in `KMeans`.
    dtype : {'float32', 'float64'} or None, default=None
        The dtype to compute in. None keeps float32 and converts everything else to float64.

    Attributes
    ----------
    parent_ : ndarray of shape (n_nodes,)
        The parent of each node; -1 for the root, which is node 0. Nodes are numbered level by
        level, children of a node one after the other.
    children_ : ndarray of shape (n_nodes + 1,)
        The children of node i are `range(children_[i], children_[i + 1])`; none for leaves.
    depth_ : ndarray of shape (n_nodes,)
    size_ : ndarray of shape (n_nodes,)
        Rows of each node.
    node_inertia_ : ndarray of shape (n_nodes,)
        The inertia of the rows of each node at its centre.
    node_seed_ : ndarray of shape (n_nodes,)
        `random_state` of each node: `KMeans(branching, random_state=node_seed_[i])` of the rows of
        node i gives its children.
    node_n_iter_ : ndarray of shape (n_nodes,)
        Iterations of the split of each node; 0 for leaves.
    leaves_ : ndarray of shape (n_leaves,)
        The node of each leaf. Leaves are numbered from left to right.
    leaf_of_row_ : ndarray of shape (n_samples,)
        The node of each row's leaf.
    labels_ : ndarray of shape (n_samples,)
        The number of each row's leaf; always what `predict` gives.
    cluster_centers_ : list of ndarray or CSR array
        The centres of each level: `cluster_centers_[0]` is the centre of all rows, and
        `cluster_centers_[depth_[i]][i - first]` that of node i, where `first` is the first node of
        the level. CSR if X is sparse.
    inertia_ : float
        The inertia of all rows at the centres of their leaves.
    n_iter_ : int
        Iterations of all nodes.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Only when `X` has column names that are all strings.

    Examples
    --------
    >>> import numpy as np
    >>> from exactmeans import KMeansTree
    >>> X = np.array([[1., 2], [1, 4], [1, 0], [10, 2], [10, 4], [10, 0]])
    >>> tree = KMeansTree(branching=2, max_leaf_size=2, random_state=0).fit(X)
    >>> tree.parent_
    array([-1,  0,  0,  1,  1,  2,  2])
    >>> tree.size_
    array([6, 3, 3, 2, 1, 2, 1])
    >>> bool((tree.predict(X) == tree.labels_).all())
    True
    """

    _saved_as = "KMeansTree"  # the class that exactmeans.load makes

    def __init__(
        self,
        branching: int = 100,
        *,
        max_leaf_size: int | None = None,
        max_depth: int | None = None,
        n_leaves: int | None = None,
        balanced: bool = False,
        metric: MetricName = "euclidean",
        init: InitName = "k-means++",
        max_iter: int = 300,
        tol: float = 1e-4,
        random_state: Any = None,
        n_jobs: int | None = None,
        memory_limit: int | float | str | None = None,
        dtype: Any = None,
    ) -> None:
        self.branching = branching
        self.max_leaf_size = max_leaf_size
        self.max_depth = max_depth
        self.n_leaves = n_leaves
        self.balanced = balanced
        self.metric = metric
        self.init = init
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.memory_limit = memory_limit
        self.dtype = dtype

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Grow the tree of the rows of X.

        Parameters
        ----------
        X : array-like, sparse matrix, BlockSource or path of shape (n_samples, n_features)
            The data. Of data larger than memory, nodes that fit are read into memory; larger ones
            are read block by block in every iteration.
        y : Ignored
        sample_weight : array-like of shape (n_samples,), default=None
            How much each row counts.

        Returns
        -------
        self

        Examples
        --------
        >>> from exactmeans import KMeansTree
        >>> X = [[0.0], [1.0], [10.0], [11.0], [30.0]]
        >>> tree = KMeansTree(branching=2, max_leaf_size=2, random_state=0).fit(X)
        >>> tree.size_
        array([5, 4, 1, 2, 2])
        """
        with RestoredOnError(self):
            stops = Stops.check(self)
            parameters = self._check_parameters()
            metric = check_choice("metric", self.metric, METRIC_NAMES)
            if self.balanced and not METRICS[metric].summed:
                raise ValueError(
                    f"metric must be 'euclidean' or 'cosine' if balanced=True, but it is "
                    f"{metric!r}."
                )
            dtype = check_dtype(self.dtype)
            with closing(self._open_rows(X, sample_weight, metric, dtype)) as engine:
                stops.refuse_rows(engine.n, balanced=parameters.balanced)
                if engine.streamed or len(engine.spans) > 1:
                    engine.metric.refuse_blocks()
                engine.examine()
                if engine.weighted:
                    refuse_large_sums(engine)
                self._refuse_over_limit(engine, stops, parameters)
                growth = Growth(engine, Splitter(engine, parameters), stops, self._seed())
                grown = growth.grow()
                self._keep(grown, metric)
                weighted = engine.counted() is not None
            self._warn_of_equal_rows(stops, weighted=weighted)
            if stops.n_leaves is not None:
                self._warn_of_infinite_inertia()
        return self

    def _check_parameters(self) -> SplitParameters:
        max_iter = min(check_int("max_iter", self.max_iter, 1), LARGEST)
        tol = check_real("tol", self.tol, 0)
        init = check_init(self.init, "('d', alpha)")
        if not isinstance(self.balanced, (bool, np.bool_)):
            refuse("balanced", self.balanced, "True or False")
        if self.balanced and init not in CORE_INITS:
            raise ValueError(
                f"init must be 'k-means++' or 'random' if balanced=True, but it is {init!r}."
            )
        limit = check_memory_limit(self.memory_limit)
        return SplitParameters(init, max_iter, tol, limit, balanced=bool(self.balanced))

    def _seed(self) -> int:
        seed = self.random_state
        if isinstance(seed, (int, np.integer)) and 0 <= seed < 2**32:
            return int(seed)
        return int(check_random_state(seed).randint(2**31))

    @staticmethod
    def _refuse_over_limit(engine: LocalEngine, stops: Stops, parameters: SplitParameters) -> None:
        """Refuse trees whose dense centres, or whose balanced root, cannot fit."""
        leaves = stops.fewest_leaves(engine.n)
        needed = 8 * 3 * engine.n
        if not engine.sparse:
            needed += leaves * engine.d * engine.dtype.itemsize
        if engine.streamed and not parameters.balanced:
            # Gathered rows exist twice while they are put together.
            needed += engine.reading_bytes + 2 * least_gathered(engine)
        if parameters.balanced:
            # A balanced node is split in one piece: a copy of its rows and balance.hpp.
            k = int(stops.most_children(engine.n, balanced=True))
            needed += int(engine.bytes_of_rows()) + engine.n * k * (8 if k == 2 else 56)
        kind = "balanced tree" if parameters.balanced else "tree"
        what = f"a {kind} of {engine.n:,} rows, {engine.d:,} columns and {leaves:,} leaves or more"
        refuse_over_limit(needed, what, parameters.memory_limit)

    def _warn_of_equal_rows(self, stops: Stops, *, weighted: bool) -> None:
        found, n = len(self.leaves_), len(self.labels_)
        counted = " with a positive weight" if weighted else ""
        directed = METRICS[self._metric].directed
        if found == 1 and n > stops.max_leaf_size:
            distinct = (
                f"rows of only one direction{counted}"
                if directed
                else f"only one distinct row{counted}"
            )
            said = f"X has {distinct}, so the tree is a single leaf."
            warn(said, ConvergenceWarning)
        elif found < (stops.n_leaves or 0) and stops.max_depth is None and stops.max_leaf_size == 1:
            distinct = "directions of rows" if directed else "distinct rows"
            said = f"X has fewer {distinct}{counted} than n_leaves={stops.n_leaves}, so the tree"
            warn(f"{said} has {found} leaves.", ConvergenceWarning)

    # -- the fitted tree -----------------------------------------------------------------------

    @property
    def cluster_centers_(self) -> list[Matrix]:
        """The centres of each level."""
        check_is_fitted(self)
        return self._nodes().by_level()

    @property
    def inertia_(self) -> float:
        """The inertia of all rows at the centres of their leaves."""
        check_is_fitted(self)
        return float(self.node_inertia_[self.leaves_].sum())

    @property
    def n_iter_(self) -> int:
        """Iterations of all nodes."""
        check_is_fitted(self)
        return int(self.node_n_iter_.sum())

    @property
    def _n_features_out(self) -> int:
        return len(self.leaves_)

    def predict(self, X: Any, beam: int = 1) -> NDArray[np.int32]:
        """The leaf of each row.

        Parameters
        ----------
        X : array-like, sparse matrix, BlockSource or path of shape (n_samples, n_features)
        beam : int, default=1
            How many nodes to keep at each level. 1 follows the nearest child at each node, as fit
            does; more find nearer leaves. The leaf is the nearest one of those that are reached,
            which are all leaves if `beam` is at least their number.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
            Numbers of leaves, from left to right; `leaves_` has their nodes.

        Examples
        --------
        >>> from exactmeans import KMeansTree
        >>> X = [[0.0], [1.0], [10.0], [11.0], [30.0]]
        >>> tree = KMeansTree(branching=2, max_leaf_size=2, random_state=0).fit(X)
        >>> tree.predict([[2.0], [29.0]])
        array([0, 2], dtype=int32)
        >>> tree.predict([[2.0], [29.0]], beam=2)
        array([0, 2], dtype=int32)
        """
        return self._nodes_to_labels(self._leaves_of(X, beam))

    def _nodes_to_labels(self, nodes: NDArray[np.int64]) -> NDArray[np.int32]:
        return self._nodes().leaf_number[nodes].astype(np.int32)

    def nearest(
        self, X: Any, m: int = 1, *, beam: int | None = None
    ) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """The nearest leaves that a beam search finds for each row, and their distances.

        Parameters
        ----------
        X : array-like, sparse matrix, BlockSource or path of shape (n_samples, n_features)
        m : int, default=1
            How many leaves; at most as many as the tree has.
        beam : int or None, default=None
            How many nodes to keep at each level, at least `m`; None means `m`.

        Returns
        -------
        labels : ndarray of shape (n_samples, m)
            Numbers of leaves, nearest first; the first column is what `predict` gives for the same
            `beam`.
        distances : ndarray of shape (n_samples, m)
            To the centres of the leaves, in float64; 1 - cos for 'cosine', the angle for
            'angular'.

        Examples
        --------
        >>> from exactmeans import KMeansTree
        >>> X = [[0.0], [1.0], [10.0], [11.0], [30.0]]
        >>> tree = KMeansTree(branching=2, max_leaf_size=2, random_state=0).fit(X)
        >>> labels, distances = tree.nearest([[8.0]], m=2)
        >>> distances.tolist()
        [[2.5, 7.5]]
        """
        check_is_fitted(self)
        m, leaves = check_int("m", m, 1), len(self.leaves_)
        if m > leaves:
            raise ValueError(f"m must be at most {leaves}, the number of leaves, but it is {m}.")
        beam = m if beam is None else check_int("beam", beam, 1)
        if beam < m:
            raise ValueError(f"beam must be at least m={m}, but it is {beam}.")
        nodes, distances = self._router().beam_distances(self._rows(X), beam, m)
        return self._nodes_to_labels(nodes), distances

    def transform(self, X: Any) -> sp.csr_array:
        """One column per leaf: 1 in that of the row's leaf.

        Parameters
        ----------
        X : array-like, sparse matrix, BlockSource or path of shape (n_samples, n_features)

        Returns
        -------
        leaf : CSR array of shape (n_samples, n_leaves)

        Examples
        --------
        >>> from exactmeans import KMeansTree
        >>> X = [[0.0], [1.0], [10.0], [11.0], [30.0]]
        >>> tree = KMeansTree(branching=2, max_leaf_size=2, random_state=0).fit(X)
        >>> tree.transform([[2.0], [29.0]]).toarray()
        array([[1., 0., 0.],
               [0., 0., 1.]])
        """
        labels = self.predict(X)
        n, ones = len(labels), np.ones(len(labels), dtype=self._node_centres.dtype)
        return sp.csr_array((ones, labels, np.arange(n + 1)), shape=(n, len(self.leaves_)))

    def fit_transform(self, X: Any, y: Any = None, sample_weight: Any = None) -> sp.csr_array:
        """Fit and return the leaves of X, as `transform` does.

        Examples
        --------
        >>> from exactmeans import KMeansTree
        >>> X = [[0.0], [1.0], [10.0], [11.0], [30.0]]
        >>> KMeansTree(branching=2, max_leaf_size=2, random_state=0).fit_transform(X).shape
        (5, 3)
        """
        self.fit(X, sample_weight=sample_weight)
        n, ones = len(self.labels_), np.ones(len(self.labels_), dtype=self._node_centres.dtype)
        return sp.csr_array((ones, self.labels_, np.arange(n + 1)), shape=(n, len(self.leaves_)))
