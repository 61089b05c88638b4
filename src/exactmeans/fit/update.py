"""The update step: new centres from labels.

One class per kind of centre: means, medians, geodesic means. `run` moves the centres and returns
their movement; `inertia` is the objective before the last run. O(n) work happens in the engine.
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
    """`approximate`: `run` gives exact centres only with `converged=True`.

    `sums`: the exact sums that assignment passes keep up to date for it, if any.
    """

    inertia: float
    approximate: bool
    sums: _core.Sums | None

    def run(self, centroids: _core.Centroids, *, converged: bool) -> _core.Movement: ...


def update_of(problem: Problem, k: int) -> Update:
    """How centres are found under the metric of the problem."""
    metric = problem.engine.metric
    if metric.summed:
        return Means(problem, k)
    return KarcherMeans(problem, k) if metric.directed else Medians(problem, k)


class Means:
    """Centres from exact sums: means, or their directions."""

    approximate = False

    def __init__(self, problem: Problem, k: int) -> None:
        self.problem = problem
        self.inertia = 0.0
        self._sums, self._centre_update = problem.sums(k), problem.centre_update(k)
        self.sums: _core.Sums | None = self._sums

    def run(self, centroids: _core.Centroids, *, converged: bool) -> _core.Movement:
        problem, engine, sums = self.problem, self.problem.engine, self._sums
        relocated: list[tuple[int, int, int]] = []
        if sums.any_empty:
            self._centre_update.observe(sums, centroids)
            shape = sums.members.size, engine.d
            relocated = relocate_rows(problem, sums, from_core(centroids.centres, shape))
        movement = self._centre_update.run(sums, centroids, engine.n_jobs)
        for row, source, empty in relocated:
            engine.move_row(sums, row, empty, source)
        self.inertia = problem.inertia(self._centre_update.explained)
        return movement


class Medians:
    """Weighted lower medians by feature; values of rows, so never rounded."""

    approximate = False
    sums: _core.Sums | None = None

    def __init__(self, problem: Problem, k: int) -> None:
        self.problem = problem
        self.inertia = 0.0

    def run(self, centroids: _core.Centroids, *, converged: bool) -> _core.Movement:
        engine, centres = self.problem.engine, _array(centroids)
        self.inertia, _ = engine.scatter(centres, 0, labelled=True)
        labels, followers, leader = whole_clusters(self.problem, centres)
        engine.one_block().medians(labels, centres)
        centres[followers] = centres[leader]
        return centroids.move(centres, engine.n_jobs)


class KarcherMeans:
    """Geodesic (Karcher) means: two steps per iteration, iterated to convergence at the end."""

    approximate = True
    sums: _core.Sums | None = None

    def __init__(self, problem: Problem, k: int) -> None:
        self.problem = problem
        self.inertia = 0.0
        counted = problem.engine.counted()
        # Rows without a direction count as orthogonal to every centre.
        left = 0.0 if counted is None else problem.scatter - float(counted.sum())
        self._undirected = left * (np.pi / 2) ** 2

    def run(self, centroids: _core.Centroids, *, converged: bool) -> _core.Movement:
        engine, centres = self.problem.engine, _array(centroids)
        rows = engine.one_block()
        tolerance = 1e-7 if engine.dtype == np.float32 else 1e-13
        labels, followers, leader = whole_clusters(self.problem, centres)
        steps = 1000 if converged else 2
        if labels is not rows.labels():  # the inertia is that before the relocation
            self.inertia, _ = engine.scatter(centres, 0, labelled=True)
            rows.karcher(labels, centres, steps=steps, tolerance=tolerance)
        else:
            directed = rows.karcher(labels, centres, steps=steps, tolerance=tolerance)
            self.inertia = directed + self._undirected
        centres[followers] = centres[leader]
        return centroids.move(centres, engine.n_jobs)


def _array(centroids: _core.Centroids) -> Any:
    """The centres; metrics whose centres are not sums have dense ones."""
    return centroids.centres


def whole_clusters(problem: Problem, centres: NDArray[Any]) -> tuple[Labels, NDArray[np.intp], int]:
    """Labels with a row relocated to each empty cluster, clusters still empty, and the heaviest."""
    engine, k = problem.engine, len(centres)
    labels, counted = engine.one_block().labels(), engine.counted()
    some = labels if counted is None else labels[counted > 0]
    members = np.bincount(some, minlength=k)
    if members.all():
        return labels, np.empty(0, dtype=np.intp), 0
    relocated = rows_to_relocate(problem, members, centres)
    labels = labels.copy()
    for row, _, empty in relocated:
        labels[row] = empty
    weights = np.bincount(labels, counted, minlength=k)
    return labels, np.flatnonzero(weights == 0), int(weights.argmax())


def relocate_rows(
    problem: Problem, sums: _core.Sums, centres: Matrix
) -> list[tuple[int, int, int]]:
    """Relocate a far row to each empty cluster, in the sums only; see `rows_to_relocate`.

    Sums are exact: moving the rows back after the means are taken restores every bit.
    """
    relocated = rows_to_relocate(problem, sums.members, centres)
    for row, source, empty in relocated:
        problem.engine.move_row(sums, row, source, empty)
    return relocated


def rows_to_relocate(
    problem: Problem, members: NDArray[np.int64], centres: Matrix
) -> list[tuple[int, int, int]]:
    """A far row for each empty cluster, as (row, its cluster, empty cluster).

    Algorithm E.1 of the SparseKmeans supplement: rows by decreasing distance to their centre, but
    never the last row of its cluster, nor one equal to a row already taken, nor one without weight.
    Labels do not change, as in scikit-learn. The list is sorted by row, so that each block of a
    file is read once when the rows move.
    """
    engine = problem.engine
    empty_clusters = np.flatnonzero(members == 0).tolist()
    relocated: list[tuple[int, int, int]] = []
    seen: set[bytes] = set()
    # far_rows omits rows at their centres: then there are fewer distinct rows than clusters.
    for far in engine.far_rows(centres, problem.frame.cost_exponent):
        if len(relocated) == len(empty_clusters):
            break
        if members[far.label] <= 1 or far.value in seen:
            continue
        seen.add(far.value)
        members[far.label] -= 1
        relocated.append((far.row, far.label, empty_clusters[len(relocated)]))
    return sorted(relocated)
