"""Dask gives the bits of the local estimator, for any chunks and workers, and survives deaths."""

from __future__ import annotations

import asyncio
import gc
import math
import os
import pickle
import secrets
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from inspect import signature
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray

import cases
import exactmeans
from exactmeans import _core
from exactmeans.metrics import METRICS

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")
cloudpickle = pytest.importorskip("cloudpickle")
from exactmeans.dask import KMeans, MiniBatchKMeans  # noqa: E402
from exactmeans.engine.cluster import worker_engine  # noqa: E402
from exactmeans.engine.cluster.channel import (  # noqa: E402
    TOKEN_BYTES,
    Channel,
    Listener,
)
from exactmeans.engine.cluster.pool import WorkerPool  # noqa: E402
from exactmeans.engine.cluster.reduce import reduced  # noqa: E402
from exactmeans.engine.cluster.requests import Centres, Request, Response  # noqa: E402
from exactmeans.engine.cluster.seeding import ClusterSeeding  # noqa: E402
from exactmeans.engine.cluster.worker_engine import (  # noqa: E402
    WorkerEngine,
    updated_centres,
)
from exactmeans.engine.dask.placement import by_worker  # noqa: E402
from exactmeans.engine.dask.transport import DaskTransport  # noqa: E402
from exactmeans.engine.local.engine import LocalEngine  # noqa: E402
from exactmeans.engine.local.seeding import LocalSeeding  # noqa: E402
from exactmeans.engine.protocol import Seeding  # noqa: E402
from exactmeans.fit.policy import ALGORITHM_NAMES  # noqa: E402
from exactmeans.seeding.init import INIT_NAMES  # noqa: E402

K = 12


@contextmanager
def processes(workers: int) -> Iterator[Any]:
    """A cluster of processes with a thread each."""
    settings = {"distributed.comm.timeouts.connect": "60s"}
    with (
        dask.config.set(settings),
        distributed.LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address=":0",
            memory_limit="1GB",
            worker_dashboard_address=":0",
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with processes(2) as two:
        yield two


@pytest.fixture
def mortal() -> Iterator[Any]:
    """Workers that may be killed: Dask does not always start others in their place."""
    with processes(3) as three:
        yield three


@contextmanager
def in_this_process(workers: int, threads: int = 1) -> Iterator[Any]:
    """A cluster without processes, which nobody uses who does not ask for it."""
    with (
        distributed.LocalCluster(
            n_workers=workers,
            threads_per_worker=threads,
            processes=False,
            dashboard_address=":0",
            worker_dashboard_address=":0",
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def crowd() -> Iterator[Any]:
    """Ten workers: more than are asked directly."""
    with in_this_process(10) as ten:
        yield ten


def rows(n: int = 1500, d: int = 5, dtype: str = "float64") -> NDArray[Any]:
    rng = np.random.default_rng(n + d)
    return (rng.normal(size=(n, d)) + 4 * rng.integers(0, 3, size=(n, 1))).astype(dtype)


def texts(n: int = 900, d: int = 200) -> Any:
    return sp.random(n, d, 0.04, format="csr", random_state=1)


def in_chunks(X: Any, *lengths: int) -> Any:
    """A Dask array of CSR chunks."""
    ids = da.from_array(np.arange(X.shape[0]), chunks=(lengths,))
    chunks = (lengths, (X.shape[1],))
    return ids.map_blocks(lambda i: X[i], dtype=X.dtype, new_axis=1, chunks=chunks, meta=X[:0])


def dense(X: Any) -> Any:
    return X if isinstance(X, np.ndarray) else X.toarray()


def same(model: KMeans, local: exactmeans.KMeans) -> None:
    assert isinstance(model.labels_, da.Array)
    np.testing.assert_array_equal(model.labels_.compute(), local.labels_)
    np.testing.assert_array_equal(dense(model.cluster_centers_), dense(local.cluster_centers_))
    assert model.n_iter_ == local.n_iter_
    assert model.inertia_ == local.inertia_


# the same bits ------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ALGORITHM_NAMES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_bits_of_the_local_estimator(client: Any, algorithm: Any, dtype: str) -> None:
    X = rows(dtype=dtype)
    if algorithm not in (*cases.able(X), "auto"):
        with pytest.raises(ValueError, match=f"for dense X .* but it is {algorithm!r}"):
            KMeans(K, init=X[:K], algorithm=algorithm).fit(da.from_array(X, chunks=(400, 5)))
        return
    local = exactmeans.KMeans(K, init=X[:K]).fit(X)
    model = KMeans(K, init=X[:K], algorithm=algorithm).fit(da.from_array(X, chunks=(400, 5)))
    same(model, local)
    assert model.labels_.chunks == ((400, 400, 400, 300),)
    assert model.cluster_centers_.dtype == dtype
    assert [r.inertia for r in model.history_] == [r.inertia for r in local.history_]


@pytest.mark.parametrize("lengths", [(900,), (1, 299, 300, 300), (500, 0, 399, 0, 1)])
def test_sparse_chunks(client: Any, lengths: tuple[int, ...]) -> None:
    X = texts()
    local = exactmeans.KMeans(K, init="k-means||", random_state=3).fit(X)
    model = KMeans(K, random_state=3).fit(in_chunks(X, *lengths))
    same(model, local)
    assert model.labels_.chunks == (lengths,)


@pytest.mark.parametrize("algorithm", ALGORITHM_NAMES)
def test_sparse_bits_of_the_local_estimator(client: Any, algorithm: Any) -> None:
    X = texts()
    if algorithm not in (*cases.able(X), "auto"):
        with pytest.raises(ValueError, match=f"for sparse X .* but it is {algorithm!r}"):
            KMeans(K, random_state=3, algorithm=algorithm).fit(in_chunks(X, 500, 400))
        return
    local = exactmeans.KMeans(K, init="k-means||", random_state=3).fit(X)
    same(KMeans(K, random_state=3, algorithm=algorithm).fit(in_chunks(X, 500, 400)), local)


INITS = [*INIT_NAMES, *(("d", alpha) for alpha in (0, 1, 1.5, 2, math.inf))]
SUMMED = [metric.name for metric in METRICS.values() if metric.summed]


@pytest.mark.parametrize(
    ("init", "form", "metric"),
    cases.sampled(product(INITS, ("dense", "weighted", "csr"), SUMMED)),
)
def test_seeds_of_the_local_estimator(client: Any, init: Any, form: str, metric: str) -> None:
    X: Any = rows(900)
    X[[5, 700]] = 0
    rng, weights = np.random.default_rng(0), None
    if form == "weighted":
        weights = rng.random(900) * (rng.random(900) < 0.8)
    if form == "csr":
        X = sp.csr_array(X * (abs(X) > 2))
    chunks = in_chunks(X, 200, 700) if form == "csr" else da.from_array(X, chunks=(290, 5))
    runs = 2 if init == "random" else 1
    options: dict[str, Any] = {"init": init, "n_init": runs, "random_state": 1, "max_iter": 5}
    options |= {"metric": metric, "zero_rows": "keep"}
    # Enough centres that rejection draws catch up with deferred seeds several times.
    k = 60 if isinstance(init, tuple) else K
    local, model = exactmeans.KMeans(k, **options), KMeans(k, **options)
    same(model.fit(chunks, sample_weight=weights), local.fit(X, sample_weight=weights))
    own = None if weights is None else da.from_array(weights, chunks=700)
    assert model.score(chunks, sample_weight=own) == local.score(X, sample_weight=weights)
    np.testing.assert_array_equal(model.predict(chunks).compute(), local.labels_)


def test_both_seedings_offer_every_operation() -> None:
    """mypy checks that methods of seeding use no other."""
    assert Seeding.__abstractmethods__ >= {
        "draw",
        "greedy",
        "refresh",
        "add_deferred",
        "seed_weights",
    }
    for kind in (LocalSeeding, ClusterSeeding):
        assert issubclass(kind, Seeding)
        assert not kind.__abstractmethods__


def test_saved_models_are_local_ones(client: Any, tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(300, 4))
    model = KMeans(5, random_state=0).fit(da.from_array(X, chunks=(100, 4)))
    model.save(tmp_path / "model.safetensors")
    again = exactmeans.load(tmp_path / "model.safetensors")
    assert type(again) is exactmeans.KMeans
    np.testing.assert_array_equal(again.cluster_centers_, model.cluster_centers_)
    np.testing.assert_array_equal(again.predict(X), model.labels_.compute())
    assert again.explain() == model.explain()
    assert not hasattr(again, "labels_")


def test_empty_clusters(client: Any) -> None:
    """The farthest rows of all workers move to them."""
    X = rows()
    init = np.vstack([X[:4], np.full((3, 5), 1e3)])
    local = exactmeans.KMeans(7, init=init).fit(X)
    same(KMeans(7, init=init).fit(da.from_array(X, chunks=(260, 5))), local)
    few = np.repeat(rows(6), 50, axis=0)  # fewer distinct rows than clusters
    init = np.vstack([few[:2], np.full((6, 5), 50.0)])
    local = exactmeans.KMeans(8, init=init)
    model = KMeans(8, init=init)
    with pytest.warns(Warning, match="distinct clusters"):
        local.fit(few)
    with pytest.warns(Warning, match="distinct clusters"):
        model.fit(da.from_array(few, chunks=(70, 5)))
    same(model, local)


def test_data_far_from_the_origin(client: Any) -> None:
    X = rows() * 1e-3 + 1e4
    local = exactmeans.KMeans(K, init=X[:K]).fit(X)
    same(KMeans(K, init=X[:K]).fit(da.from_array(X, chunks=(333, 5))), local)


@pytest.mark.parametrize("cluster", [False, True])
def test_rows_of_zeros_are_named_by_their_number(client: Any, cluster: bool) -> None:
    X = rows(100)
    X[[31, 64]] = 0
    chunks = da.from_array(X, chunks=(30, 5))
    with dask.config.set(scheduler="distributed" if cluster else "sync"):
        with pytest.raises(ValueError, match="it has 2, the first of which is row 31"):
            KMeans(3, metric="cosine").fit(chunks)
        for metric in ("angular", "manhattan"):
            with pytest.raises(ValueError, match=f"must not come in blocks for metric='{metric}'"):
                KMeans(3, metric=metric).fit(chunks)


def test_runs_are_compared_as_local_ones_are(client: Any) -> None:
    """Several runs end in one clustering under other names; the first of them is kept."""
    X = np.repeat(np.eye(3) * 100, 20, axis=0) + rows(60, 3) / 100
    for seed in range(3):
        local = exactmeans.KMeans(3, init="random", n_init=5, random_state=seed).fit(X)
        model = KMeans(3, init="random", n_init=5, random_state=seed)
        same(model.fit(da.from_array(X, chunks=(25, 3))), local)


@pytest.mark.parametrize("sparse", [False, True])
def test_many_workers(crowd: Any, sparse: bool) -> None:
    X: Any = texts() if sparse else rows(900)
    local = exactmeans.KMeans(K, init="k-means||", random_state=0).fit(X)
    with crowd.as_current():
        chunks = in_chunks(X, *[90] * 10) if sparse else da.from_array(X, chunks=(45, 5))
        same(KMeans(K, random_state=0).fit(chunks), local)


# what it takes ------------------------------------------------------------------------------------


def requests(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Any]]:
    """Requests and responses of the fits that follow."""
    seen: list[tuple[Any, Any]] = []
    submit = WorkerPool.submit

    def spy(self: WorkerPool, ask: Any, *arguments: Any) -> Any:
        answer = submit(self, ask, *arguments)
        seen.append((ask, answer))
        return answer

    monkeypatch.setattr(WorkerPool, "submit", spy)
    return seen


@pytest.mark.parametrize("sparse", [False, True])
def test_what_moved_is_sent_and_what_changed_comes_back(
    client: Any, monkeypatch: pytest.MonkeyPatch, sparse: bool
) -> None:
    X: Any = texts() if sparse else rows()
    seen = requests(monkeypatch)
    chunks = in_chunks(X, 500, 400) if sparse else da.from_array(X, chunks=(500, 5))
    model = KMeans(40, init=dense(X[:40]), tol=0).fit(chunks)
    passes = [
        (ask.arguments[0], answer) for ask, answer in seen if ask.what == "WorkerEngine.assign"
    ]
    assert len(passes) >= model.n_iter_
    assert passes[0][0].rows.shape[0] == 40
    sent = [centres.rows.shape[0] for centres, _ in passes[1:]]
    assert sent == [len(centres.moved) for centres, _ in passes[1:]]
    assert 0 < min(sent) < 20
    width = int(np.diff(X.indptr).max()) if sparse else 0
    for _, (stats, (clusters, _, features, values, _, _)) in passes:
        assert len(clusters) <= 2 * stats.changed  # a row leaves one and comes to another
        assert len(features) <= 2 * stats.changed * width
        assert sparse or values.shape[0] == len(clusters)


def test_nothing_grows_with_iterations(client: Any) -> None:
    X, held = rows(), []

    def count(record: exactmeans.Iteration) -> None:
        held.append(client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)))

    KMeans(K, init=X[:K], tol=0, callbacks=count).fit(da.from_array(X, chunks=(400, 5)))
    assert len(held) > 12
    assert max(held[2:]) <= held[1]


def test_tasks_of_many_sites_do_not_pile_up(crowd: Any) -> None:
    X, held = rows(900), []

    def count(record: exactmeans.Iteration) -> None:
        held.append(crowd.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)))

    with crowd.as_current():
        model = KMeans(K, init=X[:K], tol=0, callbacks=count, max_iter=12)
        model.fit(da.from_array(X, chunks=(90, 5)))
    assert len(held) == 12
    # Those of an iteration are forgotten some time during the next.
    assert max(held) < 80


def test_the_scheduler_holds_no_rows(client: Any) -> None:
    """Not in the graph either: weights of this process go to the workers."""
    n, held = 40_000, []
    weights = np.arange(1.0, n + 1)
    blocks = [dask.delayed(rows)(10_000, d) for d in (5, 5, 5, 5)]

    def weigh(record: exactmeans.Iteration) -> None:
        held.append(client.run_on_scheduler(_bytes_of_tasks))

    gc.collect()
    before = client.run_on_scheduler(_bytes_of_tasks)
    model = KMeans(4, callbacks=weigh, max_iter=3, random_state=0)
    model.fit(blocks, sample_weight=weights)
    assert held
    # Weights alone would be 320,000, a label of a byte each 40,000.
    assert max(held) - before < 20_000


def _bytes_of_tasks(dask_scheduler: Any) -> int:
    return sum(len(cloudpickle.dumps(task.run_spec)) for task in dask_scheduler.tasks.values())


@pytest.mark.parametrize(("n_jobs", "threads"), [(None, 3), (1, 1), (-1, 3), (-2, 2), (5, 5)])
def test_threads_are_those_of_the_worker(
    monkeypatch: pytest.MonkeyPatch, n_jobs: int | None, threads: int
) -> None:
    used = []

    class Spied(LocalEngine):
        def __init__(self, blocks: Any, weights: Any, n_jobs: int, *more: Any, **options: Any):
            used.append(n_jobs)
            super().__init__(blocks, weights, n_jobs, *more, **options)

    monkeypatch.setattr(worker_engine, "LocalEngine", Spied)
    with in_this_process(1, threads=3) as one, one.as_current():
        X = rows(90)
        KMeans(3, init=X[:3], n_jobs=n_jobs).fit(da.from_array(X, chunks=(30, 5)))
    assert used == [threads]


# what X may be ------------------------------------------------------------------------------------


def test_unknown_and_empty_chunks(client: Any) -> None:
    X = rows()
    chunks = da.from_array(X, chunks=(300, 5))
    some = chunks[chunks[:, 0] > 1]  # lengths are not known
    some = da.concatenate([some, some[some[:, 0] > 1e9]], allow_unknown_chunksizes=True)
    kept = X[X[:, 0] > 1]
    local = exactmeans.KMeans(K, init=X[:K]).fit(kept, sample_weight=np.arange(1.0, len(kept) + 1))
    model = KMeans(K, init=X[:K]).fit(some, sample_weight=np.arange(1.0, len(kept) + 1))
    same(model, local)
    np.testing.assert_array_equal(model.predict(some).compute(), local.labels_)
    assert model.transform(some).compute().shape == (len(kept), K)


def test_column_chunks_are_put_together_with_a_notice(client: Any) -> None:
    X = rows()
    with pytest.warns(UserWarning, match="2 chunks of columns"):
        model = KMeans(K, init=X[:K]).fit(da.from_array(X, chunks=(500, 3)))
    same(model, exactmeans.KMeans(K, init=X[:K]).fit(X))


def test_dataframes(client: Any) -> None:
    dd = pytest.importorskip("dask.dataframe")
    pd = pytest.importorskip("pandas")
    X = rows(600)
    frame = pd.DataFrame(X, columns=list("abcde"))
    local = exactmeans.KMeans(K, init=X[:K]).fit(frame)
    model = KMeans(K, init=X[:K]).fit(dd.from_pandas(frame, npartitions=3))
    same(model, local)
    assert list(model.feature_names_in_) == list("abcde")
    other = dd.from_pandas(frame[list("bacde")], npartitions=2)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(other)


@pytest.mark.parametrize("cluster", [False, True])
def test_dataframes_do_not_warn_about_names(client: Any, cluster: bool) -> None:
    dd = pytest.importorskip("dask.dataframe")
    pd = pytest.importorskip("pandas")
    frame = dd.from_pandas(pd.DataFrame(rows(600), columns=list("abcde")), npartitions=3)
    with (
        dask.config.set(scheduler="distributed" if cluster else "sync"),
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always")
        model = KMeans(3, random_state=0).fit(frame).fit(frame)
        model.predict(frame).compute()
        model.transform(frame).compute()
        model.score(frame)
    assert list(model.feature_names_in_) == list("abcde")
    assert not [warning for warning in caught if "feature names" in str(warning.message)]


def test_models_with_the_same_centres_are_not_mixed_up(client: Any) -> None:
    """Tasks of equal keys are computed once: keys must depend on all that results depend on."""
    X = np.array([[1.0, 0.1], [9.0, 9.5], [0.1, 0.3], [6.0, 0.0]])
    centres, chunks = np.eye(2), da.from_array(X, chunks=(2, 2))
    models = [
        KMeans(2, init=centres, n_init=1, max_iter=1, metric=metric, zero_rows=zero_rows)
        for metric in ("euclidean", "cosine")
        for zero_rows in ("keep", "error")
    ]
    locals_ = [exactmeans.KMeans(**{**model.get_params(), "n_jobs": 1}) for model in models]
    for model in (*models, *locals_):
        model.fit(X).cluster_centers_ = centres
    lazy = [model.transform(chunks) for model in models]
    for got, local in zip(dask.compute(*lazy), locals_, strict=True):
        np.testing.assert_array_equal(got, local.transform(X))
    zeros = da.zeros((4, 2), chunks=(2, 2))
    kept, refused = models[2].predict(zeros), models[3].predict(zeros)
    assert (kept.compute() == -1).all()
    with pytest.raises(ValueError, match="rows of zeros"):
        dask.compute(kept, refused)


def test_lists_of_delayed_and_of_futures(client: Any) -> None:
    X = rows()
    local = exactmeans.KMeans(K, init=X[:K]).fit(X)
    pieces = np.array_split(X, 4)
    delayed = [dask.delayed(piece) for piece in pieces]
    same(KMeans(K, init=X[:K]).fit(delayed), local)
    futures = client.scatter(pieces)
    model = KMeans(K, init=X[:K]).fit(futures)
    same(model, local)
    np.testing.assert_array_equal(model.predict(futures).compute(), local.labels_)
    weights = [dask.delayed(np.ones(len(piece))) for piece in pieces]
    assert model.score(delayed, sample_weight=weights) == local.score(X)


def test_local_data_is_welcome(client: Any) -> None:
    X = rows()
    model = KMeans(K, init=X[:K]).fit(X)
    assert isinstance(model.labels_, np.ndarray)
    np.testing.assert_array_equal(model.predict(X), model.labels_)


def test_predict_and_transform_are_lazy(client: Any) -> None:
    X = rows()
    seen = []

    def note(block: Any) -> Any:
        if len(block) > 1:
            seen.append(len(block))
        return block

    chunks = da.from_array(X, chunks=(500, 5))
    model = KMeans(K, init=X[:K], random_state=0).fit(chunks)
    with dask.config.set(scheduler="sync"):
        lazy = model.predict(chunks.map_blocks(note, dtype=float))
        assert isinstance(lazy, da.Array)
        assert lazy.chunks == ((500, 500, 500),)
        assert not seen
        np.testing.assert_array_equal(lazy.compute(), model.predict(X))
        assert seen
    np.testing.assert_array_equal(model.transform(chunks).compute(), model.transform(X))
    assert model.transform(chunks).chunks == ((500, 500, 500), (K,))


@pytest.mark.parametrize("scheduler", ["threads", "sync"])
@pytest.mark.parametrize("sparse", [False, True])
def test_without_a_cluster(scheduler: str, sparse: bool) -> None:
    X = texts() if sparse else rows(900)
    weights = np.random.default_rng(0).random(900)
    local = exactmeans.KMeans(K, init="k-means||", random_state=0).fit(X, sample_weight=weights)
    chunks = in_chunks(X, 500, 0, 400) if sparse else da.from_array(X, chunks=(350, X.shape[1]))
    with dask.config.set(scheduler=scheduler):
        model = KMeans(K, random_state=0).fit(chunks, sample_weight=da.from_array(weights))
        same(model, local)
        assert model.labels_.chunks[0] == chunks.chunks[0]
        assert model.score(chunks) == local.score(X)


# what goes wrong ----------------------------------------------------------------------------------


def kill_a_worker(client: Any) -> None:
    """As the system would: at once, without a word to anybody."""
    pid = next(iter(client.run(os.getpid).values()))
    assert pid != os.getpid()
    os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("init", "sparse"),
    [
        ("given", False),
        ("k-means||", True),
        pytest.param("given", True, marks=pytest.mark.slow),
        pytest.param("k-means||", False, marks=pytest.mark.slow),
    ],
)
def test_a_worker_that_dies_costs_nothing_but_time(mortal: Any, init: str, sparse: bool) -> None:
    X: Any = texts() if sparse else rows()
    start = dense(X[:K]) if init == "given" else init
    local = exactmeans.KMeans(K, init=start, random_state=0, tol=0).fit(X)
    chunks = in_chunks(X, 400, 300, 200) if sparse else da.from_array(X, chunks=(400, 5))
    deaths = []

    def die(record: exactmeans.Iteration) -> None:
        if record.iteration == 3:
            kill_a_worker(mortal)
            deaths.append(record)

    model = KMeans(K, init=start, random_state=0, tol=0, callbacks=die).fit(chunks)
    assert deaths
    same(model, local)


def test_weights_that_die_with_a_worker_are_sent_again(mortal: Any) -> None:
    """They came from this process: no task can make them again."""
    X, weights = rows(), np.random.default_rng(0).random(1500)
    local = exactmeans.KMeans(K, init=X[:K], tol=0).fit(X, sample_weight=weights)
    deaths = []

    def die(record: exactmeans.Iteration) -> None:
        if record.iteration in (2, 4):
            kill_a_worker(mortal)
            deaths.append(record)

    model = KMeans(K, init=X[:K], tol=0, callbacks=die)
    model.fit(da.from_array(X, chunks=(400, 5)), sample_weight=weights)
    assert len(deaths) == 2
    same(model, local)


@pytest.mark.parametrize("weighted", [pytest.param(False, marks=pytest.mark.slow), True])
def test_labels_outlive_their_worker(mortal: Any, weighted: bool) -> None:
    """Those of weighted rows too: no label depends on a weight, so none is needed again."""
    X = rows()
    weights = np.random.default_rng(0).random(1500) if weighted else None
    model = KMeans(K, init=X[:K]).fit(da.from_array(X, chunks=(400, 5)), sample_weight=weights)
    kill_a_worker(mortal)
    local = exactmeans.KMeans(K, init=X[:K]).fit(X, sample_weight=weights)
    np.testing.assert_array_equal(model.labels_.compute(), local.labels_)


def test_blocks_that_nothing_makes_again(mortal: Any) -> None:
    X = rows()
    futures = mortal.scatter(np.array_split(X, 3))

    def die(record: exactmeans.Iteration) -> None:
        if record.iteration == 2:
            kill_a_worker(mortal)

    with pytest.raises(RuntimeError, match="died with their worker"):
        KMeans(K, init=X[:K], tol=0, callbacks=die).fit(futures)


def test_workers_that_the_client_cannot_reach(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages go through the scheduler, for the same bits."""

    connect, refused = client.rpc.connect, []

    async def refuse(address: str, timeout: Any = None) -> Any:
        if address == client.scheduler.address:
            return await connect(address, timeout)
        refused.append(address)
        raise ConnectionRefusedError

    X, weights = rows(), np.random.default_rng(0).random(1500)
    local = exactmeans.KMeans(K, init=X[:K]).fit(X, sample_weight=weights)
    monkeypatch.setattr(client.rpc, "connect", refuse)
    model = KMeans(K, init=X[:K]).fit(da.from_array(X, chunks=(400, 5)), sample_weight=weights)
    same(model, local)
    assert refused


def test_channels_need_the_token() -> None:
    asked = []

    def answer(question: Any) -> bytes:
        asked.append(bytes(question))
        return bytes(question)[::-1]

    token = secrets.token_bytes(TOKEN_BYTES)
    listener = Listener("127.0.0.1", token)
    with ThreadPoolExecutor(1) as thread:
        served = thread.submit(listener.serve, answer, 20.0)
        stranger = Channel(listener.address, bytes(TOKEN_BYTES))
        with pytest.raises(ConnectionError):
            stranger.receive()
        stranger.close()
        channel = Channel(listener.address, token)
        for question in (b"abc", bytes(10**6)):
            channel.send(question)
            assert channel.receive() == question[::-1]
        channel.close()
        served.result(timeout=20)
    assert asked == [b"abc", bytes(10**6)]


@pytest.mark.parametrize("init", ["k-means||", ("d", 2)], ids=str)
def test_lost_state_is_replayed_from_the_log(monkeypatch: pytest.MonkeyPatch, init: Any) -> None:
    """Engines lose their state before every request, in seeding and in the loop."""
    respond, replayed = WorkerEngine.respond, []

    def forgetful(self: WorkerEngine, request: Request, log: Any = None) -> Response:
        if log is None:
            self.version = -2
        else:
            replayed.append(len(log))
        return respond(self, request, log)

    X = rows(400)
    local = exactmeans.KMeans(8, init=init, random_state=0, max_iter=4).fit(X)
    monkeypatch.setattr(WorkerEngine, "respond", forgetful)
    monkeypatch.setattr(DaskTransport, "rebuild", lambda self, numbers: None)
    with in_this_process(2) as two, two.as_current():
        model = KMeans(8, init=init, random_state=0, max_iter=4)
        same(model.fit(da.from_array(X, chunks=(150, 5))), local)
    assert max(replayed) > 3


def soon(done: Callable[[], bool]) -> bool:
    """Futures are let go by another thread."""
    end = time.monotonic() + 3
    while not done() and time.monotonic() < end:
        time.sleep(0.05)
    return done()


def test_ctrl_c_leaves_nothing_behind(client: Any) -> None:
    X = da.from_array(rows(), chunks=(400, 5))
    model = KMeans(K, init=rows()[:K])

    def interrupt(record: exactmeans.Iteration) -> None:
        raise KeyboardInterrupt

    model.set_params(callbacks=interrupt)
    try:
        model.fit(X)
    except KeyboardInterrupt:  # not by pytest.raises, which holds on to all frames
        interrupted = True
    assert interrupted
    assert not hasattr(model, "cluster_centers_")
    gc.collect()
    assert soon(lambda: not client.futures)


@pytest.mark.skipif(sys.platform == "win32", reason="SIGINT cannot be sent to one process there")
def test_ctrl_c_while_blocks_are_computed(client: Any) -> None:
    """What has not begun never does, even while somebody holds on to the traceback."""
    blocks = [dask.delayed(_slow_rows)(number) for number in range(40)]
    timer = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt) as held:
            KMeans(3).fit(blocks)
    finally:
        timer.cancel()
        signal.signal(signal.SIGINT, before)
    assert held.tb

    def left(dask_scheduler: Any) -> int:
        return len(dask_scheduler.tasks)

    # At most those that were running; all would take eight seconds.
    assert soon(lambda: client.run_on_scheduler(left) <= 4)


def _slow_rows(number: int) -> NDArray[Any]:
    time.sleep(0.4)
    return rows(50)


@pytest.mark.parametrize("aside", [False, True])
def test_a_fit_in_a_task(client: Any, aside: bool) -> None:
    """On a worker with one thread, which the blocks need, too."""
    got = client.submit(_fit_in_a_task, aside, pure=False).result(timeout=60)
    np.testing.assert_array_equal(got, exactmeans.KMeans(K, init=rows()[:K]).fit(rows()).labels_)


def _fit_in_a_task(aside: bool) -> Any:
    with distributed.worker_client() if aside else nullcontext():
        model = KMeans(K, init=rows()[:K]).fit(da.from_array(rows(), chunks=(400, 5)))
        return model.labels_.compute()


def test_asynchronous_clients_are_refused() -> None:
    async def fit() -> None:
        cluster = distributed.LocalCluster(
            n_workers=1, processes=False, dashboard_address=":0", asynchronous=True
        )
        async with cluster, distributed.Client(cluster, asynchronous=True):
            with pytest.raises(ValueError, match="asynchronous client"):
                KMeans(2).fit(da.ones((9, 2)))

    asyncio.run(fit())


def test_parameters_are_those_of_the_local_estimator() -> None:
    own, local = (list(signature(each).parameters) for each in (KMeans, exactmeans.KMeans))
    assert own == local


def test_a_second_client(client: Any) -> None:
    """Of the same cluster; neither has to be the current one, and both may work at once."""
    X = rows()
    local = exactmeans.KMeans(K, init=X[:K]).fit(X)
    with distributed.Client(client.scheduler.address, set_as_default=False) as second:
        with second.as_current():
            chunks = da.from_array(X, chunks=(300, 5)).persist()
        with ThreadPoolExecutor(1) as thread:
            other = thread.submit(KMeans(K, init=X[:K]).fit, da.from_array(X, chunks=(400, 5)))
            model = KMeans(K, init=X[:K]).fit(chunks)
            same(other.result(), local)
        with second.as_current():
            same(model, local)
            np.testing.assert_array_equal(model.predict(chunks).compute(), local.labels_)


def test_futures_do_not_pile_up(client: Any) -> None:
    """However many iterations, the client holds the engines and little else."""
    X, held = rows(), []
    chunks = da.from_array(X, chunks=(400, 5))
    model = KMeans(K, init=X[:K], tol=0, callbacks=lambda _: held.append(len(client.futures)))
    model.fit(chunks)
    assert len(held) > 12
    assert max(held) <= 12


@pytest.mark.parametrize(
    ("X", "parameters", "message"),
    [
        (lambda: da.ones((9,)), {}, "X must be two-dimensional"),
        (lambda: da.ones((3, 2)), {}, "n_samples=3 should be >= n_clusters=8"),
        (lambda: da.full((20, 2), np.nan), {}, "X must be finite"),
        (lambda: da.ones((20, 2)), {"init": lambda X, k, random_state: X}, "init must not be"),
        (lambda: da.ones((20, 2)), {"checkpoint": "file"}, "checkpoint must be None"),
        (lambda: da.ones((20, 2)), {"n_jobs": 0}, "n_jobs must be"),
        (lambda: [dask.delayed(np.ones((9, d))) for d in (2, 3)], {}, "blocks of one width"),
        (lambda: [dask.delayed(x) for x in (rows(9), texts(9, 5))], {}, "all dense or all sparse"),
        (lambda: dask.delayed(rows()), {}, "but it is a Delayed"),
        (lambda: da.ones((0, 2)), {}, "0 sample"),
    ],
)
def test_errors(
    client: Any, X: Callable[[], Any], parameters: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        KMeans(**{"n_clusters": 8, **parameters}).fit(X())


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones(5), "expected"),
        (np.ones((30, 2)), "1D"),
        (-np.ones(30), "negative"),
        (np.zeros(30), "zero for every row"),
        (np.full(30, np.inf), "finite"),
        (lambda: [dask.delayed(np.ones(30))], "as many blocks"),
    ],
)
def test_errors_of_weights(client: Any, weights: Any, message: str) -> None:
    X = da.from_array(rows(30), chunks=(10, 5))
    with pytest.raises(ValueError, match=message):
        KMeans(3).fit(X, sample_weight=weights() if callable(weights) else weights)


class PydataSparse:
    """As arrays of the sparse package: no SciPy matrix, and refuses to become an array."""

    def __init__(self, block: Any) -> None:
        self.shape, self.ndim, self.dtype = block.shape, block.ndim, block.dtype

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("Cannot convert a sparse array to dense automatically.")

    def to_scipy_sparse(self) -> None: ...


@pytest.mark.parametrize("cluster", [False, True])
def test_chunks_of_pydata_sparse_are_refused_in_a_sentence(client: Any, cluster: bool) -> None:
    chunks = [dask.delayed(PydataSparse)(rows(30)) for _ in range(2)]
    model = KMeans(3, init=rows(3)).fit(rows(30))
    with dask.config.set(scheduler="distributed" if cluster else "sync"):
        for call in (
            lambda: KMeans(3).fit(chunks),
            lambda: model.predict(chunks).compute(),
            lambda: model.score(chunks),
        ):
            with pytest.raises(ValueError, match=r"is a PydataSparse of .* X\.to_scipy_sparse\(\)"):
                call()


@pytest.mark.parametrize("cluster", [False, True])
@pytest.mark.parametrize(
    "parameters",
    [
        {"n_clusters": 0},
        {"n_clusters": 31},
        {"max_iter": 0},
        {"tol": -1},
        {"algorithm": "fast"},
        {"metric": "l2"},
        {"init": "k-means"},
        {"init": np.ones((3, 4))},
        {"n_init": 0},
        {"n_jobs": 0},
        {"dtype": "int8"},
        {"memory_limit": 10},
        {"init_options": {"rounds": 0}},
        {"callbacks": 3},
        {"zero_rows": "drop"},
        {"sparse_centers": "no"},
    ],
    ids=str,
)
def test_errors_of_the_local_estimator(
    client: Any, cluster: bool, parameters: dict[str, Any]
) -> None:
    X = rows(30)
    given = {"n_clusters": 3, "init": "k-means||", **parameters}
    with pytest.raises(ValueError, match=r"\w") as local:
        exactmeans.KMeans(**given).fit(X)
    with (
        dask.config.set(scheduler="distributed" if cluster else "sync"),
        pytest.raises(ValueError, match=r"\w") as ours,
    ):
        KMeans(**given).fit(da.from_array(X, chunks=(10, 5)))
    if "memory_limit" not in parameters:  # which is what rows of a worker take
        assert str(ours.value) == str(local.value)


def test_nonfinite_rows_are_named_by_their_number(client: Any) -> None:
    X = rows(50)
    X[37, 2] = np.inf
    with pytest.raises(ValueError, match="the first such row is 37"):
        KMeans(3).fit(da.from_array(X, chunks=(20, 5)))


# parts --------------------------------------------------------------------------------------------


def test_what_travels_arrives_as_it_was() -> None:
    grid = _core.Grid(np.array([1.0, 1e-200, 3e300]), 1000)
    grid.bins = 3
    again = pickle.loads(pickle.dumps(grid))
    assert (again.bins, again.exponent) == (grid.bins, grid.exponent)
    values = rows(300, 3) * np.array([0.1, 1e-201, 1e299])
    exported = []
    for own in (grid, again):
        sums = _core.Sums(1, 3, own, _core.Grid(np.ones(1), 300))
        labels = np.full(300, -1, np.int32)
        sums.relabel(_core.Rows.dense(values, None), None, labels, 1)
        exported.append(sums.bins)
    np.testing.assert_array_equal(exported[0], exported[1])

    total = _core.ExactSum()
    for value in (1e300, -1e-300, 3.0):
        total.add(value)
    twin = pickle.loads(pickle.dumps(total))
    twin.add(-1e300)
    assert twin.value == 3.0

    survey = _core.Rows.dense(np.array([[1.0, -4.0], [np.nan, 0.0]]), None).survey(1)
    again = pickle.loads(pickle.dumps(survey))
    assert (again.largest, again.first_bad_row, again.bad_is_nan) == (survey.largest, 1, True)
    np.testing.assert_array_equal(again.bounds, survey.bounds)


@pytest.mark.parametrize("sparse", [False, True])
def test_sums_of_many_workers_are_reduced_exactly(sparse: bool) -> None:
    X: Any = texts() if sparse else rows(900)
    k = 7
    labels = np.random.default_rng(0).integers(0, k - 1, 900).astype(np.int32)
    grid = _core.Grid(np.full(1 if sparse else X.shape[1], abs(X).max()), 900)
    grid.bins = 2
    blank = (k, X.shape[1], grid, _core.Grid(np.ones(1), 900), sparse)

    def summed(begin: int, end: int) -> Any:
        sums, part = _core.Sums(*blank), X[begin:end]
        block = (
            _core.Rows.csr(part.data, part.indices, part.indptr, X.shape[1], None)[0]
            if sparse
            else _core.Rows.dense(part, None)
        )
        sums.relabel(block, labels[begin:end], np.full(end - begin, -1, np.int32), 1)
        return blank, sums.export()

    whole = summed(0, 900)[1]
    responses = [Response(summed(b, b + 60)) for b in range(0, 900, 60)]
    what = WorkerEngine.add_all.__qualname__
    together = reduced(what, [reduced(what, responses[:7]), *responses[7:], Response(lost=(3,))])
    assert together.lost == (3,)
    for a, b in zip(together.value[1], whole, strict=True):
        np.testing.assert_array_equal(a, b)


def test_only_moved_centres_are_sent() -> None:
    old = rows(6, 4)
    new = old.copy()
    new[[1, 4]] += 1
    for form in (np.asarray, sp.csr_array):
        before, after = form(old), form(new)
        got = updated_centres(before, Centres(after[[1, 4]], np.array([1, 4])))
        np.testing.assert_array_equal(dense(got), new)


def test_blocks_stay_where_they_are_unless_that_is_too_much() -> None:
    class Chunk:
        def __init__(self, key: str) -> None:
            self.key, self.status = key, "finished"

    class Cluster:
        def __init__(self, holders: dict[str, list[str]], threads: dict[str, int]) -> None:
            self.holders, self.threads = holders, threads

        def nthreads(self) -> dict[str, int]:
            return self.threads

        def who_has(self, chunks: list[Chunk]) -> dict[str, list[str]]:
            return self.holders

    def placed(holders: list[str], **threads: int) -> dict[str, list[int]]:
        chunks = [Chunk(str(i)) for i in range(len(holders))]
        where = {chunk.key: [at] for chunk, at in zip(chunks, holders, strict=True)}
        return dict(by_worker(Cluster(where, threads), chunks))

    assert placed(list("abab"), a=1, b=1) == {"a": [0, 2], "b": [1, 3]}
    crowded = placed(["a"] * 12, a=1, b=1, c=1)
    assert sorted(len(places) for places in crowded.values()) == [3, 3, 6]
    assert placed(["gone"] * 2, a=1, b=1) == {"a": [0], "b": [1]}


# models on collections ----------------------------------------------------------------------------


@pytest.mark.parametrize("sparse", [False, True])
def test_nearest_centres_and_silhouettes_are_lazy(client: Any, sparse: bool) -> None:
    X: Any = texts() if sparse else rows(900)
    chunks = in_chunks(X, 500, 0, 400) if sparse else da.from_array(X, chunks=(400, 5))
    model = KMeans(K, random_state=0).fit(chunks)
    local = exactmeans.KMeans(K, init="k-means||", random_state=0).fit(X)
    for got, wanted in zip(model.nearest(chunks, 3), local.nearest(X, 3), strict=True):
        assert isinstance(got, da.Array)
        np.testing.assert_array_equal(got.compute(), wanted)
    ours: Any = exactmeans.silhouette(chunks, model)
    theirs = exactmeans.silhouette(X, local)
    assert isinstance(ours.samples, da.Array)
    assert ours.mean == theirs.mean
    np.testing.assert_array_equal(ours.clusters, theirs.clusters)
    np.testing.assert_array_equal(ours.samples.compute(), theirs.samples)
    np.testing.assert_array_equal(ours.labels.compute(), theirs.labels)
    np.testing.assert_array_equal(ours.rows.compute(), np.arange(900))
    with pytest.raises(ValueError, match="kind must be 'simplified'"):
        exactmeans.silhouette(chunks, model, kind="exact")
    with pytest.raises(ValueError, match="m must be at most"):
        model.nearest(chunks, K + 1)


@pytest.mark.parametrize("cluster", [False, True])
@pytest.mark.parametrize("method", ["sgd", "memoized"])
def test_mini_batches(client: Any, method: Any, cluster: bool) -> None:
    """The bits of the local estimator on the same blocks."""
    X = rows(900)

    class Blocks:
        shape = X.shape

        def __len__(self) -> int:
            return 3

        def read(self, b: int) -> Any:
            return X[300 * b : 300 * b + 300]

    weights = np.random.default_rng(0).random(900)
    options: dict[str, Any] = {"method": method, "batch_size": 100, "random_state": 0}
    local = exactmeans.MiniBatchKMeans(K, **options).fit(Blocks(), sample_weight=weights)
    chunks = da.from_array(X, chunks=(300, 5))
    with dask.config.set(scheduler="distributed" if cluster else "sync"):
        lazy = da.from_array(weights, chunks=300)
        model = MiniBatchKMeans(K, **options).fit(chunks, sample_weight=lazy)
        assert isinstance(model.labels_, da.Array)
        np.testing.assert_array_equal(model.cluster_centers_, local.cluster_centers_)
        np.testing.assert_array_equal(model.labels_.compute(), local.labels_)
        assert model.inertia_ == local.inertia_
        assert model.score(chunks) == pytest.approx(local.score(X))
        with pytest.raises(ValueError, match="must not be lazy for partial_fit"):
            model.partial_fit(chunks)
