"""Trees of k-means: every node against KMeans, growth, prediction."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

from exactmeans import BisectingKMeans, KMeans, KMeansTree, open_blocks
from exactmeans.engine.local.engine import LocalEngine
from exactmeans.tree import split
from exactmeans.tree.export import rows_by_node
from exactmeans.tree.stops import Stops
from trees import KINDS, assert_same_tree, assert_whole, centre_of, data, dense_rows, sparse_rows

Test = TypeVar("Test", bound=Callable[..., None])


# against KMeans -----------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("metric", ["euclidean", "cosine", "angular", "manhattan"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_node_is_the_kmeans_of_its_rows(kind: str, metric: Any, weighted: bool) -> None:
    X = data(kind)
    weights = np.random.default_rng(0).random(X.shape[0]) if weighted else None
    tree = KMeansTree(6, max_leaf_size=100, metric=metric, random_state=3)
    tree.fit(X, sample_weight=weights)
    assert_whole(tree, X.shape[0])
    rows = rows_by_node(tree._nodes(), tree.labels_)
    tried = 0
    for node in np.flatnonzero(np.diff(tree.children_)):
        own = rows[node]
        flat = KMeans(
            6, metric=metric, random_state=int(tree.node_seed_[node]), sparse_centers=True
        )
        flat.fit(X[own], sample_weight=None if weights is None else weights[own])
        children = range(tree.children_[node], tree.children_[node + 1])
        assert len(children) == 6
        assert flat.n_iter_ == tree.node_n_iter_[node]
        for child, label in zip(children, range(6), strict=True):
            assert np.array_equal(rows[child], own[flat.labels_ == label])
            assert abs(centre_of(tree, int(child)) - flat.cluster_centers_[[label]]).max() == 0
        total = math.fsum(tree.node_inertia_[list(children)])
        assert total == pytest.approx(flat.inertia_, rel=1e-14)
        tried += 1
    assert tried > 5


def test_layouts_of_the_rows() -> None:
    X = dense_rows(400)
    tree = KMeansTree(4, max_leaf_size=60, random_state=5)
    expected = clone(tree).fit(X)
    spread = np.zeros((400, 12))
    spread[:, ::2] = X
    for other in (np.asfortranarray(X), spread[:, ::2], X[::-1].copy()[::-1]):
        assert_same_tree(expected, clone(tree).fit(other))


@pytest.mark.parametrize("init", ["random", "k-means||", "furthest", ("d", 1.0)])
def test_other_seeds(init: Any) -> None:
    X = dense_rows(400)
    tree = KMeansTree(4, max_leaf_size=60, init=init, random_state=5).fit(X)
    flat = KMeans(4, init=init, n_init=1, random_state=5).fit(X)
    assert np.array_equal(np.sort(np.bincount(flat.labels_)), np.sort(tree.size_[1:5]))
    assert (tree.predict(X) == tree.labels_).all()


def test_large_nodes_take_the_path_of_kmeans(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways of splitting a node give the same tree."""
    for X in (dense_rows(), sparse_rows()):
        small = KMeansTree(5, max_leaf_size=50, random_state=1).fit(X)
        monkeypatch.setattr(split, "LARGE_ROWS", 200)
        assert_same_tree(small, KMeansTree(5, max_leaf_size=50, random_state=1).fit(X))
        monkeypatch.undo()


# the same bits ------------------------------------------------------------------------------------


@pytest.mark.parametrize("balanced", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_threads_change_nothing(kind: str, balanced: bool) -> None:
    X = data(kind)
    trees = [
        KMeansTree(7, max_leaf_size=20, balanced=balanced, random_state=0, n_jobs=jobs).fit(X)
        for jobs in (1, 2, 5)
    ]
    assert_same_tree(trees[0], trees[1])
    assert_same_tree(trees[0], trees[2])


class Parts:
    """Rows in blocks that are read whenever they are needed."""

    def __init__(self, X: Any, edges: list[int]) -> None:
        self.X, self.edges, self.reads = X, edges, 0
        self.shape, self.dtype = X.shape, X.dtype

    def __len__(self) -> int:
        return len(self.edges) - 1

    def read(self, b: int) -> Any:
        self.reads += 1
        return self.X[self.edges[b] : self.edges[b + 1]]


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_change_nothing(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    X = data(kind)
    whole = KMeansTree(5, max_leaf_size=40, random_state=2)
    monkeypatch.setattr(split, "LARGE_ROWS", 150)  # so that some nodes are read block by block
    whole.fit(X)
    parts = Parts(X, [0, 100, 101, 700, X.shape[0]])
    for budget in (1e9, 5e3):
        monkeypatch.setattr(split, "block_budget", lambda _, budget=budget: budget)
        tree = clone(whole).fit(parts)
        assert_same_tree(whole, tree)
        assert (tree.predict(parts) == whole.labels_).all()
        assert (tree.predict(parts, beam=3) == whole.predict(X, beam=3)).all()


def test_blocks_are_gathered_within_memory_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gathered rows exist twice while they are put together, beside those that are being read."""
    X = dense_rows(3000, 20)
    row = 20 * X.itemsize
    monkeypatch.setattr(split, "LARGE_ROWS", 100)
    gathered: list[int] = []
    pick = LocalEngine.pick

    def counting(self: LocalEngine, ids: NDArray[np.intp]) -> Any:
        gathered.append(len(ids))
        return pick(self, ids)

    monkeypatch.setattr(LocalEngine, "pick", counting)
    parts = Parts(X, list(range(0, 3001, 100)))
    tree = KMeansTree(5, max_leaf_size=20, random_state=0, memory_limit=450_000).fit(parts)
    assert len(gathered) > 3
    reading = 4 * 100 * row
    assert 3 * max(gathered) * row <= 450_000 * 3 // 4 - reading - 28 * 3000
    assert_same_tree(tree, KMeansTree(5, max_leaf_size=20, random_state=0).fit(X))


def test_blocks_that_cannot_be_gathered_are_refused() -> None:
    """Nodes of few rows are split in memory, whatever the blocks."""
    parts = Parts(dense_rows(1500, 100), list(range(0, 1501, 100)))
    with pytest.raises(ValueError, match=r"memory_limit must be at least 2,.* bytes for a tree"):
        KMeansTree(5, max_leaf_size=50, memory_limit="1MB").fit(parts)


def test_files(tmp_path: Path) -> None:
    X = dense_rows(600)
    np.save(tmp_path / "X.npy", X)
    whole = KMeansTree(5, max_leaf_size=40, random_state=2).fit(X)
    assert_same_tree(whole, clone(whole).fit(tmp_path / "X.npy"))
    assert_same_tree(whole, clone(whole).fit(open_blocks(tmp_path / "X.npy", block_rows=50)))


def _mixed(z: int) -> int:
    """splitmix64, in Python's integers."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) % 2**64
    return z ^ (z >> 31)


def test_seeds_follow_from_paths() -> None:
    tree = KMeansTree(5, max_leaf_size=40, random_state=11).fit(dense_rows())
    golden = 0x9E3779B97F4A7C15
    keys = [_mixed(11 + golden)]
    for node in range(1, len(tree.parent_)):
        parent = int(tree.parent_[node])
        child = node - int(tree.children_[parent])
        keys.append(_mixed((keys[parent] + golden * (child + 1)) % 2**64))
    assert tree.node_seed_.tolist() == [11, *(key >> 32 for key in keys[1:])]
    assert len(set(keys)) == len(keys)


# growth -------------------------------------------------------------------------------------------


def test_stops() -> None:
    X = dense_rows()
    tree = KMeansTree(5, max_leaf_size=30, random_state=0).fit(X)
    assert tree.size_[tree.leaves_].max() <= 30
    assert (tree.size_[np.diff(tree.children_) > 0] > 30).all()
    tree = KMeansTree(5, max_depth=2, random_state=0).fit(X)
    assert tree.depth_.max() == 2
    assert len(tree.leaves_) == 25
    tree = KMeansTree(5, random_state=0).fit(X)
    assert tree.size_[tree.leaves_].max() <= 5
    tree = KMeansTree(5, max_depth=1, max_leaf_size=2000, random_state=0).fit(X)
    assert len(tree.parent_) == 1
    assert (tree.labels_ == 0).all()
    assert (tree.predict(X) == 0).all()


@pytest.mark.parametrize("branching", [2, 4, 7])
@pytest.mark.parametrize("n_leaves", [2, 10, 57])
def test_growth_by_inertia(branching: int, n_leaves: int) -> None:
    """Against splitting one leaf after the other."""
    X = dense_rows(700)
    tree = KMeansTree(branching, n_leaves=n_leaves, random_state=4).fit(X)
    assert len(tree.leaves_) == n_leaves
    assert_whole(tree, len(X))
    whole = KMeansTree(branching, max_leaf_size=1, random_state=4).fit(X)
    leaves, last = {0}, False
    rows = rows_by_node(whole._nodes(), whole.labels_)
    while len(leaves) < n_leaves:
        able = [node for node in leaves if whole.children_[node + 1] > whole.children_[node]]
        best = max(able, key=lambda node: (whole.node_inertia_[node], -node))
        children = range(whole.children_[best], whole.children_[best + 1])
        if len(leaves) - 1 + len(children) > n_leaves:
            last = True
            break
        leaves = leaves - {best} | set(children)
    expected = {rows[node].tobytes() for node in leaves}
    own = rows_by_node(tree._nodes(), tree.labels_)
    found = {own[node].tobytes() for node in tree.leaves_}
    if last:  # one leaf more was split, into fewer children
        assert len(expected - found) == 1
    else:
        assert expected == found


@pytest.mark.parametrize(
    "model", [KMeansTree(2, n_leaves=9), BisectingKMeans(9)], ids=["n_leaves", "bisecting"]
)
def test_inertia_that_cannot_be_compared_is_reported(model: Any) -> None:
    """Which node has the largest inertia is unknown where several are infinite."""
    with pytest.warns(RuntimeWarning, match="node_inertia_ is infinite for some nodes"):
        clone(model).fit(dense_rows(100) * 2.0**700)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clone(model).fit(dense_rows(100) * 2.0**400)


@cache
def most_leaves(n: int, branching: int, size: int, balanced: bool) -> int:
    """The most leaves of all trees of n rows, by trying all sizes of children."""
    if n <= size:
        return 1
    if balanced:
        k = min(branching, -(-n // size))
        return sum(most_leaves((n + t) // k, branching, size, True) for t in range(k))
    best = {(0, 0): 0}  # by children and rows so far
    for children, rows in itertools.product(range(min(branching, n)), range(n)):
        if (children, rows) in best:
            for own in range(1, n - rows + (children > 0)):
                key = (children + 1, rows + own)
                grown = best[children, rows] + most_leaves(own, branching, size, False)
                best[key] = max(best.get(key, 0), grown)
    return max(leaves for (children, rows), leaves in best.items() if rows == n)


@pytest.mark.parametrize("balanced", [False, True])
def test_only_stops_that_no_tree_meets_are_refused(balanced: bool) -> None:
    for n, branching, size in itertools.product(range(2, 15), range(2, 6), range(1, 16)):
        possible = most_leaves(n, branching, size, balanced)
        bound = Stops(branching, size, None, 2)._most_leaves(n, balanced=balanced)
        assert bound >= possible if balanced else bound == possible, (n, branching, size)


def test_huge_depth_with_n_leaves() -> None:
    """2**max_depth would not fit in memory."""
    tree = KMeansTree(2, max_depth=10**15, n_leaves=20, random_state=0).fit(dense_rows(300))
    assert len(tree.leaves_) == 20


@pytest.mark.parametrize("balanced", [False, True])
def test_parameters_beyond_int64(balanced: bool) -> None:
    """They mean the same as any number that is large enough."""
    X = dense_rows(60)
    for name, enough in (("branching", 60), ("max_leaf_size", 60), ("max_iter", 300)):
        tree = KMeansTree(3, max_leaf_size=20, balanced=balanced, random_state=0)
        expected = clone(tree).set_params(**{name: enough}).fit(X)
        assert_same_tree(expected, tree.set_params(**{name: 2**63}).fit(X))


def test_several_stops_need_no_more_memory_than_their_fewest_leaves() -> None:
    """With max_leaf_size, two leaves may be enough, so 100 must not be demanded."""
    X = dense_rows(300, 50)
    tree = KMeansTree(2, n_leaves=100, max_leaf_size=200, random_state=0, memory_limit=20_000)
    assert len(tree.fit(X).leaves_) < 100
    for n, size, depth, leaves in itertools.product((7, 30), (1, 3, 8), (None, 1, 2), (None, 2, 6)):
        found = Stops(3, size, depth, leaves).fewest_leaves(n)
        stops: dict[str, Any] = {"max_leaf_size": size, "max_depth": depth}
        if leaves is not None and (leaves * size < n or leaves > 3 ** (depth or 9) or n <= size):
            continue
        tree = KMeansTree(3, n_leaves=leaves, random_state=0, **stops).fit(dense_rows(n))
        assert len(tree.leaves_) >= found, (n, size, depth, leaves)


def test_the_first_of_several_stops_holds() -> None:
    X = dense_rows(300)
    tree = KMeansTree(n_leaves=100, max_leaf_size=200, random_state=0).fit(X)
    assert len(tree.leaves_) == 100
    tree = KMeansTree(2, n_leaves=100, max_leaf_size=200, random_state=0).fit(X)
    assert len(tree.leaves_) < 100
    assert tree.size_[tree.leaves_].max() <= 200
    tree = KMeansTree(2, max_depth=3, max_leaf_size=2, random_state=0).fit(X)
    assert len(tree.leaves_) == 8
    assert tree.size_[tree.leaves_].max() > 2
    tree = KMeansTree(2, n_leaves=20, max_leaf_size=15, random_state=0).fit(X)
    assert len(tree.leaves_) == 20
    assert tree.size_[tree.leaves_].max() > 15


def test_few_distinct_rows_give_few_children() -> None:
    X = np.repeat([[0.0, 0.0], [1.0, 0.0], [5.0, 5.0]], 20, axis=0)
    for rows in (X, sp.csr_array(X), X.astype(np.float32)):
        tree = KMeansTree(10, max_leaf_size=1, random_state=0).fit(rows)
        assert tree.size_[tree.leaves_].tolist() == [20, 20, 20]
        assert_whole(tree, 60)
        assert (tree.predict(rows) == tree.labels_).all()
        balanced = KMeansTree(2, max_leaf_size=1, balanced=True, random_state=0).fit(rows)
        assert sorted(balanced.size_[balanced.leaves_]) == [20, 20, 20]
        assert (balanced.predict(rows) == balanced.labels_).all()


def test_rows_without_weight() -> None:
    X = dense_rows(200)
    weights = np.ones(200)
    weights[10:] = 0
    inits: tuple[Any, ...] = ("k-means++", "random")
    for init in inits:
        tree = KMeansTree(4, max_leaf_size=1, init=init, random_state=0)
        tree.fit(X, sample_weight=weights)
        assert_whole(tree, 200)
        assert len(tree.leaves_) <= 10
        assert (tree.predict(X) == tree.labels_).all()


# balanced -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("branching", [2, 3, 16])
@pytest.mark.parametrize("kind", KINDS)
def test_balanced_children_have_equal_sizes(kind: str, branching: int, metric: Any) -> None:
    X = data(kind)
    tree = KMeansTree(branching, max_leaf_size=40, balanced=True, metric=metric, random_state=0)
    tree.fit(X)
    for node in np.flatnonzero(np.diff(tree.children_)):
        sizes = tree.size_[tree.children_[node] : tree.children_[node + 1]]
        assert len(sizes) == min(branching, -(-tree.size_[node] // 40))
        assert sizes.max() - sizes.min() <= 1
    assert_whole(tree, X.shape[0])
    assert (tree.predict(X) == tree.labels_).all()


@pytest.mark.parametrize("n", [9, 10])
@pytest.mark.parametrize("k", [2, 3])
def test_balanced_assignment_has_the_least_cost(n: int, k: int) -> None:
    """Against all assignments to the final centres; only the sizes and the cost are unique."""
    rng = np.random.default_rng(n * k)
    for _ in range(10):
        X = rng.standard_normal((n, 2))
        tree = KMeansTree(k, max_depth=1, balanced=True, random_state=0).fit(X)
        centres = tree.cluster_centers_[1]
        cost = ((X[:, None] - centres) ** 2).sum(-1)
        sizes = {n // k, -(-n // k)}
        best = min(
            cost[np.arange(n), labels].sum()
            for labels in _all_labels(n, k)
            if set(np.bincount(labels, minlength=k).tolist()) <= sizes
        )
        own = cost[np.arange(n), tree.labels_].sum()
        assert own == pytest.approx(best, rel=1e-12)


def _all_labels(n: int, k: int) -> NDArray[np.int64]:
    return np.stack(np.meshgrid(*[np.arange(k)] * n, indexing="ij"), -1).reshape(-1, n)


@pytest.mark.parametrize("branching", [2, 3])
@pytest.mark.parametrize("scale", [2.0**-560, 2.0**530])
def test_balanced_rows_whose_squares_are_out_of_range(scale: float, branching: int) -> None:
    """A power of two changes no label."""
    X = dense_rows(200)
    tree = KMeansTree(branching, max_leaf_size=30, balanced=True, random_state=0)
    expected = clone(tree).fit(X)
    scaled = clone(tree).fit(X * scale)
    assert np.array_equal(scaled.labels_, expected.labels_)
    assert np.array_equal(scaled.predict(X * scale), scaled.labels_)


# prediction ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("kind", KINDS)
def test_labels_are_what_predict_gives(kind: str, metric: Any) -> None:
    X = data(kind)
    tree = KMeansTree(4, max_leaf_size=10, metric=metric, random_state=9).fit(X)
    assert (tree.predict(X) == tree.labels_).all()
    assert (tree.predict(X[:1]) == tree.labels_[:1]).all()
    shuffled = np.random.default_rng(1).permutation(X.shape[0])
    assert (tree.predict(X[shuffled]) == tree.labels_[shuffled]).all()
    path = tree.decision_path(X)
    assert (path @ np.ones(path.shape[1]) == tree.depth_[tree.leaf_of_row_] + 1).all()
    assert (path.toarray()[np.arange(X.shape[0]), tree.leaf_of_row_] == 1).all()
    hot = tree.transform(X)
    assert hot.shape == (X.shape[0], len(tree.leaves_))
    assert (hot.indices == tree.labels_).all()
    assert (hot.data == 1).all()
    assert abs(hot - tree.fit_transform(X)).max() == 0
    names = tree.get_feature_names_out()
    assert names.tolist() == [f"kmeanstree{leaf}" for leaf in range(len(tree.leaves_))]


@pytest.mark.parametrize("kind", KINDS)
def test_beam_search(kind: str) -> None:
    """A wide beam reaches every leaf, so it finds the nearest one; width 1 is `predict`."""
    X = data(kind)
    tree = KMeansTree(4, max_leaf_size=100, random_state=9).fit(X)
    assert (tree.predict(X, beam=1) == tree.labels_).all()
    centres = tree._node_centres[tree.leaves_]
    full = [a if isinstance(a, np.ndarray) else a.toarray() for a in (X, centres)]
    full = [np.asarray(a, dtype=np.float64) for a in full]
    distance = ((full[0][:, None] - full[1]) ** 2).sum(-1)
    nearest = distance.min(axis=1)

    def found(beam: int) -> NDArray[np.float64]:
        return np.asarray(distance[np.arange(len(distance)), tree.predict(X, beam=beam)])

    scale = (full[0] ** 2).sum(1) * (1e-5 if X.dtype == np.float32 else 1e-12)
    assert (found(len(tree.leaves_)) <= nearest + scale).all()
    hits = [(found(beam) <= nearest + scale).mean() for beam in (1, 2, 4, 8)]
    assert hits[0] < hits[2]
    assert hits[3] > 0.9


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "angular", "manhattan"])
@pytest.mark.parametrize("kind", KINDS)
def test_nearest_leaves(kind: str, metric: Any) -> None:
    """A beam over all leaves, against all distances."""
    X = data(kind)[:300]
    tree = KMeansTree(4, max_leaf_size=40, metric=metric, random_state=9).fit(X)
    m = 5
    labels, distances = tree.nearest(X, m, beam=len(tree.leaves_))
    full = [a if isinstance(a, np.ndarray) else a.toarray() for a in (X, tree._node_centres)]
    rows, centres = (np.asarray(a, dtype=np.float64) for a in full)
    centres = centres[tree.leaves_]
    if metric in ("cosine", "angular"):
        cosine = rows @ centres.T / np.linalg.norm(rows, axis=1, keepdims=True)
        cosine /= np.linalg.norm(centres, axis=1)
        expected = 1 - cosine if metric == "cosine" else np.arccos(np.clip(cosine, -1, 1))
    elif metric == "manhattan":
        expected = np.abs(rows[:, None] - centres).sum(-1)
    else:
        expected = np.sqrt(((rows[:, None] - centres) ** 2).sum(-1))
    assert np.allclose(np.take_along_axis(expected, labels, 1), distances, rtol=1e-9, atol=1e-7)
    atol = 1e-2 if kind in ("float32", "far") else 1e-6  # the order follows scores
    assert np.allclose(np.sort(expected, axis=1)[:, :m], distances, atol=atol)
    assert (tree.nearest(X)[0][:, 0] == tree.labels_).all()
    assert (tree.nearest(X, 3)[0][:, 0] == tree.predict(X, beam=3)).all()
    few = KMeansTree(4, max_depth=1, metric=metric, random_state=9).fit(X)
    assert (np.sort(few.nearest(X, 4)[0], axis=1) == np.arange(4)).all()
    with pytest.raises(ValueError, match="m must be at most 4, the number of leaves, but it is 6"):
        few.nearest(X, 6)
    with pytest.raises(ValueError, match="beam must be at least m=3, but it is 2"):
        tree.nearest(X, 3, beam=2)


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "angular", "manhattan"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_only_leaf_has_a_distance(kind: str, metric: Any) -> None:
    X = data(kind)
    tree = KMeansTree(2, max_leaf_size=X.shape[0], metric=metric).fit(X)
    labels, distances = tree.nearest(X, beam=3)
    assert labels.shape == distances.shape == (X.shape[0], 1)
    assert not labels.any()
    inertia = (distances**2 if metric in ("euclidean", "angular") else distances).sum()
    assert inertia == pytest.approx(tree.inertia_, rel=1e-4)


@pytest.mark.parametrize("scale", [2.0**-560, 2.0**530])
def test_distances_whose_squares_are_out_of_range(scale: float) -> None:
    rows = dense_rows(200)
    leaves = []
    for X, unit in ((rows, 1.0), (rows * scale, scale)):
        tree = KMeansTree(4, max_leaf_size=20, random_state=9).fit(X)
        labels, distances = tree.nearest(X, 3, beam=8)
        leaves.append((labels, distances / unit))
        single = KMeansTree(300).fit(X).nearest(X)[1] / unit
        assert single == pytest.approx(np.linalg.norm(rows - rows.mean(axis=0), axis=1)[:, None])
    assert np.array_equal(leaves[0][0], leaves[1][0])
    assert leaves[0][1] == pytest.approx(leaves[1][1], rel=1e-12)
    assert KMeansTree(4, metric="manhattan").fit(rows * scale).node_inertia_[0] == pytest.approx(
        scale * np.abs(rows - np.median(rows, axis=0)).sum()
    )


@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_beams_wider_than_the_tree_take_no_more_memory(kind: str) -> None:
    """Arrays of 10**15 entries per row would fit nowhere."""
    X = data(kind)[:200]
    tree = KMeansTree(4, max_leaf_size=20, random_state=9).fit(X)
    all_leaves = tree.predict(X, beam=len(tree.leaves_))
    assert np.array_equal(tree.predict(X, beam=10**15), all_leaves)
    labels, distances = tree.nearest(X, 3, beam=10**15)
    expected = tree.nearest(X, 3, beam=len(tree.leaves_))
    assert np.array_equal(labels, expected[0])
    assert np.array_equal(distances, expected[1])
    single = KMeansTree(300, random_state=9).fit(X)
    assert (single.predict(X, beam=5) == 0).all()


@pytest.mark.parametrize("beam_width", [2, 4])
@pytest.mark.parametrize("balanced", [False, True])
def test_beam_search_by_hand(balanced: bool, beam_width: int) -> None:
    """Three levels in plain Python. Prices of balanced children are no part of distances."""
    X = dense_rows(300, 3)
    tree = KMeansTree(4, max_leaf_size=12, balanced=balanced, random_state=0).fit(X)
    centres, children = tree._node_centres, tree.children_
    expected = []
    for row in X:
        beam = [(0.0, 0)]
        while any(children[node + 1] > children[node] for _, node in beam):
            reached = [
                (float(((row - centres[child]) ** 2).sum()), int(child))
                for _, node in beam
                for child in range(children[node], children[node + 1])
            ]
            reached += [pair for pair in beam if children[pair[1] + 1] == children[pair[1]]]
            beam = sorted(reached)[:beam_width]
        expected.append(beam[0][1])
    assert np.array_equal(tree.leaves_[tree.predict(X, beam=beam_width)], expected)
    assert (tree.nearest(X, beam=1)[0][:, 0] == tree.labels_).all()


@given(st.integers(2, 9), st.integers(1, 30), st.integers(0, 50), st.booleans(), st.booleans())
def test_any_small_tree(branching: int, size: int, seed: int, balanced: bool, csr: bool) -> None:
    """Rows of few distinct values: ties and duplicates everywhere."""
    rows = np.random.default_rng(seed).integers(0, 3, (60, 3)).astype(np.float64)
    X: Any = sp.csr_array(rows) if csr else rows
    tree = KMeansTree(branching, max_leaf_size=size, balanced=balanced, random_state=seed).fit(X)
    assert_whole(tree, 60)
    assert (tree.predict(X) == tree.labels_).all()
    for node in tree.leaves_[tree.size_[tree.leaves_] > size]:
        assert len(np.unique(rows[tree.leaf_of_row_ == node], axis=0)) == 1


# bad input ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"branching": 1}, "branching must be an int of at least 2, but it is 1"),
        ({"max_leaf_size": 0}, "max_leaf_size must be an int of at least 1, but it is 0"),
        ({"max_depth": 0}, "max_depth must be an int of at least 1"),
        ({"n_leaves": 1}, "n_leaves must be an int of at least 2"),
        ({"branching": 2, "max_depth": 3, "n_leaves": 9}, "n_leaves must be at most 8, which"),
        ({"n_leaves": 51}, "n_leaves must be at most 50, the number of rows"),
        (
            {"n_leaves": 5, "max_leaf_size": 9},
            "n_leaves must be at least 6, as many leaves as 50 rows need with max_leaf_size=9, but",
        ),
        (
            {"n_leaves": 2, "max_leaf_size": 50},
            "max_leaf_size must be less than 50, the number of rows, if n_leaves=2, but it is 50",
        ),
        (
            {"branching": 3, "n_leaves": 13, "max_leaf_size": 40},
            "at most 12, which a tree of 50 rows with branching=3 and max_leaf_size=40 can have",
        ),
        (
            {"n_leaves": 6, "max_leaf_size": 20, "balanced": True},
            "n_leaves must be at most 5, which a balanced tree of 50 distinct rows with branching",
        ),
        ({"metric": "hamming"}, "metric must be one of 'euclidean', 'cosine', 'angular', 'manh"),
        ({"metric": "angular", "balanced": True}, "metric must be 'euclidean' or 'cosine' if bal"),
        ({"balanced": 1}, "balanced must be True or False"),
        ({"balanced": True, "init": "furthest"}, "init must be 'k-means\\+\\+' or 'random' if"),
        ({"init": "best"}, r"'furthest' or \('d', alpha\), but it is 'best'"),
        ({"init": np.zeros((2, 2))}, r"init must be 'k-means\+\+', .* or \('d', alpha\), but it"),
        ({"memory_limit": 100}, "memory_limit must be at least .* leaves or more, but it is 100"),
        (
            {"balanced": True, "branching": 9, "max_leaf_size": 2, "memory_limit": 9_000},
            "memory_limit must be at least .* bytes for a balanced tree of 50 rows",
        ),
        ({"tol": -1}, "tol must be"),
        ({"max_iter": 0}, "max_iter must be"),
    ],
)
def test_bad_parameters(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        KMeansTree(**given).fit(dense_rows(50))
    assert str(error.value).count(". ") == 0


def test_bad_rows() -> None:
    zero = np.zeros((20, 3))
    zero[:5] = 1
    with pytest.raises(ValueError, match="X must not have rows of zeros for metric='cosine'"):
        KMeansTree(3, metric="cosine").fit(zero)
    with pytest.raises(ValueError, match="X must not come in blocks for metric='manhattan'"):
        KMeansTree(3, metric="manhattan").fit(open_blocks([dense_rows(50), dense_rows(50)]))
    with pytest.warns(ConvergenceWarning, match="X has only one distinct row, so the tree is a"):
        assert len(KMeansTree(3).fit(np.ones((20, 3))).leaves_) == 1
    rays = np.outer(np.arange(1.0, 21), [1.0, 2.0])
    with pytest.warns(ConvergenceWarning, match="X has rows of only one direction, so the tree is"):
        assert len(KMeansTree(3, metric="cosine").fit(rays).leaves_) == 1
    alone = np.arange(50) == 7
    with pytest.warns(ConvergenceWarning, match="one distinct row with a positive weight, so the"):
        assert len(KMeansTree(3, n_leaves=4).fit(dense_rows(50), sample_weight=alone).leaves_) == 1
    few = np.repeat(np.eye(3), 9, axis=0)
    with pytest.warns(ConvergenceWarning, match="than n_leaves=4, so the tree has 3 leaves"):
        assert len(KMeansTree(2, n_leaves=4).fit(few).leaves_) == 3
    bad = dense_rows(50)
    bad[3, 1] = np.nan
    with pytest.raises(ValueError, match="X must be finite"):
        KMeansTree(3).fit(bad)
    with pytest.raises(ValueError, match="sample_weight must leave sums within float64"):
        KMeansTree(3).fit(dense_rows(50), sample_weight=np.full(50, 1e308))
    with pytest.raises(NotFittedError, match="KMeansTree instance is not fitted yet"):
        KMeansTree(3).decision_path(bad)
    tree = KMeansTree(3).fit(dense_rows(50))
    with pytest.raises(ValueError, match="X must be finite"):
        tree.predict(bad)
    with pytest.raises(ValueError, match="beam must be an int of at least 1"):
        tree.predict(dense_rows(50), beam=0)
    before = tree.labels_
    with pytest.raises(ValueError, match="finite"):
        tree.fit(bad)
    assert tree.labels_ is before


# scikit-learn's own checks ------------------------------------------------------------------------

_DRAWS = "the draws of k-means++ depend on the number of rows"
EXPECTED_FAILURES = {
    "check_sample_weight_equivalence_on_dense_data": _DRAWS,
    "check_sample_weight_equivalence_on_sparse_data": _DRAWS,
}


def checks() -> Callable[[Test], Test]:
    decorate: Callable[[Test], Test] = parametrize_with_checks(
        [KMeansTree(3, max_depth=1)],
        expected_failed_checks=lambda estimator: EXPECTED_FAILURES,
    )
    return decorate


@checks()
def test_sklearn_check(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)
