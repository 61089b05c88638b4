"""Memoized k-means: batches exchange their share of the exact sums."""

from __future__ import annotations

import time

import numpy as np

from exactmeans.callbacks import Iteration, Reports
from exactmeans.data.arrays import Double, Labels, Matrix
from exactmeans.data.centres import from_core
from exactmeans.engine.local.engine import LocalEngine
from exactmeans.engine.protocol import AssignStats
from exactmeans.fit.cost_model import EXPECTED_PASSES
from exactmeans.fit.early_stopping import CENTRES_STOPPED
from exactmeans.fit.loop import (
    CALLBACK_STOPPED,
    MAX_ITER_REACHED,
    NO_LABEL_CHANGED,
    Run,
    finished_run,
    first_centroids,
)
from exactmeans.fit.problem import Problem
from exactmeans.fit.sgd import STAGES
from exactmeans.fit.update import relocate_rows


def memoized(
    problem: Problem,
    centres: Matrix,
    batch_size: int,
    max_iter: int,
    reports: Reports,
) -> tuple[Run, int]:
    """Batch after batch: take its old share out of the sums, put its new one in, move the centres.

    M. C. Hughes & E. B. Sudderth, Memoized online variational inference, NIPS 2013, for k-means.
    The first pass labels all rows at the initial centres, so that sums are those of all rows.
    """
    engine, began = problem.engine, time.perf_counter()
    assert isinstance(engine, LocalEngine)
    k, d = centres.shape
    centroids = first_centroids(problem, centres)
    problem.start("lloyd", k, min(max_iter, EXPECTED_PASSES))
    sums, update = problem.sums(k), problem.centre_update(k)
    history: list[Iteration] = []
    stopped, steps = MAX_ITER_REACHED, 0

    def now() -> Matrix:
        return from_core(centroids.centres, (k, d))

    for iteration in range(1, max_iter + 1):
        reports.begin(problem.frame, now)
        all_stats, shift2 = [], 0.0
        for own, last in engine.exchange(centroids, sums, batch_size):
            all_stats.append(own)
            steps += 1
            if own.changed and not last and iteration > 1:
                shift2 += update.run(sums, centroids, engine.n_jobs).shift2
        relocated = []
        if sums.any_empty:
            relocated = relocate_rows(problem, sums, now())
        movement = update.run(sums, centroids, engine.n_jobs)
        for row, source, empty in relocated:
            engine.move_row(sums, row, empty, source)
        shift2 += movement.shift2
        update.observe(sums, centroids)
        stats = AssignStats.total(all_stats)
        changed = stats.changed
        record = Iteration(
            run=0,
            iteration=iteration,
            inertia=problem.inertia(update.explained),
            shift=problem.unscaled(shift2),
            changed=changed,
            distances=stats.distances,
            skipped=stats.skipped,
            algorithm="lloyd",
            seconds=time.perf_counter() - began,
            filtered=stats.filtered,
            decided=stats.decided,
            verified=stats.verified,
        )
        history.append(record)
        stop_requested = reports.end(record, problem.frame, now)
        if changed == 0 and not relocated:
            stopped = NO_LABEL_CHANGED
            break
        if shift2 <= problem.tolerance:
            stopped = CENTRES_STOPPED
            break
        if stop_requested:
            stopped = CALLBACK_STOPPED
            break
    again = changed > 0 or movement.moved > 0 or shift2 > 0
    return finished_run(problem, centroids, k, history, stopped, STAGES, again=again), steps


def weights_by_label(labels: Labels, weights: Double | None, k: int) -> Double:
    """Sums of weights; rows in no cluster have label -1."""
    return np.asarray(np.bincount(labels + 1, weights, k + 1)[1:], dtype=np.float64)


def mean_lengths(engine: LocalEngine, outcome: Run, counts: Double) -> Double | None:
    """The length of the mean of the unit rows of each cluster: 1 minus their mean cost."""
    if not engine.metric.directed:
        return None
    costs = engine.own_distances(outcome.centres, 0)
    if engine.weights is not None:
        costs *= engine.weights
    total = weights_by_label(engine.final_labels(), costs, len(counts))
    return 1 - np.divide(total, counts, out=np.ones_like(counts), where=counts > 0)
