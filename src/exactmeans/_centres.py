"""Centres as users and as the core hold them: an array for dense rows, CSR for sparse ones."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from exactmeans import _core
from exactmeans._metrics import Metric
from exactmeans._validation import Double, Matrix, rows_of, without_zeros

COMFORTABLE = 2**29  # bytes of dense centres that nobody minds
_BUFFER, _BLOCK = 8192, 64
_PIECES = 64  # blocks of _BUFFER features that are squared and summed at a time
_SLAB = 2**23  # bytes that are worth a thread


def for_core(centres: Matrix) -> Any:
    """What the core takes: the array itself, or its own copy of a CSR matrix."""
    if isinstance(centres, np.ndarray):
        return centres
    return _core.SparseCentres.make(centres.data, centres.indices, centres.indptr, centres.shape[1])


def from_core(given: Any, shape: tuple[int, int]) -> Matrix:
    """An array, or a CSR matrix from its three arrays."""
    if isinstance(given, tuple):
        return sp.csr_array(given, shape=shape)
    return given


def like_rows(centres: Matrix, *, sparse: bool, n_jobs: int = 1) -> Matrix:
    """Centres in the form that rows of this kind are compared with."""
    if isinstance(centres, np.ndarray) != sparse:
        return centres
    return without_zeros(centres) if sparse else _spread_out(centres, n_jobs)


def _spread_out(centres: Any, n_jobs: int) -> NDArray[Any]:
    """An array of CSR centres. New memory takes long to touch, so threads share a large one."""
    k, d = centres.shape
    slabs = min(k, n_jobs, k * d * centres.dtype.itemsize // _SLAB)
    if slabs < 2:
        return np.asarray(centres.toarray())
    out = np.empty((k, d), dtype=centres.dtype)
    edges = [k * slab // slabs for slab in range(slabs + 1)]

    def fill(slab: int) -> None:
        own = slice(edges[slab], edges[slab + 1])
        centres[own].toarray(out=out[own])

    with ThreadPoolExecutor(slabs) as pool:
        list(pool.map(fill, range(slabs)))
    return out


def for_users(centres: Matrix, sparse_centers: bool | str, n_jobs: int = 1) -> Matrix:
    """`cluster_centers_`: an ndarray, unless that was not wanted or would be large."""
    if sparse_centers == "auto":
        size = centres.shape[0] * centres.shape[1] * centres.dtype.itemsize
        sparse_centers = size > COMFORTABLE and not isinstance(centres, np.ndarray)
    return like_rows(centres, sparse=bool(sparse_centers), n_jobs=n_jobs)


def normalise(vectors: Matrix) -> None:
    """Divide each by its length, where it lies; those of length 0 stay as they are."""
    if isinstance(vectors, np.ndarray):
        offsets = np.arange(len(vectors) + 1, dtype=np.int64) * vectors.shape[1]
        _core.normalise(vectors.reshape(-1), offsets)
    else:
        _core.normalise(vectors.data, vectors.indptr.astype(np.int64))


def lengths_of(vectors: Matrix) -> Double:
    lengths = np.empty(vectors.shape[0])
    rows_of(vectors, None).lengths(lengths, 1)
    return lengths


def as_directions(centres: Matrix, metric: Metric, what: str) -> Matrix:
    """Centres as unit vectors where only directions count; those that are stay as they are.

    So the centres of a fitted model keep their bits, and those that users set need no care.
    """
    if not metric.directed:
        return centres
    lengths = lengths_of(centres)
    if not lengths.all():
        raise ValueError(f"{what} must not have rows of zeros for metric={metric.name!r}.")
    if np.all(np.abs(lengths - 1) <= 8 * np.finfo(centres.dtype).eps):
        return centres
    unit = centres.copy()
    normalise(unit)
    return unit


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
