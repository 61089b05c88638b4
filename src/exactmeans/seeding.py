"""Initial centres: each method as a function that returns centres and row numbers.

Methods only draw and decide; whatever is O(n) is done by the engine. Which to use when, and what
each costs, is in docs/seeding.md.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from exactmeans import _core
from exactmeans._centres import for_users
from exactmeans._metrics import EUCLIDEAN, METRICS, MetricName, ZeroRows
from exactmeans._metrics import NAMES as METRIC_NAMES
from exactmeans._problem import centre_of_all
from exactmeans._validation import (
    Double,
    Matrix,
    as_blocks,
    check_choice,
    check_int,
    check_n_jobs,
    check_random_state,
    check_real,
    check_weights,
    count_rows,
    is_source,
    refuse_few_rows,
)
from exactmeans.engines.engine import Engine
from exactmeans.engines.local import LocalEngine
from exactmeans.engines.seeding import Seeding

__all__ = ["d_sampling", "furthest", "kmeans_parallel", "kmeans_plusplus", "random"]

Seeds: TypeAlias = tuple[Matrix, NDArray[np.intp]]  # centres, and which rows they are

#: What `init` may be beside centres and callables, for type checkers.
InitName = Literal["k-means++", "k-means||", "random", "furthest"] | tuple[Literal["d"], float]
NAMES = ("k-means++", "k-means||", "random", "furthest")
_OPTIONS = {"k-means++": ("n_local_trials",), "k-means||": ("oversampling", "rounds")}


def kmeans_plusplus(
    X: Any,
    n_clusters: int,
    *,
    sample_weight: Any = None,
    x_squared_norms: Any = None,
    random_state: Any = None,
    n_local_trials: int | None = None,
    metric: MetricName = "euclidean",
    zero_rows: ZeroRows = "error",
) -> Seeds:
    """Choose initial centres by greedy k-means++, with scikit-learn's very draws.

    Parameters
    ----------
    X : array-like, sparse matrix or BlockSource of shape (n_samples, n_features)
        The rows to pick from.
    n_clusters : int
        How many to pick.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the rows.
    x_squared_norms : array-like of shape (n_samples,), default=None
        Accepted for compatibility; only its length is looked at, since distances are computed in
        float64 from the rows themselves.
    random_state : int, RandomState instance or None, default=None
        Makes the choice reproducible.
    n_local_trials : int, default=None
        Candidates per step, of which the best is taken; None means 2 + floor(ln(n_clusters)).
    metric : {'euclidean', 'cosine', 'angular', 'manhattan'}, default='euclidean'
        Rows are drawn by weight times squared distance, 1 - cos, squared angle or L1 distance.
    zero_rows : {'error', 'keep'}, default='error'
        As in KMeans: rows of zeros under 'cosine' and 'angular', which are never chosen. Other rows
        are repeated where there are too few.

    Returns
    -------
    centers : ndarray or CSR array of shape (n_clusters, n_features)
        CSR if X is sparse and an ndarray would be large; of length 1 where only directions count.
    indices : ndarray of shape (n_clusters,)
        Which rows they are.

    Examples
    --------
    >>> import numpy as np
    >>> from exactmeans import kmeans_plusplus
    >>> X = np.array([[1., 2], [1, 4], [1, 0], [10, 2], [10, 4], [10, 0]])
    >>> centers, indices = kmeans_plusplus(X, n_clusters=2, random_state=0)
    >>> indices
    array([3, 2])
    """
    engine, k, exponent = _ready(X, n_clusters, sample_weight, metric, zero_rows)
    if n_local_trials is not None:
        check_int("n_local_trials", n_local_trials, 1)
    if x_squared_norms is not None and np.shape(x_squared_norms) != (engine.n,):
        raise ValueError(
            f"The length of x_squared_norms {np.shape(x_squared_norms)} should be equal to the "
            f"length of n_samples {engine.n}."
        )
    rng = check_random_state(random_state)
    indices = plus_plus(engine, k, rng, exponent, n_local_trials)
    return for_users(engine.take(indices), "auto"), indices


def kmeans_parallel(
    X: Any,
    n_clusters: int,
    *,
    oversampling: float = 2.0,
    rounds: int = 5,
    sample_weight: Any = None,
    random_state: Any = None,
    n_jobs: int | None = None,
    metric: MetricName = "euclidean",
    zero_rows: ZeroRows = "error",
) -> Seeds:
    """Choose initial centres by k-means||: a few passes over the rows, however many centres.

    Parameters
    ----------
    X : array-like, sparse matrix or BlockSource of shape (n_samples, n_features)
        The rows to pick from.
    n_clusters : int
        How many to pick.
    oversampling : float, default=2.0
        Candidates expected per round, as a multiple of `n_clusters`.
    rounds : int, default=5
        Passes in which candidates are gathered; greedy k-means++ then chooses among them.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the rows.
    random_state : int, RandomState instance or None, default=None
        Makes the choice reproducible.
    n_jobs : int or None, default=None
        Threads to use; the choice does not depend on it.
    metric, zero_rows : str
        As in `kmeans_plusplus`.

    Returns
    -------
    centers : ndarray or CSR array of shape (n_clusters, n_features)
        CSR if X is sparse and an ndarray would be large; of length 1 where only directions count.
    indices : ndarray of shape (n_clusters,)
        Which rows they are.

    References
    ----------
    B. Bahmani et al., "Scalable k-means++", VLDB 2012.
    """
    engine, k, exponent = _ready(X, n_clusters, sample_weight, metric, zero_rows, n_jobs)
    options = check_options({"oversampling": oversampling, "rounds": rounds}, "k-means||", "")
    centres, indices = choose(
        engine, "k-means||", k, check_random_state(random_state), exponent, options
    )
    return for_users(centres, "auto"), indices


def random(
    X: Any,
    n_clusters: int,
    *,
    sample_weight: Any = None,
    random_state: Any = None,
    n_jobs: int | None = None,
    metric: MetricName = "euclidean",
    zero_rows: ZeroRows = "error",
) -> Seeds:
    """Choose distinct rows at random, by weight: what `init="random"` starts from.

    Parameters
    ----------
    X : array-like, sparse matrix or BlockSource of shape (n_samples, n_features)
    n_clusters : int
    sample_weight : array-like of shape (n_samples,), default=None
    random_state : int, RandomState instance or None, default=None
    n_jobs : int or None, default=None
    metric, zero_rows : str
        As in `kmeans_plusplus`.

    Returns
    -------
    centers : ndarray or CSR array of shape (n_clusters, n_features)
        CSR if X is sparse and an ndarray would be large; of length 1 where only directions count.
    indices : ndarray of shape (n_clusters,)
    """
    engine, k, exponent = _ready(X, n_clusters, sample_weight, metric, zero_rows, n_jobs)
    centres, indices = choose(engine, "random", k, check_random_state(random_state), exponent, {})
    return for_users(centres, "auto"), indices


def furthest(
    X: Any,
    n_clusters: int,
    *,
    sample_weight: Any = None,
    n_jobs: int | None = None,
    metric: MetricName = "euclidean",
    zero_rows: ZeroRows = "error",
) -> Seeds:
    """Start from the mean of the rows, then always take the row farthest from all centres.

    The mean is that of `metric`: its direction, or the median for 'manhattan'. Nothing is drawn, so
    there is no `random_state`. Weights move the mean and leave out rows of weight 0; otherwise they
    do not matter.

    Parameters
    ----------
    X : array-like, sparse matrix or BlockSource of shape (n_samples, n_features)
    n_clusters : int
    sample_weight : array-like of shape (n_samples,), default=None
    n_jobs : int or None, default=None
    metric, zero_rows : str
        As in `kmeans_plusplus`.

    Returns
    -------
    centers : ndarray or CSR array of shape (n_clusters, n_features)
        CSR if X is sparse and an ndarray would be large; of length 1 where only directions count.
    indices : ndarray of shape (n_clusters,)
        Which rows they are; -1 for the mean, which is none.
    """
    engine, k, exponent = _ready(X, n_clusters, sample_weight, metric, zero_rows, n_jobs)
    if engine.metric.l1 and is_source(X):
        raise ValueError(
            "X must not come in blocks for furthest rows and metric='manhattan', which start from "
            "the median of all rows."
        )
    centres, indices = choose(engine, "furthest", k, np.random.RandomState(0), exponent, {})
    return for_users(centres, "auto"), indices


def d_sampling(
    X: Any,
    n_clusters: int,
    alpha: float = 2.0,
    *,
    sample_weight: Any = None,
    random_state: Any = None,
    n_jobs: int | None = None,
    metric: MetricName = "euclidean",
    zero_rows: ZeroRows = "error",
) -> Seeds:
    """Draw rows one by one with probability proportional to weight * distance**alpha.

    The distance is that to the nearest centre so far. `alpha=2` is plain k-means++ (one candidate
    per step, unlike the greedy `kmeans_plusplus`), 0 draws by weight alone, infinity takes the
    farthest row. Plain k-means++ is drawn by rejection, which looks at few rows. The distance is
    sqrt(1 - cos) for 'cosine', the angle for 'angular', and for 'manhattan' the L1 distance, whose
    plain k-means++ is `alpha=1`.

    Parameters
    ----------
    X : array-like, sparse matrix or BlockSource of shape (n_samples, n_features)
    n_clusters : int
    alpha : float, default=2.0
        From 0 to infinity.
    sample_weight : array-like of shape (n_samples,), default=None
    random_state : int, RandomState instance or None, default=None
    n_jobs : int or None, default=None
    metric, zero_rows : str
        As in `kmeans_plusplus`.

    Returns
    -------
    centers : ndarray or CSR array of shape (n_clusters, n_features)
        CSR if X is sparse and an ndarray would be large; of length 1 where only directions count.
    indices : ndarray of shape (n_clusters,)
    """
    engine, k, exponent = _ready(X, n_clusters, sample_weight, metric, zero_rows, n_jobs)
    init = ("d", check_alpha("alpha", alpha))
    centres, indices = choose(engine, init, k, check_random_state(random_state), exponent, {})
    return for_users(centres, "auto"), indices


# What KMeans calls --------------------------------------------------------------------------------


def check_init(init: str | tuple[str, float]) -> str | tuple[str, float]:
    """A name, or ("d", alpha)."""
    if isinstance(init, str):
        return check_choice("init", init, NAMES)
    if len(init) != 2:
        raise ValueError(f"init must be ('d', alpha) if it is a tuple with a name, not {init!r}.")
    check_choice("init[0]", init[0], ("d",))
    return "d", check_alpha("init[1]", init[1])


def check_options(
    options: Mapping[str, Any] | None, init: Any, what: str = "init_options"
) -> dict[str, Any]:
    """The options that this init takes, each checked."""
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise ValueError(f"{what} must be None or a dict, but it is {options!r}.")
    allowed = _OPTIONS.get(init, ()) if isinstance(init, str) else ()
    checked: dict[str, Any] = {}
    for name, value in options.items():
        if name not in allowed:
            known = ", ".join(map(repr, allowed)) if allowed else "nothing"
            raise ValueError(f"{what} must hold {known} for init={init!r}, not {name!r}.")
        shown = f"{what}[{name!r}]" if what else name
        if name == "oversampling":
            checked[name] = check_real(shown, value, 0)
            if checked[name] == 0:
                raise ValueError(f"{shown} must be above 0, but it is {value!r}.")
        else:
            checked[name] = check_int(shown, value, 1)
    return checked


def check_alpha(name: str, alpha: Any) -> float:
    """From 0 to infinity, both included."""
    real = isinstance(alpha, numbers.Real) and not isinstance(alpha, bool)
    if not real or not float(alpha) >= 0:
        raise ValueError(f"{name} must be a number from 0 to infinity, but it is {alpha!r}.")
    return float(alpha)


def choose(
    engine: Engine,
    init: str | tuple[str, float],
    k: int,
    rng: np.random.RandomState,
    exponent: int,
    options: Mapping[str, Any],
) -> Seeds:
    """Centres and row numbers by a checked `init` and its checked options."""
    mean: Double | None = None
    if isinstance(init, tuple):
        indices = d_alpha(engine, k, rng, exponent, init[1])
    elif init == "k-means++":
        indices = plus_plus(engine, k, rng, exponent, **options)
    elif init == "k-means||":
        indices = parallel(engine, k, rng, exponent, **options)
    elif init == "random":
        indices = random_rows(engine, k, rng)
    else:
        mean = centre_of_all(engine)
        indices = farthest_rows(engine, k, exponent, mean)
    if mean is None:
        return engine.take(indices), indices
    first, rest = mean[np.newaxis].astype(engine.dtype), engine.take(indices[1:])
    if engine.sparse:
        return sp.vstack([sp.csr_array(first), rest], format="csr"), indices
    return np.concatenate([first, rest]), indices


def _ready(
    X: Any,
    n_clusters: Any,
    sample_weight: Any,
    metric: Any,
    zero_rows: Any,
    n_jobs: int | None = None,
) -> tuple[LocalEngine, int, int]:
    """The rows behind an engine, the number of centres and the exponent of what they cost."""
    way = METRICS[check_choice("metric", metric, METRIC_NAMES)]
    check_choice("zero_rows", zero_rows, ("error", "keep"))
    blocks = as_blocks(BaseEstimator(), X, reset=True)
    n = count_rows(blocks)
    k = check_int("n_clusters", n_clusters, 1)
    refuse_few_rows(n, k)
    weights = check_weights(sample_weight, n)
    engine = LocalEngine(blocks, weights, check_n_jobs(n_jobs), way, zero_rows)
    survey = engine.examine()
    exponent = _core.safe_exponent(survey.largest, engine.dtype == np.float32)
    return engine, k, exponent if way is EUCLIDEAN else 0


# The methods --------------------------------------------------------------------------------------


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
        # Every direction is a seed, so the draws gave the first row, which may have none.
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
    """Row numbers of k seeds by k-means||. Bahmani et al. 2012; coins as in seed/coins.hpp."""
    expected = oversampling * k
    seeding = engine.seeding(exponent, candidates=int(expected * rounds))
    chosen = [one_row(engine, rng)]
    keys = rng.randint(2**32, size=rounds, dtype=np.uint32)
    seeding.start(chosen[0])
    for key in keys.tolist():
        if seeding.potential > 0:
            kept = seeding.toss(key, expected)
            seeding.absorb(kept)
            chosen += kept
    # Copies of a candidate stand for no row. What is drawn here is apart from all candidates.
    distinct = np.count_nonzero(seeding.followers())
    while distinct < k and seeding.potential > 0:
        (row,) = seeding.draw(rng.random_sample(1))
        seeding.absorb([row])
        chosen.append(row)
        distinct += 1
    weights = seeding.followers()
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
    # By L1 the objective adds up distances, not their squares: 1 is what 2 is elsewhere.
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
            seeding.absorb([row])
            chosen.append(row)
    return filled_up(engine, chosen, k)


def _by_rejection(
    seeding: Seeding, chosen: list[int], k: int, rng: np.random.RandomState
) -> list[int]:
    """Propose by masses that may be out of date, accept with the share that is left of them.

    Masses only shrink, so a row is accepted with probability proportional to its mass now. All rows
    are brought up to date only when proposals have cost about as much as that would: some k**2 / 2
    distances in place of n * k, unless masses fall quickly. Costs are in proposals, each worth
    80,000 multiplications made in bulk; they decide nothing but the time it takes.
    """
    spent = 0.0
    while len(chosen) < k and seeding.potential > 0:
        (row,) = seeding.draw(rng.random_sample(1))
        before, now = seeding.refresh(row)
        spent += 1 + seeding.pending * seeding.width / 16_000
        if rng.random_sample() * before < now:
            seeding.put_off(row)
            seeding.refresh(row)
            chosen.append(row)
        elif seeding.pending and spent > 2 + seeding.n * seeding.pending * seeding.width / 80_000:
            seeding.catch_up()
            spent = 0.0
    return chosen


def _by_distance(seeding: Seeding, chosen: list[int], k: int) -> list[int]:
    while len(chosen) < k and (row := seeding.farthest()) >= 0:
        seeding.absorb([row])
        chosen.append(row)
    return chosen


def farthest_rows(engine: Engine, k: int, exponent: int, mean: Double) -> NDArray[np.intp]:
    """-1 for the mean, then row numbers: each the farthest from all before it."""
    seeding = engine.seeding(exponent, candidates=k)
    seeding.start(mean)
    return filled_up(engine, _by_distance(seeding, [-1], k), k)


def filled_up(engine: Engine, chosen: list[int], k: int) -> NDArray[np.intp]:
    """k rows, of which some are chosen: when every row equals a seed, any other row repeats one.

    Rows of weight 0 come last. Where only directions count, rows that do not count are not used at
    all, since some have no direction; chosen rows are repeated instead.
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


def random_rows(engine: Engine, k: int, rng: np.random.RandomState) -> NDArray[np.intp]:
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
    """What rng.choice(n, p=...) gives, without its checks and n chances in memory."""
    weights = engine.counted()
    total = engine.n if weights is None else weights.sum()
    return _core.row_at(rng.random_sample(), engine.n, weights, total)


def probabilities(engine: Engine) -> NDArray[np.float64]:
    """Chances of the rows, from weights of which scikit-learn always has some."""
    counted = engine.counted()
    weights = np.ones(engine.n) if counted is None else counted
    return np.asarray(weights / weights.sum(), dtype=np.float64)
