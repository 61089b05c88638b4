"""The engine over all blocks on the workers of a cluster, one WorkerEngine per worker.

Each operation is a request to all workers. Their responses, reduced exactly, are those of a
LocalEngine over all rows. Nothing here holds anything of the size of the data.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import itemgetter
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from exactmeans import _core
from exactmeans.data.arrays import Double, Matrix, stacked
from exactmeans.data.centres import from_core, normalise
from exactmeans.data.rows import Lengths, refuse_nonfinite, rows_of
from exactmeans.engine.cluster.layout import Layout
from exactmeans.engine.cluster.pool import Transport, WorkerPool
from exactmeans.engine.cluster.requests import Centres, Opening, Request
from exactmeans.engine.cluster.seeding import ClusterSeeding
from exactmeans.engine.cluster.worker_engine import WorkerEngine
from exactmeans.engine.frame import Frame
from exactmeans.engine.labels import FinalLabels
from exactmeans.engine.limits import BorderRows, Limits
from exactmeans.engine.protocol import AssignStats, FarRow, Grids, OneBlock
from exactmeans.metrics import Metric

_NO_LIMITS = "Size limits need all rows in one process."


@dataclass(frozen=True)
class Labelling:
    """Labels that stay on the workers: those by these centres."""

    engine: ClusterEngine
    frame: Frame
    centres: Matrix
    distinct: int  # clusters that have rows

    def same_clustering(self, other: FinalLabels, k: int) -> bool:
        """Whether the labels that the workers have are those of `other`, up to a renaming."""
        if not isinstance(other, Labelling):
            raise TypeError("Labels on a cluster can be compared with such labels only.")
        name = np.full(k, -1, dtype=np.int32)
        for own in self.engine.query(WorkerEngine.renaming, other.frame, other.centres):
            if own is None:
                return False
            known = own >= 0
            if np.any((name[known] >= 0) & (name[known] != own[known])):
                return False
            name[known] = own[known]
        return True


@dataclass(frozen=True)
class RowOptions:
    """What the user said about the rows."""

    metric: Metric
    zero_rows: str = "error"
    weighted: bool = False
    scratch_limit: int | None = None
    feature_names: Sequence[str] | NDArray[Any] | None = None  # of all columns, for errors


class ClusterEngine:
    """The rows of a fit, on the workers of a cluster."""

    streamed = False
    _largest_movement = math.inf  # of a centre in the last update, on the frame's scale
    passes = unread = 0  # what workers read from disk is not counted
    reading_bytes = 0

    def __init__(
        self,
        transport: Transport,
        layout: Layout,
        places: Mapping[int, list[int]],
        options: RowOptions,
        weights: Sequence[Double] | None = None,
    ) -> None:
        """`places`: the blocks of each engine, none of them empty.

        `weights`: by block, unless they are on the workers already.
        """
        self.layout, self._options = layout, options
        self.n, self.d, self.sparse = layout.n, layout.d, layout.sparse
        self.dtype, self.nonzeros = layout.dtype, layout.nonzeros
        self.metric, self.weighted = options.metric, options.weighted
        self.scratch_limit = options.scratch_limit
        self.n_jobs = _core.usable_cores()  # of this process, for what is O(k d)
        self.most_rows = max(sum(layout.infos[b].rows for b in own) for own in places.values())
        self._counted: Double | None = None
        self._begun: tuple[int, Frame] | None = None  # clusters and frame of the run
        self._known: Matrix | None = None  # the centres that the workers have
        openings = {
            number: Opening(
                str(layout.dtype),
                options.metric.name,
                own,
                layout.begins,
                None if weights is None else [np.asarray(weights[b], np.float64) for b in own],
                options.scratch_limit,
            )
            for number, own in places.items()
        }
        self._transport = transport
        try:
            self._pool = WorkerPool(transport, openings)
            self.mutate, self.query = self._pool.mutate, self._pool.query
            if self.weighted and not self.query(WorkerEngine.largest_weight):
                raise ValueError("sample_weight must not be zero for every row.")
        except BaseException:  # Ctrl-C too
            transport.close()
            raise

    # -- before the first iteration ------------------------------------------------------------

    def counted(self) -> Double | None:
        """All weights in this process; only for draws that match scikit-learn's."""
        if self._counted is None and (self.weighted or self.directions() < self.n):
            pieces = sorted(self._pool.query_in_turn(WorkerEngine.counted), key=itemgetter(0))
            self._counted = np.concatenate([weights for _, weights in pieces])
        return self._counted

    def keep(self, budget: float) -> int:
        return 0

    def examine(self) -> _core.Survey:
        survey = self.survey(weighted=False)
        if survey.first_bad_row >= 0:
            self._refuse_row(survey.first_bad_row)
        if self.metric.directed:
            self._lengths.refuse(self._options.zero_rows, self.metric.name)
            self._lengths.refuse_none(self.n, self.metric.name)
        return survey

    def _refuse_row(self, row: int) -> None:
        """Fetches the row, so that the error names its column."""
        bad = self.pick(np.array([row]))
        own = rows_of(bad, None).survey(self.n_jobs)
        refuse_nonfinite(own, row, bad, self._options.feature_names)

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
        if not self.weighted:
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
        rows = stacked(pieces)
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

    def seeding(self, exponent: int, *, candidates: int, alpha: float = 2.0) -> ClusterSeeding:
        self._forget()
        return ClusterSeeding(self, exponent=exponent, alpha=alpha)

    # -- an iteration --------------------------------------------------------------------------

    def deduplicate(self) -> int | None:
        """Workers compare all their rows."""

    def start(self, algorithm: str, k: int, frame: Frame, grids: Grids, passes: int) -> None:
        self._begun, self._known = (k, frame), None
        self._forget()
        self._pool.blank = (k, self.d, *grids, self.sparse)
        self.mutate(WorkerEngine.begin, algorithm, frame, self._pool.blank, passes)

    def _forget(self) -> None:
        """Truncate the log: what came before is not needed any more."""
        self._pool.log.clear()

    def use(self, algorithm: str) -> None:
        self.mutate(WorkerEngine.use, algorithm)
        log = self._pool.log
        begin = replace(log[0], arguments=(algorithm, *log[0].arguments[1:]))
        self._pool.log = [begin, *log[1:]]

    def assign(self, centroids: _core.Centroids, sums: _core.Sums | None = None) -> AssignStats:
        if self._begun is None:
            raise RuntimeError("The rows have no labels yet: call start first.")
        now = from_core(centroids.centres, (self._begun[0], self.d))
        if self._known is None:
            centres = Centres(now, None, centroids.given_norms2)
        else:
            moved = _different(self._known, now)
            centres = Centres(now[moved], moved)
        stats, exported = self.mutate(WorkerEngine.assign, centres)
        # An engine that lost its state needs only the labels by these centres.
        whole = centres if self._known is None else Centres(now)
        begin = self._pool.log[0]
        self._pool.log = [
            begin,
            Request.of(WorkerEngine.assign, (whole,), begin.to_version, self._pool.version),
        ]
        self._known = now
        if sums is not None:
            sums.absorb(exported)
        return stats

    def cost(
        self, centroids: _core.Centroids, points: Matrix, exponent: int
    ) -> tuple[AssignStats, float]:
        stats = self.assign(centroids)
        return stats, self.scatter(points, exponent, labelled=True)[0]

    def move_row(self, sums: _core.Sums, row: int, source: int, target: int) -> None:
        moved = self.query(WorkerEngine.move_row, row, source, target)
        assert moved is not None  # one worker has the row
        sums.absorb(moved[1])

    def moved(self, movement: _core.Movement) -> None:
        """Workers compute movements themselves from the centres that they receive."""
        self._largest_movement = float(movement.distance.max())

    def largest_movement(self) -> float:
        """How far the centre moved that moved most in the last update, at most."""
        exponent = 0 if self._begun is None else self._begun[1].cost_exponent
        return math.ldexp(self._largest_movement, -exponent)

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
        assert self._begun is not None
        assert self._known is not None
        used = set(self.query(WorkerEngine.used_labels))
        return Labelling(self, self._begun[1], self._known, len(used))

    def sizes(self) -> NDArray[np.int64]:
        """How many rows each cluster has, by the current labels."""
        assert self._begun is not None
        return self.query(WorkerEngine.sizes, self._begun[0])

    limited = None

    def mass(self, scale: float) -> int:
        raise NotImplementedError(_NO_LIMITS)

    def limit(self, limits: Limits) -> None:
        raise NotImplementedError(_NO_LIMITS)

    def assign_by_prices(
        self, centroids: _core.Centroids, prices: Double, border: BorderRows
    ) -> None:
        raise NotImplementedError(_NO_LIMITS)

    def fingerprint(self) -> str:
        """The same for the same rows on the same workers."""
        seen = hashlib.blake2b(f"{self.n} {self.d} {self.dtype} {self.sparse}".encode())
        for _, own in sorted(self.query(WorkerEngine.fingerprint)):
            seen.update(own.encode())
        return seen.hexdigest()[:32]

    def one_block(self) -> OneBlock:
        raise ValueError("X must not come in blocks where all rows are needed at once.")

    def close(self) -> None:
        """Release the engines on the workers."""
        self._transport.close()


def _different(a: Matrix, b: Matrix) -> NDArray[np.intp]:
    """Rows that differ in at least one bit."""
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        bits = f"u{a.itemsize}"
        return np.flatnonzero((a.view(bits) != b.view(bits)).any(axis=1))
    a, b = sp.csr_array(a), sp.csr_array(b)
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
