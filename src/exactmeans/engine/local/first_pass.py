"""Statistics of the first pass over the rows, all taken at once, because a pass may read files."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from exactmeans import _core
from exactmeans.data.arrays import Matrix
from exactmeans.engine.local.blocks import bytes_of
from exactmeans.engine.local.digest import Digest
from exactmeans.engine.local.row_blocks import RowBlocks


class FirstPass(NamedTuple):
    """`plain` and `weighted`: surveys of the rows without and with their weights."""

    plain: _core.Survey
    weighted: _core.Survey
    nonzeros: int  # stored values of all rows
    counts: NDArray[np.int64] | None  # rows that have each feature; only of streamed CSR rows


def values_in(matrix: Matrix) -> int:
    """Stored values."""
    return int(matrix.size if isinstance(matrix, np.ndarray) else matrix.nnz)


def first_pass(rows: RowBlocks, digest: Digest | None) -> FirstPass:
    """Survey all rows and note the size of each block; `digest` gets every row."""
    counts = np.zeros(rows.d, dtype=np.int64) if rows.streamed and rows.sparse else None
    columns = 1 if rows.sparse else rows.d  # CSR rows have one bound for all columns
    plain, weighted = _core.Survey(columns), _core.Survey(columns)
    nonzeros = 0
    for block in rows.walk():
        block.size = bytes_of(block.matrix)
        nonzeros += values_in(block.matrix)
        if counts is not None:
            block.plain.count_features(counts)
        if digest is not None:
            digest.add(block.matrix)
        plain.merge(block.plain.survey(rows.n_jobs), block.begin)
        if rows.weights is not None:
            weighted.merge(block.rows.survey(rows.n_jobs), block.begin)
    return FirstPass(plain, plain if rows.weights is None else weighted, nonzeros, counts)


def packed_columns(counts: NDArray[np.int64]) -> NDArray[np.uint32]:
    """The packed column of each feature, frequent features first.

    Only the magnitude of a frequency matters, so a radix sort by exponent is enough.
    """
    magnitude = np.frexp(counts.astype(np.float32))[1]
    order = np.argsort(-magnitude.astype(np.int8), kind="stable")  # a radix sort
    columns = np.empty(len(counts), dtype=np.uint32)
    columns[order] = np.arange(len(counts), dtype=np.uint32)
    return columns
