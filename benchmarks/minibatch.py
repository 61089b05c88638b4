"""MiniBatchKMeans by gradient steps beside scikit-learn's: time, and inertia over many seeds."""

from __future__ import annotations

import importlib
import os
import time
import warnings
from collections.abc import Iterator
from multiprocessing.connection import Connection
from statistics import fmean, median

from . import data
from .peers import Fitted
from .race import Row
from .worker import PAUSE, Child, measured

CASES = (("letter", 26), ("covtype", 20), ("mnist", 20), ("glove", 100), ("acl", 20), ("cve", 50))
OURS, THEIRS = "exactmeans", "sklearn.cluster"
SEEDS = 15
CLOSE = 1.01  # the mean inertia over the mean of scikit-learn's


def minibatch(threads: int, quick: bool, only: str = "") -> Iterator[list[Row]]:
    """Defaults, but one set of initial centres; both sides draw the same rows."""
    seeds, rows = (2, 2000) if quick else (SEEDS, None)
    for name, k in (case for case in CASES if only in case[0]):
        case = f"{name} k={k} float32, {seeds} seeds"
        if reason := data.missing(name):
            yield [Row(case, "-", None, "", note=f"skipped: {reason}")]
            continue
        sides = {
            side: Child(threads, _serve, side, name, k, rows, threads) for side in (OURS, THEIRS)
        }
        try:
            found: dict[str, list[tuple[float, float]]] = {side: [] for side in sides}
            for seed in range(-1, seeds):  # the first call loads code and wakes threads
                for side, child in sides.items():
                    time.sleep(PAUSE)
                    child.pipe.send(max(0, seed))
                    answer = child.receive()
                    found[side] += [answer] if seed >= 0 else []
        finally:
            for child in sides.values():
                child.close()
        yield _rows(case, found[OURS], found[THEIRS], quick)


def _rows(
    case: str, ours: list[tuple[float, float]], theirs: list[tuple[float, float]], quick: bool
) -> list[Row]:
    times = [[1e3 * seconds for seconds, _ in side] for side in (ours, theirs)]
    ratios = [b / a for a, b in zip(*times, strict=True)]
    share = fmean(inertia for _, inertia in ours) / fmean(inertia for _, inertia in theirs)
    figures = [(median(own), "ms", min(own), max(own)) for own in times]
    return [
        Row(case, "exactmeans", *figures[0]),
        Row(
            case,
            "scikit-learn",
            *figures[1],
            ratio=(median(ratios), min(ratios), max(ratios)),
            target=">= 1x",
            met=None if quick else median(ratios) >= 1,
        ),
        Row(
            case,
            "mean inertia / scikit-learn's",
            share,
            "",
            target=f"<= {CLOSE:g}",
            met=None if quick else share <= CLOSE,
        ),
    ]


def _serve(
    pipe: Connection, side: str, name: str, k: int, max_rows: int | None, threads: int
) -> None:
    """Seconds of a fit and its inertia in float64, for each seed that is asked for."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    warnings.simplefilter("ignore")
    X = data.load(name, "float32", max_rows)
    kind = importlib.import_module(side).MiniBatchKMeans
    options = {"n_jobs": threads} if side == OURS else {}
    try:
        while True:
            model = kind(k, n_init=1, random_state=pipe.recv(), **options)
            began = time.perf_counter()
            model.fit(X)
            seconds = time.perf_counter() - began
            pipe.send((seconds, measured(X, Fitted(None, model.cluster_centers_)).inertia))
    except EOFError:
        return
