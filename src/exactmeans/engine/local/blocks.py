"""Blocks of rows, and the state that a LocalEngine keeps beside each."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from exactmeans import _core
from exactmeans.data.arrays import Labels, Matrix


def bytes_of(matrix: Matrix) -> int:
    if isinstance(matrix, np.ndarray):
        return int(matrix.nbytes)
    return int(matrix.data.nbytes + matrix.indices.nbytes + matrix.indptr.nbytes)


def unlabelled(n: int) -> Labels:
    labels = np.empty(n, dtype=np.int32)  # np.full takes three times as long for few rows
    labels.fill(-1)
    return labels


@dataclass
class LoadedBlock:
    """The rows of a block in memory, and the core's views of them."""

    matrix: Matrix
    rows: _core.Rows
    plain: _core.Rows  # the same rows with weight 1


@dataclass
class Block:
    """Rows `begin` to `end`, and the state beside them."""

    number: int
    begin: int
    end: int
    loaded: LoadedBlock | None = None  # None while its rows are not in memory
    size: int = 0  # bytes of its rows; known after the first pass
    resident: bool = True  # stays in memory once read
    labels: Labels = field(init=False)
    summed: Labels = field(init=False)  # the labels that the sums contain
    assigner: _core.Assigner = field(init=False)
    duplicates: DuplicateRows | None = None  # if one row is compared for all its duplicates

    @property
    def n(self) -> int:
        return self.end - self.begin

    @property
    def matrix(self) -> Matrix:
        assert self.loaded is not None
        return self.loaded.matrix

    @property
    def rows(self) -> _core.Rows:
        assert self.loaded is not None
        return self.loaded.rows

    @property
    def plain(self) -> _core.Rows:
        assert self.loaded is not None
        return self.loaded.plain

    def assign(self, centroids: _core.Centroids, n_jobs: int) -> tuple[int, int, int]:
        """Changed labels, distances computed, and rows decided without a distance."""
        if self.duplicates is None:
            assert self.loaded is not None
            return self.assigner.assign(self.loaded.rows, centroids, self.labels, n_jobs)
        return self.duplicates.assign(self.assigner, centroids, self.labels, n_jobs)


class DuplicateRows:
    """Duplicates have equal labels: the first of equal rows is compared for all of them."""

    def __init__(self, found: _core.Kinds) -> None:
        self._found, self.rows, self.first = found, found.rows, found.first
        self.labels = unlabelled(self.n)

    @property
    def n(self) -> int:
        return self.rows.n

    def assign(
        self, assigner: _core.Assigner, centroids: _core.Centroids, labels: Labels, n_jobs: int
    ) -> tuple[int, int, int]:
        """Label all rows by their first duplicates; the counts are of all rows."""
        counts = assigner.assign(self.rows, centroids, self.labels, n_jobs)
        changed, distances, skipped = counts
        if changed:
            changed = self._found.spread(self.labels, labels, n_jobs)
        return changed, distances, skipped + len(labels) - self.n
