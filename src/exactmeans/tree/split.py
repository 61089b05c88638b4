"""Splits of nodes: large ones by the loop of `fit/`, all others in one call of the core."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exactmeans import _core
from exactmeans.callbacks import Reports
from exactmeans.data.arrays import Double, Labels, Matrix, stacked
from exactmeans.data.centres import from_core, like_rows
from exactmeans.engine.frame import Frame
from exactmeans.engine.local.engine import LocalEngine
from exactmeans.fit.generator import FitGenerator
from exactmeans.fit.loop import Run, lloyd_loop
from exactmeans.fit.plan import block_budget, plan_fit
from exactmeans.fit.policy import Policy
from exactmeans.fit.problem import Problem, analyse
from exactmeans.seeding.init import choose_seeds
from exactmeans.tree.nodes import Ids

#: Nodes with more rows than this use all threads and the algorithms of KMeans.
LARGE_ROWS = _core.cost_model.large_node_rows
#: What the core can draw itself.
CORE_INITS = ("k-means++", "random")


@dataclass(frozen=True)
class SplitParameters:
    init: str | tuple[str, float]
    max_iter: int
    tol: float
    memory_limit: int | None
    relative: bool = True  # `tol` is relative to the variance of the rows
    balanced: bool = False  # children of equal size


@dataclass
class Splits:
    """The children of some nodes, node by node."""

    children: Ids  # per node; 1: its rows cannot be split
    labels: Labels  # of all rows, node by node
    centres: Matrix
    inertia: Double  # per child
    price: Double  # per child: added to its cost, so that children are balanced
    n_iter: NDArray[np.int32]
    exponent: NDArray[np.int32]
    shift_of: Ids
    shifts: NDArray[Any]

    @classmethod
    def of_one(
        cls,
        frame: Frame,
        engine: LocalEngine,
        labels: Labels,
        centres: Matrix,
        inertia: Double,
        n_iter: int,
    ) -> Splits:
        """The children of one node, which all have rows."""
        shift = frame.shift_of(engine)
        return cls(
            np.array([len(inertia)]),
            labels,
            centres,
            inertia,
            np.zeros(len(inertia)),
            np.array([n_iter], dtype=np.int32),
            np.array([frame.exponent + frame.packing], dtype=np.int32),  # one of them is 0
            np.array([-1 if shift is None else 0]),
            np.empty((0, engine.d), dtype=engine.dtype) if shift is None else shift[np.newaxis],
        )


@dataclass(frozen=True)
class Nodeset:
    """Nodes to split: rows of all of them, node by node, where each begins, k and seed."""

    rows: Ids
    offsets: Ids
    k: Ids
    seeds: NDArray[np.uint32]

    def __len__(self) -> int:
        return len(self.k)

    def rows_of(self, node: int) -> Ids:
        return self.rows[self.offsets[node] : self.offsets[node + 1]]

    def where(self, mask: NDArray[np.bool_]) -> tuple[Nodeset, NDArray[np.bool_]]:
        """Some of the nodes, and which of the rows are theirs."""
        size = np.diff(self.offsets)
        own = np.repeat(mask, size)
        offsets = np.concatenate([[0], np.cumsum(size[mask])])
        return Nodeset(self.rows[own], offsets, self.k[mask], self.seeds[mask]), own

    def in_groups(self, most: int) -> Iterator[Nodeset]:
        """The nodes in their order, in groups of at most so many rows, or of one larger node."""
        begin = 0
        while begin < len(self):
            fitting = np.searchsorted(self.offsets, self.offsets[begin] + most, side="right") - 1
            end = max(begin + 1, int(fitting))
            offsets = self.offsets[begin : end + 1]
            rows = self.rows[offsets[0] : offsets[-1]]
            yield Nodeset(rows, offsets - offsets[0], self.k[begin:end], self.seeds[begin:end])
            begin = end


def gather_budget(engine: LocalEngine, limit: int | None) -> float:
    """Bytes of rows that may be gathered at a time, beside blocks that are read.

    A third of what is left: gathered rows exist twice while they are put together, and the split
    has copies and arrays of its own. Growth keeps 28 bytes per row.
    """
    return max(0.0, block_budget(limit) - engine.reading_bytes - 28 * engine.n) / 3


def least_gathered(engine: LocalEngine) -> int:
    """Bytes of rows that are gathered at a time whatever the budget: those of a small node."""
    return int(engine.bytes_of_rows() * min(1.0, LARGE_ROWS / engine.n))


class Splitter:
    """Splits nodes. Rows that come in blocks are gathered for a few nodes at a time."""

    def __init__(self, engine: LocalEngine, parameters: SplitParameters) -> None:
        self._engine, self._parameters = engine, parameters
        self.balanced = parameters.balanced
        limit = parameters.memory_limit
        self._budget = gather_budget(engine, limit)
        self._whole = len(engine.spans) == 1 and not engine.streamed

    def split(self, nodes: Nodeset) -> Splits:
        """The children of all nodes; what they are depends on rows, k and seed of each alone."""
        large = np.diff(nodes.offsets) > LARGE_ROWS
        if self._parameters.balanced:
            large[:] = False
        elif self._parameters.init not in CORE_INITS or not self._engine.metric.summed:
            large[:] = True
        if not large.any():
            return self._split_small(nodes)
        few, own = nodes.where(large)
        done = [self._split_large(few.rows_of(t), *pair) for t, pair in enumerate(_pairs(few))]
        if large.all():
            return _joined(done)
        many, _ = nodes.where(~large)
        return _merged(_joined(done), self._split_small(many), large, own)

    def _split_small(self, nodes: Nodeset) -> Splits:
        """One call of the core, or one for each group of nodes that fits in memory."""
        if self._whole:
            return self._split_in_core(self._engine, nodes)
        row_bytes = max(1.0, self._engine.bytes_of_rows() / self._engine.n)
        most = max(LARGE_ROWS, int(self._budget / row_bytes))
        done = []
        for few in nodes.in_groups(most):
            rows, local = np.unique(few.rows, return_inverse=True)
            gathered = self._engine.alone(self._engine.pick(rows), rows)
            here = Nodeset(local.astype(np.int64), few.offsets, few.k, few.seeds)
            done.append(self._split_in_core(gathered, here))
        return _joined(done)

    def _split_in_core(self, engine: LocalEngine, nodes: Nodeset) -> Splits:
        parameters = self._parameters
        labels = np.empty(len(nodes.rows), dtype=np.int32)
        found = _core.split_nodes(
            engine.block_of(0).rows,
            nodes.rows,
            nodes.offsets,
            nodes.k,
            nodes.seeds,
            None,
            labels,
            seeding=str(parameters.init),
            max_iter=parameters.max_iter,
            tol=parameters.tol,
            relative=parameters.relative,
            balanced=parameters.balanced,
            n_jobs=engine.n_jobs,
        )
        children, centres, inertia, price, n_iter, _, exponent, shifted, shifts = found
        shift_of = np.full(len(nodes), -1, dtype=np.int64)
        shift_of[shifted] = np.arange(len(shifted))
        return Splits(
            children,
            labels,
            from_core(centres, (int(children.sum()), engine.d)),
            inertia,
            price if parameters.balanced else np.zeros(len(inertia)),
            n_iter.astype(np.int32),
            exponent.astype(np.int32),
            shift_of,
            shifts,
        )

    def _split_large(self, rows: Ids, k: int, seed: int) -> Splits:
        engine = self._engine
        if len(rows) < engine.n:
            engine = engine.part(rows, self._budget)
        problem = analyse(engine, self._parameters.tol)
        exponent = problem.frame.cost_exponent
        rng = FitGenerator.seeded(seed)
        init = self._parameters.init
        centres = choose_seeds(engine, init, k, rng, exponent, {})[0]
        run = run_loop(problem, centres, self._parameters)
        return split_of(engine, problem.frame, run)


def run_loop(problem: Problem, centres: Matrix, parameters: SplitParameters) -> Run:
    """Lloyd's loop from these centres, by the algorithm that the policy chooses."""
    k, max_iter = centres.shape[0], parameters.max_iter
    plan = plan_fit(problem.engine, k, "auto", parameters.memory_limit, max_iter)
    policy = Policy(plan.choice, plan.work, max_iter)
    return lloyd_loop(problem, centres, policy=policy, max_iter=max_iter, reports=Reports())


def split_of(engine: LocalEngine, frame: Frame, run: Run) -> Splits:
    """A run as the split of one node; clusters without rows are left out."""
    labels = engine.labels()
    size = np.bincount(labels, minlength=run.centres.shape[0])
    kept = np.flatnonzero(size)
    numbers = np.zeros(len(size), dtype=np.int32)
    numbers[kept] = np.arange(len(kept))
    costs = engine.own_distances(run.centres, frame.cost_exponent)
    counted = engine.counted()
    if counted is not None:
        costs *= counted
    by_child = np.split(costs[by_label(labels, len(size))], np.cumsum(size)[:-1])
    inertia = [math.ldexp(math.fsum(by_child[j]), -2 * frame.cost_exponent) for j in kept]
    own, n_iter = numbers[labels], len(run.history)
    # Centres that are no sums are dense after a fit of CSR rows.
    centres: Matrix = like_rows(run.centres[kept], sparse=engine.sparse)
    return Splits.of_one(frame, engine, own, centres, np.array(inertia), n_iter)


def _pairs(nodes: Nodeset) -> list[tuple[int, int]]:
    return list(zip(nodes.k.tolist(), nodes.seeds.tolist(), strict=True))


def _joined(parts: list[Splits]) -> Splits:
    """The splits of all parts, one part after the other."""
    before = np.cumsum([0, *(len(part.shifts) for part in parts)])
    shift_of = [
        np.where(part.shift_of < 0, -1, part.shift_of + first)
        for part, first in zip(parts, before[:-1], strict=True)
    ]
    return Splits(
        np.concatenate([part.children for part in parts]),
        np.concatenate([part.labels for part in parts]),
        stacked([part.centres for part in parts]),
        np.concatenate([part.inertia for part in parts]),
        np.concatenate([part.price for part in parts]),
        np.concatenate([part.n_iter for part in parts]),
        np.concatenate([part.exponent for part in parts]),
        np.concatenate(shift_of),
        np.concatenate([part.shifts for part in parts]),
    )


def _merged(few: Splits, many: Splits, large: NDArray[np.bool_], own: NDArray[np.bool_]) -> Splits:
    """Splits of two kinds of nodes in the order of the nodes."""
    both = _joined([few, many])
    # Where each node is in `both`.
    place = np.empty(len(large), dtype=np.int64)
    place[large] = np.arange(len(few.children))
    place[~large] = len(few.children) + np.arange(len(many.children))
    begins = np.cumsum(both.children) - both.children
    order = ranges(begins[place], both.children[place])
    labels = np.empty(len(own), dtype=np.int32)
    labels[own], labels[~own] = few.labels, many.labels
    return Splits(
        both.children[place],
        labels,
        both.centres[order],
        both.inertia[order],
        both.price[order],
        both.n_iter[place],
        both.exponent[place],
        both.shift_of[place],
        both.shifts,
    )


def by_label(labels: NDArray[Any], count: int) -> NDArray[np.intp]:
    """Rows in the order of their labels, which are below `count`; NumPy's radix sort is short."""
    short = labels.astype(np.int16) if count < 2**15 else labels
    return np.argsort(short, kind="stable")


def ranges(begins: Ids, lengths: Ids) -> Ids:
    """The numbers begins[0], begins[0] + 1, ..., then those from begins[1], and so on."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    return np.asarray(np.arange(total) + np.repeat(begins - (ends - lengths), lengths))
