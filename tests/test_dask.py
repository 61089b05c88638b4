"""Dask gives the bits of the local estimator, for any chunks and workers."""

from __future__ import annotations

import gc
import math
import secrets
import socket
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from inspect import signature
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import cases
import exactmeans
from dask_clusters import (
    K,
    cloudpickle,
    da,
    dask,
    dense,
    distributed,
    in_chunks,
    in_this_process,
    processes,
    rows,
    same,
    texts,
)
from exactmeans.dask import KMeans, MiniBatchKMeans
from exactmeans.engine.cluster import worker_engine
from exactmeans.engine.cluster.pool import WorkerPool
from exactmeans.engine.dask.placement import by_worker
from exactmeans.engine.dask.transport import DaskTransport
from exactmeans.engine.local.engine import LocalEngine
from exactmeans.fit.policy import ALGORITHM_NAMES
from exactmeans.metrics import METRICS
from exactmeans.seeding.init import INIT_NAMES
from exactmeans.text import misfits, representatives


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with processes(2) as two:
        yield two


@pytest.fixture(scope="module")
def crowd() -> Iterator[Any]:
    """Ten workers."""
    with in_this_process(10) as ten:
        yield ten


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


def transports(monkeypatch: pytest.MonkeyPatch) -> list[DaskTransport]:
    """Those of the fits that follow."""
    made: list[DaskTransport] = []
    init = DaskTransport.__init__

    def spy(self: DaskTransport, *arguments: Any) -> None:
        made.append(self)
        init(self, *arguments)

    monkeypatch.setattr(DaskTransport, "__init__", spy)
    return made


def test_messages_do_not_pass_event_loops(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over plain TCP, only the first message to each engine does."""
    X, sent = rows(), set()
    send = DaskTransport._send

    async def spy(self: DaskTransport, serving: Any, message: Any) -> Any:
        sent.add((serving.token, message))  # repeated until the engine has begun
        return await send(self, serving, message)

    monkeypatch.setattr(DaskTransport, "_send", spy)
    local = exactmeans.KMeans(K, init=X[:K]).fit(X)
    same(KMeans(K, init=X[:K]).fit(da.from_array(X, chunks=(400, 5))), local)
    assert local.n_iter_ > 5
    assert len(sent) == len({token for token, _ in sent}) == 2


@pytest.mark.parametrize("taken", [True, False], ids=["in a fit", "from the start"])
def test_without_connections_of_their_own(
    client: Any, monkeypatch: pytest.MonkeyPatch, taken: bool
) -> None:
    """Engines whose connections fail keep their state: messages go over Dask's comm."""
    made, rebuilt, ended = transports(monkeypatch), [], []
    rebuild = DaskTransport.rebuild

    def spy(self: DaskTransport, numbers: tuple[int, ...]) -> None:
        rebuilt.append(numbers)
        rebuild(self, numbers)

    monkeypatch.setattr(DaskTransport, "rebuild", spy)
    if not taken:  # the worker closes the connection, as it does if it has no such engine
        token = secrets.token_hex(16)
        handed_over = DaskTransport._handed_over

        async def misled(self: DaskTransport, serving: Any) -> Any:
            return await handed_over(self, replace(serving, token=token))

        monkeypatch.setattr(DaskTransport, "_handed_over", misled)

    def end(record: exactmeans.Iteration) -> None:
        if record.iteration == 3:
            ended.extend(made[0]._open_channels([0, 1]))
            for _, channel in ended:
                channel._socket.shutdown(socket.SHUT_RDWR)

    X = rows()
    local = exactmeans.KMeans(K, init=X[:K]).fit(X)
    model = KMeans(K, init=X[:K], callbacks=end).fit(da.from_array(X, chunks=(400, 5)))
    same(model, local)
    assert len(ended) == (2 if taken else 0)
    assert not rebuilt


def test_nothing_grows_with_iterations(client: Any) -> None:
    X, held = rows(), []

    def count(record: exactmeans.Iteration) -> None:
        held.append(client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)))

    KMeans(K, init=X[:K], tol=0, callbacks=count).fit(da.from_array(X, chunks=(400, 5)))
    assert len(held) > 12
    assert max(held[2:]) <= held[1]


def test_tasks_of_many_engines_do_not_pile_up(crowd: Any) -> None:
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
    with pytest.raises(ValueError, match="X must be two-dimensional, but it is a series"):
        model.predict(other.a)


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


def test_local_data_needs_no_cluster(client: Any) -> None:
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


def test_what_takes_no_collections_says_so(client: Any, tmp_path: Path) -> None:
    X = da.from_array(np.eye(40)[:, :3], chunks=(20, 3))
    model = KMeans(3, random_state=0).fit(X)
    for call in (
        lambda: exactmeans.report(model, X, tmp_path / "page.html"),
        lambda: representatives(X, model),
        lambda: misfits(X, model),
    ):
        with pytest.raises(ValueError, match="X must not be a Dask collection here: compute"):
            call()
    said = pytest.raises(ValueError, match="blocks that are matrices, but one is of type 'str'")
    with dask.config.set(scheduler="sync"), said:
        KMeans(3).fit([dask.delayed(str)(3)])


def test_sizes_of_lazy_labels_are_drawn(client: Any) -> None:
    pytest.importorskip("matplotlib")
    rows = np.repeat(np.eye(3), [5, 3, 2], axis=0)
    model = KMeans(3, init=np.eye(3)).fit(da.from_array(rows, chunks=(5, 3)))
    bars: Any = exactmeans.plot.sizes(model).patches
    assert [bar.get_height() for bar in bars] == [5, 3, 2]


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
