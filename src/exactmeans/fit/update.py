"""The second half of an iteration: every centre goes where its cluster wants it.

One class per kind of centre, each with `run`, which moves the centres and says how far they went,
and `inertia`, the objective before the last run. What is O(n) happens in the engine.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from exactmeans import _core
from exactmeans.data.arrays import Labels, Matrix
from exactmeans.data.centres import from_core
from exactmeans.fit.problem import Problem


class Update(Protocol):
    """What the loop asks for. `rough`: do centres need a thorough run before the fit may end?"""

    inertia: float
    rough: bool

    def run(
        self, centroids: _core.Centroids, changed: int, *, thorough: bool
    ) -> _core.Movement: ...


def update_of(problem: Problem, k: int) -> Update:
    """How centres are found under the metric of the problem."""
    metric = problem.engine.metric
    if metric.summed:
        return Means(problem, k)
    return KarcherMeans(problem, k) if metric.directed else Medians(problem, k)


class Means:
    """Centres from exact sums: means, or their directions."""

    rough = False

    def __init__(self, problem: Problem, k: int) -> None:
        self.problem = problem
        self.inertia = 0.0
        self._sums, self._advance = problem.sums(k), problem.advance(k)
        problem.engine.follow(self._sums)

    def run(self, centroids: _core.Centroids, changed: int, *, thorough: bool) -> _core.Movement:
        problem, engine, sums = self.problem, self.problem.engine, self._sums
        engine.sum_up(sums, changed)
        lent: list[tuple[int, int, int]] = []
        if sums.any_empty:
            self._advance.observe(sums, centroids)
            shape = sums.members.size, engine.d
            lent = relocate_rows(problem, sums, from_core(centroids.centres, shape))
        movement = self._advance.run(sums, centroids, engine.n_jobs)
        for row, owner, borrower in lent:
            engine.move_row(sums, row, borrower, owner)
        self.inertia = problem.inertia(self._advance.explained)
        return movement


class Medians:
    """Centres that are the weighted lower medians of their features; they are never rounded."""

    rough = False

    def __init__(self, problem: Problem, k: int) -> None:
        self.problem = problem
        self.inertia = 0.0

    def run(self, centroids: _core.Centroids, changed: int, *, thorough: bool) -> _core.Movement:
        engine, centres = self.problem.engine, _array(centroids)
        self.inertia, _ = engine.scatter(centres, 0, labelled=True)
        labels, followers, leader = whole_clusters(self.problem, centres)
        engine.one_block().medians(labels, centres)
        centres[followers] = centres[leader]
        return centroids.move(centres, engine.n_jobs)


class KarcherMeans:
    """Centres on their way to geodesic means: two steps an iteration, all the way at the end."""

    rough = True

    def __init__(self, problem: Problem, k: int) -> None:
        self.problem = problem
        self.inertia = 0.0
        counted = problem.engine.counted()
        # Rows without a direction are at a right angle to every centre.
        left = 0.0 if counted is None else problem.scatter - float(counted.sum())
        self._undirected = left * (np.pi / 2) ** 2

    def run(self, centroids: _core.Centroids, changed: int, *, thorough: bool) -> _core.Movement:
        engine, centres = self.problem.engine, _array(centroids)
        rows = engine.one_block()
        tolerance = 1e-7 if engine.dtype == np.float32 else 1e-13
        labels, followers, leader = whole_clusters(self.problem, centres)
        steps = 1000 if thorough else 2
        if labels is not rows.labels():  # rows were lent, which the objective knows nothing of
            self.inertia, _ = engine.scatter(centres, 0, labelled=True)
            rows.karcher(labels, centres, steps=steps, tolerance=tolerance)
        else:
            directed = rows.karcher(labels, centres, steps=steps, tolerance=tolerance)
            self.inertia = directed + self._undirected
        centres[followers] = centres[leader]
        return centroids.move(centres, engine.n_jobs)


def _array(centroids: _core.Centroids) -> Any:
    """The centres, which are an array whenever they are not sums."""
    return centroids.centres


def whole_clusters(problem: Problem, centres: NDArray[Any]) -> tuple[Labels, NDArray[np.intp], int]:
    """Labels with a row lent to each empty cluster, those still empty, and the heaviest cluster."""
    engine, k = problem.engine, len(centres)
    labels, counted = engine.one_block().labels(), engine.counted()
    some = labels if counted is None else labels[counted > 0]
    members = np.bincount(some, minlength=k)
    if members.all():
        return labels, np.empty(0, dtype=np.intp), 0
    lent = rows_to_relocate(problem, members, centres)
    labels = labels.copy()
    for row, _, borrower in lent:
        labels[row] = borrower
    weights = np.bincount(labels, counted, minlength=k)
    return labels, np.flatnonzero(weights == 0), int(weights.argmax())


def relocate_rows(
    problem: Problem, sums: _core.Sums, centres: Matrix
) -> list[tuple[int, int, int]]:
    """Lend each empty cluster a far row, in the sums only; returns (row, owner, borrower).

    Sums are exact, so rows lent while the means are taken and then given back leave no trace.
    """
    lent = rows_to_relocate(problem, sums.members, centres)
    for row, owner, borrower in lent:
        problem.engine.move_row(sums, row, owner, borrower)
    return lent


def rows_to_relocate(
    problem: Problem, members: NDArray[np.int64], centres: Matrix
) -> list[tuple[int, int, int]]:
    """A far row for each empty cluster, as (row, owner, borrower).

    Algorithm E.1 of the SparseKmeans supplement: rows by decreasing distance to their centre, but
    never the last row of its cluster, nor one equal to a row already lent, nor one without weight.
    Labels stay as they are, as in scikit-learn. The list is by row, so that each block of a file is
    read once when the rows are moved.
    """
    engine = problem.engine
    borrowers = np.flatnonzero(members == 0).tolist()
    lent: list[tuple[int, int, int]] = []
    seen: set[bytes] = set()
    # Rows that sit on their centres are not lent: too few distinct rows for all clusters.
    for far in engine.far_rows(centres, problem.frame.cost_exponent):
        if len(lent) == len(borrowers):
            break
        if members[far.label] <= 1 or far.value in seen:
            continue
        seen.add(far.value)
        members[far.label] -= 1
        lent.append((far.row, far.label, borrowers[len(lent)]))
    return sorted(lent)
