"""Rows that fit no cluster: much farther from their centre than the other rows of their cluster."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from exactmeans.data.arrays import Double, Labels
from exactmeans.quality.labelled import by_label

#: A row is odd if its distance exceeds the mean of its cluster by so many standard deviations;
#: under cosine, if its similarity to the centre is smaller than the mean by this factor.
ODD = 3.0
_LEAST_SIMILARITY = 1e-3  # smaller ones count as this, so that ratios stay finite


class OddRows(NamedTuple):
    """Odd rows, the oddest first, and how odd they are: see ODD."""

    rows: NDArray[np.intp]
    oddness: Double


def odd_rows(labels: Labels, distance: Double, k: int, metric: str) -> OddRows:
    """The odd ones of all rows that are in a cluster (label not -1)."""
    inside = np.flatnonzero(labels >= 0)
    own, far = labels[inside], distance[inside]
    size = np.maximum(np.bincount(own, minlength=k), 1)
    mean = by_label(far, own, k) / size
    if metric == "cosine":
        # Distances near 1 have no long tail, ratios of similarities do.
        similarity = np.maximum(1 - far, _LEAST_SIMILARITY)
        oddness = np.maximum(1 - mean[own], 0) / similarity
    else:
        spread = np.sqrt(np.maximum(by_label(far**2, own, k) / size - mean**2, 0))[own]
        # The rounding of equal distances is no spread.
        real = spread > 1e-6 * np.maximum(mean[own], 1e-300)
        oddness = np.where(real, (far - mean[own]) / np.where(real, spread, 1), 0.0)
    found = np.flatnonzero(oddness > ODD)
    found = found[np.argsort(-oddness[found], kind="stable")]
    return OddRows(inside[found], oddness[found])
