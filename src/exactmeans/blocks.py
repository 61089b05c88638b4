"""Data as an ordered sequence of row blocks.

A fit never asks where its rows come from: an array in memory is one block, `open_blocks` makes a
source of several. However the rows are cut, the result is the same to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import scipy.sparse as sp

__all__ = ["BlockSource", "open_blocks"]


@runtime_checkable
class BlockSource(Protocol):
    """Ordered blocks of rows of one width: what estimators read from."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of all blocks together."""

    def __len__(self) -> int:
        """The number of blocks."""

    def read(self, block: int) -> Any:
        """One block: a two-dimensional array, or a scipy sparse matrix or array."""


class ArrayBlocks:
    """Arrays in memory, one block each."""

    def __init__(self, arrays: Sequence[Any]) -> None:
        self._arrays = arrays
        self._shape = (sum(a.shape[0] for a in arrays), arrays[0].shape[1])

    @property
    def shape(self) -> tuple[int, int]:
        return self._shape

    def __len__(self) -> int:
        return len(self._arrays)

    def read(self, block: int) -> Any:
        return self._arrays[block]

    def __repr__(self) -> str:
        return f"<{len(self)} blocks, {self.shape[0]} rows x {self.shape[1]} columns>"


def open_blocks(source: Iterable[Any]) -> BlockSource:
    """Make a source of row blocks from several arrays.

    Parameters
    ----------
    source : iterable of arrays
        Two-dimensional arrays or sparse matrices with the same number of columns, either all dense
        or all sparse. They are not copied.

    Returns
    -------
    BlockSource
        What `KMeans.fit`, `predict`, `transform` and `score` take in place of an array.

    Examples
    --------
    >>> import numpy as np
    >>> from exactmeans import KMeans, open_blocks
    >>> X = np.arange(24.0).reshape(12, 2)
    >>> blocks = open_blocks([X[:5], X[5:]])
    >>> blocks
    <2 blocks, 12 rows x 2 columns>
    >>> KMeans(2, random_state=0).fit(blocks).labels_
    array([1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0], dtype=int32)
    """
    if isinstance(source, BlockSource) and not isinstance(source, np.ndarray):
        return source
    if (
        isinstance(source, (np.ndarray, str, bytes))
        or hasattr(source, "__dataframe__")
        or sp.issparse(source)
        or not isinstance(source, Iterable)
    ):
        raise TypeError(
            "source must be a list of arrays, one per block; pass a single array to fit directly."
        )
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
    return ArrayBlocks(arrays)
