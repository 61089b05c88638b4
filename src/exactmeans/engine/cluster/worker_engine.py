"""The rows that one worker holds: a LocalEngine over its blocks, and its state.

The state has a version. A request names the version that it needs and the one that it leads to. An
engine that lost its state (its worker died, or its blocks moved to another one) replays the log of
requests that led there, so its state depends on nothing but its blocks and the log.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from exactmeans import _core
from exactmeans.data.arrays import Double, Matrix, stacked
from exactmeans.data.centres import for_core
from exactmeans.data.rows import Lengths
from exactmeans.data.stream import Stream
from exactmeans.data.weights import check_weights
from exactmeans.engine.cluster import wire
from exactmeans.engine.cluster.requests import Centres, Opening, Request, Response
from exactmeans.engine.frame import Frame
from exactmeans.engine.labels import renaming
from exactmeans.engine.local.engine import LocalEngine
from exactmeans.engine.local.seed_blocks import SeedBlocks
from exactmeans.engine.protocol import AssignStats, FarRow
from exactmeans.engine.seeding import Blank, add_weights, weight_sums
from exactmeans.metrics import METRICS


class BlockLostError(Exception):
    """A block is not where it was: the engine must be rebuilt where the block is now."""


class BlockStore(Protocol):
    """The blocks of rows of one worker, those without rows left out."""

    edges: list[int]  # the first row of each block, and the end
    in_memory: bool  # whether all blocks may be in memory at once

    def __len__(self) -> int: ...

    def read(self, b: int) -> Matrix:
        """Block b; raises BlockLostError if it is not here any more."""

    def weights(self) -> list[Any] | None:
        """Weights by block, if the worker has them."""


class InMemory:
    """Blocks that are in memory."""

    in_memory = True

    def __init__(self, blocks: list[Matrix], weights: list[Any] | None = None) -> None:
        self._blocks, self._weights = blocks, weights
        self.edges = np.cumsum([0, *(block.shape[0] for block in blocks)]).tolist()

    def __len__(self) -> int:
        return len(self._blocks)

    def read(self, b: int) -> Matrix:
        return self._blocks[b]

    def weights(self) -> list[Any] | None:
        return self._weights


class WorkerEngine:
    """Executes requests on the blocks of a store; `number` names it among all engines."""

    def __init__(self, number: int, store: BlockStore, n_jobs: int) -> None:
        self.number, self._store, self._n_jobs = number, store, n_jobs
        self.version = -1
        self.engine: LocalEngine
        self._seeding: SeedBlocks | None = None
        self._lock = threading.Lock()

    def respond(self, request: Request, log: Sequence[Request] | None = None) -> Response:
        """Execute a request. Without the state that it needs, replay the log or report the loss."""
        with self._lock:
            try:
                if self.version != request.from_version:
                    if log is None:
                        return Response(lost=(self.number,))
                    for past in log:
                        self._execute(past)
                return Response(self._execute(request))
            except BlockLostError:
                return Response(lost=(self.number,))

    def respond_to(self, message: bytes | bytearray) -> bytes:
        """The same as messages: (request, log) in; a response or a failure out."""
        try:
            return wire.encode(self.respond(*wire.decode(message)))
        except Exception as error:
            return wire.encode(wire.failure_of(error))

    def _execute(self, request: Request) -> Any:
        from exactmeans.engine.cluster.reduce import OPERATIONS  # which needs this class

        if request.what not in OPERATIONS:
            raise ValueError(f"Worker engines have no operation {request.what!r}.")
        self.version = -1  # in case the operation fails
        owner, name = request.what.split(".")
        target = self._seeding if owner == SeedBlocks.__name__ else self
        operation: Callable[..., Any] = getattr(target, name)
        value = operation(*request.arguments)
        self.version = request.to_version
        return value

    # -- before the first iteration ------------------------------------------------------------

    def open(self, opening: Opening) -> None:
        """Build the LocalEngine."""
        dtype, metric = np.dtype(opening.dtype), METRICS[opening.metric]
        self._begins, self.places = opening.begins, opening.places
        blocks: list[Matrix] | Stream
        if self._store.in_memory:
            read = [self._store.read(b) for b in range(len(self._store))]
            blocks = [block.astype(dtype, copy=False) for block in read]
        else:
            blocks = Stream(BaseEstimator(), self._store, reset=True, dtype=dtype)
        self.engine = LocalEngine(
            blocks,
            self._weights(opening.weights),
            self._n_jobs,
            metric,
            scratch_limit=opening.scratch_limit,
        )
        self._seeding = None

    def _weights(self, sent: list[Double] | None) -> Double | None:
        given = self._store.weights() if sent is None else sent
        if given is None:
            return None
        rows = np.diff(self._store.edges).tolist()
        own = [check_weights(w, n, part=True) for w, n in zip(given, rows, strict=True)]
        return np.concatenate([w for w in own if w is not None])

    def survey(self, weighted: bool) -> _core.Survey:
        """With the first row that is not finite by its number among all rows."""
        own = self.engine.survey(weighted=weighted)
        if own.first_bad_row < 0:
            return own
        row = int(self._numbers(np.array([own.first_bad_row]))[0])
        whole = _core.Survey(len(own.bounds))
        whole.merge(own, row - own.first_bad_row)
        return whole

    def lengths(self) -> Lengths | None:
        """With rows by their number among all rows."""
        if self.engine.norms is None:
            return None
        self.engine.survey(weighted=False)  # which reads every block and so measures its rows
        own = Lengths.of(self.engine.norms)
        rows = self._numbers(np.array([own.longest_row, max(0, own.first_zero)])).tolist()
        return own._replace(longest_row=rows[0], first_zero=rows[1] if own.zeros else -1)

    def bins_needed(self, grid: _core.Grid, weighted: bool) -> int:
        return self.engine.bins_needed(grid, weighted=weighted)

    def weight_bins(self, grid: _core.Grid) -> int:
        weights = self.engine.weights
        assert weights is not None
        return _core.Rows.dense(weights[:, np.newaxis], None).bins_needed(grid, 1)

    def largest_weight(self) -> float:
        weights = self.engine.weights
        return 1.0 if weights is None else float(weights.max())

    def add_all(self, blank: Blank, weighted: bool) -> tuple[Blank, _core.Exported]:
        sums = _core.Sums(*blank)
        self.engine.add_all(sums, weighted=weighted)
        return blank, sums.export()

    def total_weight(self, weight_grid: _core.Grid) -> tuple[Blank, _core.Exported]:
        blank = weight_sums(1, weight_grid)
        sums = _core.Sums(*blank)
        add_weights(sums, None, self.engine.n, self.engine.weights, self.engine.n_jobs)
        return blank, sums.export()

    def squares(self, point: Matrix, exponent: int) -> tuple[_core.ExactSum, _core.ExactSum]:
        return self.engine.squared(point, exponent)

    def scatter(
        self, points: Matrix, exponent: int, labelled: bool
    ) -> tuple[_core.ExactSum, _core.ExactSum]:
        return self.engine.scattered(points, exponent, labelled=labelled)

    def rows(self, ids: NDArray[np.intp]) -> list[tuple[NDArray[np.intp], Matrix]]:
        """Which of these row numbers lie on this worker, and those rows."""
        where, here = self._here(ids)
        if not len(here):
            return []
        order = np.argsort(here)
        return [(where[order], self.engine.pick(here[order]))]

    def counted(self) -> list[tuple[int, Double]]:
        """Weights by block, for draws that need all of them."""
        counted = self.engine.counted()
        weights = np.ones(self.engine.n) if counted is None else counted
        return [
            (place, weights[begin:end])
            for place, (begin, end) in zip(self.places, self.engine.spans, strict=True)
        ]

    def _here(self, ids: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Which of these row numbers lie on this worker, and their numbers in its engine."""
        where, here = [], []
        for place, (begin, _) in zip(self.places, self.engine.spans, strict=True):
            own = np.flatnonzero((ids >= self._begins[place]) & (ids < self._begins[place + 1]))
            where.append(own)
            here.append(ids[own] - self._begins[place] + begin)
        return np.concatenate(where), np.concatenate(here)

    def _numbers(self, rows: NDArray[np.intp]) -> NDArray[np.int64]:
        """Rows of this engine by their number among all rows."""
        begins = np.array([begin for begin, _ in self.engine.spans])
        part = np.searchsorted(begins, rows, side="right") - 1
        return np.asarray(rows - begins[part] + self._begins[self.places][part], dtype=np.int64)

    # -- an iteration --------------------------------------------------------------------------

    def begin(self, algorithm: str, frame: Frame, blank: Blank, passes: int) -> None:
        self._seeding = None
        self._frame, self._blank = frame, blank
        self._sums = _core.Sums(*blank)
        self._centroids: _core.Centroids | None = None
        self.engine.start(algorithm, blank[0], passes=passes)

    def assign(self, centres: Centres) -> tuple[AssignStats, _core.Exported]:
        """Label all rows; returns the statistics and the change of the sums."""
        self._sums.reset()
        if self.engine.streamed:  # sums while a block is in memory
            stats = self.engine.assign(self._moved_to(centres), self._sums)
        else:
            stats = self.engine.assign(self._moved_to(centres))
            self.engine.add_changes(self._sums)
        return stats, self._sums.export()

    def _moved_to(self, centres: Centres) -> _core.Centroids:
        engine = self.engine
        if self._centroids is None:
            self._centroids = self._frame.centroids(centres.rows, engine)
            self._centres = centres.rows
            if centres.norms2 is not None:
                self._centroids.set_norms(*centres.norms2)
        elif centres.moved is None or len(centres.moved):
            self._centres = updated_centres(self._centres, centres)
            engine.moved(self._centroids.move(for_core(self._centres), engine.n_jobs))
        return self._centroids

    def use(self, algorithm: str) -> None:
        self.engine.use(algorithm)

    def move_row(self, row: int, source: int, target: int) -> tuple[Blank, _core.Exported] | None:
        where, here = self._here(np.array([row]))
        if not len(where):
            return None
        sums = _core.Sums(*self._blank)
        self.engine.move_row(sums, int(here[0]), source, target)
        return self._blank, sums.export()

    def far_rows(self, centres: Matrix, exponent: int, count: int) -> list[FarRow]:
        found = list(islice(self.engine.far_rows(centres, exponent), count))
        numbers = self._numbers(np.array([far.row for far in found], dtype=np.intp)).tolist()
        return [far._replace(row=row) for far, row in zip(found, numbers, strict=True)]

    def renaming(self, frame: Frame, centres: Matrix) -> list[NDArray[np.int32] | None]:
        """The label by these centres of each current label; None if it is not unique."""
        there = self.engine.twin()
        there.start("lloyd", centres.shape[0])
        there.assign(frame.centroids(centres, there))
        names = renaming(self.engine.final_labels(), there.final_labels(), centres.shape[0])
        return [names]

    def fingerprint(self) -> list[tuple[int, str]]:
        """A hash of the rows here, with the number of their first block."""
        words = [_checksum(block.matrix, self._n_jobs) for block in self.engine.walk()]
        if self.engine.weights is not None:
            words.append(_checksum(self.engine.weights, self._n_jobs))
        return [(self.places[0], " ".join(words))]

    def sizes(self, k: int) -> NDArray[np.int64]:
        """How many rows each cluster has."""
        return np.bincount(self.engine.final_labels() + 1, minlength=k + 1)[1:].astype(np.int64)

    def used_labels(self) -> list[int]:
        """Labels that at least one row has."""
        return [int(label) for label in np.unique(self.engine.final_labels()) if label >= 0]

    # -- seeding -------------------------------------------------------------------------------

    def open_seeding(self, alpha: float, exponent: int) -> None:
        """Requests to SeedBlocks are about this seeding from now on."""
        begins = [int(self._begins[place]) for place in self.places]
        self._seeding = SeedBlocks(self.engine, self.places, begins, alpha, exponent)


def _checksum(rows: Matrix, n_jobs: int) -> str:
    arrays = [rows] if isinstance(rows, np.ndarray) else [rows.data, rows.indices, rows.indptr]
    whole = [np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in arrays]
    return " ".join(str(_core.checksum(array, n_jobs)) for array in whole)


def updated_centres(old: Matrix, new: Centres) -> Matrix:
    """All centres after some of them moved."""
    if new.moved is None:
        return new.rows
    if isinstance(old, np.ndarray):
        centres = old.copy()
        centres[new.moved] = new.rows
        return centres
    source = np.arange(old.shape[0])
    source[new.moved] = old.shape[0] + np.arange(len(new.moved))
    return stacked([old, new.rows])[source]
