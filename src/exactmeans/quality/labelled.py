"""Rows labelled by a model, and what the measures of quality share."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exactmeans.data.arrays import Double, Labels, Matrix
from exactmeans.engine.local.engine import LocalEngine
from exactmeans.estimators.fitted import FittedKMeans
from exactmeans.fit.problem import means_of, sums_of
from exactmeans.parameters import check_model

CHUNK_BYTES = 2**26  # of rows by clusters, or of clusters by clusters


class Labelled(NamedTuple):
    """Labelled rows and the centres that their distances are taken from."""

    model: FittedKMeans
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
        if self.engine.metric.squared:
            own = np.sqrt(own)
        return np.ldexp(own, -exponent)

    def between_centres(self) -> Iterator[tuple[slice, Double]]:
        """Distances of the centres of filled clusters, a few rows of the matrix at a time."""
        centres = self.centres[np.flatnonzero(self.filled)]
        bare = bare_copy(self.model)
        bare.cluster_centers_ = centres
        bare.memory_limit = None  # the chunks are small
        step = max(1, CHUNK_BYTES // (8 * centres.shape[0]))
        for begin in range(0, centres.shape[0], step):
            at = slice(begin, min(begin + step, centres.shape[0]))
            yield at, np.asarray(bare.transform(centres[at]), dtype=np.float64)


def labelled(
    X: Any, model: FittedKMeans, sample_weight: Any = None, *, means: bool = True
) -> Labelled:
    """Label X; `means`: with the means of its clusters as centres, for metric='euclidean'."""
    check_model(model)
    engine = model._assigned(X, sample_weight)
    centres, labels = model._centres(), engine.final_labels()
    if means and engine.metric.name == "euclidean":
        centres, _ = means_by_label(engine, centres.shape[0])
    return Labelled(model, engine, labels, centres)


def means_by_label(engine: LocalEngine, k: int) -> tuple[Matrix, Double]:
    """The means of the clusters in float64, and the weights that their sums were divided by.

    For metrics of directions, the means of unit rows. A row without a direction adds 0 to the sum
    of the cluster that it was compared with last, and its weight to that cluster's divisor.
    """
    sums = sums_of(engine, k)
    engine.add_changes(sums)
    return means_of(sums, engine, k), sums.weights


def bare_copy(model: FittedKMeans) -> FittedKMeans:
    """A shallow copy without the names of features, for rows that are picked here."""
    bare = copy.copy(model)
    for name in ("feature_names_in_", "_centroids_cache"):
        bare.__dict__.pop(name, None)
    return bare


def is_lazy(X: Any) -> bool:
    """Whether X is a Dask collection, of which there are none where Dask is not imported."""
    if "dask" not in sys.modules or isinstance(X, np.ndarray):
        return False
    from exactmeans.data import dask_blocks

    return dask_blocks.is_lazy(X)


def refuse_lazy(X: Any) -> None:
    if is_lazy(X):
        raise ValueError("X must not be a Dask collection here: compute its rows first.")


def by_label(values: Double, labels: Labels, k: int) -> Double:
    if labels.min(initial=0) < 0:
        inside = labels >= 0
        labels, values = labels[inside], values[inside]
    return np.bincount(labels, values, k).astype(np.float64, copy=False)


def ratio(a: Double, b: NDArray[Any]) -> Double:
    """a / b; NaN where b is 0."""
    out: Double = np.full(len(a), np.nan)
    np.divide(a, b, out=out, where=b > 0)
    return out
