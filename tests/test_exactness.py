"""Every algorithm, layout, dtype and kind of weights gives what the oracle says Lloyd gives."""

from __future__ import annotations

import warnings
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import cases
import oracle
from cases import ABLE, ALGORITHMS, LAYOUTS, Case, bits
from exactmeans import KMeans, _core

pytestmark = pytest.mark.core


@cache
def reference(case: Case) -> KMeans:
    """Plain Lloyd on the plain layout, on one thread, until no label changes."""
    return case.fit(n_jobs=1)


def test_the_table_lists_every_algorithm_of_the_core() -> None:
    assert sorted(ALGORITHMS) == sorted(traits["name"] for traits in _core.algorithms())
    for family, able in ABLE.items():
        assert sorted(able) == sorted(t["name"] for t in _core.algorithms() if t[family])  # type: ignore[literal-required]


VARIANTS = cases.sampled(
    (
        (case, layout, algorithm)
        for case in cases.cases()
        for layout in LAYOUTS[case.family]
        for algorithm in ABLE[case.family]
        if (algorithm, layout) != ("lloyd", cases.PLAIN[case.family])
    ),
    one_in=4,
)


@pytest.mark.parametrize(("case", "layout", "algorithm"), VARIANTS)
def test_every_algorithm_and_layout_gives_lloyds_bits(
    case: Case, layout: str, algorithm: str
) -> None:
    model = case.fit(layout, algorithm=algorithm)
    assert model.algorithm_ == algorithm
    assert bits(model) == bits(reference(case))
    n, k = case.X.shape[0], case.k
    plain = n * k * (model.n_iter_ + 1)
    assert sum(record.distances for record in model.history_) <= model.n_distances_
    # A pruning algorithm may look at the own centre once more before it gives up on a row.
    assert n <= model.n_distances_ <= plain + n * (model.n_iter_ + 1)
    if algorithm == "lloyd":
        assert all(record.distances == n * k for record in model.history_)


@pytest.mark.parametrize("case", cases.params(cases.cases()))
def test_labels_are_nearest_centres_or_proved_ties(case: Case) -> None:
    model = reference(case)
    oracle.assert_labels_valid(case.X, model.cluster_centers_, model.labels_)
    assert np.array_equal(model.labels_, model.predict(case.X))
    distances = model.transform(case.X)
    assert distances.shape == (case.X.shape[0], case.k)
    assert distances.dtype == case.dtype
    # Distances are computed from differences, scores are not: only ties may tell them apart.
    oracle.assert_labels_valid(case.X, model.cluster_centers_, distances.argmin(axis=1))


@pytest.mark.parametrize("case", cases.params(cases.cases()))
def test_centres_are_the_correctly_rounded_means(case: Case) -> None:
    model = reference(case)
    last = model.history_[-1]
    assert last.changed == 0 or last.shift == 0, "the case is meant to converge"
    sums, weights = oracle.exact_sums(case.X, model.labels_, case.k, case.sample_weight)
    means = oracle.mean(sums, weights, case.dtype)
    filled = [j for j, weight in enumerate(weights) if weight]
    # An empty cluster borrows a row from another one, whose mean is then not that of its labels.
    if len(filled) == case.k:
        assert np.array_equal(model.cluster_centers_, means)
    assert np.isfinite(model.cluster_centers_).all()
    assert model.cluster_centers_.dtype == case.dtype


@pytest.mark.parametrize("case", cases.params(cases.cases()))
def test_inertia_is_what_one_gets_by_recomputing_it(case: Case) -> None:
    model = reference(case)
    w = case.sample_weight
    expected = oracle.inertia(case.X, model.cluster_centers_, model.labels_, w)
    zero = np.zeros((1, case.X.shape[1]))
    at = np.zeros(case.X.shape[0], dtype=np.int64)
    # What cancellation may leave of a zero, when every row sits on its centre.
    noise = 1e-15 * oracle.inertia(case.X, zero, at, w) if case.family == "csr" else 0.0
    assert model.inertia_ == pytest.approx(expected, rel=1e-12, abs=min(noise, 1.0))
    assert model.score(case.X, sample_weight=w) == -model.inertia_


@pytest.mark.parametrize("case", cases.params(cases.cases()))
def test_the_objective_never_rises(case: Case) -> None:
    model = reference(case)
    history = [record.inertia for record in model.history_]
    assert [record.iteration for record in model.history_] == list(range(1, model.n_iter_ + 1))
    if not np.isfinite(history[0]):
        assert case.data == "magnitude_1e200"
        return
    # The history subtracts from the scatter about the mean what the clusters explain, products of
    # sums (as large as the data) and centres (as large as the spread): both set the scale of its
    # rounding. Centres in float32 are off their means by a rounding too.
    spread, size = _scatter(case, about_mean=True), _scatter(case, about_mean=False)
    room = 16 * float(np.finfo(case.dtype).eps) * np.sqrt(spread * size)
    assert all(after <= before + room for before, after in pairwise([*history, model.inertia_]))


def _scatter(case: Case, *, about_mean: bool) -> float:
    X = case.X
    centre = np.zeros((1, X.shape[1]))
    if about_mean and case.family == "dense":
        centre[0] = X.mean(axis=0, dtype=np.float64)
    labels = np.zeros(X.shape[0], dtype=np.int64)
    return oracle.inertia(X, centre, labels, case.sample_weight)


OPTIONS: list[dict[str, Any]] = [{"tol": 0.0}, {"tol": 1e-4}, {"tol": 0.05}, {"max_iter": 2}]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: str(options))
@pytest.mark.parametrize("case", cases.params(cases.cases(tie_free=True)))
def test_without_ties_the_whole_run_is_the_oracles(case: Case, options: dict[str, Any]) -> None:
    model = case.fit(**options)
    run = oracle.lloyd(case.X, case.init, sample_weight=case.sample_weight, **options)
    assert np.array_equal(model.labels_, run.labels)
    assert model.n_iter_ == run.n_iter
    assert np.array_equal(model.cluster_centers_, run.centres)
    changed = [
        int(np.sum(a != b)) for a, b in pairwise([np.full_like(run.labels, -1), *run.history])
    ]
    assert [record.changed for record in model.history_] == changed


@pytest.mark.parametrize("dtype", cases.DTYPES)
@pytest.mark.parametrize("name", ["blobs_overlapping", "far_from_origin", "iris", "digits"])
def test_a_model_labels_rows_of_the_other_kind(name: str, dtype: str) -> None:
    """A model of dense rows that were shifted must not take CSR rows for shifted ones."""
    X = Case(name, "dense", dtype, "none").X
    rows = sp.csr_matrix(X)
    for kind in (X, rows):
        model = cases.fit(kind, X[:5])
        for given in (X, rows):
            oracle.assert_labels_valid(rows, model.cluster_centers_, model.predict(given))
            at_centres = model.transform(given).argmin(axis=1)
            oracle.assert_labels_valid(rows, model.cluster_centers_, at_centres)


@pytest.mark.parametrize("algorithm", ABLE["dense"])
def test_sums_beyond_float64_are_infinite_with_one_warning(algorithm: Any) -> None:
    X = Case("magnitude_1e200", "dense", "float64", "none").X
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = KMeans(5, init=X[:5], algorithm=algorithm).fit(X)
    (warning,) = caught
    assert issubclass(warning.category, RuntimeWarning)
    assert "inertia_ is infinite" in str(warning.message)
    assert warning.filename == __file__
    assert model.inertia_ == np.inf
    small = KMeans(5, init=X[:5] * 2.0**-600, algorithm=algorithm).fit(X * 2.0**-600)
    np.testing.assert_array_equal(model.labels_, small.labels_)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert model.score(X) == -np.inf
