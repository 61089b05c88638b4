"""Single rows of data that comes in blocks: each block is read at most once."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from exactmeans.data.arrays import Matrix
from exactmeans.data.stream import Stream, offsets_of


def pick_rows(blocks: list[Matrix] | Stream, rows: NDArray[Any]) -> Matrix:
    """The rows with these numbers, which ascend; dense, or CSR if the blocks are."""
    if isinstance(blocks, Stream):
        edges = blocks.edges
    else:
        edges = [0, *(end for _, end in offsets_of(blocks))]
    cuts = np.searchsorted(rows, edges)
    parts = []
    for b in range(len(edges) - 1):
        own = rows[cuts[b] : cuts[b + 1]] - edges[b]
        if len(own):
            block: Any = blocks.read(b) if isinstance(blocks, Stream) else blocks[b]
            parts.append(block[own])
    if not parts:
        return np.empty((0, 0))
    return sp.csr_matrix(sp.vstack(parts)) if sp.issparse(parts[0]) else np.concatenate(parts)


def sample_rows(n: int, most: int, seed: int) -> NDArray[np.intp]:
    """Numbers of at most `most` of n rows, drawn without replacement, ascending."""
    if n <= most:
        return np.arange(n)
    return np.sort(np.random.default_rng(seed).choice(n, most, replace=False))


def is_sparse(X: Any) -> bool:
    """scipy's `issparse`, without its narrowing of types."""
    return bool(sp.issparse(X))
