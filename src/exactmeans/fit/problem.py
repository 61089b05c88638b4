"""What is fixed before the first iteration: frame, grids of exact sums, tolerance."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from exactmeans import _core
from exactmeans.data.arrays import Double, Matrix, as_array
from exactmeans.data.centres import from_core, like_rows, normalise
from exactmeans.engine.frame import Frame
from exactmeans.engine.protocol import Engine, Grids

# The length below which a mean of unit rows is rounding error.
MIN_MEAN_LENGTH = _core.minimum_mean_length


@dataclass
class Problem:
    """One data set, ready for any number of runs of the loop.

    `tolerance` and everything called squared is on the frame's scale: times 4**exponent.
    """

    engine: Engine
    frame: Frame
    grids: Grids
    origin: Double  # the history's inertia is measured against the scatter about it; CSR: about 0
    scatter: float
    tolerance: float

    def sums(self, k: int) -> _core.Sums:
        return _core.Sums(k, self.engine.d, *self.grids, sparse=self.engine.sparse)

    def start(self, algorithm: str, k: int, passes: int = 1) -> None:
        """Begin a run with k centres that is expected to make so many passes."""
        self.engine.start(algorithm, k, self.frame, self.grids, passes)

    def unscaled(self, squared: float) -> float:
        """A squared quantity in the data's own units."""
        return unscaled(squared, self.frame.exponent)

    def inertia(self, explained: float) -> float:
        """The scatter that the centres leave unexplained, in units of the metric."""
        left = max(0.0, self.scatter - explained)
        # With unit vectors for rows and centres, squared distances are twice 1 - cos.
        return 0.5 * left if self.engine.metric.directed else unscaled(left, self.frame.exponent)

    def centre_update(self, k: int) -> _core.CentreUpdate:
        return _core.CentreUpdate(self.engine.dtype == np.float32, k, self.origin)


def unscaled(squared: float, exponent: int) -> float:
    """Times 4**-exponent; infinity where float64 ends."""
    try:
        return math.ldexp(squared, -2 * exponent)
    except OverflowError:
        return math.inf


def analyse(engine: Engine, tol: float) -> Problem:
    """Three passes over the data: largest values, mean, scatter."""
    plain = engine.examine()
    exponent = _core.safe_exponent(plain.largest, engine.dtype == np.float32)
    if engine.metric.directed:
        return _analyse_directions(engine, tol, plain, exponent)
    grids = _grids(engine, plain)
    if engine.sparse:
        # Scatter about 0, which needs only the stored values of the rows.
        origin, shift = np.empty(0), None
        zero = sp.csr_array((1, engine.d))
        scatter, plain_scatter = engine.squares(zero, exponent)
        variance = 0.0
        if tol > 0:
            mean = _mean(engine, plain, grids.rows)
            variance = _variance_about(mean, plain_scatter, engine, exponent)
        else:
            grids.rows.bins = engine.bins_needed(grids.rows, weighted=True)
    else:
        mean = _mean(engine, plain, grids.rows)
        origin = as_array(mean)[0]
        scatter, plain_scatter = engine.squares(mean, exponent)
        variance = plain_scatter / engine.n
        shift = _shift(origin, exponent, variance, engine.dtype)
    frame = Frame(exponent, None if engine.metric.l1 else shift, engine.metric.name)
    return Problem(
        engine=engine,
        frame=frame,
        grids=grids,
        origin=origin,
        scatter=scatter,
        tolerance=tol * variance / engine.d,
    )


def _analyse_directions(engine: Engine, tol: float, plain: _core.Survey, packing: int) -> Problem:
    """Rows count as unit vectors, whose lengths and scatter about 0 are known."""
    grids = _grids(engine, plain)
    variance = 0.0
    if tol > 0:
        mean = _mean(engine, plain, grids.rows)
        values = mean.reshape(-1) if isinstance(mean, np.ndarray) else mean.data
        share = engine.directions() / engine.n
        variance = max(0.0, share - math.fsum(values * values))
    else:
        grids.rows.bins = engine.bins_needed(grids.rows, weighted=True)
    frame = Frame(0, None, engine.metric.name, packing)
    return Problem(
        engine=engine,
        frame=frame,
        grids=grids,
        origin=np.zeros(0 if engine.sparse else engine.d),
        scatter=engine.total_weight(),
        tolerance=tol * variance / engine.d,
    )


def centre_of_all(engine: Engine) -> Double:
    """The median of all rows, or their mean, or its direction; by weight."""
    if not engine.metric.l1:
        mean = _weighted_mean(engine)
        if engine.metric.directed:
            length = math.sqrt(math.fsum(mean * mean))
            if length <= MIN_MEAN_LENGTH:  # no direction: take the heaviest row instead
                counted = engine.counted()
                first = 0 if counted is None else int(counted.argmax())
                row = like_rows(engine.take(np.array([first])), sparse=False)
                mean = np.asarray(row[0], dtype=np.float64)
            normalise(mean[np.newaxis])
        return mean
    median = np.zeros((1, engine.d), dtype=engine.dtype)
    engine.one_block().medians(np.zeros(engine.n, dtype=np.int32), median)
    return np.asarray(median[0], dtype=np.float64)


def _weighted_mean(engine: Engine) -> Double:
    """The weighted mean of the rows; its bits do not depend on their order."""
    weighted = engine.weighted
    grid = _core.Grid(engine.survey(weighted=weighted).bounds, engine.n)
    grid.bins = engine.bins_needed(grid, weighted=weighted)
    sums = _core.Sums(1, engine.d, grid, engine.weight_grid())
    engine.add_all(sums, weighted=weighted)
    mean = np.empty((1, engine.d))
    sums.average(mean)
    return np.asarray(mean[0])


def sums_of(engine: Engine, k: int) -> _core.Sums:
    """Exact sums for clusters of these rows, if nothing else of the problem is needed."""
    grids = _grids(engine, engine.survey(weighted=False))
    grids.rows.bins = engine.bins_needed(grids.rows, weighted=True)
    return _core.Sums(k, engine.d, *grids, sparse=engine.sparse)


def means_of(sums: _core.Sums, engine: Engine, k: int) -> Matrix:
    """The means of k clusters from their sums, in float64: an array, or CSR for sparse rows."""
    if engine.sparse:
        return from_core(sums.sparse_average(False), (k, engine.d))
    means = np.empty((k, engine.d))
    sums.average(means)
    return means


def _grids(engine: Engine, plain: _core.Survey) -> Grids:
    """The grids of exact sums; the number of bins of the row grid is not set yet."""
    survey = plain
    if engine.weighted:
        survey = refuse_large_sums(engine)
    return Grids(_core.Grid(survey.bounds, engine.n), engine.weight_grid())


def refuse_large_sums(engine: Engine) -> _core.Survey:
    """Refuse weights that take sums of rows out of range; returns the survey of weighted rows."""
    survey = engine.survey(weighted=True)
    if not max(survey.bounds.max(), survey.largest_weight) * engine.n < 2.0**1000:
        raise ValueError("sample_weight must leave sums within float64, but it is too large.")
    return survey


def _mean(engine: Engine, plain: _core.Survey, grid: _core.Grid) -> Matrix:
    """The unweighted mean of the rows, as one float64 row; sets the bins of the grid."""
    own = _core.Grid(plain.bounds, engine.n) if engine.weighted else grid
    return means_of(engine.total(own, weighted=grid if engine.weighted else None), engine, 1)


def _variance_about(mean: Matrix, about_zero: float, engine: Engine, exponent: int) -> float:
    """Total variance from the scatter about 0, unless cancellation makes that inaccurate."""
    scaled = np.ldexp(mean.data, exponent)
    about_mean = about_zero - engine.n * math.fsum(scaled * scaled)
    if about_mean < _core.least_scatter_share * about_zero:
        about_mean = engine.squares(mean, exponent)[1]
    return float(about_mean / engine.n)


def _shift(
    mean: Double, exponent: int, variance: float, dtype: np.dtype[Any]
) -> NDArray[Any] | None:
    """The mean, for data far from the origin: without a shift, scores lose precision."""
    scaled = np.ldexp(mean, exponent) if exponent else mean
    if (scaled * scaled).sum() <= variance:
        return None
    return mean.astype(dtype)
