"""The engine for rows in this process: one block after the other, each on all threads.

Streamed blocks are read in every pass, the next one while the current one is processed; only a few
numbers per row stay in memory.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, islice, pairwise
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from exactmeans import _core
from exactmeans.data.arrays import Double, Labels, Matrix
from exactmeans.data.centres import for_core, like_rows, normalise
from exactmeans.data.rows import Lengths, refuse_nonfinite, refuse_overflow, rows_of
from exactmeans.data.source import BufferPool
from exactmeans.data.stream import Stream, count_rows, offsets_of
from exactmeans.engine.frame import Frame
from exactmeans.engine.local.blocks import Block, DuplicateRows, LoadedBlock, bytes_of, unlabelled
from exactmeans.engine.local.digest import Digest
from exactmeans.engine.local.seeding import LocalSeeding
from exactmeans.engine.protocol import AssignStats, FarRow
from exactmeans.engine.seeding import ONE, add_weights, weight_sums
from exactmeans.metrics import EUCLIDEAN, Metric

T = TypeVar("T")

_FAR_BYTES = 2**22  # bytes of rows that far_rows fetches at once


def slots_for(counts: NDArray[np.int64]) -> NDArray[np.uint32]:
    """Packed columns of the features, frequent features first."""
    magnitude = np.frexp(counts.astype(np.float32))[1]
    order = np.argsort(-magnitude.astype(np.int8), kind="stable")  # a radix sort
    slots = np.empty(len(counts), dtype=np.uint32)
    slots[order] = np.arange(len(counts), dtype=np.uint32)
    return slots


def _bytes(row: Matrix) -> bytes:
    """Equal for equal rows; -0.0 equals 0.0."""
    if isinstance(row, np.ndarray):
        return (row + 0.0).tobytes()
    row.eliminate_zeros()
    return bytes(row.indices.astype(np.int64).tobytes() + row.data.tobytes())


def farthest_first(distances: Double) -> Iterator[int]:
    """Rows with a distance above 0 by decreasing distance, ties by row number.

    Callers take few of them, so the iterator sorts in growing chunks.
    """
    left, count = np.flatnonzero(distances > 0), 256
    while len(left):
        far, now = distances[left], left
        if count < len(left):
            least = np.partition(far, -count)[-count]
            now, left = left[far >= least], left[far < least]
        else:
            left = left[:0]
        yield from now[np.argsort(-distances[now], kind="stable")].tolist()
        count *= 8


def _holding(ids: NDArray[np.intp]) -> Callable[[Block], bool]:
    return lambda block: bool(((ids >= block.begin) & (ids < block.end)).any())


def _sum_stats(all_stats: list[tuple[int, int, int]], unread: int = 0) -> AssignStats:
    changed, distances, skipped = (sum(counts) for counts in zip(*all_stats, strict=True))
    return AssignStats(changed, distances, skipped, unread)


def _total(
    some: list[tuple[_core.ExactSum, _core.ExactSum]],
) -> tuple[_core.ExactSum, _core.ExactSum]:
    weighted, plain = some[0]
    for more in some[1:]:
        weighted.add(more[0])
        plain.add(more[1])
    return weighted, plain


class LocalEngine:
    """The rows of a fit: in memory, or read block by block whenever they are needed."""

    nonzeros = 0
    passes = 0.0  # over the blocks that are not in memory; parts of one count as such
    unread = 0  # blocks that passes did without
    _slots: NDArray[np.uint32] | None = None
    _counts: NDArray[np.int64] | None = None
    _spare: Block | None = None
    _followed: _core.Sums | None = None

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
    ) -> None:
        """`feature_names`: for errors; `digest`: to be filled in the first pass over the rows."""
        self.weights = weights
        self.scratch_limit = scratch_limit
        self._feature_names = feature_names
        self._digest = digest
        self.n_jobs = n_jobs
        self.metric = metric
        self.streamed = isinstance(blocks, Stream)
        self._zero_rows = zero_rows
        self.n = count_rows(blocks)
        # Lengths of the rows, where only directions count; filled when a block is first loaded.
        self.norms: Double | None = np.empty(self.n) if metric.directed else None
        self._measured: set[int] = set()
        self._surveys: dict[bool, _core.Survey] = {}
        self._unchecked: set[int] = set()
        if isinstance(blocks, Stream):
            self._stream = blocks
            self._pools = BufferPool(), BufferPool()  # of the current block and of the next
            self.d, self.sparse = blocks.d, blocks.sparse
            self.dtype: np.dtype[Any] = blocks.dtype
            ends = list(pairwise(blocks.edges))
            self._blocks = [Block(b, *ends[b], resident=False) for b in range(len(blocks))]
            return
        self.d = blocks[0].shape[1]
        self.dtype = blocks[0].dtype
        self.sparse = not isinstance(blocks[0], np.ndarray)
        self._blocks = []
        for matrix, (begin, end) in zip(blocks, offsets_of(blocks), strict=True):
            self.nonzeros += matrix.nnz if self.sparse else matrix.size
            block = Block(len(self._blocks), begin, end)
            block.loaded = self._load(block, matrix)
            self._blocks.append(block)

    # -- loading blocks ---------------------------------------------------------------

    def _load(self, block: Block, matrix: Matrix) -> LoadedBlock:
        plain = rows_of(matrix, None)
        if self.metric is not EUCLIDEAN:
            if self.norms is not None and block.number not in self._measured:
                plain.lengths(self.norms[block.begin : block.end], self.n_jobs)
                self._measured.add(block.number)
            return LoadedBlock(
                matrix,
                self._by_metric(block, plain, self.weights, self.metric),
                self._by_metric(block, plain, None, self.metric),
            )
        if self.weights is None:
            return LoadedBlock(matrix, plain, plain)
        return LoadedBlock(matrix, rows_of(matrix, self.weights[block.begin : block.end]), plain)

    def _read(self, block: Block, pool: BufferPool | None = None) -> LoadedBlock:
        return self._load(block, self._stream.read(block.number, None if block.resident else pool))

    def _by_metric(
        self, block: Block, rows: _core.Rows, weights: Double | None, metric: Metric
    ) -> _core.Rows:
        norms = self.norms if metric.directed else None
        own = [None if a is None else a[block.begin : block.end] for a in (weights, norms)]
        return rows.with_metric(metric.name, *own)

    def walk(self, wanted: Callable[[Block], bool] | None = None) -> Iterator[Block]:
        """Blocks in order, each in memory while it is current; reads the next one ahead."""
        blocks = (
            self._blocks if wanted is None else [block for block in self._blocks if wanted(block)]
        )
        return self._walk(blocks) if self.streamed else iter(blocks)

    def _walk(self, blocks: list[Block]) -> Iterator[Block]:
        self._unload_spare()
        away = [block for block in blocks if block.loaded is None]
        if not away:
            yield from blocks
            return
        self._count(len(away))
        with ThreadPoolExecutor(1, "exactmeans-read") as reader:
            ahead, pools = iter(away), cycle(self._pools)
            coming = reader.submit(self._read, next(ahead), next(pools))
            for block in blocks:
                if block.loaded is not None:
                    yield block
                    continue
                block.loaded = coming.result()
                following = next(ahead, None)
                if following is not None:
                    coming = reader.submit(self._read, following, next(pools))
                try:
                    self._check(block)
                    yield block
                finally:
                    if not block.resident:
                        block.loaded = None

    def each(
        self, work: Callable[[Block, int], T], wanted: Callable[[Block], bool] | None = None
    ) -> list[T]:
        """The results of `work(block, threads)` for all blocks, in any order.

        If blocks must be read and there are threads, two Python threads each read a block (one at a
        time) and process it, so that a block is processed where it was read, and neither thread
        waits for the other at the end of each block.
        """
        threads = self.n_jobs - 1
        if not self.streamed or not threads:
            return [work(block, self.n_jobs) for block in self.walk(wanted)]
        blocks = deque(block for block in self._blocks if wanted is None or wanted(block))
        if not any(block.loaded is None for block in blocks):
            return [work(block, self.n_jobs) for block in blocks]
        self._unload_spare()
        self._count(sum(block.loaded is None for block in blocks))
        turn = threading.Lock()
        done: list[T] = []
        failed: list[tuple[int, BaseException]] = []

        def run(pool: BufferPool) -> None:
            number = -1
            try:
                while True:
                    with turn:
                        if not blocks:
                            return
                        block = blocks.popleft()
                        number = block.number
                        block.loaded = block.loaded or self._read(block, pool)
                    self._check(block)
                    done.append(work(block, threads))
                    block.loaded = block.loaded if block.resident else None
            except BaseException as error:  # Ctrl-C too
                blocks.clear()
                failed.append((number, error))

        try:
            with ThreadPoolExecutor(1, "exactmeans-read") as second:
                second.submit(run, self._pools[1])
                run(self._pools[0])
        finally:
            for block in self._blocks:
                block.loaded = block.loaded if block.resident else None
        if failed:  # of several errors, raise that of the first rows
            raise min(failed, key=lambda at: at[0])[1]
        return done

    @property
    def spans(self) -> list[tuple[int, int]]:
        """First row and end of each block."""
        return [(block.begin, block.end) for block in self._blocks]

    def block_of(self, row: int) -> Block:
        """The block with this row, in memory until the next call."""
        block = next(block for block in self._blocks if block.begin <= row < block.end)
        if block.loaded is None:
            self._unload_spare()
            self._count(1)
            block.loaded = self._read(block)
            self._spare = block
        return block

    def _unload_spare(self) -> None:
        if self._spare is not None and not self._spare.resident:
            self._spare.loaded = None
        self._spare = None

    def _count(self, reads: int) -> None:
        self.passes += reads / sum(block.loaded is None for block in self._blocks)

    def keep(self, budget: float) -> int:
        """Let blocks stay in memory up to this many bytes; returns the bytes of those that do."""
        kept = 0
        for block in self._blocks if self.streamed else ():
            block.resident = kept + block.size <= budget
            kept += block.size if block.resident else 0
        return kept

    @property
    def reading_bytes(self) -> int:
        """Bytes of the current block, the next one and their conversions, and of the reader.

        Allocators hold 1.5 times the memory that a reader reports (measured with pyarrow).
        """
        self.survey(weighted=False)
        if not self.streamed:
            return 0
        return 4 * max(block.size for block in self._blocks) + self._stream.held_bytes * 3 // 2

    def refuse_nonfinite(self) -> None:
        """Refuse NaN and infinity: now, or, of streamed blocks, when they are first read."""
        if self.streamed:
            self._unchecked = {block.number for block in self._blocks}
        else:
            self._refuse_nonfinite(self.survey(weighted=False))

    def _refuse_nonfinite(self, survey: _core.Survey) -> None:
        if survey.first_bad_row >= 0:
            block = self.block_of(survey.first_bad_row)
            own = block.plain.survey(self.n_jobs)
            refuse_nonfinite(own, block.begin, block.matrix, self._feature_names)

    def refuse_doubtful(self) -> None:
        """The same for dense rows in memory, after `lloyd` has labelled them.

        A row with a finite score is finite, so only a row without one leads to a survey.
        """
        if any(block.assigner.doubtful for block in self._blocks):
            self._refuse_nonfinite(self.survey(weighted=False))

    def _check(self, block: Block) -> None:
        if block.number in self._unchecked:
            survey = block.plain.survey(self.n_jobs)
            refuse_nonfinite(survey, block.begin, block.matrix, self._feature_names)
            self._unchecked.discard(block.number)

    # -- before the first iteration ------------------------------------------------------------

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
        if weighted not in self._surveys:
            self._look()
        return self._surveys[weighted]

    def _look(self) -> None:
        """All statistics of the first pass at once, because a pass may read files."""
        counts = np.zeros(self.d, dtype=np.int64) if self.streamed and self.sparse else None
        for block in self.walk():
            block.size = bytes_of(block.matrix)
            if self.streamed:
                self.nonzeros += block.matrix.nnz if self.sparse else block.matrix.size
            if counts is not None:
                block.plain.count_features(counts)
            if self._digest is not None:
                self._digest.add(block.matrix)
            for weighted in (False, True) if self.weights is not None else (False,):
                survey = self._rows(block, weighted).survey(self.n_jobs)
                if block.number:
                    self._surveys[weighted].merge(survey, block.begin)
                else:
                    self._surveys[weighted] = survey
        if self.weights is None:
            self._surveys[True] = self._surveys[False]
        if counts is not None:
            self._slots = slots_for(counts)

    def words_needed(self, grid: _core.Grid, *, weighted: bool) -> int:
        """How many bins of the grid the exact sums need."""
        return max(self.each(lambda p, jobs: self._rows(p, weighted).words_needed(grid, jobs)))

    def total(self, grid: _core.Grid, *, weighted: _core.Grid | None = None) -> _core.Sums:
        """The sum of all rows without their weights, as cluster 0; gives the grids their words.

        In one pass, unless some block needs more words than the first.
        """
        words, counts = grid.words, _core.Grid(ONE, self.n)
        sums: _core.Sums | None = None
        for block in self.walk():
            words = max(words, block.plain.words_needed(grid, self.n_jobs))
            if weighted is not None:
                more = block.rows.words_needed(weighted, self.n_jobs)
                weighted.words = max(weighted.words, more)
            if sums is None:
                grid.words = words
                sums = _core.Sums(1, self.d, grid, counts, sparse=self.sparse)
            if words == grid.words:
                sums.relabel(block.plain, None, unlabelled(block.n), self.n_jobs)
        if sums is None or words > grid.words:
            grid.words = words
            return self.total(grid)
        return sums

    def add_all(self, sums: _core.Sums, *, weighted: bool = False) -> None:
        """Put every row into cluster 0 of `sums`."""
        for block in self.walk():
            sums.relabel(self._rows(block, weighted), None, unlabelled(block.n), self.n_jobs)

    def scatter(self, points: Matrix, exponent: int, *, labelled: bool) -> tuple[float, float]:
        """The objective at the point of each row's label (or the only point), weighted and not."""
        weighted, plain = self.scattered(points, exponent, labelled=labelled)
        return weighted.value, plain.value

    def scattered(
        self, points: Matrix, exponent: int, *, labelled: bool
    ) -> tuple[_core.ExactSum, _core.ExactSum]:
        """The same as exact sums, which can be added to those of other rows."""
        points = for_core(like_rows(points, sparse=self.sparse))

        def own(block: Block, n_jobs: int) -> tuple[_core.ExactSum, _core.ExactSum]:
            labels = block.labels if labelled else None
            return block.rows.scatter(points, labels, exponent, n_jobs)

        return _total(self.each(own))

    @property
    def most_rows(self) -> int:
        """The most rows that one process works on."""
        return self.n

    @property
    def weighted(self) -> bool:
        return self.weights is not None

    def directions(self) -> int:
        return self.n if self.norms is None else int(np.count_nonzero(self.norms))

    def total_weight(self) -> float:
        sums = _core.Sums(*weight_sums(1, self.weight_grid()))
        add_weights(sums, None, self.n, self.weights, self.n_jobs)
        return float(sums.weights[0])

    def weight_grid(self) -> _core.Grid:
        """The grid of exact sums of weights, or of counts."""
        if self.weights is None:
            return _core.Grid(ONE, self.n)
        grid = _core.Grid(self.weights.max(keepdims=True), self.n)
        grid.words = _core.Rows.dense(self.weights[:, np.newaxis], None).words_needed(grid, 1)
        return grid

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

        return _total(self.each(own))

    def take(self, ids: NDArray[np.intp]) -> Matrix:
        """Rows by their number, in the layout of the data; sparse ones in canonical form.

        Where only directions count, they are unit vectors.
        """
        rows = self._take(ids)
        if self.metric.directed:
            normalise(rows)
        return rows

    def _take(self, ids: NDArray[np.intp]) -> Matrix:
        if self.sparse:
            order = np.argsort(ids, kind="stable")
            rows = sp.csr_array(self.pick(ids[order])[np.argsort(order)])
            rows.has_sorted_indices = rows.has_canonical_format = False  # flags may be out of date
            rows.sum_duplicates()
            return rows
        if len(self._blocks) == 1 and not self.streamed:
            return np.asarray(self._blocks[0].matrix[ids])
        out = np.empty((len(ids), self.d), dtype=self.dtype)
        for block in self.walk(_holding(ids)):
            here = np.flatnonzero((ids >= block.begin) & (ids < block.end))
            out[here] = block.matrix[ids[here] - block.begin]
        return out

    def pick(self, ids: NDArray[np.intp]) -> Matrix:
        """Rows by their ascending number, in the layout of the data."""
        rows = [
            block.matrix[ids[(ids >= block.begin) & (ids < block.end)] - block.begin]
            for block in self.walk(_holding(ids))
        ]
        return sp.vstack(rows, format="csr") if self.sparse else np.concatenate(rows)

    def slots(self) -> NDArray[np.uint32] | None:
        """The packed column of each feature of sparse centres: frequent features together.

        Only the magnitude of a feature's frequency matters, so a radix sort by exponent is enough.
        """
        if self.d * 16 > self.nonzeros:
            return None
        if self._slots is None:
            self._slots = slots_for(self._frequencies())
        return self._slots

    def overlap(self) -> float:
        """Entries of all rows in the features of a row, on average.

        Infinite where it is unknown, or where features far outnumber entries.
        """
        if not self.sparse or self.streamed or self.d > 4 * self.nonzeros:
            return math.inf
        counts = self._frequencies().astype(np.float64)
        # Not a dot product: BLAS threads would spin afterwards and take cores from ours.
        return float(np.square(counts).sum()) / self.n

    def _frequencies(self) -> NDArray[np.int64]:
        if self._counts is None:
            self._counts = np.zeros(self.d, dtype=np.int64)
            for block in self.walk():
                block.plain.count_features(self._counts)
        return self._counts

    def fingerprint(self) -> str:
        """A hash of all rows and weights in order, independent of block boundaries."""
        self.survey(weighted=False)
        assert self._digest is not None
        return self._digest.word(f"{self.n} {self.d} {self.dtype} {self.sparse}", self.weights)

    def alone(self, rows: Matrix, ids: NDArray[np.intp], *, weighted: bool = True) -> LocalEngine:
        """An engine over some of the rows, with or without their weights."""
        weights = None if self.weights is None or not weighted else self.weights[ids]
        few = LocalEngine([rows], weights, self.n_jobs, self.metric, self._zero_rows)
        if few.norms is not None and self.norms is not None:
            few.norms[:] = self.norms[ids]  # in place, because the rows refer to this array
        return few

    def batch(self, rows: Matrix, ids: NDArray[np.intp], *, weighted: bool = True) -> LocalEngine:
        """The same with the survey of all rows, whose bounds hold for every subset."""
        few = self.alone(rows, ids, weighted=weighted)
        plain = self.survey(weighted=False)
        few._surveys = {False: plain, True: self.survey(weighted=True) if weighted else plain}
        return few

    def one_block(self) -> LocalEngine:
        return self

    def whole(self) -> Matrix:
        """The data as one matrix; only for data that came as one."""
        (block,) = self._blocks
        return block.matrix

    # -- seeding -------------------------------------------------------------------------------

    def seeding(self, exponent: int, *, candidates: int, alpha: float = 2.0) -> LocalSeeding:
        """A seeding over these rows, which owns all its state."""
        return LocalSeeding(
            self,
            (self.n, self.d),
            sparse=self.sparse,
            metric=self.metric,
            exponent=exponent,
            alpha=alpha,
            candidates=candidates,
            width=self.nonzeros / self.n,
            n_jobs=self.n_jobs,
        )

    def deduplicate(self) -> int | None:
        """Compare one row for all its duplicates, where there are enough duplicates."""
        if self.streamed:
            return None
        for block in self._blocks:
            found = block.plain.kinds(self.n_jobs)
            block.duplicates = None if found is None else DuplicateRows(found)
        if all(block.duplicates is None for block in self._blocks):
            return None
        return sum(
            block.n if block.duplicates is None else block.duplicates.n for block in self._blocks
        )

    def agree(self, frame: Frame, grid: _core.Grid, weight_grid: _core.Grid) -> None:
        """Nothing to publish: all rows are here."""

    # -- an iteration --------------------------------------------------------------------------

    def start(self, algorithm: str, k: int) -> None:
        """Forget labels and bounds."""
        single = self.dtype == np.float32
        for block in self._blocks:
            block.labels = unlabelled(block.n)
            block.summed = unlabelled(block.n)
            rows = block.n
            if block.duplicates is not None:
                block.duplicates.labels.fill(-1)
                rows = block.duplicates.n
            block.assigner = _core.Assigner(algorithm, single, rows, k)

    def follow(self, sums: _core.Sums | None) -> None:
        """Let `assign` update these sums, so that streamed blocks are not read a second time."""
        self._followed = sums if self.streamed else None

    def use(self, algorithm: str) -> None:
        """Switch to another algorithm, which begins without bounds."""
        for block in self._blocks:
            block.assigner.use(algorithm)

    def assign(self, centroids: _core.Centroids) -> AssignStats:
        """Label every row. Streamed blocks in which no label can change are not read."""
        if not self.streamed:
            if len(self._blocks) == 1:
                return AssignStats(*self._blocks[0].assign(centroids, self.n_jobs))
            return _sum_stats([block.assign(centroids, self.n_jobs) for block in self._blocks])

        def certain(block: Block) -> bool:
            if block.loaded is not None:
                return False
            return block.assigner.settled(centroids, block.labels, self.n_jobs)

        settled = {block.number for block in self._blocks if certain(block)}
        self.unread += len(settled)
        summing = threading.Lock()

        def label(block: Block, n_jobs: int) -> tuple[int, int, int]:
            stats = block.assign(centroids, n_jobs)
            if self._followed is not None:
                with summing:
                    self._followed.relabel(block.rows, block.labels, block.summed, n_jobs)
            return stats

        all_stats = self.each(label, lambda block: block.number not in settled)
        all_stats += [(0, 0, block.n) for block in self._blocks if block.number in settled]
        return _sum_stats(all_stats, len(settled))

    def cost(self, centroids: _core.Centroids, points: Matrix, exponent: int) -> tuple[int, float]:
        """Label every row; returns (distances computed, objective at `points`)."""
        total, distances = _core.ExactSum(), 0
        own_points = for_core(like_rows(points, sparse=self.sparse))

        def price(block: Block, n_jobs: int) -> tuple[int, _core.ExactSum]:
            _, own, _ = block.assign(centroids, n_jobs)
            return own, block.rows.scatter(own_points, block.labels, exponent, n_jobs)[0]

        for own, cost in self.each(price):
            distances += own
            total.add(cost)
        return distances, total.value

    def sum_up(self, sums: _core.Sums, changed: int) -> None:
        """Update the sums to the labels: by changed rows, or from scratch if most changed."""
        if self._followed is sums:
            return
        if 2 * changed >= self.n:
            sums.reset()
            for block in self._blocks:
                block.summed.fill(-1)
        self.add_changes(sums)

    def add_changes(self, sums: _core.Sums) -> None:
        """Add the label changes since the last call to the sums."""
        for block in self.walk():
            sums.relabel(block.rows, block.labels, block.summed, self.n_jobs)

    def exchange(
        self, centroids: _core.Centroids, sums: _core.Sums, batch_size: int
    ) -> Iterator[tuple[int, bool]]:
        """Label one batch after the other and update the sums after each.

        Yields the number of changed labels, and whether the batch was the last. The caller may move
        the centres in between.
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
                changed = assigner.assign(rows, centroids, labels, self.n_jobs)[0]
                sums.relabel(rows, labels, summed, self.n_jobs)
                yield changed, block.begin + end == self.n

    def move_row(self, sums: _core.Sums, row: int, source: int, target: int) -> None:
        """Move a row from the sums of one cluster to those of another."""
        block = self.block_of(row)
        sums.move(block.rows, row - block.begin, source, False)
        sums.move(block.rows, row - block.begin, target, True)

    def moved(self, movement: _core.Movement) -> None:
        for block in self._blocks:
            block.assigner.moved(movement)

    def own_distances(self, centres: Matrix, exponent: int) -> Double:
        """The objective of every row at its label's centre; 0 for duplicates of earlier rows."""
        out = np.zeros(self.n)
        centres = for_core(like_rows(centres, sparse=self.sparse))
        for block in self.walk():
            own, duplicates = out[block.begin : block.end], block.duplicates
            if duplicates is None or self.weights is not None:  # a duplicate may have weight
                block.rows.own_distances(centres, block.labels, exponent, own, self.n_jobs)
            else:
                of_first = np.empty(duplicates.n)
                duplicates.rows.own_distances(
                    centres, duplicates.labels, exponent, of_first, self.n_jobs
                )
                own[duplicates.first] = of_first
        return out

    def far_rows(self, centres: Matrix, exponent: int) -> Iterator[FarRow]:
        """Rows that have weight and are not at their centres, farthest first.

        Fetches several rows at once, because each fetch may read blocks of a file.
        """
        distances, labels = self.own_distances(centres, exponent), self.labels()
        counted = self.counted()
        far = (row for row in farthest_first(distances) if counted is None or counted[row] > 0)
        row_bytes = 16 * self.nonzeros / self.n
        count, most = 16, max(1, int(_FAR_BYTES / max(1.0, row_bytes)))
        while rows := list(islice(far, min(count, most))):
            values = self.take(np.array(rows, dtype=np.intp))
            for at, row in enumerate(rows):
                value = _bytes(values[at : at + 1])
                yield FarRow(float(distances[row]), row, int(labels[row]), value)
            count *= 4

    def transform(self, centres: Matrix, shift: NDArray[Any] | None, exponent: int) -> NDArray[Any]:
        """Distances of every row to every centre."""
        out = np.empty((self.n, centres.shape[0]), dtype=self.dtype)
        centres = for_core(like_rows(centres, sparse=self.sparse and not self.metric.l1))
        for block in self.walk():
            own = out[block.begin : block.end]
            block.rows.transform(centres, shift, exponent, own, self.n_jobs)
        return out

    def nearest(
        self, centroids: _core.Centroids, centres: Matrix, exponent: int, m: int
    ) -> tuple[Labels, NDArray[Any]]:
        """The m nearest centres of every row and their distances, nearest first."""
        labels = np.empty((self.n, m), dtype=np.int32)
        distances = np.empty((self.n, m), dtype=self.dtype)
        centres = for_core(like_rows(centres, sparse=self.sparse and not self.metric.l1))

        def find(block: Block, n_jobs: int) -> None:
            own = slice(block.begin, block.end)
            block.rows.nearest(centroids, centres, exponent, labels[own], distances[own], n_jobs)

        self.each(find)
        if self.norms is not None and not self.norms.all():
            labels[self.norms == 0] = -1
        return labels, distances

    def counted(self) -> Double | None:
        """Weights of rows, 0 for those without a direction; None if all are 1."""
        if self.norms is None or self.norms.all():
            return self.weights
        weights = np.ones(self.n) if self.weights is None else self.weights
        return weights * (self.norms > 0)

    # Centres that are not sums: rows in one block only.

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

    @staticmethod
    def _rows(block: Block, weighted: bool) -> _core.Rows:
        return block.rows if weighted else block.plain
