"""What a report says about clusters: numbers and choices of rows, without any drawing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from exactmeans.data.arrays import Matrix
from exactmeans.data.memory import ArrayBlocks
from exactmeans.estimators.base import BaseKMeans
from exactmeans.metrics import METRICS
from exactmeans.quality.odd_rows import odd_rows
from exactmeans.reporting.projection import (
    Projection,
    between_axes,
    is_sparse,
    means_of_unit_rows,
    principal_axes,
    sample_rows,
    unit_rows,
)

Reals = NDArray[np.float64]
Numbers = NDArray[np.intp]

_NEIGHBOURS = 4
_ODD = 20  # odd rows that are shown


class Contrast(NamedTuple):
    """A feature that sets a cluster apart from all rows."""

    feature: int
    value: float  # in the centre
    contrast: (
        float  # standard deviations from the mean of all rows; for sparse rows, the difference
    )


class Picked(NamedTuple):
    """Some rows by their numbers in X, ascending, and their values."""

    rows: Numbers
    values: Matrix

    def row(self, row: int) -> Any:
        """Values of one row, 1 by d."""
        at = int(np.searchsorted(self.rows, row))
        return self.values[at : at + 1]


@dataclass(frozen=True)
class Summary:
    """The clusters of X under a model. Arrays are by cluster or by row."""

    metric: str
    labels: NDArray[np.int32]
    distance: Reals  # of each row to its centre
    silhouette: Reals | None  # simplified, of each row; None for one cluster
    size: Numbers
    mean_distance: Reals
    radius: Reals  # the largest distance
    inertia: Reals
    cluster_silhouette: Reals | None
    nearest: list[Numbers]  # rows nearest to each centre, nearest first
    farthest: list[Numbers]  # and the farthest, farthest first
    neighbours: NDArray[np.int32]  # of each centre, nearest first
    neighbour_distance: Reals
    mean: Reals  # of each feature over the sample
    spread: Reals  # standard deviation of each feature over the sample
    contrast: list[list[Contrast]]
    odd: Numbers  # rows, the oddest first
    oddness: Reals  # see quality/odd_rows.py
    odd_total: int
    sample: Numbers  # rows on the map
    picked: Picked  # all rows that are shown
    projection: Projection
    sample_xy: Reals
    centre_xy: Reals


def summarise(
    model: BaseKMeans,
    X: Any,
    *,
    points: int = 3000,
    examples: int = 5,
    features: int = 10,
    seed: int = 0,
) -> Summary:
    """Label X once, and choose the typical and odd rows and the features of each cluster."""
    k = model.cluster_centers_.shape[0]
    labels2, distance2 = two_nearest(model, X)
    labels, distance = labels2[:, 0], distance2[:, 0].astype(np.float64)
    size = np.bincount(labels[labels >= 0], minlength=k)
    silhouette = None if k == 1 else _simplified(distance, distance2[:, 1].astype(np.float64))
    by_cluster = _Grouped(labels, size)
    mean_distance = by_cluster.mean(distance)
    order = by_cluster.order(distance)
    nearest = [own[:examples] for own in order]
    farthest = [own[::-1][: min(examples, len(own) // 2)] for own in order]
    odd, oddness = odd_rows(labels, distance, k, model._frame.metric)
    odd_total, odd, oddness = len(odd), odd[:_ODD], oddness[:_ODD]

    sample = sample_rows(len(labels), points, seed)
    shown = np.unique(np.concatenate([sample, odd, *nearest, *farthest])).astype(np.intp)
    picked = Picked(shown, model._engine(X, labelled=True).pick(shown))
    directed = METRICS[model._frame.metric].directed
    rows = picked.values[np.searchsorted(shown, sample)]
    rows = unit_rows(rows) if directed else rows
    mean, spread = _moments(rows)
    centres = model.cluster_centers_
    if is_sparse(rows):  # centres of sparse rows are mostly zeros, too
        centres = sp.csr_matrix(centres)
    near, near_distance = _neighbours(model, centres)
    cosine = model._frame.metric == "cosine"
    means = means_of_unit_rows(centres, mean_distance) if cosine else centres
    projection = (
        between_axes(rows, means, np.maximum(size, 0.5), seed)
        if is_sparse(rows) and k > 2
        else principal_axes(rows, seed)
    )
    return Summary(
        metric=model._frame.metric,
        labels=labels,
        distance=distance,
        silhouette=silhouette,
        size=size,
        mean_distance=mean_distance,
        radius=by_cluster.largest(distance),
        inertia=by_cluster.sum(_cost(distance, model._frame.metric)),
        cluster_silhouette=None if silhouette is None else by_cluster.mean(silhouette),
        nearest=nearest,
        farthest=farthest,
        neighbours=near,
        neighbour_distance=near_distance,
        mean=mean,
        spread=spread,
        contrast=_contrasts(centres, mean, spread, features, sparse=is_sparse(rows)),
        odd=odd,
        oddness=oddness,
        odd_total=odd_total,
        sample=sample,
        picked=picked,
        projection=projection,
        sample_xy=projection(rows),
        centre_xy=projection(means),
    )


def two_nearest(model: BaseKMeans, X: Any) -> tuple[NDArray[np.int32], NDArray[Any]]:
    """Label and nearest other centre of each row, and distances; one if there is one cluster."""
    labels, distances = model._own_and_next(X)
    return labels, distances


def _simplified(own: Reals, other: Reals) -> Reals:
    """Simplified silhouette: distances to centres in place of mean distances to rows."""
    larger = np.maximum(own, other)
    # A cosine distance of 0 may round to a little below it.
    return np.clip(np.where(larger > 0, (other - own) / np.where(larger > 0, larger, 1), 0), -1, 1)


def _cost(distance: Reals, metric: str) -> Reals:
    """What a row adds to the inertia."""
    return distance**2 if METRICS[metric].squared else distance


class _Grouped:
    """Sums and orders of row values by cluster; rows in no cluster (label -1) are left out."""

    def __init__(self, labels: NDArray[np.int32], size: Numbers) -> None:
        self._labels, self._size = labels, size
        self.rows = np.flatnonzero(labels >= 0)
        self.own = labels[self.rows]

    def sum(self, values: Reals) -> Reals:
        found: Any = np.bincount(self.own, values[self.rows], minlength=len(self._size))
        return np.asarray(found, dtype=np.float64)

    def mean(self, values: Reals) -> Reals:
        return np.asarray(self.sum(values) / np.maximum(self._size, 1))

    def largest(self, values: Reals) -> Reals:
        found = np.zeros(len(self._size))
        np.maximum.at(found, self.own, values[self.rows])
        return found

    def order(self, values: Reals) -> list[Numbers]:
        """Rows of each cluster by ascending value; equal values by row."""
        order = self.rows[np.lexsort((values[self.rows], self.own))]
        return np.split(order, np.cumsum(self._size)[:-1])


def _moments(rows: Matrix) -> tuple[Reals, Reals]:
    mean = np.asarray(rows.mean(axis=0, dtype=np.float64)).ravel()
    if isinstance(rows, np.ndarray):
        return mean, np.asarray(rows.std(axis=0, dtype=np.float64))
    square = np.asarray(rows.multiply(rows).mean(axis=0, dtype=np.float64)).ravel()
    return mean, np.sqrt(np.maximum(square - mean**2, 0))


def _neighbours(model: BaseKMeans, centres: Any) -> tuple[NDArray[np.int32], Reals]:
    """The nearest other centres of each centre."""
    k = centres.shape[0]
    m = min(_NEIGHBOURS, k - 1)
    if m == 0:
        return np.empty((k, 0), dtype=np.int32), np.empty((k, 0))
    labels, distance = model.nearest(_as_rows(model, centres), m + 1)
    # A centre comes first in its own list, unless it has equals.
    own = labels == np.arange(k)[:, None]
    own[~own.any(axis=1), -1] = True
    return labels[~own].reshape(k, m), distance[~own].reshape(k, m).astype(np.float64)


def _as_rows(model: BaseKMeans, centres: Any) -> Any:
    """Centres with the column names of fit, if there are some, so that nothing is warned of."""
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        return centres
    blocks = ArrayBlocks([centres])
    blocks.names = [str(name) for name in names]
    return blocks


def _contrasts(
    centres: Any, mean: Reals, spread: Reals, most: int, *, sparse: bool
) -> list[list[Contrast]]:
    """The features of each centre that differ most from the mean of all rows."""
    found = []
    safe = np.where(spread > 0, spread, 1.0)
    for j in range(centres.shape[0]):
        centre = _dense_row(centres, j)
        difference = centre - mean
        contrast = difference if sparse else np.where(spread > 0, difference / safe, 0.0)
        strength = contrast if sparse else np.abs(contrast)  # terms describe a text
        top = _largest(strength, most)
        found.append([Contrast(int(f), float(centre[f]), float(contrast[f])) for f in top])
    return found


def _largest(strength: Reals, most: int) -> Numbers:
    """Features of the largest strengths above 0, the largest first; of equal ones the first."""
    above = np.flatnonzero(strength > 0)
    own = strength[above]
    if len(above) > most:
        least = np.partition(own, -most)[-most]
        above, own = above[own >= least], own[own >= least]
    return above[np.argsort(-own, kind="stable")[:most]]


def _dense_row(matrix: Any, j: int) -> Reals:
    if not is_sparse(matrix):
        return np.asarray(matrix[j], dtype=np.float64)
    own = slice(matrix.indptr[j], matrix.indptr[j + 1])
    row = np.zeros(matrix.shape[1])
    row[matrix.indices[own]] = matrix.data[own]
    return row
