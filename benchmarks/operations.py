"""The five sparse products of which k-means consists (supplement, section G), over densities.

Those of exactmeans are what a fit calls: they give distances or exact sums, which is a little more
than the product. SciPy runs on one thread, GraphBLAS on as many as it is given.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import scipy.sparse as sp

from .probes import fastest
from .race import Row
from .worker import Child, ContenderError

OPERATIONS = ("X C'", "C C'", "own products", "X_S c", "B X")
DENSITIES_X = (1e-4, 1e-3, 1e-2)
DENSITIES_C = (1e-3, 1e-2, 1e-1)


def operations(threads: int, quick: bool) -> Iterator[list[Row]]:
    """Milliseconds of each operation, by density of rows and of centres."""
    n, d, k = (2000, 5000, 20) if quick else (50_000, 50_000, 100)
    for rows_density in DENSITIES_X:
        for centres_density in DENSITIES_C:
            child = Child(threads, _measure, threads, n, d, k, rows_density, centres_density)
            try:
                yield child.receive()
            except ContenderError as failure:
                yield [Row(f"X {rows_density:g}", "exactmeans", None, "", note=str(failure))]
            finally:
                child.close()


def _measure(
    pipe: Connection, threads: int, n: int, d: int, k: int, of_x: float, of_c: float
) -> None:
    try:
        rng = np.random.default_rng(0)
        X = sp.random(n, d, of_x, "csr", dtype=np.float64, random_state=rng)
        C = sp.random(k, d, of_c, "csr", dtype=np.float64, random_state=rng)
        labels = rng.integers(0, k, n).astype(np.int32)
        contenders = {"exactmeans": ours(X, C, labels, threads), "scipy": scipys(X, C, labels)}
        if importlib.util.find_spec("graphblas"):
            contenders["graphblas"] = graphblas(X, C, labels, threads)
        rows = []
        for operation in OPERATIONS:
            case = f"{operation}, densities {of_x:g} and {of_c:g}"
            best = {name: fastest(calls[operation], 5) for name, calls in contenders.items()}
            for name, seconds in best.items():
                row = Row(case, name, 1e3 * seconds, "ms")
                if name != "exactmeans":
                    row.note = f"{seconds / best['exactmeans']:.1f} times ours"
                rows.append(row)
        pipe.send(rows)
    except Exception as error:
        pipe.send(ContenderError(f"{type(error).__name__}: {error}"))


Calls = dict[str, Callable[[], Any]]


def ours(X: Any, C: Any, labels: Any, threads: int) -> Calls:
    """The operations of a fit that contain each product."""
    from exactmeans.engine.local.engine import LocalEngine
    from exactmeans.fit.problem import analyse

    def engine_of(rows: Any, own: Any) -> LocalEngine:
        engine = LocalEngine([rows], None, threads)
        engine.start("lloyd", C.shape[0])
        engine.labels()[:] = own
        return engine

    k = C.shape[0]
    rows, centres = engine_of(X, labels), engine_of(C, np.arange(k))
    some = engine_of(X[labels == 0], 0)
    problem = analyse(rows, 0.0)
    sums = problem.sums(k)

    def sum_up() -> None:
        rows.sum_all(sums)

    return {
        "X C'": lambda: rows.transform(C, None, 0),
        "C C'": lambda: centres.transform(C, None, 0),
        "own products": lambda: rows.own_distances(C, 0),
        "X_S c": lambda: some.own_distances(C[:1], 0),
        "B X": sum_up,
    }


def scipys(X: Any, C: Any, labels: Any) -> Calls:
    """Sparse products; dense results where a fit needs them dense."""
    n, k = X.shape[0], C.shape[0]
    transposed = C.T.tocsr()
    B = sp.csr_matrix((np.ones(n), (labels, np.arange(n))), shape=(k, n))
    some, first = X[labels == 0], C[0].T.tocsr()
    return {
        "X C'": lambda: (X @ transposed).toarray(),
        "C C'": lambda: (C @ transposed).toarray(),
        "own products": lambda: X.multiply(C[labels]).sum(axis=1),
        "X_S c": lambda: (some @ first).toarray(),
        "B X": lambda: B @ X,
    }


def graphblas(X: Any, C: Any, labels: Any, threads: int) -> Calls:
    """The same through python-graphblas, as SparseKmeans calls it."""
    gb: Any = importlib.import_module("graphblas")
    gb.ss.config["nthreads"] = threads
    n, k = X.shape[0], C.shape[0]
    own = gb.io.from_scipy_sparse(sp.csr_matrix((np.ones(n), (np.arange(n), labels)), shape=(n, k)))
    B = own.T.new()
    x, c = gb.io.from_scipy_sparse(X), gb.io.from_scipy_sparse(C)
    some, first = gb.io.from_scipy_sparse(X[labels == 0]), gb.io.from_scipy_sparse(C[:1])
    times = gb.semiring.plus_times
    return {
        "X C'": lambda: x.mxm(c.T, times).new(),
        "C C'": lambda: c.mxm(c.T, times).new(),
        "own products": lambda: x.mxm(c.T, times).new(mask=own.S),
        "X_S c": lambda: some.mxm(first.T, times).new(),
        "B X": lambda: B.mxm(x, times).new(),
    }
