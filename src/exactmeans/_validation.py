"""From whatever the user passes to what the core reads, with one clear sentence when that fails."""

from __future__ import annotations

import copy
import ctypes
import inspect
import math
import multiprocessing
import numbers
import os
import re
import sys
import warnings
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple, NoReturn, TypeAlias

import numpy as np
import scipy.sparse as sp
from joblib.parallel import get_active_backend
from numpy.typing import NDArray
from sklearn.utils import check_random_state as check_theirs
from sklearn.utils.validation import validate_data

from exactmeans import _core
from exactmeans.blocks import BlockSource, names_files, open_blocks
from exactmeans.blocks._source import CutRows, ReusedRoom, refuse_masked

Matrix: TypeAlias = Any  # a two-dimensional float ndarray, or CSR
Double: TypeAlias = NDArray[np.float64]

REALS = (np.dtype(np.float64), np.dtype(np.float32))


def as_matrix(estimator: Any, X: Any, *, reset: bool, dtype: Any = None) -> Matrix:
    """A float32 or float64 ndarray (any strides) or CSR matrix, not copied unless it must be.

    Finiteness is not looked at here: the core finds it out on its first pass over the data.
    """
    if _usable_as_is(X) and (dtype is None or X.dtype == dtype):
        _check_width(estimator, X, reset=reset)
        return X
    values = _values_of_frame(X)
    if values is not None:
        validate_data(estimator, X, reset=reset, skip_check_array=True)  # names and width
        own = values.dtype if values.dtype in REALS else REALS[0]
        return values.astype(own if dtype is None else dtype, copy=False)
    if sp.issparse(X):
        refuse_malformed(X)
    elif _refuse_what_is_no_matrix(X) == np.float32 and dtype is None:
        dtype = np.float32  # scikit-learn sees the dtype of pandas frames only
    return validate_data(
        estimator,
        X,
        reset=reset,
        accept_sparse="csr",
        accept_large_sparse=True,
        dtype=list(REALS) if dtype is None else dtype,
        ensure_all_finite=False,
    )


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


def is_source(X: Any) -> bool:
    """Does X come in blocks? Arrays are looked at first: asking a protocol takes long."""
    if isinstance(X, np.ndarray) or sp.issparse(X):
        return False
    return isinstance(X, BlockSource) or names_files(X)


def as_blocks(estimator: Any, X: Any, *, reset: bool, dtype: Any = None) -> list[Matrix] | Stream:
    """The blocks of a source, or the only block that an array is."""
    if not is_source(X):
        return [as_matrix(estimator, X, reset=reset, dtype=dtype)]
    if names_files(X):
        X = open_blocks(X)
    _check_names(estimator, getattr(X, "feature_names", None), reset=reset)
    if not getattr(X, "in_memory", False):
        return Stream(estimator, X, reset=reset, dtype=dtype)
    blocks, bare = [], _without_names(estimator, reset=reset)
    for b in range(len(X)):
        blocks.append(as_matrix(bare, X.read(b), reset=reset and b == 0, dtype=dtype))
    if reset:
        estimator.n_features_in_ = bare.n_features_in_
    common = np.result_type(*(block.dtype for block in blocks))
    return [block if block.dtype == common else block.astype(common) for block in blocks]


def _check_names(estimator: Any, names: Any, *, reset: bool) -> None:
    """What validate_data does with the names of a frame's columns, for those of a source."""
    known = getattr(estimator, "feature_names_in_", None)
    if reset:
        vars(estimator).pop("feature_names_in_", None)
        if names is not None:
            estimator.feature_names_in_ = np.asarray(names, dtype=object)
        return
    model = type(estimator).__name__
    if (known is None) != (names is None):
        has = "has feature names" if known is None else "does not have valid feature names"
        kept = "without" if known is None else "with"
        warnings.warn(f"X {has}, but {model} was fitted {kept} feature names", stacklevel=5)
    elif known is not None and list(names) != list(known):
        odd = [name for name in known if name not in set(names)]
        new = [name for name in names if name not in set(known)]
        why = "their order differs"
        if odd or new:
            why = f"it lacks {odd[0]!r}" if odd else f"{model} was fitted without {new[0]!r}"
        raise ValueError(
            "X must have the columns of fit (The feature names should match those that were "
            f"passed during fit), but {why}."
        )


def _without_names(estimator: Any, *, reset: bool) -> Any:
    """What blocks are checked against: they have no names, those of the source are known."""
    bare = object.__new__(type(estimator))
    if not reset and hasattr(estimator, "n_features_in_"):
        bare.n_features_in_ = estimator.n_features_in_
    return bare


def count_rows(blocks: list[Matrix] | Stream) -> int:
    return blocks.n if isinstance(blocks, Stream) else sum(block.shape[0] for block in blocks)


class Stream:
    """Blocks that are not in memory: matrices of one kind and dtype, read when they are needed."""

    def __init__(self, estimator: Any, source: Any, *, reset: bool, dtype: Any) -> None:
        self._estimator, self._source = _without_names(estimator, reset=reset), source
        first = as_matrix(self._estimator, source.read(0), reset=reset, dtype=dtype)
        if reset:
            estimator.n_features_in_ = self._estimator.n_features_in_
        self.sparse = bool(sp.issparse(first))
        self.d: int = first.shape[1]
        known = getattr(source, "dtype", None)
        edges = getattr(source, "edges", None)
        if edges is None or (dtype is None and known is None):
            edges, dtype = self._look(dtype)
        elif dtype is None:
            dtype = known if known == np.float32 else np.float64
        self.edges: list[int] = [int(edge) for edge in edges]
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self.n = self.edges[-1]
        said = getattr(source, "shape", None)
        if said is not None and tuple(said) != (self.n, self.d):
            raise ValueError(
                f"X must have the shape that its blocks have, ({self.n}, {self.d}), but it says "
                f"{tuple(said)}."
            )

    def __len__(self) -> int:
        return len(self.edges) - 1

    @property
    def reading_bytes(self) -> int:
        """What dense blocks take that are at hand, coming, and being put into shape; the reader."""
        rows = max(end - begin for begin, end in pairwise(self.edges))
        blocks = 0 if self.sparse else 4 * rows * self.d * self.dtype.itemsize
        return blocks + self.held_bytes * 3 // 2

    @property
    def held_bytes(self) -> int:
        """What reading held beside blocks, of those that were read so far."""
        return int(getattr(self._source, "held_bytes", 0))

    def _look(self, dtype: Any) -> tuple[list[int], Any]:
        """Read every block once, for its length and dtype."""
        edges, dtypes = [0], []
        for b in range(len(self._source)):
            block = as_matrix(self._estimator, self._source.read(b), reset=False, dtype=dtype)
            edges.append(edges[-1] + block.shape[0])
            dtypes.append(block.dtype)
        return edges, np.result_type(*dtypes)

    def read(self, b: int, room: ReusedRoom | None = None) -> Matrix:
        """Block b; what lies in `room` goes with the next block that is read there."""
        if room is not None and isinstance(self._source, CutRows):
            room.clear()
            given = self._source.read(b, room)
        else:
            given = self._source.read(b)
        block = as_matrix(self._estimator, given, reset=False, dtype=self.dtype)
        expected = self.edges[b + 1] - self.edges[b]
        if block.shape[0] != expected or sp.issparse(block) != self.sparse:
            kind = "sparse" if self.sparse else "dense"
            raise ValueError(
                f"X must give the same blocks each time, but block {b} is not {expected} {kind} "
                "rows any more."
            )
        return block


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


def as_csr(X: Any, dtype: Any, what: str) -> Any:
    """A CSR copy of a sparse matrix whose indices are in range, sorted and without duplicates."""
    refuse_malformed(X, what)
    csr = X.tocsr().astype(dtype, copy=True)  # a new matrix: flags that X caches may be stale
    refuse_malformed(csr, what)  # LIL hands its indices on unchecked
    csr.sum_duplicates()
    return csr


def _refuse_what_is_no_matrix(X: Any) -> np.dtype[Any]:
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
        files = " or name files" if array.ndim == 0 else ""
        raise ValueError(f"X must hold numbers{files}, but it holds text (dtype {array.dtype}).")
    if array.dtype.kind == "c":
        raise ValueError("X must hold real numbers: Complex data not supported.")
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
            pass  # scikit-learn's checks ask for its own words
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


def rows_of(block: Matrix, weights: Double | None) -> _core.Rows:
    """The core's view of a block. CSR that is out of order or has duplicates is put right first."""
    if isinstance(block, np.ndarray):
        whole = block.flags.c_contiguous
        if not whole and any(stride % block.itemsize for stride in block.strides):
            block = np.ascontiguousarray(block)
        return _core.Rows.dense(block, weights)
    rows, canonical = _core.Rows.csr(
        block.data, block.indices, block.indptr, block.shape[1], weights
    )
    if canonical:
        return rows
    tidy: Any = sp.csr_matrix(
        (block.data.copy(), block.indices.copy(), block.indptr.copy()), shape=block.shape
    )
    # Cached flags may say otherwise: users can write into the arrays of a CSR matrix.
    tidy.has_sorted_indices = False
    tidy.has_canonical_format = False
    tidy.sum_duplicates()
    return _core.Rows.csr(tidy.data, tidy.indices, tidy.indptr, tidy.shape[1], weights)[0]


def refuse_nonfinite(
    survey: _core.Survey, first_row: int = 0, block: Matrix | None = None, names: Any = None
) -> None:
    """Name the first row that is not finite, and its column where the rows are at hand."""
    if survey.first_bad_row < 0:
        return
    value = "NaN" if survey.bad_is_nan else "infinity (inf)"
    where = str(first_row + survey.first_bad_row)
    if block is not None:
        column = _bad_column(block, survey.first_bad_row)
        where += f", in column {column if names is None else repr(str(names[column]))}"
    todo = "leave such rows out or impute their values" if survey.bad_is_nan else "replace it"
    raise ValueError(
        f"X must be finite, but it contains {value}; the first such row is {where}: {todo}."
    )


def _bad_column(block: Matrix, row: int) -> int:
    if isinstance(block, np.ndarray):
        return int(np.flatnonzero(~np.isfinite(block[row]))[0])
    begin, end = block.indptr[row], block.indptr[row + 1]
    bad = ~np.isfinite(block.data[begin:end])
    return int(block.indices[begin:end][bad].min())


# Squares and products of longer rows might overflow.
_LONGEST = 2.0**1000


class Lengths(NamedTuple):
    """What lengths of rows come to, of which only the directions count."""

    longest: float
    longest_row: int
    zeros: int
    first_zero: int  # -1 if there is none

    @staticmethod
    def of(norms: Double) -> Lengths:
        """Rows of length 0 have no direction: the core gives it to all that are too short."""
        zeros = np.flatnonzero(norms == 0)
        first = int(zeros[0]) if len(zeros) else -1
        return Lengths(float(norms.max()), int(norms.argmax()), len(zeros), first)

    def refuse(self, zero_rows: str, metric: str) -> None:
        if self.longest > _LONGEST:
            raise ValueError(
                f"X must have rows no longer than 2**1000 for metric={metric!r}, but row "
                f"{self.longest_row} is."
            )
        if self.zeros and zero_rows == "error":
            raise ValueError(
                f"X must not have rows of zeros for metric={metric!r}, nor rows shorter than the "
                f"smallest normal number of their dtype, which have no direction, but it has "
                f"{self.zeros}, the first of which is row {self.first_zero}; "
                "zero_rows='keep' keeps them, in no cluster."
            )

    def refuse_none(self, n: int, metric: str) -> None:
        """Of n rows one must have a direction, or there is nothing to cluster."""
        if self.zeros == n:
            raise ValueError(f"X must have a row that is not zero for metric={metric!r}.")


def refuse_few_rows(n: int, k: int) -> None:
    if n < k:
        raise ValueError(f"n_samples={n} should be >= n_clusters={k}.")


def refuse_overflow(largest: float, d: int, dtype: np.dtype[Any], rows: float) -> None:
    """L1 distances of values up to `largest`, and their sum over rows, must stay finite."""
    most = min(float(np.finfo(dtype).max), 2.0**1000 / max(rows, 1.0)) / (2 * d)
    if not largest < most:
        raise ValueError(
            f"X must not have values beyond {most:.2g} for metric='manhattan', {dtype} and {d:,} "
            f"columns, whose sums would overflow, but it has one of {largest:.2g}."
        )


def check_weights(sample_weight: Any, n: int, *, part: bool = False) -> Double | None:
    """One finite, non-negative float64 weight per row; None stays None.

    Of a part of the rows, all may be zero.
    """
    if sample_weight is None:
        return None
    if isinstance(sample_weight, numbers.Real):
        sample_weight = np.full(n, float(sample_weight))
    refuse_masked(sample_weight, "sample_weight")
    weights = _reals(sample_weight, np.float64)
    if weights is None:
        raise ValueError("sample_weight must hold numbers, one per row.")
    if weights.ndim != 1:
        raise ValueError("Sample weights must be 1D array or scalar: sample_weight has more axes.")
    if weights.shape != (n,):
        raise ValueError(f"sample_weight.shape == {weights.shape}, expected {(n,)}!")
    if not np.isfinite(weights).all():
        raise ValueError("sample_weight must be finite, but it contains NaN or infinity (inf).")
    if part and not n:
        return weights
    if weights.min() < 0:
        row = f"row {weights.argmin()}{' of its block' if part else ''}"
        raise ValueError(f"sample_weight must not be negative, but {row} is.")
    if not part and not weights.any():
        raise ValueError("sample_weight must not be zero for every row.")
    return weights


def call_init(init: Any, X: Matrix, k: int, rng: np.random.RandomState) -> Any:
    """What a callable `init` returns; looked at before it runs, so that its own errors stay its."""
    try:
        inspect.signature(init).bind(X, k, random_state=rng)
    except TypeError as error:
        raise ValueError(
            f"init must be callable as init(X, n_clusters, random_state=...), but {error}."
        ) from None
    except ValueError:
        pass  # some callables of C do not tell
    centres = init(X, k, random_state=rng)
    if isinstance(centres, tuple):
        raise ValueError(
            f"what init returned must be an array of shape ({k}, {X.shape[1]}), but it is a tuple "
            f"of {len(centres)}: return the centres alone."
        )
    return centres


def check_centres(
    init: Any, k: int, d: int, dtype: Any, what: str = "init", *, sparse: bool = False
) -> Matrix:
    """Given centres as a finite array of their own: C-ordered, or canonical CSR."""
    refuse_masked(init, what)
    centres: Matrix = init
    if not sp.issparse(init):
        centres = _reals(init, dtype, copy=not sparse)
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
    elif sparse:
        centres = without_zeros(centres)  # what is not finite is not 0
    if not np.isfinite(centres if isinstance(centres, np.ndarray) else centres.data).all():
        raise ValueError(f"{what} must be finite, but it contains NaN or infinity (inf).")
    return centres if sp.issparse(centres) == sparse else centres.toarray()


def without_zeros(dense: NDArray[Any]) -> Matrix:
    """The same as CSR; SciPy looks for what is not 0 in a slower way."""
    k, d = dense.shape
    at = np.flatnonzero(dense.reshape(-1) != 0)
    offsets = np.searchsorted(at, np.arange(k + 1, dtype=at.dtype) * d)
    integer = np.int32 if dense.size <= np.iinfo(np.int32).max else np.int64
    places = (at % d).astype(integer), offsets.astype(integer)
    return sp.csr_array((dense.reshape(-1)[at], *places), shape=(k, d))


def _reals(values: Any, dtype: Any, *, copy: bool = True) -> NDArray[Any] | None:
    """A C-ordered array, of its own if it is to be a copy; None for what is not real numbers."""
    try:
        array = np.asarray(values)
        if array.dtype.kind == "c":
            return None
        own = np.array if copy else np.asarray
        return own(array, dtype=dtype, order="C")
    except (TypeError, ValueError, OverflowError):
        return None


def check_int(name: str, value: Any, least: int) -> int:
    if type(value) is int and value >= least:
        return value  # as nearly always, and asking for Integral takes longer than all else
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < least:
        _refuse(name, value, f"an int of at least {least}")
    return int(value)


def check_real(name: str, value: Any, least: float) -> float:
    if (
        not isinstance(value, numbers.Real)
        or isinstance(value, bool)
        or not math.isfinite(value)
        or value < least
    ):
        _refuse(name, value, f"a finite number of at least {least:g}")
    return float(value)


def check_choice(name: str, value: Any, choices: tuple[str, ...], other: str = "") -> str:
    """One of some words; `other`: what else the argument may be, which the caller looks at."""
    if not isinstance(value, str) or value not in choices:
        words = ", ".join(map(repr, choices))
        _refuse(name, value, f"{words} or {other}" if other else f"one of {words}")
    return value


def check_verbose(verbose: Any) -> bool:
    """Whether to show progress: True, False or an int, of which any above 0 means True."""
    if isinstance(verbose, (bool, np.bool_)):
        return bool(verbose)
    if not isinstance(verbose, numbers.Integral) or int(verbose) < 0:
        _refuse("verbose", verbose, "True, False or an int of at least 0")
    return int(verbose) > 0


def check_random_state(random_state: Any) -> np.random.RandomState:
    """NumPy's own generator, one that a seed starts, or the one that was given."""
    if isinstance(random_state, (np.random.Generator, np.random.BitGenerator)):
        raise ValueError(
            "random_state must be None, an int or a RandomState, but it is a "
            f"{type(random_state).__name__}: pass a seed from it, such as int(rng.integers(2**31))."
        )
    try:
        rng: np.random.RandomState = check_theirs(random_state)
    except (ValueError, TypeError):
        _refuse("random_state", random_state, "None, an int in [0, 2**32) or a RandomState")
    return rng


_MOST_THREADS = 256  # the pool has no more


def check_n_jobs(n_jobs: Any) -> int:
    """How many threads to use; -1 means all cores one may use, -2 all but one.

    None means all cores, too, but inside joblib what joblib leaves to each of its tasks.
    """
    cores = _core.usable_cores()
    if n_jobs is None:
        return _share_of_joblib(cores)
    if not isinstance(n_jobs, numbers.Integral) or isinstance(n_jobs, bool) or n_jobs == 0:
        _refuse("n_jobs", n_jobs, "None or an int other than 0")
    asked = int(n_jobs)
    return min(asked, _MOST_THREADS) if asked > 0 else max(1, cores + 1 + asked)


def _share_of_joblib(cores: int) -> int:
    """Threads that a fit may use where it runs, so that parallel tasks do not share cores."""
    backend, asked = get_active_backend()
    if backend.nesting_level == 0 and asked is None:  # neither in a task nor in parallel_config
        return cores
    if _positive("EXACTMEANS_NUM_THREADS"):
        return cores
    if backend.nesting_level == 0:
        return int(min(backend.effective_n_jobs(asked), _MOST_THREADS))
    # loky divides the cores among its processes, and tells each by the variables that limit other
    # pools of threads. Other tasks have one core each, as far as joblib knows.
    in_process = multiprocessing.current_process().name != "MainProcess"
    if not in_process or backend.nesting_level > 1:
        return 1
    variables = getattr(backend, "MAX_NUM_THREADS_VARS", ())
    return min(cores, min(filter(None, map(_positive, variables)), default=1))


def _positive(variable: str) -> int:
    """The value of an environment variable; 0 if that is no positive integer."""
    text = os.environ.get(variable, "")
    return int(text) if text.isdecimal() else 0


def check_dtype(dtype: Any) -> np.dtype[Any] | None:
    if dtype is None:
        return None
    try:
        asked: np.dtype[Any] = np.dtype(dtype)
    except TypeError:
        _refuse("dtype", dtype, "None, 'float32' or 'float64'")
    if asked not in REALS:
        _refuse("dtype", dtype, "None, 'float32' or 'float64'")
    return asked


_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(?:([KMGT])(I?)B?|B)\s*")


def check_memory_limit(limit: Any) -> int | None:
    """Bytes: from an int, a string such as "2GB", or a float fraction of the machine's memory.

    Units are those of 1000 (MB, M, m) or of 1024 (MiB, Mi), in upper or lower case.
    """
    if limit is None:
        return None
    allowed = "None, a number of bytes, a string like '2GB' or a fraction of memory such as 0.5"
    bytes_: float = -1
    if isinstance(limit, str):
        match = _SIZE.fullmatch(limit.upper())
        if match:
            bytes_ = float(match[1]) * (1024 if match[3] else 1000) ** _POWERS[match[2] or ""]
    elif isinstance(limit, bool):
        pass
    elif isinstance(limit, numbers.Integral):
        bytes_ = int(limit)
    elif isinstance(limit, numbers.Real) and 0 < float(limit) <= 1:
        known = known_memory()
        if known is None:
            allowed = "in bytes where the system does not tell its memory"
        else:
            bytes_ = float(limit) * known
    if not 1 <= bytes_ < math.inf:
        _refuse("memory_limit", limit, allowed)
    return int(bytes_)


_ASSUMED_MEMORY = 4 * 2**30  # bytes, where the system does not tell


def memory_of_machine() -> int:
    """Bytes that this process may hope for: the machine's, or its container's."""
    return known_memory() or _ASSUMED_MEMORY


@cache
def known_memory() -> int | None:
    """The same; None where the system does not tell."""
    try:
        installed = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # Windows has no sysconf, some have no such name
        installed = _memory_of_windows()
    try:
        with open("/sys/fs/cgroup/memory.max") as file:
            limit = int(file.read())
    except (OSError, ValueError):  # no such file, or "max"
        return installed if installed > 0 else None
    return min(installed, limit) if installed > 0 else limit


class _MemoryStatus(ctypes.Structure):
    """MEMORYSTATUSEX of the Windows API."""

    _fields_ = (
        ("length", ctypes.c_uint32),
        ("load", ctypes.c_uint32),
        ("installed", ctypes.c_uint64),
        ("others", ctypes.c_uint64 * 6),
    )


def _memory_of_windows() -> int:
    """0 if this is not Windows."""
    windows: Any = getattr(ctypes, "windll", None)
    status = _MemoryStatus(length=ctypes.sizeof(_MemoryStatus))
    if windows is None or not windows.kernel32.GlobalMemoryStatusEx(ctypes.byref(status)):
        return 0
    return int(status.installed)


def offsets_of(blocks: list[Matrix]) -> Iterator[tuple[int, int]]:
    """Where each block begins and ends among all rows."""
    begin = 0
    for block in blocks:
        yield begin, begin + block.shape[0]
        begin += block.shape[0]


def _refuse(name: str, value: Any, allowed: str) -> NoReturn:
    shown = repr(value)
    if len(shown) > 80:
        shown = shown[:77] + "..."
    raise ValueError(f"{name} must be {allowed}, but it is {shown}.")
