"""Simplified silhouettes of Dask collections: coefficients stay where the rows are."""

from __future__ import annotations

from typing import Any

import dask
import dask.array as da
import numpy as np
from numpy.typing import NDArray

from exactmeans import _core
from exactmeans.dask.lazy import LazyKMeans, joined
from exactmeans.data.dask_blocks import DaskBlocks, client_of, is_lazy, lengths_of
from exactmeans.estimators.fitted import FittedKMeans
from exactmeans.quality.exact_means import CoefficientSums
from exactmeans.quality.labelled import bare_copy
from exactmeans.quality.simplified import simplified

__all__ = ["is_lazy", "lazy_silhouettes"]


def lazy_silhouettes(
    X: Any, model: FittedKMeans, distinct: NDArray[np.intp], k: int
) -> tuple[CoefficientSums, Any, Any, Any]:
    """Sums, and lazy arrays: coefficients, labels and row numbers."""
    blocks = DaskBlocks.of(model, X, reset=False)
    lengths = lengths_of(blocks)
    n, bare = int(sum(lengths)), dask.delayed(_local(model))
    each, add_up = dask.delayed(_coefficients, nout=2), dask.delayed(_summed)
    found = [each(piece, bare, distinct) for piece in blocks.pieces]
    exported = [add_up(own[0], own[1], k, n) for own in found]
    client = client_of(X)
    sums = CoefficientSums(k, n)
    for own in client.gather(client.compute(exported)) if client else dask.compute(*exported):
        sums.absorb(own)
    samples = joined([own[0] for own in found], lengths, (), np.float64)
    labels = joined([own[1] for own in found], lengths, (), np.int32)
    return sums, samples, labels, da.arange(n, chunks=(tuple(int(m) for m in lengths),))


def _local(model: FittedKMeans) -> FittedKMeans:
    return model.bare() if isinstance(model, LazyKMeans) else bare_copy(model)


def _coefficients(block: Any, model: FittedKMeans, distinct: NDArray[np.intp]) -> tuple[Any, Any]:
    if not block.shape[0]:
        return np.empty(0), np.empty(0, np.int32)
    samples, labels = simplified(block, model, distinct)
    samples[labels < 0] = np.nan
    return samples, labels


def _summed(samples: Any, labels: Any, k: int, n: int) -> tuple[_core.Exported, _core.Exported]:
    sums = CoefficientSums(k, n)
    sums.add(samples, labels)
    return sums.export()
