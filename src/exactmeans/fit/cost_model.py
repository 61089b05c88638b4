"""What an assignment pass costs in time and memory, by algorithm: constants and formulas."""

from __future__ import annotations

import math
from dataclasses import dataclass

from exactmeans import _core
from exactmeans.engine.protocol import AssignStats, Engine
from exactmeans.metrics import METRICS

# Values, units and measurements are in core/include/exactmeans/base/cost_model.hpp, for both
# languages.
_COST = _core.cost_model
SHORT_PASS = _COST.short_pass
READ_BYTE_COST = _COST.read_byte_cost
PROJECTED_SCORE_COST = _COST.projected_score_cost
KDTREE_MAX_FEATURES = _COST.kdtree_max_features
PRODUCTS_BYTES = _COST.products_bytes
PCA_MIN_FEATURES = _COST.pca_min_features
PCA_PROBE_ROWS = _COST.pca_probe_rows
PCA_MAX_SHARE = _COST.pca_max_share
FILTER_PROBE_ROWS = _COST.filter_probe_rows
INTER_CENTRE_PROBE_ROWS = _COST.inter_centre_probe_rows
#: By whether the rows are sparse.
CHANGED_SHARE_FOR_BOUNDS = {
    True: _COST.changed_share_for_bounds_csr,
    False: _COST.changed_share_for_bounds_dense,
}
CHEAP_FIRST_PASS = _COST.cheap_first_pass
AVERAGE_LOSS = _COST.average_loss
EXPECTED_SAVING = _COST.expected_saving
MAX_LOSS = _COST.max_loss
PCA_FIRST_PASS = _COST.pca_first_pass
PCA_PROBE_SHARE = _COST.pca_probe_share
EXPECTED_PASSES = _COST.expected_passes


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
    overlap: float = math.inf  # entries of all rows in a row's features, on average; inf: unknown
    distinct_rows: int | None = None  # if duplicates are not compared
    passes: int = EXPECTED_PASSES  # that the fit is expected to make

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
            # per row its first duplicate; per distinct row its row number and label
            return int(self.n * 12 + self.distinct_rows * (8 + bounds) + centres)
        if self.reading:
            # distances and order of rows for relocation; nearest seeds and sampling weights
            per_row = max(per_row + 24, 60)
        if algorithm == "products":  # transposed rows, and the previous centres
            centres += self.n * self.width * (2 * self.itemsize + 6) + 16 * self.d
        return int(self.n * per_row + centres + self.reading)

    @property
    def code_bytes(self) -> int:
        """8-bit codes of dense rows, which are kept if memory allows (filter/dense_codes.hpp)."""
        if self.sparse or self.reading or METRICS[self.metric].l1:
            return 0
        return _core.code_bytes(self.itemsize == 4, self.compared, self.k, self.d, self.passes)

    def bytes_of_batches(self, batch_size: int, sample: int) -> int:
        """Memory beside the data for gradient steps; `sample`: rows for initial centres."""
        # Drawing the sample takes most: 16 for row numbers and their order, 19 by measurement.
        # Directions also take lengths, and weights of the rows that have a direction.
        per_row = 36 if METRICS[self.metric].directed else 20
        row = self.width * (self.itemsize + 8 * self.sparse)
        some = (min(sample, self.n) + 2 * min(batch_size, self.n)) * row
        return int(self.n * per_row + some + self._centre_bytes() + self.reading)

    def _centre_bytes(self) -> float:
        dense = self.k * self.d
        metric = METRICS[self.metric]
        if not self.sparse or not metric.summed:
            # Master, new centres and one packed layout in the compute dtype. In float64: sums, or
            # for geodesic means places and tangents. Medians and geodesic means are arrays for
            # sparse rows, too, whose distances take a CSR copy of the centres.
            doubles = 8 if metric.summed else 16 if metric.directed else 0
            copy = 8 + self.itemsize if self.sparse else 0
            return dense * (3 * self.itemsize + doubles + copy)
        # No centre has a feature that none of its rows has. Master, sums and lists take some 60
        # bytes per nonzero, panels at most as much again; each thread has a vector of sums.
        held = min(dense, self.n * self.width)
        return 120 * held + 24 * self.d

    # Costs are in multiply-adds of a plain Lloyd pass.

    @property
    def quantized_filter(self) -> bool:
        """Whether the 8-bit filter decides most rows of a plain pass (filter/filter_probe.hpp)."""
        return self.sparse and self.k >= _COST.filter_centres and not METRICS[self.metric].l1

    def plain_cost(self, *, filtered: bool = True) -> float:
        """A pass of Lloyd; `filtered`: the centres are dense enough for the 8-bit filter."""
        if self.sparse:
            width = (
                _COST.filtered_share * self.width
                if self.quantized_filter and filtered
                else self.width
            )
            return self.compared * self.k * (width + _COST.csr_score_cost)
        # Includes packing the values of a row before they are multiplied.
        per_row = _COST.plain_row_feature * self.width + _COST.plain_row
        return self.compared * (self.k * (self.width + _COST.dense_score) + per_row)

    def cost(self, algorithm: str, stats: AssignStats) -> float:
        """A pass with these statistics."""
        if algorithm == "kdtree":
            return stats.distances * (self.width + _COST.kdtree_distance)
        if algorithm == "moving":
            return self.plain_cost() * stats.distances / (self.compared * self.k)
        # Scores of one group reuse each loaded value less than scores of all centres do. A row that
        # bounds do not decide also costs bound updates, list entries and one or two cache misses.
        if self.sparse:
            per_row = _COST.csr_bounds_row_bytes / self.itemsize
            any_row = _COST.csr_bounds_any_row
        elif algorithm == "hamerly":  # computes distances to own centres one by one
            per_row = _COST.hamerly_row_feature * self.width + _COST.hamerly_row
            any_row = _COST.hamerly_any_row
        else:
            per_row = _COST.groups_row_feature * self.width + _COST.groups_row
            per_row += _COST.groups_row_centre * self.k
            any_row = _COST.groups_any_row
        if algorithm == "pca":  # at most the projections of all centres
            per_row += PROJECTED_SCORE_COST * self.k
        return (
            stats.distances * self._per_distance(algorithm)
            + (self.n - stats.skipped) * per_row
            + any_row * self.compared
        )

    def _per_distance(self, algorithm: str) -> float:
        if self.sparse:
            return _COST.csr_bounds_distance_nonzero * self.width
        per = _COST.hamerly_distance if algorithm == "hamerly" else _COST.groups_distance
        return _COST.bounds_distance_feature * self.width + per

    def first_cost(self, algorithm: str, distances: float) -> float:
        """The first pass with bounds: computes distances and allocates bounds."""
        if self.sparse:
            per_row = _COST.csr_bounds_row_bytes / self.itemsize
        else:
            per_row = _COST.first_row_feature * self.width + _COST.first_row
        return distances * self._per_distance(algorithm) + self.compared * per_row

    def tree_pays(self) -> bool:
        """Whether the expected passes win back the cost of building a kd-tree."""
        leaves = max(_COST.kdtree_least_leaves, self.compared / _COST.kdtree_leaf_rows)
        levels = math.ceil(math.log2(leaves))
        saving = _COST.kdtree_saving * 0.5 ** (self.d - 1)  # of a plain pass
        saved = saving * self.plain_cost() * self.passes
        return saved >= _COST.kdtree_build_row_level * levels * self.compared

    def filtered_first_cost(self) -> float:
        """The first pass with bounds from the 8-bit filter for dense rows; infinite without it."""
        share = _core.filtered_bounds_cost(self.itemsize == 4, self.d, self.k)
        if share == 1:
            return math.inf
        per_row = _COST.first_row_feature * self.width + _COST.first_row
        per_row += _COST.filtered_first_centre * self.k
        return share * self.plain_cost() + self.compared * per_row

    def probe_cost(self) -> float:
        """The probe for pca: principal directions, and labels of PCA_PROBE_ROWS rows."""
        return self.d * (_COST.pca_probe_feature + _COST.pca_probe_feature_centre * self.k)

    @property
    def inter_centre_distances(self) -> bool:
        """Whether inter-centre distances predict how many centres a row must be compared with."""
        enough = _COST.rows_per_centre_for_distances * self.k <= self.compared
        known = not self.sparse and self.metric == "euclidean" and enough
        return known and not self.reading

    def products_cost(self, changed: int) -> float:
        """A pass that updates stored products for `changed` rows (assign/sparse/products.hpp)."""
        lists = self.k * self.d * self.itemsize > _COST.cached_layout_bytes
        update = _COST.product_update_cost_postings if lists else _COST.product_update_cost
        step = update / self.itemsize
        return 2 * changed * self.overlap * step + self.n * (2 * self.k + 40)
