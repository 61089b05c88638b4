"""The loop. Everything O(n) happens in the engine; everything that is decided is decided here."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exactmeans import _core
from exactmeans._problem import Problem
from exactmeans.callbacks import Callback, Iteration


@dataclass(frozen=True)
class Run:
    """The outcome of the loop from one set of initial centres."""

    centres: NDArray[Any]
    labels: NDArray[np.int32]
    inertia: float
    history: list[Iteration]
    stopped: str
    distances: int


def lloyd_loop(
    problem: Problem,
    centres: NDArray[Any],
    *,
    algorithm: str,
    max_iter: int,
    run: int = 0,
    callbacks: Sequence[Callback] = (),
) -> Run:
    """Assign, repair, average, move, report; until nothing changes or moves enough."""
    engine, began = problem.engine, time.perf_counter()
    k = len(centres)
    centres = centres.copy()
    centroids = first_centroids(problem, centres)
    engine.start(algorithm, k)
    sums = problem.sums(k)
    history: list[Iteration] = []
    stopped = "max_iter reached"
    for iteration in range(1, max_iter + 1):
        changed, distances = engine.assign(centroids)
        engine.sum_up(sums, changed)
        explained = problem.explained(sums, centres)
        with _empty_clusters_filled(problem, sums, centres):
            sums.average(centres, engine.n_jobs)
        movement = centroids.move(centres, engine.n_jobs)
        engine.moved(movement)
        record = Iteration(
            run=run,
            iteration=iteration,
            inertia=problem.unscaled(max(0.0, problem.scatter - explained)),
            shift=problem.unscaled(movement.shift2),
            changed=changed,
            distances=distances,
            seconds=time.perf_counter() - began,
        )
        history.append(record)
        asked_to_stop = any([_is_true(callback(record)) for callback in callbacks])
        if changed == 0:
            stopped = "no label changed"
            break
        if movement.shift2 <= problem.tolerance:
            stopped = "the centres moved less than tol"
            break
        if asked_to_stop:
            stopped = "a callback asked to"
            break
    extra = 0
    if changed or movement.moved:  # labels must fit the centres that are returned
        _, extra = engine.assign(centroids)
    inertia, _ = engine.scatter(centres, problem.frame.exponent, labelled=True)
    return Run(
        centres=centres,
        labels=engine.labels().copy(),
        inertia=problem.unscaled(inertia),
        history=history,
        stopped=stopped,
        distances=sum(record.distances for record in history) + extra,
    )


def _is_true(answer: Any) -> bool:
    """True or NumPy's True; nothing else stops a fit by accident."""
    return isinstance(answer, (bool, np.bool_)) and bool(answer)


@contextmanager
def _empty_clusters_filled(
    problem: Problem, sums: _core.Sums, centres: NDArray[Any]
) -> Iterator[None]:
    """Lend each empty cluster a far row, in the sums only, while the means are taken.

    Algorithm E.1 of the SparseKmeans supplement: rows by decreasing distance to their centre, but
    never the last row of its cluster, nor one equal to a row already lent, nor one without weight.
    Labels stay as they are, as in scikit-learn. Sums are exact, so lending leaves no trace.
    """
    members = sums.members
    empty = np.flatnonzero(members == 0)
    lent: list[tuple[int, int, int]] = []
    if len(empty):
        for target, row, source in _lenders(problem, empty, members, centres):
            problem.engine.move_row(sums, row, source, target)
            lent.append((target, row, source))
    yield
    for target, row, source in lent:
        problem.engine.move_row(sums, row, target, source)


def _lenders(
    problem: Problem, empty: NDArray[np.intp], members: NDArray[np.int64], centres: NDArray[Any]
) -> Iterator[tuple[int, int, int]]:
    """(empty cluster, row for it, that row's own cluster), for as many as can be filled."""
    engine = problem.engine
    distances = engine.own_distances(centres, problem.frame.exponent)
    labels = engine.labels()
    lent: set[bytes] = set()
    targets = iter(empty)
    target = next(targets)
    for row in np.argsort(-distances, kind="stable"):
        source = labels[row]
        if distances[row] == 0:
            return  # every row left sits on its centre: there are fewer distinct rows than clusters
        if members[source] <= 1 or (engine.weights is not None and engine.weights[row] == 0):
            continue
        value = (engine.take(np.array([row])) + 0.0).tobytes()  # -0.0 equals 0.0
        if value in lent:
            continue
        lent.add(value)
        members[source] -= 1
        yield int(target), int(row), int(source)
        following = next(targets, None)
        if following is None:
            return
        target = following


def first_centroids(problem: Problem, centres: NDArray[Any]) -> _core.Centroids:
    """The initial centres; in float64 with squared norms rounded as scikit-learn rounds them.

    Rows at the same distance from two seeds are decided by the last bits of these norms: rows of
    small integers, and sparse rows that share no feature with any seed. One centre at a time gives
    einsum's bits without a second matrix.
    """
    centroids = problem.frame.centroids(centres, problem.engine)
    if centres.dtype != np.float64 or problem.frame.exponent != 0:
        return centroids
    shift = problem.frame.shift
    norms2 = np.empty(len(centres))
    for j, centre in enumerate(centres):
        seen = centre if shift is None else centre - shift
        norms2[j] = np.einsum("j,j->", seen, seen)
    terms = int(np.count_nonzero(centres, axis=1).max()) if shift is None else centres.shape[1]
    centroids.set_norms(norms2, terms + 1)
    return centroids
