"""Initial centres."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from exactmeans import _core
from exactmeans._validation import (
    as_blocks,
    check_int,
    check_n_jobs,
    check_weights,
    refuse_nonfinite,
)
from exactmeans.engines.local import LocalEngine

__all__ = ["kmeans_plusplus"]


def kmeans_plusplus(
    X: Any,
    n_clusters: int,
    *,
    sample_weight: Any = None,
    x_squared_norms: Any = None,
    random_state: Any = None,
    n_local_trials: int | None = None,
) -> tuple[NDArray[Any], NDArray[np.intp]]:
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

    Returns
    -------
    centers : ndarray of shape (n_clusters, n_features)
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
    blocks = as_blocks(BaseEstimator(), X, reset=True)
    n = sum(block.shape[0] for block in blocks)
    k = check_int("n_clusters", n_clusters, 1)
    if n < k:
        raise ValueError(f"n_samples={n} should be >= n_clusters={k}.")
    if n_local_trials is not None:
        check_int("n_local_trials", n_local_trials, 1)
    if x_squared_norms is not None and np.shape(x_squared_norms) != (n,):
        raise ValueError(
            f"The length of x_squared_norms {np.shape(x_squared_norms)} should be equal to the "
            f"length of n_samples {n}."
        )
    engine = LocalEngine(blocks, check_weights(sample_weight, n), check_n_jobs(None))
    survey = engine.survey(weighted=False)
    refuse_nonfinite(survey)
    exponent = _core.safe_exponent(survey.largest, engine.dtype == np.float32)
    rng = check_random_state(random_state)
    indices = plus_plus(engine, k, rng, exponent, n_local_trials)
    return engine.take(indices), indices


def plus_plus(
    engine: LocalEngine,
    k: int,
    rng: np.random.RandomState,
    exponent: int,
    n_local_trials: int | None = None,
) -> NDArray[np.intp]:
    """Row numbers of k seeds. Arthur & Vassilvitskii 2007, greedy form; draws as scikit-learn."""
    trials = n_local_trials or 2 + int(np.log(k))
    indices = np.empty(k, dtype=np.intp)
    indices[0] = rng.choice(engine.n, p=probabilities(engine))
    seeding = engine.seeding(exponent, candidates=k * trials)
    seeding.start(int(indices[0]))
    for j in range(1, k):
        drawn = seeding.draw(rng.uniform(size=trials))
        best = int(np.argmin(seeding.potentials(drawn)))
        seeding.accept(best)
        indices[j] = drawn[best]
    return indices


def random_rows(engine: LocalEngine, k: int, rng: np.random.RandomState) -> NDArray[np.intp]:
    """Row numbers of k distinct rows, drawn by weight as scikit-learn draws them."""
    weights = engine.weights
    if weights is not None and np.count_nonzero(weights) < k:
        raise ValueError(
            f"sample_weight must be positive for at least n_clusters={k} rows when init='random', "
            f"but it is for {np.count_nonzero(weights)}."
        )
    drawn = rng.choice(engine.n, size=k, replace=False, p=probabilities(engine))
    return np.asarray(drawn, dtype=np.intp)


def probabilities(engine: LocalEngine) -> NDArray[np.float64]:
    """Chances of the rows, from weights of which scikit-learn always has some."""
    weights = np.ones(engine.n) if engine.weights is None else engine.weights
    return np.asarray(weights / weights.sum(), dtype=np.float64)
