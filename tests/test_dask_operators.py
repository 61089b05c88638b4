"""Fits on Dask as operators of the cluster see them: timeouts, scaling, memory, TLS, failures.

A test that changes its cluster has one of its own, which ends with the test; others share one.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import exactmeans
from dask_clusters import da, dask, distributed, forked
from exactmeans.dask import KMeans, MiniBatchKMeans
from exactmeans.engine.cluster.worker_engine import WorkerEngine
from exactmeans.engine.dask import serving, transport

K = 9


@contextmanager
def cluster(settings: dict[str, Any] | None = None, **options: Any) -> Iterator[Any]:
    """A client of a cluster of processes."""
    options = {"n_workers": 2, "threads_per_worker": 1, "memory_limit": "1GB", **options}
    options = {"dashboard_address": ":0", "worker_dashboard_address": ":0", **options}
    if "security" not in options:
        options["host"] = "127.0.0.1"
    with (
        dask.config.set({**forked(), **(settings or {})}),
        distributed.LocalCluster(**options) as local,
        distributed.Client(local) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def shared() -> Iterator[Any]:
    """A client of a cluster that tests leave as they found it."""
    with cluster() as client:
        yield client


def rows(n: int = 3000, d: int = 6) -> NDArray[np.float64]:
    rng = np.random.default_rng(n + d)
    return rng.normal(size=(n, d)) + 3 * rng.integers(0, 3, size=(n, 1))


def check(model: KMeans, X: NDArray[Any], **options: Any) -> None:
    local = exactmeans.KMeans(K, init=X[:K], **options).fit(X)
    np.testing.assert_array_equal(model.cluster_centers_, local.cluster_centers_)
    np.testing.assert_array_equal(model.labels_.compute(), local.labels_)
    assert (model.inertia_, model.n_iter_) == (local.inertia_, local.n_iter_)


def fitted(X: NDArray[Any], callbacks: Any = None, **options: Any) -> KMeans:
    chunks = da.from_array(X, chunks=(len(X) // 6, X.shape[1]))
    return KMeans(K, init=X[:K], tol=0, max_iter=10, callbacks=callbacks, **options).fit(chunks)


def in_batches(X: NDArray[Any], callbacks: Any) -> MiniBatchKMeans:
    """Reads all blocks again and again: there is memory for one of them."""
    model = MiniBatchKMeans(K, random_state=0, max_no_improvement=None, memory_limit=410_000)
    model.set_params(callbacks=callbacks)
    return model.fit(da.from_array(X, chunks=(500, -1)))


def hidden_serve(*arguments: Any) -> None:
    """Serves in a daemon thread and ends the task at once: the scheduler sees idle workers.

    The test of adaptive scaling must notice the difference.
    """
    worker, key = distributed.get_worker(), "hidden"

    def thread() -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(distributed, "get_worker", lambda: worker)
            patch.setattr(distributed, "secede", lambda: None)
            patch.setattr(type(worker), "get_current_task", lambda self: key)
            patch.setattr(serving, "_wanted", lambda worker, key: True)
            serving.serve(*arguments)

    threading.Thread(target=thread, daemon=True).start()


# what the scheduler sees --------------------------------------------------------------------------


def test_engines_are_tasks_in_progress(shared: Any) -> None:
    X, seen = rows(), []

    def look(record: Any) -> None:
        seen.append([key for keys in shared.processing().values() for key in keys])

    check(fitted(X, look), X, tol=0, max_iter=10)
    assert len(seen) > 2
    assert all(len(keys) == 2 for keys in seen)
    assert all(key.startswith("exactmeans-worker-engine") for keys in seen for key in keys)
    end = time.monotonic() + 5
    while any(shared.processing().values()) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(shared.processing().values())


def test_an_idle_timeout_does_not_close_a_cluster_at_work(shared: Any) -> None:
    """The timeout holds from the first iteration on, as starting workers may take longer."""
    X = rows()

    def work(record: Any) -> None:
        if record.iteration == 1:
            shared.run_on_scheduler(_set_idle_timeout, 1.0)
        time.sleep(0.4)  # four timeouts in all
        if record.iteration == 10:
            shared.run_on_scheduler(_set_idle_timeout, 600.0)

    model = fitted(X, work)
    assert model.n_iter_ == 10
    assert shared.status == "running"
    check(model, X, tol=0, max_iter=10)


def _set_idle_timeout(seconds: float, dask_scheduler: Any) -> None:
    """The scheduler looks four times a second."""
    dask_scheduler.idle_timeout = seconds


@pytest.mark.parametrize("hidden", [False, True], ids=["tasks", "threads"])
def test_adaptive_scaling_keeps_the_workers_of_a_fit(
    hidden: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    X = rows()
    workers: set[tuple[str, ...]] = set()
    with cluster() as client:

        def count(record: Any) -> bool:
            if record.iteration == 1:
                client.cluster.adapt(minimum=0, maximum=2, interval="100ms", wait_count=2)
            # Workers of no use are gone after 0.3 s; six of the ten iterations need not wait.
            wait = 0.6 if record.iteration <= 4 else 0.0
            end = time.monotonic() + (20 if hidden else wait)
            while time.monotonic() < end and len(workers) < 2:
                time.sleep(0.1)
                workers.add(tuple(sorted(client.nthreads())))
            return False

        if hidden:
            monkeypatch.setattr(transport, "serve", hidden_serve)
        model = fitted(X, count)
        assert (len(workers) > 1) == hidden
        if not hidden:
            check(model, X, tol=0, max_iter=10)


def test_retired_workers_hand_over() -> None:
    X, retired = rows(), []
    with cluster(n_workers=3) as client:

        def retire(record: Any) -> None:
            if record.iteration == 3:
                address = next(iter(client.processing()))
                client.retire_workers([address], close_workers=True, remove=True)
                retired.append(address)

        model = fitted(X, retire)
        assert retired
        assert retired[0] not in client.nthreads()
        check(model, X, tol=0, max_iter=10)


@pytest.mark.parametrize("held", [False, True], ids=["in Dask's store", "held"])
def test_rows_beyond_the_memory_of_a_worker_are_spilled(held: bool) -> None:
    """80 MB of rows on one worker that has 150 MB, most of which Python and Dask take.

    What is spilled must leave the memory, which it does not if an engine holds on to its blocks.
    """
    n, d = 200_000, 50
    blocks = da.map_blocks(
        _random_block, chunks=((n // 20,) * 20, (d,)), dtype=np.float64, meta=np.empty((0, 0))
    )
    settings = {
        "distributed.worker.memory.target": 0.25,
        "distributed.worker.memory.spill": False,
        "distributed.worker.memory.pause": False,
        "distributed.worker.memory.terminate": False,
    }
    seen: list[tuple[float, float]] = []  # bytes on disk and in memory
    with cluster(settings, n_workers=1, memory_limit="150MB") as client:
        client.run(_trace_memory)
        if held:
            client.run(_hold_all_rows)

        def look(record: Any) -> None:
            seen.extend(client.run(_bytes_of_rows).values())

        init = np.asarray(blocks[:K].compute())
        model = KMeans(K, init=init, max_iter=3, tol=0, callbacks=look).fit(blocks)
        X = np.concatenate([_random_block({None: {"chunk-location": (b, 0)}}) for b in range(20)])
        assert max(on_disk for on_disk, _ in seen) > 30e6
        assert (max(in_memory for _, in_memory in seen) > 0.8 * X.nbytes) == held
        local = exactmeans.KMeans(K, init=init, max_iter=3, tol=0).fit(X)
        np.testing.assert_array_equal(model.cluster_centers_, local.cluster_centers_)
        assert model.inertia_ == local.inertia_
        np.testing.assert_array_equal(model.labels_.compute(), local.labels_)


def _trace_memory() -> None:
    """From here on, after the worker has imported this module and all that it needs."""
    tracemalloc.start()


def _hold_all_rows() -> None:
    serving._MOST_MEMORY = 10.0  # times the memory limit


def _bytes_of_rows(dask_worker: Any) -> tuple[float, float]:
    """Spilled bytes, and those of objects of Python and NumPy in memory."""
    return float(dask_worker.data.spilled_total.disk), float(tracemalloc.get_traced_memory()[0])


def _random_block(block_info: Any = None) -> NDArray[np.float64]:
    number = block_info[None]["chunk-location"][0]
    return np.random.default_rng(number).normal(size=(10_000, 50))


def test_tls() -> None:
    pytest.importorskip("cryptography")
    X = rows()
    with cluster(security=True, protocol="tls") as client:
        assert client.scheduler.address.startswith("tls://")
        check(fitted(X), X, tol=0, max_iter=10)


# what goes wrong ----------------------------------------------------------------------------------


def test_workers_that_are_killed_again_and_again() -> None:
    X, killed = rows(), []
    rng = np.random.default_rng(0)
    with cluster(n_workers=3) as client:

        def kill(record: Any) -> None:
            if record.iteration % 3 == 0:
                pids = sorted(client.run(os.getpid, on_error="ignore").values())
                os.kill(pids[rng.integers(len(pids))], signal.SIGKILL)
                killed.append(record.iteration)

        check(fitted(X, kill), X, tol=0, max_iter=10)
    assert len(killed) >= 2


def test_errors_of_workers_have_their_type_and_their_traceback(shared: Any) -> None:
    X = rows()
    shared.run(_break_engines)
    with pytest.raises(ZeroDivisionError, match="no rows today") as raised:
        fitted(X)
    note = "".join(raised.value.__notes__)
    assert "Raised by the Dask worker tcp://" in note
    assert "in _broken_assign" in note
    assert not hasattr(WorkerEngine, "__wrapped__")
    shared.run(_mend_engines)
    check(fitted(X), X, tol=0, max_iter=10)


def _broken_assign(self: Any, centres: Any) -> Any:
    raise ZeroDivisionError("no rows today")


_assign = WorkerEngine.assign


def _break_engines() -> None:
    _broken_assign.__qualname__ = _assign.__qualname__
    WorkerEngine.assign = _broken_assign  # type: ignore[method-assign]


def _mend_engines() -> None:
    WorkerEngine.assign = _assign  # type: ignore[method-assign]


def test_a_fit_whose_tasks_are_cancelled_ends(shared: Any) -> None:
    def cancel(record: Any) -> None:
        if record.iteration == 2:
            engines = [key for keys in shared.processing().values() for key in keys]
            shared.cancel([distributed.Future(key, shared) for key in engines])
            time.sleep(1.5)

    with pytest.raises(distributed.CancelledError, match="was cancelled"):
        fitted(rows(), cancel)
    assert shared.submit(abs, -1).result(timeout=10) == 1


@pytest.mark.parametrize("gone", ["scheduler", "workers"])
@pytest.mark.parametrize("batches", [False, True])
def test_a_cluster_that_is_gone_for_good(gone: str, batches: bool, tmp_path: Path) -> None:
    """The fit ends within a minute, with one sentence."""
    scheduler, workers, address = _processes(tmp_path)
    try:
        with distributed.Client(address, timeout="30s") as client:
            client.wait_for_workers(1, timeout=60)

            def kill(record: Any) -> None:
                if record.iteration == 2:
                    for process in [scheduler] if gone == "scheduler" else workers:
                        process.kill()
                        process.wait()
                    end = time.monotonic() + 10
                    while gone == "scheduler" and client.status == "running":
                        assert time.monotonic() < end
                        time.sleep(0.01)

            settings = {
                "exactmeans.recovery-timeout": "2s",
                "distributed.comm.timeouts.connect": "2s",
            }
            began = time.monotonic()
            with dask.config.set(settings), pytest.raises(RuntimeError) as raised:
                (in_batches if batches else fitted)(rows(), kill)
            assert time.monotonic() - began < 60
            sentence = {
                "scheduler": "The Dask scheduler is gone",
                "workers": "The Dask cluster has lost all its workers",
            }
            assert str(raised.value).startswith(sentence[gone])
    finally:
        for process in (*workers, scheduler):
            process.kill()
            process.wait()


@pytest.mark.parametrize("over", ["channels", "Dask's comm"])
def test_a_worker_that_stands_still(
    over: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connections stay open. It is lost once the scheduler removes it."""
    monkeypatch.setattr(transport, "_CHECK_WORKER", 0.5)
    if over != "channels":

        async def none(self: Any, serving: Any) -> None:
            return None

        monkeypatch.setattr(transport.DaskTransport, "_handed_over", none)
    X, stopped = rows(), []

    async def remove(worker: str, dask_scheduler: Any) -> None:
        """As the scheduler does after `distributed.scheduler.worker-ttl`."""
        await dask_scheduler.remove_worker(worker, stimulus_id="test")

    scheduler, workers, address = _processes(tmp_path, workers=2)
    try:
        with distributed.Client(address, timeout="30s") as client:
            client.wait_for_workers(2, timeout=60)

            def stop(record: Any) -> None:
                if record.iteration == 3:
                    worker = sorted(client.processing())[0]
                    stopped.append(client.run(os.getpid, workers=[worker])[worker])
                    os.kill(stopped[0], signal.SIGSTOP)
                    threading.Timer(1, client.run_on_scheduler, [remove, worker]).start()

            check(fitted(X, stop), X, tol=0, max_iter=10)
            assert stopped
    finally:
        for process in (*workers, scheduler):
            process.kill()
            process.wait()


def _processes(folder: Path, workers: int = 1) -> tuple[Any, list[Any], str]:
    """A scheduler and workers without a nanny, as processes that can be killed."""
    where, python = folder / "scheduler.json", [sys.executable, "-m"]
    options = ["--host", "127.0.0.1", "--port", "0", "--dashboard-address", ":0"]
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    scheduler = subprocess.Popen(
        [*python, "distributed.cli.dask_scheduler", *options, "--scheduler-file", str(where)],
        **quiet,
    )
    end = time.monotonic() + 60
    while not where.exists() and time.monotonic() < end:
        time.sleep(0.1)
    time.sleep(0.3)
    command = [
        *(*python, "distributed.cli.dask_worker", "--scheduler-file", str(where)),
        *("--no-nanny", "--nthreads", "1", "--no-dashboard", "--death-timeout", "5"),
    ]
    started = [subprocess.Popen(command, **quiet) for _ in range(workers)]
    return scheduler, started, json.loads(where.read_text())["address"]


def test_nothing_is_printed_when_workers_end(tmp_path: Path) -> None:
    """Not by workers that are killed in mid-fit, either."""
    script = tmp_path / "fit.py"
    script.write_text(
        textwrap.dedent(
            """
            import os, signal
            import dask.array as da, distributed, numpy as np
            from exactmeans.dask import KMeans

            def kill(record):
                if record.iteration == 3:
                    pid = next(iter(client.run(os.getpid).values()))
                    os.kill(pid, signal.SIGTERM)

            if __name__ == "__main__":
                options = dict(n_workers=2, threads_per_worker=1, host="127.0.0.1")
                with distributed.LocalCluster(dashboard_address=":0", **options) as cluster:
                    with distributed.Client(cluster) as client:
                        X = np.random.default_rng(0).normal(size=(2000, 4))
                        chunks = da.from_array(X, chunks=(500, 4))
                        KMeans(5, random_state=0, callbacks=kill, max_iter=6).fit(chunks)
            """
        )
    )
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=True
    )
    assert "nanobind" not in done.stdout + done.stderr
    # Dask logs tracebacks of its own where connections end while labels are computed.
    assert str(Path(exactmeans.__file__).parent) not in done.stderr


def test_ctrl_c_ends_the_tasks(shared: Any) -> None:
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def wait(record: Any) -> None:
        if record.iteration == 2:
            timer.start()
            time.sleep(60)

    try:
        with pytest.raises(KeyboardInterrupt):
            fitted(rows(), wait)
    finally:
        timer.cancel()
        signal.signal(signal.SIGINT, before)
    end = time.monotonic() + 5
    while any(shared.processing().values()) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(shared.processing().values())


# all of it at once --------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_fit_with_tls_idle_timeout_scaling_spilling_and_a_death() -> None:
    """80 MB of rows on two workers of 150 MB, one of which is killed in the fourth iteration.

    Adaptive scaling adds a worker for other tasks, and then retires it, not those of the fit.
    """
    pytest.importorskip("cryptography")
    n, d = 200_000, 50
    blocks = da.map_blocks(
        _random_block, chunks=((n // 20,) * 20, (d,)), dtype=np.float64, meta=np.empty((0, 0))
    )
    X = np.concatenate([_random_block({None: {"chunk-location": (b, 0)}}) for b in range(20)])
    settings = {
        "distributed.worker.memory.target": 0.1,
        "distributed.worker.memory.spill": False,
        "distributed.worker.memory.pause": False,
        "distributed.worker.memory.terminate": False,
    }
    options: dict[str, Any] = {"init": X[:K], "max_iter": 8, "tol": 0}
    spilled, numbers, killed = [0.0], [], []
    with cluster(settings, memory_limit="150MB", security=True, protocol="tls") as client:

        def trouble(record: Any) -> None:
            seen = client.run(_spilled, on_error="ignore").values()
            spilled.extend(value for value in seen if isinstance(value, float))
            if record.iteration == 1:
                client.run_on_scheduler(_set_idle_timeout, 5.0)
            if record.iteration == 2:
                scaling = {"interval": "500ms", "wait_count": 2, "target_duration": "1s"}
                client.cluster.adapt(minimum=1, maximum=3, **scaling)
                engines = set(client.processing())
                numbers.append(len(engines))
                others = client.map(_work, range(200), pure=False)
                numbers.append(_workers(client, 3))
                client.cancel(others)
                numbers.append(_workers(client, 2))
                assert set(client.nthreads()) == engines
            if record.iteration == 4:
                pid = next(iter(client.run(os.getpid).values()))
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
            time.sleep(1.0)  # eight of them: longer than the idle timeout

        model = KMeans(K, **options, callbacks=trouble).fit(blocks)
        assert client.status == "running"
        assert client.scheduler.address.startswith("tls://")
        assert numbers == [2, 3, 2]
        assert killed
        assert max(spilled) > 5e6
        local = exactmeans.KMeans(K, **options).fit(X)
        np.testing.assert_array_equal(model.cluster_centers_, local.cluster_centers_)
        assert (model.inertia_, model.n_iter_) == (local.inertia_, local.n_iter_)
        np.testing.assert_array_equal(model.labels_.compute(), local.labels_)


def _spilled(dask_worker: Any) -> float:
    return float(dask_worker.data.spilled_total.disk)


def _work(number: int) -> None:
    time.sleep(0.5)


def _workers(client: Any, wanted: int) -> int:
    """The number of workers, once it is `wanted`, or after two minutes."""
    end = time.monotonic() + 120
    while len(client.nthreads()) != wanted and time.monotonic() < end:
        time.sleep(0.1)
    return len(client.nthreads())
