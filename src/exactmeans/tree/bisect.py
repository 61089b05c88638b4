"""Bisections, as scikit-learn's BisectingKMeans makes them: one generator for all draws."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from exactmeans import _core
from exactmeans.data.arrays import Double, Matrix
from exactmeans.data.centres import call_init, check_centres, from_core
from exactmeans.engine.local.engine import LocalEngine
from exactmeans.fit.loop import first_centroids
from exactmeans.fit.problem import Problem, analyse
from exactmeans.seeding.draws import plus_plus, random_rows
from exactmeans.tree.growth import Grown, Growth
from exactmeans.tree.nodes import Ids
from exactmeans.tree.split import (
    LARGE_ROWS,
    Nodeset,
    SplitParameters,
    Splits,
    run_loop,
    split_of,
)
from exactmeans.tree.stops import Stops

# Of two runs, the first is kept unless the inertia falls by more than this, as in scikit-learn.
_LESS = 1 - 1e-6


@dataclass
class Bisector:
    """Splits one node after the other in two: the best of `n_init` runs.

    All nodes are compared in the frame of all rows, as scikit-learn subtracts the mean of all rows
    once, and by exact sums on the grids of all rows.
    """

    engine: LocalEngine
    parameters: SplitParameters
    init: str | Callable[..., Any]
    n_init: int
    rng: np.random.RandomState
    balanced: bool = False

    def __post_init__(self) -> None:
        whole = analyse(self.engine, 0.0)
        tolerance = math.ldexp(self.parameters.tol, 2 * whole.frame.exponent)
        self.whole: Problem = replace(whole, tolerance=tolerance)

    def split(self, nodes: Nodeset) -> Splits:
        (rows,) = [nodes.rows_of(t) for t in range(len(nodes))]
        best: Splits | None = None
        for _ in range(self.n_init):
            found = self._run(_Node(self.engine, rows))
            if best is None or found.inertia.sum() < best.inertia.sum() * _LESS:
                best = found
        assert best is not None
        return best

    def _run(self, node: _Node) -> Splits:
        if callable(self.init):
            given = call_init(self.init, node.gathered.whole(), 2, self.rng)
            what, engine = "what init returned", self.engine
            centres = check_centres(given, 2, engine.d, engine.dtype, what, sparse=engine.sparse)
        else:
            if self.init == "random":
                seeds = random_rows(node, 2, self.rng)
            else:
                exponent = self.whole.frame.cost_exponent
                seeds = plus_plus(node.gathered, 2, self.rng, exponent)
            if self.engine.sparse and node.n <= LARGE_ROWS:
                return self._run_sparse(node.gathered, seeds.astype(np.int64))
            centres = self.engine.take(node.rows[seeds])
        found = None if self.engine.sparse else self._run_dense(node.rows, centres)
        if found is not None:
            return found
        problem = replace(self.whole, engine=node.gathered)
        run = run_loop(problem, centres, self.parameters)
        return split_of(node.gathered, problem.frame, run)

    def _run_dense(self, rows: Ids, centres: Matrix) -> Splits | None:
        """Lloyd's loop of two centres in the core; None where that cannot do it."""
        whole, engine = self.whole, self.engine
        centroids = first_centroids(whole, centres)
        labels = np.empty(len(rows), dtype=np.int32)
        found = _core.bisect_rows(
            engine.block_of(0).rows,
            rows,
            centroids,
            whole.sums(2),
            whole.origin,
            whole.tolerance,
            self.parameters.max_iter,
            labels,
            engine.n_jobs,
        )
        if found is None:
            return None
        n_iter, *inertia = found
        own: Matrix = from_core(centroids.centres, (2, engine.d))
        return Splits.of_one(whole.frame, engine, labels, own, np.array(inertia), n_iter)

    def _run_sparse(self, engine: LocalEngine, seeds: Ids) -> Splits:
        """A small node of CSR rows, in the core."""
        labels = np.empty(engine.n, dtype=np.int32)
        found = _core.split_nodes(
            engine.block_of(0).rows,
            np.arange(engine.n),
            np.array([0, engine.n]),
            np.array([2]),
            np.zeros(1, dtype=np.uint32),
            seeds,
            labels,
            seeding="given",
            max_iter=self.parameters.max_iter,
            tol=self.parameters.tol,
            relative=False,
            balanced=False,
            n_jobs=engine.n_jobs,
        )
        children, centres, inertia, _, n_iter, _, exponent, shifted, shifts = found
        own: Matrix = from_core(centres, (int(children[0]), engine.d))
        return Splits(
            children,
            labels,
            own,
            inertia,
            np.zeros(len(inertia)),
            n_iter.astype(np.int32),
            exponent.astype(np.int32),
            np.array([len(shifted) - 1]),
            shifts,
        )


class _Node:
    """The rows of a node, gathered only if they are needed."""

    def __init__(self, engine: LocalEngine, rows: Ids) -> None:
        self.rows, self.n, self.metric = rows, len(rows), engine.metric
        self._engine = engine

    @cached_property
    def gathered(self) -> LocalEngine:
        engine, rows = self._engine, self.rows
        return engine if len(rows) == engine.n else engine.batch(engine.pick(rows), rows)

    def counted(self) -> Double | None:
        weights = self._engine.counted()
        return None if weights is None else weights[self.rows]


class BisectingGrowth(Growth):
    """Bisects the leaf with the largest score until there are enough."""

    def __init__(self, bisector: Bisector, n_clusters: int, *, by_inertia: bool) -> None:
        stops = Stops(2, 1, None, n_clusters)
        super().__init__(bisector.engine, bisector, stops, 0)
        self._n_clusters, self._by_inertia = n_clusters, by_inertia

    def grow(self) -> Grown:
        """Ties of scores go to the first leaf from left to right."""
        leaves = [0]
        closed: set[int] = set()  # leaves that cannot be split
        while len(leaves) < self._n_clusters:
            able = [leaf for leaf in leaves if leaf not in closed]
            able = np.array(able)[self._splittable(np.array(able, dtype=np.int64))].tolist()
            if not able:
                break
            score = self._inertia[able] if self._by_inertia else self._size[able]
            node = able[int(np.argmax(score))]
            self._split(np.array([node]), np.array([2]))
            if self._children[node] < 2:
                closed.add(node)
                continue
            first, at = int(self._first[node]), leaves.index(node)
            leaves[at : at + 1] = [first, first + 1]
        return self._finished(self._children > 1)
