"""The functions of exactmeans.seeding under every metric, against draws replayed in NumPy."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray

from cases import bits, dense
from exactmeans import KMeans, kmeans_plusplus, open_blocks, seeding
from exactmeans.data.arrays import as_array
from metric_oracle import DIRECTED, FORMS, OTHERS, best_centre, costs, some_rows, some_weights, unit
from test_seeding import fits

pytestmark = pytest.mark.core

METHODS: dict[str, Any] = {
    "k-means++": kmeans_plusplus,
    "k-means||": seeding.kmeans_parallel,
    "random": seeding.random,
    "furthest": seeding.furthest,
    "d1": lambda X, k, **options: seeding.d_sampling(X, k, 1, **options),
    "d2": seeding.d_sampling,
    "d-inf": lambda X, k, **options: seeding.d_sampling(X, k, math.inf, **options),
}
INITS: dict[str, Any] = {"d1": ("d", 1), "d2": ("d", 2), "d-inf": ("d", math.inf)}


def seeds(name: str, X: Any, k: int, **options: Any) -> Any:
    if name == "furthest":
        options.pop("random_state", None)
    return METHODS[name](X, k, **options)


def all_costs(metric: str, X: Any) -> NDArray[np.float64]:
    """Of every row at every row; what is rounding of 0 is 0."""
    found = costs(metric, X, X)
    found[found < 1e-12] = 0
    return found


class Replay:
    """Draws by masses that are weight * cost, in float64 and with every distance."""

    def __init__(self, table: NDArray[np.float64], weights: NDArray[np.float64], rng: Any) -> None:
        self.table, self.weights, self.rng = table, weights, rng

    def masses(self, chosen: list[int]) -> NDArray[np.float64]:
        return np.asarray(self.weights * self.table[:, chosen].min(axis=1))

    def first(self) -> int:
        return int(self.rng.choice(len(self.weights), p=self.weights / self.weights.sum()))

    def greedy(self, k: int) -> list[int]:
        chosen, trials = [self.first()], 2 + int(math.log(k))
        while len(chosen) < k:
            mass = self.masses(chosen)
            places = self.rng.uniform(size=trials) * mass.sum()
            drawn = np.searchsorted(np.cumsum(mass), places).tolist()
            left = [self.masses([*chosen, row]).sum() for row in drawn]
            chosen.append(drawn[int(np.argmin(left))])
        return chosen

    def parallel(self, k: int, oversampling: float = 2.0, rounds: int = 5) -> list[int]:
        chosen = [self.first()]
        keys = self.rng.randint(2**32, size=rounds, dtype=np.uint32).tolist()
        for key in keys:
            mass = self.masses(chosen)
            heads = coins(key, len(mass)) < oversampling * k * mass / mass.sum()
            chosen += np.flatnonzero(heads).tolist()
        owners = self.table[:, chosen].argmin(axis=1)
        rows = np.unique(chosen)
        shares = np.array([self.weights[owners == chosen.index(row)].sum() for row in rows])
        rows, shares = rows[shares > 0], shares[shares > 0]
        again = Replay(self.table[np.ix_(rows, rows)], shares, self.rng)
        return list(rows[again.greedy(k)])


def coins(key: int, n: int) -> NDArray[np.float64]:
    """splitmix64 of key and row number (docs/numerics.md, "Draws"), with Python's integers."""
    golden, mask = 0x9E3779B97F4A7C15, 2**64 - 1

    def mix(z: int) -> int:
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & mask
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB & mask
        return z ^ (z >> 31)

    own = mix((key + golden) & mask)
    return np.array([(mix(mix((own + golden * i) & mask) ^ own) >> 11) / 2**53 for i in range(n)])


# Against replayed draws ---------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("metric", OTHERS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("method", ["greedy", "parallel"])
def test_rows_are_drawn_by_what_they_cost(
    method: str, metric: str, form: str, weighted: bool
) -> None:
    X = some_rows(form)
    n = X.shape[0]
    w = some_weights(n) if weighted else np.ones(n)
    table = all_costs(metric, X)
    name = {"greedy": "k-means++", "parallel": "k-means||"}[method]
    for seed in range(3):
        options = {"sample_weight": w if weighted else None, "random_state": seed}
        centres, indices = seeds(name, X, 9, metric=metric, **options)
        replay = Replay(table, w, np.random.RandomState(seed))
        assert indices.tolist() == getattr(replay, method)(9)
        wanted = unit(X[indices]) if metric in DIRECTED else dense(X[indices])
        np.testing.assert_allclose(dense(centres), wanted, rtol=2e-7 if "32" in form else 1e-15)
        assert centres.dtype == X.dtype


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("metric", OTHERS)
def test_furthest_starts_from_the_middle(metric: Any, form: str) -> None:
    X, w = some_rows(form), some_weights(300)
    centres, indices = seeding.furthest(X, 7, metric=metric, sample_weight=w)
    assert indices[0] == -1
    counted = w > 0
    start = "cosine" if metric == "angular" else metric  # the direction of the mean
    middle = best_centre(start, X[counted], w[counted])
    np.testing.assert_allclose(
        as_array(centres)[0], middle, atol=1e-6 if form.endswith("32") else 1e-14
    )
    nearest = np.where(counted, costs(metric, X, middle[np.newaxis])[:, 0], -1)
    for row in indices[1:].tolist():
        assert row == nearest.argmax()
        nearest = np.minimum(nearest, costs(metric, X, X[[row]])[:, 0])


# Against enumerated chances -----------------------------------------------------------------------

FEW = np.array([[1.0, 0], [3, 1], [1, 2], [0, 4], [-2, 1.5], [-1, -1]])
WEIGHTS = np.array([1, 2, 0.5, 1, 0, 1.5])


def chances(metric: str, alpha: float, k: int) -> dict[tuple[int, ...], float]:
    """Every ordered choice of k rows and its probability."""
    cost = all_costs(metric, FEW)
    distance = cost if metric == "manhattan" else np.sqrt(cost)
    table: dict[tuple[int, ...], float] = {}
    for picks in itertools.permutations(range(len(FEW)), k):
        p = float(WEIGHTS[picks[0]] / WEIGHTS.sum())
        for j in range(1, k):
            mass = WEIGHTS * distance[:, picks[:j]].min(axis=1) ** alpha
            mass[list(picks[:j])] = 0
            p *= float(mass[picks[j]] / mass.sum())
        if p > 0:
            table[picks] = p
    return table


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "csr"])
@pytest.mark.parametrize("alpha", [0, 1, 2, 3.5])
@pytest.mark.parametrize("metric", OTHERS)
def test_d_sampling_has_the_enumerated_chances(metric: str, alpha: float, sparse: bool) -> None:
    """Masses of (1 - cos)**(alpha/2), angle**alpha and L1**alpha; 2 (L1: 1) goes by rejection."""
    X: Any = sp.csr_matrix(FEW) if sparse else FEW
    rng = np.random.RandomState(23)
    options: Any = {"metric": metric, "sample_weight": WEIGHTS, "random_state": rng, "n_jobs": 1}
    found = [tuple(seeding.d_sampling(X, 3, alpha, **options)[1].tolist()) for _ in range(1500)]
    fits(found, chances(metric, alpha, 3))


# Whatever the method ------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("metric", OTHERS)
@pytest.mark.parametrize("name", METHODS)
def test_threads_blocks_and_calls_do_not_matter(name: str, metric: Any, form: str) -> None:
    X, w = some_rows(form, n=2500), some_weights(2500)
    options = {"metric": metric, "sample_weight": w, "random_state": 5}
    centres, indices = seeds(name, X, 11, **options)
    assert (w[indices[indices >= 0]] > 0).all()
    assert len(np.unique(indices)) == 11
    blocks = open_blocks([X[:1], X[1:1000], X[1000:]])
    ways = [(X, {}), (X, {"n_jobs": 1}), (X, {"n_jobs": 3}), (blocks, {"n_jobs": 2})]
    for rows, jobs in ways:
        if rows is blocks and (name, metric) == ("furthest", "manhattan"):
            continue
        again = seeds(name, rows, 11, **options, **({} if name == "k-means++" else jobs))
        np.testing.assert_array_equal(again[1], indices)
        np.testing.assert_array_equal(dense(again[0]), dense(centres))
    init = INITS.get(name, name)
    fitted, started = (
        KMeans(11, metric=metric, init=start, n_init=1, max_iter=3, random_state=5).fit(
            X, sample_weight=w
        )
        for start in (init, centres)
    )
    assert bits(fitted)[:3] == bits(started)[:3]


@pytest.mark.parametrize("metric", OTHERS)
@pytest.mark.parametrize("form", ["dense64", "csr64"])
@pytest.mark.parametrize("factor", [1e-9, 1e9, 2.0**-300, 1e140])
def test_scale_does_not_matter(metric: str, form: str, factor: float) -> None:
    X = some_rows(form)
    for name in METHODS:
        found = [seeds(name, x, 8, metric=metric, random_state=2)[1] for x in (X, X * factor)]
        np.testing.assert_array_equal(found[0], found[1])


@pytest.mark.parametrize("metric", DIRECTED)
@pytest.mark.parametrize("form", FORMS)
def test_lengths_of_rows_do_not_matter(metric: str, form: str) -> None:
    X = some_rows(form)
    powers = 2.0 ** np.random.default_rng(1).integers(-20, 20, X.shape[0])
    scaled: Any = (dense(X) * powers[:, np.newaxis]).astype(X.dtype)
    scaled = sp.csr_matrix(scaled) if form.startswith("csr") else scaled
    for name in METHODS:
        found = [seeds(name, x, 8, metric=metric, random_state=2) for x in (X, scaled)]
        np.testing.assert_array_equal(found[0][1], found[1][1])
        np.testing.assert_array_equal(dense(found[0][0]), dense(found[1][0]))


@pytest.mark.parametrize("metric", OTHERS)
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "csr"])
@pytest.mark.parametrize("name", METHODS)
def test_fewer_distinct_rows_than_centres(name: str, metric: str, sparse: bool) -> None:
    """Equal rows cost exactly nothing at each other: whatever is distinct is found first."""
    three = np.array([[0.1, 0.7, 0.3], [1 / 3, 0.2, 0.9], [5.1, -5.3, 0.7]])
    X: Any = three[np.arange(40) % 3]
    X = sp.csr_matrix(X) if sparse else X
    centres, indices = seeds(name, X, 7, metric=metric, random_state=4)
    assert centres.shape == (7, 3)
    assert indices.shape == (7,)
    if name != "random":
        first = [row % 3 for row in indices.tolist() if row >= 0][:3]
        assert sorted(first) == [0, 1, 2]


@pytest.mark.parametrize("metric", DIRECTED)
@pytest.mark.parametrize("name", METHODS)
def test_rows_of_zeros_are_refused_or_never_chosen(name: str, metric: str) -> None:
    X = np.insert(some_rows("dense64", n=40), [10, 10, 20], 0, axis=0)
    with pytest.raises(ValueError, match=r"rows of zeros.*has 3, the first of which is row 10"):
        seeds(name, X, 5, metric=metric, random_state=0)
    for seed in range(5):
        kept = seeds(name, X, 25, metric=metric, random_state=seed, zero_rows="keep")
        assert not np.isin(kept[1], [10, 11, 22]).any()
        np.testing.assert_allclose(np.linalg.norm(kept[0], axis=1), 1, rtol=1e-15)


@pytest.mark.parametrize("metric", DIRECTED)
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "csr"])
@pytest.mark.parametrize("name", METHODS)
def test_rows_of_zeros_are_not_chosen_when_every_direction_is(
    name: str, sparse: bool, metric: str
) -> None:
    """Nor when fewer rows than centres have a direction: then rows are repeated."""
    few = np.zeros((9, 3))
    few[[1, 4, 7]] = np.array([[2, 0, 0], [0, 1, 1], [0, 0.5, 0.5]])
    for X in (np.vstack([few, 3 * few]), few):
        rows: Any = sp.csr_matrix(X) if sparse else X
        options: dict[str, Any] = {"metric": metric, "zero_rows": "keep"}
        if name == "random" and X is few:
            with pytest.raises(ValueError, match="at least n_clusters=5 rows that are not zero"):
                seeds(name, rows, 5, random_state=0, **options)
            continue
        for seed in range(5):
            centres, indices = seeds(name, rows, 5, random_state=seed, **options)
            assert centres.shape == (5, 3)
            assert X[indices[indices >= 0]].any(axis=1).all()
            np.testing.assert_allclose(np.linalg.norm(centres, axis=1), 1, rtol=1e-15)
            if name != "random":
                assert len(np.unique(centres, axis=0)) >= 2


def test_refusals() -> None:
    X = some_rows("dense64")
    for name in METHODS:
        with pytest.raises(ValueError, match="metric must be one of 'euclidean', 'cosine'"):
            seeds(name, X, 3, metric="chebyshev")
        with pytest.raises(ValueError, match="zero_rows must be one of 'error', 'keep'"):
            seeds(name, X, 3, metric="cosine", zero_rows="drop")
    with pytest.raises(ValueError, match="X must not come in blocks for furthest rows and"):
        seeding.furthest(open_blocks([X[:9], X[9:]]), 3, metric="manhattan")
