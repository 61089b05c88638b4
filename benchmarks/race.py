"""Contenders take turns; ratios are taken within a round, and never against a better answer."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

import numpy as np

from . import data
from .suites import Case
from .worker import Answer, ContenderError, Worker

SAME_LABELS = 0.999
# Labels may hide what a few rows far out cost. Where they differ, inertia decides alone: in float32
# rounding moves rows and from there iterations part; where each library draws its own k-means++
# seeds only the quality can be compared.
SAME_INERTIA = {"labels": 1e-3, "float32": 1e-3, "float64": 0.0, "k-means++": 1e-2}
# Potentials of seeds alone, where float32 rounding has drawn other rows.
SAME_POTENTIAL = {"float32": 0.1, "float64": 0.0}


@dataclass
class Row:
    """One line of a table; `target` and `met` only where a figure was promised."""

    case: str
    contender: str
    value: float | None
    unit: str
    low: float | None = None
    high: float | None = None
    ratio: tuple[float, float, float] | None = None  # median, min, max of theirs / ours
    target: str | None = None
    met: bool | None = None
    note: str = ""


@dataclass(frozen=True)
class Verdict:
    """What becomes of a contender's time beside ours."""

    counts: bool
    note: str = ""
    better: bool = False  # is their answer better than ours?


SAME = Verdict(True)


def race(case: Case, rounds: int, threads: int) -> list[Row]:
    if reason := data.missing(case.data):
        return [Row(case.name, "-", None, "", note=f"skipped: {reason}")]
    names = (case.ours, *case.contenders)
    workers: dict[str, Worker] = {}
    times: dict[str, list[float]] = {name: [] for name in names}
    answers: dict[str, Answer] = {}
    failures: dict[str, str] = {}
    try:
        workers |= {name: Worker(name, case, threads) for name in names}  # all load at once
        for name in names:
            try:
                workers[name].receive()
            except ContenderError as failure:
                failures[name] = str(failure)
                workers.pop(name).close()
        for turn in range(rounds):
            # Rotates the order, so that no contender always runs first or after the same other one.
            order = list(workers)[turn % max(1, len(workers)) :]
            for name in order + [name for name in workers if name not in order]:
                try:
                    seconds, answer = workers[name].measure(want_answer=turn == 0)
                    times[name].append(seconds)
                    if answer is not None:
                        answers[name] = answer
                except ContenderError as failure:
                    failures[name] = str(failure)
                    workers.pop(name).close()
    finally:
        for worker in workers.values():
            worker.close()
    return [_row(case, name, times, answers, failures) for name in names]


def _row(
    case: Case,
    name: str,
    times: dict[str, list[float]],
    answers: dict[str, Answer],
    failures: dict[str, str],
) -> Row:
    least = next((case.targets[key] for key in case.targets if name.startswith(key)), None)
    target = None if least is None or name == case.ours else f">= {least:g}x"
    if name in failures:
        return Row(case.name, name, None, "", target=target, note=failures[name])
    ours = answers.get(case.ours)
    verdict = judge(case, answers[name], ours) if name != case.ours else SAME
    # Where scikit-learn's Lloyd does better than we, something of ours is wrong: nothing counts.
    plain = judge(case, answers.get("scikit-learn"), ours)
    row = _value(case, name, times[name])
    row.target = target
    row.note = verdict.note
    if name == case.ours or case.ours in failures:
        row.note = "worse than scikit-learn's answer" if plain.better else ""
        return row
    ratios = [a / b for a, b in zip(times[name], times[case.ours], strict=True) if a > 0 and b > 0]
    if lost := len(times[name]) - len(ratios):
        row.note = f"{row.note} {lost} rounds lost in noise".strip()
    if ratios and verdict.counts and not plain.better:
        row.ratio = (statistics.median(ratios), min(ratios), max(ratios))
        row.met = None if target is None or case.rows else row.ratio[0] >= (least or 0.0)
    return row


def _value(case: Case, name: str, seconds: list[float]) -> Row:
    low, middle, high = min(seconds), statistics.median(seconds), max(seconds)
    if case.op == "assign" and case.data.startswith("normal-"):
        n, d = map(int, case.data.removeprefix("normal-").split("x"))
        work = 2.0 * min(n, case.rows or n) * d * case.k / 1e9
        return Row(case.name, name, work / middle, "GFLOP/s", work / high, work / low)
    unit = "ms/iteration" if case.op == "iteration" else "ms"
    return Row(case.name, name, 1e3 * middle, unit, 1e3 * low, 1e3 * high)


def judge(case: Case, theirs: Answer | None, ours: Answer | None) -> Verdict:
    """Does their time count beside ours? It does for the same answer, and for one that is worse."""
    if not case.same or theirs is None or ours is None:
        return SAME
    if theirs.labels is None or ours.labels is None:
        return SAME
    agree = float(np.mean(theirs.labels == ours.labels))
    apart = theirs.inertia / ours.inertia - 1 if ours.inertia > 0 else 0.0
    better = apart < -_allowed(case, agree)
    counts = (theirs.n_iter, ours.n_iter)
    # Rounding may decide when a fit converges; but if one reached max_iter, so must the other.
    if None not in counts and counts[0] != counts[1] and case.iters[1] in counts:
        return Verdict(False, f"other answer: {counts[0]} iterations, not {counts[1]}", better)
    if abs(apart) <= _allowed(case, agree) and (agree >= SAME_LABELS or ours.inertia > 0):
        return SAME
    differ = f"{agree:.2%} of labels" + (f", inertia {apart:+.2e}" if ours.inertia > 0 else "")
    # From seeds of their own, better or worse is luck.
    if apart > 0 and case.init == "rows":
        return Verdict(True, f"worse answer: {differ}")
    return Verdict(False, f"other answer: {differ}", better)


def _allowed(case: Case, agree: float) -> float:
    """How far apart inertias may be; a few rows of a huge scale may have most of it."""
    if agree >= SAME_LABELS:
        return SAME_INERTIA["labels"]
    if case.op == "seed":
        return SAME_POTENTIAL[case.dtype]
    return SAME_INERTIA[case.dtype if case.init == "rows" else case.init]
