"""One process per contender: thread pools of different libraries never share one.

It loads the data once and then answers requests over a pipe, so that the parent can let the
contenders take turns without paying for start-up.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import scipy.sparse as sp

from . import data
from .peers import PEERS, Fitted, Work
from .suites import Case

POOLS = ("OMP", "OPENBLAS", "MKL", "BLIS", "NUMBA", "VECLIB_MAXIMUM")
PAUSE = 0.1  # seconds: BLAS threads spin for a while after a call and would slow the next turn
AT_LEAST = 0.2  # seconds of work per turn: short calls are repeated and the fastest counts
ENOUGH = 2.0  # seconds after which no call is repeated; shorter ones run three times
PATIENCE = 7200.0


@dataclass(frozen=True)
class Answer:
    labels: Any
    inertia: float
    n_iter: int | None


class ContenderError(Exception):
    """The contender cannot take part; the message is shown in its cell."""


class Child:
    """A fresh process that runs `target(pipe, *arguments)` with its thread pools limited."""

    def __init__(self, threads: int, target: Callable[..., None], *arguments: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        # Before the child starts: BLAS and OpenMP read these when they are loaded.
        os.environ.update({f"{pool}_NUM_THREADS": str(threads) for pool in POOLS})
        self.process = context.Process(target=target, args=(theirs, *arguments), daemon=True)
        self.process.start()
        theirs.close()

    def close(self) -> None:
        self.pipe.close()
        self.process.join(5)
        if self.process.is_alive():
            self.process.kill()

    def receive(self) -> Any:
        try:
            if not self.pipe.poll(PATIENCE):
                raise ContenderError(f"no answer within {PATIENCE:.0f} s")
            outcome = self.pipe.recv()
        except (EOFError, ConnectionError):
            self.process.join(5)
            raise ContenderError(f"process died (exit code {self.process.exitcode})") from None
        if isinstance(outcome, ContenderError):
            raise outcome
        return outcome


class Worker(Child):
    """One contender. `receive` once before measuring: it is ready then, or has ContenderError."""

    def __init__(self, contender: str, case: Case, threads: int) -> None:
        name, _, own = contender.partition("@")
        threads = int(own or threads)
        super().__init__(threads, _serve, name, case, threads)

    def measure(self, want_answer: bool) -> tuple[float, Answer | None]:
        time.sleep(PAUSE)
        self.pipe.send(want_answer)
        seconds, answer = self.receive()
        return seconds, answer


def _serve(pipe: Connection, name: str, case: Case, threads: int) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # some peers print
    warnings.simplefilter("ignore")
    try:
        X = data.load(case.data, case.dtype, case.rows)
        init, seed = (case.init, 0) if case.init != "rows" else data.start(X, case.k)
        peer = PEERS[name](threads)
        if reason := peer.refuses(X, init):
            raise ContenderError(reason)
        work = Work(case.k, init, case.iters[1], case.tol, seed)
        fewer = replace(work, max_iter=case.iters[0])
        first = replace(work, k=2) if case.op == "seed" else work
        label_twice = peer.passes(X, work) if case.op == "pass" else None
        assign = peer.assigner(X, work) if case.op == "assign" else label_twice
        seeds = peer.seeder(X, work) if case.op == "seed" else None
        # The first call loads code and wakes threads.
        _ = assign() if assign else peer.fit(X, replace(first, max_iter=1))
        pipe.send("ready")
        while True:
            want_answer = pipe.recv()
            answer: Answer | None = None
            if assign:
                seconds, labels = _timed(assign)
                seconds /= 2 if label_twice else 1
                answer = Answer(labels, 0.0, None)
            elif seeds:
                seconds, (centres, rows) = _timed(seeds)
                if want_answer:  # which rows, and what they leave of the potential
                    answer = replace(measured(X, Fitted(None, centres)), labels=rows)
            else:
                seconds, fitted = _timed(lambda: peer.fit(X, work))
                if case.op == "iteration":
                    seconds -= _timed(lambda: peer.fit(X, fewer))[0]
                    seconds /= case.iters[1] - case.iters[0]
                answer = measured(X, fitted) if want_answer else None
            pipe.send((seconds, answer if want_answer else None))
    except EOFError:
        return
    except BaseException as error:  # whatever it is, the table must say so
        failure = (
            error
            if isinstance(error, ContenderError)
            else ContenderError(f"{type(error).__name__}: {error}")
        )
        with contextlib.suppress(OSError):
            pipe.send(failure)


def _timed(call: Callable[[], Any]) -> tuple[float, Any]:
    times: list[float] = []
    while True:
        begin = time.perf_counter()
        outcome = call()
        times.append(time.perf_counter() - begin)
        if sum(times) >= (AT_LEAST if len(times) > 2 else ENOUGH):
            return min(times), outcome


def measured(X: Any, fitted: Fitted) -> Answer:
    """The answer in one common measure: float64, computed here, outside the clock."""
    centres = fitted.centres
    C = np.asarray(centres.toarray() if hasattr(centres, "toarray") else centres, np.float64)
    half_norms = (C * C).sum(1) / 2
    nearest = np.empty(X.shape[0], np.int64)
    inertia = 0.0
    for low in range(0, X.shape[0], 4096):
        block = X[low : low + 4096].astype(np.float64)
        scores = half_norms - block @ C.T
        own = nearest[low : low + 4096] = scores.argmin(1)
        if sp.issparse(X):
            inertia += float(block.multiply(block).sum() + 2 * scores.min(1).sum())
        else:  # by differences: data of a huge scale leaves nothing of such sums
            inertia += float(((block - C[own]) ** 2).sum())
    labels = nearest if fitted.labels is None else np.asarray(fitted.labels)
    return Answer(labels, inertia, fitted.n_iter)


def limit_affinity(threads: int) -> None:
    """Children inherit it, so nobody gets more cores than asked for."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
