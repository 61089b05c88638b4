"""All blocks in this process, one after the other, each on all threads.

An engine is the data as the loop sees it: a handful of operations over all rows, each of which
gives the same bits however the rows are cut into blocks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from exactmeans import _core
from exactmeans._centres import for_core, like_rows
from exactmeans._validation import Double, Matrix, offsets_of, rows_of
from exactmeans.engines.seeding import LocalSeeding

Labels = NDArray[np.int32]


class Tally(NamedTuple):
    """What an assignment of all rows came to."""

    changed: int  # rows with a new label
    distances: int  # row-centre distances computed
    skipped: int  # rows whose label was certain without any


def _unlabelled(n: int) -> Labels:
    return np.full(n, -1, dtype=np.int32)


@dataclass
class _Part:
    """A block, and what is kept beside its rows."""

    block: Matrix
    begin: int
    end: int
    rows: _core.Rows
    plain: _core.Rows  # the same rows, every one with weight 1
    labels: Labels = field(init=False)
    summed: Labels = field(init=False)  # the labels that the sums stand for
    assigner: _core.Assigner = field(init=False)


class LocalEngine:
    """The rows of a fit, in memory."""

    def __init__(self, blocks: list[Matrix], weights: Double | None, n_jobs: int) -> None:
        self.n = sum(block.shape[0] for block in blocks)
        self.d: int = blocks[0].shape[1]
        self.dtype: np.dtype[Any] = blocks[0].dtype
        self.sparse = bool(sp.issparse(blocks[0]))
        self.weights = weights
        self.n_jobs = n_jobs
        self.nonzeros = sum(block.nnz if self.sparse else block.size for block in blocks)
        self._slots: NDArray[np.uint32] | None = None
        self._parts: list[_Part] = []
        for block, (begin, end) in zip(blocks, offsets_of(blocks), strict=True):
            plain = rows_of(block, None)
            own = None if weights is None else weights[begin:end]
            rows = plain if own is None else rows_of(block, own)
            self._parts.append(_Part(block, begin, end, rows, plain))

    # -- before the first iteration ------------------------------------------------------------

    def survey(self, *, weighted: bool) -> _core.Survey:
        """Largest values and the first row that is not finite."""
        surveys = [self._rows(p, weighted).survey(self.n_jobs) for p in self._parts]
        for part, survey in zip(self._parts[1:], surveys[1:], strict=True):
            surveys[0].merge(survey, part.begin)
        return surveys[0]

    def words_needed(self, grid: _core.Grid, *, weighted: bool) -> int:
        """How many words of the grid the exact sums take."""
        return max(self._rows(p, weighted).words_needed(grid, self.n_jobs) for p in self._parts)

    def add_all(self, sums: _core.Sums, *, weighted: bool = False) -> None:
        """Put every row into cluster 0 of `sums`."""
        for part in self._parts:
            sums.relabel(self._rows(part, weighted), None, _unlabelled(part.rows.n), self.n_jobs)

    def scatter(self, points: Matrix, exponent: int, *, labelled: bool) -> tuple[float, float]:
        """Sum of squared distances to the own (or only) point, weighted and not."""
        weighted, plain = _core.ExactSum(), _core.ExactSum()
        points = for_core(like_rows(points, sparse=self.sparse))
        for part in self._parts:
            labels = part.labels if labelled else None
            own = part.rows.scatter(points, labels, exponent, self.n_jobs)
            weighted.add(own[0])
            plain.add(own[1])
        return weighted.value, plain.value

    def take(self, ids: NDArray[np.intp]) -> Matrix:
        """Rows by their number, in the layout of the data; sparse ones in canonical form."""
        if self.sparse:
            order = np.argsort(ids, kind="stable")
            rows = sp.csr_array(self.pick(ids[order])[np.argsort(order)])
            rows.has_sorted_indices = rows.has_canonical_format = False  # flags may be out of date
            rows.sum_duplicates()
            return rows
        out = np.empty((len(ids), self.d), dtype=self.dtype)
        for part in self._parts:
            here = np.flatnonzero((ids >= part.begin) & (ids < part.end))
            if len(here):
                out[here] = part.block[ids[here] - part.begin]
        return out

    def pick(self, ids: NDArray[np.intp]) -> Matrix:
        """Rows by their ascending number, in the layout of the data."""
        rows = [
            part.block[ids[(ids >= part.begin) & (ids < part.end)] - part.begin]
            for part in self._parts
        ]
        return sp.vstack(rows, format="csr") if self.sparse else np.concatenate(rows)

    def slots(self) -> NDArray[np.uint32] | None:
        """Where the core should keep each feature of sparse centres: frequent ones together.

        Only the order of magnitude of a feature's frequency matters, so a sort is not needed.
        """
        if self.d * 16 > self.nonzeros:
            return None
        if self._slots is None:
            counts = np.zeros(self.d, dtype=np.int64)
            for part in self._parts:
                part.plain.count_features(counts)
            magnitude = np.frexp(counts.astype(np.float32))[1]
            order = np.argsort(-magnitude.astype(np.int8), kind="stable")  # a radix sort
            self._slots = np.empty(self.d, dtype=np.uint32)
            self._slots[order] = np.arange(self.d, dtype=np.uint32)
        return self._slots

    def whole(self) -> Matrix:
        """The data as one matrix; only for data that came as one."""
        (part,) = self._parts
        return part.block

    # -- seeding -------------------------------------------------------------------------------

    def seeding(self, exponent: int, *, candidates: int, alpha: float = 2.0) -> LocalSeeding:
        """The rows as seeding sees them; nothing of it outlives what is returned."""
        return LocalSeeding(
            [(part.begin, part.end, part.rows) for part in self._parts],
            self.take,
            (self.n, self.d),
            sparse=self.sparse,
            exponent=exponent,
            alpha=alpha,
            candidates=candidates,
            width=self.nonzeros / self.n,
            n_jobs=self.n_jobs,
        )

    # -- an iteration --------------------------------------------------------------------------

    def start(self, algorithm: str, k: int) -> None:
        """Forget labels and bounds."""
        single = self.dtype == np.float32
        for part in self._parts:
            part.labels = _unlabelled(part.rows.n)
            part.summed = _unlabelled(part.rows.n)
            part.assigner = _core.Assigner(algorithm, single, part.rows.n, k)

    def use(self, algorithm: str) -> None:
        """Go on with another algorithm, which begins without bounds."""
        for part in self._parts:
            part.assigner.use(algorithm)

    def assign(self, centroids: _core.Centroids) -> Tally:
        """Label every row."""
        tallies = [
            part.assigner.assign(part.rows, centroids, part.labels, self.n_jobs)
            for part in self._parts
        ]
        changed, distances, skipped = (sum(counts) for counts in zip(*tallies, strict=True))
        return Tally(changed, distances, skipped)

    def sum_up(self, sums: _core.Sums, changed: int) -> None:
        """Make the sums stand for the labels: by the changed rows only, or from nothing."""
        if 2 * changed >= self.n:
            sums.reset()
            for part in self._parts:
                part.summed.fill(-1)
        for part in self._parts:
            sums.relabel(part.rows, part.labels, part.summed, self.n_jobs)

    def move_row(self, sums: _core.Sums, row: int, source: int, target: int) -> None:
        """Take a row's share out of one cluster's sums and put it into another's."""
        part = self._part_of(row)
        sums.move(part.rows, row - part.begin, source, False)
        sums.move(part.rows, row - part.begin, target, True)

    def moved(self, movement: _core.Movement) -> None:
        for part in self._parts:
            part.assigner.moved(movement)

    def own_distances(self, centres: Matrix, exponent: int) -> Double:
        """Squared distance of every row to the centre of its label."""
        out = np.empty(self.n)
        centres = for_core(like_rows(centres, sparse=self.sparse))
        for part in self._parts:
            own = out[part.begin : part.end]
            part.rows.own_distances(centres, part.labels, exponent, own, self.n_jobs)
        return out

    def transform(self, centres: Matrix, shift: NDArray[Any] | None, exponent: int) -> NDArray[Any]:
        """Distances of every row to every centre."""
        out = np.empty((self.n, centres.shape[0]), dtype=self.dtype)
        centres = for_core(like_rows(centres, sparse=self.sparse))
        for part in self._parts:
            own = out[part.begin : part.end]
            part.rows.transform(centres, shift, exponent, own, self.n_jobs)
        return out

    def labels(self) -> Labels:
        if len(self._parts) == 1:
            return self._parts[0].labels
        return np.concatenate([part.labels for part in self._parts])

    def _part_of(self, row: int) -> _Part:
        return next(part for part in self._parts if part.begin <= row < part.end)

    @staticmethod
    def _rows(part: _Part, weighted: bool) -> _core.Rows:
        return part.rows if weighted else part.plain
