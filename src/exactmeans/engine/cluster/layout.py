"""How all rows are cut into blocks, and which worker engine has which blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exactmeans.data.arrays import Matrix


@dataclass(frozen=True)
class BlockInfo:
    """Shape, dtype and layout of a block."""

    rows: int
    columns: int
    dtype: str | None  # None if there are no rows
    sparse: bool
    values: int

    @staticmethod
    def of(block: Matrix) -> BlockInfo:
        n, d = block.shape
        if isinstance(block, np.ndarray):
            return BlockInfo(n, d, str(block.dtype), sparse=False, values=block.size)
        return BlockInfo(n, d, str(block.dtype), sparse=True, values=int(block.nnz))

    @property
    def bytes(self) -> int:
        """Memory of the block; indices of CSR rows count as 8 bytes."""
        item = 8 if self.dtype is None else np.dtype(self.dtype).itemsize
        return self.values * (item + 8) + 8 * self.rows if self.sparse else self.values * item


@dataclass(frozen=True)
class Layout:
    """All blocks in the order of their rows, those without rows too."""

    infos: Sequence[BlockInfo]

    def check(self) -> None:
        """Refuse blocks that are not one matrix."""
        full = self._full
        if not full:
            raise ValueError("X must have rows, but Found array with 0 sample(s).")
        if len({info.columns for info in full}) > 1:
            wide = sorted({info.columns for info in full})
            raise ValueError(f"X must have blocks of one width, but they have {wide} columns.")
        if len({info.sparse for info in full}) > 1:
            raise ValueError("X must have blocks that are all dense or all sparse.")

    @cached_property
    def _full(self) -> list[BlockInfo]:
        return [info for info in self.infos if info.rows]

    @property
    def d(self) -> int:
        return self._full[0].columns

    @property
    def sparse(self) -> bool:
        return self._full[0].sparse

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        return np.result_type(*(np.dtype(info.dtype) for info in self._full))

    @property
    def lengths(self) -> list[int]:
        return [info.rows for info in self.infos]

    @cached_property
    def begins(self) -> NDArray[np.int64]:
        """The first row of each block, and the number of rows."""
        return np.concatenate([[0], np.cumsum(self.lengths)]).astype(np.int64)

    @property
    def n(self) -> int:
        return int(self.begins[-1])

    @property
    def nonzeros(self) -> int:
        return sum(info.values for info in self._full)
