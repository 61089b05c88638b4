"""Which k to suggest, and why."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from exactmeans.select.measures import Measures

CRITERIA = ("auto", "silhouette", "elbow", "davies_bouldin", "calinski_harabasz", "stability")
Criterion = Literal[
    "auto", "silhouette", "elbow", "davies_bouldin", "calinski_harabasz", "stability"
]
# By how much the silhouette must exceed the reference for clusters to be clear. One normal blob
# exceeds it by at most 0.03, a uniform square by 0.06, the iris data by 0.13 (measured).
_CLEAR = 0.08
_AS_STABLE = 0.02  # differences of adjusted Rand indices that do not count


class Choice(NamedTuple):
    k: int
    reason: str
    clear: bool = True


def choose(table: Sequence[Measures], criterion: str) -> Choice:
    known = [row for row in table if not math.isnan(row.silhouette)]
    if criterion == "elbow":
        return _elbow(table)
    if not known:
        only = table[0]
        return Choice(only.k, "No k of k_range gives two clusters or more.", clear=False)
    if criterion == "auto":
        return _by_reference(known)
    if criterion == "stability":
        most = max(row.stability for row in known)
        best = [row for row in known if row.stability >= most - _AS_STABLE][-1]
        return Choice(
            best.k,
            f"{best.k} is the largest k whose runs agree with an adjusted Rand index of at least "
            f"{most - _AS_STABLE:.2f}, and the highest of all is {most:.2f}.",
        )
    if criterion == "davies_bouldin":
        best = min(known, key=lambda row: row.davies_bouldin)
        value, what = best.davies_bouldin, "lowest Davies-Bouldin index"
    elif criterion == "calinski_harabasz":
        best = max(known, key=lambda row: row.calinski_harabasz)
        value, what = best.calinski_harabasz, "highest Calinski-Harabasz index"
    else:
        best = max(known, key=lambda row: row.silhouette)
        value, what = best.silhouette, "highest mean simplified silhouette"
    return Choice(best.k, f"{best.k} clusters have the {what}, {value:.4g}.")


def _by_reference(known: Sequence[Measures]) -> Choice:
    def excess(row: Measures) -> float:
        return row.silhouette - (0.0 if math.isnan(row.reference) else row.reference)

    best = max(known, key=excess)
    shown = f"mean silhouette {best.silhouette:.2f}, and {best.reference:.2f} without clusters"
    if excess(best) < _CLEAR:
        return Choice(
            best.k,
            f"There is no clear structure: even the best separated, {best.k} clusters, are hardly "
            f"better than those of rows without clusters ({shown}).",
            clear=False,
        )
    reason = f"{best.k} clusters stand out most from rows without clusters ({shown})"
    if best.stability < 0.5:
        reason += f", but runs disagree (adjusted Rand index {best.stability:.2f})"
    return Choice(best.k, reason + ".")


def _elbow(table: Sequence[Measures]) -> Choice:
    ks = np.array([row.k for row in table], dtype=float)
    inertia = np.array([row.inertia for row in table])
    if not inertia[0] > inertia[-1]:
        return Choice(table[0].k, "Inertia does not fall with k.", clear=False)
    falls = np.log(inertia[0] / np.maximum(inertia, 1e-12 * inertia[0]))
    below = falls / falls[-1] - (ks - ks[0]) / (ks[-1] - ks[0])
    best = table[int(np.argmax(below))]
    return Choice(
        best.k,
        f"At k={best.k} the logarithm of inertia lies deepest below the line from "
        f"k={table[0].k} to k={table[-1].k}: more clusters lower it by less.",
    )
