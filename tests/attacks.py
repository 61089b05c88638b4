"""What attacks on the rounding slack share, and a Hamerly that leaves no room for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True)
class Attack:
    """Rows, centres to start from, and weights that decide how far the centres move."""

    X: Array
    init: Array
    weights: Array | None = None

    def weights_or_ones(self) -> Array:
        return np.ones(len(self.X)) if self.weights is None else self.weights

    def times(self, many: int) -> Attack:
        """The same with every row so many times."""
        weights = None if self.weights is None else np.tile(self.weights, many)
        return Attack(np.tile(self.X, (many, 1)), self.init, weights)


def ulps(rng: np.random.Generator, X: Array, most: int = 2) -> Array:
    """X with every value moved by up to `most` units in its last place."""
    return np.asarray(X + np.spacing(X) * rng.integers(-most, most + 1, X.shape).astype(X.dtype))


def products(X: Array, centres: Array) -> Array:
    """-x.c in the rows' dtype, feature by feature."""
    sums = np.zeros((len(X), len(centres)), dtype=X.dtype)
    for x, c in zip(X.T, centres.T, strict=True):
        sums -= np.multiply.outer(x, c)
    return sums


def slackless_differs(
    X: Array,
    centres: Array,
    *,
    scores: Callable[[Array], Array],
    distances: Callable[[Array], Array],
    update: Callable[[Array, Array], Array],
    iterations: int = 8,
) -> bool:
    """Run Lloyd; beside it keep Hamerly's bounds in float64, and let them prune by themselves.

    scores(centres) are those that decide, distances(scores) in float64 what bounds speak about,
    update(centres, labels) the next centres.
    """
    upper, lower = np.full(len(X), np.inf), np.zeros(len(X))
    labels = np.zeros(len(X), dtype=np.int64)
    for _ in range(iterations):
        now = scores(centres)
        plain = now.argmin(axis=1)
        pruned = lower > upper
        if np.any(labels[pruned] != plain[pruned]):
            return True
        labels = plain
        distance = distances(np.sort(now.astype(float), axis=1))
        upper = np.where(pruned, upper, distance[:, 0])
        lower = np.where(pruned, lower, distance[:, 1])
        before, centres = centres, update(centres, labels)
        step = np.linalg.norm(centres.astype(float) - before.astype(float), axis=1)
        others = np.array([np.delete(step, j).max() for j in range(len(step))])
        upper += step[labels]
        lower = np.maximum(0, lower - others[labels])
    return False
