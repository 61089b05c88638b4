"""The engine for rows in this process: one block after the other, each on all threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exactmeans import _core
from exactmeans.data.arrays import Double, Labels, Matrix
from exactmeans.data.centres import for_core, like_rows
from exactmeans.data.stream import SelectedRows
from exactmeans.engine.frame import Frame
from exactmeans.engine.limits import BorderRows, Limits
from exactmeans.engine.local.blocks import Block, DuplicateRows
from exactmeans.engine.local.far_rows import far_rows
from exactmeans.engine.local.first_pass import FirstPass
from exactmeans.engine.local.limits import LocalLimitedAssign, labels_by_prices, row_hashes
from exactmeans.engine.local.seeding import LocalSeeding
from exactmeans.engine.local.surveyed_rows import SurveyedRows, added
from exactmeans.engine.protocol import AssignStats, FarRow, Grids

_FAR_BYTES = 2**22  # bytes of rows that far_rows fetches at once


class LocalEngine(SurveyedRows):
    """The rows of a fit: in memory, or read block by block whenever they are needed."""

    unread = 0  # blocks that passes skipped
    limited: LocalLimitedAssign | None = None
    _limits: Limits | None = None

    def alone(
        self,
        rows: Matrix,
        ids: NDArray[np.intp],
        *,
        weighted: bool = True,
        surveys: FirstPass | None = None,
    ) -> LocalEngine:
        """An engine over some of the rows, with or without their weights."""
        return LocalEngine(
            [rows],
            None if self.weights is None or not weighted else self.weights[ids],
            self.n_jobs,
            self.metric,
            self._zero_rows,
            norms=None if self.norms is None else self.norms[ids],
            surveys=surveys,
        )

    def part(self, ids: NDArray[np.intp], budget: float) -> LocalEngine:
        """An engine over rows by their ascending number, in memory if they take few enough bytes.

        Rows that come in blocks and take more are read again in every pass.
        """
        if self.streamed and self.bytes_of_rows() * len(ids) / self.n > budget:
            return LocalEngine(
                SelectedRows(self._stream, ids),
                None if self.weights is None else self.weights[ids],
                self.n_jobs,
                self.metric,
                self._zero_rows,
                scratch_limit=self.scratch_limit,
                feature_names=self._feature_names,
            )
        return self.alone(self.pick(ids), ids)

    def twin(self) -> LocalEngine:
        """An engine over the same rows, with labels of its own."""
        return LocalEngine(
            self._stream if self.streamed else [block.matrix for block in self._blocks],
            self.weights,
            self.n_jobs,
            self.metric,
            self._zero_rows,
            scratch_limit=self.scratch_limit,
            norms=self.norms,
            surveys=self._surveys,
        )

    def batch(self, rows: Matrix, ids: NDArray[np.intp], *, weighted: bool = True) -> LocalEngine:
        """An engine over some rows with the survey of all, whose bounds hold for every subset."""
        all_ = self._first_pass
        surveys = all_ if weighted else all_._replace(weighted=all_.plain)
        return self.alone(rows, ids, weighted=weighted, surveys=surveys)

    def one_block(self) -> LocalEngine:
        if len(self._blocks) > 1 or self.streamed:
            raise ValueError("X must not come in blocks where all rows are needed at once.")
        return self

    def whole(self) -> Matrix:
        """The data as one matrix; only for data that came as one."""
        (block,) = self._blocks
        return block.matrix

    def seeding(self, exponent: int, *, candidates: int, alpha: float = 2.0) -> LocalSeeding:
        """A seeding over these rows, which owns all its state."""
        return LocalSeeding(self, exponent=exponent, alpha=alpha, candidates=candidates)

    def deduplicate(self) -> int | None:
        """Compare one row for all its duplicates, where there are enough duplicates."""
        if self.streamed:
            return None
        if any(block.started for block in self._blocks):
            raise RuntimeError("deduplicate must be called before start.")
        for block in self._blocks:
            found = block.plain.duplicates(self.n_jobs)
            block.duplicates = None if found is None else DuplicateRows(found)
        if all(block.duplicates is None for block in self._blocks):
            return None
        return sum(
            block.n if block.duplicates is None else block.duplicates.n for block in self._blocks
        )

    def close(self) -> None:
        """Nothing is held elsewhere."""

    # -- an iteration --------------------------------------------------------------------------

    def start(
        self,
        algorithm: str,
        k: int,
        frame: Frame | None = None,
        grids: Grids | None = None,
        passes: int = 1,
    ) -> None:
        """Reset labels and bounds. Only engines with workers use the frame and the grids."""
        single, codes = self.dtype == np.float32, False
        # Streamed rows may be more than memory holds.
        if passes > 1 and not (self.sparse or self.streamed):
            needed = _core.code_bytes(single, self.n, k, self.d, passes)
            fits = self.scratch_limit is None or needed <= self.scratch_limit
            codes = needed > 0 and fits
        self.limited = None if self._limits is None else LocalLimitedAssign(self, self._limits, k)
        for block in self._blocks:
            block.start(algorithm, k, single=single, codes=codes)

    def mass(self, scale: float) -> int:
        """The weights of all rows that have a direction, times `scale`, each rounded to an int."""
        weights = self.counted()
        if weights is None:
            return self.n * round(scale)
        return int(np.rint(weights * scale).astype(np.int64).sum())

    def limit(self, limits: Limits) -> None:
        """From the next start on, sizes of clusters stay within these limits."""
        self._limits = limits

    @property
    def blocks(self) -> list[Block]:
        return self._blocks

    def use(self, algorithm: str) -> None:
        """Switch to another algorithm, which begins without bounds."""
        for block in self._blocks:
            block.assigner.use(algorithm)

    def assign(self, centroids: _core.Centroids, sums: _core.Sums | None = None) -> AssignStats:
        """Label every row, and bring the sums up to date with the labels."""
        if self.streamed and self.limited is None:
            return self._assign_streamed(centroids, sums)
        if self.limited is not None:
            stats = self.limited.assign(centroids)
        elif len(self._blocks) == 1:
            stats = self._blocks[0].assign(centroids, self.n_jobs)
        else:
            stats = AssignStats.total(
                [block.assign(centroids, self.n_jobs) for block in self._blocks]
            )
        if sums is not None:
            add = self.sum_all if 2 * stats.changed >= self.n else self.add_changes
            add(sums)
        return stats

    def _assign_streamed(self, centroids: _core.Centroids, sums: _core.Sums | None) -> AssignStats:
        """Update the sums while a block is in memory; skip blocks whose labels cannot change."""

        def certain(block: Block) -> bool:
            if block.loaded is not None:
                return False
            return block.assigner.labels_certain(centroids, block.labels, self.n_jobs)

        unchanged = {block.number for block in self._blocks if certain(block)}
        self.unread += len(unchanged)
        summing = threading.Lock()

        def label(block: Block, n_jobs: int) -> AssignStats:
            stats = block.assign(centroids, n_jobs)
            if sums is not None:
                with summing:
                    block.relabel(sums, n_jobs)
            return stats

        all_stats = self.each(label, lambda block: block.number not in unchanged)
        certain_rows = sum(block.n for block in self._blocks if block.number in unchanged)
        all_stats.append(AssignStats(0, 0, certain_rows, unread=len(unchanged)))
        return AssignStats.total(all_stats)

    def cost(
        self, centroids: _core.Centroids, points: Matrix, exponent: int
    ) -> tuple[AssignStats, float]:
        """Label every row; returns the statistics, and the objective at `points`."""
        if self.limited is not None:
            stats = self.assign(centroids)
            return stats, self.scatter(points, exponent, labelled=True)[0]
        total, all_stats = _core.ExactSum(), []
        own_points = for_core(like_rows(points, sparse=self.sparse))

        def assign_and_cost(block: Block, n_jobs: int) -> tuple[AssignStats, _core.ExactSum]:
            own = block.assign(centroids, n_jobs)
            return own, block.rows.scatter(own_points, block.labels, exponent, n_jobs)[0]

        for own, cost in self.each(assign_and_cost):
            all_stats.append(own)
            total.add(cost)
        return AssignStats.total(all_stats), total.value

    def assign_by_prices(
        self, centroids: _core.Centroids, prices: Double, border: BorderRows
    ) -> None:
        """Label every row by prices, and rows on a border as they were labelled before."""
        labels = labels_by_prices(self, centroids, prices)
        if len(border.labels):
            border.relabel(row_hashes(self), labels)
        for block in self._blocks:
            block.labels[:] = labels[block.begin : block.end]

    def sum_all(self, sums: _core.Sums) -> None:
        """Compute the sums of all rows by label, from scratch."""
        sums.reset()
        for block in self._blocks:
            block.summed.fill(-1)
        self.add_changes(sums)

    def add_changes(self, sums: _core.Sums) -> None:
        """Add the label changes since the last call to the sums."""
        for block in self.walk():
            block.relabel(sums, self.n_jobs)

    def exchange(
        self, centroids: _core.Centroids, sums: _core.Sums, batch_size: int
    ) -> Iterator[tuple[AssignStats, bool]]:
        """Label one batch after the other and update the sums after each.

        Yields the statistics of the batch, and whether it was the last. The caller may move the
        centres in between.
        """
        single, k = self.dtype == np.float32, len(sums.members)
        for block in self.walk():
            for begin in range(0, block.n, batch_size):
                rows, end = block.rows, min(begin + batch_size, block.n)
                if (begin, end) != (0, block.n):
                    piece = Block(block.number, block.begin + begin, block.begin + end)
                    rows = self._load(piece, block.matrix[begin:end]).rows
                labels, summed = block.labels[begin:end], block.summed[begin:end]
                assigner = _core.Assigner("lloyd", single, end - begin, k)
                stats = AssignStats(*assigner.assign(rows, centroids, labels, self.n_jobs))
                sums.relabel(rows, labels, summed, self.n_jobs)
                yield stats, block.begin + end == self.n

    def move_row(self, sums: _core.Sums, row: int, source: int, target: int) -> None:
        """Move a row from the sums of one cluster to those of another."""
        block = self.block_of(row)
        sums.move(block.rows, row - block.begin, source, False)
        sums.move(block.rows, row - block.begin, target, True)

    def moved(self, movement: _core.Movement) -> None:
        if self.limited is not None:
            self.limited.moved(movement)
            return
        for block in self._blocks:
            block.assigner.moved(movement)

    # -- labelled rows -------------------------------------------------------------------------

    def labels(self) -> Labels:
        if len(self._blocks) == 1:
            return self._blocks[0].labels
        return np.concatenate([block.labels for block in self._blocks])

    def final_labels(self) -> Labels:
        """The labels that users get: -1 for rows without a direction, which are in no cluster."""
        labels = self.labels()
        if self.norms is None or self.norms.all():
            return labels
        return np.where(self.norms > 0, labels, np.int32(-1))

    def scatter(self, points: Matrix, exponent: int, *, labelled: bool) -> tuple[float, float]:
        """The objective at the point of each row's label (or the only point), weighted and not."""
        weighted, plain = self.scattered(points, exponent, labelled=labelled)
        return weighted.value, plain.value

    def scattered(
        self, points: Matrix, exponent: int, *, labelled: bool
    ) -> tuple[_core.ExactSum, _core.ExactSum]:
        """The same as exact sums, which can be added to those of other rows."""
        given = for_core(like_rows(points, sparse=self.sparse))

        def own(block: Block, n_jobs: int) -> tuple[_core.ExactSum, _core.ExactSum]:
            labels = block.labels if labelled else None
            return block.rows.scatter(given, labels, exponent, n_jobs)

        return added(self.each(own))

    def own_distances(self, centres: Matrix, exponent: int) -> Double:
        """The objective of every row at its label's centre; 0 for duplicates of earlier rows."""
        out = np.zeros(self.n)
        given = for_core(like_rows(centres, sparse=self.sparse))
        for block in self.walk():
            own, duplicates = out[block.begin : block.end], block.duplicates
            if duplicates is None or self.weights is not None:  # a duplicate may have weight
                block.rows.own_distances(given, block.labels, exponent, own, self.n_jobs)
            else:
                of_first = np.empty(duplicates.n)
                duplicates.rows.own_distances(
                    given, duplicates.labels, exponent, of_first, self.n_jobs
                )
                own[duplicates.first] = of_first
        return out

    def far_rows(self, centres: Matrix, exponent: int) -> Iterator[FarRow]:
        """Rows that have weight and are not at their centres, farthest first."""
        distances = self.own_distances(centres, exponent)
        most = max(1, int(_FAR_BYTES / max(1.0, 16 * self.nonzeros / self.n)))
        return far_rows(distances, self.labels(), self.counted(), self.take, most)

    def nearest(
        self, centroids: _core.Centroids, centres: Matrix, exponent: int, m: int
    ) -> tuple[Labels, NDArray[Any]]:
        """The m nearest centres of every row and their distances, nearest first."""
        labels = np.empty((self.n, m), dtype=np.int32)
        distances = np.empty((self.n, m), dtype=self.dtype)
        given = for_core(like_rows(centres, sparse=self.sparse and not self.metric.l1))

        def find(block: Block, n_jobs: int) -> None:
            own = slice(block.begin, block.end)
            block.rows.nearest(centroids, given, exponent, labels[own], distances[own], n_jobs)

        self.each(find)
        if self.norms is not None and not self.norms.all():
            labels[self.norms == 0] = -1
        return labels, distances

    def transform(self, centres: Matrix, shift: NDArray[Any] | None, exponent: int) -> NDArray[Any]:
        """Distances of every row to every centre."""
        out = np.empty((self.n, centres.shape[0]), dtype=self.dtype)
        given = for_core(like_rows(centres, sparse=self.sparse and not self.metric.l1))
        for block in self.walk():
            own = out[block.begin : block.end]
            block.rows.transform(given, shift, exponent, own, self.n_jobs)
        return out

    def refuse_unscored(self) -> None:
        """Refuse NaN and infinity in dense rows in memory that `lloyd` has labelled.

        A row with a finite score is finite, so only a row without one leads to a survey.
        """
        if any(block.assigner.rows_without_score for block in self._blocks):
            self._refuse_nonfinite(self.survey(weighted=False))

    def medians(self, labels: Labels, centres: NDArray[Any]) -> None:
        """Put centres of clusters that have weight at their medians."""
        (block,) = self._blocks
        _core.move_to_medians(block.rows, labels, centres, self.n_jobs)

    def karcher(
        self, labels: Labels, centres: NDArray[Any], *, steps: int, tolerance: float
    ) -> float:
        """Move centres towards geodesic means; returns the objective before."""
        (block,) = self._blocks
        return _core.move_to_karcher(block.rows, labels, centres, steps, tolerance, self.n_jobs)
