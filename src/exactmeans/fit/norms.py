"""Squared norms of initial centres, rounded as scikit-learn rounds them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from exactmeans.data.arrays import Double, Matrix

_BUFFER, _BLOCK = 8192, 64
_PIECES = 64  # blocks of _BUFFER features that are squared and summed at a time


def einsum_norms2(centres: Matrix, shift: NDArray[Any] | None) -> Double:
    """Squared norms with the roundings of NumPy's einsum over whole rows."""
    k, d = centres.shape
    norms2 = np.empty(k)
    if isinstance(centres, np.ndarray):
        step = max(1, 2**16 // d)
        for begin in range(0, k, step):
            few = centres[begin : begin + step]
            seen = few if shift is None else few - shift
            norms2[begin : begin + step] = np.einsum("ij,ij->i", seen, seen)
        return norms2
    step = max(1, _PIECES * _BUFFER // d)
    for first in range(0, k, step):
        norms2[first : first + step] = _sparse_norms2(centres[first : first + step])
    return norms2


def _sparse_norms2(centres: Any) -> Double:
    """The same of a few CSR centres.

    einsum adds up 8192 features at a time, and there deals them out to lanes by their number.
    Leaving out whole blocks of zeros changes neither the lanes nor the sums in them.
    """
    k, d = centres.shape
    per_piece = _BUFFER // _BLOCK
    pieces_per_row = -(-d // _BUFFER)
    row = np.repeat(np.arange(k), np.diff(centres.indptr))
    block = row * (pieces_per_row * per_piece) + centres.indices // _BLOCK
    blocks, at = np.unique(block, return_inverse=True)
    pieces, first, count = np.unique(blocks // per_piece, return_index=True, return_counts=True)
    piece = np.repeat(np.arange(len(pieces)), count)
    place = np.arange(len(blocks)) - first[piece]
    out = np.zeros((len(pieces), int(count.max(initial=0)), _BLOCK))
    out[piece[at], place[at], centres.indices % _BLOCK] = centres.data
    seen = out.reshape(len(pieces), out.shape[1] * _BLOCK)
    # One after the other, as einsum adds them; Python's own sum would be more exact.
    norms2 = np.zeros(k)
    np.add.at(norms2, pieces // pieces_per_row, np.einsum("ij,ij->i", seen, seen))
    return norms2
