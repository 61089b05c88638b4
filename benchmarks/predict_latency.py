"""The median time of one predict call on a few rows, beside scikit-learn's, as a server sees it."""

from __future__ import annotations

import importlib
import os
import time
import warnings
from collections.abc import Iterator
from multiprocessing.connection import Connection
from statistics import median
from typing import Any

import numpy as np
import scipy.sparse as sp

from . import data
from .race import SAME_LABELS, Row
from .worker import PAUSE, Child, ContenderError

CASES = ("20news", "glove", "glove frame")  # CSR, dense, and dense as a pandas frame
CLUSTERS = (10, 100, 1000)
ROWS = (1, 10, 1000)
OURS, THEIRS = "exactmeans", "sklearn.cluster"
AT_LEAST = 0.3  # seconds of calls, and
CALLS = 20  # calls, of which the median counts


def latency(threads: int, rounds: int, quick: bool, only: str = "") -> Iterator[list[Row]]:
    """Both sides have the same centres, rows of the data, and label the same rows."""
    clusters, rounds = ((10, 20), 1) if quick else (CLUSTERS, rounds)
    for name in (name for name in CASES if only in name):
        if reason := data.missing(name.removesuffix(" frame")):
            yield [Row(name, "-", None, "", note=f"skipped: {reason}")]
            continue
        sides = {side: Child(threads, _serve, side, name, threads) for side in (OURS, THEIRS)}
        try:
            for k in clusters:
                for rows in ROWS:
                    yield _measure(f"{name} k={k}, {rows} rows", sides, (k, rows), rounds, quick)
        finally:
            for child in sides.values():
                child.close()


def _measure(
    case: str, sides: dict[str, Child], question: tuple[int, int], rounds: int, quick: bool
) -> list[Row]:
    times: dict[str, list[float]] = {side: [] for side in sides}
    labels: dict[str, Any] = {}
    try:
        for _ in range(rounds):
            for side, child in sides.items():
                time.sleep(PAUSE)
                child.pipe.send(question)
                seconds, labels[side] = child.receive()
                times[side].append(1e6 * seconds)
    except ContenderError as failure:
        return [Row(case, "-", None, "", note=str(failure))]
    ours, theirs = times[OURS], times[THEIRS]
    ratios = [b / a for a, b in zip(ours, theirs, strict=True)]
    same = np.mean(labels[OURS] == labels[THEIRS])
    return [
        Row(case, "exactmeans", median(ours), "us", min(ours), max(ours)),
        Row(
            case,
            "scikit-learn",
            median(theirs),
            "us",
            min(theirs),
            max(theirs),
            ratio=(median(ratios), min(ratios), max(ratios)),
            target=">= 1x",
            met=None if quick else median(ratios) >= 1,
            note="" if same >= SAME_LABELS else f"{1 - same:.1%} other labels",
        ),
    ]


def _serve(pipe: Connection, side: str, name: str, threads: int) -> None:
    """The median seconds of a call, and its labels, for each (k, rows) that is asked for."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    warnings.simplefilter("ignore")
    X = data.load(name.removesuffix(" frame"), "float64")
    kind = importlib.import_module(side).KMeans
    options = {"n_jobs": threads} if side == OURS else {}
    models: dict[int, Any] = {}
    try:
        while True:
            k, rows = pipe.recv()
            if k not in models:
                start, _ = data.start(X, k)
                given = sp.csr_matrix(start) if sp.issparse(X) else start
                given = _framed(given) if name.endswith(" frame") else given
                models = {k: kind(k, init=start, n_init=1, max_iter=1, **options).fit(given)}
            few = X[-rows:]
            few = _framed(few) if name.endswith(" frame") else few
            pipe.send(_median(models[k], few))
    except EOFError:
        return


def _framed(values: Any) -> Any:
    columns = [f"feature {f}" for f in range(values.shape[1])]
    return importlib.import_module("pandas").DataFrame(values, columns=columns)


def _median(model: Any, rows: Any) -> tuple[float, Any]:
    labels = model.predict(rows)  # the first call may prepare something
    seconds: list[float] = []
    end = time.perf_counter() + AT_LEAST
    while time.perf_counter() < end or len(seconds) < CALLS:
        began = time.perf_counter()
        model.predict(rows)
        seconds.append(time.perf_counter() - began)
    return median(seconds), labels
