"""The loop. Everything O(n) happens in the engine; everything that is decided is decided here."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from exactmeans import _core
from exactmeans.callbacks import Callback, Iteration, Tasks
from exactmeans.data.arrays import Matrix
from exactmeans.data.centres import from_core
from exactmeans.fit.norms import einsum_norms2
from exactmeans.fit.policy import Policy
from exactmeans.fit.problem import Problem, unscaled
from exactmeans.fit.update import update_of


class CheckpointWriter(Protocol):
    """Where a run is kept, so that it can go on after a kill."""

    @property
    def due(self) -> bool:
        """Is it time to keep the next iteration?"""

    def keep(self, centres: Matrix, history: list[Iteration], *, stop: bool) -> None:
        """An iteration that began with these centres is done; did a callback stop the run there?"""


@dataclass
class Run:
    """The outcome of the loop from one set of initial centres."""

    centres: Matrix  # CSR for sparse rows
    labels: Any  # whatever engine.final_labels() gives
    inertia: float
    history: list[Iteration]
    stopped: str
    distances: int
    stages: list[tuple[int, str, str]]  # first iteration, algorithm, why


def lloyd_loop(
    problem: Problem,
    centres: Matrix,
    *,
    policy: Policy,
    max_iter: int,
    run: int = 0,
    callbacks: Sequence[Callback] = (),
    tasks: Tasks | None = None,
    done: Sequence[Iteration] = (),
    stop: bool = False,
    keeper: CheckpointWriter | None = None,
) -> Run:
    """Assign, repair, move the centres, report; until nothing changes or moves enough.

    `done`: iterations of this run that were made before, of which the last began with `centres`
    and is made again, unreported; `stop`: a callback stopped the run there.
    """
    engine, exponent, began = problem.engine, problem.frame.exponent, time.perf_counter()
    k, d = centres.shape
    first = max(1, len(done))
    if first == 1:
        centroids = first_centroids(problem, centres)
    else:
        centroids = problem.frame.centroids(centres, engine)

    def now() -> Matrix:
        return from_core(centroids.centres, (k, d))

    policy.begin(engine, centroids)
    engine.start(policy.algorithm, k)
    update = update_of(problem, k)
    history = list(done[:-1])
    stopped, algorithm = "max_iter reached", policy.algorithm
    # Centres that are rough move on if they are left to: a fit ends on labels of thorough ones.
    before = [r.changed == 0 or r.shift <= problem.tolerance for r in done[:-1]]
    thorough = not update.rough or any(before)
    polished = not update.rough or any(before[:-1])
    for iteration in range(first, max_iter + 1):
        if policy.algorithm != algorithm:
            algorithm = policy.algorithm
            engine.use(algorithm)
        if tasks is not None and iteration != len(done):
            tasks.begin(problem.frame, now)
        due = keeper is not None and iteration != len(done) and keeper.due
        begun_with = now() if due else None
        stats = engine.assign(centroids)
        changed, distances, skipped, unread = stats
        thorough = thorough or iteration == max_iter
        movement = update.run(centroids, changed, thorough=thorough)
        engine.moved(movement)
        record = Iteration(
            run,
            iteration,
            update.inertia,
            unscaled(movement.shift2, exponent),
            changed,
            distances,
            skipped,
            algorithm,
            time.perf_counter() - began,
            unread,
        )
        if iteration == len(done):
            record, changed = done[-1], done[-1].changed
            asked_to_stop = stop
        else:
            asked_to_stop = False
            for callback in callbacks:
                asked_to_stop = is_true(callback(record)) or asked_to_stop
            if tasks is not None and tasks.end(problem.frame, now):
                asked_to_stop = True
        history.append(record)
        policy.after(iteration, stats, looks=centroids.first_look())
        if keeper is not None and begun_with is not None:
            keeper.keep(begun_with, history, stop=asked_to_stop)
        settled = changed == 0 or movement.shift2 <= problem.tolerance
        if settled and polished:
            stopped = "no label changed" if changed == 0 else "the centres moved less than tol"
            break
        polished, thorough = thorough, thorough or settled
        if asked_to_stop:
            stopped = "a callback asked to"
            break
    if stopped == "a callback asked to" and update.rough:
        changed = engine.assign(centroids).changed
        movement = update.run(centroids, changed, thorough=True)
        engine.moved(movement)
    engine.follow(None)
    again = bool(changed or movement.moved)
    stages = [stage for stage in policy.stages if stage[0] <= len(history)]
    return settled_run(problem, centroids, k, history, stopped, stages, again=again)


def settled_run(
    problem: Problem,
    centroids: _core.Centroids,
    k: int,
    history: list[Iteration],
    stopped: str,
    stages: list[tuple[int, str, str]],
    *,
    again: bool,
) -> Run:
    """The outcome; `again`: label all rows once more, so that labels fit the final centres."""
    engine, exponent = problem.engine, problem.frame.cost_exponent
    final = from_core(centroids.centres, (k, engine.d))
    if again:
        extra, inertia = engine.cost(centroids, final, exponent)
    else:
        extra, inertia = 0, engine.scatter(final, exponent, labelled=True)[0]
    return Run(
        centres=final,
        labels=engine.final_labels(),
        inertia=unscaled(inertia, exponent),
        history=history,
        stopped=stopped,
        distances=sum(record.distances for record in history) + extra,
        stages=stages,
    )


def is_true(answer: Any) -> bool:
    """True or NumPy's True; nothing else stops a fit by accident."""
    return isinstance(answer, (bool, np.bool_)) and bool(answer)


def first_centroids(problem: Problem, centres: Matrix) -> _core.Centroids:
    """The initial centres; in float64 with squared norms rounded as scikit-learn rounds them.

    Rows at the same distance from two seeds are decided by the last bits of these norms: rows of
    small integers, and sparse rows that share no feature with any seed. A few centres at a time
    give einsum's bits without a second matrix.
    """
    centroids = problem.frame.centroids(centres, problem.engine)
    euclidean = problem.frame.metric == "euclidean"
    if centres.dtype != np.float64 or problem.frame.exponent != 0 or not euclidean:
        return centroids
    terms = centres.shape[1]
    if not isinstance(centres, np.ndarray):
        terms = int(np.diff(centres.indptr).max())
    elif problem.frame.shift is None and np.count_nonzero(centres) < centres.size:
        terms = int(np.count_nonzero(centres, axis=1).max())
    centroids.set_norms(einsum_norms2(centres, problem.frame.shift), terms + 1)
    return centroids
