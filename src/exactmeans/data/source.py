"""The protocol of sources of row blocks, and the base class of those with known block edges."""

from __future__ import annotations

import math
import mmap
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import DTypeLike, NDArray

Edges: TypeAlias = NDArray[np.int64]
Columns: TypeAlias = NDArray[np.intp]

#: Blocks are cut to about this size in memory: small beside any limit, long enough to read well.
BLOCK_BYTES = 2**23


@runtime_checkable
class BlockSource(Protocol):
    """Ordered blocks of rows of one width: what estimators read from.

    Examples
    --------
    >>> import numpy as np
    >>> from exactmeans import KMeans
    >>> class Squares:
    ...     shape = (6, 1)
    ...     def __len__(self):
    ...         return 2
    ...     def read(self, block):
    ...         return np.arange(3.0 * block, 3.0 * block + 3)[:, None] ** 2
    >>> KMeans(2, init=[[0.0], [25.0]]).fit(Squares()).labels_
    array([0, 0, 0, 0, 1, 1], dtype=int32)
    """

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of all blocks together."""

    def __len__(self) -> int:
        """The number of blocks."""

    def read(self, block: int) -> Any:
        """One block: a two-dimensional array, or a scipy sparse matrix or array."""


class Allocator:
    """Allocates the arrays of a block: NumPy's way. `BufferPool` reuses memory."""

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        return np.empty(shape, dtype)


class BufferPool(Allocator):
    """Reuses one memory map for one block after the other.

    Reading then touches no new pages, rows may still be in a cache when they are processed, and the
    system gets all memory back at the end, which allocators do not promise.
    """

    def __init__(self) -> None:
        self._memory: mmap.mmap | None = None
        self._used = 0

    def clear(self) -> None:
        """Reuse the memory: arrays made so far become invalid."""
        self._used = 0

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        count = math.prod(shape)
        begin = -(-self._used // 64) * 64
        self._used = begin + count * dtype.itemsize
        if not count:
            return np.empty(shape, dtype)
        if self._memory is None or self._used > len(self._memory):
            self._memory = mmap.mmap(-1, self._used)  # arrays keep the old map alive
        return np.frombuffer(self._memory, dtype, count, begin).reshape(shape)


class CutRows(ABC):
    """A source whose block edges are known before any block is read.

    A BlockSource need not have `edges`, `dtype` and `sparse`; without them, estimators read every
    block once to find out. Nor need it have `feature_names`, which estimators keep and compare.
    """

    names: list[str] | None = None  # of all columns, where they have names
    #: What the source had to guess, as clauses for a note: "the first row of a.csv is names".
    guesses: tuple[str, ...] = ()
    #: Weights of all rows, where the source has them: estimators use them unless others are given.
    sample_weight: NDArray[np.float64] | None = None
    #: The most bytes that a reader held beside the block it was reading, as far as is known.
    held_bytes = 0

    def __init__(self, name: str, edges: Edges, d: int, dtype: DTypeLike, *, sparse: bool) -> None:
        self.name = name
        self.edges = edges
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self.sparse = sparse
        self._d = d
        self._columns: Columns | None = None
        if not len(self):
            raise ValueError(f"{name} has no rows.")
        if not d:
            raise ValueError(f"{name} has no columns.")

    @property
    def shape(self) -> tuple[int, int]:
        d = self._d if self._columns is None else len(self._columns)
        return int(self.edges[-1]), d

    @property
    def feature_names(self) -> list[str] | None:
        """Names of the columns that are read, in their order."""
        if self.names is None or self._columns is None:
            return self.names
        return [self.names[f] for f in self._columns]

    def __len__(self) -> int:
        return len(self.edges) - 1

    def read(self, block: int, allocator: Allocator | None = None) -> Any:
        if not 0 <= block < len(self):
            raise IndexError(f"{self.name} has {len(self)} blocks, no block {block}.")
        rows = self._rows(
            block, int(self.edges[block]), int(self.edges[block + 1]), allocator or Allocator()
        )
        return rows if self._columns is None else rows[:, self._columns]

    @abstractmethod
    def _rows(self, block: int, begin: int, end: int, allocator: Allocator) -> Any:
        """Rows [begin, end), which are block number `block`, with all columns; large arrays from
        `allocator`, where that is easy.
        """

    def select(self, columns: Columns | None) -> CutRows:
        """Read only these columns from now on."""
        self._columns = columns
        return self

    def __repr__(self) -> str:
        return f"<{len(self)} blocks, {self.shape[0]} rows x {self.shape[1]} columns>"


class JoinedRows(CutRows):
    """Files of one kind and width, one after the other."""

    def __init__(self, parts: list[CutRows]) -> None:
        first = parts[0]
        for part in parts[1:]:
            if part.shape[1] != first.shape[1]:
                raise ValueError(
                    f"source must name files of one width, but {first.name} has {first.shape[1]} "
                    f"columns and {part.name} has {part.shape[1]}."
                )
            if part.feature_names != first.feature_names:
                raise ValueError(
                    "source must name files with the same column names in the same order, but "
                    f"{first.name} and {part.name} differ."
                )
        self._parts = parts
        self._places = [(p, b) for p, part in enumerate(parts) for b in range(len(part))]
        sizes = np.concatenate([np.diff(part.edges) for part in parts])
        edges = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        dtype = np.result_type(*(part.dtype for part in parts))
        name = f"{first.name} and {len(parts) - 1} more"
        super().__init__(name, edges, first.shape[1], dtype, sparse=first.sparse)
        self.names = first.feature_names
        self.guesses = tuple(guess for part in parts for guess in part.guesses)

    def _rows(self, block: int, begin: int, end: int, allocator: Allocator) -> Any:
        p, b = self._places[block]
        rows = self._parts[p].read(b, allocator)
        self.held_bytes = max(self.held_bytes, self._parts[p].held_bytes)
        return rows


def check_block_rows(block_rows: Any) -> None:
    if block_rows is not None and (
        isinstance(block_rows, bool) or not isinstance(block_rows, int) or block_rows < 1
    ):
        raise ValueError(f"block_rows must be None or an int of at least 1, not {block_rows!r}.")


def even_edges(n: int, row_bytes: float, block_rows: int | None) -> Edges:
    """Where to cut n rows of about one size."""
    rows = block_rows or max(1, int(BLOCK_BYTES / max(1.0, row_bytes)))
    return np.append(np.arange(0, n, rows, dtype=np.int64), np.int64(n))


def edges_by_entries(indptr: NDArray[Any], entry_bytes: int, block_rows: int | None) -> Edges:
    """Where to cut sparse rows: after so many rows, or where a block has its bytes."""
    n = len(indptr) - 1
    if block_rows:
        return even_edges(n, 1, block_rows)
    edges = [0]
    # In int64: an int32 indptr times bytes overflows from 2**31 / entry_bytes entries on.
    size = indptr.astype(np.int64) * entry_bytes + np.arange(n + 1, dtype=np.int64) * 8
    while edges[-1] < n:
        full = int(np.searchsorted(size, size[edges[-1]] + BLOCK_BYTES, side="right")) - 1
        edges.append(max(edges[-1] + 1, full))
    return np.array(edges, dtype=np.int64)


def computed_bytes(dtype: np.dtype[Any]) -> int:
    """Of a value in a block, once it is float32 or float64."""
    return 4 if dtype == np.float32 else 8


def choose_columns(
    columns: Any, names: Sequence[str] | None, d: int, where: str, *, beyond: bool = False
) -> Columns | None:
    """Numbers of the columns to use, by name or number. `beyond`: there may be more than d."""
    if columns is None:
        return None
    if isinstance(columns, (str, int, np.integer)):
        columns = [columns]
    chosen = []
    for column in columns:
        if isinstance(column, str):
            if names is None or column not in names:
                known = "has no column names" if names is None else f"has {_some(names)}"
                raise ValueError(f"columns must be in {where}, but {column!r} is not: it {known}.")
            chosen.append(list(names).index(column))
        elif isinstance(column, (int, np.integer)) and not isinstance(column, bool):
            if column < 0 or (column >= d and not beyond):
                raise ValueError(
                    f"columns must lie in [0, {d}) for {where}, but {column} does not."
                )
            chosen.append(int(column))
        else:
            raise ValueError(f"columns must be names or numbers, but one is {column!r}.")
    if not chosen:
        raise ValueError("columns must name at least one column.")
    return np.array(chosen, dtype=np.intp)


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:5]))
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"


def refuse_masked(array: Any, where: str) -> None:
    """Refuse masked values: conversions would use the values under the mask."""
    if isinstance(array, np.ma.MaskedArray) and np.ma.is_masked(array):
        at = ", column ".join(map(str, np.argwhere(np.ma.getmaskarray(array))[0]))
        raise ValueError(
            f"{where} must not have masked values, but the first is in row {at}: leave such rows "
            "out, or put values in with filled()."
        )


def refuse_kind(dtype: np.dtype[Any], where: str) -> None:
    """Refuse anything but real numbers."""
    if dtype.kind not in "fiub":
        raise ValueError(f"{where} must hold real numbers, but its dtype is {dtype}.")
