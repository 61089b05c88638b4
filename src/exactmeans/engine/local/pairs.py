"""Distances between rows, summed by cluster, without a matrix of rows by rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from exactmeans.data.arrays import Double, Labels, Matrix, as_csr
from exactmeans.data.centres import for_core, like_rows
from exactmeans.engine.frame import Frame
from exactmeans.engine.local.engine import LocalEngine

_MEMBERS = 512  # rows that others are compared with at a time: their panels stay in cache
_MEMBER_BYTES = 2**25  # of members that are made dense, as CSR rows are for manhattan


def distance_sums(
    engine: LocalEngine, few: LocalEngine, labels: Labels, k: int, frame: Frame
) -> Double:
    """Sums of the distances of the rows of `few` to the members of each cluster.

    `labels` are those of all rows of `engine`; rows with label -1 are in no cluster. `few` has all
    its rows in memory.
    """
    out = np.zeros((few.n, k))
    shift, exponent = frame.shift_of(engine), frame.cost_exponent
    (compared,) = few.walk()
    step = _MEMBERS
    if engine.sparse and engine.metric.l1:
        step = int(np.clip(_MEMBER_BYTES // (8 * engine.d), 16, _MEMBERS))
    for block in engine.walk():
        inside = np.flatnonzero(labels[block.begin : block.end] >= 0)
        for begin in range(0, len(inside), step):
            at = inside[begin : begin + step]
            own = np.ascontiguousarray(labels[block.begin : block.end][at])
            members = _members(block.matrix, at, engine)
            compared.rows.add_distances(for_core(members), own, shift, exponent, out, few.n_jobs)
    return out


def _members(matrix: Matrix, at: NDArray[np.intp], engine: LocalEngine) -> Matrix:
    """Rows as centres of the same dtype, which the core compares rows with."""
    if not engine.sparse:
        return np.ascontiguousarray(matrix[at], dtype=engine.dtype)
    rows = as_csr(matrix[at], engine.dtype, "X")
    return like_rows(rows, sparse=not engine.metric.l1)
