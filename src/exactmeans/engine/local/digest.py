"""A hash of all rows and weights, by which a checkpoint recognises its data."""

from __future__ import annotations

import hashlib

import numpy as np

from exactmeans.data.arrays import Double, Matrix


class Digest:
    """A hash of rows in order, independent of block boundaries."""

    def __init__(self) -> None:
        self._values, self._features, self._lengths = (hashlib.blake2b() for _ in range(3))

    def add(self, block: Matrix) -> None:
        """Add the next rows."""
        if isinstance(block, np.ndarray):
            for begin in range(0, len(block), 1024):
                self._values.update(np.ascontiguousarray(block[begin : begin + 1024]).data)
            return
        entries = block.indptr[-1]
        self._values.update(np.ascontiguousarray(block.data[:entries]).data)
        self._features.update(block.indices[:entries].astype(np.int64).data)
        self._lengths.update(np.diff(block.indptr).astype(np.int64).data)

    def word(self, about: str, weights: Double | None) -> str:
        """The hash; `about`: shape, dtype and layout of all rows."""
        seen = hashlib.blake2b(about.encode())
        for part in (self._values, self._features, self._lengths):
            seen.update(part.digest())
        if weights is not None:
            seen.update(weights.data)
        return seen.hexdigest()[:32]
