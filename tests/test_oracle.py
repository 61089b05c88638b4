"""The judge is judged first: hand-made cases, brute force in Fractions, and scikit-learn."""

from __future__ import annotations

import math
import sys
from fractions import Fraction
from importlib import import_module
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

import datasets
import oracle
import parity

EASY = ["iris", "wine", "blobs_flat", "blobs_overlapping", "blobs_many", "blobs_wide", "one_column"]
SPARSE = ["sparse_random", "sparse_counts"]


def dense(X: Any) -> NDArray[Any]:
    return np.asarray(X.toarray() if oracle.is_sparse(X) else X)


def first_rows(X: Any, k: int, seed: int = 0) -> NDArray[Any]:
    picks = np.random.default_rng(seed).choice(X.shape[0], k, replace=False)
    return dense(X[picks])


def brute(X: NDArray[Any], centres: NDArray[Any]) -> list[int]:
    def d2(x: NDArray[Any], c: NDArray[Any]) -> Fraction:
        pairs = zip(x.tolist(), c.tolist(), strict=True)
        return sum(((Fraction(a) - Fraction(b)) ** 2 for a, b in pairs), Fraction(0))

    return [min(range(len(centres)), key=lambda j, x=x: d2(x, centres[j])) for x in X]  # type: ignore[misc]


# nearest ------------------------------------------------------------------------------------------


def test_nearest_breaks_ties_to_the_lowest_index() -> None:
    X = np.array([[0.0], [1.0], [2.0]])
    assert oracle.nearest(X, [[2.0], [0.0]]).tolist() == [1, 0, 0]
    assert oracle.nearest(X, [[0.0], [2.0], [0.0]]).tolist() == [0, 0, 1]


def test_nearest_sees_below_rounding() -> None:
    """The two squared distances round to the same float64, yet one centre is nearer."""
    X = np.array([[1.0, 2.0**-40]])
    centres = np.array([[0.0, 0.0], [2.0, 2.0**-80]])
    a, b = (np.square(X[0] - c).sum() for c in centres)
    assert a == b
    assert oracle.nearest(X, centres).tolist() == [1]
    assert oracle.nearest(sp.csr_matrix(X), centres).tolist() == [1]


extreme = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-3, 3).map(float)


@settings(deadline=None)
@given(arrays(np.float64, (5, 2), elements=extreme), arrays(np.float64, (4, 2), elements=extreme))
def test_nearest_is_brute_force_at_any_magnitude(X: NDArray[Any], C: NDArray[Any]) -> None:
    assert oracle.nearest(X, C).tolist() == brute(X, C)
    assert oracle.nearest(sp.csr_matrix(X), C).tolist() == brute(X, C)


@pytest.mark.parametrize("name", ["lattice", "duplicates", "sparse_counts", "sparse_unit"])
def test_nearest_is_brute_force_on_ties(name: str) -> None:
    data = datasets.load(name)
    centres = first_rows(data.X, data.k)
    part = data.X[:60]
    assert oracle.nearest(part, centres).tolist() == brute(dense(part), centres)


@pytest.mark.parametrize("power", [-900, -600, 600, 900])
def test_a_power_of_two_changes_nothing(power: int) -> None:
    X = datasets.load("blobs_overlapping").X
    init = first_rows(X, 5)
    here, there = oracle.lloyd(X, init), oracle.lloyd(np.ldexp(X, power), np.ldexp(init, power))
    assert np.array_equal(here.labels, there.labels)
    assert here.n_iter == there.n_iter
    assert np.array_equal(np.ldexp(here.centres, power), there.centres)


# near_ties ----------------------------------------------------------------------------------------


def test_an_exact_tie_is_accepted_either_way() -> None:
    X = np.array([[0.0, 0.0], [1.0, 5.0], [2.0, 0.0]])
    centres = np.array([[0.0, 0.0], [2.0, 0.0]])
    assert oracle.near_ties(X, centres, [0, 0, 1]) == (3, [])
    assert oracle.near_ties(X, centres, [0, 1, 1]) == (2, [1])


def test_a_wrong_label_is_rejected_and_its_row_named() -> None:
    X = np.array([[0.0], [0.9], [2.0]])
    with pytest.raises(AssertionError, match="row 1: label 1"):
        oracle.near_ties(X, [[0.0], [2.0]], [0, 1, 1])
    with pytest.raises(AssertionError, match="row 1: label 1"):
        oracle.assert_labels_valid(sp.csr_matrix(X), [[0.0], [2.0]], [0, 1, 1])


@pytest.mark.parametrize(("dtype", "bits"), [("float32", 23), ("float64", 52)])
def test_the_slack_ends_where_the_formula_says(dtype: str, bits: int) -> None:
    """A lead of a few units in the last place is a tie, one of a thousand is not."""
    X = np.array([[1.0], [-1.0]], dtype=dtype)
    for lead, tie in [(2, True), (1000, False)]:
        centres = np.array([[0.0], [2.0 - lead * 2.0**-bits]], dtype=dtype)
        assert oracle.nearest(X, centres).tolist() == [1, 0]
        if tie:
            assert oracle.near_ties(X, centres, [0, 0]) == (1, [0])
        else:
            with pytest.raises(AssertionError, match="row 0"):
                oracle.near_ties(X, centres, [0, 0])


def test_slack_factor_zero_allows_exact_ties_only() -> None:
    X, centres = np.array([[1.0], [-1.0]]), np.array([[0.0], [2.0 - 2.0**-52]])
    with pytest.raises(AssertionError, match="row 0"):
        oracle.near_ties(X, centres, [0, 0], slack_factor=0.0)


def test_shifted_data_gets_slack_for_its_spread_not_for_its_offset() -> None:
    """Around 1e6 a lead of 1e-8 in squared distance drowns unshifted, but the library shifts."""
    X = np.array([[1e6], [1e6 + 1.0], [1e6 + 2.0]])
    centres = np.array([[1e6], [1e6 + 2.0 - 2.0**-28]])
    assert oracle.nearest(X, centres).tolist() == [0, 1, 1]
    with pytest.raises(AssertionError, match="row 1"):
        oracle.near_ties(X, centres, [0, 0, 1])
    assert oracle.near_ties(X, centres, [0, 0, 1], shifted=False) == (2, [1])


def test_drift_of_the_centres_widens_the_slack() -> None:
    X, centres = np.array([[1.0], [-1.0]]), np.array([[0.0], [2.0 - 1e-6]])
    with pytest.raises(AssertionError, match="row 0"):
        oracle.near_ties(X, centres, [0, 0], drift=np.full(2, 1e-8))
    assert oracle.near_ties(X, centres, [0, 0], drift=np.full(2, 1e-6)) == (1, [0])


def test_labels_of_the_wrong_shape_or_range_are_rejected() -> None:
    X, centres = np.zeros((3, 1)), np.array([[0.0], [1.0]])
    for bad in ([0, 0], [0, 0, 2], [0, -1, 0], [0.0, 0.0, 0.0]):
        with pytest.raises(AssertionError):
            oracle.assert_labels_valid(X, centres, bad)


def contract_labels(X: NDArray[Any], centres: NDArray[Any], dtype: str) -> list[int]:
    """The contract's score, one correctly rounded fused multiply-add per feature."""

    def score(x: NDArray[Any], c: NDArray[Any]) -> float:
        norm2 = sum((Fraction(v) ** 2 for v in c.tolist()), Fraction(0))
        total = oracle.round_to(norm2 / 2, dtype)
        for a, b in zip(x.tolist(), c.tolist(), strict=True):
            total = oracle.round_to(Fraction(total) - Fraction(a) * Fraction(b), dtype)
        return total

    return [int(np.argmin([score(x, c) for c in centres])) for x in X]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shifted", [False, True])
def test_the_contract_arithmetic_always_passes(dtype: str, shifted: bool) -> None:
    """Rows on the bisector of two centres: most computed labels are wrong, none beyond slack."""
    rng = np.random.default_rng(3)
    centres = (rng.normal(size=(2, 6)) + (50 if shifted else 0)).astype(dtype)
    along = rng.normal(size=(60, 6)) * 3
    normal = (centres[1] - centres[0]) / np.linalg.norm(centres[1] - centres[0])
    X = (centres.mean(axis=0) + along - np.outer(along @ normal, normal)).astype(dtype)
    mu = X.mean(axis=0, dtype=np.float64).astype(dtype) if shifted else np.zeros(6, dtype)
    labels = contract_labels(X - mu, centres - mu, dtype)
    n_exact, ties = oracle.near_ties(X, centres, labels)
    assert n_exact + len(ties) == 60
    assert ties, "the case is meant to be hard"


# sums and means -----------------------------------------------------------------------------------


def test_sums_lose_nothing() -> None:
    X = np.array([[1e300, 1.0], [1e-300, 2.0], [-1e300, 0.0], [5.0, 5e-324]])
    sums, weights = oracle.exact_sums(X, [0, 0, 0, 1], 3)
    assert sums[0] == [Fraction(1e-300), 3]
    assert sums[1] == [5, Fraction(5e-324)]
    assert sums[2] == [0, 0]
    assert weights == [3, 1, 0]
    assert oracle.exact_sums(sp.csr_matrix(X), [0, 0, 0, 1], 3) == (sums, weights)


def test_a_weighted_value_is_rounded_once() -> None:
    sums, weights = oracle.exact_sums(np.array([[0.1], [0.3]]), [0, 0], 1, [0.1, 0.7])
    assert sums == [[Fraction(0.1 * 0.1) + Fraction(0.3 * 0.7)]]
    assert sums != [[Fraction(0.1) * Fraction(0.1) + Fraction(0.3) * Fraction(0.7)]]
    assert weights == [Fraction(0.1) + Fraction(0.7)]


def test_mean_is_rounded_once() -> None:
    third = oracle.mean([[Fraction(1)]], [Fraction(3)], np.float64)
    assert third.tolist() == [[1 / 3]]
    assert oracle.mean([[Fraction(1)]], [Fraction(3)], "float32").dtype == np.float32


def test_an_empty_cluster_takes_the_place_of_the_heaviest() -> None:
    sums = [[Fraction(0)], [Fraction(6)], [Fraction(10)]]
    weights = [Fraction(0), Fraction(2), Fraction(2)]
    assert oracle.mean(sums, weights, np.float64).tolist() == [[3.0], [3.0], [5.0]]


def test_float32_rounding_is_not_done_twice() -> None:
    above_half = 1 + Fraction(1, 2**24) + Fraction(1, 2**60)
    assert np.float32(float(above_half)) == 1.0  # what rounding to float64 first would give
    assert oracle.round_to(above_half, np.float32) == 1 + 2.0**-23
    assert oracle.round_to(-above_half, np.float32) == -1 - 2.0**-23


def test_float32_rounding_at_the_ends_of_the_range() -> None:
    least = Fraction(1, 2**149)
    assert oracle.round_to(least / 2, np.float32) == 0
    assert oracle.round_to(least * 51 / 100, np.float32) == 2.0**-149
    assert oracle.round_to(least * 3 / 2, np.float32) == 2.0**-148
    assert oracle.round_to(Fraction(2) ** 128 - 1, np.float32) == math.inf
    assert oracle.round_to(-(Fraction(2) ** 9999), np.float32) == -math.inf
    top = Fraction(2) ** 128 - Fraction(2) ** 104
    assert oracle.round_to(top, np.float32) == float(np.finfo(np.float32).max)


@settings(deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False, min_value=-3e38, max_value=3e38))
def test_float32_rounding_is_numpys_on_float64_values(value: float) -> None:
    assert oracle.round_to(Fraction(value), np.float32) == float(np.float32(value))


@settings(deadline=None)
@given(st.fractions(-(2**20), 2**20), st.integers(-170, 100))
def test_no_float32_neighbour_is_closer(q: Fraction, power: int) -> None:
    q *= Fraction(2) ** power
    value = np.float32(oracle.round_to(q, np.float32))
    assert float(value) == oracle.round_to(q, np.float32)
    for towards in (np.float32(-np.inf), np.float32(np.inf)):
        neighbour = float(np.nextafter(value, towards))
        assert abs(q - Fraction(float(value))) <= abs(q - Fraction(neighbour))


# empty clusters -----------------------------------------------------------------------------------


def repaired(X: Any, centres: Any, labels: Any, w: Any = None) -> list[tuple[int, int]]:
    sums, weights = oracle.exact_sums(X, labels, len(centres), w)
    return oracle.repair(X, centres, labels, sums, weights, w)


def test_repair_takes_the_farthest_rows_in_order() -> None:
    X = np.array([[0.0], [1.0], [4.0], [-4.0], [2.0]])
    centres = np.array([[9.0], [0.0], [9.0]])
    assert repaired(X, centres, [1] * 5) == [(2, 0), (3, 2)]  # a tie: the lower row first
    sums, weights = oracle.exact_sums(X, [1] * 5, 3)
    oracle.repair(X, centres, [1] * 5, sums, weights)
    assert sums == [[4], [3], [-4]]
    assert weights == [1, 3, 1]


def test_repair_decides_equal_looking_distances_exactly() -> None:
    X = np.array([[1.0, 0.0], [1.0, 2.0**-40], [0.0, 0.0]])
    centres = np.array([[0.0, 0.0], [9.0, 9.0]])
    assert repaired(X, centres, [0, 0, 0]) == [(1, 1)]


def test_repair_skips_the_last_row_of_a_cluster() -> None:
    X, centres = np.array([[0.0], [1.0], [50.0]]), np.array([[0.0], [10.0], [99.0]])
    assert repaired(X, centres, [0, 0, 1]) == [(1, 2)]


def test_repair_skips_copies_and_rows_of_no_weight() -> None:
    X = np.array([[0.0], [7.0], [7.0], [9.0], [3.0], [-0.0]])
    centres = np.array([[0.0], [50.0], [60.0]])
    w = [1.0, 1.0, 1.0, 0.0, 1.0, 1.0]
    assert repaired(X, centres, [0] * 6, w) == [(1, 1), (4, 2)]


def test_repair_leaves_rows_that_sit_on_their_centres() -> None:
    X, centres = np.array([[1.0], [1.0], [2.0]]), np.array([[1.0], [2.0], [2.0]])
    assert repaired(X, centres, [0, 0, 1]) == []
    assert oracle.update(X, centres, [0, 0, 1]).tolist() == [[1.0], [2.0], [1.0]]


# inertia and Lloyd --------------------------------------------------------------------------------


def test_inertia_by_hand() -> None:
    X, centres = np.array([[0.0, 3.0], [4.0, 0.0], [1.0, 1.0]]), np.array([[0.0, 0.0], [1.0, 1.0]])
    for rows in (X, sp.csr_matrix(X)):
        assert oracle.inertia(rows, centres, [0, 0, 1]) == 25.0
        assert oracle.inertia(rows, centres, [0, 0, 1], [2.0, 0.5, 9.0]) == 26.0
    assert oracle.inertia(X * 1e200, centres, [0, 0, 1]) == math.inf


def test_lloyd_by_hand() -> None:
    X = np.array([[0.0], [1.0], [10.0], [11.0]])
    result = oracle.lloyd(X, [[0.0], [1.0]], tol=0.0)
    # {0},{1,10,11} -> 0, 22/3; {0,1},{10,11} -> .5, 10.5; the same labels again: three iterations
    assert [h.tolist() for h in result.history] == [[0, 1, 1, 1], [0, 0, 1, 1], [0, 0, 1, 1]]
    assert result.centres.tolist() == [[0.5], [10.5]]
    assert (result.n_iter, result.inertia) == (3, 1.0)
    assert oracle.lloyd(X, [[0.0], [1.0]], max_iter=1).labels.tolist() == [0, 0, 1, 1]
    assert oracle.lloyd(X, [[0.0], [1.0]], tol=1e3).n_iter == 1


@pytest.mark.parametrize("options", [{}, {"tol": 0.0}, {"max_iter": 2}, {"tol": 0.05}])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", EASY + SPARSE)
def test_lloyd_is_scikit_learns(name: str, weighted: bool, options: dict[str, Any]) -> None:
    data = datasets.load(name)
    init = first_rows(data.X, data.k, seed=1)  # a start without rounding ties
    w = np.random.default_rng(1).uniform(0.5, 2, data.X.shape[0]) if weighted else None
    model = import_module("sklearn.cluster").KMeans(data.k, init=init, n_init=1, **options)
    model.fit(data.X, sample_weight=w)
    mine = oracle.lloyd(data.X, init, sample_weight=w, **options)
    assert np.array_equal(mine.labels, model.labels_)
    assert mine.n_iter == model.n_iter_
    assert mine.inertia == pytest.approx(model.inertia_, rel=1e-12)
    assert mine.centres == pytest.approx(model.cluster_centers_, rel=1e-9, abs=1e-12)


def test_lloyd_repairs_an_empty_cluster_as_scikit_learn_does() -> None:
    X = datasets.load("blobs_flat").X
    init = np.vstack([first_rows(X, 4), [[1e3, 1e3]]])
    model = import_module("sklearn.cluster").KMeans(5, init=init, n_init=1).fit(X)
    mine = oracle.lloyd(X, init)
    assert 4 not in mine.history[0]
    assert np.array_equal(mine.labels, model.labels_)
    assert mine.n_iter == model.n_iter_


@pytest.mark.parametrize("name", datasets.names(real=False))
def test_lloyd_never_raises_the_objective(name: str) -> None:
    data = datasets.load(name)
    scale = 2.0 ** -oracle._exponent(oracle._values(data.X))  # keeps squares in range
    X = data.X * scale
    init = first_rows(X, data.k)
    runs = [oracle.lloyd(X, init, max_iter=t, tol=0.0) for t in (1, 2, 3, 5, 300)]
    values = [run.inertia for run in runs]
    assert all(b <= a * (1 + 1e-12) for a, b in pairwise(values))
    oracle.assert_labels_valid(X, runs[-1].centres, runs[-1].labels)


def test_the_zeros_of_sparse_columns_count_in_the_variance() -> None:
    X = datasets.load("sparse_random").X
    assert oracle._mean_variance(X) == pytest.approx(float(dense(X).var(axis=0).mean()), rel=1e-12)


def test_float32_rows_give_float32_centres() -> None:
    X = datasets.load("iris").astype("float32")
    result = oracle.lloyd(X, first_rows(X, 3))
    assert result.centres.dtype == np.float32
    sums, weights = oracle.exact_sums(X, result.history[-1], 3)
    assert np.array_equal(result.centres, oracle.mean(sums, weights, np.float32))


# data and parity ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", datasets.names())
def test_data_are_what_their_names_say(name: str) -> None:
    data = datasets.load(name)
    assert data.X.dtype == np.float64
    assert data.is_sparse == (name in datasets.SPARSE)
    assert np.isfinite(data.X.data if data.is_sparse else data.X).all()
    assert data.X.shape[0] >= data.k


class StandIn:
    """The oracle behind the library's interface, to try the parity helper without the library."""

    late = False  # a mistake to be found: miscounts iterations
    greedy = False  # another: the last row always goes to cluster 0

    def __init__(self, **options: Any) -> None:
        self.options = options

    def fit(self, X: Any, sample_weight: Any = None) -> StandIn:
        take = {name: self.options[name] for name in ("max_iter", "tol") if name in self.options}
        init = self.options["init"]
        if isinstance(init, str):
            seed = self.options["random_state"]
            init = stand_in_seeds(X, self.options["n_clusters"], random_state=seed)[0]
        run = oracle.lloyd(X, init, sample_weight=sample_weight, **take)
        self.labels_, self.cluster_centers_ = run.labels.copy(), run.centres
        self.n_iter_, self.inertia_ = run.n_iter + self.late, run.inertia
        if self.greedy:
            self.labels_[-1] = 0
        return self

    def predict(self, X: Any) -> Any:
        return oracle.nearest(X, self.cluster_centers_)


def stand_in_seeds(
    X: Any, k: int, *, sample_weight: Any = None, random_state: int
) -> tuple[NDArray[Any], NDArray[Any]]:
    seeding = import_module("sklearn.cluster").kmeans_plusplus
    centred = X if oracle.is_sparse(X) else X - X.mean(axis=0)
    picks = seeding(centred, k, sample_weight=sample_weight, random_state=random_state)[1]
    return dense(X[picks]), picks


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> type[StandIn]:
    estimator = type("KMeans", (StandIn,), {})
    library = SimpleNamespace(KMeans=estimator, kmeans_plusplus=stand_in_seeds)
    monkeypatch.setitem(sys.modules, "exactmeans", library)
    return estimator


@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize("name", ["iris", "blobs_overlapping", "sparse_random"])
def test_parity_of_easy_data_needs_no_proof(name: str) -> None:
    data = datasets.load(name)
    row = parity.compare(data.X, data.k, range(3), name=name)
    assert (row.name, row.tried, row.equal, row.ties_proved) == (name, 3, 3, 0)
    assert parity.same_seeds(data.X, data.k, 0)[0]


@pytest.mark.usefixtures("stand_in")
def test_parity_proves_ties() -> None:
    """Integers tie exactly for us; scikit-learn shifts them first, and rounding decides."""
    data = datasets.load("duplicates")
    row = parity.compare(data.X, data.k, range(4))
    assert row.tried == row.equal + row.ties_proved == 4
    assert row.ties_proved > 0
    assert len(row.details) == row.ties_proved


@pytest.mark.usefixtures("stand_in")
def test_parity_proves_a_tie_in_iris() -> None:
    """Tenths are not exact in binary: from these rows two flowers are ties at the first step.

    How scikit-learn decides them depends on its BLAS; both must be accepted, though the labels
    after two iterations agree and only the inertia tells the runs apart.
    """
    X = datasets.load("iris").X
    row = parity.compare(X, 3, [0], init=first_rows(X, 3, seed=0), max_iter=2)
    assert row.equal + row.ties_proved == 1


@pytest.mark.usefixtures("stand_in")
def test_parity_tells_repairs_from_ties() -> None:
    X = np.array([[0.0], [1.0], [2.0], [30.0], [30.0], [40.0]])
    init, w = np.array([[0.0], [1e3], [2e3]]), np.array([1.0, 1.0, 1.0, 1.0, 1.0, 0.0])
    with pytest.raises(AssertionError, match="empty clusters"):
        parity.compare(X, 3, [0], init=init, sample_weight=w)
    row = parity.compare(X, 3, [0], init=init, sample_weight=w, allow_repair=True)
    assert (row.equal, row.ties_proved, row.repaired) == (0, 0, 1)


@pytest.mark.parametrize("mistake", ["late", "greedy"])
def test_parity_finds_mistakes(stand_in: Any, mistake: str) -> None:
    setattr(stand_in, mistake, True)
    data = datasets.load("blobs_flat")
    X = data.X[np.argsort(data.X[:, 0])]  # the last row is far from the first
    with pytest.raises(AssertionError, match="seed 0"):
        parity.compare(X, data.k, [0], init=X[[0, 100, 200, 300, 499]])
