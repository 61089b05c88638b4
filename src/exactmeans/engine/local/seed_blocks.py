"""Blocks of one process during a seeding: nearest seeds and sampling weights of their rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from exactmeans import _core
from exactmeans.data.arrays import Double, Matrix, stacked
from exactmeans.engine.local.row_blocks import RowBlocks
from exactmeans.engine.seeding import (
    Blank,
    BlockTotal,
    Found,
    Pair,
    Refreshed,
    add_weights,
    weight_sums,
)

if TYPE_CHECKING:
    from exactmeans.engine.local.blocks import Block
    from exactmeans.engine.local.engine import LocalEngine

#: Seeds: numbers of rows of this process, or a matrix of rows.
Seeds: TypeAlias = "Sequence[int] | Matrix"
# Seeds whose distances are computed together where all of them are accepted.
_BATCH = 8


class SeedBlocks:
    """The blocks of a LocalEngine, which may be some of all blocks.

    `numbers` and `begins`: the number of each block and of its first row among all.
    """

    def __init__(
        self,
        engine: LocalEngine,
        numbers: Sequence[int],
        begins: Sequence[int],
        alpha: float,
        exponent: int,
    ) -> None:
        self._engine, self._numbers, self._begins = engine, numbers, begins
        self._alpha, self._exponent = alpha, exponent
        self._points, self._deferred = self._new_points(), self._new_points()
        self._deferred_seeds: list[Seeds] = []
        self.blocks: list[_core.SeedBlock] = []

    @property
    def points(self) -> _core.SeedPoints:
        return self._points

    def distances(self) -> int:
        """Row-seed distances computed so far."""
        return sum(block.distances for block in self.blocks)

    def nearest2(self) -> Double:
        """Squared distances to the nearest seed, on the frame's scale."""
        return np.concatenate([block.d2 for block in self.blocks])

    def owners(self) -> NDArray[np.int32]:
        """The nearest seed of every row."""
        return np.concatenate([block.nearest_seed for block in self.blocks])

    # -- seeds ---------------------------------------------------------------------------------

    def start(self, seed: int | Double | Matrix) -> float:
        """Set the first seed: a row, or any point; returns the largest sampling weight."""
        if isinstance(seed, np.ndarray) and seed.ndim == 1:
            self._points.unstage()
            self._points.stage_point(seed)
        else:
            self._stage(self._points, [seed] if isinstance(seed, (int, np.integer)) else seed)
        make = _core.SeedBlock.streamed if self._engine.streamed else _core.SeedBlock.make
        for part in self._engine.walk():
            block = make(part.rows, self._alpha, self._exponent, self._engine.n_jobs)
            self.blocks.append(block)
            with self._attached(part):
                block.add(self._points, self._engine.n_jobs)
        self._points.accept(0)
        return self.largest()

    def potentials(self, seeds: Seeds) -> list[Pair]:
        """The potential of these blocks if each seed, alone, were added."""
        self._stage(self._points, seeds)
        self._prepare(seeds)
        left = [block.potentials(self._points, self._engine.n_jobs) for block in self._visit()]
        return [
            (sum(high for high, _ in own), sum(low for _, low in own))
            for own in zip(*left, strict=True)
        ]

    def accept(self, candidate: int) -> list[BlockTotal]:
        """Make a seed of one of the candidates of `potentials`."""
        for block in self.blocks:
            if block.can_accept_detached(candidate):
                block.accept(self._points, candidate, self._engine.n_jobs)
        for block in self._visit(lambda block: not block.can_accept_detached(candidate)):
            block.accept(self._points, candidate, self._engine.n_jobs)
        self._points.accept(candidate)
        return self.totals()

    def add(self, seeds: Seeds) -> list[BlockTotal]:
        """Make seeds of all of these."""
        if self._engine.streamed and isinstance(seeds, Sequence):
            self._add_in_one_pass(seeds)
            return self.totals()
        for begin in range(0, _count(seeds), _BATCH):
            batch = seeds[begin : begin + _BATCH]
            self._stage(self._points, batch)
            self._prepare(batch)
            for block in self._visit():
                block.add(self._points, self._engine.n_jobs)
            self._accept_all(batch)
        return self.totals()

    def _add_in_one_pass(self, rows: Sequence[int]) -> None:
        """Add batches as `add` does, but all batches to one block before the next is read."""
        ids, places = np.unique(np.array(rows, dtype=np.intp), return_inverse=True)
        few = self._engine.alone(self._engine.pick(ids), ids).block_of(0).rows
        known = self._points.seeds
        for block in self._visit():
            self._points.retract(known)
            for begin in range(0, len(rows), _BATCH):
                batch = places[begin : begin + _BATCH].tolist()
                self._points.unstage()
                self._points.stage(few, batch)
                block.add(self._points, self._engine.n_jobs)
                self._accept_all(batch)

    def defer(self, seed: int | Matrix) -> None:
        """Make a deferred seed: see `refresh`."""
        own: Seeds = [seed] if isinstance(seed, (int, np.integer)) else seed
        self._stage(self._deferred, own)
        self._deferred.accept(0)
        self._deferred_seeds.append(own)

    def refresh(self, row: int) -> list[Refreshed]:
        """If the row is here, bring its sampling weight up to date with the deferred seeds."""
        for number, begin, block, span in zip(
            self._numbers, self._begins, self.blocks, self._engine.spans, strict=True
        ):
            if begin <= row < begin + span[1] - span[0]:
                before = block.sampling_weight(row - begin)
                with self._attached(self._engine.block_of(span[0])):
                    now = block.refresh(self._deferred, row - begin)
                return [Refreshed(BlockTotal(number, block.total), before, now)]
        return []

    def add_deferred(self) -> list[BlockTotal]:
        """Make plain seeds of the deferred ones."""
        deferred, self._deferred_seeds = self._deferred_seeds, []
        self._deferred = self._new_points()
        rows = [row for seeds in deferred if isinstance(seeds, Sequence) for row in seeds]
        matrices = [seeds for seeds in deferred if not isinstance(seeds, Sequence)]
        if not matrices:
            return self.add(rows)
        return self.add(stacked(matrices))

    # -- sampling weights ----------------------------------------------------------------------

    def largest(self) -> float:
        """The largest sampling weight."""
        return max(block.largest() for block in self.blocks)

    def farthest(self) -> tuple[float, int]:
        """(-squared distance, row): the minimum over blocks is the first farthest row."""
        found = zip(self._begins, (block.farthest() for block in self.blocks), strict=True)
        return min((-d2, begin + row) for begin, (row, d2) in found)

    def set_unit2(self, unit2: float) -> float:
        """Set the squared distance of weight 1; returns the largest sampling weight."""
        for block in self.blocks:
            block.set_unit2(unit2)
        return self.largest()

    def lay_grid(self, bound: float, n: int) -> list[BlockTotal]:
        """Add up sampling weights on a new grid, for n rows of all blocks."""
        for block in self.blocks:
            block.lay_grid(bound, n, self._engine.n_jobs)
        return self.totals()

    def totals(self) -> list[BlockTotal]:
        pairs = zip(self._numbers, self.blocks, strict=True)
        return [BlockTotal(number, block.total) for number, block in pairs]

    def find(self, before: dict[int, Pair], targets: list[float]) -> list[Found]:
        """Rows at which cumulated sampling weights reach the targets."""
        return [
            Found(begin, block.find(before[number], targets))
            for number, begin, block in zip(self._numbers, self._begins, self.blocks, strict=True)
        ]

    def sample_bernoulli(self, key: int, factor: float) -> list[int]:
        """Rows kept by independent draws with probability factor * sampling weight."""
        return [
            begin + row
            for begin, block in zip(self._begins, self.blocks, strict=True)
            for row in block.sample_bernoulli(key, begin, factor)
        ]

    def exported_weights(self, seeds: int, weight_grid: _core.Grid) -> tuple[Blank, _core.Exported]:
        """The weight of the rows nearest to each seed, as exact sums."""
        engine, blank = self._engine, weight_sums(seeds, weight_grid)
        sums = _core.Sums(*blank)
        add_weights(sums, self.owners(), engine.n, engine.counted(), engine.n_jobs)
        return blank, sums.export()

    def seed_weights(self, seeds: int) -> Double:
        """The same in float64, for a process that has all blocks."""
        blank, exported = self.exported_weights(seeds, self._engine.weight_grid())
        sums = _core.Sums(*blank)
        sums.absorb(exported)
        return sums.weights

    # -- rows and points -----------------------------------------------------------------------

    def _new_points(self) -> _core.SeedPoints:
        engine = self._engine
        return _core.SeedPoints(engine.d, self._exponent, engine.sparse, engine.metric.directed)

    def _stage(self, points: _core.SeedPoints, seeds: Seeds) -> None:
        points.unstage()
        if not isinstance(seeds, Sequence):
            rows = RowBlocks([seeds], None, 1, self._engine.metric).block_of(0).rows
            points.stage(rows, list(range(seeds.shape[0])))
            return
        if len(self._engine.spans) == 1:
            points.stage(self._engine.block_of(0).rows, list(seeds))
            return
        for row in seeds:
            part = self._engine.block_of(row)
            points.stage(part.rows, [row - part.begin])

    def _prepare(self, seeds: Seeds) -> None:
        """Called before the distances to these seeds are computed."""

    def _accept_all(self, batch: Seeds) -> None:
        for candidate in range(_count(batch)):
            self._points.accept(candidate)

    def _visit(
        self, wanted: Callable[[_core.SeedBlock], bool] | None = None
    ) -> Iterator[_core.SeedBlock]:
        """Seed blocks, with their rows in memory."""
        if not self._engine.streamed:
            yield from (block for block in self.blocks if wanted is None or wanted(block))
            return
        chosen = None if wanted is None else (lambda part: wanted(self.blocks[part.number]))
        for part in self._engine.walk(chosen):
            with self._attached(part):
                yield self.blocks[part.number]

    def _attached(self, part: Block) -> AbstractContextManager[None]:
        """Attach streamed rows to their seed block while they are in memory."""
        return self._attach(part) if self._engine.streamed else nullcontext()

    @contextmanager
    def _attach(self, part: Block) -> Iterator[None]:
        block = self.blocks[part.number]
        block.attach(part.rows)
        try:
            yield
        finally:
            block.detach()


def _count(seeds: Seeds) -> int:
    return len(seeds) if isinstance(seeds, Sequence) else int(seeds.shape[0])
