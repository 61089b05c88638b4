"""Keeps rows that can be read only once: in memory, or in a temporary Arrow IPC file.

A query returns rows in no reliable order. Rows that do not fit in memory are written in runs, each
sorted by key. A block of all rows, ordered by key, consists of one slice of every run: external
merge sort, except that the merged rows are never written.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from exactmeans.data.arrow import pyarrow_or_refuse
from exactmeans.data.source import (
    Allocator,
    CutRows,
    Edges,
    computed_bytes,
    edges_by_entries,
    even_edges,
)

_LEAST_RUN = 2**24  # bytes; shorter runs would be read in too many slices
_MOST_RUN = 2**28


class Run(NamedTuple):
    """Rows in the order of their keys."""

    rows: Any  # an array or CSR matrix, in memory or mapped
    keys: Any  # an Arrow array; None for rows that keep the order in which they came
    weights: NDArray[np.float64] | None


class GrowingRows:
    """A dense matrix that grows by rows, in memory that the system extends without copying it."""

    def __init__(self, d: int, dtype: np.dtype[Any]) -> None:
        self._d, self._dtype = d, dtype
        self.itemsize = dtype.itemsize
        self._memory: mmap.mmap | None = None
        self.n = 0

    def append(self, rows: NDArray[Any]) -> None:
        end = self.n + len(rows)
        needed = end * self._d * self.itemsize
        if self._memory is None:
            self._memory = _private_memory(needed)
        elif needed > len(self._memory):
            # Twice the size costs nothing: pages take memory when they are first written to.
            self._memory = _extended(self._memory, max(needed, 2 * len(self._memory)))
        self._view(end)[self.n :] = rows
        self.n = end

    def _view(self, n: int) -> NDArray[Any]:
        assert self._memory is not None
        return np.frombuffer(self._memory, self._dtype, n * self._d).reshape(n, self._d)

    def taken(self) -> NDArray[Any]:
        """All rows; this object is empty from now on."""
        rows = self._view(self.n)
        self._memory, self.n = None, 0
        return rows


def _private_memory(size: int) -> mmap.mmap:
    if hasattr(mmap, "MAP_PRIVATE"):
        return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE)  # shared memory cannot grow
    return mmap.mmap(-1, size)  # Windows


def _extended(memory: mmap.mmap, size: int) -> mmap.mmap:
    try:
        memory.resize(size)
    except (OSError, SystemError, ValueError):  # a system without mremap
        new = _private_memory(size)
        new[: len(memory)] = memory[:]
        return new
    return memory


@contextmanager
def refused_if_full(
    folder: str | os.PathLike[str] | None, abandon: Callable[[], None] = lambda: None
) -> Iterator[None]:
    """One sentence for a folder that is not there or has no room."""
    try:
        yield
    except OSError as error:
        abandon()
        where = tempfile.gettempdir() if folder is None else os.fspath(folder)
        raise OSError(
            error.errno,
            f"spool must name a folder with room for the rows, but writing to {where!r} failed: "
            f"{error.strerror or error}.",
        ) from None


class SpoolFile:
    """A temporary Arrow IPC file, one batch per run; it has no name, so it cannot stay behind."""

    def __init__(self, folder: str | os.PathLike[str] | None) -> None:
        self._folder = folder
        self._writer: Any = None
        with refused_if_full(folder):
            self._file = tempfile.TemporaryFile(dir=folder, prefix="exactmeans-")  # noqa: SIM115

    def write(self, rows: Any) -> None:
        pa = pyarrow_or_refuse()
        if isinstance(rows, np.ndarray):
            flat = pa.array(rows.reshape(-1))
            columns = {"features": pa.FixedSizeListArray.from_arrays(flat, rows.shape[1])}
        else:
            offsets = pa.array(rows.indptr.astype(np.int32))
            columns = {
                name: pa.ListArray.from_arrays(offsets, pa.array(values))
                for name, values in (("indices", rows.indices), ("values", rows.data))
            }
        batch = pa.record_batch(columns)
        with refused_if_full(self._folder, self._abandon):
            if self._writer is None:
                self._writer = pa.ipc.new_file(pa.PythonFile(self._file, "w"), batch.schema)
            self._writer.write_batch(batch)

    def _abandon(self) -> None:
        """Close what can be closed: Arrow would write its footer when the writer is collected."""
        for thing in (self._writer, self._file):
            try:
                thing.close()
            except (OSError, ValueError):
                continue

    def map(self) -> tuple[mmap.mmap, list[Any]]:
        """The file in memory, and the runs as arrays and CSR matrices that lie in it."""
        pa = pyarrow_or_refuse()
        with refused_if_full(self._folder, self._abandon):
            self._writer.close()
            self._file.flush()
        mapped = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        self._file.close()  # the map keeps the data
        reader = pa.ipc.open_file(pa.py_buffer(mapped))
        runs: list[Any] = []
        for b in range(reader.num_record_batches):
            batch = reader.get_batch(b)
            if "features" in batch.schema.names:
                column = batch.column("features")
                flat = column.flatten().to_numpy(zero_copy_only=True)
                runs.append(flat.reshape(-1, column.type.list_size))
                continue
            indices, values = batch.column("indices"), batch.column("values")
            indptr = np.asarray(indices.offsets)
            # SpooledRows sets the width of all runs, which is known only at the end.
            width = int(np.max(np.asarray(indices.values), initial=-1)) + 1
            data = np.asarray(values.values), np.asarray(indices.values), indptr
            runs.append(_csr(data, (len(indptr) - 1, width)))
        return mapped, runs


def _csr(arrays: Any, shape: tuple[int, int]) -> Any:
    """A CSR matrix of these arrays, unchecked and uncopied."""
    matrix: Any = sp.csr_matrix(shape, dtype=arrays[0].dtype)
    matrix.data, matrix.indices, matrix.indptr = arrays
    return matrix


class Spool:
    """Takes sorted runs and keeps them in memory while they fit, else in a file."""

    def __init__(self, limit: int, folder: str | os.PathLike[str] | None, *, to_file: bool) -> None:
        self.limit = limit
        self._folder = folder
        self._file: SpoolFile | None = SpoolFile(folder) if to_file else None
        self._runs: list[Run] = []

    def full(self, collected: int) -> bool:
        """Whether so many bytes of rows should become a run. Sorting them takes as many again."""
        most = self.limit // 2
        if self._file is not None:
            most = min(max(self.limit // 4, _LEAST_RUN), _MOST_RUN)
        return collected >= most

    def spill(self, run: Run) -> None:
        """A run, while more rows are to come."""
        if self._file is None:
            self._file = SpoolFile(self._folder)
        self.add(run)

    def add(self, run: Run) -> None:
        if self._file is None:
            self._runs.append(run)
        else:
            self._file.write(run.rows)
            self._runs.append(run._replace(rows=None))

    def finish(self) -> tuple[mmap.mmap | None, list[Run]]:
        if self._file is None or not self._runs:
            return None, self._runs
        mapped, rows = self._file.map()
        runs = [run._replace(rows=own) for run, own in zip(self._runs, rows, strict=True)]
        return mapped, runs


class SpooledRows(CutRows):
    """Rows of a spool. `places[r]` are the numbers, ascending, that the rows of run r have."""

    def __init__(
        self,
        name: str,
        mapped: mmap.mmap | None,
        runs: Sequence[Any],
        places: Sequence[NDArray[np.int64]],
        d: int,
        block_rows: int | None,
    ) -> None:
        self._mapped, self._places = mapped, list(places)
        n = 1 + max((int(own[-1]) for own in places if len(own)), default=-1)
        sparse = bool(sp.issparse(runs[0]))
        if sparse:
            runs = [_csr((r.data, r.indices, r.indptr), (r.shape[0], d)) for r in runs]
        self._runs = list(runs)
        self.in_memory = mapped is None
        dtype = runs[0].dtype
        edges = self._cut(n, d, dtype, sparse, block_rows)
        super().__init__(name, edges, d, dtype, sparse=sparse)

    def _cut(
        self, n: int, d: int, dtype: np.dtype[Any], sparse: bool, block_rows: int | None
    ) -> Edges:
        if self.in_memory and block_rows is None:
            return np.array([0, n], dtype=np.int64)
        size = computed_bytes(dtype)
        if not sparse:
            return even_edges(n, d * size, block_rows)
        lengths = np.zeros(n, dtype=np.int64)
        for rows, own in zip(self._runs, self._places, strict=True):
            lengths[own] += np.diff(rows.indptr)
        return edges_by_entries(np.concatenate([[0], np.cumsum(lengths)]), size + 8, block_rows)

    def _rows(self, block: int, begin: int, end: int, allocator: Allocator) -> Any:
        if self.in_memory:
            rows = self._runs[0]
            return rows if (begin, end) == (0, rows.shape[0]) else rows[begin:end]
        parts = []
        for rows, own in zip(self._runs, self._places, strict=True):
            first, last = np.searchsorted(own, [begin, end]).tolist()
            parts.append((own[first:last] - begin, rows[first:last]))
        if self.sparse:
            found = join_rows(parts, (end - begin, self._d))
        else:
            found = allocator.empty((end - begin, self._d), self.dtype)
            for at, part in parts:
                found[at] = part
        if self._mapped is not None and hasattr(mmap, "MADV_DONTNEED"):
            self._mapped.madvise(mmap.MADV_DONTNEED)  # release its pages
        return found

    def __getstate__(self) -> dict[str, Any]:
        if self._mapped is not None:
            raise TypeError(
                "Rows in a temporary file cannot be pickled: a larger memory_limit keeps them in "
                "memory, where they can."
            )
        return vars(self)


_LINE = 64  # bytes of a cache line


def reordered(rows: Any, order: NDArray[np.int64]) -> Any:
    """Rows in another order; dense ones in place, a cache line of columns at a time.

    A copy of the whole matrix would double the memory that reading takes.
    """
    if not isinstance(rows, np.ndarray):
        return rows[order]
    step = max(1, _LINE // rows.itemsize)
    for first in range(0, rows.shape[1], step):
        some = rows[:, first : first + step]
        some[:] = some[order]
    return rows


def join_rows(parts: list[tuple[NDArray[np.int64], Any]], shape: tuple[int, int]) -> Any:
    """CSR rows by their places; entries of one place are joined, in the order of their columns."""
    row = np.concatenate([np.repeat(at, np.diff(part.indptr)) for at, part in parts])
    column = np.concatenate([part.indices for _, part in parts])
    values = np.concatenate([part.data for _, part in parts])
    order = np.lexsort((column, row))
    indptr = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=shape[0]))])
    return _csr((values[order], column[order].astype(np.int32), indptr.astype(np.int32)), shape)
