"""Rows by their keys: the distinct keys in order, and the place of every key among them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_STEP = 2**18  # keys whose places are looked up at once, so that temporaries stay in cache
_SPARSEST = 4  # the range of integer keys over their count up to which a table of the range pays


def ranks(keys: Any) -> tuple[NDArray[np.int32], Any]:
    """The place of every key of an Arrow array, and the distinct keys, ascending."""
    import pyarrow as pa

    if pa.types.is_integer(keys.type) and len(keys):
        values = keys.to_numpy()
        low, high = int(values.min()), int(values.max())
        if high - low < _SPARSEST * len(values):
            return _ranks_in_range(values, low, high, keys.type)
    return _ranks_of_any(keys)


def _ranks_in_range(
    values: NDArray[Any], low: int, high: int, kind: Any
) -> tuple[NDArray[np.int32], Any]:
    """Of integers that lie close to each other: a table of the range in place of hashing."""
    import pyarrow as pa

    def offsets(step: slice) -> NDArray[np.int64]:
        own = values[step]
        wide = own if own.dtype.itemsize == 8 else own.astype(np.int64)  # 127 - (-128) is no int8
        return (wide - wide.dtype.type(low)).astype(np.int64, copy=False)

    steps = [slice(a, a + _STEP) for a in range(0, len(values), _STEP)]
    used = np.zeros(high - low + 1, dtype=np.bool_)
    for step in steps:
        used[offsets(step)] = True
    rank = np.cumsum(used, dtype=np.int32) - np.int32(1)
    found = np.empty(len(values), dtype=np.int32)
    for step in steps:
        np.take(rank, offsets(step), out=found[step], mode="clip")
    wide = np.uint64 if values.dtype == np.uint64 else np.int64
    distinct = np.flatnonzero(used).astype(wide) + wide(low)
    return found, pa.array(distinct.astype(values.dtype), type=kind)


def _ranks_of_any(keys: Any) -> tuple[NDArray[np.int32], Any]:
    import pyarrow.compute as pc

    encoded = pc.dictionary_encode(keys)
    order = pc.sort_indices(encoded.dictionary)
    rank = np.empty(len(order), dtype=np.int32)
    rank[np.asarray(order)] = np.arange(len(order), dtype=np.int32)
    return rank[np.asarray(encoded.indices)], encoded.dictionary.take(order)
