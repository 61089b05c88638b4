"""The core's view of a block of rows, and checks of what its first pass found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from exactmeans import _core
from exactmeans.data.arrays import Double, Matrix


def rows_of(block: Matrix, weights: Double | None) -> _core.Rows:
    """The core's view of a block. CSR rows are sorted and duplicates added up first."""
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
    # Cached flags may be wrong: users can write into the arrays of a CSR matrix.
    tidy.has_sorted_indices = False
    tidy.has_canonical_format = False
    tidy.sum_duplicates()
    return _core.Rows.csr(tidy.data, tidy.indices, tidy.indptr, tidy.shape[1], weights)[0]


def refuse_nonfinite(
    survey: _core.Survey,
    first_row: int,
    block: Matrix,
    names: Sequence[str] | NDArray[Any] | None = None,
) -> None:
    """Name the first row of this block that is not finite, and its column."""
    if survey.first_bad_row < 0:
        return
    value = "NaN" if survey.bad_is_nan else "infinity (inf)"
    column = _bad_column(block, survey.first_bad_row)
    where = f"{first_row + survey.first_bad_row}, in column "
    where += str(column) if names is None else repr(str(names[column]))
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
    """Statistics of row lengths, for metrics that compare directions."""

    longest: float
    longest_row: int
    zeros: int
    first_zero: int  # -1 if there is none

    @staticmethod
    def of(norms: Double) -> Lengths:
        """Rows of length 0 have no direction; the core gives length 0 to all that are too short."""
        zeros = np.flatnonzero(norms == 0)
        first = int(zeros[0]) if len(zeros) else -1
        return Lengths(float(norms.max()), int(norms.argmax()), len(zeros), first)

    def refuse(self, zero_rows: str, metric: str) -> None:
        if self.longest > _LONGEST:
            raise ValueError(
                f"X must have rows no longer than 2**1000 for metric={metric!r}, but row "
                f"{self.longest_row} is."
            )
        if self.zeros and zero_rows != "keep":
            todo = "zero_rows='keep' keeps them, in no cluster"
            raise ValueError(
                f"X must not have rows of zeros for metric={metric!r}, nor rows shorter than the "
                f"smallest normal number of their dtype, which have no direction, but it has "
                f"{self.zeros}, the first of which is row {self.first_zero}; "
                f"{todo if zero_rows == 'error' else 'leave them out'}."
            )

    def refuse_none(self, n: int, metric: str) -> None:
        """At least one of n rows must have a direction."""
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
