"""Seeding of the rows of a LocalEngine: nearest seeds, sampling weights, draws.

Results do not depend on block boundaries: distances are per row, and sampling weights are added up
exactly (docs/numerics.md, "Seeding").
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from exactmeans import _core
from exactmeans.data.arrays import Double
from exactmeans.engine.local.coordinates import Survey, bytes_per_row
from exactmeans.engine.protocol import Seeding
from exactmeans.engine.seeding import FALL, add_weights, best_of_drawn, weight_sums
from exactmeans.metrics import Metric

if TYPE_CHECKING:
    from exactmeans.engine.local.blocks import Block
    from exactmeans.engine.local.engine import LocalEngine

# Numbers of seeds at which a sample decides whether projections pay.
_PROBES = (4, 8, 24, 96, 384)
_SAMPLE = 256
# Seeds whose distances are computed together where all of them are accepted.
_BATCH = 8


@dataclass
class _Part:
    begin: int
    end: int
    block: _core.SeedBlock
    rows: _core.Rows | None  # those that are always in memory


class LocalSeeding(Seeding):
    """Seeding of rows in this process."""

    def __init__(
        self,
        engine: LocalEngine,
        shape: tuple[int, int],
        *,
        sparse: bool,
        metric: Metric,
        exponent: int,
        alpha: float,
        candidates: int,
        width: float,
        n_jobs: int,
    ) -> None:
        """`candidates`: about how many will be evaluated, to decide which preparations pay.

        `width`: entries per row.
        """
        self.width = width
        self.n, self.d = shape
        self.n_jobs = n_jobs
        self._engine = engine
        self._exponent = exponent
        self._metric = metric
        self._planned = candidates
        few = self.d < 16 or self.n < 16 * _SAMPLE
        tight = (
            engine.scratch_limit is not None
            and self.n * bytes_per_row(self.d) > engine.scratch_limit
        )
        no = sparse or few or tight or engine.streamed or metric.l1
        self._probes = [] if no else list(_PROBES)
        self._survey: Survey | None = None
        self._sparse = sparse
        self._alpha = alpha
        self._points, self._late = self._new_points(), self._new_points()
        self._late_rows: list[int] = []
        self._parts: list[_Part] = []
        self._bound = 0.0
        self._total = (0.0, 0.0)
        self._seen = 0

    @property
    def seeds(self) -> int:
        return self._points.seeds

    @property
    def potential(self) -> float:
        return self._total[0] + self._total[1]

    def start(self, seed: int | Double) -> None:
        if isinstance(seed, np.ndarray):
            self._points.unstage()
            self._points.stage_point(seed)
        else:
            self._stage([seed])
        make = _core.SeedBlock.passing if self._engine.streamed else _core.SeedBlock.make
        for part in self._engine.walk():
            block = make(part.rows, self._alpha, self._exponent, self.n_jobs)
            rows = None if self._engine.streamed else part.rows
            self._parts.append(_Part(part.begin, part.end, block, rows))
            with self._attached(part):
                block.absorb(self._points, self.n_jobs)
        self._points.accept(0)
        self._first_grid()

    def draw(self, places: Double) -> list[int]:
        targets = (places * self.potential).tolist()
        drawn, before = [0] * len(targets), (0.0, 0.0)
        for part in self._parts:
            # A part that ends below the target gives its length: where the next one begins.
            found = part.block.find(before, targets)
            drawn = [
                part.begin + row if so_far == part.begin else so_far
                for so_far, row in zip(drawn, found, strict=True)
            ]
            before = _plus(before, part.block.total)
        return [min(row, self.n - 1) for row in drawn]

    def potentials(self, rows: list[int]) -> list[float]:
        self._stage(rows)
        self._consider_projection(rows)
        self._seen = self.distances()
        left = [(0.0, 0.0)] * len(rows)
        for block in self._visit():
            own = block.totals_left(self._points, self.n_jobs)
            left = [_plus(a, b) for a, b in zip(left, own, strict=True)]
        return [high + low for high, low in left]

    def accept(self, candidate: int) -> None:
        for part in self._parts:
            if part.block.remembers(candidate):
                part.block.accept(self._points, candidate, self.n_jobs)
        for block in self._visit(lambda block: not block.remembers(candidate)):
            block.accept(self._points, candidate, self.n_jobs)
        self._points.accept(candidate)
        self._refine_grid()

    def greedy(self, places: Double) -> list[int]:
        part, chosen = self._parts[0], list[int]()
        while len(chosen) < len(places):
            to_come = places[len(chosen) :]
            if len(self._parts) > 1 or part.rows is None or self._probe_is_due():
                chosen.append(best_of_drawn(self, to_come[0]))
                continue
            # A probe wants to know what the step before it has measured.
            most = max(1, self._probes[0] - self.seeds - 1) if self._probes else None
            self._seen = part.block.distances
            chosen += part.block.greedy(
                self._points, part.rows, to_come[:most], self._bound * FALL, self.n_jobs
            )
            self._refine_grid()
        return chosen

    def absorb(self, rows: list[int]) -> None:
        if self._engine.streamed and rows:
            self._absorb_in_one_pass(rows)
            return
        for begin in range(0, len(rows), _BATCH):
            batch = rows[begin : begin + _BATCH]
            self._stage(batch)
            self._consider_projection(batch)
            self._seen = self.distances()
            for block in self._visit():
                block.absorb(self._points, self.n_jobs)
            for candidate in range(len(batch)):
                self._points.accept(candidate)
        self._refine_grid()

    def _absorb_in_one_pass(self, rows: list[int]) -> None:
        """The same batches, all of them for one block after the other."""
        ids, places = np.unique(np.array(rows, dtype=np.intp), return_inverse=True)
        few = self._engine.alone(self._engine.pick(ids), ids).block_of(0).rows
        known = self.seeds
        for block in self._visit():
            self._points.retract(known)
            for begin in range(0, len(rows), _BATCH):
                batch = places[begin : begin + _BATCH].tolist()
                self._points.unstage()
                self._points.stage(few, batch)
                block.absorb(self._points, self.n_jobs)
                for candidate in range(len(batch)):
                    self._points.accept(candidate)
        self._refine_grid()

    def farthest(self) -> int:
        best, most = -1, 0.0
        for part in self._parts:
            row, d2 = part.block.farthest()
            if d2 > most:
                best, most = part.begin + row, d2
        return best

    def sample_bernoulli(self, key: int, expected: float) -> list[int]:
        factor = expected / self.potential
        return [
            part.begin + row
            for part in self._parts
            for row in part.block.toss(key, part.begin, factor)
        ]

    @property
    def pending(self) -> int:
        return self._late.seeds

    def put_off(self, row: int) -> None:
        part = self._engine.block_of(row)
        self._late.unstage()
        self._late.stage(part.rows, [row - part.begin])
        self._late.accept(0)
        self._late_rows.append(row)

    def refresh(self, row: int) -> tuple[float, float]:
        block_here = self._engine.block_of(row)
        block, i = self._parts[block_here.number].block, row - block_here.begin
        before = block.mass(i)
        with self._attached(block_here):
            now = block.refresh(self._late, i)
        self._add_up()
        return before, now

    def catch_up(self) -> None:
        rows, self._late_rows = self._late_rows, []
        self._late = self._new_points()
        self.absorb(rows)

    def nearest2(self) -> Double:
        """Squared distances to the nearest seed, on the frame's scale."""
        return np.concatenate([part.block.d2 for part in self._parts])

    def owners(self) -> NDArray[np.int32]:
        """The nearest seed of every row."""
        return np.concatenate([part.block.own for part in self._parts])

    def followers(self) -> Double:
        sums = _core.Sums(*weight_sums(self.seeds, self._engine.weight_grid()))
        add_weights(sums, self.owners(), self.n, self._engine.counted(), self.n_jobs)
        return sums.weights

    def distances(self) -> int:
        """Row-seed distances computed so far."""
        return sum(part.block.distances for part in self._parts)

    def _consider_projection(self, rows: list[int]) -> None:
        """Project rows on the coordinates that prune most candidates in a sample, if that pays."""
        if not self._probe_is_due():
            return
        self._probes = [probe for probe in self._probes if probe > self.seeds]
        sample = np.linspace(0, self.n - 1, _SAMPLE).astype(np.intp)
        if self._survey is None:
            self._survey = Survey(self._engine.take(sample).astype(np.float64))
        if not self._survey.usable:
            self._probes = []
            return
        found = self._survey.better(
            self._engine.take(np.array(rows)).astype(np.float64),
            np.ldexp(self.nearest2()[sample], -2 * self._exponent),
            usual=(self.distances() - self._seen) / (self.n * len(rows)),
            planned=self._planned - len(rows) * self.seeds,
        )
        for one in found:
            for part in self._parts:
                part.block.project(one.origin, one.axes, one.range, self._exponent, self.n_jobs)

    def _probe_is_due(self) -> bool:
        return bool(self._probes) and self.seeds >= self._probes[0]

    def _new_points(self) -> _core.SeedPoints:
        return _core.SeedPoints(self.d, self._exponent, self._sparse, self._metric.directed)

    def _stage(self, rows: list[int]) -> None:
        self._points.unstage()
        if len(self._parts) == 1:
            self._points.stage(self._engine.block_of(0).rows, rows)
            return
        for row in rows:
            part = self._engine.block_of(row)
            self._points.stage(part.rows, [row - part.begin])

    def _visit(
        self, wanted: Callable[[_core.SeedBlock], bool] | None = None
    ) -> Iterator[_core.SeedBlock]:
        """Seed blocks, with their rows in memory."""
        if not self._engine.streamed:
            yield from (own.block for own in self._parts if wanted is None or wanted(own.block))
            return
        chosen = None if wanted is None else (lambda part: wanted(self._parts[part.number].block))
        for part in self._engine.walk(chosen):
            with self._attached(part):
                yield self._parts[part.number].block

    def _attached(self, part: Block) -> AbstractContextManager[None]:
        """Attach streamed rows to their seed block while they are in memory."""
        return self._shown(part) if self._engine.streamed else nullcontext()

    @contextmanager
    def _shown(self, part: Block) -> Iterator[None]:
        block = self._parts[part.number].block
        block.attach(part.rows)
        try:
            yield
        finally:
            block.detach()

    def _lay_grid(self, bound: float) -> None:
        self._bound = bound
        for part in self._parts:
            part.block.lay_grid(bound, self.n, self.n_jobs)
        self._add_up()

    def _first_grid(self) -> None:
        if self._alpha not in (1.0, 2.0):
            unit2 = max((part.block.farthest()[1] for part in self._parts), default=0.0)
            for part in self._parts:
                part.block.set_unit2(unit2 if unit2 > 0 else 1.0)
        self._lay_grid(self.n * max(part.block.largest() for part in self._parts))
        if 0 < self.potential < self._bound * FALL:
            self._lay_grid(2 * self.potential)

    def _refine_grid(self) -> None:
        self._add_up()
        if self.potential < self._bound * FALL and self._bound > 0:
            self._first_grid()

    def _add_up(self) -> None:
        self._total = (0.0, 0.0)
        for part in self._parts:
            self._total = _plus(self._total, part.block.total)


def _plus(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
    return a[0] + b[0], a[1] + b[1]
