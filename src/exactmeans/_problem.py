"""What is fixed once the data is known and before the first iteration: frame, grids, tolerance."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exactmeans import _core
from exactmeans._validation import Double, refuse_nonfinite
from exactmeans.engines.local import LocalEngine


@dataclass(frozen=True)
class Frame:
    """How scores see rows and centres; part of the model (docs/numerics.md)."""

    exponent: int
    shift: NDArray[Any] | None

    def centroids(self, centres: NDArray[Any], engine: LocalEngine) -> _core.Centroids:
        """Centres as the rows of this engine are compared with: CSR rows are never shifted."""
        shift = None if engine.sparse else self.shift
        slots = engine.slots() if engine.sparse else None
        return _core.Centroids.make(centres, shift, self.exponent, slots, engine.n_jobs)


@dataclass(frozen=True)
class Problem:
    """One data set, ready for any number of runs of the loop.

    `tolerance` and everything called squared is on the frame's scale: times 4**exponent.
    """

    engine: LocalEngine
    frame: Frame
    grid: _core.Grid
    weight_grid: _core.Grid
    origin: Double  # the history's inertia is measured against the scatter about this point
    scatter: float
    tolerance: float

    def sums(self, k: int) -> _core.Sums:
        return _core.Sums(k, self.engine.d, self.grid, self.weight_grid)

    def unscaled(self, squared: float) -> float:
        """A squared quantity in the data's own units."""
        return unscaled(squared, self.frame.exponent)

    def explained(self, sums: _core.Sums, centres: NDArray[Any]) -> float:
        """What the clusters explain of the scatter about the origin."""
        return sums.explained(centres, self.origin, self.frame.exponent, self.engine.n_jobs)


def unscaled(squared: float, exponent: int) -> float:
    """Times 4**-exponent; infinity where float64 ends."""
    try:
        return math.ldexp(squared, -2 * exponent)
    except OverflowError:
        return math.inf


def analyse(engine: LocalEngine, tol: float) -> Problem:
    """Look at the data three times: size, mean, scatter."""
    plain = engine.survey(weighted=False)
    refuse_nonfinite(plain)
    exponent = _core.safe_exponent(plain.largest, engine.dtype == np.float32)
    plain_grid = _grid(engine, plain.bounds, weighted=False)
    counts = _core.Grid(np.ones(1), engine.n)
    grid, weight_grid = plain_grid, counts
    if engine.weights is not None:
        weighted = engine.survey(weighted=True)
        largest = max(weighted.bounds.max(), weighted.largest_weight) * engine.n
        if not largest < 2.0**1000:
            raise ValueError("sample_weight must leave sums within float64, but it is too large.")
        grid = _grid(engine, weighted.bounds, weighted=True)
        weight_grid = _weight_grid(engine.weights)

    # Rows of zeros are common in sparse data and cost nothing to measure from.
    origin = np.zeros(engine.d)
    scatter = variance = 0.0
    if tol > 0 or not engine.sparse:
        mean = _mean(engine, plain_grid, counts)
        weighted_scatter, plain_scatter = engine.scatter(mean, exponent, labelled=False)
        variance = plain_scatter / engine.n
    if engine.sparse:
        scatter, _ = engine.scatter(origin[np.newaxis], exponent, labelled=False)
        shift = None
    else:
        origin, scatter = mean[0], weighted_scatter
        shift = _shift(origin, exponent, variance, engine.dtype)
    return Problem(
        engine=engine,
        frame=Frame(exponent, shift),
        grid=grid,
        weight_grid=weight_grid,
        origin=origin,
        scatter=scatter,
        tolerance=tol * variance / engine.d,
    )


def _grid(engine: LocalEngine, bounds: Double, *, weighted: bool) -> _core.Grid:
    grid = _core.Grid(bounds, engine.n)
    grid.words = engine.words_needed(grid, weighted=weighted)
    return grid


def _weight_grid(weights: Double) -> _core.Grid:
    grid = _core.Grid(weights.max(keepdims=True), len(weights))
    grid.words = _core.Rows.dense(weights[:, np.newaxis], None).words_needed(grid, 1)
    return grid


def _mean(engine: LocalEngine, grid: _core.Grid, counts: _core.Grid) -> Double:
    """The unweighted mean of the rows, as one float64 row."""
    sums = _core.Sums(1, engine.d, grid, counts)
    engine.add_all(sums)
    mean = np.empty((1, engine.d))
    sums.average(mean, engine.n_jobs)
    return mean


def _shift(mean: Double, exponent: int, variance: float, dtype: Any) -> NDArray[Any] | None:
    """Data far from the origin is shifted to its mean: otherwise scores would lose its spread."""
    scaled = np.ldexp(mean, exponent)
    if np.sum(scaled * scaled) <= variance:
        return None
    return mean.astype(dtype)
