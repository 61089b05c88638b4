"""Contenders take turns; ratios are taken within a round, and only between equal answers."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

import numpy as np

from . import data
from .suites import Case
from .worker import Answer, ContenderError, Worker

SAME_LABELS = 0.999
# Failing that, inertia: in float32 rounding moves rows and from there iterations part; where each
# library draws its own k-means++ seeds only the quality can be compared.
SAME_INERTIA = {"float32": 1e-3, "float64": 0.0, "k-means++": 1e-2}
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
            # Nobody always runs first or behind the same neighbour's warm cache.
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
    judge = "scikit-learn" if "scikit-learn" in answers else case.ours
    verdict = _compare(case, answers[name], answers.get(judge)) if name != judge else ""
    own = _compare(case, answers[case.ours], answers.get(judge)) if case.ours in answers else ""
    row = _value(case, name, times[name])
    row.target = target
    row.note = verdict
    if name == case.ours or case.ours in failures:
        return row
    ratios = [a / b for a, b in zip(times[name], times[case.ours], strict=True) if a > 0 and b > 0]
    if lost := len(times[name]) - len(ratios):
        row.note = f"{row.note} {lost} rounds lost in noise".strip()
    if ratios and not verdict and not own:  # a time counts only for the same answer
        row.ratio = (statistics.median(ratios), min(ratios), max(ratios))
        row.met = None if target is None or case.rows else row.ratio[0] >= (least or 0.0)
    return row


def _value(case: Case, name: str, seconds: list[float]) -> Row:
    low, middle, high = min(seconds), statistics.median(seconds), max(seconds)
    if case.op == "assign":
        n, d = map(int, case.data.removeprefix("normal-").split("x"))
        work = 2.0 * min(n, case.rows or n) * d * case.k / 1e9
        return Row(case.name, name, work / middle, "GFLOP/s", work / high, work / low)
    unit = "ms/iteration" if case.op == "iteration" else "ms"
    return Row(case.name, name, 1e3 * middle, unit, 1e3 * low, 1e3 * high)


def _compare(case: Case, answer: Answer, reference: Answer | None) -> str:
    """Empty when the answers agree, else what differs."""
    if not case.same or reference is None or answer.labels is None or reference.labels is None:
        return ""
    counts = (answer.n_iter, reference.n_iter)
    # Rounding may decide when a fit settles; but if one ran to the limit, so must the other.
    if None not in counts and counts[0] != counts[1] and case.iters[1] in counts:
        return f"other answer: {counts[0]} iterations, not {counts[1]}"
    agree = float(np.mean(answer.labels == reference.labels))
    if agree >= SAME_LABELS:
        return ""
    if reference.inertia > 0:
        apart = answer.inertia / reference.inertia - 1
        allowed = SAME_INERTIA[case.dtype if case.init == "rows" else case.init]
        if abs(apart) <= (SAME_POTENTIAL[case.dtype] if case.op == "seed" else allowed):
            return ""
        return f"other answer: {agree:.2%} of labels, inertia {apart:+.2e}"
    return f"other answer: {agree:.2%} of labels"
