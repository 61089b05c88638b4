"""What an assignment pass costs in time and memory, by algorithm: constants and formulas."""

from __future__ import annotations

import math
from dataclasses import dataclass

from exactmeans import _core
from exactmeans.engine.protocol import AssignStats, Engine
from exactmeans.metrics import METRICS

# Costs are in multiply-adds of a plain Lloyd pass.
SHORT_PASS = 5e6  # a pass below this costs less than keeping bounds would
READ_BYTE_COST = 4  # of reading one byte from the page cache
PROJECTED_SCORE_COST = 60  # of comparing projections of a row and a centre (projections.hpp)

KDTREE_MAX_FEATURES = 4  # boxes prune better than bounds up to this many features
POSTING_LISTS_BYTES = 2**25  # of centres, from which rare features have lists (layout.hpp)
PRODUCTS_BYTES = 2**29  # largest n-by-k table of products without a memory_limit
PCA_MIN_FEATURES = 128  # from which a few principal coordinates may prune
PCA_PROBE_ROWS = 1024  # rows of the probe that decides about pca
PCA_MAX_SHARE = 0.35  # share of distances left in the probe up to which pca is used
FILTER_PROBE_ROWS = 256  # rows of the probe of the 8-bit filter for dense rows
INTER_CENTRE_PROBE_ROWS = 32  # rows of the probe of inter-centre distances
CHANGED_SHARE_FOR_BOUNDS = {True: 0.1, False: 0.03}  # bounds begin below it; for CSR, dense
MOVING_NO_GAIN_SHARE = 0.8  # share of distances from which `moving` saves nothing

# In passes of plain Lloyd:
CHEAP_FIRST_PASS = 1.75  # bounds whose first pass costs no more begin at once
AVERAGE_LOSS = 0.1  # per pass, that trying bounds may cost
EXPECTED_SAVING = 0.15  # per pass, of bounds that work
MAX_LOSS = 0.5  # after the first pass, before bounds end
PCA_FIRST_PASS = 0.5  # extra cost of the first pass of pca: 0.44 for SIFT, 1024 clusters, AVX-512
PCA_PROBE_SHARE = 0.02  # of all passes, that the probe may cost


@dataclass
class Workload:
    """What the choice of an algorithm depends on."""

    n: int
    d: int
    k: int
    sparse: bool
    itemsize: int
    width: float  # values of a row: d, or its stored entries on average
    reading: int = 0  # bytes of blocks being read; 0 for data in memory
    metric: str = "euclidean"
    overlap: float = math.inf  # entries of other rows in a row's features, on average; inf: unknown
    distinct_rows: int | None = None  # if duplicates are not compared

    @classmethod
    def of(cls, engine: Engine, k: int) -> Workload:
        """The work of k clusters of these rows."""
        return cls(
            engine.n,
            engine.d,
            k,
            engine.sparse,
            engine.dtype.itemsize,
            engine.nonzeros / engine.n,
            engine.reading_bytes,
            engine.metric.name,
        )

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
            # of every row its first duplicate; of first duplicates their row and label
            return int(self.n * 12 + self.distinct_rows * (8 + bounds) + centres)
        if self.reading:
            # distances and order of rows for relocation; nearest seeds and sampling weights
            per_row = max(per_row + 24, 60)
        if algorithm == "products":  # transposed rows, and the previous centres
            centres += self.n * self.width * (2 * self.itemsize + 6) + 16 * self.d
        return int(self.n * per_row + centres + self.reading)

    @property
    def code_bytes(self) -> int:
        """8-bit codes of dense rows, which are kept if there is room (filter/dense_codes.hpp)."""
        if self.sparse or self.reading or METRICS[self.metric].l1:
            return 0
        return _core.code_bytes(self.itemsize == 4, self.compared, self.k, self.d)

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
    def quantized_filter(self) -> bool:
        """Whether the int8 filter decides most rows of a plain pass (quantized_filter.hpp)."""
        return self.sparse and self.k >= 32

    def plain_cost(self, *, filtered: bool = True) -> float:
        """A pass of Lloyd; `filtered`: the centres are dense enough for the int8 filter."""
        if self.sparse:
            width = 0.6 * self.width if self.quantized_filter and filtered else self.width
            return self.compared * self.k * (width + 6)
        # Includes packing the values of a row before they are multiplied.
        return self.compared * (self.k * (self.width + 4) + 8 * self.width + 100)

    def cost(self, algorithm: str, stats: AssignStats) -> float:
        """A pass with these statistics."""
        if algorithm == "kdtree":
            return stats.distances * (self.width + 8)
        if algorithm == "moving":
            return self.plain_cost() * stats.distances / (self.compared * self.k)
        # Scores of one group reuse each loaded value less than scores of all centres do. A row that
        # bounds do not decide also costs bound updates, list entries and one or two cache misses.
        if self.sparse:
            per_row, any_row = 6400 / self.itemsize, 40
        elif algorithm == "hamerly":  # computes distances to own centres one by one
            per_row, any_row = 25 * self.width + 1000, 700
        else:
            per_row, any_row = 5 * self.width + 11 * self.k + 600, 200
        if algorithm == "pca":  # at most the projections of all centres
            per_row += PROJECTED_SCORE_COST * self.k
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
        """The first pass with bounds: computes distances and allocates bounds."""
        per_row = 6400 / self.itemsize if self.sparse else 20 * self.width + 2200
        return distances * self._per_distance(algorithm) + self.compared * per_row

    def probe_cost(self) -> float:
        """The probe for pca: principal directions, and labels of PCA_PROBE_ROWS rows.

        One thread does most of it. Measured with 128, 384 and 784 features, 100 and 1024 clusters:
        11 to 57 ms, while a plain pass does 5e7 multiply-adds in a millisecond.
        """
        return self.d * (4e6 + 5.5e3 * self.k)

    @property
    def inter_centre_distances(self) -> bool:
        """Whether inter-centre distances predict how many centres a row must be compared with."""
        known = not self.sparse and self.metric == "euclidean" and 16 * self.k <= self.compared
        return known and not self.reading

    def products_cost(self, changed: int) -> float:
        """A pass that updates stored products for `changed` rows (assign/sparse/products.hpp)."""
        lists = self.k * self.d * self.itemsize > POSTING_LISTS_BYTES
        step = (12 if lists else 32) / self.itemsize
        return 2 * changed * self.overlap * step + self.n * (2 * self.k + 40)
