"""Rows from the root to leaves: to the nearest child at each node, or by beam search."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exactmeans import _core
from exactmeans.data.arrays import Double
from exactmeans.data.centres import for_core
from exactmeans.engine.local.blocks import Block
from exactmeans.engine.local.engine import LocalEngine
from exactmeans.tree.growth import scale_of
from exactmeans.tree.nodes import Ids, Nodes

_BEAM_PAIRS = 2**21  # pairs of a row and a child that beam search keeps at once


class Router:
    """Finds leaves for rows of any kind that the tree was fitted on."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes

    @cached_property
    def _centres(self) -> NDArray[Any] | _core.SparseCentres:
        """A copy of CSR centres, which a fit alone does not need."""
        return for_core(self.nodes.centres)

    @cached_property
    def _largest_centre(self) -> float:
        centres = self.nodes.centres
        values = centres if isinstance(centres, np.ndarray) else centres.data
        return float(np.abs(values).max(initial=0.0))

    @cached_property
    def _most_children(self) -> int:
        return max(1, int(np.diff(self.nodes.children).max()))

    def leaves(self, engine: LocalEngine) -> Ids:
        """The leaf that each row reaches by the nearest child at each node, as a node."""
        out = np.empty(engine.n, dtype=np.int64)
        for block in engine.walk():
            at = np.zeros(block.n, dtype=np.int64)
            rows = np.arange(block.n)
            while len(rows := rows[~self.nodes.is_leaf[at[rows]]]):
                rows = rows[np.argsort(at[rows], kind="stable")]
                child, _ = self._route(block.rows, rows, at[rows], 1, engine.n_jobs, False)
                at[rows] = self.nodes.children[at[rows]] + child[:, 0]
            out[block.begin : block.end] = at
        return out

    def beam(self, engine: LocalEngine, width: int, m: int) -> Ids:
        """The m nearest of the leaves that a beam search of this width reaches, as nodes."""
        node = np.empty((engine.n, m), dtype=np.int64)
        for block, found in self._beams(engine, width, m):
            node[block.begin : block.end] = found
        return node

    def beam_distances(self, engine: LocalEngine, width: int, m: int) -> tuple[Ids, Double]:
        """What `beam` returns, and the distances of the rows to the centres of these leaves."""
        node, distance = np.empty((engine.n, m), dtype=np.int64), np.empty((engine.n, m))
        exponent = scale_of(engine, self._largest_centre)
        for block, found in self._beams(engine, width, m):
            node[block.begin : block.end] = found
            cost = np.empty(block.n)
            for r in range(m):
                at = found[:, r].astype(np.int32)
                block.rows.own_distances(self._centres, at, exponent, cost, engine.n_jobs)
                distance[block.begin : block.end, r] = cost
        if engine.metric.squared:
            distance = np.ldexp(np.sqrt(distance), -exponent)
        return node, distance

    def _beams(self, engine: LocalEngine, width: int, m: int) -> Iterator[tuple[Block, Ids]]:
        """For each block, the m nearest leaves of its rows.

        At each level the nearest `width` nodes are kept; leaves compete with the nodes that are
        still to be expanded, by the distances to their centres. Ties: the lowest node. The tree
        must have m leaves, and m is at most `width`.
        """
        # A wider beam finds the same leaves, and its arrays might not fit in memory.
        width = min(width, len(self.nodes.leaves))
        step = max(1, _BEAM_PAIRS // (width * min(width, self._most_children)))
        for block in engine.walk():
            node = np.empty((block.n, m), dtype=np.int64)
            for begin in range(0, block.n, step):
                rows = np.arange(begin, min(begin + step, block.n))
                row, found = self._beam(block.rows, rows, width, engine.n_jobs)
                rank = np.arange(len(row)) - np.searchsorted(row, rows)[row - begin]
                kept = rank < m
                node[row[kept], rank[kept]] = found[kept]
            yield block, node

    def _beam(self, rows: _core.Rows, ids: Ids, width: int, n_jobs: int) -> tuple[Ids, Ids]:
        """Pairs of a row and a leaf, by row and distance."""
        row, node = ids, np.zeros(len(ids), dtype=np.int64)
        distance: Double = np.zeros(len(ids))
        while not (leaf := self.nodes.is_leaf[node]).all():
            order = np.flatnonzero(~leaf)
            order = order[np.argsort(node[order], kind="stable")]
            m = min(width, self._most_children)
            child, apart = self._route(rows, row[order], node[order], m, n_jobs, True)
            assert apart is not None
            has = child >= 0
            below = self.nodes.children[node[order]][:, np.newaxis] + child
            beside = np.broadcast_to(row[order][:, np.newaxis], child.shape)
            row = np.concatenate([row[leaf], beside[has]])
            node = np.concatenate([node[leaf], below[has]])
            distance = np.concatenate([distance[leaf], apart[has]])
            order = np.lexsort((node, distance, row))
            row, node, distance = row[order], node[order], distance[order]
            kept = np.arange(len(row)) - np.searchsorted(row, ids)[row - ids[0]] < width
            row, node, distance = row[kept], node[kept], distance[kept]
        return row, node

    def _route(
        self, rows: _core.Rows, ids: Ids, at: Ids, m: int, n_jobs: int, distances: bool
    ) -> tuple[np.ndarray, Double | None]:
        """The m nearest children of rows, which are sorted by node, and their distances.

        A single child is the one that fit chose, by prices if children are balanced. Of several,
        prices would leave out near ones.
        """
        nodes, frames = self.nodes, self.nodes.frames
        here, begins = np.unique(at, return_index=True)
        return _core.route_rows(
            rows,
            self._centres,
            ids,
            np.append(begins, len(ids)).astype(np.int64),
            nodes.children[here],
            nodes.children[here + 1],
            frames.exponent[here],
            frames.shift_of[here],
            frames.shifts if len(frames.shifts) else None,
            frames.price if m == 1 else None,
            m=m,
            distances=distances,
            n_jobs=n_jobs,
        )
