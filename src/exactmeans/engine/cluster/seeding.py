"""Seeding of rows on the workers of a cluster; SeedBlocks does the work on each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from exactmeans import _core
from exactmeans.data.arrays import Double, Matrix
from exactmeans.engine.cluster.worker_engine import WorkerEngine
from exactmeans.engine.local.seed_blocks import SeedBlocks
from exactmeans.engine.seeding import BlockSeeding, BlockTotal, Found, Pair, Refreshed

if TYPE_CHECKING:
    from exactmeans.engine.cluster.engine import ClusterEngine


class ClusterSeeding(BlockSeeding):
    """Seeding of rows on the workers of a cluster."""

    def __init__(self, engine: ClusterEngine, *, exponent: int, alpha: float) -> None:
        rows = RemoteSeedRows(engine, alpha, exponent)
        super().__init__(rows, engine.n, alpha=alpha, width=engine.nonzeros / engine.n)


class RemoteSeedRows:
    """The rows of all workers. Seeds are sent to workers as rows."""

    def __init__(self, engine: ClusterEngine, alpha: float, exponent: int) -> None:
        self._engine = engine
        self._mutate, self._query = engine.mutate, engine.query
        self._mutate(WorkerEngine.open_seeding, alpha, exponent)

    def start(self, seed: int | Double) -> float:
        point = seed if isinstance(seed, np.ndarray) else self._rows([seed])
        return self._mutate(SeedBlocks.start, point)

    def set_unit2(self, unit2: float) -> float:
        return self._mutate(SeedBlocks.set_unit2, unit2)

    def largest(self) -> float:
        return self._query(SeedBlocks.largest)

    def farthest(self) -> tuple[float, int]:
        return self._query(SeedBlocks.farthest)

    def lay_grid(self, bound: float, n: int) -> list[BlockTotal]:
        return self._mutate(SeedBlocks.lay_grid, bound, n)

    def find(self, before: dict[int, Pair], targets: list[float]) -> list[Found]:
        return self._query(SeedBlocks.find, before, targets)

    def potentials(self, rows: list[int]) -> list[Pair]:
        return self._mutate(SeedBlocks.potentials, self._rows(rows))

    def accept(self, candidate: int) -> list[BlockTotal]:
        return self._mutate(SeedBlocks.accept, candidate)

    def add(self, rows: list[int]) -> list[BlockTotal]:
        return self._mutate(SeedBlocks.add, self._rows(rows))

    def sample_bernoulli(self, key: int, factor: float) -> list[int]:
        return self._query(SeedBlocks.sample_bernoulli, key, factor)

    def seed_weights(self, seeds: int) -> Double:
        grid = self._engine.weight_grid()
        blank, exported = self._query(SeedBlocks.exported_weights, seeds, grid)
        sums = _core.Sums(*blank)
        sums.absorb(exported)
        return sums.weights

    def defer(self, row: int) -> None:
        self._mutate(SeedBlocks.defer, self._rows([row]))

    def refresh(self, row: int) -> list[Refreshed]:
        return self._mutate(SeedBlocks.refresh, row)

    def add_deferred(self) -> list[BlockTotal]:
        return self._mutate(SeedBlocks.add_deferred)

    def _rows(self, rows: list[int]) -> Matrix:
        """Rows by number, in this order, repeated numbers included."""
        numbers, back = np.unique(np.array(rows, dtype=np.intp), return_inverse=True)
        return self._engine.pick(numbers)[back]
