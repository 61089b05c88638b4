"""The growth of a tree: rounds that split nodes, until the stops leave none to split.

Nodes get numbers in the order of their creation here; `finished` numbers them level by level. What
a split gives depends on the node alone, so nodes may be split in any order, and ahead of time.
"""

from __future__ import annotations

import heapq
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from exactmeans import _core
from exactmeans.data.arrays import Double, Matrix, stacked
from exactmeans.engine.local.engine import LocalEngine
from exactmeans.fit.problem import centre_of_all, unscaled
from exactmeans.tree.nodes import Frames, Ids, Nodes
from exactmeans.tree.paths import child_keys, root_key, seeds_of
from exactmeans.tree.split import Nodeset, Splits, by_label, ranges
from exactmeans.tree.stops import Stops


class SplitsNodes(Protocol):
    """A Splitter or a Bisector."""

    balanced: bool

    def split(self, nodes: Nodeset) -> Splits: ...


class Grown(NamedTuple):
    nodes: Nodes
    node_of_row: Ids  # the leaf of each row


class Growth:
    """All nodes so far. Children may exist before their parent counts as split."""

    def __init__(self, engine: LocalEngine, splitter: SplitsNodes, stops: Stops, seed: int) -> None:
        self._engine, self._splitter, self._stops = engine, splitter, stops
        self._weights = engine.counted()
        # The rows of a node lie side by side, from `begin` on: in ascending order until it is
        # split, then child by child.
        self._rows: Ids = np.arange(engine.n, dtype=np.int64)
        self._begin = self._int(0)
        self._size = self._int(engine.n)
        self._parent = self._int(-1)
        self._depth = self._int(0)
        centre, inertia = root_of(engine)
        self._inertia = np.array([inertia])
        self._price = np.zeros(1)
        self._keys = root_key(seed)
        self._seed = np.array([seed], dtype=np.uint32)
        self._centres: list[Matrix] = [centre]
        # Of nodes whose split was computed: the number of children (1: they cannot be split), the
        # first child, iterations, and the frame.
        self._tried = np.zeros(1, dtype=bool)
        self._children = self._int(0)
        self._first = self._int(0)
        self._n_iter = np.zeros(1, dtype=np.int32)
        self._exponent = np.zeros(1, dtype=np.int32)
        self._shift_of = self._int(-1)
        self._shifts: list[NDArray[Any]] = []
        self._n_shifts = 0

    @staticmethod
    def _int(value: int) -> Ids:
        return np.array([value], dtype=np.int64)

    # -- rounds --------------------------------------------------------------------------------

    def grow(self) -> Grown:
        if self._stops.n_leaves is None:
            return self._grow_by_level()
        return self._grow_by_inertia(self._stops.n_leaves)

    def _grow_by_level(self) -> Grown:
        begin = 0
        while True:
            new = np.arange(begin, len(self._parent))
            begin = len(self._parent)
            new = new[self._splittable(new)]
            if not len(new):
                return self._finished(self._children > 1)
            self._split(new, self._k(new))

    def _grow_by_inertia(self, n_leaves: int) -> Grown:
        """Split the leaf of the largest inertia until there are enough leaves.

        The leaves that come next are split together, ahead of time: half of those that could still
        be split, in the order of their inertia.
        """
        applied = np.zeros(1, dtype=bool)
        heap: list[tuple[float, int]] = []
        self._push(heap, np.array([0]))
        leaves = 1
        while heap and leaves < n_leaves:
            node = heap[0][1]
            if not self._tried[node]:
                ahead = (n_leaves - leaves) // (2 * (self._stops.branching - 1)) + 1
                first = [own for _, own in heapq.nsmallest(ahead, heap)]
                self._split_untried(np.array(first))
                applied = np.append(applied, np.zeros(len(self._parent) - len(applied), dtype=bool))
            room = n_leaves - leaves + 1
            if self._children[node] > room:
                self._rows_of(np.array([node])).sort()
                self._split(np.array([node]), np.array([room]))
                applied = np.append(applied, np.zeros(len(self._parent) - len(applied), dtype=bool))
            heapq.heappop(heap)
            if self._children[node] > 1:
                applied[node] = True
                leaves += int(self._children[node]) - 1
                self._push(heap, self._first[node] + np.arange(self._children[node]))
        return self._finished(applied)

    def _push(self, heap: list[tuple[float, int]], nodes: Ids) -> None:
        """Ties of inertia: the node that was created first, which no order of work changes."""
        for node in nodes[self._splittable(nodes)].tolist():
            heapq.heappush(heap, (-float(self._inertia[node]), node))

    def _split_untried(self, nodes: Ids) -> None:
        nodes = np.sort(nodes[~self._tried[nodes]])
        self._split(nodes, self._k(nodes))

    def _splittable(self, nodes: Ids) -> NDArray[np.bool_]:
        stops = self._stops
        wanted = self._size[nodes] > stops.max_leaf_size
        if stops.max_depth is not None:
            wanted &= self._depth[nodes] < stops.max_depth
        wanted[wanted] = self._k(nodes[wanted]) > 1
        return wanted

    def _k(self, nodes: Ids) -> Ids:
        """How many children to look for: rows without weight cannot become centres."""
        rows = self._size[nodes]
        most = self._stops.most_children(rows, balanced=self._splitter.balanced)
        if self._weights is not None and len(nodes):
            has_weight = np.concatenate([[0], np.cumsum(self._weights[self._rows_of(nodes)] > 0)])
            ends = np.cumsum(rows)
            rows = has_weight[ends] - has_weight[ends - rows]
        return np.asarray(np.minimum(rows, most))

    def _rows_of(self, nodes: Ids) -> Ids:
        """Of one node, a view."""
        return self._rows[self._places_of(nodes)]

    def _places_of(self, nodes: Ids) -> Ids | slice:
        begin, size = self._begin[nodes], self._size[nodes]
        return slice(begin[0], begin[0] + size[0]) if len(nodes) == 1 else ranges(begin, size)

    def _split(self, nodes: Ids, k: Ids) -> None:
        if not len(nodes):
            return
        rows, offsets = self._rows_of(nodes), np.concatenate([[0], np.cumsum(self._size[nodes])])
        splits = self._splitter.split(Nodeset(rows, offsets, k, self._seed[nodes]))
        self._tried[nodes] = True
        self._children[nodes] = splits.children
        self._n_iter[nodes] = splits.n_iter
        self._exponent[nodes] = splits.exponent
        shifted = splits.shift_of >= 0
        self._shift_of[nodes] = np.where(shifted, splits.shift_of + self._n_shifts, -1)
        self._n_shifts += len(splits.shifts)
        self._shifts.append(splits.shifts)
        self._add_children(nodes, rows, splits)

    def _add_children(self, nodes: Ids, rows: Ids, splits: Splits) -> None:
        """Append the children of nodes that have several."""
        count, size = splits.children, self._size[nodes]
        divided = count > 1
        new = np.where(divided, count, 0)
        ends = np.cumsum(new)
        first = ends - new
        total = int(ends[-1])
        self._first[nodes] = len(self._parent) + first
        child = np.repeat(first, size) + splits.labels
        if not divided.all():
            kept = np.repeat(divided, size)
            child, rows = child[kept], rows[kept]
        self._rows[self._places_of(nodes[divided])] = rows[by_label(child, total)]
        sizes = np.bincount(child, minlength=total)
        parents = np.repeat(nodes, new)
        numbers = np.arange(total) - np.repeat(first, new)
        of_divided = np.repeat(divided, count)
        begin = np.cumsum(sizes) - sizes
        begin += self._begin[parents] - begin[np.repeat(first, new)]
        keys = child_keys(self._keys[parents], numbers)
        self._begin = np.concatenate([self._begin, begin])
        self._size = np.concatenate([self._size, sizes])
        self._parent = np.concatenate([self._parent, parents])
        self._depth = np.concatenate([self._depth, self._depth[parents] + 1])
        self._inertia = np.concatenate([self._inertia, splits.inertia[of_divided]])
        self._price = np.concatenate([self._price, splits.price[of_divided]])
        self._keys = np.concatenate([self._keys, keys])
        self._seed = np.concatenate([self._seed, seeds_of(keys)])
        every = bool(divided.all())
        self._centres.append(splits.centres if every else splits.centres[of_divided])
        for name, value in (("_tried", False), ("_children", 0), ("_first", 0), ("_n_iter", 0)):
            self._extend(name, total, value)
        self._extend("_exponent", total, 0)
        self._extend("_shift_of", total, -1)

    def _extend(self, name: str, count: int, value: Any) -> None:
        now = getattr(self, name)
        setattr(self, name, np.concatenate([now, np.full(count, value, dtype=now.dtype)]))

    # -- the tree ------------------------------------------------------------------------------

    def _finished(self, applied: NDArray[np.bool_]) -> Grown:
        """The nodes under parents that count as split, level by level."""
        levels = [np.array([0])]
        while len(levels[-1]):
            parents = levels[-1][applied[levels[-1]]]
            levels.append(ranges(self._first[parents], self._children[parents]))
        order = np.concatenate(levels)
        number = np.full(len(self._parent), -1, dtype=np.int64)
        number[order] = np.arange(len(order))
        parent = self._parent[order]
        count = np.where(applied[order], self._children[order], 0)
        internal = count > 0
        shift_of = np.where(internal, self._shift_of[order], -1)
        used = np.unique(shift_of[shift_of >= 0])
        shifts = np.concatenate(self._shifts) if self._shifts else np.empty((0, self._engine.d))
        nodes = Nodes(
            parent=np.where(parent >= 0, number[parent], -1),
            children=np.concatenate([[1], 1 + np.cumsum(count)]),
            depth=self._depth[order].astype(np.int32),
            size=self._size[order],
            inertia=self._inertia[order],
            seed=self._seed[order],
            n_iter=np.where(internal, self._n_iter[order], 0).astype(np.int32),
            centres=self._in_order(order),
            frames=Frames(
                exponent=np.where(internal, self._exponent[order], 0).astype(np.int32),
                shift_of=np.where(shift_of >= 0, np.searchsorted(used, shift_of), -1),
                shifts=shifts[used],
                price=self._price[order] if self._splitter.balanced else None,
            ),
        )
        leaves = np.flatnonzero(~internal)
        node_of_row = np.empty(self._engine.n, dtype=np.int64)
        node_of_row[self._rows_of(order[leaves])] = np.repeat(leaves, nodes.size[leaves])
        return Grown(nodes, node_of_row)

    def _in_order(self, order: Ids) -> Matrix:
        centres = stacked(self._centres)
        self._centres = []
        if np.array_equal(order, np.arange(len(order))):
            return centres
        ordered: Matrix = centres[order]
        return ordered


def root_of(engine: LocalEngine) -> tuple[Matrix, float]:
    """The centre of all rows, as a matrix of one row, and their inertia."""
    centre: Double = centre_of_all(engine)
    row: Matrix = centre[np.newaxis].astype(engine.dtype)
    if engine.sparse:
        row = sp.csr_array(row)
    exponent = scale_of(engine)
    return row, unscaled(engine.scatter(row, exponent, labelled=False)[0], exponent)


def scale_of(engine: LocalEngine, largest_centre: float = 0.0) -> int:
    """The exponent of a scale on which squared distances are in range; 0 if none are summed."""
    if engine.metric.name != "euclidean":
        return 0
    largest = max(engine.survey(weighted=False).largest, largest_centre)
    return _core.safe_exponent(largest, engine.dtype == np.float32)
