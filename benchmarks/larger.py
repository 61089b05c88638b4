"""Time per pass over a file against the time to merely read it: from disk, from the page cache."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from .race import Row

K, PASSES = 8, 9
AIM = 1.3


def larger_than_memory(threads: int, quick: bool) -> list[Row]:
    """A file four times memory_limit; a pass is an iteration, the median of those after the first.

    From the disk: the page cache forgets the file before each pass.
    """
    from exactmeans import open_blocks

    n, d = (20_000 if quick else 2_000_000), 128
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.npy"
        _write(path, n, d)
        source: Any = open_blocks(path, block_rows=max(1, n // 200))
        for place, before in (("page cache", _nothing), ("disk", _forget)):
            case = f"{n} x {d} float32 k={K}, {place}"
            read = _read(source, lambda before=before: before(path))
            ours = _pass(source, n * d, threads, lambda before=before: before(path))
            theirs = _batches(source, lambda before=before: before(path))
            met = None if quick else ours <= AIM * read
            rows += [
                Row(case, "read the file", read, "s"),
                Row(case, "exactmeans, a pass", ours, "s", target=f"<= {AIM:g} x reading", met=met),
                Row(case, "scikit-learn MiniBatchKMeans, a pass of partial_fit", theirs, "s"),
            ]
    return rows


def _read(source: Any, before: Callable[[], None]) -> float:
    def read() -> None:
        for b in range(len(source)):
            source.read(b)

    return median(_timed(read, before) for _ in range(5))


def _pass(source: Any, limit: int, threads: int, before: Callable[[], None]) -> float:
    from exactmeans import KMeans

    begun, ended = [], []

    def note(record: Any) -> None:
        ended.append(time.perf_counter())
        before()
        begun.append(time.perf_counter())

    init = source.read(0)[:K].copy()
    options = {"init": init, "tol": 0, "max_iter": PASSES, "n_jobs": threads}
    KMeans(K, memory_limit=limit, callbacks=note, **options).fit(source)
    return median(end - begin for begin, end in zip(begun, ended[1:], strict=False))


def _batches(source: Any, before: Callable[[], None]) -> float:
    from sklearn.cluster import MiniBatchKMeans

    init = source.read(0)[:K].copy()

    def learn() -> None:
        model = MiniBatchKMeans(K, init=init, n_init=1)
        for b in range(len(source)):
            model.partial_fit(source.read(b))

    return _timed(learn, before)


def _write(path: Path, n: int, d: int) -> None:
    rng = np.random.default_rng(0)
    rows = np.lib.format.open_memmap(path, "w+", np.float32, (n, d))
    for begin in range(0, n, 10_000):
        some = rng.random((min(10_000, n - begin), d), dtype=np.float32)
        rows[begin : begin + 10_000] = some + rng.integers(0, 3, (len(some), 1))
    rows.flush()


def _nothing(path: Path) -> None:
    """Leave the file in the page cache."""


def _forget(path: Path) -> None:
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _timed(work: Callable[[], None], before: Callable[[], None]) -> float:
    before()
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
