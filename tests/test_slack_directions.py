"""Attacks on the rounding slack of cosine and angular bounds, as test_slack.py has for distances.

Bounds are kept in float32 with factors of 1 +- 2**-20, which hide the slack of scores unless chords
are short: so the centres of the attacks are close to each other.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from attacks import Array, Attack, products, slackless_differs, ulps
from cases import DTYPES, bits
from exactmeans import KMeans
from exactmeans.fit.cost_model import Workload
from exactmeans.fit.policy import able_algorithms
from metric_oracle import DIRECTED, unit

pytestmark = pytest.mark.core

SEEDS = range(8)
PRUNING = [
    name
    for name in able_algorithms(Workload(1, 1, 1, False, 8, 1.0, metric="cosine"))
    if name != "lloyd"
]
#: How far the centres of an attack are from each other.
SPREAD = {"float32": 3e-3, "float64": 3e-7}


def _lengths(rng: np.random.Generator, X: Array) -> Array:
    """Rows of other lengths in the same directions, up to rounding."""
    return np.asarray(X * rng.uniform(0.5, 2, (len(X), 1)))


def arcs(rng: np.random.Generator, dtype: str) -> Attack:
    """Heavy rows hold the centres; light rows lie at equal angles from two of them."""
    k, d = int(rng.integers(3, 9)), int(rng.integers(3, 12))
    anchors = unit(rng.normal(size=d) + SPREAD[dtype] * rng.normal(size=(k, d)))
    pairs = np.array([rng.choice(k, 2, replace=False) for _ in range(200)])
    a, b = anchors[pairs[:, 0]], anchors[pairs[:, 1]]
    aside = 0.5 * SPREAD[dtype] * rng.normal(size=(200, d))
    normal = (a - b) / np.linalg.norm(a - b, axis=1, keepdims=True)
    light = (a + b) / 2 + aside
    light -= (light * normal).sum(axis=1, keepdims=True) * normal
    heavy = anchors.astype(dtype)
    tiny = float(np.finfo(dtype).eps)
    weights = np.concatenate([np.ones(k), tiny * 10 ** rng.uniform(-2, 1, len(light))])
    X = np.concatenate([heavy, ulps(rng, _lengths(rng, light).astype(dtype))])
    return Attack(X, ulps(rng, heavy), weights)


def mirrored(rng: np.random.Generator, dtype: str) -> Attack:
    """Rows mirrored in their first column, and light rows on the mirror: ties all along."""
    n, d, spread = 120, 4, SPREAD[dtype]
    half = rng.normal(size=d) + spread * rng.normal(size=(n, d))
    half[:, 0] = spread * np.abs(rng.normal(size=n))
    image, between = half.copy(), half[:60].copy()
    image[:, 0] *= -1
    between[:, 0] = 0
    picks = rng.choice(n, 4, replace=False)
    tiny = float(np.finfo(dtype).eps)
    weights = np.concatenate([np.ones(2 * n), tiny * 10 ** rng.uniform(-3, 0, len(between))])
    X = np.concatenate([half, image, _lengths(rng, between)]).astype(dtype)
    init = np.concatenate([half[picks], image[picks]]).astype(dtype)
    return Attack(X, ulps(rng, init), weights)


def beside_centres(rng: np.random.Generator, dtype: str) -> Attack:
    """Rows and centres in pairs whose directions differ by a few units in the last place."""
    base = rng.normal(size=(6, 5)).astype(dtype)
    X = np.concatenate([ulps(rng, base, 4) for _ in range(40)])
    return Attack(X, np.concatenate([base, ulps(rng, base, 1)]))


def short_beside_long(rng: np.random.Generator, dtype: str) -> Attack:
    """One long row makes the products of short ones underflow; these start on their centres."""
    long, short = {"float32": (90, -80), "float64": (900, -450)}[dtype]
    d = 6
    usual = rng.normal(size=(200, d))
    small = np.ldexp(np.eye(d)[rng.integers(d, size=40)], short - rng.integers(0, 6, (40, 1)))
    axes = np.eye(d)
    init = np.concatenate([axes, axes + 0.3 * rng.normal(size=(d, d))])
    X = np.concatenate([usual, small, np.ldexp(rng.normal(size=(1, d)), long)])
    return Attack(X.astype(dtype), init.astype(dtype))


ATTACKS: list[Callable[[np.random.Generator, str], Attack]]
ATTACKS = [arcs, mirrored, beside_centres, short_beside_long]


def fit(metric: Any, attack: Attack, *, sparse: bool, **options: Any) -> KMeans:
    X: Any = sp.csr_matrix(attack.X) if sparse else attack.X
    model = KMeans(len(attack.init), metric=metric, init=attack.init, tol=0, **options)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Number of distinct clusters")
        return model.fit(X, sample_weight=attack.weights)


@pytest.mark.parametrize("algorithm", PRUNING)
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "csr"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("metric", DIRECTED)
@pytest.mark.parametrize("make", ATTACKS, ids=lambda make: make.__name__)
def test_pruned_labels_are_lloyds(
    make: Any, metric: str, dtype: str, sparse: bool, algorithm: str
) -> None:
    for seed in SEEDS:
        attack = make(np.random.default_rng(seed), dtype)
        for max_iter in (2, 4, 12):
            plain, pruned = (
                fit(metric, attack, sparse=sparse, algorithm=name, max_iter=max_iter)
                for name in ("lloyd", algorithm)
            )
            assert bits(pruned) == bits(plain), f"seed {seed}, {max_iter} iterations"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("make", ATTACKS[:3], ids=lambda make: make.__name__)
def test_bounds_prune_rows_of_the_attacks(make: Any, dtype: str) -> None:
    """What is never pruned is not attacked: some rows are skipped in each of them."""
    skipped = 0
    for seed in SEEDS:
        attack = make(np.random.default_rng(seed), dtype)
        model = fit("cosine", attack, sparse=False, algorithm="hamerly", max_iter=4)
        skipped += sum(record.skipped for record in model.history_)
    assert skipped > 0


def test_pruning_without_slack_would_give_other_labels() -> None:
    """The attacks have teeth: a Hamerly that leaves no room for rounding falls for them."""
    fooled = {
        dtype: sum(
            _slackless_differs(make(np.random.default_rng(seed), dtype))
            for make in ATTACKS[:3]
            for seed in range(12)
        )
        for dtype in DTYPES
    }
    assert min(fooled.values()) >= 5, fooled


def _slackless_differs(attack: Attack) -> bool:
    """By cosine, with bounds on chords."""
    X, weights = attack.X, attack.weights_or_ones()
    rows, length = unit(X), np.linalg.norm(X.astype(float), axis=1, keepdims=True)

    def update(centres: Array, labels: Array) -> Array:
        mine = [labels == j for j in range(len(centres))]
        sums = np.array([weights[own] @ rows[own] for own in mine])
        moved = np.where(sums.any(axis=1, keepdims=True), unit(sums), centres.astype(float))
        return np.asarray(moved.astype(X.dtype))

    return slackless_differs(
        X,
        unit(attack.init).astype(X.dtype),
        scores=lambda centres: products(X, centres),
        distances=lambda scores: np.sqrt(np.maximum(0, 2 + 2 * scores / length)),
        update=update,
    )
