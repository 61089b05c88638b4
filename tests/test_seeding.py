"""Seeding against slow and obvious versions of it, enumerated chances and a proved guarantee."""

from __future__ import annotations

import itertools
import math
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.stats import chi2
from sklearn.exceptions import ConvergenceWarning

import datasets
from exactmeans import KMeans, _core, kmeans_plusplus, open_blocks, seeding
from exactmeans.engine.local.coordinates import Survey
from exactmeans.engine.local.engine import LocalEngine
from exactmeans.seeding import draws
from exactmeans.seeding.init import check_init, choose_seeds

pytestmark = pytest.mark.core

INITS: list[Any] = [
    "k-means++",
    "k-means||",
    "random",
    "furthest",
    ("d", 0),
    ("d", 0.5),
    ("d", 1),
    ("d", 2),
    ("d", 3),
    ("d", math.inf),
]


def text(n: int = 3000, d: int = 400, seed: int = 0) -> Any:
    """Unit rows over skewed features, some of them empty, some twice."""
    rng = np.random.default_rng(seed)
    counts = rng.poisson(0.02, (n, d)) * (rng.random(d) < 20 / (1 + np.arange(d)))
    counts[5:9] = 0
    counts[20:25] = counts[30:35]
    norms = np.maximum(1e-300, np.sqrt(np.square(counts).sum(axis=1, keepdims=True)))
    return sp.csr_matrix(counts / norms)


def wide(n: int = 5000, d: int = 48, seed: int = 1) -> NDArray[np.float64]:
    """Clusters near a subspace: the triangle inequality, lists and a projection all have work."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(0, 10, (60, 6)) @ rng.normal(0, 1, (6, d))
    return np.asarray(centres[rng.integers(60, size=n)] + rng.normal(0, 0.5, (n, d)))


def lattice(n: int = 5000, d: int = 20, seed: int = 2) -> NDArray[np.float64]:
    """Small integers in a plane: many rows are equal, and equally far from many others."""
    rng = np.random.default_rng(seed)
    X = np.zeros((n, d))
    X[:, :3] = rng.integers(0, 25, (n, 3))
    return X


def flat(n: int = 5000, d: int = 40, seed: int = 3) -> NDArray[np.float64]:
    """No clusters and no leading directions, and a few rows far out."""
    X = np.random.default_rng(seed).normal(3, 1, (n, d))
    X[:: n // 10] *= 3
    return X


def as_dense(rows: Any) -> NDArray[Any]:
    return np.asarray(rows if isinstance(rows, np.ndarray) else rows.toarray())


def dist2(X: Any, row: int) -> NDArray[np.float64]:
    if not isinstance(X, np.ndarray):
        x = X.astype(np.float64)
        norm2 = np.asarray(x.multiply(x).sum(axis=1)).ravel()
        product = np.asarray((x @ x[[row]].T).todense()).ravel()
        d2 = np.maximum(0, norm2 + norm2[row] - 2 * product)
        d2[np.asarray(abs(x - x[[row] * x.shape[0]]).sum(axis=1)).ravel() == 0] = 0
        return np.asarray(d2)
    x = np.asarray(X, dtype=np.float64)
    return np.asarray(np.square(x - x[row]).sum(axis=1))


def greedy(X: Any, k: int, seed: int, w: NDArray[np.float64] | None = None) -> list[int]:
    """Greedy k-means++ as the books have it, with every distance and correctly rounded sums."""
    n = X.shape[0]
    weights = np.ones(n) if w is None else w
    rng = np.random.RandomState(seed)
    picks = [int(rng.choice(n, p=weights / weights.sum()))]
    near2 = dist2(X, picks[0])
    potential = math.fsum(weights * near2)
    for _ in range(1, k):
        places = rng.uniform(size=2 + int(math.log(k))) * potential
        drawn = np.searchsorted(np.cumsum(weights * near2), places).clip(max=n - 1)
        left = [np.minimum(near2, dist2(X, int(row))) for row in drawn]
        potentials = [math.fsum(weights * d2) for d2 in left]
        best = int(np.argmin(potentials))
        near2, potential = left[best], potentials[best]
        picks.append(int(drawn[best]))
    return picks


# Greedy k-means++ ---------------------------------------------------------------------------------

DATA: dict[str, Any] = {"wide": wide, "flat": flat, "lattice": lattice, "text": text}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", DATA)
def test_greedy_is_what_measuring_everything_gives(name: str, dtype: str, weighted: bool) -> None:
    X = DATA[name]().astype(dtype)
    w = np.random.default_rng(3).integers(0, 4, X.shape[0]) / 2 if weighted else None
    for seed in range(2):
        centres, indices = kmeans_plusplus(X, 40, sample_weight=w, random_state=seed)
        assert indices.tolist() == greedy(X, 40, seed, w)
        np.testing.assert_array_equal(centres, as_dense(X[indices]))


def test_few_features_and_many_seeds() -> None:
    X = datasets.blobs(5000, 2, 30, seed=4)
    assert kmeans_plusplus(X, 120, random_state=0)[1].tolist() == greedy(X, 120, 0)


def test_more_candidates_than_a_word_has_bits() -> None:
    X = datasets.blobs(300, 3, 5, seed=5)
    few, many = (
        draws.plus_plus(LocalEngine([X], None, 2), 6, np.random.RandomState(1), 0, trials)
        for trials in (5, 70)
    )
    assert len(set(few)) == len(set(many)) == 6


def _distances(X: Any, k: int, scratch_limit: int | None = None) -> int:
    engine = LocalEngine([X], None, 2, scratch_limit=scratch_limit)
    run = engine.seeding(0, candidates=5 * k)
    rng = np.random.RandomState(0)
    run.start(0)
    for _ in range(k - 1):
        run.accept(int(np.argmin(run.potentials(run.draw(rng.uniform(size=5))))))
    return run.distances()


@pytest.mark.parametrize("make", [wide, flat, lambda: datasets.blobs(8000, 2, 60, seed=1)])
def test_most_distances_are_never_computed(make: Any) -> None:
    X = make()
    assert _distances(X, 100) < 0.2 * len(X) * 5 * 100


def test_coordinates_keep_within_a_memory_limit() -> None:
    """They take a byte each, and 12 bytes per row: of 40 features, and 20 axes and a rest."""
    X = flat()
    room = len(X) * (48 + 12 + 22 + 12)
    assert _distances(X, 100, scratch_limit=room) == _distances(X, 100)
    assert _distances(X, 100, scratch_limit=room - 1) > 2 * _distances(X, 100)


@pytest.mark.parametrize("make", [wide, flat])
def test_a_survey_knows_whether_axes_would_do(make: Any) -> None:
    X = make()
    near2 = np.min([dist2(X, row) for row in range(30)], axis=0)[:256]
    survey = Survey(X[:256])
    for usual, planned in ((1.0, 1), (0.01, 1000)):  # too late; little is measured as it is
        assert not survey.better(X[-6:], near2, usual=usual, planned=planned)
    found = survey.better(X[-6:], near2, usual=1.0, planned=1000)
    assert any(len(one.axes) > 0 for one in found) == (make is wide)
    assert any(len(one.axes) == 0 for one in found) == (make is flat)
    assert not survey.better(X[-6:], near2, usual=1.0, planned=900)
    assert not Survey(np.ones((256, 20))).usable
    assert not Survey(np.ldexp(X[:256], 600)).usable


@pytest.mark.parametrize("exponent", [-900, 0, 900])
def test_greedy_at_any_magnitude(exponent: int) -> None:
    X = datasets.blobs(500, 4, 10, seed=2)
    expected = kmeans_plusplus(X, 10, random_state=3)[1]
    found = kmeans_plusplus(np.ldexp(X, exponent), 10, random_state=3)[1]
    np.testing.assert_array_equal(found, expected)


def test_far_from_the_origin_distances_stay_exact() -> None:
    X = datasets.blobs(500, 4, 10, seed=2).round(3)
    expected = kmeans_plusplus(X, 10, random_state=3)[1]
    moved = kmeans_plusplus(X + 2.0**30, 10, random_state=3)[1]
    assert np.mean(moved == expected) == 1


# Every method -------------------------------------------------------------------------------------


def _seeds(X: Any, k: int, init: Any, weights: Any = None, n_jobs: int = 2) -> Any:
    engine = LocalEngine(X if isinstance(X, list) else [X], weights, n_jobs)
    rng = np.random.RandomState(7)
    centres, indices = choose_seeds(engine, check_init(init), k, rng, 0, {})
    return as_dense(centres), indices


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", DATA)
@pytest.mark.parametrize("init", INITS, ids=str)
def test_threads_and_blocks_do_not_matter(init: Any, name: str, weighted: bool) -> None:
    X = DATA[name]()
    w = np.random.default_rng(3).uniform(0.1, 2, X.shape[0]) if weighted else None
    centres, indices = _seeds(X, 12, init, w, n_jobs=1)
    third = X.shape[0] // 3
    for jobs, blocks in ((3, [X]), (2, [X[:third], X[third : third + 1], X[third + 1 :]])):
        again = _seeds(blocks, 12, init, w, n_jobs=jobs)
        np.testing.assert_array_equal(again[1], indices)
        np.testing.assert_array_equal(again[0], centres)


@pytest.mark.parametrize("init", INITS, ids=str)
@pytest.mark.parametrize("name", DATA)
def test_seeds_are_rows(name: str, init: Any) -> None:
    X = DATA[name]()
    centres, indices = _seeds(X, 15, init)
    rows = as_dense(X[indices[indices >= 0]])
    np.testing.assert_array_equal(centres[indices >= 0], rows)
    assert (indices >= 0).sum() == (14 if init == "furthest" else 15)
    distinct = len(np.unique(indices))
    assert distinct == 15
    model = KMeans(15, init=init, random_state=7, n_init=1, max_iter=3).fit(X)
    assert model.cluster_centers_.shape == (15, X.shape[1])


@pytest.mark.parametrize("init", INITS, ids=str)
def test_rows_without_weight_are_never_seeds(init: Any) -> None:
    X = wide(600)
    w = (np.arange(600) % 3 == 0).astype(float)
    for seed in range(5):
        engine = LocalEngine([X], w, 2)
        rng = np.random.RandomState(seed)
        _, indices = choose_seeds(engine, check_init(init), 20, rng, 0, {})
        assert (w[indices[indices >= 0]] > 0).all()


@pytest.mark.parametrize("factor", [1e-9, 1e9, 2.0**-300, 1e140])
@pytest.mark.parametrize("init", INITS, ids=str)
def test_scale_does_not_matter(init: Any, factor: float) -> None:
    X = datasets.blobs(400, 5, 8, seed=6)
    functions: dict[Any, Any] = {
        "k-means++": kmeans_plusplus,
        "k-means||": seeding.kmeans_parallel,
        "random": seeding.random,
    }
    if init == "furthest":
        found = [seeding.furthest(x, 8)[1] for x in (X, X * factor)]
    elif isinstance(init, tuple):
        found = [seeding.d_sampling(x, 8, init[1], random_state=2)[1] for x in (X, X * factor)]
    else:
        found = [functions[init](x, 8, random_state=2)[1] for x in (X, X * factor)]
    np.testing.assert_array_equal(found[0], found[1])


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("factor", [1e-9, 1, 1e9])
@pytest.mark.parametrize("init", INITS, ids=str)
def test_fewer_distinct_rows_than_clusters(init: Any, factor: float, sparse: bool) -> None:
    three = np.array([[0.1, 0.7], [1 / 3, 0.2], [5.1, 5.3]]) * factor
    X: Any = three[np.arange(40) % 3]
    X = sp.csr_matrix(X) if sparse else X
    centres, indices = _seeds(X, 6, init)
    assert centres.shape == (6, 2)
    assert indices.shape == (6,)
    with pytest.warns(ConvergenceWarning, match=r"distinct clusters \(3\).*n_clusters \(6\)"):
        model = KMeans(6, init=init, random_state=0, n_init=1).fit(X)
    assert model.cluster_centers_.shape == (6, 2)
    assert model.inertia_ <= 1e-25 * factor**2


def all_seeds() -> str:
    found = [_seeds(make(), 12, init)[1] for init in INITS for make in DATA.values()]
    return repr([indices.tolist() for indices in found])


def test_the_processor_does_not_matter() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import test_seeding; print(test_seeding.all_seeds())"],
        env={**os.environ, "EXACTMEANS_ISA": "baseline", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == all_seeds()


# Furthest first -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["wide", "text"])
def test_furthest_starts_from_the_mean(name: str) -> None:
    X = DATA[name](800) if name == "wide" else text(800)
    w = np.random.default_rng(0).uniform(0, 2, 800)
    rows = as_dense(X)
    mean = w @ rows / w.sum()
    centres, indices = seeding.furthest(X, 9, sample_weight=w)
    np.testing.assert_allclose(as_dense(centres)[0], mean, rtol=1e-12, atol=1e-15)
    assert indices[0] == -1
    near2 = np.square(rows - mean).sum(axis=1)
    for index in indices[1:]:
        assert near2[index] >= near2.max() * (1 - 1e-9)
        near2 = np.minimum(near2, dist2(X, int(index)))


def test_infinite_alpha_is_furthest_from_a_random_row() -> None:
    X = wide(800)
    picks = seeding.d_sampling(X, 9, math.inf, random_state=4)[1]
    near2 = dist2(X, int(picks[0]))
    for pick in picks[1:]:
        assert pick == np.argmax(near2)
        near2 = np.minimum(near2, dist2(X, int(pick)))


# Chances ------------------------------------------------------------------------------------------

SMALL = np.array([[0.0, 0], [1, 0], [1, 2], [4, 1], [4, 1.5], [7, 7]])
WEIGHTS = np.array([1, 2, 0.5, 1, 0, 1.5])


def chances(alpha: float, k: int) -> dict[tuple[int, ...], float]:
    """Every ordered choice of k rows and its probability."""
    d2 = np.square(SMALL[:, np.newaxis] - SMALL).sum(axis=2)
    table: dict[tuple[int, ...], float] = {}
    for picks in itertools.permutations(range(len(SMALL)), k):
        p = float(WEIGHTS[picks[0]] / WEIGHTS.sum())
        for j in range(1, k):
            mass = WEIGHTS * d2[:, picks[:j]].min(axis=1) ** (alpha / 2)
            mass[list(picks[:j])] = 0
            p *= float(mass[picks[j]] / mass.sum())
        if p > 0:
            table[picks] = p
    return table


def fits(found: list[tuple[int, ...]], table: dict[tuple[int, ...], float]) -> None:
    """Chi-square against enumerated chances; rare outcomes are pooled."""
    assert set(found) <= set(table)
    n = len(found)
    common = [picks for picks, p in table.items() if n * p >= 8]
    observed = [found.count(picks) for picks in common]
    expected = [n * table[picks] for picks in common]
    rest = n - sum(expected)
    if rest >= 8:
        observed.append(n - sum(observed))
        expected.append(rest)
    statistic = sum((o - e) ** 2 / e for o, e in zip(observed, expected, strict=True))
    assert statistic < chi2.ppf(1 - 1e-6, len(observed) - 1)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("by_rejection", [False, True])
@pytest.mark.parametrize("alpha", [0.5, 1, 2, 5])
def test_draws_have_the_enumerated_chances(alpha: float, by_rejection: bool, sparse: bool) -> None:
    engine = LocalEngine([sp.csr_matrix(SMALL) if sparse else SMALL], WEIGHTS, 1)
    rng = np.random.RandomState(17)
    found = [
        tuple(draws.d_alpha(engine, 3, rng, 0, alpha, by_rejection=by_rejection).tolist())
        for _ in range(6000)
    ]
    fits(found, chances(alpha, 3))


def test_draws_without_distances() -> None:
    engine = LocalEngine([SMALL], WEIGHTS, 1)
    rng = np.random.RandomState(18)
    found = [tuple(draws.d_alpha(engine, 3, rng, 0, 0).tolist()) for _ in range(6000)]
    fits(found, chances(0, 3))


def test_rejection_looks_at_few_rows() -> None:
    X = wide(20000, 400)
    engine = LocalEngine([X], None, 2)
    run = engine.seeding(0, candidates=50)
    rng = np.random.RandomState(0)
    run.start(0)
    assert len(set(draws._by_rejection(run, [0], 50, rng))) == 50
    assert run.distances() < 0.2 * 50 * len(X)


def test_guarantee_of_plain_kmeans_plusplus() -> None:
    """E potential <= 8 (ln k + 2) optimum (Arthur & Vassilvitskii 2007), which is known here.

    k groups far apart: any optimal clustering has the groups for clusters.
    """
    rng = np.random.default_rng(0)
    k, size = 10, 30
    corners = 50.0 * np.array(list(itertools.product((0, 1), repeat=4)))[:k]
    X = np.repeat(corners, size, axis=0) + rng.normal(0, 1, (k * size, 4))
    groups = X.reshape(k, size, 4)
    optimum = float(np.square(groups - groups.mean(axis=1, keepdims=True)).sum())
    engine = LocalEngine([X], None, 1)
    state = np.random.RandomState(5)
    potentials = []
    for _ in range(400):
        picks = draws.d_alpha(engine, k, state, 0, 2)
        potentials.append(min_potential(X, X[picks]))
    assert np.mean(potentials) <= 8 * (math.log(k) + 2) * optimum
    # Sharper than the theorem, and what a broken draw would miss: uniform rows cost far more.
    uniform = [min_potential(X, X[state.choice(len(X), k)]) for _ in range(400)]
    assert np.mean(potentials) < 0.05 * np.mean(uniform)


def min_potential(X: NDArray[np.float64], centres: NDArray[np.float64]) -> float:
    return float(np.square(X[:, np.newaxis] - centres).sum(axis=2).min(axis=1).sum())


# k-means|| ----------------------------------------------------------------------------------------


def test_coins_fall_as_often_as_they_should() -> None:
    X = wide(20000, 4)
    run = LocalEngine([X], None, 2).seeding(0, candidates=0)
    run.start(0)
    mass = run.nearest2()
    p = np.minimum(1, 500 * mass / mass.sum())
    kept = np.array(
        [np.isin(np.arange(len(X)), run.sample_bernoulli(key, 500)) for key in range(40)]
    )
    spread = math.sqrt(40 * (p * (1 - p)).sum())
    assert abs(kept.sum() - 40 * p.sum()) < 5 * spread
    far = mass > np.median(mass)
    assert abs(kept[:, far].sum() - 40 * p[far].sum()) < 5 * spread
    assert not np.array_equal(kept[0], kept[1])


def test_kmeans_parallel_options_change_the_work() -> None:
    X = wide()
    found = {
        options: seeding.kmeans_parallel(
            X, 20, oversampling=options[0], rounds=options[1], random_state=0
        )[1].tolist()
        for options in ((2.0, 5), (0.01, 1), (500.0, 1), (2.0, 1))
    }
    assert all(len(set(rows)) == 20 for rows in found.values())
    assert len({tuple(rows) for rows in found.values()}) == 4


def test_kmeans_parallel_is_nearly_as_good_as_greedy() -> None:
    X = wide()
    inertia = {
        init: np.mean([KMeans(60, init=init, random_state=s).fit(X).inertia_ for s in range(5)])
        for init in ("k-means++", "k-means||")
    }
    assert inertia["k-means||"] < 1.3 * inertia["k-means++"]


# Arguments ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (
            {"init": "kmeans"},
            r"init must be 'k-means\+\+', .* 'furthest', \('d', alpha\), a callable or an array of",
        ),
        ({"init": ("d",)}, r"init must be \('d', alpha\)"),
        ({"init": ("d", -1)}, r"init\[1\] must be a number from 0 to infinity, but it is -1"),
        ({"init": ("d", math.nan)}, r"init\[1\] must be a number"),
        ({"init": ("d", "2")}, r"init\[1\] must be a number"),
        ({"init": ("e", 2)}, r"init\[0\] must be 'd'"),
        ({"init_options": 3}, "init_options must be None or a dict"),
        ({"init_options": {"rounds": 3}}, "init_options must hold 'n_local_trials' for init"),
        ({"init": "random", "init_options": {"rounds": 3}}, "init_options must hold nothing"),
        ({"init": "k-means||", "init_options": {"rounds": 0}}, r"init_options\['rounds'\] must"),
        (
            {"init": "k-means||", "init_options": {"oversampling": 0}},
            r"init_options\['oversampling'\] must be above 0",
        ),
    ],
)
def test_what_init_may_not_be(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        KMeans(3, **params).fit(SMALL)


def test_options_reach_the_method() -> None:
    X = wide()
    options = {"oversampling": 0.5, "rounds": 2}
    expected = seeding.kmeans_parallel(X, 9, oversampling=0.5, rounds=2, random_state=3)[0]
    model = KMeans(9, init="k-means||", init_options=options, random_state=3, max_iter=1).fit(X)
    np.testing.assert_array_equal(
        model.cluster_centers_, KMeans(9, init=expected, max_iter=1).fit(X).cluster_centers_
    )


def test_functions_take_blocks_and_lists() -> None:
    X = datasets.blobs(90, 3, 4, seed=1)
    blocks = open_blocks([X[:20], X[20:]])
    for function in (seeding.kmeans_parallel, seeding.random, seeding.d_sampling):
        found = [function(x, 5, random_state=1)[1].tolist() for x in (X, blocks, X.tolist())]
        assert found[1:] == found[:1] * 2
    with pytest.raises(ValueError, match="n_samples=90 should be >= n_clusters=91"):
        seeding.furthest(X, 91)
    with pytest.raises(ValueError, match="alpha must be a number from 0 to infinity"):
        seeding.d_sampling(X, 2, -3)
    with pytest.raises(ValueError, match="oversampling must be above 0"):
        seeding.kmeans_parallel(X, 2, oversampling=0)


@pytest.mark.parametrize("n", [1, 2, 7, 1000, 4097, 2**20, 2**20 + 1, 5 * 2**19])
def test_one_row_is_drawn_as_numpy_draws_it(n: int) -> None:
    """From the chances of all rows, which we do not write down."""
    rng = np.random.RandomState(0)
    some = rng.random_sample(n) * (rng.random_sample(n) < 0.8)
    some[-1] = 1.0
    for weights in (None, some):
        chances = np.ones(n) / n if weights is None else weights / weights.sum()
        total = n if weights is None else weights.sum()
        for seed in range(20 if n < 5000 else 4):
            place = np.random.RandomState(seed).random_sample()
            drawn = np.random.RandomState(seed).choice(n, p=chances)
            assert _core.row_at(place, n, weights, total) == drawn
        for place in (0.0, 1 - 2.0**-53):
            reached = np.cumsum(chances)
            drawn = int(np.searchsorted(reached / reached[-1], place, side="right"))
            assert _core.row_at(place, n, weights, total) == drawn
