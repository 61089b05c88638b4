"""Sources that are objects: lists of arrays, and whatever has a shape and can be sliced by rows."""

from __future__ import annotations

import mmap
from collections.abc import Iterable
from typing import Any

import numpy as np
import scipy.sparse as sp

from exactmeans.data.source import (
    Allocator,
    CutRows,
    choose_columns,
    computed_bytes,
    edges_by_entries,
    even_edges,
    refuse_kind,
    refuse_masked,
)


class ArrayBlocks(CutRows):
    """Arrays in memory, one block each."""

    in_memory = True

    def __init__(self, source: Iterable[Any], columns: Any = None) -> None:
        source = list(source)
        self._arrays = _checked(source)
        ends = np.cumsum([a.shape[0] for a in self._arrays])
        edges = np.concatenate([[0], ends]).astype(np.int64)
        d = self._arrays[0].shape[1]
        dtype = np.result_type(*(a.dtype for a in self._arrays))
        sparse = bool(sp.issparse(self._arrays[0]))
        super().__init__("source", edges, d, dtype, sparse=sparse)
        self.names = _common_names(source)
        self.select(choose_columns(columns, self.names, d, "source"))

    def _rows(self, block: int, begin: int, end: int, allocator: Allocator) -> Any:
        return self._arrays[block]


def _names(source: Any) -> list[str] | None:
    """Column names of a frame, if all are strings."""
    names = getattr(source, "column_names", None)  # pyarrow, whose `columns` are the values
    if names is None:
        names = getattr(source, "columns", None)
    names = [] if names is None else list(names)
    return names if names and all(isinstance(name, str) for name in names) else None


def _common_names(blocks: list[Any]) -> list[str] | None:
    """Names that all blocks have; blocks with other names are refused."""
    named = [(b, names) for b, names in enumerate(map(_names, blocks)) if names is not None]
    for b, names in named[1:]:
        if names != named[0][1]:
            raise ValueError(
                "source must hold blocks with the same column names in the same order, but blocks "
                f"{named[0][0]} and {b} differ."
            )
    return named[0][1] if len(named) == len(blocks) else None


def _checked(source: list[Any]) -> list[Any]:
    for block in source:
        refuse_masked(block, "source")
    try:
        arrays: list[Any] = [a if sp.issparse(a) else np.asarray(a) for a in source]
    except ValueError:
        raise ValueError("source must hold blocks whose rows have one length.") from None
    if not arrays:
        raise ValueError("source must hold at least one block.")
    for b, array in enumerate(arrays):
        if array.ndim != 2:
            raise ValueError(f"source must hold two-dimensional blocks, but block {b} is not.")
        if array.shape[1] != arrays[0].shape[1]:
            raise ValueError(
                f"source must hold blocks of one width, but block 0 has {arrays[0].shape[1]} "
                f"columns and block {b} has {array.shape[1]}."
            )
        if sp.issparse(array) != sp.issparse(arrays[0]):
            raise ValueError(
                f"source must hold dense or sparse blocks, not both, as blocks 0 and {b} are."
            )
    return arrays


class SlicedRows(CutRows):
    """Slices of an object: an array, h5py or zarr data, a memory map, AnnData."""

    def __init__(self, source: Any, columns: Any, block_rows: int | None) -> None:
        if hasattr(source, "obs") and hasattr(source, "X"):  # AnnData
            source = source.X
        self._source = source
        self.in_memory = type(source) is np.ndarray or sp.issparse(source)
        shape = tuple(source.shape)
        if len(shape) != 2:
            raise ValueError(f"source must be two-dimensional, but it has shape {shape}.")
        n, d = int(shape[0]), int(shape[1])
        sample = self._slice(0, min(n, 1000))
        sparse = bool(sp.issparse(sample))
        refuse_kind(sample.dtype, "source")
        size = computed_bytes(sample.dtype)
        if sparse and hasattr(source, "indptr") and len(source.indptr) == n + 1:
            edges = edges_by_entries(np.asarray(source.indptr), size + 8, block_rows)
        else:
            entries = sample.nnz / max(1, sample.shape[0]) if sparse else d
            edges = even_edges(n, entries * (size + 8 * sparse), block_rows)
        super().__init__("source", edges, d, sample.dtype, sparse=sparse)
        self.names = _names(source)
        self.select(choose_columns(columns, self.names, d, "source"))

    def _slice(self, begin: int, end: int) -> Any:
        rows = self._source[begin:end]
        refuse_masked(rows, "source")
        return rows if sp.issparse(rows) else np.asarray(rows)

    def _rows(self, block: int, begin: int, end: int, allocator: Allocator) -> Any:
        rows = self._slice(begin, end)
        if rows.shape != (end - begin, self._d):
            raise ValueError(
                f"source must give {end - begin} x {self._d} values for rows {begin} to {end}, but "
                f"it gave {' x '.join(map(str, rows.shape))}."
            )
        if isinstance(self._source, np.memmap):
            copy = allocator.empty(rows.shape, rows.dtype)
            copy[:] = rows
            _release_pages(self._source)
            return copy
        return rows


def _release_pages(mapped: np.memmap[Any, Any]) -> None:
    """Release the pages of a map: the system counts them as memory of this process."""
    pages: Any = getattr(mapped, "_mmap", None)
    private = getattr(mapped, "mode", "c") == "c"  # its changes exist nowhere else
    if not private and pages is not None and hasattr(mmap, "MADV_DONTNEED"):
        pages.madvise(mmap.MADV_DONTNEED)
