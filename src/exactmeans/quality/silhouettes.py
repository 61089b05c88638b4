"""Silhouette coefficients: simplified from centres, exact from all rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exactmeans.data.arrays import Double, Labels, Matrix
from exactmeans.engine.local.engine import LocalEngine
from exactmeans.engine.local.pairs import distance_sums
from exactmeans.estimators.fitted import FittedKMeans
from exactmeans.parameters import check_choice, check_int, check_model, check_random_state
from exactmeans.quality import labelled as labelled_rows
from exactmeans.quality.exact_means import CoefficientSums
from exactmeans.quality.labelled import bare_copy, is_lazy, means_by_label
from exactmeans.quality.simplified import coefficients, simplified

__all__ = ["Silhouette", "silhouette"]


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

    Examples
    --------
    >>> from exactmeans import KMeans, silhouette
    >>> X = [[0.0], [1.0], [9.0], [10.0]]
    >>> found = silhouette(X, KMeans(2, init=[[0.0], [9.0]]).fit(X))
    >>> found.labels.tolist(), round(found.mean, 3)
    ([0, 0, 1, 1], 0.944)
    """

    mean: float
    samples: Double
    clusters: Double
    labels: Labels
    rows: NDArray[np.intp]
    kind: str


def silhouette(
    X: Any,
    model: FittedKMeans,
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
        Of a Dask collection, `samples`, `labels` and `rows` are lazy; only 'simplified'.
    model : KMeans or MiniBatchKMeans
        A fitted model with at least two different centres. Its metric is that of the distances.
    kind : {'simplified', 'exact'}, default='simplified'
        'simplified' takes distances to centres: n times k of them. 'exact' takes the mean distance
        to the other rows of each cluster, as scikit-learn's `silhouette_samples` does: n times n
        distances, or n times k for metric='cosine'. A row alone in its cluster gets 0.
    sample_size : int or None, default=None
        Use this many random rows only. 'exact' then compares them with each other, as
        scikit-learn's `silhouette_score` does.
    random_state : int, RandomState instance or None, default=None
        Makes the choice of these rows reproducible.

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
    check_model(model)
    distinct = _first_copies(model)
    if len(distinct) < 2:
        raise ValueError(
            "model must have at least 2 different centres: a silhouette compares two clusters."
        )
    k = model._given_centres().shape[0]
    if is_lazy(X):
        return _lazily(X, model, distinct, k, kind, sample_size)
    rows: NDArray[np.intp] | None = None
    if sample_size is not None:
        size = check_int("sample_size", sample_size, 2)
        X, rows = sampled(X, model, size, random_state)
        model = bare_copy(model)
    if kind == "simplified":
        samples, labels = simplified(X, model, distinct)
    else:
        samples, labels = _exact(X, model, k)
    samples[labels < 0] = np.nan  # no other coefficient is NaN
    sums = CoefficientSums(k, len(labels))
    sums.add(samples, labels)
    return Silhouette(
        mean=sums.mean(),
        samples=samples,
        clusters=sums.clusters(),
        labels=labels,
        rows=np.arange(len(labels)) if rows is None else rows,
        kind=kind,
    )


def _lazily(
    X: Any,
    model: FittedKMeans,
    distinct: NDArray[np.intp],
    k: int,
    kind: str,
    sample_size: int | None,
) -> Silhouette:
    from exactmeans.quality.lazy_silhouettes import lazy_silhouettes

    if kind != "simplified" or sample_size is not None:
        raise ValueError(
            "kind must be 'simplified' and sample_size None for Dask collections: pass computed "
            "rows for anything else."
        )
    sums, samples, labels, rows = lazy_silhouettes(X, model, distinct, k)
    return Silhouette(sums.mean(), samples, sums.clusters(), labels, rows, kind)


def sampled(
    X: Any, model: FittedKMeans, size: int, random_state: Any, *, at_most: bool = False
) -> tuple[Matrix, NDArray[np.intp]]:
    """Random rows, the same as those of scikit-learn's silhouette_score, ascending.

    `at_most`: all rows if there are fewer.
    """
    engine = model._engine(X, labelled=True)
    if size > engine.n and not at_most:
        raise ValueError(
            f"sample_size must be at most {engine.n:,}, the number of rows, but it is {size:,}."
        )
    ids = np.sort(check_random_state(random_state).permutation(engine.n)[:size])
    return engine.pick(ids), ids


def _first_copies(model: FittedKMeans) -> NDArray[np.intp]:
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


def _exact(X: Any, model: FittedKMeans, k: int) -> tuple[Double, Labels]:
    engine = model._assigned(X)
    labels = engine.final_labels()
    counts = np.bincount(labels + 1, minlength=k + 1)[1:]
    if np.count_nonzero(counts) < 2:
        raise ValueError(
            "model must give X at least 2 clusters for a silhouette, but it gives 1: take more "
            "rows."
        )
    out = np.zeros(engine.n)
    unit_rows = _ClusterSums.of(engine, k) if engine.metric.name == "cosine" else None
    step = max(1, min(engine.n, labelled_rows.CHUNK_BYTES // (8 * k)))
    for begin in range(0, engine.n, step):
        ids = np.arange(begin, min(begin + step, engine.n))
        few = engine.alone(engine.pick(ids), ids)
        if unit_rows is not None:
            sums = unit_rows.distances(few, counts)
        else:
            sums = distance_sums(engine, few, labels, k, model._frame)
        out[ids] = _by_sums(sums, labels[ids], counts)
    return out, labels


class _ClusterSums(NamedTuple):
    """Sums of the unit rows of each cluster: their directions and lengths.

    The sum of 1 - cos over a cluster is its number of rows minus the product of a unit row with the
    sum, so that n times k products do for n times n distances.
    """

    used: NDArray[np.intp]  # clusters whose sum is not 0
    directions: Matrix
    lengths: Double

    @staticmethod
    def of(engine: LocalEngine, k: int) -> _ClusterSums:
        means, divisors = means_by_label(engine, k)
        squares = means * means if isinstance(means, np.ndarray) else means.multiply(means)
        lengths = np.sqrt(np.asarray(squares.sum(axis=1)).ravel()) * divisors
        used = np.flatnonzero(lengths > 0)
        return _ClusterSums(used, means[used].astype(engine.dtype), lengths[used])

    def distances(self, few: LocalEngine, counts: NDArray[np.int64]) -> Double:
        """Sums of the distances of a few rows to the rows of each cluster."""
        sums = np.empty((few.n, len(counts)))
        sums[:] = counts
        if len(self.used):
            apart = few.transform(self.directions, None, 0)
            sums[:, self.used] -= (1.0 - apart) * self.lengths
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
    out[at] = np.where(others > 0, coefficients(a, mean.min(axis=1)), 0.0)
    return out
