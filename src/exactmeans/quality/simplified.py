"""Simplified silhouette coefficients, from the distances to the two nearest centres."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exactmeans.data.arrays import Double, Labels
from exactmeans.estimators.fitted import FittedKMeans


def simplified(X: Any, model: FittedKMeans, distinct: NDArray[np.intp]) -> tuple[Double, Labels]:
    """Coefficients and labels; `distinct`: the first of each set of equal centres."""
    merged = len(distinct) < model._given_centres().shape[0]
    if merged:
        model = copy.copy(model)
        model.__dict__.pop("_centroids_cache", None)
        model.cluster_centers_ = model._centres()[distinct]
        model.__dict__.pop("prices_", None)  # rows of equal centres form one cluster
    labels, distances = model._own_and_next(X)
    own, next_nearest = distances.T.astype(np.float64)
    first = labels[:, 0]
    if merged:
        first = np.where(first < 0, -1, distinct[first]).astype(np.int32)
    return coefficients(own, next_nearest), np.ascontiguousarray(first)


def coefficients(a: Double, b: Double) -> Double:
    """(b - a) / max(a, b); 0 where both are 0. Rounding may leave a slightly above b."""
    most = np.maximum(a, b)
    return np.divide(b - a, most, out=np.zeros(len(a)), where=most > 0)
