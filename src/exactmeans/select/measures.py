"""What is measured of one number of clusters, and how well several runs agree."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from exactmeans.data.arrays import Labels


class Measures(NamedTuple):
    """What `select_k` measured of one number of clusters, on the run with the lowest inertia."""

    k: int
    inertia: float
    silhouette: float  # simplified; NaN for one cluster, as the next two are
    davies_bouldin: float  # lower is better
    calinski_harabasz: float  # higher is better
    stability: float  # mean adjusted Rand index between runs; NaN for one run
    reference: float  # the silhouette of rows without clusters; NaN unless criterion='auto'
    smallest: int  # rows of the smallest cluster
    largest: int
    random_state: int  # of that run
    seconds: float  # all runs and their measures


def stability(labels: Sequence[Labels]) -> float:
    """The mean adjusted Rand index of all pairs of runs; rows in no cluster do not count."""
    if len(labels) < 2:
        return math.nan
    inside = labels[0] >= 0
    pairs = combinations([own[inside] for own in labels], 2)
    return float(np.mean([adjusted_rand(a, b) for a, b in pairs]))


def adjusted_rand(a: Labels, b: Labels) -> float:
    """The agreement of two clusterings of the same rows: 1 if they are equal, 0 by chance."""

    def pairs(counts: Any) -> float:
        return float((counts * (counts - 1) / 2).sum())

    both = sp.coo_array((np.ones(len(a)), (a, b))).tocsr()
    together = pairs(both.data)
    in_a, in_b = pairs(np.bincount(a).astype(float)), pairs(np.bincount(b).astype(float))
    by_chance, most = in_a * in_b / max(1.0, pairs(np.array([float(len(a))]))), (in_a + in_b) / 2
    return 1.0 if most == by_chance else (together - by_chance) / (most - by_chance)
