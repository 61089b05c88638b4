"""The C++ core. Not public: names and signatures may change at any time."""

from typing import Any, ClassVar, TypedDict

import numpy as np
from numpy.typing import NDArray

Real = NDArray[np.float32] | NDArray[np.float64]
Double = NDArray[np.float64]
Labels = NDArray[np.int32]

class Traits(TypedDict):
    name: str
    summary: str
    dense: bool
    csr: bool
    metrics: str

class ExactSum:
    def __init__(self) -> None: ...
    def add(self, value: float | ExactSum) -> None: ...
    @property
    def value(self) -> float: ...

class Survey:
    def __init__(self, columns: int) -> None: ...
    largest: float
    largest_weight: float
    first_bad_row: int
    bad_is_nan: bool
    bounds: Double
    def merge(self, other: Survey, row_offset: int) -> None: ...

class Grid:
    bins: int
    def __init__(self, bounds: Double, n: int) -> None: ...
    @property
    def exponent(self) -> int: ...

class SparseCentres:
    @staticmethod
    def make(data: Real, indices: NDArray[Any], indptr: NDArray[Any], d: int) -> SparseCentres: ...

Csr = tuple[Real, NDArray[np.int32], NDArray[np.int64]]
Exported = tuple[
    NDArray[np.int64], NDArray[np.int64], NDArray[np.int32], Double, Double, NDArray[np.int64]
]

class Rows:
    @staticmethod
    def dense(x: Real, weights: Double | None) -> Rows: ...
    @staticmethod
    def csr(
        data: Real, indices: NDArray[Any], indptr: NDArray[Any], d: int, weights: Double | None
    ) -> tuple[Rows, bool]: ...
    @property
    def n(self) -> int: ...
    @property
    def d(self) -> int: ...
    def with_metric(self, metric: str, weights: Double | None, norms: Double | None) -> Rows: ...
    def duplicates(self, n_jobs: int) -> DuplicateRows | None: ...
    def lengths(self, out: Double, n_jobs: int) -> None: ...
    def survey(self, n_jobs: int) -> Survey: ...
    def count_features(self, counts: NDArray[np.int64]) -> None: ...
    def bins_needed(self, grid: Grid, n_jobs: int) -> int: ...
    def scatter(
        self, centres: Real | SparseCentres, labels: Labels | None, exponent: int, n_jobs: int
    ) -> tuple[ExactSum, ExactSum]: ...
    def own_distances(
        self,
        centres: Real | SparseCentres,
        labels: Labels,
        exponent: int,
        out: Double,
        n_jobs: int,
    ) -> None: ...
    def transform(
        self,
        centres: Real | SparseCentres,
        shift: Real | None,
        exponent: int,
        out: Real,
        n_jobs: int,
    ) -> None: ...
    def add_distances(
        self,
        members: Real | SparseCentres,
        labels: Labels,
        shift: Real | None,
        exponent: int,
        out: Double,
        n_jobs: int,
    ) -> None: ...
    def nearest(
        self,
        centroids: Centroids,
        centres: Real | SparseCentres,
        exponent: int,
        labels: Labels,
        distances: Real,
        n_jobs: int,
    ) -> None: ...

class Sums:
    def __init__(
        self, k: int, d: int, grid: Grid, weight_grid: Grid, sparse: bool = False
    ) -> None: ...
    def reset(self) -> None: ...
    def relabel(self, rows: Rows, labels: Labels | None, summed: Labels, n_jobs: int) -> None: ...
    def move(self, rows: Rows, i: int, cluster: int, add: bool) -> None: ...
    def add(self, other: Sums) -> None: ...
    def export(self) -> Exported: ...
    @property
    def blank(self) -> tuple[int, int, Grid, Grid, bool]: ...
    def absorb(self, exported: Exported) -> None: ...
    def average(self, centres: Real) -> None: ...
    def sparse_average(self, single: bool) -> Csr: ...
    @property
    def members(self) -> NDArray[np.int64]: ...
    @property
    def any_empty(self) -> bool: ...
    @property
    def weights(self) -> Double: ...
    @property
    def bins(self) -> Double: ...

class Movement:
    moved: int
    shift2: float
    distance: Double

class Centroids:
    @staticmethod
    def make(
        centres: Real | SparseCentres,
        shift: Real | None,
        exponent: int,
        packed_columns: NDArray[np.uint32] | None,
        n_jobs: int,
        metric: str = "euclidean",
        packing: int = 0,
    ) -> Centroids: ...
    def move(self, centres: Real | SparseCentres, n_jobs: int) -> Movement: ...
    def set_rare_below(self, centres: int) -> None: ...
    def set_scratch_limit(self, bytes: int) -> None: ...
    def has_posting_lists(self) -> bool: ...
    def fits_filter(self) -> bool: ...
    def set_norms(self, norms2: Double, terms: int) -> None: ...
    @property
    def centres(self) -> Real | Csr: ...
    @property
    def given_norms2(self) -> tuple[Double, int] | None: ...

class CentreUpdate:
    def __init__(self, single: bool, k: int, origin: Double) -> None: ...
    def observe(self, sums: Sums, centroids: Centroids) -> None: ...
    def run(self, sums: Sums, centroids: Centroids, n_jobs: int) -> Movement: ...
    @property
    def explained(self) -> float: ...

class DuplicateRows:
    @property
    def rows(self) -> Rows: ...
    @property
    def first(self) -> NDArray[np.int32]: ...
    def copy_labels(self, first_labels: Labels, labels: Labels, n_jobs: int) -> int: ...

class Assigner:
    def __init__(self, name: str, single: bool, n: int, k: int) -> None: ...
    def assign(
        self, rows: Rows, centroids: Centroids, labels: Labels, n_jobs: int
    ) -> tuple[int, int, int, int, int, int]: ...
    @property
    def rows_without_score(self) -> int: ...
    def labels_certain(self, centroids: Centroids, labels: Labels, n_jobs: int) -> bool: ...
    def use(self, name: str) -> None: ...
    def set_store_codes(self, may: bool) -> None: ...
    def moved(self, movement: Movement) -> None: ...

class SeedPoints:
    def __init__(self, d: int, exponent: int, sparse: bool, directed: bool) -> None: ...
    @property
    def seeds(self) -> int: ...
    def unstage(self) -> None: ...
    def stage(self, rows: Rows, ids: list[int]) -> None: ...
    def stage_point(self, values: Double) -> None: ...
    def accept(self, candidate: int) -> None: ...
    def retract(self, seeds: int) -> None: ...

class SeedBlock:
    @staticmethod
    def make(rows: Rows, alpha: float, exponent: int, n_jobs: int) -> SeedBlock: ...
    @staticmethod
    def streamed(rows: Rows, alpha: float, exponent: int, n_jobs: int) -> SeedBlock: ...
    def attach(self, rows: Rows) -> None: ...
    def detach(self) -> None: ...
    def can_accept_detached(self, candidate: int) -> bool: ...
    def project(
        self, origin: Double, axes: Double, range: float, exponent: int, n_jobs: int
    ) -> None: ...
    def largest(self) -> float: ...
    def farthest(self) -> tuple[int, float]: ...
    def sample_bernoulli(self, key: int, first_row: int, factor: float) -> list[int]: ...
    def set_unit2(self, unit2: float) -> None: ...
    def lay_grid(self, bound: float, n: int, n_jobs: int) -> tuple[float, float]: ...
    @property
    def total(self) -> tuple[float, float]: ...
    def find(self, before: tuple[float, float], targets: list[float]) -> list[int]: ...
    def potentials(self, points: SeedPoints, n_jobs: int) -> list[tuple[float, float]]: ...
    def greedy(
        self, points: SeedPoints, rows: Rows, shares: Double, enough: float, n_jobs: int
    ) -> list[int]: ...
    def accept(self, points: SeedPoints, candidate: int, n_jobs: int) -> None: ...
    def add(self, points: SeedPoints, n_jobs: int) -> None: ...
    @property
    def distances(self) -> int: ...
    def sampling_weight(self, i: int) -> float: ...
    def refresh(self, points: SeedPoints, i: int) -> float: ...
    @property
    def nearest_seed(self) -> Labels: ...
    @property
    def d2(self) -> Double: ...

def row_at(place: float, n: int, weights: Double | None, total: float) -> int: ...
def move_to_medians(rows: Rows, labels: Labels, centres: Real, n_jobs: int) -> None: ...
def move_to_karcher(
    rows: Rows, labels: Labels, centres: Real, most_steps: int, tolerance: float, n_jobs: int
) -> float: ...
def bisect_rows(
    rows: Rows,
    ids: NDArray[np.int64],
    centroids: Centroids,
    sums: Sums,
    origin: Double,
    tolerance: float,
    max_iter: int,
    labels: Labels,
    n_jobs: int,
) -> tuple[int, float, float] | None: ...
def split_nodes(
    rows: Rows,
    ids: NDArray[np.int64],
    offsets: NDArray[np.int64],
    k: NDArray[np.int64],
    seeds: NDArray[np.uint32],
    seed_rows: NDArray[np.int64] | None,
    labels: Labels,
    seeding: str,
    max_iter: int,
    tol: float,
    relative: bool,
    balanced: bool,
    n_jobs: int,
) -> tuple[
    NDArray[np.int64],
    Any,
    Double,
    Double,
    NDArray[np.int64],
    NDArray[np.uint8],
    NDArray[np.int64],
    NDArray[np.int64],
    Real,
]: ...
def route_rows(
    rows: Rows,
    centres: Any,
    ids: NDArray[np.int64],
    offsets: NDArray[np.int64],
    first: NDArray[np.int64],
    past: NDArray[np.int64],
    exponents: NDArray[np.int32],
    shift_of: NDArray[np.int64],
    shifts: Real | None,
    prices: Double | None,
    m: int,
    distances: bool,
    n_jobs: int,
) -> tuple[NDArray[np.int32], Double | None]: ...
def normalise(values: Real, offsets: NDArray[np.int64]) -> None: ...
def leading_directions(rows: Double, count: int) -> Double: ...

class _CostModel:
    filter_centres: int
    large_node_rows: int
    cached_layout_bytes: float
    rows_per_centre_for_distances: int
    short_pass: float
    read_byte_cost: float
    projected_score_cost: float
    kdtree_max_features: int
    products_bytes: float
    pca_min_features: int
    pca_probe_rows: int
    pca_max_share: float
    filter_probe_rows: int
    inter_centre_probe_rows: int
    changed_share_for_bounds_csr: float
    changed_share_for_bounds_dense: float
    cheap_first_pass: float
    average_loss: float
    expected_saving: float
    max_loss: float
    pca_first_pass: float
    pca_probe_share: float
    filtered_share: float
    csr_score_cost: float
    product_update_cost: float
    product_update_cost_postings: float
    dense_score: float
    plain_row: float
    plain_row_feature: float
    hamerly_row: float
    hamerly_row_feature: float
    hamerly_any_row: float
    hamerly_distance: float
    groups_row: float
    groups_row_feature: float
    groups_row_centre: float
    filtered_first_centre: float
    first_distances: float
    groups_any_row: float
    groups_distance: float
    bounds_distance_feature: float
    first_row: float
    first_row_feature: float
    kdtree_distance: float
    kdtree_build_row_level: float
    kdtree_saving: float
    kdtree_leaf_rows: int
    kdtree_least_leaves: int
    expected_passes: int
    moving_least_passes: int
    csr_bounds_row_bytes: float
    csr_bounds_any_row: float
    csr_bounds_distance_nonzero: float
    pca_probe_feature: float
    pca_probe_feature_centre: float
    products_share: float
    kdtree_min_rows: int
    kdtree_min_centres: int
    pca_min_centres: int
    bounds_min_centres: int
    bounds_min_terms: int
    retry_bounds: int

cost_model: _CostModel
max_jobs: int
minimum_mean_length: float
least_scatter_share: float
regrid_fall: float

def algorithms() -> list[Traits]: ...
def filtered_cost(rows: Rows, n: int, centroids: Centroids, n_jobs: int) -> float: ...
def filtered_bounds_cost(single: bool, d: int, k: int) -> float: ...
def code_bytes(single: bool, n: int, k: int, d: int, passes: int) -> int: ...
def bytes_per_row(algorithm: str, single: bool, dense: bool, k: int, d: int) -> int: ...
def safe_exponent(largest: float, single: bool) -> int: ...
def checksum(bytes: NDArray[np.uint8], n_jobs: int) -> int: ...
def usable_cores() -> int: ...
def usable_isas() -> list[str]: ...
def active_isa() -> str: ...

class LimitedAssignment:
    most_options: ClassVar[int]
    option_bytes: ClassVar[int]
    def __init__(
        self,
        n: int,
        total: int,
        k: int,
        least: int,
        most: int,
        weighted: bool,
        mass_scale: float,
        most_options: int,
    ) -> None: ...
    def moved(self, movement: Movement) -> None: ...
    def start(self, many: bool) -> None: ...
    def begin(self) -> None: ...
    def add(
        self,
        number: int,
        first: int,
        rows: Rows,
        centroids: Centroids,
        labels: Labels,
        n_jobs: int,
    ) -> None: ...
    def solve(self) -> bool: ...
    def write(self, number: int, labels: Labels) -> None: ...
    def set_state(self, prices: Double, reach: float) -> None: ...
    @property
    def prices(self) -> Double: ...
    @property
    def reach(self) -> float: ...
    @property
    def rows_scored(self) -> int: ...

def label_by_prices(
    rows: Rows, centroids: Centroids, prices: Double, labels: Labels, n_jobs: int
) -> None: ...
def hash_rows(rows: Rows, out: NDArray[np.uint64], n_jobs: int) -> None: ...
