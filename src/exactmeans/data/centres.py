"""Centres as users and as the core hold them: an array for dense rows, CSR for sparse ones."""

from __future__ import annotations

import inspect
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from exactmeans import _core
from exactmeans.data.arrays import Double, Matrix, as_array, as_csr, reals_of
from exactmeans.data.rows import rows_of
from exactmeans.data.source import refuse_masked
from exactmeans.metrics import Metric

DENSE_CENTRES_BYTES = 2**29  # bytes up to which centres of sparse rows are dense for users
_SLAB = 2**23  # bytes that are worth a thread


def for_core(centres: Matrix) -> NDArray[Any] | _core.SparseCentres:
    """Centres as the core takes them: the array itself, or a copy of a CSR matrix."""
    if isinstance(centres, np.ndarray):
        return centres
    return _core.SparseCentres.make(centres.data, centres.indices, centres.indptr, centres.shape[1])


def from_core(given: Any, shape: tuple[int, int]) -> Matrix:
    """An array, or a CSR matrix from its three arrays."""
    if isinstance(given, tuple):
        values, indices, offsets = given
        # SciPy gives the indices the type of the offsets: 64 bits for each would copy them.
        if len(values) < 2**31:
            offsets = offsets.astype(np.int32)
        return sp.csr_array((values, indices, offsets), shape=shape)
    array: Matrix = given
    return array


def like_rows(centres: Matrix, *, sparse: bool, n_jobs: int = 1) -> Matrix:
    """Centres in the layout of the rows: dense, or CSR."""
    if isinstance(centres, np.ndarray):
        return without_zeros(centres) if sparse else centres
    return centres if sparse else _spread_out(centres, n_jobs)


def _spread_out(centres: sp.csr_array[Any] | sp.csr_matrix[Any], n_jobs: int) -> NDArray[Any]:
    """CSR centres as an array. Page faults of new memory are slow, so threads share the work."""
    k, d = centres.shape
    slabs = min(k, n_jobs, k * d * centres.dtype.itemsize // _SLAB)
    if slabs < 2:
        return as_array(centres)
    out = np.empty((k, d), dtype=centres.dtype)
    edges = [k * slab // slabs for slab in range(slabs + 1)]

    def fill(slab: int) -> None:
        own = slice(edges[slab], edges[slab + 1])
        centres[own].toarray(out=out[own])

    with ThreadPoolExecutor(slabs) as pool:
        list(pool.map(fill, range(slabs)))
    return out


def for_users(centres: Matrix, sparse_centers: bool | str, n_jobs: int = 1) -> Matrix:
    """`cluster_centers_`: an ndarray, unless `sparse_centers` or its size says otherwise."""
    if sparse_centers == "auto":
        size = centres.shape[0] * centres.shape[1] * centres.dtype.itemsize
        sparse_centers = size > DENSE_CENTRES_BYTES and not isinstance(centres, np.ndarray)
    return like_rows(centres, sparse=bool(sparse_centers), n_jobs=n_jobs)


def normalise(vectors: Matrix) -> None:
    """Divide each vector by its length, in place; vectors of length 0 stay."""
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
    """Centres as unit vectors where only directions count; unit vectors are not changed.

    So the centres of a fitted model keep their bits, and users may set centres of any length.
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


def call_init(init: Any, X: Matrix, k: int, rng: np.random.RandomState) -> Any:
    """The result of a callable `init`; checks its signature first, to keep its own TypeErrors."""
    try:
        inspect.signature(init).bind(X, k, random_state=rng)
    except TypeError as error:
        raise ValueError(
            f"init must be callable as init(X, n_clusters, random_state=...), but {error}."
        ) from None
    except ValueError:
        pass  # some callables of C have no signature
    centres = init(X, k, random_state=rng)
    if isinstance(centres, tuple):
        raise ValueError(
            f"what init returned must be an array of shape ({k}, {X.shape[1]}), but it is a tuple "
            f"of {len(centres)}: return the centres alone."
        )
    return centres


def check_centres(
    init: Any, k: int, d: int, dtype: np.dtype[Any], what: str = "init", *, sparse: bool = False
) -> Matrix:
    """Given centres as a finite array of their own: C-ordered, or canonical CSR."""
    refuse_masked(init, what)
    centres: Matrix | None = init
    if not sp.issparse(init):
        centres = reals_of(init, dtype, copy=not sparse)
    if centres is None or init is None or centres.dtype.kind not in "biuf":
        raise ValueError(f"{what} must be an array of numbers of shape ({k}, {d}).")
    if centres.ndim != 2 or centres.shape[0] != k:
        raise ValueError(
            f"{what} must have shape ({k}, {d}): The shape of the initial centers {centres.shape} "
            f"does not match the number of clusters {k}."
        )
    if centres.shape[1] != d:
        raise ValueError(
            f"{what} must have shape ({k}, {d}): The shape of the initial centers {centres.shape} "
            f"does not match the number of features of the data {d}."
        )
    if sp.issparse(centres):
        centres = as_csr(centres, dtype, what)
    if not np.isfinite(centres if isinstance(centres, np.ndarray) else centres.data).all():
        raise ValueError(f"{what} must be finite, but it contains NaN or infinity (inf).")
    return like_rows(centres, sparse=sparse)


def without_zeros(dense: NDArray[Any]) -> Matrix:
    """The same as CSR; faster than SciPy's conversion."""
    k, d = dense.shape
    at = np.flatnonzero(dense.reshape(-1) != 0)
    offsets = np.searchsorted(at, np.arange(k + 1, dtype=at.dtype) * d)
    integer = np.int32 if dense.size <= np.iinfo(np.int32).max else np.int64
    places = (at % d).astype(integer), offsets.astype(integer)
    return sp.csr_array((dense.reshape(-1)[at], *places), shape=(k, d))
