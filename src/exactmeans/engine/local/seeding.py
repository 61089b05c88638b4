"""Seeding of the rows of a LocalEngine, with projections that prune candidates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from exactmeans.data.arrays import Double, as_array
from exactmeans.engine.local.coordinates import Survey, bytes_per_row
from exactmeans.engine.local.seed_blocks import SeedBlocks, Seeds
from exactmeans.engine.seeding import REGRID_FALL, BlockSeeding

if TYPE_CHECKING:
    from exactmeans.engine.local.engine import LocalEngine

# Numbers of seeds at which a sample decides whether projections pay.
_PROBES = (4, 8, 24, 96, 384)
_SAMPLE = 256


class LocalSeedBlocks(SeedBlocks):
    """All blocks of a seeding; projects their rows where that prunes candidates.

    `planned`: about how many candidates will be evaluated, to decide which preparations pay.
    """

    def __init__(self, engine: LocalEngine, alpha: float, exponent: int, planned: int) -> None:
        spans = engine.spans
        begins = [begin for begin, _ in spans]
        super().__init__(engine, range(len(spans)), begins, alpha, exponent)
        self._planned = planned
        few = engine.d < 16 or engine.n < 16 * _SAMPLE
        tight = (
            engine.scratch_limit is not None
            and engine.n * bytes_per_row(engine.d) > engine.scratch_limit
        )
        unsuited = engine.sparse or few or tight or engine.streamed or engine.metric.l1
        self.probes = [] if unsuited else list(_PROBES)
        self._survey: Survey | None = None
        self._distances_before = 0

    @property
    def probe_is_due(self) -> bool:
        return bool(self.probes) and self.points.seeds >= self.probes[0]

    def _prepare(self, seeds: Seeds) -> None:
        """Project rows on the coordinates that prune most candidates in a sample, if that pays."""
        if self.probe_is_due and isinstance(seeds, Sequence):
            self._probe(seeds)
        self._distances_before = self.distances()

    def _probe(self, rows: Sequence[int]) -> None:
        engine, seeds = self._engine, self.points.seeds
        self.probes = [probe for probe in self.probes if probe > seeds]
        sample = np.linspace(0, engine.n - 1, _SAMPLE).astype(np.intp)
        if self._survey is None:
            self._survey = Survey(as_array(engine.take(sample)).astype(np.float64))
        if not self._survey.usable:
            self.probes = []
            return
        computed = self.distances() - self._distances_before
        found = self._survey.better(
            as_array(engine.take(np.array(rows))).astype(np.float64),
            np.ldexp(self.nearest2()[sample], -2 * self._exponent),
            usual=computed / (engine.n * len(rows)),
            planned=self._planned - len(rows) * seeds,
        )
        for one in found:
            for block in self.blocks:
                block.project(one.origin, one.axes, one.range, self._exponent, engine.n_jobs)

    def greedy(self, places: Double, enough: float) -> list[int]:
        """Steps of greedy k-means++ in the core, until a probe is due or the potential is small.

        Only for one block in memory.
        """
        # A probe compares with the distances that the step before it computed.
        most = max(1, self.probes[0] - self.points.seeds - 1) if self.probes else None
        (block,) = self.blocks
        self._distances_before = block.distances
        rows, n_jobs = self._engine.block_of(0).rows, self._engine.n_jobs
        return block.greedy(self.points, rows, places[:most], enough, n_jobs)


class LocalSeeding(BlockSeeding):
    """Seeding of rows in this process."""

    def __init__(
        self, engine: LocalEngine, *, exponent: int, alpha: float, candidates: int
    ) -> None:
        self._blocks = LocalSeedBlocks(engine, alpha, exponent, candidates)
        super().__init__(self._blocks, engine.n, alpha=alpha, width=engine.nonzeros / engine.n)
        self._in_one_block = len(engine.spans) == 1 and not engine.streamed

    def greedy(self, places: Double) -> list[int]:
        chosen: list[int] = []
        while len(chosen) < len(places):
            to_come = places[len(chosen) :]
            if not self._in_one_block or self._blocks.probe_is_due:
                chosen.append(self.best_of_drawn(to_come[0]))
                continue
            rows = self._blocks.greedy(to_come, self._bound * REGRID_FALL)
            chosen += rows
            self.seeds += len(rows)
            self._totals = self._blocks.totals()
            self._refine_grid()
        return chosen

    def nearest2(self) -> Double:
        """Squared distances to the nearest seed, on the frame's scale."""
        return self._blocks.nearest2()

    def distances(self) -> int:
        """Row-seed distances computed so far."""
        return self._blocks.distances()
