"""Rows far from their centres, which may be relocated to empty clusters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from exactmeans.data.arrays import Double, Labels, Matrix
from exactmeans.engine.protocol import FarRow


def far_rows(
    distances: Double,
    labels: Labels,
    weights: Double | None,
    take: Callable[[NDArray[np.intp]], Matrix],
    most: int,
) -> Iterator[FarRow]:
    """Rows that have weight and are not at their centres, farthest first.

    `take` fetches several rows at once, at most `most`, because each fetch may read blocks of a
    file.
    """
    far = (row for row in farthest_first(distances) if weights is None or weights[row] > 0)
    count = 16
    while rows := list(islice(far, min(count, most))):
        values = take(np.array(rows, dtype=np.intp))
        for at, row in enumerate(rows):
            value = _bytes(values[at : at + 1])
            yield FarRow(float(distances[row]), row, int(labels[row]), value)
        count *= 4


def farthest_first(distances: Double) -> Iterator[int]:
    """Rows with a distance above 0 by decreasing distance, ties by row number.

    Callers take few of them, so the iterator sorts in growing chunks.
    """
    left, count = np.flatnonzero(distances > 0), 256
    while len(left):
        far, now = distances[left], left
        if count < len(left):
            least = np.partition(far, -count)[-count]
            now, left = left[far >= least], left[far < least]
        else:
            left = left[:0]
        yield from now[np.argsort(-distances[now], kind="stable")].tolist()
        count *= 8


def _bytes(row: Matrix) -> bytes:
    """Equal for equal rows; -0.0 equals 0.0."""
    if isinstance(row, np.ndarray):
        return (row + 0.0).tobytes()
    row.eliminate_zeros()
    return bytes(row.indices.astype(np.int64).tobytes() + row.data.tobytes())
