"""What the estimators of trees share: rows opened, the tree kept, leaves found."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils.validation import check_is_fitted

from exactmeans.data.arrays import Matrix, as_array
from exactmeans.data.stream import Stream, as_blocks, count_rows
from exactmeans.data.weights import check_weights, weights_of
from exactmeans.engine.local.engine import LocalEngine
from exactmeans.io import model_file
from exactmeans.memory import check_memory_limit
from exactmeans.metrics import METRICS
from exactmeans.parameters import check_int, check_n_jobs, refuse, warn
from exactmeans.tree import export
from exactmeans.tree.growth import Grown
from exactmeans.tree.nodes import Frames, Ids, Nodes
from exactmeans.tree.route import Router


def refuse_over_limit(needed: int, what: str, limit: int | None) -> None:
    """Refuse a fit of `what` that needs more bytes than memory_limit."""
    if limit is not None and needed > limit:
        raise ValueError(
            f"memory_limit must be at least {needed:,} bytes for {what}, but it is {limit:,}."
        )


class FittedTree(
    ClusterMixin,  # type: ignore[misc, unused-ignore]
    BaseEstimator,  # type: ignore[misc, unused-ignore]
):
    """A tree in flat arrays, and what it does with rows."""

    n_jobs: int | None
    memory_limit: int | float | str | None

    parent_: Ids
    children_: Ids
    depth_: NDArray[np.int32]
    size_: Ids
    node_inertia_: NDArray[np.float64]
    node_seed_: NDArray[np.uint32]
    node_n_iter_: NDArray[np.int32]
    leaves_: Ids
    leaf_of_row_: Ids
    labels_: NDArray[np.int32]
    n_features_in_: int
    _node_centres: Matrix
    _frames: Frames
    _metric: str

    # -- parts of fit --------------------------------------------------------------------------

    def _open_rows(
        self, X: Any, sample_weight: Any, metric: str, dtype: np.dtype[Any] | None
    ) -> LocalEngine:
        limit = check_memory_limit(self.memory_limit)
        blocks = as_blocks(self, X, reset=True, dtype=dtype)
        weights = check_weights(weights_of(X, sample_weight), count_rows(blocks))
        return LocalEngine(
            blocks,
            weights,
            check_n_jobs(self.n_jobs),
            METRICS[metric],
            "refuse",
            scratch_limit=None if limit is None else limit // 4,
            feature_names=getattr(self, "feature_names_in_", None),
        )

    def _keep(self, grown: Grown, metric: str) -> None:
        nodes = grown.nodes
        self.parent_, self.children_, self.depth_ = nodes.parent, nodes.children, nodes.depth
        self.size_, self.node_inertia_ = nodes.size, nodes.inertia
        self.node_seed_, self.node_n_iter_ = nodes.seed, nodes.n_iter
        self._node_centres, self._frames, self._metric = nodes.centres, nodes.frames, metric
        self._use(nodes)
        self.leaves_ = nodes.leaves
        self.leaf_of_row_ = grown.node_of_row
        self.labels_ = nodes.leaf_number[grown.node_of_row].astype(np.int32)

    def _warn_of_infinite_inertia(self) -> None:
        if np.isinf(self.node_inertia_[1:]).any():  # the root is split in any case
            warn(
                "node_inertia_ is infinite for some nodes, because squared distances of X exceed "
                "float64, so nodes may be split in another order: divide X by a power of two.",
                RuntimeWarning,
            )

    # -- the tree ------------------------------------------------------------------------------

    def _nodes(self) -> Nodes:
        return self._router().nodes

    def _router(self) -> Router:
        """Derived from the arrays, so it is kept in no file."""
        router: Router | None = self.__dict__.get("_router_cache")
        return router if router is not None else self._use(self._assembled())

    def _use(self, nodes: Nodes) -> Router:
        router = self._router_cache = Router(nodes)
        return router

    def _assembled(self) -> Nodes:
        return Nodes(
            self.parent_,
            self.children_,
            self.depth_,
            self.size_,
            self.node_inertia_,
            self.node_seed_,
            self.node_n_iter_,
            self._node_centres,
            self._frames,
        )

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_router_cache"}

    def _check_file(self) -> None:
        """Refuse arrays of a file that do not make a tree."""
        nodes, d = self._assembled(), self.n_features_in_
        n, frames = len(nodes), nodes.frames
        ids = np.arange(1, n)
        whole = (
            n > 0
            and len(nodes.children) == n + 1
            and all(len(a) == n for a in (nodes.depth, nodes.size, frames.exponent))
            and (np.diff(nodes.children) >= 0).all()
            and nodes.children[0] == 1
            and nodes.children[-1] == n
            and nodes.parent[0] == -1
            and ((nodes.parent[1:] >= 0) & (nodes.parent[1:] < ids)).all()
            and (nodes.children[nodes.parent[1:]] <= ids).all()
            and (ids < nodes.children[nodes.parent[1:] + 1]).all()
            and (nodes.depth[1:] == nodes.depth[nodes.parent[1:]] + 1).all()
            and nodes.centres.shape == (n, d)
            and frames.shifts.shape == (len(frames.shifts), d)
            and frames.shift_of.max(initial=-1) < len(frames.shifts)
            and (frames.price is None or np.isfinite(frames.price).all())
            and (frames.price is None or len(frames.price) == n)
            and self._metric in METRICS
        )
        values = nodes.centres if isinstance(nodes.centres, np.ndarray) else nodes.centres.data
        if not whole or not np.isfinite(values).all() or not np.isfinite(frames.shifts).all():
            raise ValueError("its arrays do not make a tree.")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted tree to a file for `exactmeans.load`.

        Needs `pip install exactmeans[io]`.

        Parameters
        ----------
        path : str or path
            Replaced at once, or not at all.

        Examples
        --------
        >>> from exactmeans import KMeansTree, load
        >>> X = [[0.0], [1.0], [10.0], [11.0], [30.0]]
        >>> tree = KMeansTree(branching=2, max_leaf_size=2, random_state=0).fit(X)
        >>> tree.save("tree.safetensors")
        >>> bool((load("tree.safetensors").predict(X) == tree.labels_).all())
        True
        """
        check_is_fitted(self)
        model_file.save(self, path)

    # -- rows ----------------------------------------------------------------------------------

    def _rows(self, X: Any, sample_weight: Any = None) -> LocalEngine:
        """Rows to find leaves for, in the dtype and the layout of the tree."""
        check_is_fitted(self)
        dtype = self._node_centres.dtype
        blocks = as_blocks(self, X, reset=False, dtype=dtype)
        sparse = not isinstance(self._node_centres, np.ndarray)
        if not isinstance(blocks, Stream):
            blocks = [_like(block, sparse=sparse) for block in blocks]
        elif blocks.sparse != sparse:
            kind = "sparse" if sparse else "dense"
            raise ValueError(f"X must be {kind}, as the rows of fit were, if it comes in blocks.")
        names = getattr(self, "feature_names_in_", None)
        engine = LocalEngine(
            blocks,
            check_weights(weights_of(X, sample_weight), count_rows(blocks)),
            check_n_jobs(self.n_jobs),
            METRICS[self._metric],
            "refuse",
            feature_names=names,
        )
        engine.examine(to_fit=False)
        return engine

    def _leaves_of(self, X: Any, beam: int = 1) -> Ids:
        beam = check_int("beam", beam, 1)
        engine = self._rows(X)
        router = self._router()
        return router.leaves(engine) if beam == 1 else router.beam(engine, beam, 1)[:, 0]

    def decision_path(self, X: Any) -> sp.csr_array:
        """The nodes that each row visits on its way from the root to its leaf.

        Parameters
        ----------
        X : array-like, sparse matrix, BlockSource or path of shape (n_samples, n_features)

        Returns
        -------
        path : CSR array of shape (n_samples, n_nodes)
            1 where a row visits a node.

        Examples
        --------
        >>> from exactmeans import KMeansTree
        >>> X = [[0.0], [1.0], [10.0], [11.0], [30.0]]
        >>> tree = KMeansTree(branching=2, max_leaf_size=2, random_state=0).fit(X)
        >>> tree.decision_path([[29.0]]).toarray()
        array([[1., 0., 1., 0., 0.]])
        """
        leaves = self._leaves_of(X)
        return self._nodes().paths(leaves)

    # -- other forms ---------------------------------------------------------------------------

    def to_newick(self, names: Sequence[Any] | None = None) -> str:
        """The tree in Newick's format, which programs for phylogenetic trees read.

        Parameters
        ----------
        names : sequence or None, default=None
            Names of the leaves; None takes their numbers. Names with anything but letters, digits
            and `.-+/` are put into single quotes, and quotes in them are doubled.

        Returns
        -------
        str

        Examples
        --------
        >>> from exactmeans import KMeansTree
        >>> X = [[0.0], [1.0], [10.0], [11.0], [30.0]]
        >>> tree = KMeansTree(branching=2, max_leaf_size=2, random_state=0).fit(X)
        >>> tree.to_newick()
        '((0,1),2);'
        """
        check_is_fitted(self)
        if names is not None:
            sequence = hasattr(names, "__len__") and hasattr(names, "__getitem__")
            if not sequence or isinstance(names, Mapping):
                refuse("names", names, "None or a sequence of the names of the leaves")
            names = list(names)  # a Series would look for the numbers of leaves in its index
            if len(names) != len(self.leaves_):
                raise ValueError(
                    f"names must have one entry for each of the {len(self.leaves_)} leaves, but it "
                    f"has {len(names)}."
                )
        return export.newick(self._nodes(), names)

    def to_networkx(self) -> Any:
        """The tree as a `networkx.DiGraph` from parents to children.

        Nodes have the attributes `depth`, `size`, `inertia` and `leaf`, the number of the leaf or
        None. Needs `pip install networkx`.

        Returns
        -------
        networkx.DiGraph

        Examples
        --------
        >>> from exactmeans import KMeansTree
        >>> X = [[0.0], [1.0], [10.0], [11.0], [30.0]]
        >>> tree = KMeansTree(branching=2, max_leaf_size=2, random_state=0).fit(X)
        >>> graph = tree.to_networkx()
        >>> sorted(graph.successors(0))
        [1, 2]
        """
        check_is_fitted(self)
        return export.networkx(self._nodes())

    def to_pecos(self) -> list[sp.csc_matrix]:
        """The cluster chain of PECOS: the tree of the rows of fit, level by level.

        Leaves above the last level are repeated down to it, as single children.

        Returns
        -------
        chain : list of CSC matrices, float32
            Each has one row per node of a level and one column per node of the level before; the
            last one has one row per row of fit. `ClusterChain` of `pecos.utils.cluster_util` takes
            it.

        Examples
        --------
        >>> from exactmeans import KMeansTree
        >>> X = [[0.0], [1.0], [10.0], [11.0], [30.0]]
        >>> tree = KMeansTree(branching=2, max_leaf_size=2, random_state=0).fit(X)
        >>> [level.shape for level in tree.to_pecos()]
        [(2, 1), (3, 2), (5, 3)]
        """
        check_is_fitted(self)
        return export.cluster_chain(self._nodes(), self.leaf_of_row_)

    def to_vectors(self) -> dict[str, NDArray[Any]]:
        """The table of centres from which vector indexes are built: id, parent, vector.

        Returns
        -------
        table : dict of arrays
            `id` and `parent` (-1 for the root; NULL in a database) of shape (n_nodes,), `vector` of
            shape (n_nodes, n_features), float32, and `depth`. `vector[depth == level]` are the
            centroids of one level as FAISS takes them.

        Examples
        --------
        >>> from exactmeans import KMeansTree
        >>> X = [[0.0], [1.0], [10.0], [11.0], [30.0]]
        >>> tree = KMeansTree(branching=2, max_leaf_size=2, random_state=0).fit(X)
        >>> table = tree.to_vectors()
        >>> table["parent"].tolist(), table["vector"][0].tolist()
        ([-1, 0, 0, 1, 1], [10.399999618530273])
        """
        check_is_fitted(self)
        return {
            "id": np.arange(len(self.parent_)),
            "parent": self.parent_.copy(),
            "depth": self.depth_.copy(),
            "vector": export.float32_level(self._node_centres),
        }

    def fit_predict(self, X: Any, y: Any = None, sample_weight: Any = None) -> NDArray[np.int32]:
        """Fit and return `labels_`.

        Examples
        --------
        >>> from exactmeans import KMeansTree
        >>> X = [[0.0], [1.0], [10.0], [11.0], [30.0]]
        >>> KMeansTree(branching=2, max_leaf_size=2, random_state=0).fit_predict(X)
        array([0, 0, 1, 1, 2], dtype=int32)
        """
        labels: NDArray[np.int32] = self.fit(X, sample_weight=sample_weight).labels_
        return labels

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _like(block: Matrix, *, sparse: bool) -> Matrix:
    return sp.csr_array(block) if sparse else as_array(block)
