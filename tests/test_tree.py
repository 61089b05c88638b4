"""Trees of k-means: every node against KMeans, growth, prediction, files, other forms."""

from __future__ import annotations

import importlib.util
import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn.cluster
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import parametrize_with_checks

import exactmeans
from exactmeans import BisectingKMeans, KMeans, KMeansTree, open_blocks
from exactmeans.data.arrays import as_array
from exactmeans.labels import build_tree
from exactmeans.tree import split
from exactmeans.tree.export import rows_by_node

Test = TypeVar("Test", bound=Callable[..., None])
ARRAYS = ("parent_", "children_", "depth_", "size_", "node_inertia_", "node_seed_", "labels_")


def dense_rows(n: int = 1500, d: int = 6, offset: float = 0.0) -> NDArray[np.float64]:
    return np.random.default_rng(n + d).standard_normal((n, d)) + offset


def sparse_rows(n: int = 1200, d: int = 300) -> Any:
    rows: Any = sp.random(n, d, density=0.04, format="csr", random_state=n)
    at = np.arange(n, dtype=np.int32)
    some: Any = sp.csr_matrix((np.full(n, 0.1), (at, at % d)), shape=(n, d))
    return sp.csr_array(rows + some)


def data(kind: str) -> Any:
    if kind == "csr":
        return sparse_rows()
    if kind == "float32":
        return dense_rows().astype(np.float32)
    if kind == "far":  # so far from 0 that every node has a shift
        return dense_rows(offset=1e4)
    return dense_rows()


KINDS = ["dense", "float32", "far", "csr"]


def centre_of(tree: KMeansTree, node: int) -> Any:
    level = tree.cluster_centers_[tree.depth_[node]]
    return level[[node - int(np.argmax(tree.depth_ == tree.depth_[node]))]]


def assert_same_tree(a: Any, b: Any) -> None:
    for name in ARRAYS:
        assert np.array_equal(getattr(a, name), getattr(b, name)), name
    assert (abs(a._node_centres - b._node_centres)).max() == 0


def assert_whole(tree: KMeansTree, n: int) -> None:
    """The arrays describe one tree whose leaves have every row once."""
    nodes = np.arange(len(tree.parent_))
    for node in nodes:
        children = np.arange(tree.children_[node], tree.children_[node + 1])
        assert (tree.parent_[children] == node).all()
        assert (tree.depth_[children] == tree.depth_[node] + 1).all()
        if len(children):
            assert len(children) >= 2
            assert tree.size_[children].sum() == tree.size_[node]
    assert tree.size_[0] == n
    assert (tree.size_ > 0).all()
    counts = np.bincount(tree.leaf_of_row_, minlength=len(nodes))
    assert np.array_equal(counts[tree.leaves_], tree.size_[tree.leaves_])
    assert counts.sum() == n == counts[tree.leaves_].sum()
    assert np.array_equal(tree.leaves_[tree.labels_], tree.leaf_of_row_)


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
        expected = 1 - cosine if metric == "cosine" else np.arccos(np.clip(cosine, -1, 1))
    elif metric == "manhattan":
        expected = np.abs(rows[:, None] - centres).sum(-1)
    else:
        expected = np.sqrt(((rows[:, None] - centres) ** 2).sum(-1))
    atol = 1e-2 if kind in ("float32", "far") else 1e-6
    assert np.allclose(np.take_along_axis(expected, labels, 1), distances, atol=atol)
    assert np.allclose(np.sort(expected, axis=1)[:, :m], distances, atol=atol)
    assert (tree.nearest(X)[0][:, 0] == tree.labels_).all()
    assert (tree.nearest(X, 3)[0][:, 0] == tree.predict(X, beam=3)).all()
    few = KMeansTree(4, max_depth=1, metric=metric, random_state=9).fit(X)
    labels, distances = few.nearest(X, 6)
    assert (labels[:, 4:] == -1).all()
    assert np.isinf(distances[:, 4:]).all()
    with pytest.raises(ValueError, match="beam must be at least m=3, but it is 2"):
        tree.nearest(X, 3, beam=2)


def test_beam_search_by_hand() -> None:
    """Three levels in plain Python."""
    X = dense_rows(300, 3)
    tree = KMeansTree(3, max_leaf_size=12, random_state=0).fit(X)
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
            beam = sorted(reached)[:4]
        expected.append(beam[0][1])
    assert np.array_equal(tree.leaves_[tree.predict(X, beam=4)], expected)


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


# files, other forms -------------------------------------------------------------------------------


@pytest.mark.parametrize("balanced", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_save_and_load(kind: str, balanced: bool, tmp_path: Path) -> None:
    X = data(kind)
    tree = KMeansTree(4, max_leaf_size=30, balanced=balanced, random_state=9).fit(X)
    tree.save(tmp_path / "tree")
    again: Any = exactmeans.load(tmp_path / "tree")
    assert type(again) is KMeansTree
    assert again.get_params() == tree.get_params()
    assert_same_tree(tree, again)
    assert (again.predict(X) == tree.labels_).all()
    assert (again.predict(X, beam=3) == tree.predict(X, beam=3)).all()


def test_altered_files_are_refused(tmp_path: Path) -> None:
    tree = KMeansTree(4, max_leaf_size=30, random_state=9).fit(dense_rows(200))
    for name, value in (("children_", tree.children_[::-1].copy()), ("depth_", tree.depth_[:-1])):
        broken = clone(tree).fit(dense_rows(200))
        setattr(broken, name, value)
        with pytest.raises(ValueError, match="do not make a tree"):
            broken.save(tmp_path / "tree")


def _parsed(text: str) -> Any:
    """Newick without quotes as nested lists."""
    return eval(text.rstrip(";").replace("(", "[").replace(")", "]"), {})


def test_sparse_centres_have_short_indices() -> None:
    """As those of the rows, which other programs take without a copy."""
    X = sp.random(200, 30, density=0.2, random_state=0, format="csr")
    for model in (KMeansTree(4, random_state=0), BisectingKMeans(4, random_state=0)):
        centres = model.fit(X)._node_centres
        assert not isinstance(centres, np.ndarray)
        assert centres.indices.dtype == centres.indptr.dtype == np.int32


def test_newick() -> None:
    X = dense_rows(60)
    tree = KMeansTree(3, max_leaf_size=10, random_state=0).fit(X)

    def nested(node: int) -> Any:
        children = range(tree.children_[node], tree.children_[node + 1])
        leaf = int(np.flatnonzero(tree.leaves_ == node)[0]) if not children else -1
        return [nested(child) for child in children] if children else leaf

    assert _parsed(tree.to_newick()) == nested(0)
    names = [f"a {i}'s" for i in range(len(tree.leaves_))]
    assert "'a 0''s'" in tree.to_newick(names)
    with pytest.raises(ValueError, match="names must have one entry for each"):
        tree.to_newick(["x"])


def test_networkx() -> None:
    networkx = pytest.importorskip("networkx")
    tree = KMeansTree(3, max_leaf_size=10, random_state=0).fit(dense_rows(60))
    graph = tree.to_networkx()
    assert networkx.is_arborescence(graph)
    assert len(graph) == len(tree.parent_)
    assert all(graph.nodes[i]["size"] == size for i, size in enumerate(tree.size_))
    leaves = sorted(graph.nodes[i]["leaf"] for i in graph if graph.nodes[i]["leaf"] is not None)
    assert leaves == list(range(len(tree.leaves_)))


def test_pecos() -> None:
    X = dense_rows(500)
    tree = KMeansTree(4, max_leaf_size=30, random_state=0).fit(X)
    chain = tree.to_pecos()
    assert len(chain) == tree.depth_.max() + 1
    assert chain[0].shape[1] == 1
    assert chain[-1].shape == (500, len(tree.leaves_))
    for upper, lower in itertools.pairwise(chain):
        assert upper.shape[0] == lower.shape[1]
    assert all((link.sum(axis=1) == 1).all() and (link.sum(axis=0) > 0).all() for link in chain)
    assert (chain[-1].tocsr().indices == tree.labels_).all()
    at: Any = tree.labels_
    for link in chain[-2::-1]:  # up to the root, along parents
        at = link.tocsr().indices[at]
    assert (at == 0).all()
    if importlib.util.find_spec("pecos"):
        pecos = importlib.import_module("pecos.utils.cluster_util")
        assert len(pecos.ClusterChain(chain)) == len(chain)


def test_vectors() -> None:
    tree = KMeansTree(4, max_leaf_size=30, random_state=0).fit(sparse_rows(300))
    table = tree.to_vectors()
    assert table["vector"].dtype == np.float32
    assert table["vector"].flags.c_contiguous
    assert np.array_equal(table["parent"], tree.parent_)
    for level, centres in enumerate(tree.cluster_centers_):
        assert np.allclose(table["vector"][table["depth"] == level], as_array(centres))


class Node:
    def __init__(self, label_map: NDArray[Any], children: list[Node]) -> None:
        self.label_map, self.children = label_map, children


def test_libmultilabel() -> None:
    """The node structure of its recursion: stops, label maps, the order of the tree."""
    X, names = sparse_rows(500), np.arange(500) * 3
    np.random.seed(0)
    root = build_tree(X, names, 0, 6, 3, node=Node)

    def check(node: Node, depth: int) -> None:
        if depth == 3 or len(node.label_map) <= 6:
            assert not node.children
        if node.children:
            assert len(node.children) == 6
            below = np.concatenate([child.label_map for child in node.children])
            assert np.array_equal(np.sort(below), node.label_map)
        for child in node.children:
            check(child, depth + 1)

    check(root, 0)
    assert np.array_equal(root.label_map, names)
    assert root.children
    assert not build_tree(X, names, 3, 6, 3, node=Node).children
    few = np.repeat(np.eye(4), 5, axis=0)  # four distinct rows for six clusters
    flat = build_tree(few, np.arange(20), 0, 6, 3, node=Node)
    assert [len(child.children) for child in flat.children] == [0, 0, 0, 0]


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
        ({"n_leaves": 5, "max_leaf_size": 9}, "contradict each other: that many leaves hold 45"),
        ({"metric": "hamming"}, "metric must be one of 'euclidean', 'cosine', 'angular', 'manh"),
        ({"metric": "angular", "balanced": True}, "metric must be 'euclidean' or 'cosine' if bal"),
        ({"balanced": 1}, "balanced must be True or False"),
        ({"balanced": True, "init": "furthest"}, "init must be 'k-means\\+\\+' or 'random' if"),
        ({"init": np.zeros((2, 2))}, "init must be one of"),
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
        [KMeansTree(3, max_depth=1), BisectingKMeans(3)],
        expected_failed_checks=lambda estimator: EXPECTED_FAILURES,
    )
    return decorate


@checks()
def test_sklearn_check(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


# BisectingKMeans ----------------------------------------------------------------------------------


@pytest.mark.parametrize("n_init", [1, 3])
@pytest.mark.parametrize("strategy", ["biggest_inertia", "largest_cluster"])
@pytest.mark.parametrize("init", ["random", "k-means++"])
@pytest.mark.parametrize("kind", ["dense", "far", "csr"])
def test_bisecting_follows_scikit_learn(kind: str, init: Any, strategy: Any, n_init: int) -> None:
    X = data(kind)
    given = {"init": init, "bisecting_strategy": strategy, "n_init": n_init, "random_state": 7}
    theirs = sklearn.cluster.BisectingKMeans(15, **given).fit(X)
    ours = BisectingKMeans(15, **given).fit(X)
    assert np.array_equal(theirs.labels_, ours.labels_)
    assert np.allclose(theirs.cluster_centers_, ours.cluster_centers_, rtol=1e-9)
    assert ours.inertia_ == pytest.approx(theirs.inertia_, rel=1e-9)
    assert ours.score(X) == pytest.approx(theirs.score(X), rel=1e-9)
    assert np.allclose(theirs.transform(X), ours.transform(X), rtol=1e-6, atol=1e-6)
    assert (ours.predict(X) == ours.labels_).all()


def test_bisecting_by_both_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    bisect = importlib.import_module("exactmeans.tree.bisect")
    X = sparse_rows()
    ours = BisectingKMeans(12, random_state=7).fit(X)
    monkeypatch.setattr(bisect, "LARGE_ROWS", 100)
    assert np.array_equal(ours.labels_, BisectingKMeans(12, random_state=7).fit(X).labels_)


def grid_rows(n: int) -> NDArray[np.float64]:
    """Small integers: rows at the same distance from two centres, and many equal rows."""
    return np.random.default_rng(n).integers(0, 4, (n, 3)).astype(np.float64)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize(
    "X",
    [
        dense_rows(9000, 5),
        dense_rows(9000, 5, 1e4).astype(np.float32),
        # Two groups about 0, so no shift helps: errors of scores exceed the gaps within a group.
        (dense_rows(9000, 5) + 3e3 * np.where(np.arange(9000) % 2, 1, -1)[:, None]).astype("f"),
        np.asfortranarray(dense_rows(9000, 40)),
        grid_rows(9000),
        dense_rows(9000, 3) * 1e-150,
        dense_rows(9000, 3) * 1e150,
    ],
    ids=["float64", "far", "apart", "fortran", "grid", "tiny", "huge"],
)
def test_bisections_by_gaps_have_the_bits_of_the_general_loop(
    X: Any, jobs: int, weighted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bounds of gaps against every algorithm's loop, which the fit uses where they do not hold."""
    weights = np.random.default_rng(0).integers(0, 4, len(X)) if weighted else None
    bisect = importlib.import_module("exactmeans.tree.bisect")
    for max_iter in (1, 300):
        model = BisectingKMeans(25, random_state=3, max_iter=max_iter, n_jobs=jobs)
        ours = clone(model).fit(X, sample_weight=weights)
        with monkeypatch.context() as patch:
            patch.setattr(bisect.Bisector, "_run_dense", lambda *_: None)
            general = clone(model).fit(X, sample_weight=weights)
        assert_same_tree(ours, general)
        assert np.array_equal(ours.node_n_iter_, general.node_n_iter_)
        assert (ours.predict(X) == ours.labels_).all()


def test_bisecting_leaves_equal_rows_together() -> None:
    X = np.repeat([[0.0, 0.0], [1.0, 0.0], [5.0, 5.0]], 4, axis=0)
    with pytest.warns(ConvergenceWarning, match=r"distinct clusters \(3\) found smaller"):
        ours = BisectingKMeans(5, random_state=0).fit(X)
    assert sorted(np.bincount(ours.labels_)) == [4, 4, 4]


def test_bisecting_saves(tmp_path: Path) -> None:
    X = sparse_rows(300)
    ours = BisectingKMeans(9, random_state=0).fit(X)
    ours.save(tmp_path / "model")
    again: Any = exactmeans.load(tmp_path / "model")
    assert (again.predict(X) == ours.labels_).all()
    assert np.array_equal(again.transform(X), ours.transform(X))
    assert "(" in again.to_newick()
    assert len(again.to_pecos()[-1].tocsr().indices) == 300


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"n_clusters": 0}, "n_clusters must be an int of at least 1"),
        ({"n_clusters": 60}, "n_samples=50 should be >= n_clusters=60"),
        ({"init": "furthest"}, "init must be 'k-means\\+\\+', 'random' or a callable"),
        ({"bisecting_strategy": "x"}, "bisecting_strategy must be one of"),
        ({"algorithm": "yinyang"}, "algorithm must be one of 'lloyd', 'elkan'"),
        ({"memory_limit": 900}, "memory_limit must be at least .* bytes for 8 clusters of 50 rows"),
    ],
)
def test_bad_parameters_of_bisecting(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BisectingKMeans(**given).fit(dense_rows(50))


def _their_tests() -> list[Any]:
    """scikit-learn's own tests of BisectingKMeans, with ours in the place of theirs."""
    name = "sklearn.cluster.tests.test_bisect_k_means"
    if importlib.util.find_spec("sklearn.cluster.tests") is None:
        return []
    module = importlib.import_module(name)
    return [value for key, value in vars(module).items() if key.startswith("test_")]


@pytest.mark.parametrize("test", _their_tests(), ids=lambda test: test.__name__)
def test_of_scikit_learn(test: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module(test.__module__)
    monkeypatch.setattr(module, "BisectingKMeans", BisectingKMeans)
    marks = [mark for mark in getattr(test, "pytestmark", []) if mark.name == "parametrize"]
    cases: list[dict[str, Any]] = [{}]
    for mark in marks:
        names = [name.strip() for name in mark.args[0].split(",")]
        cases = [
            {**case, **dict(zip(names, value if len(names) > 1 else [value], strict=True))}
            for case in cases
            for value in mark.args[1]
        ]
    for case in cases:
        if "global_dtype" in test.__code__.co_varnames[: test.__code__.co_argcount]:
            for dtype in (np.float32, np.float64):
                test(**case, global_dtype=np.dtype(dtype))
        else:
            test(**case)
