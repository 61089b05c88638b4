"""Cosine, angular and Manhattan k-means against the slow truths of metric_oracle.py."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning

from cases import bits, dense
from exactmeans import KMeans, open_blocks
from exactmeans.engine.labels import renaming, same_clustering
from exactmeans.fit.cost_model import Workload
from exactmeans.fit.policy import ALGORITHM_NAMES, BY_MEMORY, able_algorithms
from metric_oracle import (
    DIRECTED,
    FORMS,
    OTHERS,
    best_centre,
    costs,
    some_rows,
    some_weights,
    tangent,
    unit,
)

ALGORITHMS = [
    (metric, algorithm)
    for metric in OTHERS
    for algorithm in able_algorithms(Workload(1, 1, 1, False, 8, 1.0, metric=metric))
    if algorithm != "lloyd"
]
INITS: tuple[Any, ...] = ("k-means++", "k-means||", "random", "furthest", ("d", 1.0), ("d", 3.0))


def fit(metric: Any, X: Any, k: int = 6, **options: Any) -> KMeans:
    weights = options.pop("sample_weight", None)
    options = {"random_state": 0, "tol": 0.0, **options}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Number of distinct clusters")
        return KMeans(k, metric=metric, **options).fit(X, sample_weight=weights)


# Against the truth --------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("metric", OTHERS)
@pytest.mark.parametrize("kind", ["none", "random"])
def test_a_fit_is_a_fixed_point(metric: str, form: str, kind: str) -> None:
    """Labels are nearest centres, centres best for their rows, numbers what they say they are."""
    X = some_rows(form)
    weights = some_weights(X.shape[0], kind=kind)
    model = fit(metric, X, sample_weight=weights)
    w = np.ones(X.shape[0]) if weights is None else weights
    cost = costs(metric, X, model.cluster_centers_)
    single = form.endswith("32")
    assert model.cluster_centers_.dtype == X.dtype
    assert model.history_[-1].changed == 0
    np.testing.assert_array_equal(model.labels_, cost.argmin(axis=1))
    np.testing.assert_array_equal(model.labels_, model.predict(X))
    assert model.inertia_ == pytest.approx(w @ cost.min(axis=1), rel=1e-6 if single else 1e-12)
    assert model.score(X, sample_weight=weights) == -model.inertia_
    distances = np.sqrt(cost) if metric == "angular" else cost
    np.testing.assert_allclose(
        model.transform(X), distances, rtol=1e-5, atol=1e-6 if single else 1e-7
    )
    for j, centre in enumerate(model.cluster_centers_):
        own = (model.labels_ == j) & (w > 0)
        wanted = best_centre(metric, X[own], w[own])
        if metric == "manhattan":
            np.testing.assert_array_equal(centre, wanted.astype(X.dtype))
            continue
        assert np.linalg.norm(centre.astype(np.float64)) == pytest.approx(
            1, abs=1e-7 if single else 1e-15
        )
        np.testing.assert_allclose(
            centre, wanted, atol=3e-7 if single or metric == "angular" else 1e-14
        )
        if metric == "angular":
            place = centre.astype(np.float64)
            assert tangent(place, X[own], w[own]) < (1e-6 if single else 1e-11)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("metric", OTHERS)
@pytest.mark.parametrize("init", INITS, ids=str)
def test_the_objective_never_rises(metric: str, form: str, init: Any) -> None:
    X = some_rows(form)
    model = fit(metric, X, init=init, n_init=1, sample_weight=some_weights(X.shape[0]))
    inertia = [record.inertia for record in model.history_] + [model.inertia_]
    slack = 1e-6 if form.endswith("32") else 1e-12
    for before, after in itertools.pairwise(inertia):
        assert after <= before * (1 + slack)


@pytest.mark.parametrize("metric", OTHERS)
def test_the_first_iterations_are_those_of_plain_lloyd(metric: str) -> None:
    """Assign, move: what a loop of a few lines does, except for the inner Karcher steps."""
    X, k = some_rows("dense64"), 5
    centres = X[:k].copy()
    for _ in range(3):
        labels = costs(metric, X, centres).argmin(axis=1)
        ones = np.ones(len(X))
        centres = np.array(
            [best_centre(metric, X[labels == j], ones[labels == j]) for j in range(k)]
        )
    model = fit(metric, X, k, init=X[:k], max_iter=3)
    if metric == "angular":  # two steps towards a mean are not the mean
        assert np.mean(model.predict(X) == costs(metric, X, centres).argmin(axis=1)) > 0.97
    else:
        np.testing.assert_allclose(
            model.cluster_centers_, centres if metric == "manhattan" else unit(centres), atol=1e-13
        )


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("a", "b"), [(3, 1), (1, 3), (5, 2), (1, 1)])
def test_geodesic_and_normalised_means_differ_as_computed_by_hand(
    a: int, b: int, form: str
) -> None:
    """a rows at (1, 0), b rows at (0, 1): angles b/(a+b) pi/2 and arctan(b/a)."""
    X: Any = np.array([[1.0, 0.0]] * a + [[0.0, 7.0]] * b, dtype=f"float{form[-2:]}")
    X = sp.csr_matrix(X) if form.startswith("csr") else X
    close = 1e-7 if form.endswith("32") else 1e-14
    wanted = {"angular": b / (a + b) * np.pi / 2, "cosine": np.arctan2(b, a)}
    for metric, angle in wanted.items():
        centre = fit(metric, X, 1).cluster_centers_[0]
        assert np.arctan2(*centre[::-1].astype(float)) == pytest.approx(angle, abs=close)
        weighted = fit(metric, X[[0, -1]], 1, sample_weight=[a, b]).cluster_centers_[0]
        np.testing.assert_allclose(weighted, centre, atol=close)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_medians_by_hand(dtype: str) -> None:
    """The lower of two middle values; weights count; zeros that are not stored count."""
    X = np.array([[1, -5, 0], [2, 0, 0], [4, 0, 3], [9, 7, 5]], dtype=dtype)
    for rows in (X, sp.csr_matrix(X)):
        assert fit("manhattan", rows, 1).cluster_centers_.tolist() == [[2.0, 0.0, 0.0]]
        heavy = fit("manhattan", rows, 1, sample_weight=[1.0, 1, 1, 3])
        assert heavy.cluster_centers_.tolist() == [[4.0, 0.0, 3.0]]
        none = fit("manhattan", rows, 1, sample_weight=[1.0, 1, 1, 0])
        assert none.cluster_centers_.tolist() == [[2.0, 0.0, 0.0]]


# Properties ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", DIRECTED)
@pytest.mark.parametrize("form", FORMS)
def test_lengths_do_not_matter(metric: str, form: str) -> None:
    """Powers of two change nothing at all; other factors nothing but roundings."""
    X = some_rows(form)
    rng = np.random.default_rng(1)
    plain = fit(metric, X)
    powers = 2.0 ** rng.integers(-20, 20, X.shape[0])
    scaled: Any = (dense(X) * powers[:, np.newaxis]).astype(X.dtype)
    if form.startswith("csr"):
        scaled = sp.csr_matrix(scaled)
    assert bits(fit(metric, scaled))[:3] == bits(plain)[:3]
    other = X * X.dtype.type(np.pi)
    np.testing.assert_array_equal(fit(metric, other).labels_, plain.labels_)


@pytest.mark.parametrize("metric", OTHERS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("factor", [2.0**-30, 2.0**30])
def test_multiplying_everything_changes_nothing(metric: str, form: str, factor: float) -> None:
    """By a power of two, to the bit; L1 centres and costs are multiplied with the rows."""
    X, weights = some_rows(form), some_weights(300)
    plain, scaled = (fit(metric, x, sample_weight=weights) for x in (X, X * X.dtype.type(factor)))
    by = factor if metric == "manhattan" else 1.0
    np.testing.assert_array_equal(scaled.labels_, plain.labels_)
    np.testing.assert_array_equal(
        scaled.cluster_centers_, plain.cluster_centers_ * X.dtype.type(by)
    )
    assert scaled.inertia_ == plain.inertia_ * by
    assert scaled.n_iter_ == plain.n_iter_


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("how", ["converged", "tol", "max_iter"])
def test_a_fit_ends_on_geodesic_means(form: str, how: str) -> None:
    """However it ends: within 1e-10 of the mean in float64, 1e-5 in float32."""
    X, weights, init = some_rows(form), some_weights(300), dense(some_rows(form)[:6])
    ends: Any = {"converged": {}, "tol": {"tol": 1e-2}, "max_iter": {"max_iter": 1}}
    model = fit("angular", X, init=init, sample_weight=weights, **ends[how])
    own = model.labels_
    if how == "max_iter":  # centres are means of the labels that came before the last ones
        own = costs("angular", X, init).argmin(axis=1)
    for j, centre in enumerate(model.cluster_centers_.astype(np.float64)):
        mine = (own == j) & (weights > 0)
        assert tangent(centre, X[mine], weights[mine]) < (1e-5 if form.endswith("32") else 1e-10)


@pytest.mark.parametrize("metric", DIRECTED)
@pytest.mark.parametrize("magnitude", [1e-200, 1e200, 1e-300, 1e298])
@pytest.mark.parametrize("form", ["dense64", "csr64"])
def test_magnitudes_do_not_matter(metric: str, form: str, magnitude: float) -> None:
    X = some_rows(form)
    extreme, plain = fit(metric, X * magnitude), fit(metric, X)
    np.testing.assert_array_equal(extreme.labels_, plain.labels_)
    np.testing.assert_allclose(extreme.cluster_centers_, plain.cluster_centers_, atol=1e-13)
    assert extreme.inertia_ == pytest.approx(plain.inertia_, rel=1e-12)
    np.testing.assert_allclose(extreme.transform(X * magnitude), plain.transform(X), atol=1e-7)


@pytest.mark.parametrize("metric", OTHERS)
@pytest.mark.parametrize("form", FORMS)
def test_threads_and_blocks_do_not_matter(metric: str, form: str) -> None:
    X = some_rows(form, n=2500)
    weights = some_weights(2500)
    for init in INITS:
        options = {"init": init, "n_init": 1, "max_iter": 8, "sample_weight": weights}
        one = bits(fit(metric, X, n_jobs=1, **options))
        assert bits(fit(metric, X, n_jobs=3, **options)) == one
        if metric == "cosine":
            blocks = open_blocks([X[:1], X[1:900], X[900:]])
            assert bits(fit(metric, blocks, n_jobs=2, **options)) == one


@pytest.mark.parametrize("metric", OTHERS)
@pytest.mark.parametrize("form", FORMS)
def test_order_of_rows_does_not_matter(metric: str, form: str) -> None:
    X = some_rows(form)
    order = np.random.default_rng(5).permutation(X.shape[0])
    init = dense(X[:6])
    plain, mixed = fit(metric, X, init=init), fit(metric, X[order], init=init)
    np.testing.assert_array_equal(plain.labels_[order], mixed.labels_)
    if metric == "angular":  # its sums follow the order of the rows
        np.testing.assert_allclose(plain.cluster_centers_, mixed.cluster_centers_, atol=1e-6)
    else:
        np.testing.assert_array_equal(plain.cluster_centers_, mixed.cluster_centers_)


@pytest.mark.parametrize(("metric", "algorithm"), ALGORITHMS)
@pytest.mark.parametrize("form", FORMS)
def test_algorithms_agree_to_the_bit(metric: str, algorithm: str, form: str) -> None:
    X = some_rows(form, n=1500)
    for weights in (None, some_weights(1500)):
        lloyd = fit(metric, X, 12, algorithm="lloyd", sample_weight=weights)
        other = fit(metric, X, 12, algorithm=algorithm, sample_weight=weights)
        assert bits(other) == bits(lloyd)
        assert other.algorithm_ == algorithm


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_small_integers(data: st.DataObject) -> None:
    """Ties, copies, zero rows, opposite rows, empty clusters: no rise, nearest centres."""
    metric = data.draw(st.sampled_from(OTHERS))
    n, d = data.draw(st.integers(2, 12)), data.draw(st.integers(1, 4))
    values = data.draw(st.lists(st.integers(-2, 2), min_size=n * d, max_size=n * d))
    X = np.array(values, dtype=data.draw(st.sampled_from(["float32", "float64"]))).reshape(n, d)
    if not X.any():
        X[0, 0] = 1
    rows = sp.csr_matrix(X) if data.draw(st.booleans()) else X
    k = data.draw(st.integers(1, n))
    init = data.draw(st.sampled_from(INITS))
    if init == "random" and np.count_nonzero(X.any(axis=1)) < k:
        init = "k-means++"
    model = fit(metric, rows, k, init=init, n_init=1, zero_rows="keep")
    cost = costs(metric, X, model.cluster_centers_)
    own = cost[np.arange(n), model.labels_]
    # Ties are decided by the last bits of scores, and angles near 0 amplify these.
    assert np.all(own <= cost.min(axis=1) + 1e-5)
    np.testing.assert_array_equal(model.predict(rows), model.labels_)
    inertia = [record.inertia for record in model.history_] + [model.inertia_]
    for before, after in itertools.pairwise(inertia):
        assert after <= before + 1e-5
    if model.algorithm_ == "lloyd":
        for algorithm in able_algorithms(
            Workload(n, d, k, sp.issparse(rows), 8, 1.0, metric=metric)
        ):
            again = fit(metric, rows, k, init=init, n_init=1, zero_rows="keep", algorithm=algorithm)
            assert bits(again) == bits(model)


# Seeding ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["dense64", "csr64", "csr32", "dense32"])
@pytest.mark.parametrize("metric", OTHERS)
def test_plus_plus_draws_by_the_cost(metric: str, form: str) -> None:
    """The draws of greedy k-means++, replayed with masses of w * cost."""
    X = some_rows(form)
    w = some_weights(X.shape[0])
    model = fit(metric, X, 8, init="k-means++", max_iter=1, sample_weight=w, random_state=3)
    rng = np.random.RandomState(3)
    chosen = [int(rng.choice(X.shape[0], p=w / w.sum()))]
    all_costs = costs(metric, X, X)
    all_costs[np.abs(all_costs) < 1e-12] = 0
    trials = 2 + int(np.log(8))
    for _ in range(7):
        mass = w * all_costs[:, chosen].min(axis=1)
        places = rng.uniform(size=trials) * mass.sum()
        drawn = np.searchsorted(np.cumsum(mass), places)
        left = [w @ np.minimum(all_costs[:, chosen].min(axis=1), all_costs[:, c]) for c in drawn]
        chosen.append(int(drawn[np.argmin(left)]))
    seeds = fit(metric, X, 8, init=dense(X[chosen]), max_iter=1, sample_weight=w)
    assert bits(seeds)[:3] == bits(model)[:3]


# Not 1 for manhattan: plain k-means++ is drawn by rejection, see test_seeding_metrics.py.
@pytest.mark.parametrize("form", ["dense64", "csr64"])
@pytest.mark.parametrize(
    ("metric", "alpha"),
    [*itertools.product(DIRECTED, (1.0, 3.0)), ("manhattan", 2.0), ("manhattan", 3.0)],
)
def test_d_sampling_draws_by_the_distance(metric: str, form: str, alpha: float) -> None:
    X = some_rows(form)
    model = fit(metric, X, 6, init=("d", alpha), n_init=1, max_iter=1, random_state=1)
    rng = np.random.RandomState(1)
    chosen = [int(rng.choice(X.shape[0], p=np.full(X.shape[0], 1 / X.shape[0])))]
    all_costs = costs(metric, X, X)
    all_costs[np.abs(all_costs) < 1e-12] = 0
    distances = all_costs if metric == "manhattan" else np.sqrt(all_costs)
    for _ in range(5):
        mass = distances[:, chosen].min(axis=1) ** alpha
        chosen.append(int(np.searchsorted(np.cumsum(mass), rng.uniform(size=1)[0] * mass.sum())))
    seeds = fit(metric, X, 6, init=dense(X[chosen]), max_iter=1)
    assert bits(seeds)[:3] == bits(model)[:3]


@pytest.mark.parametrize("metric", OTHERS)
@pytest.mark.parametrize("form", ["dense64", "csr64"])
def test_furthest_takes_the_farthest_rows(metric: str, form: str) -> None:
    X = some_rows(form)
    model = fit(metric, X, 5, init="furthest", max_iter=1)
    ones = np.ones(X.shape[0])
    start = "cosine" if metric == "angular" else metric
    places = [best_centre(start, X, ones)]
    for _ in range(4):
        farthest = costs(metric, X, np.array(places)).min(axis=1).argmax()
        places.append(dense(X[[farthest]])[0])
    seeds = fit(metric, X, 5, init=np.array(places), max_iter=1)
    np.testing.assert_array_equal(seeds.labels_, model.labels_)
    np.testing.assert_allclose(seeds.cluster_centers_, model.cluster_centers_, atol=1e-12)


def test_seeding_many_sparse_rows_by_cosine_leaves_nothing_out() -> None:
    """With many seeds, rows are ruled out by their rare features: the draws must not change."""
    rng = np.random.default_rng(2)
    X = rng.random((3000, 400)) * (rng.random((3000, 400)) < 0.02)
    X[:, :2] = rng.random((3000, 2))  # two features that all rows share
    unit_rows = sp.csr_matrix(unit(X))
    cosine = fit("cosine", sp.csr_matrix(X), 150, max_iter=1)
    seeds = KMeans(150, random_state=0, max_iter=1, tol=0).fit(unit_rows)
    assert 2 * cosine.history_[0].inertia == pytest.approx(seeds.history_[0].inertia, rel=1e-12)


# Zero rows, refusals ------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", DIRECTED)
@pytest.mark.parametrize("form", FORMS)
def test_zero_rows(metric: str, form: str) -> None:
    X = some_rows(form)
    without = fit(metric, X)
    values = dense(X)
    with_zeros: Any = np.insert(values, [10, 10, 10], 0, axis=0)
    if form.startswith("csr"):
        with_zeros = sp.csr_matrix(with_zeros)
    with pytest.raises(ValueError, match=r"rows of zeros.*has 3, the first of which is row 10"):
        fit(metric, with_zeros)
    with pytest.raises(ValueError, match="rows of zeros"):
        without.predict(with_zeros)
    model = fit(metric, with_zeros, init=without.cluster_centers_, zero_rows="keep")
    rest = np.delete(np.arange(X.shape[0] + 3), [10, 11, 12])
    assert model.labels_[10:13].tolist() == [-1, -1, -1]
    np.testing.assert_array_equal(model.labels_[rest], without.labels_)
    np.testing.assert_allclose(model.cluster_centers_, without.cluster_centers_, atol=1e-6)
    alone = 1 if metric == "cosine" else (np.pi / 2) ** 2
    assert model.inertia_ == pytest.approx(without.inertia_ + 3 * alone, rel=1e-6)
    assert model.history_[-1].inertia == pytest.approx(model.inertia_, rel=1e-6)
    np.testing.assert_allclose(model.transform(with_zeros)[10], np.sqrt(alone), rtol=1e-6)
    np.testing.assert_array_equal(model.predict(with_zeros), model.labels_)
    only_zeros = with_zeros[10:13]
    assert model.predict(only_zeros).tolist() == [-1, -1, -1]
    np.testing.assert_allclose(model.transform(only_zeros), np.sqrt(alone), rtol=1e-6)
    assert model.score(only_zeros) == pytest.approx(-3 * alone, rel=1e-6)
    for init in INITS:  # a row without a direction is never a seed
        seeded = fit(metric, with_zeros, 40, init=init, n_init=1, max_iter=1, zero_rows="keep")
        assert np.all(np.linalg.norm(seeded.cluster_centers_, axis=1) > 0.9)
    with pytest.raises(ValueError, match="must have a row that is not zero"):
        fit(metric, np.zeros((3, 2)), 1, zero_rows="keep")


@pytest.mark.parametrize("metric", DIRECTED)
def test_rows_of_zeros_are_in_no_cluster(metric: Any) -> None:
    """Nor do they make an empty cluster look like one that has rows."""
    X = np.vstack([np.zeros((5, 3)), np.repeat(np.eye(3), 20, axis=0)])
    start = np.vstack([[-1.0, 0, 0], np.eye(3)])
    model = KMeans(4, metric=metric, init=start, n_init=1, zero_rows="keep")
    with pytest.warns(ConvergenceWarning, match=r"distinct clusters \(3\) found smaller than .*4"):
        labels = model.fit_predict(X)
    assert labels.dtype == np.int32
    assert labels[:5].tolist() == [-1] * 5
    assert sorted(np.bincount(labels[5:], minlength=4).tolist()) == [0, 20, 20, 20]
    np.testing.assert_array_equal(model.predict(X), labels)


def test_rows_in_no_cluster_do_not_make_clusterings_differ() -> None:
    """-1 is no name: the others are exchanged."""
    labels = np.array([-1, 0, 1, 2, -1, 2], dtype=np.int32)
    for names, same in (([1, 2, 0, -1], True), ([0, 1, 2, -1], True), ([1, 1, 0, -1], False)):
        other = np.array(names, dtype=np.int32)[labels]
        assert same_clustering(other, labels, 3) == same
        assert (renaming(other, labels, 3) is not None) == same


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("metric", DIRECTED)
def test_opposite_rows_keep_the_old_centre(metric: str, form: str) -> None:
    X: Any = np.array([[1.0, 0.0], [-2.0, 0.0]], dtype=f"float{form[-2:]}")
    X = sp.csr_matrix(X) if form.startswith("csr") else X
    start = unit(np.array([[0.6, 0.8]])).astype(X.dtype)
    model = fit(metric, X, 1, init=start)
    if metric == "cosine":
        np.testing.assert_array_equal(model.cluster_centers_, start)
    else:  # any place at right angles is a geodesic mean
        atol = 1e-7 if form.endswith("32") else 1e-15
        np.testing.assert_allclose(model.cluster_centers_, [[0.0, 1.0]], atol=atol)
    alone = fit(metric, X[:1], 1, init=np.array([[-1.0, 0.0]]))  # the row is opposite the centre
    wanted = [[1.0, 0.0]] if metric == "cosine" else [[-1.0, 0.0]]
    np.testing.assert_allclose(alone.cluster_centers_, wanted)


@pytest.mark.parametrize("metric", DIRECTED)
def test_given_centres_are_directions(metric: str) -> None:
    X = some_rows("dense64")
    init = X[:4]
    model = fit(metric, X, 4, init=init)
    assert bits(fit(metric, X, 4, init=8 * init)) == bits(model)
    before = model.predict(X)
    model.cluster_centers_ = 5 * model.cluster_centers_
    np.testing.assert_array_equal(model.predict(X), before)
    with pytest.raises(ValueError, match="init must not have rows of zeros"):
        fit(metric, X, 4, init=0 * init)


def test_refusals() -> None:
    X = some_rows("dense64")
    for metric in ("angular", "manhattan"):
        with pytest.raises(ValueError, match=r"must not come in blocks for metric=.*'cosine'"):
            fit(metric, open_blocks([X[:5], X[5:]]))
    with pytest.raises(ValueError, match="metric must be one of"):
        fit("chebyshev", X)
    with pytest.raises(ValueError, match="zero_rows must be one of"):
        fit("cosine", X, zero_rows="drop")
    with pytest.raises(ValueError, match="no longer than 2\\*\\*1000"):
        fit("cosine", X * 1e306)


@pytest.mark.parametrize("form", FORMS)
def test_l1_distances_never_overflow(form: str) -> None:
    """Up to the limit that the refusal names, labels are right; beyond it there are none."""
    X = some_rows(form, n=60, d=40)
    largest = abs(X).max()
    most = min(float(np.finfo(X.dtype).max), 2.0**1000 / 60) / (2 * 40)
    huge = X * X.dtype.type(0.99 * most / largest)
    np.testing.assert_array_equal(fit("manhattan", huge).labels_, fit("manhattan", X).labels_)
    model = fit("manhattan", X)
    too_large = X * X.dtype.type(1.01 * most / largest)
    sentence = r"X must not have values beyond \S+ for metric='manhattan', float(32|64) and 40 col"
    for refused in (lambda: fit("manhattan", too_large), lambda: model.predict(too_large)):
        with pytest.raises(ValueError, match=sentence):
            refused()


@pytest.mark.parametrize("metric", ["angular", "manhattan"])
def test_centres_that_must_be_dense_are_refused_where_they_do_not_fit(metric: str) -> None:
    few = some_rows("csr64", n=60)
    X = sp.csr_matrix((few.data, few.indices, few.indptr), shape=(60, 3_000_000))
    with pytest.raises(ValueError, match=r"memory_limit must be at least [\d,]+ bytes") as info:
        fit(metric, X, 6, memory_limit="100MB")
    needed = int(str(info.value).split(" bytes")[0].split()[-1].replace(",", ""))
    assert needed >= 3 * 8 * X.shape[1] * 6
    fit("cosine", X, 6, memory_limit="100MB")


def test_the_memory_of_lengths_is_counted() -> None:
    """Eight bytes a row, and the inverses that bounds are computed with."""
    work = {m: Workload(10**6, 50, 100, False, 8, 50.0, metric=m) for m in ("euclidean", "cosine")}
    more = {
        a: work["cosine"].bytes_needed(a) - work["euclidean"].bytes_needed(a) for a in BY_MEMORY
    }
    assert more["lloyd"] == 8 * 10**6
    assert more["hamerly"] == more["yinyang"] == 16 * 10**6


@pytest.mark.parametrize("sparse", [False, True])
def test_capabilities_are_data(sparse: bool) -> None:
    """What an algorithm cannot do is refused by name of those that can; auto always finds one."""
    X = some_rows("csr64" if sparse else "dense64")
    for metric in ("euclidean", *OTHERS):
        able_ones = able_algorithms(Workload(1, 1, 1, sparse, 8, 1.0, metric=metric))
        assert "lloyd" in able_ones
        assert fit(metric, X, algorithm="auto").algorithm_ in able_ones
        for algorithm in set(ALGORITHM_NAMES[1:]) - set(able_ones):
            with pytest.raises(ValueError, match=f"'auto', 'lloyd'.*{metric}.*{algorithm}"):
                fit(metric, X, algorithm=algorithm)


@pytest.mark.parametrize("metric", OTHERS)
def test_n_init_keeps_the_best(metric: str) -> None:
    X = some_rows("dense64")
    best = fit(metric, X, 9, init="random", n_init=6)
    single = [fit(metric, X, 9, init="random", n_init=1, random_state=s) for s in range(6)]
    assert best.inertia_ <= min(model.inertia_ for model in single) * 1.05
    first = fit(metric, X, 9, init="random", n_init=1)
    assert best.inertia_ <= first.inertia_
