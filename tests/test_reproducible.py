"""The same bits whatever the threads, the blocks, the order of the rows, the layout or the CPU."""

from __future__ import annotations

import ctypes
import hashlib
import multiprocessing
import os
import platform
import subprocess
import sys
import threading
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from joblib import Parallel, delayed

import cases
import datasets
from cases import ALGORITHMS, DTYPES, Bits, able, bits, cut, dense, fit, skip_unless_able
from exactmeans import KMeans, _core
from exactmeans.fit.generator import FitGenerator

pytestmark = pytest.mark.core

NAMES = ["digits", "blobs_overlapping", "far_from_origin", "lattice", "sparse_random"]
ENOUGH = 60  # seconds: what a stuck process is given before it is called stuck


def problem(name: str, dtype: str = "float64", seed: int = 3) -> tuple[Any, Any, Any]:
    """Rows, centres to start from and weights."""
    data = datasets.load(name)
    X = data.astype(dtype)
    rng = np.random.default_rng(seed)
    init = dense(X[rng.choice(X.shape[0], data.k, replace=False)])
    return X, init, rng.uniform(0.1, 2, X.shape[0])


# Draws --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("init", ["k-means++", "k-means||", "random", ("d", 2.0)], ids=str)
def test_a_fit_inside_a_callback_does_not_change_the_draws(init: Any) -> None:
    X = datasets.blobs(300, 4, 12, seed=4)
    records: dict[bool, list[Any]] = {}

    for nested in (False, True):
        seen: list[Any] = []

        def report(record: Any, seen: list[Any] = seen, nested: bool = nested) -> None:
            seen.append(record._replace(seconds=0.0))
            if nested:
                KMeans(3, random_state=0).fit(X)

        KMeans(8, init=init, n_init=4, random_state=0, max_iter=5, callbacks=report).fit(X)
        records[nested] = seen
    assert {record.run for record in records[True]} == {0, 1, 2, 3}
    assert records[True] == records[False]


def test_generators_that_exist_share_nothing() -> None:
    expected = [np.random.RandomState(seed).random_sample(5).tolist() for seed in range(4)]
    for _ in range(3):  # the second time with twisters that were used before
        some = [FitGenerator.seeded(seed) for seed in range(4)]
        one_by_one = [[generator.random_sample() for generator in some] for _ in range(5)]
        assert np.transpose(one_by_one).tolist() == expected
        del some
    some = [FitGenerator.seeded(0) for _ in range(200)]
    del some
    assert len(FitGenerator._idle) <= 64


# Threads, blocks, order, layout -------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NAMES)
def test_any_number_of_threads(name: str, dtype: str, algorithm: str, weighted: bool) -> None:
    X, init, w = problem(name, dtype)
    skip_unless_able(algorithm, X)
    w = w if weighted else None
    found = [bits(fit(X, init, w, n_jobs=jobs, algorithm=algorithm)) for jobs in (1, 2, 3, 7)]
    assert found[1:] == found[:1] * 3


@pytest.mark.parametrize("init", ["k-means++", "random"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NAMES)
def test_threads_and_blocks_do_not_change_the_seeds(name: str, dtype: str, init: str) -> None:
    X, _, w = problem(name, dtype)
    n, k = X.shape[0], datasets.load(name).k

    def run(rows: Any, n_jobs: int) -> Bits:
        model = KMeans(k, init=init, n_init=2, random_state=0, n_jobs=n_jobs)
        return bits(model.fit(rows, sample_weight=w))

    first = run(X, 1)
    assert all(run(X, jobs) == first for jobs in (2, 3, 7))
    assert run(cut(X, [1, n // 2]), 2) == first
    assert run(cut(X, [n // 7, n // 5, n - 1]), 3) == first


@settings(max_examples=30)
@given(st.data())
def test_any_cut_into_blocks(data: st.DataObject) -> None:
    name, dtype = data.draw(st.sampled_from(NAMES)), data.draw(st.sampled_from(DTYPES))
    X, init, w = problem(name, dtype)
    algorithm = data.draw(st.sampled_from(able(X)))
    weights = data.draw(st.sampled_from([None, w]))
    # Two ends next to each other make a block of one row.
    ends = data.draw(st.lists(st.integers(1, X.shape[0] - 1), unique=True, max_size=12))
    ends = sorted({*ends, *(end + 1 for end in ends[:3] if end + 1 < X.shape[0])})
    options = {"algorithm": algorithm, "max_iter": 12}
    whole = fit(X, init, weights, **options)
    parts = fit(cut(X, ends), init, weights, **options)
    assert bits(parts) == bits(whole)
    assert np.array_equal(parts.predict(cut(X, ends)), whole.labels_)
    assert parts.transform(cut(X, ends)).tobytes() == whole.transform(X).tobytes()


def test_blocks_of_one_row_each() -> None:
    X, init, w = problem("iris")
    assert bits(fit(cut(X, list(range(1, 150))), init, w)) == bits(fit(X, init, w))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NAMES)
def test_labels_follow_shuffled_rows(name: str, dtype: str, algorithm: str) -> None:
    X, init, w = problem(name, dtype)
    skip_unless_able(algorithm, X)
    before = fit(X, init, w, algorithm=algorithm)
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(X.shape[0])
        after = fit(X[order], init, w[order], algorithm=algorithm)
        assert np.array_equal(after.labels_, before.labels_[order])
        assert bits(after)[1:] == bits(before)[1:]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["digits", "far_from_origin", "lattice"])
def test_layouts_of_dense_rows(name: str, dtype: str) -> None:
    X, init, w = problem(name, dtype)
    expected = bits(fit(X, init, w))
    for make in cases.LAYOUTS["dense"].values():
        assert bits(fit(make(X), init, w)) == expected
    frozen = X.copy()
    frozen.flags.writeable = False
    assert bits(fit(frozen, init, w)) == expected
    odd = np.zeros(X.shape[0], dtype=[("pad", "u1"), ("row", dtype, X.shape[1:])])
    odd["row"] = X  # rows that are not even aligned
    assert bits(fit(odd["row"], init, w)) == expected


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["digits", "lattice", "sparse_random", "sparse_counts"])
def test_formats_of_sparse_rows(name: str, dtype: str) -> None:
    X, init, w = problem(name, dtype)
    X = sp.csr_matrix(X)
    expected = bits(fit(X, init, w))
    for make in cases.LAYOUTS["csr"].values():
        assert bits(fit(make(X), init, w)) == expected
    for form in ("csc", "coo", "lil", "dok", "bsr"):
        assert bits(fit(X.asformat(form), init, w)) == expected, form
    assert bits(fit(_untidy(X), init, w)) == expected


def _untidy(X: Any) -> Any:
    """The same rows with their entries backwards and every value stored as two halves."""
    rows = [X[[i]] for i in range(X.shape[0])]
    indices = np.concatenate([np.repeat(row.indices[::-1], 2) for row in rows])
    values = np.concatenate([np.repeat(row.data[::-1] / 2, 2) for row in rows])
    return sp.csr_matrix((values.astype(X.dtype), indices, 2 * X.indptr), shape=X.shape)


# Instruction sets ---------------------------------------------------------------------------------


def _run(code: str, **environment: str) -> str:
    """What a new Python prints; it sees the same packages and the same tests."""
    here = str(Path(__file__).parent)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([here, *sys.path]), **environment}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env=env, capture_output=True, text=True, timeout=4 * ENOUGH, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


DIGEST = """
import cases
from exactmeans import _core
print(_core.active_isa(), cases.digest(full={full}))
"""


@pytest.mark.parametrize("full", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("isa", _core.usable_isas())
def test_every_instruction_set_gives_the_same_bits(isa: str, full: bool) -> None:
    active, digest = _run(DIGEST.format(full=full), EXACTMEANS_ISA=isa).split()
    assert active == isa
    assert digest == _digest(full)


@cache
def _digest(full: bool) -> str:
    """Of this process."""
    return cases.digest(full=full)


# Company ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_python_threads_at_once(algorithm: str) -> None:
    names = [name for name in ("digits", "sparse_random") if algorithm in able(problem(name)[0])]
    work = [problem(name, dtype) for name in names for dtype in DTYPES] * 2
    alone = [bits(fit(*args, algorithm=algorithm)) for args in work]
    found: list[Bits | None] = [None] * len(work)
    start = threading.Barrier(len(work))

    def run(at: int) -> None:
        start.wait()
        for _ in range(3):
            found[at] = bits(fit(*work[at], algorithm=algorithm, n_jobs=1 + at % 3))

    threads = [threading.Thread(target=run, args=(at,)) for at in range(len(work))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(ENOUGH)
    assert found == alone


def _child(pipe: Any, args: tuple[Any, ...]) -> None:
    pipe.send(bits(fit(*args, n_jobs=3)))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fit_after_fork() -> None:
    """In the child, whose copy of the pool has no threads, and in the parent again afterwards."""
    args = problem("digits")
    expected = bits(fit(*args, n_jobs=3))
    context = multiprocessing.get_context("fork")
    for _ in range(3):
        here, there = context.Pipe(duplex=False)
        child = context.Process(target=_child, args=(there, args))
        child.start()
        try:
            assert here.poll(ENOUGH), "the child is stuck"
            assert here.recv() == expected
        finally:
            child.kill()
            child.join()
        assert bits(fit(*args, n_jobs=3)) == expected


@pytest.mark.parametrize("backend", ["loky", "threading"])
def test_a_fit_inside_joblib(backend: str) -> None:
    work = [problem("digits", dtype) for dtype in DTYPES]
    expected = [bits(fit(*args)) for args in work]
    with Parallel(n_jobs=2, backend=backend, timeout=ENOUGH) as parallel:
        found = parallel(delayed(_joblib_fit)(*args) for args in work)
    assert [bits(model) for model in found] == expected


def _joblib_fit(*args: Any) -> KMeans:
    return fit(*args)


# What other libraries leave behind ----------------------------------------------------------------


def flush_to_zero() -> None:
    """Make this thread treat subnormal numbers as zero, as torch.set_flush_denormal does."""
    libm = ctypes.CDLL("libm.so.6")
    state = (ctypes.c_uint32 * 8)()  # x86-64: the x87 state of 28 bytes, then MXCSR
    assert libm.fegetenv(ctypes.byref(state)) == 0
    state[7] |= 0x8040  # flush results, denormals are zeros
    assert libm.fesetenv(ctypes.byref(state)) == 0


def tiny_digest(*, flush: bool) -> str:
    """One word for fits of rows that are subnormal, or whose squares are."""
    seen = hashlib.sha256()
    scales = (("float32", 1e-40), ("float64", 1e-310), ("float64", 1e-160))
    data = [(datasets.blobs(300, 4, 5, seed=9) * scale).astype(dtype) for dtype, scale in scales]
    if flush:
        flush_to_zero()
        assert np.float64(1e-310) * np.ones(1) == 0, "the switch had no effect"
    for X in data:
        for algorithm in cases.ABLE["dense"]:
            for n_jobs in (1, 3):
                model = fit(X, X[:5], algorithm=algorithm, n_jobs=n_jobs)
                assert len(np.unique(model.labels_)) == 5
                seen.update(model.labels_.tobytes() + model.cluster_centers_.tobytes())
    return seen.hexdigest()


@pytest.mark.skipif(
    platform.machine() != "x86_64" or platform.libc_ver()[0] != "glibc",
    reason="only the layout of glibc's fenv_t on x86-64 is known here",
)
def test_flush_to_zero_changes_nothing() -> None:
    code = "import test_reproducible as t; print(t.tiny_digest(flush=True))"
    assert _run(code) == tiny_digest(flush=False)
