"""MiniBatchKMeans on Dask: one block after the other comes to this process."""

from __future__ import annotations

import numbers
from typing import Any, Self

import dask
import distributed
import numpy as np

from exactmeans import minibatch
from exactmeans.callbacks import Progress
from exactmeans.dask.lazy import LazyKMeans
from exactmeans.data.dask_blocks import DaskBlocks, DaskSource, client_of, is_lazy
from exactmeans.engine.dask.placement import Patience
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
        source = DaskSource(blocks, names) if client is None else _OnCluster(client, blocks, names)
        weights = blocks.weights(sample_weight)
        if weights is not None and not isinstance(sample_weight, numbers.Real):
            sample_weight = np.concatenate(_computed(weights))
        super()._fit(source, y, sample_weight, progress)
        if hasattr(self, "labels_"):
            self.labels_ = self.predict(X)


class _OnCluster(DaskSource):
    """Blocks that come from a cluster; reading them ends if it is gone for good."""

    def __init__(self, client: Any, blocks: DaskBlocks, feature_names: Any) -> None:
        self._client, self._patience = client, Patience(client)
        self._patience.wait_for_workers()  # before there are any, however long it takes
        super().__init__(blocks, feature_names)

    def read(self, b: int) -> Any:
        piece = self._pieces[b]
        future = piece if isinstance(piece, distributed.Future) else self._client.compute(piece)
        return self._patience.result(future)


def _computed(pieces: list[Any]) -> list[Any]:
    if isinstance(pieces[0], np.ndarray):
        return pieces
    client = client_of(pieces)
    found: Any = client.gather(client.compute(pieces)) if client else dask.compute(*pieces)
    return list(found)
