"""The labels of a fit: an array, or futures on a cluster."""

from __future__ import annotations

from typing import Protocol, TypeAlias

import numpy as np

from exactmeans.data.arrays import Labels


class RemoteLabels(Protocol):
    """Labels that stay on the workers of a cluster."""

    @property
    def distinct(self) -> int:
        """The number of clusters that have rows."""

    def same_clustering(self, other: FinalLabels, k: int) -> bool:
        """Whether two labellings are equal up to a renaming of clusters."""


#: Labels as users get them: -1 for rows without a direction, which are in no cluster.
FinalLabels: TypeAlias = Labels | RemoteLabels


def count_clusters(labels: FinalLabels) -> int:
    """The number of clusters that have rows."""
    if not isinstance(labels, np.ndarray):
        return labels.distinct
    return int(np.count_nonzero(np.bincount(labels + 1)[1:]))


def same_clustering(a: FinalLabels, b: FinalLabels, k: int) -> bool:
    """Whether two labellings of the same rows are equal up to a renaming of clusters."""
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return renaming(a, b, k) is not None
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        raise TypeError("Labels on a cluster can only be compared with labels on a cluster.")
    return a.same_clustering(b, k)


def renaming(a: Labels, b: Labels, k: int) -> Labels | None:
    """The label of b for each label of a; None if it is not unique."""
    name = np.full(k + 1, -1, dtype=np.int32)  # the last is that of rows in no cluster, -1
    name[a] = b
    return name[:k] if np.array_equal(name[a], b) else None
