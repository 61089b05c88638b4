"""Rows before the first iteration: checks, survey, exact totals, frequencies of features."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exactmeans import _core
from exactmeans.data.arrays import Double, Matrix
from exactmeans.data.centres import for_core, like_rows
from exactmeans.data.rows import Lengths, refuse_nonfinite, refuse_overflow
from exactmeans.data.stream import Stream
from exactmeans.engine.local.blocks import Block, unlabelled
from exactmeans.engine.local.digest import Digest
from exactmeans.engine.local.first_pass import FirstPass, first_pass, packed_columns, values_in
from exactmeans.engine.local.row_blocks import RowBlocks
from exactmeans.engine.seeding import ONE, add_weights, weight_sums
from exactmeans.metrics import EUCLIDEAN, Metric


class SurveyedRows(RowBlocks):
    """Rows and their statistics before the first iteration."""

    def __init__(
        self,
        blocks: list[Matrix] | Stream,
        weights: Double | None,
        n_jobs: int,
        metric: Metric = EUCLIDEAN,
        zero_rows: str = "error",
        *,
        scratch_limit: int | None = None,
        feature_names: Sequence[str] | NDArray[Any] | None = None,
        digest: Digest | None = None,
        norms: Double | None = None,
        surveys: FirstPass | None = None,
    ) -> None:
        """`digest`: to be filled in the first pass over the rows.

        `feature_names`: for errors; `norms`: lengths of the rows, `surveys`: bounds of their
        values, if they are known.
        """
        super().__init__(blocks, weights, n_jobs, metric, norms=norms, feature_names=feature_names)
        self.scratch_limit = scratch_limit
        self._zero_rows = zero_rows
        self._digest = digest
        self._surveys = surveys

    # -- memory and checks ---------------------------------------------------------------------

    def keep(self, budget: float) -> int:
        """Let blocks stay in memory up to this many bytes; returns the bytes of those that do."""
        if not self.streamed:
            return 0
        _ = self._first_pass  # sets the size of each block
        kept = 0
        for block in self._blocks:
            block.resident = kept + block.size <= budget
            kept += block.size if block.resident else 0
        return kept

    @property
    def reading_bytes(self) -> int:
        """Bytes of the current block, the next one and their conversions, and of the reader.

        Allocators hold 1.5 times the memory that a reader reports (measured with pyarrow).
        """
        if not self.streamed:
            return 0
        _ = self._first_pass  # sets the size of each block
        return 4 * max(block.size for block in self._blocks) + self._stream.held_bytes * 3 // 2

    def refuse_nonfinite(self) -> None:
        """Refuse NaN and infinity; streamed blocks are checked when they are first read."""
        if self.streamed:
            self.check_when_read()
        else:
            self._refuse_nonfinite(self.survey(weighted=False))

    def _refuse_nonfinite(self, survey: _core.Survey) -> None:
        if survey.first_bad_row >= 0:
            block = self.block_of(survey.first_bad_row)
            own = block.plain.survey(self.n_jobs)
            refuse_nonfinite(own, block.begin, block.matrix, self._feature_names)

    def examine(self, *, to_fit: bool = True) -> _core.Survey:
        """The first pass: refuses values that the metric cannot take.

        `to_fit`: also refuses data without any direction, which cannot be clustered.
        """
        survey = self.survey(weighted=False)
        self._refuse_nonfinite(survey)
        if self.norms is not None:
            lengths = Lengths.of(self.norms)
            lengths.refuse(self._zero_rows, self.metric.name)
            if to_fit:
                lengths.refuse_none(self.n, self.metric.name)
        if self.metric.l1:
            rows = self.n if self.weights is None else self.weights.sum()
            refuse_overflow(survey.largest, self.d, self.dtype, float(rows))
        return survey

    def survey(self, *, weighted: bool) -> _core.Survey:
        """Largest values and the first row that is not finite."""
        first = self._surveys or self._first_pass
        return first.weighted if weighted else first.plain

    @cached_property
    def _first_pass(self) -> FirstPass:
        return first_pass(self, self._digest)

    # -- counts and weights --------------------------------------------------------------------

    @property
    def most_rows(self) -> int:
        """The most rows that one process works on."""
        return self.n

    @cached_property
    def nonzeros(self) -> int:
        """Stored values of all rows."""
        if self.streamed:
            return self._first_pass.nonzeros
        return sum(values_in(block.matrix) for block in self._blocks)

    def bytes_of_rows(self) -> int:
        """Bytes that all rows would take in memory."""
        _ = self._first_pass  # sets the size of each block
        return sum(block.size for block in self._blocks)

    @property
    def weighted(self) -> bool:
        return self.weights is not None

    def directions(self) -> int:
        return self.n if self.norms is None else int(np.count_nonzero(self.norms))

    def counted(self) -> Double | None:
        """Weights of rows, 0 for those without a direction; None if all are 1."""
        if self.norms is None or self.norms.all():
            return self.weights
        weights = np.ones(self.n) if self.weights is None else self.weights
        return weights * (self.norms > 0)

    def overlap(self) -> float:
        """Entries of all rows in the features of a row, on average.

        Infinite where it is unknown, or where features far outnumber entries.
        """
        if not self.sparse or self.streamed or self.d > 4 * self.nonzeros:
            return math.inf
        counts = self._frequencies.astype(np.float64)
        # Not a dot product: BLAS threads would spin afterwards and take cores from ours.
        return float(np.square(counts).sum()) / self.n

    def packed_columns(self) -> NDArray[np.uint32] | None:
        """The packed column of each feature of sparse centres: frequent features together."""
        return None if self.d * 16 > self.nonzeros else self._packed_columns

    @cached_property
    def _packed_columns(self) -> NDArray[np.uint32]:
        return packed_columns(self._frequencies)

    @cached_property
    def _frequencies(self) -> NDArray[np.int64]:
        """How many rows have each feature."""
        if self.streamed and self._first_pass.counts is not None:
            return self._first_pass.counts
        counts = np.zeros(self.d, dtype=np.int64)
        for block in self.walk():
            block.plain.count_features(counts)
        return counts

    def fingerprint(self) -> str:
        """A hash of all rows and weights in order, independent of block boundaries."""
        if self._digest is None:
            raise RuntimeError("fingerprint needs an engine that was made with a digest.")
        _ = self._first_pass  # fills the digest
        return self._digest.word(f"{self.n} {self.d} {self.dtype} {self.sparse}", self.weights)

    # -- exact totals --------------------------------------------------------------------------

    def bins_needed(self, grid: _core.Grid, *, weighted: bool) -> int:
        """How many bins of the grid the exact sums need."""
        return max(self.each(lambda p, jobs: self._rows(p, weighted).bins_needed(grid, jobs)))

    def weight_grid(self) -> _core.Grid:
        """The grid of exact sums of weights, or of counts."""
        if self.weights is None:
            return _core.Grid(ONE, self.n)
        grid = _core.Grid(self.weights.max(keepdims=True), self.n)
        grid.bins = _core.Rows.dense(self.weights[:, np.newaxis], None).bins_needed(grid, 1)
        return grid

    def total_weight(self) -> float:
        sums = _core.Sums(*weight_sums(1, self.weight_grid()))
        add_weights(sums, None, self.n, self.weights, self.n_jobs)
        return float(sums.weights[0])

    def total(self, grid: _core.Grid, *, weighted: _core.Grid | None = None) -> _core.Sums:
        """The sum of all rows without their weights, as cluster 0; sets the bins of the grids.

        In one pass, unless some block needs more bins than the first.
        """
        bins, counts = grid.bins, _core.Grid(ONE, self.n)
        sums: _core.Sums | None = None
        for block in self.walk():
            bins = max(bins, block.plain.bins_needed(grid, self.n_jobs))
            if weighted is not None:
                more = block.rows.bins_needed(weighted, self.n_jobs)
                weighted.bins = max(weighted.bins, more)
            if sums is None:
                grid.bins = bins
                sums = _core.Sums(1, self.d, grid, counts, sparse=self.sparse)
            if bins == grid.bins:
                sums.relabel(block.plain, None, unlabelled(block.n), self.n_jobs)
        if sums is None or bins > grid.bins:
            grid.bins = bins
            return self.total(grid)
        return sums

    def add_all(self, sums: _core.Sums, *, weighted: bool = False) -> None:
        """Put every row into cluster 0 of `sums`."""
        for block in self.walk():
            sums.relabel(self._rows(block, weighted), None, unlabelled(block.n), self.n_jobs)

    def squares(self, point: Matrix, exponent: int) -> tuple[float, float]:
        """Sum of squared distances to a point, weighted and not, whatever the metric."""
        weighted, plain = self.squared(point, exponent)
        return weighted.value, plain.value

    def squared(self, point: Matrix, exponent: int) -> tuple[_core.ExactSum, _core.ExactSum]:
        """The same as exact sums, which can be added to those of other rows."""
        points = for_core(like_rows(point, sparse=self.sparse))

        def own(block: Block, n_jobs: int) -> tuple[_core.ExactSum, _core.ExactSum]:
            rows = block.rows
            if self.metric is not EUCLIDEAN:
                rows = self._by_metric(block, rows, self.weights, EUCLIDEAN)
            return rows.scatter(points, None, exponent, n_jobs)

        return added(self.each(own))

    @staticmethod
    def _rows(block: Block, weighted: bool) -> _core.Rows:
        return block.rows if weighted else block.plain


def added(
    some: list[tuple[_core.ExactSum, _core.ExactSum]],
) -> tuple[_core.ExactSum, _core.ExactSum]:
    """The sums over all blocks, weighted and not."""
    weighted, plain = some[0]
    for more in some[1:]:
        weighted.add(more[0])
        plain.add(more[1])
    return weighted, plain
