"""Blocks of rows in this process: views of matrices in memory, or read whenever they are needed.

Streamed blocks are read in every pass, the next one while the current one is processed; only a few
numbers per row stay in memory.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, pairwise
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from exactmeans import _core
from exactmeans.data.arrays import Double, Matrix, stacked
from exactmeans.data.centres import normalise
from exactmeans.data.rows import refuse_nonfinite, rows_of
from exactmeans.data.source import BufferPool
from exactmeans.data.stream import Stream, count_rows, offsets_of
from exactmeans.engine.local.blocks import Block, LoadedBlock
from exactmeans.metrics import EUCLIDEAN, Metric

T = TypeVar("T")


class RowBlocks:
    """The rows, block by block, with their weights and, where only directions count, lengths."""

    passes = 0.0  # over blocks that are not in memory; a part of a pass counts as its share
    _spare: Block | None = None  # the block that block_of read last

    def __init__(
        self,
        blocks: list[Matrix] | Stream,
        weights: Double | None,
        n_jobs: int,
        metric: Metric,
        *,
        norms: Double | None = None,
        feature_names: Sequence[str] | NDArray[Any] | None = None,
    ) -> None:
        """`norms`: lengths of the rows if they are known; `feature_names`: for errors."""
        self.weights = weights
        self._feature_names = feature_names
        self.n_jobs = n_jobs
        self.metric = metric
        self.streamed = isinstance(blocks, Stream)
        self.n = count_rows(blocks)
        # Blocks whose lengths are known; others are measured when they are first loaded.
        self._measured: set[int] = set(range(0 if norms is None else len(blocks)))
        self.norms = np.empty(self.n) if norms is None and metric.directed else norms
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
            block = Block(len(self._blocks), begin, end)
            block.loaded = self._load(block, matrix)
            self._blocks.append(block)

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

        If blocks must be read and n_jobs is above 1, two Python threads share the blocks. A thread
        reads a block while the other processes one, and then processes what it read. So neither
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

    def check_when_read(self) -> None:
        """Refuse NaN and infinity in each block when it is next read."""
        self._unchecked = {block.number for block in self._blocks}

    def _check(self, block: Block) -> None:
        """Refuse NaN and infinity in a block that `check_when_read` marked."""
        if block.number in self._unchecked:
            survey = block.plain.survey(self.n_jobs)
            refuse_nonfinite(survey, block.begin, block.matrix, self._feature_names)
            self._unchecked.discard(block.number)

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
        if len(self._blocks) == 1 and not self.streamed:
            return self._blocks[0].matrix[ids]
        rows = [
            block.matrix[ids[(ids >= block.begin) & (ids < block.end)] - block.begin]
            for block in self.walk(_holding(ids))
        ]
        return stacked(rows)


def _holding(ids: NDArray[np.intp]) -> Callable[[Block], bool]:
    return lambda block: bool(((ids >= block.begin) & (ids < block.end)).any())
