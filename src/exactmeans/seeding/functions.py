"""The public functions of `exactmeans.seeding`: they check arguments and prepare the engine."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from exactmeans import _core
from exactmeans.data.centres import for_users
from exactmeans.data.rows import refuse_few_rows
from exactmeans.data.stream import as_blocks, count_rows, is_source
from exactmeans.data.weights import check_weights
from exactmeans.engine.local.engine import LocalEngine
from exactmeans.metrics import EUCLIDEAN, METRIC_NAMES, METRICS, MetricName, ZeroRows
from exactmeans.parameters import (
    check_choice,
    check_int,
    check_n_jobs,
    check_random_state,
)
from exactmeans.seeding.draws import plus_plus
from exactmeans.seeding.init import Seeds, check_alpha, check_options, choose_seeds

__all__ = ["d_sampling", "furthest", "kmeans_parallel", "kmeans_plusplus", "random"]


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
    """Choose initial centres by greedy k-means++, with the draws of scikit-learn.

    Parameters
    ----------
    X : array-like, sparse matrix or BlockSource of shape (n_samples, n_features)
        The rows to pick from.
    n_clusters : int
        How many to pick.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the rows.
    x_squared_norms : array-like of shape (n_samples,), default=None
        Accepted for compatibility; only its length is checked, since distances are computed in
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

    Examples
    --------
    >>> import numpy as np
    >>> from exactmeans import seeding
    >>> X = np.array([[0.0], [1.0], [10.0], [11.0], [50.0]])
    >>> centers, indices = seeding.kmeans_parallel(X, 3, random_state=0)
    >>> centers.shape, len(set(indices))
    ((3, 1), 3)
    """
    engine, k, exponent = _ready(X, n_clusters, sample_weight, metric, zero_rows, n_jobs)
    options = check_options({"oversampling": oversampling, "rounds": rounds}, "k-means||", "")
    centres, indices = choose_seeds(
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

    Examples
    --------
    >>> import numpy as np
    >>> from exactmeans import seeding
    >>> X = np.array([[0.0], [1.0], [10.0], [11.0], [50.0]])
    >>> centers, indices = seeding.random(X, 3, random_state=0)
    >>> centers.shape, len(set(indices))
    ((3, 1), 3)
    """
    engine, k, exponent = _ready(X, n_clusters, sample_weight, metric, zero_rows, n_jobs)
    centres, indices = choose_seeds(
        engine, "random", k, check_random_state(random_state), exponent, {}
    )
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

    Examples
    --------
    >>> import numpy as np
    >>> from exactmeans import seeding
    >>> X = np.array([[0.0], [1.0], [10.0], [11.0], [50.0]])
    >>> centers, indices = seeding.furthest(X, 3)
    >>> centers.ravel().tolist(), indices.tolist()
    ([14.4, 50.0, 0.0], [-1, 4, 0])
    """
    engine, k, exponent = _ready(X, n_clusters, sample_weight, metric, zero_rows, n_jobs)
    if engine.metric.l1 and is_source(X):
        raise ValueError(
            "X must not come in blocks for furthest rows and metric='manhattan', which start from "
            "the median of all rows."
        )
    centres, indices = choose_seeds(engine, "furthest", k, np.random.RandomState(0), exponent, {})
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
    farthest row. Plain k-means++ is drawn by rejection, which reads few rows. The distance is
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

    Examples
    --------
    >>> import numpy as np
    >>> from exactmeans import seeding
    >>> X = np.array([[0.0], [1.0], [10.0], [11.0], [50.0]])
    >>> centers, indices = seeding.d_sampling(X, 3, alpha=2, random_state=0)
    >>> centers.shape, len(set(indices))
    ((3, 1), 3)
    """
    engine, k, exponent = _ready(X, n_clusters, sample_weight, metric, zero_rows, n_jobs)
    init = ("d", check_alpha("alpha", alpha))
    centres, indices = choose_seeds(engine, init, k, check_random_state(random_state), exponent, {})
    return for_users(centres, "auto"), indices


def _ready(
    X: Any,
    n_clusters: Any,
    sample_weight: Any,
    metric: Any,
    zero_rows: Any,
    n_jobs: int | None = None,
) -> tuple[LocalEngine, int, int]:
    """The engine of the rows, the number of centres and the exponent of the objective."""
    chosen_metric = METRICS[check_choice("metric", metric, METRIC_NAMES)]
    check_choice("zero_rows", zero_rows, ("error", "keep"))
    blocks = as_blocks(BaseEstimator(), X, reset=True)
    n = count_rows(blocks)
    k = check_int("n_clusters", n_clusters, 1)
    refuse_few_rows(n, k)
    weights = check_weights(sample_weight, n)
    engine = LocalEngine(blocks, weights, check_n_jobs(n_jobs), chosen_metric, zero_rows)
    survey = engine.examine()
    exponent = _core.safe_exponent(survey.largest, engine.dtype == np.float32)
    return engine, k, exponent if chosen_metric is EUCLIDEAN else 0
