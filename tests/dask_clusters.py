"""Clusters of Dask for tests, rows in chunks, and when a model is the local estimator's."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray

import exactmeans

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")
cloudpickle = pytest.importorskip("cloudpickle")
from exactmeans.dask import KMeans  # noqa: E402

K = 12


@cache
def forked() -> dict[str, str]:
    """Settings by which workers are forks of a process that has imported what they need.

    A worker takes 0.1 s of CPU time to start then; as an interpreter of its own, 2 s.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return {}
    settings = {"distributed.worker.multiprocessing-method": "forkserver"}
    with dask.config.set(settings):
        context = distributed.utils.get_mp_context()
    context.set_forkserver_preload(["distributed", "dask.array", "exactmeans.dask", "pytest"])
    return settings


@contextmanager
def processes(workers: int) -> Iterator[Any]:
    """A cluster of processes with a thread each."""
    settings = {"distributed.comm.timeouts.connect": "60s", **forked()}
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


@contextmanager
def in_this_process(workers: int, threads: int = 1) -> Iterator[Any]:
    """A cluster without processes, used only where it is named."""
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
