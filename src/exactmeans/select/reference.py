"""Rows without clusters, for comparison with the rows of X."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.sparse as sp

from exactmeans.data.arrays import Matrix
from exactmeans.kmeans import KMeans
from exactmeans.quality.silhouettes import sampled, silhouette

_REFERENCE_ROWS = 2000  # at least, and 20 a cluster


class Reference:
    """Rows without clusters but otherwise like a sample of X, and the silhouettes of their fits."""

    def __init__(self, X: Any, most_k: int, params: dict[str, Any], seed: int) -> None:
        self._X, self._params, self._seed = X, params, seed
        self._size = max(_REFERENCE_ROWS, 20 * most_k)
        self._rows: Matrix | None = None

    def silhouette(self, k: int, model: KMeans) -> float:
        """The simplified silhouette of k clusters of the reference rows."""
        if self._rows is None:
            self._rows = self._made(model)
        if k >= self._rows.shape[0]:
            return math.nan
        own = {**self._params, "zero_rows": "keep", "verbose": 0, "callbacks": None}
        fitted = KMeans(k, random_state=self._seed, **own).fit(self._rows)
        return silhouette(self._rows, fitted).mean

    def _made(self, model: KMeans) -> Matrix:
        rng = np.random.RandomState(self._seed)
        rows, _ = sampled(self._X, model, self._size, rng, at_most=True)
        if not isinstance(rows, np.ndarray):
            if 2 * rows.nnz < rows.shape[0] * rows.shape[1]:
                return _permuted(rows, rng)
            rows = rows.toarray()
        mean = rows.mean(axis=0, dtype=np.float64)
        centred = rows - mean
        # A random combination of centred rows is normal, with their covariance.
        normal = rng.standard_normal((len(rows), len(rows))) @ centred / math.sqrt(len(rows))
        return np.asarray(normal + mean, dtype=rows.dtype)


def _permuted(rows: Any, rng: np.random.RandomState) -> Matrix:
    """Sparse rows with the entries of every column given to other rows."""
    columns = rows.tocsc()
    n = columns.shape[0]
    for f in range(columns.shape[1]):
        begin, end = columns.indptr[f], columns.indptr[f + 1]
        if end > begin:
            columns.indices[begin:end] = np.sort(rng.choice(n, end - begin, replace=False))
            columns.data[begin:end] = rng.permutation(columns.data[begin:end])
    columns.has_sorted_indices = True
    return sp.csr_array(columns)
