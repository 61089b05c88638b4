"""Rows for trees of k-means, and what holds of every tree."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from exactmeans import KMeansTree

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
