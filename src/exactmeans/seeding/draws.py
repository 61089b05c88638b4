"""The seeding methods: draws and decisions. The engine does all O(n) work."""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from exactmeans import _core
from exactmeans.data.arrays import Double
from exactmeans.engine.local.engine import LocalEngine
from exactmeans.engine.protocol import Engine, Seeding
from exactmeans.metrics import Metric


class CountedRows(Protocol):
    """Rows of which only number and weights are needed."""

    @property
    def n(self) -> int: ...
    @property
    def metric(self) -> Metric: ...
    def counted(self) -> Double | None: ...


def plus_plus(
    engine: Engine,
    k: int,
    rng: np.random.RandomState,
    exponent: int,
    n_local_trials: int | None = None,
) -> NDArray[np.intp]:
    """Row numbers of k seeds. Arthur & Vassilvitskii 2007, greedy form; draws as scikit-learn."""
    trials = n_local_trials or 2 + int(math.log(k))
    first = one_row(engine, rng)
    seeding = engine.seeding(exponent, candidates=k * trials)
    seeding.start(first)
    rows = np.array([first, *seeding.greedy(rng.random_sample((k - 1, trials)))], dtype=np.intp)
    counted = engine.counted() if engine.metric.directed else None
    if counted is not None and not counted[rows].all():
        # Every direction is a seed already: the draws fell on row 0, which may have no direction.
        return filled_up(engine, rows[counted[rows] > 0].tolist(), k)
    return rows


def parallel(
    engine: Engine,
    k: int,
    rng: np.random.RandomState,
    exponent: int,
    oversampling: float = 2.0,
    rounds: int = 5,
) -> NDArray[np.intp]:
    """Row numbers of k seeds by k-means||. Bahmani et al. 2012; draws as in seed/bernoulli.hpp."""
    expected = oversampling * k
    seeding = engine.seeding(exponent, candidates=int(expected * rounds))
    chosen = [one_row(engine, rng)]
    keys = rng.randint(2**32, size=rounds, dtype=np.uint32)
    seeding.start(chosen[0])
    for key in keys.tolist():
        if seeding.potential > 0:
            kept = seeding.sample_bernoulli(key, expected)
            seeding.add(kept)
            chosen += kept
    # Duplicates of a candidate represent no row. Rows drawn here differ from all candidates.
    distinct = np.count_nonzero(seeding.seed_weights())
    while distinct < k and seeding.potential > 0:
        (row,) = seeding.draw(rng.random_sample(1))
        seeding.add([row])
        chosen.append(row)
        distinct += 1
    weights = seeding.seed_weights()
    stand = np.flatnonzero(weights)
    rows = np.array(chosen, dtype=np.intp)[stand]
    if len(rows) < k:
        return filled_up(engine, rows.tolist(), k)
    order = np.argsort(rows)
    rows = rows[order]
    few = LocalEngine([engine.pick(rows)], weights[stand][order], engine.n_jobs, engine.metric)
    few.examine()
    return np.asarray(rows[plus_plus(few, k, rng, exponent)])


def d_alpha(
    engine: Engine,
    k: int,
    rng: np.random.RandomState,
    exponent: int,
    alpha: float,
    *,
    by_rejection: bool | None = None,
) -> NDArray[np.intp]:
    """Row numbers of k seeds, each drawn by weight * distance**alpha among those not chosen."""
    if alpha == 0:
        return random_rows(engine, k, rng)
    first = one_row(engine, rng)
    # The L1 objective sums distances, not squares: its D^1 is the D^2 of other metrics.
    power = 2 * alpha if engine.metric.l1 else alpha
    seeding = engine.seeding(exponent, candidates=k, alpha=2.0 if alpha == np.inf else power)
    seeding.start(first)
    if alpha == np.inf:
        chosen = _by_distance(seeding, [first], k)
    elif by_rejection or (by_rejection is None and power == 2):
        chosen = _by_rejection(seeding, [first], k, rng)
    else:
        chosen = [first]
        while len(chosen) < k and seeding.potential > 0:
            (row,) = seeding.draw(rng.random_sample(1))
            seeding.add([row])
            chosen.append(row)
    return filled_up(engine, chosen, k)


def _by_rejection(
    seeding: Seeding, chosen: list[int], k: int, rng: np.random.RandomState
) -> list[int]:
    """Rejection sampling: propose by stored sampling weights, accept with current / stored.

    Sampling weights only decrease, so a row is accepted with probability proportional to its
    current weight. All rows are updated only when proposals have cost about as much as that would:
    about k**2 / 2 distances instead of n * k, unless the weights fall quickly. Costs are in
    proposals, each worth 80,000 bulk multiplications; they affect the time only.
    """
    spent = 0.0
    while len(chosen) < k and seeding.potential > 0:
        (row,) = seeding.draw(rng.random_sample(1))
        before, now = seeding.refresh(row)
        spent += 1 + seeding.deferred * seeding.width / 16_000
        if rng.random_sample() * before < now:
            seeding.defer(row)
            seeding.refresh(row)
            chosen.append(row)
        elif seeding.deferred and spent > 2 + seeding.n * seeding.deferred * seeding.width / 80_000:
            seeding.add_deferred()
            spent = 0.0
    return chosen


def _by_distance(seeding: Seeding, chosen: list[int], k: int) -> list[int]:
    while len(chosen) < k and (row := seeding.farthest()) >= 0:
        seeding.add([row])
        chosen.append(row)
    return chosen


def farthest_rows(engine: Engine, k: int, exponent: int, mean: Double) -> NDArray[np.intp]:
    """-1 for the mean, then row numbers: each the farthest from all before it."""
    seeding = engine.seeding(exponent, candidates=k)
    seeding.start(mean)
    return filled_up(engine, _by_distance(seeding, [-1], k), k)


def filled_up(engine: Engine, chosen: list[int], k: int) -> NDArray[np.intp]:
    """The chosen rows, extended to k by others; for data in which every row equals a seed.

    Rows of weight 0 come last. Where only directions count, rows without weight or direction are
    not used; chosen rows are repeated instead.
    """
    rows = np.array(chosen, dtype=np.intp)
    if len(rows) >= k:
        return rows
    weights = engine.counted()
    enough = engine.n if weights is not None else min(engine.n, k + len(rows))
    left = np.setdiff1d(np.arange(enough), rows)
    if weights is not None and engine.metric.directed:
        left = left[weights[left] > 0]
    elif weights is not None:
        left = left[np.argsort(weights[left] == 0, kind="stable")]
    rows = np.concatenate([rows, left[: k - len(rows)]])
    again = np.resize(rows[rows >= 0], k - len(rows))
    return np.concatenate([rows, again])


def random_rows(engine: CountedRows, k: int, rng: np.random.RandomState) -> NDArray[np.intp]:
    """Row numbers of k distinct rows, drawn by weight as scikit-learn draws them."""
    weights = engine.counted()
    if weights is not None and (found := np.count_nonzero(weights)) < k:
        if engine.metric.directed:
            raise ValueError(
                f"X must have at least n_clusters={k} rows that are not zero and have a positive "
                f"weight when init='random', but it has {found}."
            )
        raise ValueError(
            f"sample_weight must be positive for at least n_clusters={k} rows when init='random', "
            f"but it is for {found}."
        )
    drawn = rng.choice(engine.n, size=k, replace=False, p=probabilities(engine))
    return np.asarray(drawn, dtype=np.intp)


def one_row(engine: Engine, rng: np.random.RandomState) -> int:
    """The row that rng.choice(n, p=...) draws, without its checks and its n probabilities."""
    weights = engine.counted()
    total = engine.n if weights is None else weights.sum()
    return _core.row_at(rng.random_sample(), engine.n, weights, total)


def probabilities(engine: CountedRows) -> NDArray[np.float64]:
    """Probabilities of the rows by weight; scikit-learn always passes weights."""
    counted = engine.counted()
    weights = np.ones(engine.n) if counted is None else counted
    return np.asarray(weights / weights.sum(), dtype=np.float64)
