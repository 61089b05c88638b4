"""A tree as flat arrays. Nodes are numbered level by level, so siblings are neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from exactmeans.data.arrays import Double, Matrix
from exactmeans.io import model_file

Ids = NDArray[np.int64]


@model_file.record
@dataclass(frozen=True)
class Frames:
    """In which frame the children of each node are compared: see `engine/frame.py`."""

    exponent: NDArray[np.int32]  # per node; of the packing where only directions count
    shift_of: Ids  # per node: a row of `shifts`, or -1
    shifts: NDArray[Any]
    price: Double | None = None  # per node, added to its cost by its parent; only if balanced


@dataclass(frozen=True)
class Nodes:
    """The root is node 0; the children of node i are children[i] to children[i + 1] - 1."""

    parent: Ids  # -1 for the root
    children: Ids  # one entry more than nodes
    depth: NDArray[np.int32]
    size: Ids  # rows
    inertia: Double
    seed: NDArray[np.uint32]
    n_iter: NDArray[np.int32]  # iterations of the split of the node; 0 for leaves
    centres: Matrix  # one per node
    frames: Frames

    def __len__(self) -> int:
        return len(self.parent)

    @cached_property
    def is_leaf(self) -> NDArray[np.bool_]:
        return np.asarray(self.children[1:] == self.children[:-1])

    @cached_property
    def levels(self) -> Ids:
        """Where each level begins, and the number of nodes."""
        return np.searchsorted(self.depth, np.arange(self.depth[-1] + 2)).astype(np.int64)

    @cached_property
    def leaf_number(self) -> Ids:
        """The number of each leaf from left to right; of other nodes, that of their first leaf."""
        leaves = self.is_leaf.astype(np.int64)
        for begin, end in self._each_level(reverse=True):
            if begin > 0:
                np.add.at(leaves, self.parent[begin:end], leaves[begin:end])
        before = np.concatenate([[0], np.cumsum(leaves)])
        first = np.zeros(len(self), dtype=np.int64)
        for begin, end in self._each_level():
            if begin > 0:
                parent = self.parent[begin:end]
                own = before[begin:end] - before[self.children[parent]]
                first[begin:end] = first[parent] + own
        return first

    @cached_property
    def leaves(self) -> Ids:
        """Leaves from left to right."""
        leaves = np.flatnonzero(self.is_leaf)
        return np.asarray(leaves[np.argsort(self.leaf_number[leaves])], dtype=np.int64)

    def by_level(self) -> list[Matrix]:
        """The centres of each level."""
        return [self.centres[begin:end] for begin, end in self._each_level()]

    def paths(self, nodes: Ids) -> sp.csr_array:
        """Which nodes lie on the way from the root to each of these: 1 where they do."""
        depth = self.depth[nodes].astype(np.int64) + 1
        ends = np.cumsum(depth)
        indices = np.empty(int(ends[-1]) if len(nodes) else 0, dtype=np.int64)
        at, place = nodes.copy(), ends - 1
        left = np.arange(len(nodes))
        while len(left):
            indices[place[left]] = at[left]
            at[left] = self.parent[at[left]]
            place[left] -= 1
            left = left[at[left] >= 0]
        indptr = np.concatenate([[0], ends])
        ones = np.ones(len(indices), dtype=np.float64)
        return sp.csr_array((ones, indices, indptr), shape=(len(nodes), len(self)))

    def _each_level(self, *, reverse: bool = False) -> list[tuple[int, int]]:
        edges = self.levels.tolist()
        spans = list(pairwise(edges))
        return spans[::-1] if reverse else spans
