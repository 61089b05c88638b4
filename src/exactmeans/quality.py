"""How good a clustering is: silhouettes, Davies-Bouldin, Calinski-Harabasz, and each cluster's size.

All functions take X in any form that `KMeans` takes and label it by `model`, so the labels are those
of `model.predict(X)`. Nothing here needs memory for rows by rows or for all rows by all centres.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from exactmeans.data.arrays import Double, Labels, Matrix
from exactmeans.data.centres import from_core, like_rows
from exactmeans.engine.local.engine import LocalEngine
from exactmeans.engine.local.pairs import distance_sums
from exactmeans.fit.problem import centre_of_all, sums_of, unscaled
from exactmeans.kmeans import KMeans
from exactmeans.parameters import check_choice, check_int, check_random_state

__all__ = [
    "Silhouette",
    "calinski_harabasz",
    "cluster_stats",
    "davies_bouldin",
    "silhouette",
]

_CHUNK_BYTES = 2**26  # of rows by clusters


@dataclass(frozen=True)
class Silhouette:
    """Silhouette coefficients: near 1 is well inside its cluster, 0 on a border, below 0 misplaced.

    Attributes
    ----------
    mean : float
        The mean over all rows that are in a cluster.
    samples : ndarray of shape (n_rows,)
        The coefficient of each row; NaN for rows in no cluster (label -1).
    clusters : ndarray of shape (n_clusters,)
        The mean over each cluster; NaN for clusters without rows.
    labels : ndarray of shape (n_rows,)
        The cluster of each row, as `model.predict` gives it.
    rows : ndarray of shape (n_rows,)
        Which rows of X these are, ascending; all of them unless `sample_size` was given.
    kind : 'simplified' or 'exact'
    """

    mean: float
    samples: Double
    clusters: Double
    labels: Labels
    rows: NDArray[np.intp]
    kind: str


def silhouette(
    X: Any,
    model: KMeans,
    kind: Literal["simplified", "exact"] = "simplified",
    *,
    sample_size: int | None = None,
    random_state: Any = None,
) -> Silhouette:
    """Silhouette coefficients of the clusters that a model gives to X.

    With a the distance of a row from its own cluster and b that from the next nearest one, the
    coefficient is (b - a) / max(a, b).

    Parameters
    ----------
    X : array-like, sparse matrix, BlockSource or path of shape (n_samples, n_features)
    model : KMeans or MiniBatchKMeans
        A fitted model with at least two different centres. Its metric is that of the distances.
    kind : {'simplified', 'exact'}, default='simplified'
        'simplified' takes the distances from the centres, and n times k of them. 'exact' takes mean
        distances from all other rows of a cluster, as scikit-learn's `silhouette_samples` does: n
        times n distances, but under metric='cosine' n times k. Rows alone in a cluster get 0.
    sample_size : int or None, default=None
        Take so many random rows only. For 'exact' these are also all rows that they are compared
        with, as in scikit-learn's `silhouette_score`.
    random_state : int, RandomState instance or None, default=None
        Which rows those are.

    Returns
    -------
    Silhouette
        `mean`, `samples` by row, `clusters` by cluster, `labels`, `rows` and `kind`.

    References
    ----------
    P. J. Rousseeuw, Silhouettes: a graphical aid to the interpretation and validation of cluster
    analysis, J. Comput. Appl. Math. 20, 1987. E. R. Hruschka, L. N. de Castro & R. J. G. B.
    Campello, Evolutionary algorithms for clustering gene-expression data, ICDM 2004 (simplified).

    Examples
    --------
    >>> import numpy as np
    >>> from exactmeans import KMeans, silhouette
    >>> X = np.array([[0.0], [1.0], [8.0], [9.0]])
    >>> model = KMeans(2, random_state=0).fit(X)
    >>> round(silhouette(X, model).mean, 3)
    0.937
    >>> silhouette(X, model, kind="exact").samples.round(3).tolist()
    [0.882, 0.867, 0.867, 0.882]
    """
    check_choice("kind", kind, ("simplified", "exact"))
    _check_model(model)
    distinct = _first_copies(model)
    if len(distinct) < 2:
        raise ValueError(
            "model must have at least 2 different centres, since a silhouette compares two clusters."
        )
    k = model.cluster_centers_.shape[0]
    rows: NDArray[np.intp] | None = None
    if sample_size is not None:
        size = check_int("sample_size", sample_size, 2)
        X, rows = _sampled(X, model, size, random_state)
        model = _bare(model)
    if kind == "simplified":
        samples, labels = _simplified(X, model, distinct)
    else:
        samples, labels = _exact(X, model, k)
    samples[labels < 0] = np.nan
    counts, sums = np.bincount(labels + 1, minlength=k + 1)[1:], _by_label(samples, labels, k)
    inside = int(counts.sum())
    return Silhouette(
        mean=math.fsum(samples[labels >= 0]) / inside if inside else math.nan,
        samples=samples,
        clusters=_ratio(sums, counts),
        labels=labels,
        rows=np.arange(len(labels)) if rows is None else rows,
        kind=kind,
    )


def davies_bouldin(X: Any, model: KMeans) -> float:
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
    own = _labelled(X, model)
    _refuse_one_cluster(own)
    spread = _ratio(_by_label(own.distances(), own.labels, own.k), own.counts)[own.filled]
    worst = np.zeros(len(spread))
    for at, apart in own.between_centres():
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = (spread[at, np.newaxis] + spread) / apart
        ratios[apart == 0] = 0.0  # as in scikit-learn, centres at one place are not compared
        worst[at] = ratios.max(axis=1)
    return float(math.fsum(worst) / len(worst))


def calinski_harabasz(X: Any, model: KMeans) -> float:
    """The Calinski-Harabasz index of the clusters that a model gives to X; higher is better.

    ((T - W) / (k - 1)) / (W / (n - k)), where W is the objective at the centres of the clusters
    and T that with one centre for all rows. For metric='euclidean' it is scikit-learn's
    `calinski_harabasz_score`; for other metrics, T and W add up what `inertia_` does.

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
    own = _labelled(X, model)
    _refuse_one_cluster(own)
    n, k = int(own.counts.sum()), int(own.filled.sum())
    within = float(own.costs()[own.labels >= 0].sum())
    about = like_rows(centre_of_all(own.engine)[np.newaxis], sparse=own.engine.sparse)
    exponent = own.model._frame.cost_exponent
    total = unscaled(own.engine.scatter(about, exponent, labelled=False)[0], exponent)
    if own.engine.norms is not None:  # rows in no cluster add nothing
        total -= float(np.count_nonzero(own.labels < 0)) * _cost_of_none(own)
    if within == 0:
        return 1.0  # as in scikit-learn
    return (total - within) * (n - k) / (within * (k - 1))


def cluster_stats(X: Any, model: KMeans, sample_weight: Any = None) -> NDArray[Any]:
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
    own = _labelled(X, model, sample_weight, means=False)
    weights = own.engine.weights
    distances, costs = own.distances(), own.costs()
    if weights is None:
        total = own.counts.astype(np.float64)
    else:
        total = _by_label(weights, own.labels, own.k)
        costs = costs * weights
    weighted = distances if weights is None else distances * weights
    radius = np.full(own.k, -np.inf)
    inside = own.labels >= 0
    np.maximum.at(radius, own.labels[inside], distances[inside])
    fields = [("size", np.int64), ("weight", float), ("inertia", float)]
    stats = np.empty(own.k, dtype=[*fields, ("mean_distance", float), ("radius", float)])
    stats["size"], stats["weight"] = own.counts, total
    stats["inertia"] = _by_label(costs, own.labels, own.k)
    stats["mean_distance"] = _ratio(_by_label(weighted, own.labels, own.k), total)
    stats["radius"] = np.where(own.counts > 0, radius, np.nan)
    return stats


# Rows with their labels ---------------------------------------------------------------------------


class _Labelled(NamedTuple):
    """Labelled rows and the centres that their distances are taken from."""

    model: KMeans
    engine: LocalEngine
    labels: Labels  # -1: in no cluster
    centres: Matrix

    @property
    def k(self) -> int:
        return int(self.centres.shape[0])

    @property
    def counts(self) -> NDArray[np.int64]:
        return np.bincount(self.labels + 1, minlength=self.k + 1)[1:]

    @property
    def filled(self) -> NDArray[np.bool_]:
        return self.counts > 0

    def costs(self) -> Double:
        """What each row adds to the objective at the centre of its label."""
        exponent = self.model._frame.cost_exponent
        return np.ldexp(self.engine.own_distances(self.centres, exponent), -2 * exponent)

    def distances(self) -> Double:
        exponent = self.model._frame.cost_exponent
        own = self.engine.own_distances(self.centres, exponent)
        if self.engine.metric.name in ("euclidean", "angular"):
            own = np.sqrt(own)
        return np.ldexp(own, -exponent)

    def between_centres(self) -> Iterator[tuple[slice, Double]]:
        """Distances of the centres of filled clusters, a few rows of the matrix at a time."""
        centres = self.centres[np.flatnonzero(self.filled)]
        bare = _bare(self.model)
        bare.cluster_centers_ = centres
        bare.memory_limit = None  # the chunks are small
        step = max(1, _CHUNK_BYTES // (8 * centres.shape[0]))
        for begin in range(0, centres.shape[0], step):
            at = slice(begin, min(begin + step, centres.shape[0]))
            yield at, np.asarray(bare.transform(centres[at]), dtype=np.float64)


def _labelled(X: Any, model: KMeans, sample_weight: Any = None, *, means: bool = True) -> _Labelled:
    """X, labelled. `means`: with the means of its clusters, for squared Euclidean distances."""
    _check_model(model)
    engine = model._assigned(X, sample_weight)
    centres, labels = model._centres(), engine.final_labels()
    if means and engine.metric.name == "euclidean":
        centres = _means(engine, centres.shape[0])
    return _Labelled(model, engine, labels, centres)


def _means(engine: LocalEngine, k: int) -> Matrix:
    """The means of the clusters in float64: of unit rows where only directions count."""
    sums = sums_of(engine, k)
    engine.add_changes(sums)
    if engine.sparse:
        return from_core(sums.sparse_average(False), (k, engine.d))
    means = np.empty((k, engine.d))
    sums.average(means)
    return means


def _cost_of_none(own: _Labelled) -> float:
    """What a row without direction adds to the objective."""
    return 1.0 if own.engine.metric.name == "cosine" else (math.pi / 2) ** 2


def _refuse_one_cluster(own: _Labelled) -> None:
    n, k = int(own.counts.sum()), int(own.filled.sum())
    if not 2 <= k < n:
        raise ValueError(
            f"model must give X between 2 and n_samples - 1 clusters, but it gives {n:,} rows {k:,}."
        )


def _check_model(model: Any) -> None:
    if not isinstance(model, KMeans):
        raise ValueError(
            "model must be a fitted KMeans or MiniBatchKMeans, but it is of type "
            f"{type(model).__name__!r}."
        )
    check_is_fitted(model)


def _bare(model: KMeans) -> KMeans:
    """A shallow copy without the names of features, for rows that are picked here."""
    bare = copy.copy(model)
    for name in ("feature_names_in_", "_centroids_cache"):
        vars(bare).pop(name, None)
    return bare


def _by_label(values: Double, labels: Labels, k: int) -> Double:
    inside = labels >= 0
    return np.bincount(labels[inside], weights=values[inside], minlength=k)


def _ratio(a: Double, b: NDArray[Any]) -> Double:
    """a / b; NaN where b is 0."""
    return np.divide(a, b, out=np.full(len(a), np.nan), where=b > 0)


# Silhouettes --------------------------------------------------------------------------------------


def _sampled(
    X: Any, model: KMeans, size: int, random_state: Any
) -> tuple[Matrix, NDArray[np.intp]]:
    """Random rows, the same as those of scikit-learn's silhouette_score, ascending."""
    engine = model._engine(X, labelled=True)
    if size > engine.n:
        raise ValueError(
            f"sample_size must be at most {engine.n:,}, the number of rows, but it is {size:,}."
        )
    ids = np.sort(check_random_state(random_state).permutation(engine.n)[:size])
    return engine.pick(ids), ids


def _first_copies(model: KMeans) -> NDArray[np.intp]:
    """The first of each set of equal centres: empty clusters share the place of another one."""
    centres = model._centres()
    seen: dict[bytes, int] = {}
    for j in range(centres.shape[0]):
        if isinstance(centres, np.ndarray):
            key = (centres[j] + 0.0).tobytes()  # -0.0 equals 0.0
        else:
            own = slice(centres.indptr[j], centres.indptr[j + 1])
            key = centres.indices[own].astype(np.int64).tobytes() + centres.data[own].tobytes()
        seen.setdefault(key, j)
    return np.fromiter(seen.values(), dtype=np.intp)


def _simplified(X: Any, model: KMeans, distinct: NDArray[np.intp]) -> tuple[Double, Labels]:
    merged = len(distinct) < model.cluster_centers_.shape[0]
    if merged:
        model = copy.copy(model)
        vars(model).pop("_centroids_cache", None)
        model.cluster_centers_ = model._centres()[distinct]
    labels, distances = model.nearest(X, 2)
    own, next_nearest = distances.T.astype(np.float64)
    first = labels[:, 0]
    if merged:
        first = np.where(first < 0, -1, distinct[first]).astype(np.int32)
    return _coefficients(own, next_nearest), np.ascontiguousarray(first)


def _coefficients(a: Double, b: Double) -> Double:
    """(b - a) / max(a, b); 0 where both are 0. Rounding may leave a slightly above b."""
    most = np.maximum(a, b)
    return np.divide(b - a, most, out=np.zeros(len(a)), where=most > 0)


def _exact(X: Any, model: KMeans, k: int) -> tuple[Double, Labels]:
    engine = model._assigned(X)
    labels = engine.final_labels()
    counts = np.bincount(labels + 1, minlength=k + 1)[1:]
    if np.count_nonzero(counts) < 2:
        raise ValueError(
            "model must give X at least 2 clusters for a silhouette, but it gives 1; take more rows."
        )
    out = np.zeros(engine.n)
    by_means = engine.metric.name == "cosine"
    means = _means(engine, k) if by_means else None
    step = max(1, min(engine.n, _CHUNK_BYTES // (8 * k)))
    for begin in range(0, engine.n, step):
        ids = np.arange(begin, min(begin + step, engine.n))
        few = engine.alone(engine.pick(ids), ids)
        if means is not None:
            sums = _cosine_sums(few, model, means, counts)
        else:
            sums = distance_sums(engine, few, labels, k, model._frame)
        out[ids] = _by_sums(sums, labels[ids], counts)
    return out, labels


def _cosine_sums(few: LocalEngine, model: KMeans, means: Matrix, counts: Any) -> Double:
    """The sum of 1 - cos over a cluster is that of 1, minus the product with the sum of unit rows.

    The products come from `transform`, which divides by the lengths of the means.
    """
    k = means.shape[0]
    ones = like_rows(means, sparse=False) if k * means.shape[1] * 8 <= _CHUNK_BYTES else means
    lengths = np.sqrt(np.asarray((ones * ones).sum(axis=1)).ravel())
    usable = np.flatnonzero((lengths > 0) & (counts > 0))
    centres = means[usable].astype(few.dtype)
    sums = np.where(counts > 0, counts.astype(np.float64), np.inf) * np.ones((few.n, 1))
    apart = few.transform(centres, None, model._frame.cost_exponent)
    sums[:, usable] -= (1.0 - apart) * (lengths * counts)[usable]
    return np.maximum(sums, 0.0)


def _by_sums(sums: Double, labels: Labels, counts: NDArray[np.int64]) -> Double:
    """Coefficients from the sums of distances to the rows of each cluster."""
    at = np.flatnonzero(labels >= 0)
    own = labels[at]
    out = np.zeros(len(labels))
    inside = sums[at, own]
    mean = np.divide(
        sums[at], counts, out=np.full((len(at), len(counts)), np.inf), where=counts > 0
    )
    mean[np.arange(len(at)), own] = np.inf
    others = counts[own] - 1
    a = np.divide(inside, others, out=np.zeros(len(at)), where=others > 0)
    out[at] = np.where(others > 0, _coefficients(a, mean.min(axis=1)), 0.0)
    return out
