"""MiniBatchKMeans on Dask: one block after the other comes to this process."""

from __future__ import annotations

import numbers
from typing import Any, Self

import numpy as np

from exactmeans import minibatch
from exactmeans.callbacks import Progress
from exactmeans.dask.lazy import LazyKMeans
from exactmeans.data.dask_blocks import DaskBlocks, DaskSource, client_of, is_lazy, results_of
from exactmeans.engine.dask.placement import BoundedWait
from exactmeans.seeding.init import check_without_rows

__all__ = ["MiniBatchKMeans"]


class MiniBatchKMeans(LazyKMeans, minibatch.MiniBatchKMeans):
    """`exactmeans.MiniBatchKMeans` for Dask collections.

    Batches follow each other, so a fit reads block after block into this process, as from files;
    the bits are those of `exactmeans.MiniBatchKMeans` on the same blocks of a file. `labels_` is a
    lazy Dask array. `predict`, `transform`, `nearest` and `score` are those of
    `exactmeans.dask.KMeans`.

    Examples
    --------
    >>> import dask.array as da
    >>> from exactmeans.dask import MiniBatchKMeans
    >>> X = da.from_array([[1., 2], [1, 4], [1, 0], [10, 2], [10, 4], [10, 0]], chunks=(2, 2))
    >>> MiniBatchKMeans(n_clusters=2, random_state=0).fit(X).labels_.compute()
    array([0, 0, 0, 1, 1, 1], dtype=int32)
    """

    _saved_as = "MiniBatchKMeans"  # the class that exactmeans.load makes

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """One step with rows of this process: `compute` a block first."""
        if is_lazy(X):
            raise ValueError("X must not be lazy for partial_fit: compute one block at a time.")
        return super().partial_fit(X, sample_weight=sample_weight)

    def _fit(self, X: Any, y: Any, sample_weight: Any, progress: Progress) -> None:
        if not is_lazy(X):
            super()._fit(X, y, sample_weight, progress)
            return
        check_without_rows(self, in_blocks=True)
        blocks = DaskBlocks.of(self, X, reset=True)
        names = getattr(self, "feature_names_in_", None)
        client = client_of(X)
        results = results_of if client is None else BoundedWait(client).results
        source = DaskSource(blocks, names, results)
        weights = blocks.weights(sample_weight)
        if weights is not None and not isinstance(sample_weight, numbers.Real):
            lazy = not isinstance(weights[0], np.ndarray)
            sample_weight = np.concatenate(results(weights) if lazy else weights)
        super()._fit(source, y, sample_weight, progress)
        if hasattr(self, "labels_"):
            self.labels_ = self.predict(X)
