"""The protocols between a fit and its rows: `Engine` and `Seeding`.

Every operation gives the same bits however the rows are cut into blocks and distributed, because
labels and distances are per row and totals are exact. `LocalEngine` implements them in this
process, `ClusterEngine` on a cluster; the loop uses nothing but these protocols.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from exactmeans import _core
from exactmeans.data.arrays import Double, Labels, Matrix
from exactmeans.engine.labels import FinalLabels
from exactmeans.engine.limits import BorderRows, LimitedAssign, Limits
from exactmeans.metrics import Metric

if TYPE_CHECKING:
    from exactmeans.engine.frame import Frame


class AssignStats(NamedTuple):
    """Statistics of one assignment pass over all rows."""

    changed: int  # rows with a new label
    distances: int  # row-centre distances computed
    skipped: int  # rows whose label bounds or 8-bit scores decided, without a distance
    # The 8-bit filter for dense rows: rows compared by codes, rows that codes alone labelled, and
    # distances to the candidates of the others.
    filtered: int = 0
    decided: int = 0
    verified: int = 0
    unread: int = 0  # blocks that were not read: no label in them could change

    @staticmethod
    def total(all_stats: Iterable[AssignStats]) -> AssignStats:
        """The sums of the counts of passes over some of the rows each."""
        return AssignStats(*(sum(counts) for counts in zip(*all_stats, strict=True)))


class FarRow(NamedTuple):
    """A row that may be relocated to an empty cluster."""

    distance2: float
    row: int
    label: int
    value: bytes  # the same for equal rows


class Grids(NamedTuple):
    """The grids of exact sums of rows and of weights."""

    rows: _core.Grid
    weights: _core.Grid


class Engine(Protocol):
    """The rows of a fit, and the state that is kept per row."""

    @property
    def n(self) -> int:
        """The number of rows."""

    @property
    def d(self) -> int:
        """The number of features."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """float32 or float64."""

    @property
    def sparse(self) -> bool:
        """Whether rows are CSR."""

    @property
    def n_jobs(self) -> int:
        """Threads of this process."""

    @property
    def metric(self) -> Metric:
        """How rows are compared with centres."""

    @property
    def weighted(self) -> bool:
        """Whether rows have weights."""

    @property
    def nonzeros(self) -> int:
        """Stored values of all rows; the first use may take a pass over them."""

    @property
    def scratch_limit(self) -> int | None:
        """Bytes that dense copies of sparse centres, or projections of rows, may take."""

    # memory

    @property
    def most_rows(self) -> int:
        """The most rows that one process works on."""

    @property
    def reading_bytes(self) -> int:
        """Bytes that blocks take while they are read; 0 for rows in memory."""

    def keep(self, budget: float) -> int:
        """Let blocks stay in memory up to this many bytes; returns the bytes of those that do."""

    @property
    def passes(self) -> float:
        """Passes over blocks that are not in memory; a part of a pass counts as its share."""

    @property
    def unread(self) -> int:
        """Blocks that passes skipped, because no label in them could change."""

    # before the first iteration

    def examine(self) -> _core.Survey:
        """Refuse values that the metric cannot take; returns the survey without weights."""

    def survey(self, *, weighted: bool) -> _core.Survey:
        """Largest values and the first row that is not finite."""

    def bins_needed(self, grid: _core.Grid, *, weighted: bool) -> int:
        """How many bins of the grid the exact sums take."""

    def directions(self) -> int:
        """How many rows have a direction; for metrics that compare directions."""

    def total_weight(self) -> float:
        """The sum of all weights, rounded once."""

    def weight_grid(self) -> _core.Grid:
        """The grid of exact sums of weights, or of counts."""

    def total(self, grid: _core.Grid, *, weighted: _core.Grid | None = None) -> _core.Sums:
        """The sum of all rows without their weights, as cluster 0.

        Sets the number of bins of `grid`, and of `weighted`, the grid of weighted rows.
        """

    def add_all(self, sums: _core.Sums, *, weighted: bool = False) -> None:
        """Put every row into cluster 0 of `sums`."""

    def scatter(self, points: Matrix, exponent: int, *, labelled: bool) -> tuple[float, float]:
        """The objective at the point of each row's label (or the only point), weighted and not."""

    def squares(self, point: Matrix, exponent: int) -> tuple[float, float]:
        """Sum of squared distances to a point, weighted and not, whatever the metric."""

    def overlap(self) -> float:
        """Entries of all rows in the features of a row, on average; infinite where unknown."""

    def packed_columns(self) -> NDArray[np.uint32] | None:
        """The packed column of each feature of sparse centres, or None."""

    def take(self, ids: NDArray[np.intp]) -> Matrix:
        """Rows by their number, in the layout of the data; unit vectors for directions."""

    def pick(self, ids: NDArray[np.intp]) -> Matrix:
        """Rows by their ascending number, in the layout of the data."""

    def seeding(self, exponent: int, *, candidates: int, alpha: float = 2.0) -> Seeding:
        """A seeding over these rows; `candidates`: about how many it will evaluate."""

    def deduplicate(self) -> int | None:
        """Compare one row for all its duplicates; returns the rows compared, or None if all are."""

    def mass(self, scale: float) -> int:
        """The weights of all rows that have a direction, times `scale`, each rounded to an int."""

    def limit(self, limits: Limits) -> None:
        """From the next start on, keep sizes of clusters within these limits."""

    @property
    def limited(self) -> LimitedAssign | None:
        """The assignment step within limits, which `assign` uses; None without limits."""

    # an iteration

    def start(self, algorithm: str, k: int, frame: Frame, grids: Grids, passes: int) -> None:
        """Reset labels and bounds. The methods below raise RuntimeError before the first start.

        Engines with workers send them the frame and the grids, which depend on all rows. If the
        expected number of passes wins back their cost, 8-bit codes of the rows are kept.
        """

    def use(self, algorithm: str) -> None:
        """Switch to another algorithm, which begins without bounds."""

    def assign(self, centroids: _core.Centroids, sums: _core.Sums | None = None) -> AssignStats:
        """Label every row, and bring the sums up to date with the labels.

        Pass the same sums in every call: only changes of labels are added.
        """

    def cost(
        self, centroids: _core.Centroids, points: Matrix, exponent: int
    ) -> tuple[AssignStats, float]:
        """Label every row; returns the statistics, and the objective at `points`."""

    def assign_by_prices(
        self, centroids: _core.Centroids, prices: Double, border: BorderRows
    ) -> None:
        """Label every row by prices, and rows on a border as they were labelled before."""

    def move_row(self, sums: _core.Sums, row: int, source: int, target: int) -> None:
        """Move a row from the sums of one cluster to those of another."""

    def moved(self, movement: _core.Movement) -> None:
        """Update bounds by the movement of the centres since the last assignment."""

    def far_rows(self, centres: Matrix, exponent: int) -> Iterator[FarRow]:
        """Rows with weight that are not at their centres, the farthest first."""

    def counted(self) -> Double | None:
        """Weights of rows, 0 for those without a direction; None if all are 1.

        O(n) memory in this process: only for draws that match scikit-learn's, and for one block.
        """

    def fingerprint(self) -> str:
        """A hash of all rows and weights, by which a checkpoint recognises its data."""

    def one_block(self) -> OneBlock:
        """The same rows with operations that need all of them in one block."""

    def final_labels(self) -> FinalLabels:
        """The labels that users get."""

    def close(self) -> None:
        """Release what the engine holds elsewhere."""


class OneBlock(Protocol):
    """Rows that are one block in this process, for metrics whose centres are not sums."""

    def whole(self) -> Matrix:
        """The data as one matrix."""

    def labels(self) -> Labels:
        """The current label of every row."""

    def medians(self, labels: Labels, centres: NDArray[Any]) -> None:
        """Put centres of clusters that have weight at their medians."""

    def karcher(
        self, labels: Labels, centres: NDArray[Any], *, steps: int, tolerance: float
    ) -> float:
        """Move centres towards geodesic means; returns the objective before."""


class Seeding(ABC):
    """Rows, their distances to the nearest seed, and sampling weights: weight * distance**alpha.

    An abstract class, so that an incomplete implementation cannot be instantiated.
    """

    n: int
    width: float  # entries per row

    @property
    @abstractmethod
    def potential(self) -> float:
        """The sum of all sampling weights (the potential of Arthur and Vassilvitskii)."""

    @abstractmethod
    def start(self, seed: int | Double) -> None:
        """Set the first seed: a row, or any point."""

    @abstractmethod
    def draw(self, places: Double) -> list[int]:
        """Rows at which the cumulated sampling weights reach these shares of the potential."""

    @abstractmethod
    def potentials(self, rows: list[int]) -> list[float]:
        """Evaluate candidates: the potential if each, alone, became a seed. See `accept`."""

    @abstractmethod
    def accept(self, candidate: int) -> None:
        """Make a seed of one of the candidates of `potentials`."""

    @abstractmethod
    def greedy(self, places: Double) -> list[int]:
        """Greedy k-means++: per step draw candidates and accept the best; returns the rows."""

    @abstractmethod
    def add(self, rows: list[int]) -> None:
        """Make seeds of all these rows."""

    @abstractmethod
    def farthest(self) -> int:
        """The first row farthest from its nearest seed; -1 if every row equals a seed."""

    @abstractmethod
    def sample_bernoulli(self, key: int, expected: float) -> list[int]:
        """Rows of independent Bernoulli draws by sampling weight, about `expected` of them."""

    @abstractmethod
    def seed_weights(self) -> Double:
        """The exact total weight of the rows nearest to each seed."""

    # Rejection sampling: deferred seeds change the stored sampling weight of a row only at
    # `refresh` of that row or at `add_deferred`, so stored weights are upper bounds.

    @property
    @abstractmethod
    def deferred(self) -> int:
        """The number of deferred seeds."""

    @abstractmethod
    def defer(self, row: int) -> None:
        """Make this row a deferred seed."""

    @abstractmethod
    def refresh(self, row: int) -> tuple[float, float]:
        """The stored and the current sampling weight of a row; stores the current one."""

    @abstractmethod
    def add_deferred(self) -> None:
        """Make plain seeds of the deferred ones."""
