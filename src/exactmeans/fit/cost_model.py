"""What an assignment pass costs in time and memory, by algorithm: constants and formulas."""

from __future__ import annotations

import math
from dataclasses import dataclass

from exactmeans import _core
from exactmeans.engine.protocol import AssignStats
from exactmeans.metrics import METRICS

SHADOW = 60  # multiply-adds that comparing a row with a centre's shadow comes to (shadows.hpp)
PROJECTED = 128  # features from which a few principal coordinates may stand for all
PROBE = 1024  # rows that are asked whether they do
LEFT = 0.35  # share of centres that they may leave
LISTS = 2**25  # bytes of centres from which rare features have lists (layout.hpp)
KEPT = 2**29  # bytes of products that nobody minds
SHORT_PASS = 5e6  # multiply-adds that take less time than keeping bounds
READING = 4  # multiply-adds that take as long as reading a byte that is in the page cache
TREE_FEATURES = 4  # up to so many, boxes lose candidates faster than bounds hold
GAPS = 32  # rows that are asked how many centres the nearest one keeps away from them
PROMISING = {True: 0.1, False: 0.03}  # share of new labels that bounds wait for (sparse, dense)
# In passes of plain Lloyd:
AT_ONCE = 1.75  # bounds whose first pass takes no more need not wait
SPARE = 0.1  # what a pass may lose on average
SAVED = 0.15  # what bounds save in a pass, if they do
TRIED = 0.5  # what bounds may lose after their first pass before they are given up
PROJECTING = 0.5  # what the first pass of pca costs more: 0.44 for SIFT, 1024 clusters, AVX-512
PROBING = 0.02  # the share of all passes that asking a few rows about pca may cost
SIFTED = 0.8  # share of distances from which centres that moved are as good as all of them


@dataclass
class Workload:
    """What the choice of an algorithm depends on."""

    n: int
    d: int
    k: int
    sparse: bool
    itemsize: int
    width: float  # values of a row: d, or its stored entries on average
    reading: int = 0  # bytes of blocks that are at hand or coming; 0 for data in memory
    metric: str = "euclidean"
    overlap: float = math.inf  # entries of other rows in a row's features, on average; inf: unknown
    distinct_rows: int | None = None  # rows that differ, where one of each kind is compared for all

    @property
    def compared(self) -> int:
        """Rows that are compared with centres."""
        return self.n if self.distinct_rows is None else self.distinct_rows

    def bytes_needed(self, algorithm: str) -> int:
        """Memory beside the data itself: per-row state, centres with their layout, exact sums."""
        bounds = _core.bytes_per_row(algorithm, self.itemsize == 4, not self.sparse, self.k, self.d)
        per_row = 8 + bounds
        metric = METRICS[self.metric]
        if metric.directed:  # lengths, and for bounds their inverses
            per_row += 8 + (self.itemsize if bounds else 0)
        if not metric.summed:  # rows by cluster
            per_row += 8
        if metric.l1 and self.sparse:  # entries of a cluster, which may be all, being sorted
            per_row += int(40 * self.width)
        centres = self._centre_bytes()
        if self.distinct_rows is not None:
            # every row's kind; of each kind its first row and its label
            return int(self.n * 12 + self.distinct_rows * (8 + bounds) + centres)
        if self.reading:
            # distances and order of the rows when one is lent; nearest seeds, masses and chances
            per_row = max(per_row + 24, 60)
        if algorithm == "products":  # rows feature by feature, and the centres of before
            centres += self.n * self.width * (2 * self.itemsize + 6) + 16 * self.d
        return int(self.n * per_row + centres + self.reading)

    def bytes_of_batches(self, batch_size: int, sample: int) -> int:
        """The same for steps over batches, whose first centres come from a sample of the rows."""
        # Row numbers and their order to draw the sample: 16, and 19 by measurement. Labels take
        # less. Directions: also lengths, and weights of the rows that have one.
        per_row = 36 if METRICS[self.metric].directed else 20
        row = self.width * (self.itemsize + 8 * self.sparse)
        some = (min(sample, self.n) + 2 * min(batch_size, self.n)) * row
        return int(self.n * per_row + some + self._centre_bytes() + self.reading)

    def _centre_bytes(self) -> float:
        dense = self.k * self.d
        metric = METRICS[self.metric]
        if not self.sparse or not metric.summed:
            # Master, new centres and one packed layout in the compute dtype; sums in float64, or
            # places and tangents; centres that are not sums are arrays whatever the rows are, and
            # sparse rows are measured from a CSR copy of them.
            doubles = 8 if metric.summed else 16 if metric.directed else 0
            copy = 8 + self.itemsize if self.sparse else 0
            return dense * (3 * self.itemsize + doubles + copy)
        # No centre has a feature that none of its rows has. Master, sums and lists take some 60
        # bytes per nonzero, panels at most as much again; each thread has a vector of sums.
        held = min(dense, self.n * self.width)
        return 120 * held + 24 * self.d

    # Costs in multiply-adds of plain Lloyd, which they are compared with.

    @property
    def first_look(self) -> bool:
        """Do 8-bit centres decide most rows of a plain pass (first_look.hpp)?"""
        return self.sparse and self.k >= 32

    def plain_cost(self, *, looks: bool = True) -> float:
        """A pass of Lloyd; `looks`: with a first look, where that may be."""
        if self.sparse:
            width = 0.6 * self.width if self.first_look and looks else self.width
            return self.compared * self.k * (width + 6)
        # Values are read and put side by side before they are multiplied.
        return self.compared * (self.k * (self.width + 4) + 8 * self.width + 100)

    def cost(self, algorithm: str, stats: AssignStats) -> float:
        """A pass that left this many distances and rows over."""
        if algorithm == "kdtree":
            return stats.distances * (self.width + 8)
        if algorithm == "moving":
            return self.plain_cost() * stats.distances / (self.compared * self.k)
        # A group of centres gives fewer sums per value that is read than a pass over all does,
        # and a row that is not settled costs bounds, a place in some lists and a cache miss or two.
        if self.sparse:
            per_row, any_row = 6400 / self.itemsize, 40
        elif algorithm == "hamerly":  # distances to own centres are measured one by one
            per_row, any_row = 25 * self.width + 1000, 700
        else:
            per_row, any_row = 5 * self.width + 11 * self.k + 600, 200
        if algorithm == "pca":  # every centre's shadow, at most
            per_row += SHADOW * self.k
        return (
            stats.distances * self._per_distance(algorithm)
            + (self.n - stats.skipped) * per_row
            + any_row * self.compared
        )

    def _per_distance(self, algorithm: str) -> float:
        if self.sparse:
            return 2 * self.width
        return 1.1 * self.width + (6 if algorithm == "hamerly" else 100)

    def first_cost(self, algorithm: str, distances: float) -> float:
        """A pass that begins bounds: rows are measured, and get room for theirs."""
        per_row = 6400 / self.itemsize if self.sparse else 20 * self.width + 2200
        return distances * self._per_distance(algorithm) + self.compared * per_row

    def probe_cost(self) -> float:
        """Finding principal directions and labelling PROBE rows by them (`share_left`).

        One thread does most of it. Measured with 128, 384 and 784 features, 100 and 1024 clusters:
        11 to 57 ms, while a plain pass does 5e7 multiply-adds in a millisecond.
        """
        return self.d * (4e6 + 5.5e3 * self.k)

    @property
    def gaps(self) -> bool:
        """May distances between centres be asked how many of them a row must look at (gaps.hpp)?"""
        told = not self.sparse and self.metric == "euclidean" and 16 * self.k <= self.compared
        return told and not self.reading

    def products_cost(self, changed: int) -> float:
        """A pass that changes kept products for so many rows with a new label (products.hpp)."""
        lists = self.k * self.d * self.itemsize > LISTS
        step = (12 if lists else 32) / self.itemsize
        return 2 * changed * self.overlap * step + self.n * (2 * self.k + 40)
