"""X as a float array or CSR matrix; each error is one sentence that names the argument."""

from __future__ import annotations

import copy
import sys
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike, NDArray
from sklearn.utils.validation import validate_data

from exactmeans.data.source import refuse_masked
from exactmeans.parameters import REALS

# Two-dimensional, of float32 or float64.
Matrix: TypeAlias = "NDArray[Any] | sp.csr_array[Any] | sp.csr_matrix[Any]"
Double: TypeAlias = NDArray[np.float64]
Labels: TypeAlias = NDArray[np.int32]


def as_matrix(estimator: Any, X: Any, *, reset: bool, dtype: np.dtype[Any] | None = None) -> Matrix:
    """A float32 or float64 ndarray (any strides) or CSR matrix, not copied unless it must be.

    Finiteness is not checked here, but in the first pass over the data.
    """
    if _usable_as_is(X) and (dtype is None or X.dtype == dtype):
        _check_width(estimator, X, reset=reset)
        usable: Matrix = X
        return usable
    values = _values_of_frame(X)
    if values is not None:
        validate_data(estimator, X, reset=reset, skip_check_array=True)  # names and width
        own = values.dtype if values.dtype in REALS else REALS[0]
        return values.astype(own if dtype is None else dtype, copy=False)
    if sp.issparse(X):
        refuse_malformed(X)
    elif _refuse_non_matrix(X) == np.float32 and dtype is None:
        dtype = np.dtype(np.float32)  # of frames, scikit-learn keeps the dtype of pandas only
    checked: Matrix = validate_data(
        estimator,
        X,
        reset=reset,
        accept_sparse="csr",
        accept_large_sparse=True,
        dtype=list(REALS) if dtype is None else dtype,
        ensure_all_finite=False,
    )
    return checked


def as_array(matrix: Matrix) -> NDArray[Any]:
    """The same values in an ndarray."""
    return matrix if isinstance(matrix, np.ndarray) else np.asarray(matrix.toarray())


def stacked(parts: Sequence[Matrix]) -> Matrix:
    """Matrices of one layout, one below the other."""
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], np.ndarray):
        return np.concatenate([as_array(part) for part in parts])
    return sp.csr_array(sp.vstack([sp.csr_array(part) for part in parts], format="csr"))


def _values_of_frame(X: Any) -> NDArray[Any] | None:
    """The values of a pandas frame whose columns are all plain numbers; None for anything else.

    scikit-learn's checks take longer than labelling a few rows, and find nothing in such a frame.
    """
    pandas = sys.modules.get("pandas")
    if pandas is None or type(X) is not pandas.DataFrame or not X.size:
        return None
    if not all(isinstance(dtype, np.dtype) and dtype.kind in "fiu" for dtype in X.dtypes):
        return None
    values: NDArray[Any] = X.to_numpy()
    return values


def _check_width(estimator: Any, X: Matrix, *, reset: bool) -> None:
    """What validate_data does for arrays without column names, in a tenth of the time."""
    named = hasattr(estimator, "feature_names_in_")
    if reset and not named:
        estimator.n_features_in_ = X.shape[1]
    elif named or getattr(estimator, "n_features_in_", None) != X.shape[1]:
        validate_data(estimator, X, reset=reset, skip_check_array=True)


def _usable_as_is(X: Any) -> bool:
    if type(X) in (np.ndarray, np.memmap):
        return bool(X.ndim == 2 and X.size and X.dtype in REALS and X.flags.aligned)
    return (
        isinstance(X, (sp.csr_matrix, sp.csr_array))
        and X.ndim == 2
        and len(X.indptr) == X.shape[0] + 1
        and X.dtype in REALS
        and min(X.shape) > 0
    )


def refuse_malformed(X: Any, what: str = "X") -> None:
    """Check the index arrays of a sparse matrix: SciPy's conversions would trust them."""
    try:
        if X.format in ("csr", "csc", "bsr"):
            copy.copy(X).check_format(full_check=True)  # on a shallow copy, because it may prune
        elif X.format == "coo" and X.ndim == 2:
            for index, size in ((X.row, X.shape[0]), (X.col, X.shape[1])):
                if index.min(initial=0) < 0 or index.max(initial=-1) >= size:
                    raise ValueError(f"indices must be >= 0 and < {size}")
    except ValueError as error:
        raise ValueError(f"{what} must be a well-formed {X.format} matrix: {error}.") from None


def as_csr(X: Any, dtype: DTypeLike, what: str) -> Any:
    """A CSR copy of a sparse matrix whose indices are in range, sorted and without duplicates."""
    refuse_malformed(X, what)
    csr = X.tocsr().astype(dtype, copy=True)  # a new matrix: flags that X caches may be stale
    refuse_malformed(csr, what)  # LIL hands its indices on unchecked
    csr.sum_duplicates()
    return csr


def _refuse_non_matrix(X: Any) -> np.dtype[Any]:
    """The dtype of X as an array, or one sentence on why it is no matrix of numbers."""
    if isinstance(X, (list, tuple)) and X and all(getattr(block, "ndim", 0) == 2 for block in X):
        raise ValueError(
            f"X must be one two-dimensional matrix, but it is a {type(X).__name__} of {len(X)}: "
            "exactmeans.open_blocks(X) takes them as blocks of rows."
        )
    refuse_masked(X, "X")
    try:
        array = np.asarray(X)
    except ValueError:
        raise ValueError("X must be two-dimensional, with rows of one length.") from None
    except RuntimeError:  # arrays of pydata-sparse refuse to become dense
        if not hasattr(X, "to_scipy_sparse"):
            raise
        raise ValueError(
            f"X must be an array or a SciPy sparse matrix, but it is a {type(X).__name__} of the "
            "sparse package: X.to_scipy_sparse() converts it, and in a Dask array "
            "X.map_blocks(lambda block: block.to_scipy_sparse()) its chunks."
        ) from None
    if array.dtype.kind in "OUSMm":
        _refuse_columns(X)
    if array.dtype.kind in "Mm":
        kind = "dates" if array.dtype.kind == "M" else "time spans"
        raise ValueError(
            f"X must hold numbers, but it holds {kind} (dtype {array.dtype}): make numbers of them "
            "in a unit that suits the other columns."
        )
    if array.dtype.kind in "US":
        if array.ndim == 0:
            raise ValueError(f"X must hold numbers or name a file, but there is no file {X!r:.80}.")
        how = ": exactmeans.text.tfidf makes rows of documents" if array.ndim == 1 else ""
        raise ValueError(f"X must hold numbers, but it holds text (dtype {array.dtype}){how}.")
    if array.dtype.kind == "c":
        raise ValueError("X must hold real numbers: Complex data not supported.")
    if array.ndim == 0:
        raise ValueError(f"X must be two-dimensional, but it is of type {type(X).__name__!r}.")
    if array.ndim > 2:
        raise ValueError(
            f"X must be two-dimensional, but it has shape {array.shape}: X.reshape(len(X), -1) "
            "makes a row of each entry, and exactmeans.open_blocks takes a list of blocks of rows."
        )
    if array.ndim != 2:
        raise ValueError(
            f"X must be two-dimensional, but it has shape {array.shape}: Reshape your data with "
            "X.reshape(-1, 1) if it has one feature, or X.reshape(1, -1) if it is one row."
        )
    if array.dtype.kind == "V":
        raise ValueError(f"X must hold numbers, but it holds records (dtype {array.dtype}).")
    if array.dtype.kind == "O":
        try:
            array.astype(np.float64)
        except (ValueError, OverflowError) as error:
            raise ValueError(f"X must hold numbers that fit float64, but {error}.") from None
        except TypeError:
            pass  # scikit-learn's estimator checks expect its own message
    return array.dtype


def _refuse_columns(X: Any) -> None:
    """The first column of a frame that is not numbers, by its name."""
    names = getattr(X, "column_names", None)  # pyarrow, whose `columns` are the values
    names = getattr(X, "columns", None) if names is None else names
    for name in [] if names is None else list(names):
        column = np.asarray(X[name])
        kind = column.dtype.kind
        what = {"M": "dates", "m": "time spans", "U": "text", "S": "text"}.get(kind)
        if kind == "O":
            try:
                column.astype(np.float64)
            except (TypeError, ValueError, OverflowError):
                odd = next((v for v in column.ravel() if not _is_real(v)), None)
                if odd is not None:
                    what = "text" if isinstance(odd, (str, bytes)) else f"a {type(odd).__name__}"
        if what is not None:
            raise ValueError(
                f"X must hold numbers, but its column {name!r} holds {what}: leave it out, or make "
                "numbers of it."
            )


def _is_real(value: Any) -> bool:
    """A number, or a missing value: None or pandas.NA."""
    try:
        float(value)
    except (TypeError, ValueError, OverflowError):
        return value is None or type(value).__name__ == "NAType"
    return True


def reals_of(values: Any, dtype: DTypeLike | None, *, copy: bool = True) -> NDArray[Any] | None:
    """A C-ordered array, always a new one if `copy`; None for what is not real numbers."""
    try:
        array = np.asarray(values)
        if array.dtype.kind == "c":
            return None
        own = np.array if copy else np.asarray
        return own(array, dtype=dtype, order="C")
    except (TypeError, ValueError, OverflowError):
        return None
