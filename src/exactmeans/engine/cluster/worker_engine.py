"""The rows that one worker holds: a LocalEngine over its blocks, and its state.

The state has a version. A request names the version that it needs and the one that it leads to. An
engine that lost its state (its worker died, or Dask spilled it to disk) replays the log of requests
that led there, so its state depends on nothing but its blocks and the log.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from exactmeans import _core
from exactmeans.data.arrays import Double, Labels, Matrix, as_matrix
from exactmeans.data.centres import for_core
from exactmeans.data.rows import Lengths
from exactmeans.data.weights import check_weights
from exactmeans.engine.frame import Frame
from exactmeans.engine.local.blocks import bytes_of
from exactmeans.engine.local.engine import LocalEngine
from exactmeans.engine.local.seed_blocks import SeedBlocks
from exactmeans.engine.protocol import AssignStats, FarRow
from exactmeans.engine.seeding import Blank, add_weights, weight_sums
from exactmeans.metrics import Metric


@dataclass(frozen=True)
class Request:
    """An operation for all worker engines, with the state versions before and after it."""

    what: str  # a method, as "WorkerEngine.name" or "SeedBlocks.name"
    arguments: tuple[Any, ...]
    from_version: int
    to_version: int

    @staticmethod
    def of(
        operation: Callable[..., Any], arguments: tuple[Any, ...], before: int, after: int
    ) -> Request:
        return Request(operation.__qualname__, arguments, before, after)


@dataclass(frozen=True)
class Response:
    """The reduced results of worker engines; `lost`: numbers of those that lack the state."""

    value: Any = None
    lost: tuple[int, ...] = ()


@dataclass(frozen=True)
class Centres:
    """Centres to assign by: all of them, or only those that moved since the last request."""

    rows: Matrix
    moved: NDArray[np.intp] | None = None
    norms2: tuple[Double, int] | None = None  # of initial centres, as scikit-learn rounds them


@dataclass(frozen=True)
class BlockInfo:
    """Shape, dtype and layout of a block."""

    rows: int
    columns: int
    dtype: np.dtype[Any] | None  # None if there are no rows
    sparse: bool
    values: int


def make_worker_engine(
    number: int, places: list[int], chunks: list[Any], weights: list[Any] | None, how: Any
) -> WorkerEngine:
    """`places`: the numbers of these blocks among all; `how`: dtype and n_jobs as the user passed
    them, and whether weights are sent later."""
    dtype, n_jobs, awaits_weights = how
    estimator = BaseEstimator()
    blocks: list[Matrix] = []
    infos: dict[int, BlockInfo] = {}
    for place, chunk in zip(places, chunks, strict=True):
        if getattr(chunk, "shape", (1,))[0] == 0:
            infos[place] = BlockInfo(0, chunk.shape[1], None, bool(sp.issparse(chunk)), 0)
            continue
        block = as_matrix(estimator, chunk, reset=True, dtype=dtype)
        sparse = bool(sp.issparse(block))
        n, d = block.shape
        infos[place] = BlockInfo(n, d, block.dtype, sparse, block.nnz if sparse else block.size)
        blocks.append(block)
    worker = WorkerEngine(number, blocks, None, n_jobs, infos, awaits_weights)
    if weights is not None:
        worker.set_weights(weights)
    return worker


@dataclass
class WorkerEngine:
    number: int
    blocks: list[Matrix]  # those with rows
    weights: list[Double] | None
    n_jobs: int | None
    infos: dict[int, BlockInfo]  # by block number among all blocks
    awaits_weights: bool  # weights are sent with the first log
    version: int = field(default=-1, init=False)
    engine: LocalEngine = field(init=False)
    _begins: NDArray[np.int64] = field(init=False)  # first row of every block of the data
    _seeding: SeedBlocks | None = field(default=None, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def __post_init__(self) -> None:
        self.places = [place for place, info in self.infos.items() if info.rows]

    def __getstate__(self) -> tuple[Any, ...]:
        """Without the state, which the log restores."""
        return (
            self.number,
            self.blocks,
            self.weights,
            self.n_jobs,
            self.infos,
            self.awaits_weights,
        )

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.__init__(*state)  # type: ignore[misc]

    def __sizeof__(self) -> int:
        own = sum(map(bytes_of, self.blocks))
        rows = sum(info.rows for info in self.infos.values())
        return own + rows * (16 if self.weights is None else 24)

    def set_weights(self, weights: list[Any]) -> None:
        """By block, including empty blocks."""
        infos = zip(weights, self.infos.values(), strict=True)
        own = [check_weights(given, info.rows, part=True) for given, info in infos]
        self.weights = [w for w in own if w is not None and len(w)]
        self.awaits_weights = False

    def respond(
        self,
        request: Request,
        log: Sequence[Request] | None = None,
        weights: list[Any] | None = None,
        *,
        needs_weights: bool = True,
    ) -> Response:
        """Execute a request. Without the state that it needs, replay the log or report the loss.

        `weights`: sent with the log, because the engine may lack them. The lock serialises requests
        that arrive over the channel and by tasks.
        """
        with self._lock:
            if self.version != request.from_version or (needs_weights and self.awaits_weights):
                if log is None:
                    return Response(lost=(self.number,))
                if weights is not None:
                    self.set_weights(weights)
                for past in log:
                    self._execute(past)
            return Response(self._execute(request))

    def _execute(self, request: Request) -> Any:
        self.version = -1  # in case the operation fails
        owner, name = request.what.split(".")
        target = self._seeding if owner == SeedBlocks.__name__ else self
        operation: Callable[..., Any] = getattr(target, name)
        value = operation(*request.arguments)
        self.version = request.to_version
        return value

    # -- before the first iteration ------------------------------------------------------------

    def block_infos(self) -> list[tuple[int, BlockInfo]]:
        """By block, including empty blocks."""
        return list(self.infos.items())

    def open(self, dtype: np.dtype[Any], begins: NDArray[np.int64], metric: Metric) -> None:
        """Build the LocalEngine; `begins`: the first row of each block among all rows."""
        self.blocks = [block.astype(dtype, copy=False) for block in self.blocks]
        weights = None if self.weights is None else np.concatenate(self.weights)
        self.engine = LocalEngine(self.blocks, weights, threads_here(self.n_jobs), metric)
        self._begins = begins
        norms = self.engine.norms
        self._lengths = None if norms is None else Lengths.of(norms)
        self._seeding = None

    def survey(self, weighted: bool) -> _core.Survey:
        whole: _core.Survey | None = None
        for part, place in zip(self.engine.walk(), self.places, strict=True):
            own = (part.rows if weighted else part.plain).survey(self.engine.n_jobs)
            whole = whole or _core.Survey(len(own.bounds))
            whole.merge(own, int(self._begins[place]))
        assert whole is not None
        return whole

    def lengths(self) -> Lengths | None:
        """With rows by their number among all rows."""
        own = self._lengths
        if own is None:
            return None
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
            (place, weights[part.begin : part.end])
            for place, part in zip(self.places, self.engine.walk(), strict=True)
        ]

    def _here(self, ids: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Which of these row numbers lie on this worker, and their numbers in its engine."""
        where, here = [], []
        for place, part in zip(self.places, self.engine.walk(), strict=True):
            own = np.flatnonzero((ids >= self._begins[place]) & (ids < self._begins[place + 1]))
            where.append(own)
            here.append(ids[own] - self._begins[place] + part.begin)
        return np.concatenate(where), np.concatenate(here)

    def _numbers(self, rows: NDArray[np.intp]) -> NDArray[np.int64]:
        """Rows of this engine by their number among all rows."""
        begins = np.array([part.begin for part in self.engine.walk()])
        part = np.searchsorted(begins, rows, side="right") - 1
        return np.asarray(rows - begins[part] + self._begins[self.places][part], dtype=np.int64)

    # -- an iteration --------------------------------------------------------------------------

    def begin(self, algorithm: str, frame: Frame, blank: Blank) -> None:
        self._seeding = None
        self._frame, self._blank = frame, blank
        self._sums = _core.Sums(*blank)
        self._centroids: _core.Centroids | None = None
        self.engine.start(algorithm, blank[0])

    def assign(self, centres: Centres) -> tuple[AssignStats, Blank, _core.Exported]:
        """Label all rows; returns the statistics and the change of the sums."""
        stats = self.label(centres)
        self._sums.reset()
        self.engine.add_changes(self._sums)
        return stats, self._blank, self._sums.export()

    def label(self, centres: Centres) -> AssignStats:
        engine = self.engine
        if self._centroids is None:
            self._centroids = self._frame.centroids(centres.rows, engine)
            self._centres = centres.rows
            if centres.norms2 is not None:
                self._centroids.set_norms(*centres.norms2)
        elif centres.moved is None or len(centres.moved):
            self._centres = updated_centres(self._centres, centres)
            engine.moved(self._centroids.move(for_core(self._centres), engine.n_jobs))
        return engine.assign(self._centroids)

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

    def labels(self) -> list[Labels]:
        """Labels as users get them, by block, including empty blocks."""
        own = self.engine.final_labels()
        full = iter([own[part.begin : part.end].copy() for part in self.engine.walk()])
        return [next(full) if info.rows else np.empty(0, np.int32) for info in self.infos.values()]

    def used_labels(self) -> list[int]:
        """Labels that at least one row has."""
        return [int(label) for label in np.unique(self.engine.final_labels()) if label >= 0]

    # -- seeding -------------------------------------------------------------------------------

    def open_seeding(self, alpha: float, exponent: int) -> None:
        """Requests to SeedBlocks are about this seeding from now on."""
        begins = [int(self._begins[place]) for place in self.places]
        self._seeding = SeedBlocks(self.engine, self.places, begins, alpha, exponent)


def threads_here(n_jobs: int | None) -> int:
    """`n_jobs` resolved against the threads of the Dask worker."""
    from distributed import get_worker

    threads = int(get_worker().state.nthreads)
    if n_jobs is None:
        return threads
    return n_jobs if n_jobs > 0 else max(1, threads + 1 + n_jobs)


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
    return sp.csr_array(sp.vstack([old, new.rows], format="csr")[source])
