"""Fitted models on Dask collections: labels and distances are lazy, scores are computed."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from typing import Any

import dask
import dask.array as da
import numpy as np
import scipy.sparse as sp
from dask.base import tokenize
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph
from numpy.typing import DTypeLike
from sklearn.utils.validation import check_is_fitted

from exactmeans import _core, kmeans
from exactmeans.data.dask_blocks import DaskBlocks, client_of, is_lazy
from exactmeans.estimators.fitted import FittedKMeans
from exactmeans.fit.problem import unscaled
from exactmeans.io import model_file
from exactmeans.parameters import check_int


class LazyKMeans(FittedKMeans):
    """Uses fitted centres on the blocks of a collection, where they are."""

    labels_: Any

    def predict(self, X: Any, *, size_min: Any = None, size_max: Any = None) -> Any:
        """The nearest centre of each row: a lazy Dask array if X is a Dask collection.

        Collections take no size limits.
        """
        if not is_lazy(X):
            return super().predict(X, size_min=size_min, size_max=size_max)
        for name, value in (("size_min", size_min), ("size_max", size_max)):
            if value is not None:
                raise ValueError(f"{name} must be None for Dask collections, but it is {value!r}.")
        return self._lazily(X, predict_block, (), np.int32)

    def transform(self, X: Any) -> Any:
        """Distances of each row to each centre: lazy if X is a Dask collection."""
        if not is_lazy(X):
            return super().transform(X)
        check_is_fitted(self)
        return self._lazily(X, _transform, (self._n_features_out,), self.cluster_centers_.dtype)

    def nearest(self, X: Any, m: int = 1) -> tuple[Any, Any]:
        """The m nearest centres of each row and their distances: lazy for Dask collections."""
        if not is_lazy(X):
            return super().nearest(X, m)
        check_is_fitted(self)
        k = self._given_centres().shape[0]
        if check_int("m", m, 1) > k:
            raise ValueError(f"m must be at most {k}, the number of centres, but it is {m}.")
        blocks, model = DaskBlocks.of(self, X, reset=False), self._on_workers()
        each = dask.delayed(_nearest, pure=True, nout=2)
        found = [each(piece, model, m) for piece in blocks.pieces]
        dtypes: tuple[DTypeLike, ...] = (np.int32, self._given_centres().dtype)
        labels, distances = (
            joined([both[which] for both in found], blocks.lengths, (m,), dtype)
            for which, dtype in enumerate(dtypes)
        )
        return labels, distances

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to a file, which `exactmeans.load` reads as a local KMeans.

        Its `labels_` stay where the rows are: the file has none. Needs `exactmeans[io]`.

        Parameters
        ----------
        path : str or path
            Replaced at once, or not at all.
        """
        check_is_fitted(self)
        model_file.save(self, path, without=("labels_",))

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Minus the inertia of X at the fitted centres; computed at once."""
        if not is_lazy(X):
            return super().score(X, sample_weight=sample_weight)
        check_is_fitted(self)
        blocks = DaskBlocks.of(self, X, reset=False)
        weights = blocks.weights(sample_weight) or [None] * len(blocks.pieces)
        work, model = dask.delayed(_cost), self._on_workers()
        costs = [work(model, piece, own) for piece, own in zip(blocks.pieces, weights, strict=True)]
        client = client_of(X)
        total = _core.ExactSum()
        for cost in client.gather(client.compute(costs)) if client else dask.compute(*costs):
            total.add(cost)
        return -unscaled(total.value, self._frame.cost_exponent)

    # -- using a fitted model ------------------------------------------------------------------

    def bare(self) -> kmeans.KMeans:
        """A local model with what labels and distances of blocks depend on."""
        model = kmeans.KMeans(n_jobs=1, zero_rows=self.zero_rows)
        for name in ("cluster_centers_", "n_features_in_", "_n_features_out", "_frame"):
            setattr(model, name, getattr(self, name))
        if self._has_prices():
            model.prices_, model._limited = self.prices_, self._limited
        return model

    def _on_workers(self) -> Any:
        """The model as one object that blocks share."""
        # All that labels and distances depend on: tasks of equal keys share one result.
        frame = self._frame
        parts: tuple[Any, ...] = (frame.exponent, frame.shift, frame.metric, frame.packing)
        parts += (self.zero_rows,)
        if self._has_prices():
            border = self._limited.border
            parts += (self.prices_, border.keys, border.past, border.labels)
        return dask.delayed(self.bare(), name=f"kmeans-{tokenize(self.cluster_centers_, *parts)}")

    def _lazily(
        self, X: Any, work: Callable[..., Any], beside: tuple[int, ...], dtype: DTypeLike
    ) -> Any:
        check_is_fitted(self)
        blocks, model = DaskBlocks.of(self, X, reset=False), self._on_workers()
        # map_blocks would concatenate columns; Dask before 2025.3 cannot do that to sparse arrays.
        if blocks.array is None or sp.issparse(blocks.array._meta):
            each = dask.delayed(work, pure=True)
            pieces = [each(piece, model) for piece in blocks.pieces]
            return joined(pieces, blocks.lengths, beside, dtype)
        return blocks.array.map_blocks(
            work,
            model,
            dtype=dtype,
            drop_axis=None if beside else 1,
            chunks=(blocks.array.chunks[0], *((n,) for n in beside)),
            meta=np.empty((0,) * (1 + len(beside)), dtype=dtype),
        )


# What is done to blocks, wherever they are --------------------------------------------------------


def predict_block(block: Any, model: kmeans.KMeans) -> Any:
    return model.predict(block) if block.shape[0] else np.empty(0, dtype=np.int32)


def _transform(block: Any, model: kmeans.KMeans) -> Any:
    if block.shape[0]:
        return model.transform(block)
    return np.empty((0, model.cluster_centers_.shape[0]), dtype=model.cluster_centers_.dtype)


def _nearest(block: Any, model: kmeans.KMeans, m: int) -> tuple[Any, Any]:
    if block.shape[0]:
        return model.nearest(block, m)
    return np.empty((0, m), np.int32), np.empty((0, m), model.cluster_centers_.dtype)


def _cost(model: kmeans.KMeans, block: Any, weights: Any) -> _core.ExactSum:
    if not block.shape[0]:
        return _core.ExactSum()
    engine = model._assigned(block, weights, part=True)
    return engine.scattered(model._centres(), model._frame.cost_exponent, labelled=True)[0]


def joined(
    pieces: list[Any], lengths: Sequence[float], beside: tuple[int, ...], dtype: DTypeLike
) -> Any:
    """Blocks as the chunks of one Dask array, those without rows too."""
    lazy = [piece if isinstance(piece, Delayed) else dask.delayed(piece) for piece in pieces]
    name = f"exactmeans-{tokenize([piece.key for piece in lazy])}"
    zeros = (0,) * len(beside)
    layer = {(name, b, *zeros): piece.key for b, piece in enumerate(lazy)}
    graph = HighLevelGraph.from_collections(name, layer, dependencies=lazy)
    rows = tuple(n if math.isnan(n) else int(n) for n in lengths)
    return da.Array(graph, name, (rows, *((n,) for n in beside)), dtype=dtype)
