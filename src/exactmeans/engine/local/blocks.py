"""Blocks of rows as a LocalEngine has them, and what it keeps beside each."""

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
    """A block in memory, as the core sees it."""

    matrix: Matrix
    rows: _core.Rows
    plain: _core.Rows  # the same rows, every one with weight 1


@dataclass
class Block:
    """A block, and what is kept beside its rows."""

    number: int
    begin: int
    end: int
    loaded: LoadedBlock | None = None  # None while its rows are not in memory
    size: int = 0  # bytes that its rows take there; known once they have been looked at
    resident: bool = True  # in memory, once read
    labels: Labels = field(init=False)
    summed: Labels = field(init=False)  # the labels that the sums stand for
    assigner: _core.Assigner = field(init=False)
    duplicates: DuplicateRows | None = None  # where one row of each kind is compared for all

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
        """Rows with a new label, distances computed, and rows that were certain without any."""
        if self.duplicates is None:
            assert self.loaded is not None
            return self.assigner.assign(self.loaded.rows, centroids, self.labels, n_jobs)
        return self.duplicates.assign(self.assigner, centroids, self.labels, n_jobs)


class DuplicateRows:
    """Rows that are equal have equal labels: the first of each kind is compared for all."""

    def __init__(self, found: _core.Kinds) -> None:
        self._found, self.rows, self.first = found, found.rows, found.first
        self.labels = unlabelled(self.n)

    @property
    def n(self) -> int:
        return self.rows.n

    def assign(
        self, assigner: _core.Assigner, centroids: _core.Centroids, labels: Labels, n_jobs: int
    ) -> tuple[int, int, int]:
        """Label the rows that these are the kinds of; the counts are of all rows."""
        counts = assigner.assign(self.rows, centroids, self.labels, n_jobs)
        changed, distances, skipped = counts
        if changed:
            changed = self._found.spread(self.labels, labels, n_jobs)
        return changed, distances, skipped + len(labels) - self.n
