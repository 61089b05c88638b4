"""Size limits beside k-means-constrained, and beside fits without limits: time, cost, memory."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from . import data
from .probes import _resident
from .race import Row
from .worker import Child, ContenderError

OURS, THEIRS = "exactmeans", "k-means-constrained"


@dataclass(frozen=True)
class Task:
    """Rows, limits and what to run; `rows` cuts the data, `cap` the fit of the peer."""

    name: str
    k: int
    dtype: str = "float64"
    size_min: float | None = None
    size_max: float | None = None
    rows: int | None = None
    iterations: int = 300
    cap: int = 300

    @property
    def case(self) -> str:
        limits = [f"{name}={getattr(self, name)}" for name in ("size_min", "size_max")]
        return f"{self.name} k={self.k} {self.dtype} " + " ".join(
            text for text in limits if not text.endswith("None")
        )


# The sizes that users of k-means-constrained report. Both fits begin at the same centres; ours runs
# to its end, the peer's is capped: an iteration of its flow takes about as long as the one before.
BESIDE = (
    (Task("letter", 10, size_min=0.9, size_max=1.1, rows=2000, cap=5), 1.0),
    (Task("normal-23000x50", 10, size_min=0.9, size_max=1.1, cap=10), 100.0),
    (Task("20news", 25, size_max=1.1, rows=3000, cap=2), 500.0),
)
ALONE = (
    (Task("acl", 100, size_max=1.1), 4.0),
    (Task("minilm", 100, "float32", size_min=1.0, size_max=1.0), None),
    (Task("normal-1000000x150", 50, "float32", size_min=1.0, size_max=1.0, iterations=10), None),
)


def limits(threads: int, quick: bool, only: str = "") -> Iterator[list[Row]]:
    """Seconds per iteration beside the peer; whole fits beside our own without limits."""
    for task, aim in BESIDE:
        if only in task.case:
            yield _beside(_cut(task, quick), None if quick else aim, threads)
    for task, aim in ALONE:
        if only in task.case:
            yield _alone(_cut(task, quick), None if quick else aim, threads)


def _cut(task: Task, quick: bool) -> Task:
    if not quick:
        return task
    return Task(task.name, 5, task.dtype, task.size_min, task.size_max, 500, 2, 2)


def _answer(side: str, task: Task, threads: int) -> Any:
    child = Child(threads, _serve, side, task, threads)
    try:
        return child.receive()
    finally:
        child.close()


def _beside(task: Task, aim: float | None, threads: int) -> list[Row]:
    if reason := data.missing(task.name):
        return [Row(task.case, "-", None, "", note=f"skipped: {reason}")]
    ours = _answer(OURS, task, threads)
    note = f"a fit of {ours[2]} iterations in {ours[0]:.3g} s"
    rows = [Row(task.case, OURS, 1e3 * ours[0] / ours[2], "ms per iteration", note=note)]
    try:
        theirs = _answer(THEIRS, task, threads)
    except ContenderError as failure:
        return [*rows, Row(task.case, THEIRS, None, "", note=str(failure))]
    ratio = (theirs[0] / theirs[2]) / (ours[0] / ours[2])
    rows.append(
        Row(
            task.case,
            THEIRS,
            1e3 * theirs[0] / theirs[2],
            "ms per iteration",
            ratio=(ratio, ratio, ratio),
            target=None if aim is None else f">= {aim:g}x",
            met=None if aim is None else ratio >= aim,
            note=f"its first {theirs[2]} iterations; inertia at its centres {theirs[1]:.9g}, "
            f"of our assignment {theirs[4]:.9g}",
        )
    )
    return rows


def _alone(task: Task, aim: float | None, threads: int) -> list[Row]:
    if reason := data.missing(task.name):
        return [Row(task.case, "-", None, "", note=f"skipped: {reason}")]
    within = _answer(OURS, task, threads)
    free = _answer("free", task, threads)
    share = within[0] / free[0]
    return [
        Row(task.case, "without limits", free[0], "s", note=_note(free)),
        Row(
            task.case,
            "within limits",
            within[0],
            "s",
            target=None if aim is None else f"<= {aim:g} x without",
            met=None if aim is None else share <= aim,
            note=f"{share:.2f} x; {_note(within)}",
        ),
    ]


def _note(answer: Any) -> str:
    _, inertia, iterations, sizes, resident = answer
    return (
        f"{iterations} iterations, inertia {inertia:.6g}, sizes {sizes[0]} to {sizes[1]}, "
        f"{resident / 1e6:.0f} MB above the data"
    )


def _serve(pipe: Connection, side: str, task: Task, threads: int) -> None:
    """Seconds, inertia, iterations, least and largest cluster, peak memory above the data."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    warnings.simplefilter("ignore")
    X = data.load(task.name, task.dtype, task.rows)
    init, _ = data.start(X, task.k)
    try:
        pipe.send(_theirs(X, init, task) if side == THEIRS else _ours(X, init, task, side, threads))
    except (ImportError, MemoryError, ValueError) as failure:
        pipe.send(ContenderError(f"{type(failure).__name__}: {failure}"))


def _ours(X: Any, init: Any, task: Task, side: str, threads: int) -> Any:
    from exactmeans import KMeans

    limits = {} if side == "free" else {"size_min": task.size_min, "size_max": task.size_max}
    options = {"init": init, "n_init": 1, "max_iter": task.iterations, "n_jobs": threads}
    KMeans(task.k, init=init, n_init=1, max_iter=1, n_jobs=threads).fit(X)  # loads all code
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak of loading the data
    before = _resident("VmRSS")
    began = time.perf_counter()
    model = KMeans(task.k, **options, **limits).fit(X)
    seconds = time.perf_counter() - began
    peak = max(0, _resident("VmHWM") - before)
    sizes = np.bincount(model.labels_, minlength=task.k)
    return seconds, model.inertia_, model.n_iter_, (sizes.min(), sizes.max()), peak


def _theirs(X: Any, init: Any, task: Task) -> Any:
    from k_means_constrained import KMeansConstrained

    X = X if isinstance(X, np.ndarray) else X.toarray()  # it takes no sparse rows
    n = len(X)
    low = None if task.size_min is None else int(task.size_min * n / task.k)
    high = None if task.size_max is None else -int(-task.size_max * n // task.k)
    model = KMeansConstrained(
        task.k, size_min=low, size_max=high, init=init, n_init=1, max_iter=task.cap, n_jobs=1
    )
    began = time.perf_counter()
    model.fit(X)
    seconds = time.perf_counter() - began
    sizes = np.bincount(model.labels_, minlength=task.k)
    return seconds, model.inertia_, model.n_iter_, sizes, _inertia_of_ours(X, model, low, high)


def _inertia_of_ours(X: Any, theirs: Any, low: int | None, high: int | None) -> float:
    """At its centres, within the same limits: it minimises distances, which are not squared."""
    from exactmeans import KMeans

    centres = np.ascontiguousarray(theirs.cluster_centers_)
    model = KMeans(len(centres), init=centres, n_init=1, max_iter=1).fit(X)
    model.cluster_centers_ = centres
    labels = model.predict(X, size_min=low, size_max=high)
    return float(np.square(X - centres[labels]).sum())
