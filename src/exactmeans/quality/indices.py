"""The Davies-Bouldin and Calinski-Harabasz indices, and statistics of each cluster."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exactmeans.data.centres import like_rows
from exactmeans.estimators.fitted import FittedKMeans
from exactmeans.fit.problem import centre_of_all, unscaled
from exactmeans.quality.labelled import Labelled, by_label, labelled, ratio

__all__ = ["calinski_harabasz", "cluster_stats", "davies_bouldin"]


def davies_bouldin(X: Any, model: FittedKMeans) -> float:
    """The Davies-Bouldin index of the clusters that a model gives to X; lower is better.

    The mean over clusters of the largest (s_i + s_j) / d_ij, where s is the mean distance of a
    cluster's rows from its centre and d the distance between two centres. For metric='euclidean'
    centres are the means of the rows, so that the index is scikit-learn's `davies_bouldin_score`;
    for other metrics they are the model's.

    Parameters
    ----------
    X : array-like, sparse matrix, BlockSource or path of shape (n_samples, n_features)
    model : KMeans or MiniBatchKMeans

    Returns
    -------
    float

    References
    ----------
    D. L. Davies & D. W. Bouldin, A cluster separation measure, IEEE TPAMI 1, 1979.

    Examples
    --------
    >>> import numpy as np
    >>> from exactmeans import KMeans, davies_bouldin
    >>> X = np.array([[0.0], [1.0], [8.0], [9.0]])
    >>> davies_bouldin(X, KMeans(2, random_state=0).fit(X))
    0.125
    """
    own = labelled(X, model)
    refuse_one_cluster(own)
    return davies_bouldin_of(own)


def calinski_harabasz(X: Any, model: FittedKMeans) -> float:
    """The Calinski-Harabasz index of the clusters that a model gives to X; higher is better.

    ((T - W) / (k - 1)) / (W / (n - k)), where W is the objective at the centres of the clusters
    and T that with one centre for all rows. For metric='euclidean' it is scikit-learn's
    `calinski_harabasz_score`; for other metrics, T and W add up what `inertia_` does, and for
    'angular' the one centre is the direction of the mean.

    Parameters
    ----------
    X : array-like, sparse matrix, BlockSource or path of shape (n_samples, n_features)
    model : KMeans or MiniBatchKMeans

    Returns
    -------
    float

    References
    ----------
    T. Caliński & J. Harabasz, A dendrite method for cluster analysis, Commun. Stat. 3, 1974.

    Examples
    --------
    >>> import numpy as np
    >>> from exactmeans import KMeans, calinski_harabasz
    >>> X = np.array([[0.0], [1.0], [8.0], [9.0]])
    >>> calinski_harabasz(X, KMeans(2, random_state=0).fit(X))
    128.0
    """
    own = labelled(X, model)
    refuse_one_cluster(own)
    return calinski_harabasz_of(own)


def cluster_stats(X: Any, model: FittedKMeans, sample_weight: Any = None) -> NDArray[Any]:
    """Size, weight, inertia and extent of each cluster of X.

    Parameters
    ----------
    X : array-like, sparse matrix, BlockSource or path of shape (n_samples, n_features)
    model : KMeans or MiniBatchKMeans
    sample_weight : array-like of shape (n_samples,), default=None

    Returns
    -------
    structured array of shape (n_clusters,)
        `size`, the number of rows; `weight`, their weight; `inertia`, what they add to the
        objective, weighted; `mean_distance`, weighted, and `radius`, the largest distance of a row
        from the centre: both NaN for clusters without rows or weight.

    Examples
    --------
    >>> import numpy as np
    >>> from exactmeans import KMeans, cluster_stats
    >>> X = np.array([[0.0], [1.0], [8.0], [9.0]])
    >>> stats = cluster_stats(X, KMeans(2, init=[[0.0], [9.0]]).fit(X))
    >>> stats["size"].tolist(), stats["inertia"].tolist(), stats["radius"].tolist()
    ([2, 2], [0.5, 0.5], [0.5, 0.5])
    """
    own = labelled(X, model, sample_weight, means=False)
    weights = own.engine.weights
    distances, costs = own.distances(), own.costs()
    if weights is None:
        total = own.counts.astype(np.float64)
    else:
        total = by_label(weights, own.labels, own.k)
        costs = costs * weights
    weighted = distances if weights is None else distances * weights
    radius = np.full(own.k, -np.inf)
    inside = own.labels >= 0
    np.maximum.at(radius, own.labels[inside], distances[inside])
    fields = [("size", np.int64), ("weight", float), ("inertia", float)]
    stats = np.empty(own.k, dtype=[*fields, ("mean_distance", float), ("radius", float)])
    stats["size"], stats["weight"] = own.counts, total
    stats["inertia"] = by_label(costs, own.labels, own.k)
    stats["mean_distance"] = ratio(by_label(weighted, own.labels, own.k), total)
    stats["radius"] = np.where(own.counts > 0, radius, np.nan)
    return stats


def davies_bouldin_of(own: Labelled) -> float:
    spread = ratio(by_label(own.distances(), own.labels, own.k), own.counts)[own.filled]
    worst = np.zeros(len(spread))
    for at, apart in own.between_centres():
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = (spread[at, np.newaxis] + spread) / apart
        ratios[apart == 0] = 0.0  # as in scikit-learn, centres at one place are not compared
        worst[at] = ratios.max(axis=1)
    return float(math.fsum(worst) / len(worst))


def calinski_harabasz_of(own: Labelled) -> float:
    n, k = int(own.counts.sum()), int(own.filled.sum())
    within = float(own.costs()[own.labels >= 0].sum())
    if own.engine.metric.l1 and len(own.engine.spans) > 1:
        own.engine.metric.refuse_blocks()  # the median of all rows needs them in one block
    about = like_rows(centre_of_all(own.engine)[np.newaxis], sparse=own.engine.sparse)
    exponent = own.model._frame.cost_exponent
    total = unscaled(own.engine.scatter(about, exponent, labelled=False)[0], exponent)
    if own.engine.norms is not None:  # rows in no cluster add nothing
        total -= float(np.count_nonzero(own.labels < 0)) * cost_of_none(own)
    if within == 0:
        return 1.0  # as in scikit-learn
    return (total - within) * (n - k) / (within * (k - 1))


def cost_of_none(own: Labelled) -> float:
    """What a row without direction adds to the objective."""
    return 1.0 if own.engine.metric.name == "cosine" else (math.pi / 2) ** 2


def refuse_one_cluster(own: Labelled) -> None:
    n, k = int(own.counts.sum()), int(own.filled.sum())
    if not 2 <= k < n:
        raise ValueError(
            f"model must give X between 2 and n_samples - 1 clusters, but of {n:,} rows it "
            f"makes {k:,}."
        )
