"""The engine over all blocks on the workers of a Dask cluster, one WorkerEngine per worker.

Each operation is a request to all workers. Their responses, reduced exactly, are those of a
LocalEngine over all rows. Nothing here holds anything of the size of the data.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from operator import itemgetter
from typing import Any

import distributed
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from exactmeans import _core
from exactmeans.data.arrays import Double, Labels, Matrix
from exactmeans.data.centres import from_core, normalise
from exactmeans.data.rows import Lengths, refuse_nonfinite
from exactmeans.engine.cluster.seeding import DaskSeeding
from exactmeans.engine.cluster.worker_engine import BlockInfo, Centres, Request, WorkerEngine
from exactmeans.engine.cluster.workers import Workers
from exactmeans.engine.frame import Frame
from exactmeans.engine.labels import FinalLabels, renaming
from exactmeans.engine.limits import BorderRows, Limits
from exactmeans.engine.protocol import AssignStats, FarRow, Grids, OneBlock
from exactmeans.metrics import Metric

_NO_LIMITS = "Size limits need all rows in one process."

# What runs on workers -----------------------------------------------------------------------------


def _labels(worker: WorkerEngine, request: Request, log: list[Request]) -> list[Labels]:
    labels: list[Labels] = worker.respond(request, log, needs_weights=False).value
    return labels


def _item(items: list[Any], at: int) -> Any:
    return items[at]


# The engine ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Labelling:
    """Labels that stay on the workers: futures by worker, and by block."""

    client: Any
    by_worker: list[Any]
    blocks: list[Any]
    lengths: list[int]
    distinct: int

    def same_clustering(self, other: FinalLabels, k: int) -> bool:
        """Whether two labellings are equal up to a renaming of clusters."""
        if not isinstance(other, Labelling):
            raise TypeError("Labels on a cluster can be compared with such labels only.")
        named = self.client.map(_renaming, self.by_worker, other.by_worker, k=k, pure=False)
        name = np.full(k, -1, dtype=np.int32)
        for own in self.client.gather(named):
            if own is None:
                return False
            known = own >= 0
            if np.any((name[known] >= 0) & (name[known] != own[known])):
                return False
            name[known] = own[known]
        return True


def _renaming(a: list[Labels], b: list[Labels], k: int) -> Labels | None:
    """`renaming` of labels by block."""
    return renaming(np.concatenate(a), np.concatenate(b), k)


class DaskEngine:
    """The rows of a fit, on the workers of a cluster."""

    streamed = False
    passes = unread = 0  # blocks stay where they are
    reading_bytes = 0

    def __init__(
        self,
        client: Any,
        pieces: list[Any],
        weights: list[Any] | None,
        *,
        dtype: np.dtype[Any] | None,
        n_jobs: int | None,
        metric: Metric,
        zero_rows: str,
        scratch_limit: int | None = None,
    ) -> None:
        """`pieces`: delayed objects or futures of the blocks of rows; `weights`: or arrays, too."""
        self._client = client
        self.n_jobs = _core.usable_cores()  # of this process, for what is O(k d)
        self._weighted = weights is not None
        self._counted: Double | None = None
        self.metric, self._zero_rows = metric, zero_rows
        self.scratch_limit = scratch_limit
        self._k: int | None = None  # clusters of the run; None before the first
        self._known: Matrix | None = None  # the centres that the workers have
        self._wanted: list[Any] = []  # futures of labels that may still be pending
        self._workers = Workers(client, pieces, weights, (dtype, n_jobs))
        self.mutate, self.query = self._workers.mutate, self._workers.query
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        """Check the blocks, choose a common dtype, and number the rows."""
        infos: list[BlockInfo] = [
            info for _, info in sorted(self.query(WorkerEngine.block_infos), key=itemgetter(0))
        ]
        full = [info for info in infos if info.rows]
        if not full:
            raise ValueError("X must have rows, but Found array with 0 sample(s).")
        if len({info.columns for info in full}) > 1:
            wide = sorted({info.columns for info in full})
            raise ValueError(f"X must have blocks of one width, but they have {wide} columns.")
        if len({info.sparse for info in full}) > 1:
            raise ValueError("X must have blocks that are all dense or all sparse.")
        self.d, self.sparse = full[0].columns, full[0].sparse
        self.dtype: np.dtype[Any] = np.result_type(*(info.dtype for info in full if info.dtype))
        self.lengths = [info.rows for info in infos]
        self.begins = np.concatenate([[0], np.cumsum(self.lengths)]).astype(np.int64)
        self.n = int(self.begins[-1])
        self.nonzeros = sum(info.values for info in full)
        rows = {
            number: sum(self.lengths[place] for place in places)
            for number, places in self._workers.places.items()
        }
        self._workers.keep([number for number, own in rows.items() if own])
        self.most_rows = max(rows.values())
        self.mutate(WorkerEngine.open, self.dtype, self.begins, self.metric)
        if self._weighted and not self.query(WorkerEngine.largest_weight):
            raise ValueError("sample_weight must not be zero for every row.")

    # -- before the first iteration ------------------------------------------------------------

    @property
    def weighted(self) -> bool:
        return self._weighted

    def counted(self) -> Double | None:
        """All weights in this process; only for draws that match scikit-learn's."""
        if self._counted is None and (self._weighted or self.directions() < self.n):
            pieces = sorted(self._workers.query_in_turn(WorkerEngine.counted), key=itemgetter(0))
            self._counted = np.concatenate([weights for _, weights in pieces])
        return self._counted

    def keep(self, budget: float) -> int:
        return 0

    def examine(self) -> _core.Survey:
        survey = self.survey(weighted=False)
        refuse_nonfinite(survey)
        if self.metric.directed:
            self._lengths.refuse(self._zero_rows, self.metric.name)
            self._lengths.refuse_none(self.n, self.metric.name)
        return survey

    @cached_property
    def _lengths(self) -> Lengths:
        lengths = self.query(WorkerEngine.lengths)
        assert lengths is not None  # for this metric
        return lengths

    def directions(self) -> int:
        return self.n - (self._lengths.zeros if self.metric.directed else 0)

    def total_weight(self) -> float:
        blank, exported = self.query(WorkerEngine.total_weight, self.weight_grid())
        sums = _core.Sums(*blank)
        sums.absorb(exported)
        return float(sums.weights[0])

    def survey(self, *, weighted: bool) -> _core.Survey:
        survey: _core.Survey = self.query(WorkerEngine.survey, weighted)
        return survey

    def bins_needed(self, grid: _core.Grid, *, weighted: bool) -> int:
        return int(self.query(WorkerEngine.bins_needed, grid, weighted))

    def weight_grid(self) -> _core.Grid:
        if not self._weighted:
            return _core.Grid(np.ones(1), self.n)
        grid = _core.Grid(np.array([self.query(WorkerEngine.largest_weight)]), self.n)
        grid.bins = self.query(WorkerEngine.weight_bins, grid)
        return grid

    def total(self, grid: _core.Grid, *, weighted: _core.Grid | None = None) -> _core.Sums:
        grid.bins = self.bins_needed(grid, weighted=False)
        if weighted is not None:
            weighted.bins = self.bins_needed(weighted, weighted=True)
        counts = _core.Grid(np.ones(1), self.n)
        sums = _core.Sums(1, self.d, grid, counts, sparse=self.sparse)
        self.add_all(sums)
        return sums

    def add_all(self, sums: _core.Sums, *, weighted: bool = False) -> None:
        sums.absorb(self.query(WorkerEngine.add_all, sums.blank, weighted)[1])

    def scatter(self, points: Matrix, exponent: int, *, labelled: bool) -> tuple[float, float]:
        weighted, plain = self.query(WorkerEngine.scatter, points, exponent, labelled)
        return weighted.value, plain.value

    def squares(self, point: Matrix, exponent: int) -> tuple[float, float]:
        weighted, plain = self.query(WorkerEngine.squares, point, exponent)
        return weighted.value, plain.value

    def overlap(self) -> float:
        """Unknown: no worker has all rows."""
        return math.inf

    def packed_columns(self) -> NDArray[np.uint32] | None:
        return None  # workers have their own

    def pick(self, ids: NDArray[np.intp]) -> Matrix:
        """Rows by their numbers, in the layout of the data."""
        found: list[Any] = self.query(WorkerEngine.rows, ids)
        where = np.concatenate([at for at, _ in found])
        pieces = [rows for _, rows in found]
        rows = sp.vstack(pieces, format="csr") if self.sparse else np.concatenate(pieces)
        return rows[np.argsort(where)]

    def take(self, ids: NDArray[np.intp]) -> Matrix:
        """The same; sparse ones in canonical form, unit vectors where only directions count."""
        rows = self.pick(ids)
        if self.sparse:
            rows = sp.csr_array(rows)
            rows.has_sorted_indices = rows.has_canonical_format = False  # flags may be out of date
            rows.sum_duplicates()
        if self.metric.directed:
            normalise(rows)
        return rows

    def seeding(self, exponent: int, *, candidates: int, alpha: float = 2.0) -> DaskSeeding:
        self._forget()
        return DaskSeeding(self, exponent=exponent, alpha=alpha)

    # -- an iteration --------------------------------------------------------------------------

    def deduplicate(self) -> int | None:
        """Workers compare all their rows."""

    def start(self, algorithm: str, k: int, frame: Frame, grids: Grids) -> None:
        self._k, self._known = k, None
        self._forget()
        self.mutate(WorkerEngine.begin, algorithm, frame, (k, self.d, *grids, self.sparse))

    def _forget(self) -> None:
        """Truncate the log, once the labels of the previous run are computed."""
        distributed.wait(self._wanted)
        self._wanted.clear()
        self._workers.log = self._workers.log[:1]

    def use(self, algorithm: str) -> None:
        self.mutate(WorkerEngine.use, algorithm)
        begin = self._workers.log[1]
        self._workers.log[1] = replace(begin, arguments=(algorithm, *begin.arguments[1:]))

    def assign(self, centroids: _core.Centroids, sums: _core.Sums | None = None) -> AssignStats:
        if self._k is None:
            raise RuntimeError("The rows have no labels yet: call start first.")
        now = from_core(centroids.centres, (self._k, self.d))
        if self._known is None:
            centres = Centres(now, None, centroids.given_norms2)
        else:
            moved = _different(self._known, now)
            centres = Centres(now[moved], moved)
        stats, _, exported = self.mutate(WorkerEngine.assign, centres)
        # An engine that lost its state needs only the labels by these centres.
        whole = centres if self._known is None else Centres(now)
        begun = self._workers.log[:2]
        self._workers.log = [
            *begun,
            Request.of(WorkerEngine.assign, (whole,), begun[-1].to_version, self._workers.version),
        ]
        self._known = now
        if sums is not None:
            sums.absorb(exported)
        result: AssignStats = stats
        return result

    def cost(self, centroids: _core.Centroids, points: Matrix, exponent: int) -> tuple[int, float]:
        distances = self.assign(centroids).distances
        return distances, self.scatter(points, exponent, labelled=True)[0]

    def move_row(self, sums: _core.Sums, row: int, source: int, target: int) -> None:
        moved = self.query(WorkerEngine.move_row, row, source, target)
        assert moved is not None  # one worker has the row
        sums.absorb(moved[1])

    def moved(self, movement: _core.Movement) -> None:
        """Workers compute movements themselves from the centres that they receive."""

    def far_rows(self, centres: Matrix, exponent: int) -> Iterator[FarRow]:
        count, given = 64, 0
        while True:
            found: list[FarRow] = self.query(WorkerEngine.far_rows, centres, exponent, count)
            found.sort(key=lambda far: (-far.distance2, far.row))
            # Beyond the first `count` of all, a worker may have rows that it did not send.
            yield from found[given:count]
            if len(found) < count:
                return
            given, count = count, 8 * count

    def final_labels(self) -> Labelling:
        """Futures of labels; recomputed from the centres if a worker dies."""
        version = self._workers.version
        request = Request.of(WorkerEngine.labels, (), version, version)
        # A rebuilt engine needs no sums here, and may lack weights.
        log = [
            *self._workers.log[:2],
            replace(self._workers.log[2], what=WorkerEngine.label.__qualname__),
        ]
        by_worker = self._workers.map(_labels, request=request, log=self._workers.stored(log))
        self._wanted += by_worker
        blocks: list[Any] = [np.empty(0, dtype=np.int32)] * len(self.lengths)
        for places, worker in zip(self._workers.places.values(), by_worker, strict=True):
            for at, place in enumerate(places):
                blocks[place] = self._client.submit(_item, worker, at, pure=False)
        return Labelling(
            self._client,
            by_worker,
            blocks,
            self.lengths,
            len(set(self.query(WorkerEngine.used_labels))),
        )

    limited = None

    def limit(self, limits: Limits) -> None:
        raise NotImplementedError(_NO_LIMITS)

    def assign_by_prices(
        self, centroids: _core.Centroids, prices: Double, border: BorderRows
    ) -> None:
        raise NotImplementedError(_NO_LIMITS)

    def fingerprint(self) -> str:
        raise ValueError("checkpoint must be None for Dask collections.")

    def one_block(self) -> OneBlock:
        raise ValueError("X must not come in blocks where all rows are needed at once.")

    def close(self) -> None:
        """Release the engines on the workers."""
        self._workers.close()


def _different(a: Matrix, b: Matrix) -> NDArray[np.intp]:
    """Rows that differ in at least one bit."""
    if isinstance(a, np.ndarray):
        bits = f"u{a.itemsize}"
        return np.flatnonzero((a.view(bits) != b.view(bits)).any(axis=1))
    return np.array(
        [
            j
            for j in range(a.shape[0])
            if not all(
                np.array_equal(x[a.indptr[j] : a.indptr[j + 1]], y[b.indptr[j] : b.indptr[j + 1]])
                for x, y in ((a.indices, b.indices), (a.data, b.data))
            )
        ],
        dtype=np.intp,
    )
