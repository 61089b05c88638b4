"""Blocks of rows, and the state that a LocalEngine keeps beside each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from exactmeans import _core
from exactmeans.data.arrays import Labels, Matrix
from exactmeans.engine.protocol import AssignStats


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
    duplicates: DuplicateRows | None = None  # if one row is compared for all its duplicates
    _labelling: _Labelling | None = None

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

    @property
    def started(self) -> bool:
        return self._labelling is not None

    def start(self, algorithm: str, k: int, *, single: bool, codes: bool) -> None:
        """Forget labels and bounds; `codes`: keep 8-bit codes of all rows."""
        rows = self.n
        if self.duplicates is not None:
            self.duplicates.labels.fill(-1)
            rows = self.duplicates.n
        assigner = _core.Assigner(algorithm, single, rows, k)
        assigner.set_store_codes(codes)
        self._labelling = _Labelling(unlabelled(self.n), unlabelled(self.n), assigner)

    @property
    def labels(self) -> Labels:
        return self._started.labels

    @property
    def summed(self) -> Labels:
        """The labels that the sums contain."""
        return self._started.summed

    @property
    def assigner(self) -> _core.Assigner:
        return self._started.assigner

    @property
    def _started(self) -> _Labelling:
        if self._labelling is None:
            raise RuntimeError("The rows have no labels yet: call start first.")
        return self._labelling

    def assign(self, centroids: _core.Centroids, n_jobs: int) -> AssignStats:
        """Label the rows."""
        own = self._started
        if self.duplicates is None:
            counts = own.assigner.assign(self.rows, centroids, own.labels, n_jobs)
            return AssignStats(*counts)
        return self.duplicates.assign(own.assigner, centroids, own.labels, n_jobs)

    def relabel(self, sums: _core.Sums, n_jobs: int) -> None:
        """Add the label changes since the last call to the sums."""
        own = self._started
        sums.relabel(self.rows, own.labels, own.summed, n_jobs)


@dataclass
class _Labelling:
    labels: Labels
    summed: Labels
    assigner: _core.Assigner


class DuplicateRows:
    """Duplicates have equal labels: the first of equal rows is compared for all of them."""

    def __init__(self, found: _core.DuplicateRows) -> None:
        self._found, self.rows, self.first = found, found.rows, found.first
        self.labels = unlabelled(self.n)

    @property
    def n(self) -> int:
        return self.rows.n

    def assign(
        self, assigner: _core.Assigner, centroids: _core.Centroids, labels: Labels, n_jobs: int
    ) -> AssignStats:
        """Compare the first of equal rows, and give its label to the others, which are skipped."""
        stats = AssignStats(*assigner.assign(self.rows, centroids, self.labels, n_jobs))
        changed = stats.changed
        if changed:
            changed = self._found.copy_labels(self.labels, labels, n_jobs)
        return stats._replace(changed=changed, skipped=stats.skipped + len(labels) - self.n)
