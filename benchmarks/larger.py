"""Time per pass over a file against the time to merely read it, both with a cold page cache."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from .race import Row

K, LOW, HIGH = 8, 2, 5
AIM = 1.3


def larger_than_memory(threads: int, quick: bool) -> list[Row]:
    """A file four times memory_limit; per pass is the difference of two fits."""
    from sklearn.cluster import MiniBatchKMeans

    from exactmeans import KMeans, open_blocks

    n, d = (20_000 if quick else 2_000_000), 128
    limit = n * d  # a quarter of the file
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.npy"
        _write(path, n, d)
        source: Any = open_blocks(path, block_rows=max(1, n // 200))
        init = source.read(0)[:K].copy()

        def fit(max_iter: int) -> float:
            options = {"init": init, "tol": 0, "max_iter": max_iter, "n_jobs": threads}
            return _timed(path, lambda: KMeans(K, memory_limit=limit, **options).fit(source))

        def batches() -> None:
            model = MiniBatchKMeans(K, init=init, n_init=1)
            for block in range(len(source)):
                model.partial_fit(source.read(block))

        read = _timed(path, lambda: [source.read(b) for b in range(len(source))])
        ours = (fit(HIGH) - fit(LOW)) / (HIGH - LOW)
        theirs = _timed(path, batches)
    case = f"{n} x {d} float32 k={K}"
    met = None if quick else ours <= AIM * read
    return [
        Row(case, "read the file", read, "s"),
        Row(case, "exactmeans, a pass", ours, "s", target=f"<= {AIM:g} x reading", met=met),
        Row(case, "scikit-learn MiniBatchKMeans, a pass of partial_fit", theirs, "s"),
    ]


def _write(path: Path, n: int, d: int) -> None:
    rng = np.random.default_rng(0)
    rows = np.lib.format.open_memmap(path, "w+", np.float32, (n, d))
    for begin in range(0, n, 10_000):
        some = rng.random((min(10_000, n - begin), d), dtype=np.float32)
        rows[begin : begin + 10_000] = some + rng.integers(0, 3, (len(some), 1))
    rows.flush()


def _timed(path: Path, work: Any) -> float:
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
