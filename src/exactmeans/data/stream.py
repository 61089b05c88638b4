"""Input as a list of blocks in memory, or as a stream of blocks that are read when needed."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from exactmeans.data.arrays import Matrix, as_matrix
from exactmeans.data.arrow_stream import is_arrow_stream
from exactmeans.data.open import BlockSource, names_files, open_blocks
from exactmeans.data.source import BufferPool, CutRows
from exactmeans.data.svmlight import SvmlightRows


def is_source(X: Any) -> bool:
    """Whether X comes in blocks. Tests arrays first, because a protocol check is slow."""
    if isinstance(X, np.ndarray) or sp.issparse(X):
        return False
    return isinstance(X, BlockSource) or names_files(X) or is_arrow_stream(X)


def as_blocks(
    estimator: Any, X: Any, *, reset: bool, dtype: np.dtype[Any] | None = None
) -> list[Matrix] | Stream:
    """The blocks of a source; an array is one block."""
    if reset:
        vars(estimator).pop("_zero_based", None)  # of a fit before
    if not is_source(X):
        return [as_matrix(estimator, X, reset=reset, dtype=dtype)]
    if names_files(X):
        X = _opened(estimator, X, reset=reset)
    elif is_arrow_stream(X):
        X = open_blocks(X)
    if isinstance(X, SvmlightRows):
        _check_base(estimator, X, reset=reset)
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


def _opened(estimator: Any, X: Any, *, reset: bool) -> BlockSource:
    """Open files; svmlight files get the first index and the width of the fitted model."""
    opened = open_blocks(X)
    if reset or not isinstance(opened, SvmlightRows):
        return opened
    known = getattr(estimator, "_zero_based", None)
    if known is False and opened.zero_based:
        raise ValueError(
            f"X must have indices from 1 on, as those of fit, but {opened.name} has an index 0: "
            "pass open_blocks(path, zero_based=True) if it counts from 0."
        )
    if known and opened.zero_based is None:
        opened = open_blocks(X, zero_based=True)
    assert isinstance(opened, SvmlightRows)
    opened.widen(getattr(estimator, "n_features_in_", 0))
    return opened


def _check_base(estimator: Any, source: SvmlightRows, *, reset: bool) -> None:
    """Remember where indices begin; refuse a source that was opened with another beginning."""
    base = bool(source.zero_based)
    if reset:
        estimator._zero_based = base
        return
    known = getattr(estimator, "_zero_based", None)
    if source.zero_based is None and known is not None and known != base:
        raise ValueError(
            f"zero_based must be {known} for {source.name}: nothing in it says whether indices "
            f"begin at 0 or 1, and those of fit began at {0 if known else 1}."
        )


def _check_names(estimator: Any, names: Any, *, reset: bool) -> None:
    """Checks the column names of a source as validate_data checks those of a frame."""
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
    """An estimator without feature names to check blocks against: the source has the names."""
    bare = object.__new__(type(estimator))
    if not reset and hasattr(estimator, "n_features_in_"):
        bare.n_features_in_ = estimator.n_features_in_
    return bare


def count_rows(blocks: list[Matrix] | Stream) -> int:
    return blocks.n if isinstance(blocks, Stream) else sum(block.shape[0] for block in blocks)


class Stream:
    """Blocks that are not in memory: matrices of one kind and dtype, read when they are needed."""

    def __init__(
        self, estimator: Any, source: Any, *, reset: bool, dtype: np.dtype[Any] | None
    ) -> None:
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
            dtype = np.dtype(np.float32 if known == np.float32 else np.float64)
        self.edges: list[int] = [int(edge) for edge in edges]
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self.n = self.edges[-1]
        said = getattr(source, "shape", None)
        if said is not None and tuple(said) != (self.n, self.d):
            raise ValueError(
                f"X must have the shape of its blocks, ({self.n}, {self.d}), but X.shape is "
                f"{tuple(said)}."
            )

    def __len__(self) -> int:
        return len(self.edges) - 1

    @property
    def reading_bytes(self) -> int:
        """Bytes of the current dense block, the next one and their conversions, and the reader."""
        rows = max(end - begin for begin, end in pairwise(self.edges))
        blocks = 0 if self.sparse else 4 * rows * self.d * self.dtype.itemsize
        return blocks + self.held_bytes * 3 // 2

    @property
    def held_bytes(self) -> int:
        """Bytes that the reader held beside the blocks so far."""
        return int(getattr(self._source, "held_bytes", 0))

    def _look(self, dtype: np.dtype[Any] | None) -> tuple[list[int], np.dtype[Any]]:
        """Read every block once, for its length and dtype."""
        edges, dtypes = [0], []
        for b in range(len(self._source)):
            block = as_matrix(self._estimator, self._source.read(b), reset=False, dtype=dtype)
            edges.append(edges[-1] + block.shape[0])
            dtypes.append(block.dtype)
        return edges, np.result_type(*dtypes)

    def read(self, b: int, pool: BufferPool | None = None) -> Matrix:
        """Block b; arrays in `pool` are valid until the next block is read into it."""
        if pool is not None and isinstance(self._source, CutRows):
            pool.clear()
            given = self._source.read(b, pool)
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


class SelectedRows(Stream):
    """Some rows of a stream, by their ascending numbers; blocks without any are left out."""

    def __init__(self, stream: Stream, rows: NDArray[np.int64]) -> None:
        self._stream = stream
        self.sparse, self.d, self.dtype = stream.sparse, stream.d, stream.dtype
        cuts = np.searchsorted(rows, stream.edges)
        self._blocks = np.flatnonzero(np.diff(cuts)).tolist()
        self._rows = [rows[cuts[b] : cuts[b + 1]] - stream.edges[b] for b in self._blocks]
        self.edges = [0, *np.cumsum([len(own) for own in self._rows]).tolist()]
        self.n = len(rows)

    @property
    def reading_bytes(self) -> int:
        return self._stream.reading_bytes

    @property
    def held_bytes(self) -> int:
        return self._stream.held_bytes

    def read(self, b: int, pool: BufferPool | None = None) -> Matrix:
        return self._stream.read(self._blocks[b], pool)[self._rows[b]]


def offsets_of(blocks: list[Matrix]) -> Iterator[tuple[int, int]]:
    """Where each block begins and ends among all rows."""
    begin = 0
    for block in blocks:
        yield begin, begin + block.shape[0]
        begin += block.shape[0]
