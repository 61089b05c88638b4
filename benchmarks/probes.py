"""Figures that are not races: import time, peak memory, and the machine's own limits."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import itertools
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from . import data
from .peers import PEERS, Work
from .race import Row
from .suites import MEMORY, QUICK_ROWS
from .worker import Child, ContenderError

IMPORT_LIMIT = 50.0  # ms beyond importing sklearn.cluster
BYTES_PER_ROW = 40
LAYOUTS = 8  # k x d matrices granted: centres old and new, packed, exact sums of two words, output
FIXED = 2**20  # bytes: Python objects, buffers per thread


def imports(rounds: int) -> list[Row]:
    """Milliseconds to import, in fresh interpreters that take turns."""
    script = "import time; t = time.perf_counter(); import {}; print(time.perf_counter() - t)"
    times: dict[str, list[float]] = {"exactmeans": [], "sklearn.cluster": []}
    for _ in range(max(rounds, 5) + 1):
        for module, measured in times.items():
            command = [sys.executable, "-c", script.format(module)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                last = (done.stderr.strip().splitlines() or ["failed"])[-1]
                return [Row("import", module, None, "", note=last)]
            measured.append(1e3 * float(done.stdout))
    rows = []
    for module, measured in times.items():
        values = measured[1:]  # the first run reads the files
        row = Row("import", module, statistics.median(values), "ms", min(values), max(values))
        if module != "sklearn.cluster":
            beyond = row.value or 0.0
            beyond -= statistics.median(times["sklearn.cluster"][1:])
            row.target = f"<= {IMPORT_LIMIT:g} ms beyond sklearn.cluster"
            row.met = beyond <= IMPORT_LIMIT
            row.note = f"{beyond:+.0f} ms"
        rows.append(row)
    return rows


def memory(ours: str, threads: int, quick: bool) -> list[Row]:
    """Peak resident memory of a fit above what the process held before it."""
    rows = []
    for name, k, dtype in MEMORY:
        case = f"{name} k={k} {dtype}"
        if reason := data.missing(name):
            rows.append(Row(case, "-", None, "", note=f"skipped: {reason}"))
            continue
        child = Child(threads, _fit_and_weigh, ours, threads, name, k, dtype, quick)
        try:
            used, n, centres = child.receive()
        except ContenderError as failure:
            rows.append(Row(case, ours, None, "", note=str(failure)))
            continue
        finally:
            child.close()
        allowed = BYTES_PER_ROW * n + LAYOUTS * centres + FIXED
        row = Row(case, ours, used / 2**20, "MiB above input")
        row.target = f"<= {allowed / 2**20:.1f} MiB"
        row.met = None if quick else used <= allowed
        row.note = (
            f"{used / n:.1f} B/row in all; granted {BYTES_PER_ROW} B/row, {LAYOUTS} centre "
            f"matrices of {centres / 2**20:.2f} MiB, 1 MiB fixed"
        )
        rows.append(row)
    return rows


def _fit_and_weigh(
    pipe: Connection, ours: str, threads: int, name: str, k: int, dtype: str, quick: bool
) -> None:
    try:
        X = data.load(name, dtype, QUICK_ROWS if quick else None)
        init, seed = data.start(X, k)
        peer = PEERS[ours.partition("@")[0]](threads)
        # Code and thread stacks are not the fit's memory; a small fit brings them in.
        peer.fit(X[:200], Work(2, init[:2], 2, 0.0, seed))
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)  # or the fit would reuse what loading left behind
        before = _resident("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
        peer.fit(X, Work(k, init, 10, 0.0, seed))
        pipe.send((_resident("VmHWM") - before, X.shape[0], init.nbytes))
    except Exception as error:
        pipe.send(ContenderError(f"{type(error).__name__}: {error}"))


def _resident(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return 1024 * int(line.split()[1])
    raise OSError(f"no {field} in /proc/self/status")


def roofline(threads: int, quick: bool) -> list[Row]:
    """What the machine can do: arithmetic by BLAS, bandwidth by threaded NumPy passes."""
    child = Child(threads, _limits, threads, quick)
    try:
        rows: list[Row] = child.receive()
    except ContenderError as failure:
        rows = [Row("roofline", "numpy", None, "", note=str(failure))]
    finally:
        child.close()
    return rows


def _limits(pipe: Connection, threads: int, quick: bool) -> None:
    size = 1024 if quick else 2048
    rows = []
    for dtype in ("float32", "float64"):
        a = np.random.default_rng(0).standard_normal((size, size)).astype(dtype)
        out = np.empty_like(a)
        best = fastest(partial(np.matmul, a, a, out=out))
        rows.append(Row(f"GEMM {size}^3 {dtype}", "numpy", 2 * size**3 / best / 1e9, "GFLOP/s"))
    n = (8 if quick else 32) * 2**20  # far beyond the last cache
    a, b, c = np.ones(n), np.ones(n), np.ones(n)
    cuts = np.linspace(0, n, threads + 1).astype(int)
    slices = [slice(int(low), int(high)) for low, high in itertools.pairwise(cuts)]
    with ThreadPoolExecutor(threads) as pool:  # NumPy lets go of the GIL in these loops

        def copy() -> None:
            list(pool.map(lambda s: np.copyto(a[s], b[s]), slices))

        def add() -> None:
            list(pool.map(lambda s: np.add(b[s], c[s], out=a[s]), slices))

        rows.append(Row("copy a = b", "numpy", 16 * n / fastest(copy) / 1e9, "GB/s"))
        rows.append(Row("add a = b + c", "numpy", 24 * n / fastest(add) / 1e9, "GB/s"))
    try:
        probe: Any = getattr(importlib.import_module("exactmeans._core"), "roofline", None)
    except ImportError as error:
        rows.append(Row("core probe", "exactmeans", None, "", note=str(error)))
    else:
        figures = probe() if probe else {}  # name -> GFLOP/s or GB/s, as its name says
        rows += [Row(name, "exactmeans", float(value), "") for name, value in figures.items()]
    pipe.send(rows)


def fastest(call: Callable[[], Any], times: int = 7) -> float:
    """The fastest of several: limits are what is possible, not what is usual."""
    call()
    seconds = []
    for _ in range(times):
        begin = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begin)
    return min(seconds)
