"""Batches and samples of rows for MiniBatchKMeans, drawn as scikit-learn draws them."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from exactmeans.data.arrays import Double
from exactmeans.engine.local.engine import LocalEngine


@dataclass(frozen=True)
class Batches:
    """How the rows are cut into batches: drawn from a matrix, or in turn from blocks."""

    n: int
    size: int  # rows of a drawn batch
    cuts: list[int]  # batches of each block
    in_blocks: bool

    @classmethod
    def of(cls, engine: LocalEngine, batch_size: int, *, in_blocks: bool) -> Batches:
        counted = engine.counted()
        cuts = [-(-len(usable_rows(counted, *span)) // batch_size) for span in engine.spans]
        return cls(engine.n, min(batch_size, engine.n), cuts, in_blocks)

    @property
    def per_pass(self) -> int:
        return sum(self.cuts)

    @property
    def rows(self) -> int:
        """Rows of a batch."""
        return self.n // self.per_pass if self.in_blocks else self.size

    def most_steps(self, max_iter: int) -> int:
        """Batches of `max_iter` passes."""
        return max_iter * self.per_pass if self.in_blocks else max_iter * self.n // self.size

    def passes(self, steps: int) -> int:
        """Passes that so many batches make, the last of which may be incomplete."""
        if self.in_blocks:
            return -(-steps // self.per_pass)
        return -(-steps * self.size // self.n)

    def draw(
        self, engine: LocalEngine, rng: np.random.RandomState
    ) -> Generator[LocalEngine, None, None]:
        """Endless batches."""
        if self.in_blocks:
            return block_batches(engine, self.cuts, rng)
        return drawn_batches(engine, self.size, rng)


def usable_rows(counted: Double | None, begin: int, end: int) -> NDArray[np.intp]:
    """Rows from `begin` to `end` that count for centres."""
    if counted is None:
        return np.arange(begin, end)
    return begin + np.flatnonzero(counted[begin:end])


def drawn_batches(
    engine: LocalEngine, size: int, rng: np.random.RandomState
) -> Generator[LocalEngine, None, None]:
    """Endless batches of rows of a matrix, drawn by weight with replacement, as scikit-learn does.

    A row of a batch counts once, since its weight has made its draw more or less likely.
    """
    X, cumulated = engine.whole(), _cumulated_probabilities(engine)
    even = engine.counted() is None
    while True:
        ids = _positions(cumulated, rng.random_sample(size), even=even)
        yield engine.batch(X[ids], ids, weighted=False)


def _positions(cumulated: Double, places: Double, *, even: bool) -> NDArray[np.intp]:
    """The rows in which these places lie: what rng.choice finds by a search.

    Even probabilities need none: the row follows from the place, up to the rounding of the sums.
    """
    if not even:
        return cumulated.searchsorted(places, side="right")
    ids = np.minimum((places * len(cumulated)).astype(np.intp), len(cumulated) - 1)
    while True:
        after, before = places >= cumulated[ids], (ids > 0) & (places < cumulated[ids - 1])
        if not (after | before).any():
            return ids
        ids += after.astype(np.intp) - before


def _cumulated_probabilities(engine: LocalEngine) -> Double:
    """What rng.choice makes of scikit-learn's probabilities, which it computes in X's dtype."""
    counted = engine.counted()
    if counted is None:
        weights = np.ones(engine.n, dtype=engine.dtype)
    else:  # scaled by a power of 2, so that float32 can hold them
        exponent = math.frexp(float(counted.max()))[1]
        weights = np.ldexp(counted, -exponent).astype(engine.dtype)
    cumulated: Double = (weights / weights.sum()).astype(np.float64).cumsum()
    cumulated /= cumulated[-1]
    return cumulated


def block_batches(
    engine: LocalEngine, cuts: list[int], rng: np.random.RandomState
) -> Generator[LocalEngine, None, None]:
    """Endless batches, block by block: all rows in each pass, in random order within a block.

    The batches of a block have one size: a short one at its end would say little about the inertia
    and count as much as others.
    """
    counted = engine.counted()
    while True:
        for block in engine.walk(lambda block: cuts[block.number] > 0):
            order = rng.permutation(usable_rows(counted, block.begin, block.end))
            for some in np.array_split(order, cuts[block.number]):
                ids = np.sort(some)
                yield engine.batch(block.matrix[ids - block.begin], ids)


def sample_ids(
    engine: LocalEngine, size: int, k: int, rng: np.random.RandomState
) -> NDArray[np.intp]:
    """Rows drawn with replacement, as scikit-learn draws them; at least k of them count."""
    ids, counted = rng.randint(0, engine.n, size), engine.counted()
    if counted is not None and np.count_nonzero(counted[ids]) < k:
        usable = usable_rows(counted, 0, engine.n)
        ids = usable[rng.randint(0, len(usable), size)]
    return ids


def sample_of(engine: LocalEngine, ids: NDArray[np.intp]) -> LocalEngine:
    """These rows in this order, copies included."""
    order = np.argsort(ids, kind="stable")
    return engine.alone(engine.pick(ids[order])[np.argsort(order)], ids)
