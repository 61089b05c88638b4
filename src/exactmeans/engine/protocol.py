"""What the loop asks of the data, wherever its rows are.

Every operation gives the same bits however the rows are cut into blocks and whoever works on them:
labels and distances are per row, totals are exact. `LocalEngine` offers all of it for this process;
another engine offers the same, and neither the loop nor the problem know the difference.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from exactmeans import _core
from exactmeans.data.arrays import Double, Labels, Matrix
from exactmeans.metrics import Metric

if TYPE_CHECKING:
    from exactmeans.engine.frame import Frame


class AssignStats(NamedTuple):
    """What an assignment of all rows came to."""

    changed: int  # rows with a new label
    distances: int  # row-centre distances computed
    skipped: int  # rows whose label was certain without any
    unread: int = 0  # blocks that were not read: no label in them could change


class FarRow(NamedTuple):
    """A row that may be lent to an empty cluster."""

    distance2: float
    row: int
    label: int
    value: bytes  # the same for equal rows


class Engine(Protocol):
    """The rows of a fit, and per-row state that lives beside them."""

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
        """Stored values of all rows; of streamed rows known after `survey`."""

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
        """The first look at the rows, which refuses what no metric or this one cannot take."""

    def survey(self, *, weighted: bool) -> _core.Survey:
        """Largest values and the first row that is not finite."""

    def words_needed(self, grid: _core.Grid, *, weighted: bool) -> int:
        """How many words of the grid the exact sums take."""

    def directions(self) -> int:
        """How many rows have one, where only directions count."""

    def total_weight(self) -> float:
        """Of all rows, rounded once."""

    def weight_grid(self) -> _core.Grid:
        """The grid of exact sums of weights, or of counts."""

    def total(self, grid: _core.Grid, *, weighted: _core.Grid | None = None) -> _core.Sums:
        """The sum of all rows without their weights, as cluster 0, on a grid without words so far.

        The grid gets the words that it needs, and so does that of weighted rows.
        """

    def add_all(self, sums: _core.Sums, *, weighted: bool = False) -> None:
        """Put every row into cluster 0 of `sums`."""

    def scatter(self, points: Matrix, exponent: int, *, labelled: bool) -> tuple[float, float]:
        """Sum of what rows cost at the own (or only) point, weighted and not."""

    def squares(self, point: Matrix, exponent: int) -> tuple[float, float]:
        """Sum of squared distances to a point, weighted and not, whatever the metric."""

    def overlap(self) -> float:
        """Entries of all rows in a row's features, on average; infinite where it is not known."""

    def slots(self) -> NDArray[np.uint32] | None:
        """Where the core should keep each feature of sparse centres."""

    def take(self, ids: NDArray[np.intp]) -> Matrix:
        """Rows by their number, in the layout of the data; unit vectors for directions."""

    def pick(self, ids: NDArray[np.intp]) -> Matrix:
        """Rows by their ascending number, in the layout of the data."""

    def seeding(self, exponent: int, *, candidates: int, alpha: float = 2.0) -> Seeding:
        """The rows as seeding sees them."""

    def deduplicate(self) -> int | None:
        """Permission to compare one row for all that equal it; how many are left, if it is used."""

    def agree(self, frame: Frame, grid: _core.Grid, weight_grid: _core.Grid) -> None:
        """What all rows together have led to, for those who work on some of them."""

    # an iteration

    def start(self, algorithm: str, k: int) -> None:
        """Forget labels and bounds."""

    def follow(self, sums: _core.Sums | None) -> None:
        """Permission to keep these sums up with the labels while rows are at hand."""

    def use(self, algorithm: str) -> None:
        """Go on with another algorithm, which begins without bounds."""

    def assign(self, centroids: _core.Centroids) -> AssignStats:
        """Label every row."""

    def cost(self, centroids: _core.Centroids, points: Matrix, exponent: int) -> tuple[int, float]:
        """Label every row and add up what it costs at its point: (distances computed, cost)."""

    def sum_up(self, sums: _core.Sums, changed: int) -> None:
        """Make the sums stand for the labels."""

    def move_row(self, sums: _core.Sums, row: int, source: int, target: int) -> None:
        """Take a row's share out of one cluster's sums and put it into another's."""

    def moved(self, movement: _core.Movement) -> None:
        """The centres went this far since the last assignment."""

    def far_rows(self, centres: Matrix, exponent: int) -> Iterator[FarRow]:
        """Rows with weight that are not at their centres, the farthest first."""

    def counted(self) -> Double | None:
        """Weights of rows that count for centres: those without a direction do not.

        All of them: only for draws that scikit-learn makes, too, and for rows in one block.
        """

    def fingerprint(self) -> str:
        """A hash of all rows and weights, by which a checkpoint recognises its data."""

    def one_block(self) -> OneBlock:
        """The same rows with operations that need all of them in one block."""

    def final_labels(self) -> Any:
        """The labels that users get: -1 for rows without a direction, which are in no cluster."""


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
    """Rows, the distance of each to its nearest seed, and its mass: weight * distance**alpha.

    What seeding methods call, wherever the rows are. A class that lacks an operation cannot be
    instantiated.
    """

    n: int
    width: float  # entries per row

    @property
    @abstractmethod
    def potential(self) -> float:
        """The mass of all rows."""

    @abstractmethod
    def start(self, seed: int | Double) -> None:
        """The first seed: a row, or any point."""

    @abstractmethod
    def draw(self, places: Double) -> list[int]:
        """Rows at which the running total of masses reaches these shares of the potential."""

    @abstractmethod
    def potentials(self, rows: list[int]) -> list[float]:
        """What each of these rows would leave of the potential; `accept` takes one of them."""

    @abstractmethod
    def accept(self, candidate: int) -> None:
        """Make a seed of one of the rows that `potentials` was given."""

    @abstractmethod
    def greedy(self, places: Double) -> list[int]:
        """Draw candidates, make a seed of the one that leaves least, and so on; says which rows."""

    @abstractmethod
    def absorb(self, rows: list[int]) -> None:
        """All of these rows become seeds."""

    @abstractmethod
    def farthest(self) -> int:
        """The row farthest from its nearest seed, the first of several; -1 if none is apart."""

    @abstractmethod
    def sample_bernoulli(self, key: int, expected: float) -> list[int]:
        """Rows kept by independent coins, about `expected` of them, by their share of the mass."""

    @abstractmethod
    def followers(self) -> Double:
        """The weight of the rows that are nearest to each seed, to the last bit."""

    # Draws by rejection: deferred seeds do not change the listed mass of a row before `refresh` of
    # that row or `catch_up`, so listed masses may be too large.

    @property
    @abstractmethod
    def pending(self) -> int:
        """Deferred seeds."""

    @abstractmethod
    def put_off(self, row: int) -> None:
        """Make this row a deferred seed."""

    @abstractmethod
    def refresh(self, row: int) -> tuple[float, float]:
        """The listed mass of a row, and its mass now, which is listed from now on."""

    @abstractmethod
    def catch_up(self) -> None:
        """Make plain seeds of the deferred ones."""
