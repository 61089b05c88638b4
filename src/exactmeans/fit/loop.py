"""Lloyd's loop: assign, update, report, stop. Everything that is O(n) happens in the engine."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from exactmeans import _core
from exactmeans.callbacks import Iteration, Reports
from exactmeans.data.arrays import Double, Matrix
from exactmeans.data.centres import from_core
from exactmeans.engine.labels import FinalLabels
from exactmeans.engine.limits import LimitedResult
from exactmeans.fit.early_stopping import CENTRES_STOPPED
from exactmeans.fit.norms import einsum_norms2
from exactmeans.fit.policy import Policy
from exactmeans.fit.problem import Problem, unscaled
from exactmeans.fit.update import update_of

# Why a run ended.
CALLBACK_STOPPED = "a callback returned True"
MAX_ITER_REACHED = "max_iter was reached"
NO_LABEL_CHANGED = "no label changed"


class CheckpointWriter(Protocol):
    """Writes the state of a run to a file, so that it can resume after a kill."""

    @property
    def due(self) -> bool:
        """Whether the next iteration is to be written."""

    def keep(
        self,
        centres: Matrix,
        history: list[Iteration],
        *,
        stop: bool,
        limited: Double | None = None,
    ) -> None:
        """Write an iteration that began with these centres; `stop`: a callback stopped the run.

        `limited`: the state of the assignment within size limits that it began with.
        """


@dataclass
class Run:
    """The outcome of the loop from one set of initial centres."""

    centres: Matrix  # CSR for sparse rows
    labels: FinalLabels
    inertia: float
    history: list[Iteration]
    stopped: str
    distances: int
    stages: list[tuple[int, str, str]]  # first iteration, algorithm, why
    limited: LimitedResult | None = None  # of a run with size limits


@dataclass(frozen=True)
class Resumed:
    """What an interrupted run recorded. Its last iteration is repeated, without a report."""

    history: Sequence[Iteration] = ()
    limited: Double | None = None  # the assignment within limits that the last iteration began with
    stop: bool = False  # a callback stopped the run after the last iteration


class Convergence:
    """Ends a run when no label changes or the centres move less than the tolerance.

    Approximate centres still move when no label changes. The next update then iterates them until
    they converge, and the run ends once converged centres assigned the labels.
    """

    def __init__(self, tolerance: float, *, approximate: bool) -> None:
        self._tolerance = tolerance
        self.due = not approximate  # whether updates must give converged centres
        self._labelled = not approximate  # whether such centres assigned the last labels

    def reached(self, changed: int, shift2: float) -> bool:
        """Record an iteration; returns whether the run ends with it."""
        stationary = changed == 0 or shift2 <= self._tolerance
        ends = stationary and self._labelled
        self._labelled, self.due = self.due, self.due or stationary
        return ends


def lloyd_loop(
    problem: Problem,
    centres: Matrix,
    *,
    policy: Policy,
    max_iter: int,
    run: int = 0,
    reports: Reports,
    resumed: Resumed | None = None,
    checkpoint: CheckpointWriter | None = None,
) -> Run:
    """Iterate from these centres, those of the last iteration if the run is resumed."""
    engine, exponent, began = problem.engine, problem.frame.exponent, time.perf_counter()
    k, d = centres.shape
    resumed = resumed or Resumed()
    done = resumed.history
    first = max(1, len(done))
    if first == 1:
        centroids = first_centroids(problem, centres)
    else:
        centroids = problem.frame.centroids(centres, engine)

    def now() -> Matrix:
        return from_core(centroids.centres, (k, d))

    policy.begin(engine, centroids)
    problem.start(policy.algorithm, k, policy.passes)
    if engine.limited is not None and resumed.limited is not None:
        engine.limited.resume(resumed.limited)
    update = update_of(problem, k)
    history = list(done[:-1])
    stopped, algorithm = MAX_ITER_REACHED, policy.algorithm
    convergence = Convergence(problem.tolerance, approximate=update.approximate)
    for record in history:
        convergence.reached(record.changed, record.shift)
    for iteration in range(first, max_iter + 1):
        if policy.algorithm != algorithm:
            algorithm = policy.algorithm
            engine.use(algorithm)
        repeated = iteration == len(done)  # the last one of a resumed run
        if not repeated:
            reports.begin(problem.frame, now)
        due = checkpoint is not None and not repeated and checkpoint.due
        begun_with = now() if due else None
        state = engine.limited.state if due and engine.limited is not None else None
        stats = engine.assign(centroids, update.sums)
        movement = update.run(centroids, converged=convergence.due or iteration == max_iter)
        engine.moved(movement)
        record = Iteration(
            run,
            iteration,
            update.inertia,
            unscaled(movement.shift2, exponent),
            stats.changed,
            stats.distances,
            stats.skipped,
            algorithm,
            time.perf_counter() - began,
            stats.unread,
            stats.filtered,
            stats.decided,
            stats.verified,
        )
        if repeated:
            record, stop_requested = done[-1], resumed.stop
        else:
            stop_requested = reports.end(record, problem.frame, now)
        changed = record.changed
        history.append(record)
        policy.after(iteration, stats, filtered=centroids.fits_filter())
        if checkpoint is not None and begun_with is not None:
            checkpoint.keep(begun_with, history, stop=stop_requested, limited=state)
        if convergence.reached(changed, movement.shift2):
            stopped = NO_LABEL_CHANGED if changed == 0 else CENTRES_STOPPED
            break
        if stop_requested:
            stopped = CALLBACK_STOPPED
            break
    if stopped == CALLBACK_STOPPED and update.approximate:
        changed = engine.assign(centroids).changed
        movement = update.run(centroids, converged=True)
        engine.moved(movement)
    again = bool(changed or movement.moved)
    stages = [stage for stage in policy.stages if stage[0] <= len(history)]
    return finished_run(problem, centroids, k, history, stopped, stages, again=again)


def finished_run(
    problem: Problem,
    centroids: _core.Centroids,
    k: int,
    history: list[Iteration],
    stopped: str,
    stages: list[tuple[int, str, str]],
    *,
    again: bool,
) -> Run:
    """The outcome; `again`: assign once more, so that labels match the final centres."""
    engine, exponent = problem.engine, problem.frame.cost_exponent
    final = from_core(centroids.centres, (k, engine.d))
    if again:
        stats, inertia = engine.cost(centroids, final, exponent)
        extra = stats.distances
    else:
        extra, inertia = 0, engine.scatter(final, exponent, labelled=True)[0]
    limited = None
    if engine.limited is not None:
        limited = engine.limited.result(centroids, final, exponent)
    return Run(
        centres=final,
        labels=engine.final_labels(),
        inertia=unscaled(inertia, exponent),
        history=history,
        stopped=stopped,
        distances=sum(record.distances for record in history) + extra,
        stages=stages,
        limited=limited,
    )


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
