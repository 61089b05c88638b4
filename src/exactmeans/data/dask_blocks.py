"""Dask collections as blocks of rows."""

from __future__ import annotations

import math
import numbers
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import dask
import dask.array as da
import distributed
import numpy as np
from dask.base import is_dask_collection
from dask.delayed import Delayed
from sklearn.utils.validation import validate_data


def is_lazy(X: Any) -> bool:
    if isinstance(X, (list, tuple)):
        return any(isinstance(x, (Delayed, distributed.Future)) for x in X)
    return bool(is_dask_collection(X))


def client_of(X: Any) -> Any:
    """The cluster that holds X, or the one that is in use; None for other schedulers."""
    futures = [x for x in X if isinstance(x, distributed.Future)] if isinstance(X, list) else []
    futures = futures or distributed.futures_of(X)
    if futures:
        client = futures[0].client
    elif dask.config.get("scheduler", None) not in (None, "distributed", "dask.distributed"):
        return None
    else:
        try:
            client = distributed.get_client()
        except ValueError:
            return None
    if client.asynchronous:
        raise ValueError("X must not belong to an asynchronous client: a fit cannot be awaited.")
    return client


@dataclass(frozen=True)
class DaskBlocks:
    """A collection as its blocks of rows, delayed or futures; lengths are NaN if not known."""

    pieces: list[Any]
    lengths: Sequence[float]
    array: Any = None  # if it is one

    @staticmethod
    def of(estimator: Any, X: Any, *, reset: bool) -> DaskBlocks:
        if isinstance(X, (list, tuple)):
            return DaskBlocks(_all_lazy("X", X), [math.nan] * len(X))
        if not isinstance(X, Delayed) and hasattr(X, "to_dask_array"):  # a dataframe
            if X.ndim != 2:
                raise ValueError("X must be two-dimensional, but it is a series.")
            validate_data(estimator, X._meta, reset=reset, skip_check_array=True)
            X = X.to_dask_array()
        elif not isinstance(X, da.Array):
            raise ValueError(
                "X must be a Dask array, a Dask dataframe, or a list of delayed objects or "
                f"futures, but it is a {type(X).__name__}."
            )
        elif X.ndim == 2 and not math.isnan(X.shape[1]):
            validate_data(estimator, X, reset=reset, skip_check_array=True)
        if X.ndim != 2:
            raise ValueError(
                f"X must be two-dimensional, but it has shape {X.shape}: Reshape your data with "
                "X.reshape(-1, 1) if it has one feature, or X.reshape(1, -1) if it is one row."
            )
        if X.numblocks[1] > 1:
            warnings.warn(
                f"X has {X.numblocks[1]} chunks of columns, which are put together: rechunk it "
                "with X.rechunk({1: -1}) to do that once.",
                UserWarning,
                stacklevel=6,
            )
            X = X.rechunk({1: -1})
        return DaskBlocks(X.to_delayed().ravel().tolist(), X.chunks[0], X)

    def weights(self, given: Any) -> list[Any] | None:
        """Cut as the rows are; what they hold is checked where they are used."""
        if given is None:
            return None
        if isinstance(given, numbers.Real):
            return [dask.delayed(float(given))] * len(self.pieces)
        if hasattr(given, "to_dask_array"):
            given = given.to_dask_array()
        if is_lazy(given) and not isinstance(given, da.Array):
            if not isinstance(given, (list, tuple)):
                raise ValueError(
                    "sample_weight must be a Dask array or series, a list of delayed objects or "
                    f"futures, or an array, but it is a {type(given).__name__}."
                )
            pieces = _all_lazy("sample_weight", given)
        else:
            if not isinstance(given, da.Array):
                given = np.asarray(given)
            if given.ndim != 1:
                raise ValueError(
                    "Sample weights must be 1D array or scalar: sample_weight has more axes."
                )
            lengths = lengths_of(self)
            n = int(sum(lengths))
            if not math.isnan(given.shape[0]) and given.shape[0] != n:
                raise ValueError(f"sample_weight.shape == {given.shape}, expected {(n,)}!")
            chunks = tuple(int(length) for length in lengths)
            if isinstance(given, np.ndarray):
                return np.split(given, np.cumsum(chunks)[:-1])
            if not math.isnan(given.shape[0]):
                given = given.rechunk((chunks,))
            pieces = given.to_delayed().tolist()
        if len(pieces) != len(self.pieces):
            raise ValueError(
                f"sample_weight must have as many blocks as X, which has {len(self.pieces)}, but "
                f"it has {len(pieces)}."
            )
        return pieces


def _all_lazy(argument: str, items: Sequence[Any]) -> list[Any]:
    """These items as a list; refuses those that are in memory."""
    for item in items:
        if not isinstance(item, (Delayed, distributed.Future)):
            raise ValueError(
                f"{argument} must be a list of delayed objects or futures only, but one item is "
                f"of type {type(item).__name__!r}."
            )
    return list(items)


def results_of(items: list[Any]) -> list[Any]:
    """Compute delayed objects and futures, and fetch the results to this process."""
    client = client_of(items)
    return list(client.gather(client.compute(items)) if client else dask.compute(*items))


def lengths_of(
    blocks: DaskBlocks, results: Callable[[list[Any]], list[Any]] = results_of
) -> list[int]:
    """The lengths of all blocks, which are computed where they are not known."""
    if not any(map(math.isnan, blocks.lengths)):
        return [int(n) for n in blocks.lengths]
    return results([dask.delayed(_rows)(piece) for piece in blocks.pieces])


def _rows(block: Any) -> int:
    if not hasattr(block, "shape"):
        raise ValueError(
            f"X must have blocks that are matrices, but one is of type {type(block).__name__!r}."
        )
    return int(block.shape[0])


class DaskSource:
    """Blocks that come to this process when they are read; those without rows are left out."""

    def __init__(
        self,
        blocks: DaskBlocks,
        feature_names: Any = None,
        results: Callable[[list[Any]], list[Any]] = results_of,
    ) -> None:
        self.feature_names, self._results = feature_names, results
        self.lengths = lengths_of(blocks, results)
        self._pieces = [piece for piece, n in zip(blocks.pieces, self.lengths, strict=True) if n]
        if not self._pieces:
            raise ValueError("X must have rows, but Found array with 0 sample(s).")
        self.edges = np.concatenate([[0], np.cumsum([n for n in self.lengths if n])]).tolist()
        self._columns = math.nan if blocks.array is None else blocks.array.shape[1]

    @property
    def shape(self) -> tuple[int, int]:
        if math.isnan(self._columns):
            self._columns = self.read(0).shape[1]
        return self.edges[-1], int(self._columns)

    def __len__(self) -> int:
        return len(self._pieces)

    def read(self, b: int) -> Any:
        return self._results([self._pieces[b]])[0]
