"""Rows that are made of the rows of another source: complete ones, scaled ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from exactmeans.data.source import Allocator, CutRows


class CompleteRows(CutRows):
    """The rows without missing values (NaN), found in one pass when the source is opened."""

    def __init__(self, source: CutRows) -> None:
        if source.sparse:
            raise ValueError(f"na must be 'error' for {source.name}, whose rows are sparse.")
        self._source = source
        masks = [~np.isnan(source.read(b)).any(axis=1) for b in range(len(source))]
        kept = [np.flatnonzero(mask) for mask in masks]
        #: Numbers of these rows in the source.
        self.kept = np.concatenate(
            [own + begin for own, begin in zip(kept, source.edges[:-1], strict=True)]
        )
        self.total = int(source.edges[-1])
        self._blocks = [b for b, own in enumerate(kept) if len(own)]
        self._kept = [kept[b] for b in self._blocks]
        if not self._blocks:
            raise ValueError(f"na must be 'error' for {source.name}: every row lacks a value.")
        edges = np.concatenate([[0], np.cumsum([len(own) for own in self._kept])])
        super().__init__(source.name, edges, source.shape[1], source.dtype, sparse=False)
        self.names, self.guesses = source.feature_names, source.guesses

    def _rows(self, block: int, begin: int, end: int, allocator: Allocator) -> Any:
        rows = self._source.read(self._blocks[block], allocator)[self._kept[block]]
        self.held_bytes = max(self.held_bytes, self._source.held_bytes)
        return rows


class ScaledRows(CutRows):
    """(x - offsets) / factors for dense rows; sparse ones are divided only, to stay sparse."""

    def __init__(self, source: CutRows, offsets: NDArray[Any], factors: NDArray[Any]) -> None:
        self._source, self._offsets, self._factors = source, offsets, factors
        dtype = np.float32 if source.dtype == np.float32 else np.float64
        super().__init__(source.name, source.edges, source.shape[1], dtype, sparse=source.sparse)
        self.names, self.guesses = source.feature_names, source.guesses

    def _rows(self, block: int, begin: int, end: int, allocator: Allocator) -> Any:
        rows = self._source.read(block)
        self.held_bytes = max(self.held_bytes, self._source.held_bytes)
        if self.sparse:
            return sp.csr_matrix(rows @ sp.diags(1 / self._factors), dtype=self.dtype)
        return ((rows - self._offsets) / self._factors).astype(self.dtype, copy=False)


def mean_and_deviation(source: CutRows) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and standard deviation of each column, in one pass; deviations of 0 become 1.

    By the update of Chan, Golub and LeVeque (1983) from block to block.
    """
    d = source.shape[1]
    count, mean, squares = 0, np.zeros(d), np.zeros(d)
    for b in range(len(source)):
        rows = source.read(b)
        n = rows.shape[0]
        if source.sparse:
            rows = sp.csr_matrix(rows, dtype=np.float64)
            own = np.asarray(rows.mean(axis=0)).ravel()
            spread = np.asarray(rows.multiply(rows).sum(axis=0)).ravel() - n * own**2
        else:
            own = rows.mean(axis=0, dtype=np.float64)
            spread = np.square(rows - own, dtype=np.float64).sum(axis=0)
        shift = own - mean
        total = count + n
        mean = mean + shift * (n / total)
        squares = squares + spread + shift**2 * (count * n / total)
        count = total
    deviation = np.sqrt(np.maximum(squares / count, 0))
    return mean, np.where(deviation > 0, deviation, 1.0)
