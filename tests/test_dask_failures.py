"""Deaths, interrupts and bad input of fits on Dask."""

from __future__ import annotations

import asyncio
import gc
import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray

import exactmeans
from dask_clusters import (
    K,
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
from exactmeans.engine.cluster.requests import Request, Response
from exactmeans.engine.cluster.worker_engine import WorkerEngine
from exactmeans.engine.dask.transport import DaskTransport


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with processes(2) as two:
        yield two


@pytest.fixture
def mortal() -> Iterator[Any]:
    """Workers that may be killed: Dask does not always start others in their place."""
    with processes(3) as three:
        yield three


# deaths -------------------------------------------------------------------------------------------


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


# interrupts, and where a fit may run --------------------------------------------------------------


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
    """Requests that have not begun never begin, even while the traceback is referenced."""
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


# bad input ----------------------------------------------------------------------------------------


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
        (lambda: [dask.delayed(rows()), rows()], {}, "but one item is of type 'ndarray'"),
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
        (lambda: dask.delayed(np.ones(30)), "but it is a Delayed"),
        (lambda: [dask.delayed(np.ones(10)), 1.0, 1.0], "but one item is of type 'float'"),
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


@pytest.mark.parametrize("kind", [KMeans, MiniBatchKMeans])
@pytest.mark.parametrize(
    "parameters",
    [
        {"init": "k-means"},
        {"init": ("d", -1)},
        {"init": ("e", 2)},
        {"init": lambda X, k, random_state: X[:k]},
        {"init_options": {"rounds": 0}},
        {"n_init": 0},
        {"metric": "angular"},
        {"metric": "manhattan"},
        {"algorithm": "fast"},
        {"method": "fast"},
        {"size_max": 20},
    ],
    ids=lambda one: "init-callable" if callable(one.get("init")) else str(one),
)
def test_what_no_cluster_can_do_is_refused_before_anything_starts(
    client: Any, tmp_path: Path, kind: Any, parameters: dict[str, Any]
) -> None:
    if next(iter(parameters)) not in signature(kind).parameters:
        pytest.skip("no parameter of this estimator")
    given = {"n_clusters": 3, "init": "k-means||", **parameters}
    if kind is MiniBatchKMeans and "metric" in parameters:
        given["method"] = "memoized"
    marked = dask.delayed(_marked, pure=False)
    X = da.concatenate([da.from_delayed(marked(tmp_path), (30, 5), float) for _ in range(2)])
    with pytest.raises(ValueError, match=next(iter(parameters))):
        kind(**given).fit(X)
    assert not list(tmp_path.iterdir())


def _marked(folder: Path) -> NDArray[Any]:
    """A block that leaves a file where it is computed."""
    (folder / secrets.token_hex(8)).touch()
    return rows(30)


@pytest.mark.parametrize("cluster", [False, True])
@pytest.mark.parametrize("kind", ["array", "sparse", "frame"])
def test_nonfinite_rows_are_named_as_by_the_local_estimator(
    client: Any, cluster: bool, kind: str
) -> None:
    """With row, column and value."""
    X = rows(50)
    X[41, 0] = np.nan
    X[37, 2:] = np.inf
    given: Any = X
    collection: Any = da.from_array(X, chunks=(20, 5))
    if kind == "sparse":
        given, collection = sp.csr_array(X), collection.map_blocks(sp.csr_array)
    elif kind == "frame":
        dd, pd = pytest.importorskip("dask.dataframe"), pytest.importorskip("pandas")
        given = pd.DataFrame(X, columns=list("abcde"))
        collection = dd.from_pandas(given, npartitions=3)
    column = "'c'" if kind == "frame" else "2"
    with pytest.raises(
        ValueError, match=rf"\(inf\); the first .* 37, in column {column}:"
    ) as local:
        exactmeans.KMeans(3).fit(given)
    with (
        dask.config.set(scheduler="distributed" if cluster else "sync"),
        pytest.raises(ValueError, match="finite") as ours,
    ):
        KMeans(3).fit(collection)
    assert str(ours.value) == str(local.value)
