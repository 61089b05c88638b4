"""Attacks on the rounding slack: rows so near to ties that pruning without it goes wrong.

A bound speaks about true distances, plain Lloyd about computed scores. Where two scores differ by
less than their rounding, a bound that leaves no room for it keeps a label that Lloyd changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import oracle
from attacks import Array, Attack, products, slackless_differs, ulps
from cases import ABLE, ALGORITHMS, DTYPES, bits, fit

pytestmark = pytest.mark.core

SEEDS = range(10)


def _on_bisectors(rng: np.random.Generator, centres: Array, n: int, reach: float) -> Array:
    """Points at equal distance from two centres drawn at random, up to rounding."""
    k, d = centres.shape
    pairs = np.array([rng.choice(k, 2, replace=False) for _ in range(n)])
    a, b = centres[pairs[:, 0]], centres[pairs[:, 1]]
    normal = (b - a) / np.linalg.norm(b - a, axis=1, keepdims=True)
    along = rng.normal(0, reach, (n, d))
    along -= np.sum(along * normal, axis=1, keepdims=True) * normal
    return np.asarray((a + b) / 2 + along)


def bisectors(rng: np.random.Generator, dtype: str) -> Attack:
    """Heavy rows hold the centres; light rows on bisectors move them by a rounding or so.

    The centres hardly move from iteration to iteration, so bounds stay as tight as they can be
    just where labels hang on the last bit.
    """
    k, d = int(rng.integers(2, 7)), int(rng.integers(1, 9))
    anchors = rng.normal(0, 3, (k, d)).astype(dtype)
    light = ulps(rng, _on_bisectors(rng, anchors.astype("float64"), 200, 1.0).astype(dtype))
    unit = float(np.finfo(dtype).eps)
    weights = np.concatenate([np.ones(k), unit * 10 ** rng.uniform(-2, 1, len(light))])
    X = np.concatenate([anchors, light])
    return Attack(X, ulps(rng, anchors), weights)


def _mirrored(rng: np.random.Generator, half: Array, middle: float, dtype: str) -> Attack:
    """Rows mirrored in their first column, and light rows on the mirror.

    Centres that start as mirror images stay so up to rounding, through many iterations, and the
    rows between them are ties all along. Those weigh next to nothing, or the ties would end it.
    """
    n = len(half)
    image = half.copy()
    image[:, 0] = 2 * middle - image[:, 0]
    between = half[rng.integers(n, size=n // 2)].copy()
    between[:, 0] = middle
    picks = rng.choice(n, 5, replace=False)
    unit = float(np.finfo(dtype).eps)
    weights = np.concatenate([np.ones(2 * n), unit * 10 ** rng.uniform(-3, 0, len(between))])
    X = np.concatenate([half, image, between]).astype(dtype)
    return Attack(X, np.concatenate([half[picks], image[picks]]).astype(dtype), weights)


def letters(rng: np.random.Generator, dtype: str) -> Attack:
    """Small whole numbers around 1000: ties by the dozen, and a shift that is not exact."""
    half = rng.integers(0, 17, (150, 4)) + 1000.0
    half[:, 0] = rng.integers(1000, 1008, 150)
    return _mirrored(rng, half, 1008.0, dtype)


def tenths(rng: np.random.Generator, dtype: str) -> Attack:
    """Ties in decimal that are rounding ties in binary."""
    half = rng.integers(-30, 31, (150, 3)) / 10
    half[:, 0] = rng.integers(-30, 7, 150) / 10
    return _mirrored(rng, half, 0.7, dtype)


def beside_centres(rng: np.random.Generator, dtype: str) -> Attack:
    """Rows and centres in pairs that differ by a few units in the last place."""
    base = rng.normal(size=(6, 3)).astype(dtype)
    X = np.concatenate([ulps(rng, base, 4) for _ in range(40)])
    init = np.concatenate([base, ulps(rng, base, 1)])
    return Attack(X, init)


def far_away(rng: np.random.Generator, dtype: str) -> Attack:
    """Two tight groups and a crowd on their bisector, far off: scores lose most of their digits."""
    step = {"float32": 2.0**-6, "float64": 2.0**-30}[dtype]
    grid = rng.integers(-8, 9, (300, 3)) * step
    X = (np.where(rng.random((300, 1)) < 0.05, 1e4, 1e3) + grid).astype(dtype)
    return Attack(X, X[rng.choice(300, 8, replace=False)])


ATTACKS: list[Callable[[np.random.Generator, str], Attack]]
ATTACKS = [bisectors, letters, beside_centres, tenths, far_away]


def attack_of(make: Callable[..., Attack], dtype: str, seed: int) -> Attack:
    return make(np.random.default_rng(seed), dtype)


@pytest.mark.parametrize("algorithm", [name for name in ALGORITHMS if name != "lloyd"])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "csr"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("make", ATTACKS, ids=lambda make: make.__name__)
def test_pruned_labels_are_lloyds(make: Any, dtype: str, sparse: bool, algorithm: str) -> None:
    if algorithm not in ABLE["csr" if sparse else "dense"]:
        pytest.skip(f"{algorithm} does not take CSR rows")
    for seed in SEEDS:
        attack = attack_of(make, dtype, seed)
        if algorithm == "moving":  # which looks at centres that moved if rows are many
            attack = attack.times(4)
        X: Any = sp.csr_matrix(attack.X) if sparse else attack.X
        for max_iter in (2, 4, 30):
            plain, pruned = (
                fit(X, attack.init, attack.weights, algorithm=name, max_iter=max_iter)
                for name in ("lloyd", algorithm)
            )
            assert bits(pruned) == bits(plain), f"seed {seed}, {max_iter} iterations"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("make", ATTACKS, ids=lambda make: make.__name__)
def test_the_attacks_come_within_the_slack(make: Any, dtype: str) -> None:
    """There are rows whose two best distances differ by less than rounding, at two centres."""
    near = 0
    for seed in SEEDS:
        attack = attack_of(make, dtype, seed)
        centres = fit(attack.X, attack.init, attack.weights, max_iter=1).cluster_centers_
        near += _rows_within_slack(attack.X, centres)
    assert near >= 10, f"only {near} rows are near a tie"


def _rows_within_slack(X: Array, centres: Array) -> int:
    """Rows with two different centres whose squared distances differ by less than the slack."""
    rows, C = X.astype(np.longdouble), np.unique(centres, axis=0).astype(np.longdouble)
    if len(C) < 2:
        return 0
    mean = rows.mean(axis=0) if oracle._is_shifted(X.astype(float), X.mean(axis=0)) else 0.0
    d2 = np.sort(np.square(rows[:, None] - C).sum(axis=2), axis=1)
    unit = np.longdouble(np.finfo(X.dtype).eps) / 2
    norm = np.sqrt(np.square(rows - mean).sum(axis=1))
    slack = 6 * (X.shape[1] + 12) * unit * np.square(norm + np.sqrt(d2[:, 0]))
    return int(np.sum(d2[:, 1] - d2[:, 0] < slack))


def test_pruning_without_slack_would_give_other_labels() -> None:
    """The attacks have teeth: a Hamerly that leaves no room for rounding falls for them."""
    fooled = [
        make.__name__
        for make in ATTACKS
        for dtype in DTYPES
        for seed in range(12)
        if _slackless_differs(attack_of(make, dtype, seed))
    ]
    assert len(fooled) >= 5, f"only {len(fooled)} of the attacks fool it"


def _slackless_differs(attack: Attack) -> bool:
    X, weights = attack.X, attack.weights_or_ones()
    norm2 = np.square(X.astype(float)).sum(axis=1, keepdims=True)
    return slackless_differs(
        X,
        attack.init,
        scores=lambda centres: (centres * centres).sum(axis=1) / 2 + products(X, centres),
        distances=lambda scores: np.sqrt(np.maximum(0, norm2 + 2 * scores)),
        update=lambda centres, labels: oracle.update(X, centres, labels, weights),
    )
