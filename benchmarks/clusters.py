"""Fits on clusters of this machine beside the local estimator, dask-ml and Spark MLlib.

    python -m benchmarks.clusters dask covtype
    python -m benchmarks.clusters spark covtype
    python -m benchmarks.clusters spark acl
    python -m benchmarks.clusters wide

All begin with the same centres and run the same number of iterations; the inertia is computed by
one function for all.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import scipy.sparse as sp

from .data import load, start

K = 100


def timed(fit: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    """The median time of some fits, and the last result."""
    times, result = [], None
    for _ in range(repeats):
        began = time.perf_counter()
        result = fit()
        times.append(time.perf_counter() - began)
    return median(times), result


def show(name: str, seconds: float, ours: float, inertia: float) -> None:
    ratio = seconds / ours
    print(f"{name:24} {seconds:8.2f} s  {ratio:6.2f} x ours  inertia {inertia:.12g}", flush=True)


def inertia_of(X: Any, centres: Any) -> float:
    from exactmeans import KMeans

    model = KMeans(K, init=centres, max_iter=1, n_init=1).fit(X[: 4 * K])
    model.cluster_centers_ = centres
    return -float(model.score(X))


def on_dask(name: str, iterations: int) -> None:
    """Two workers of one thread, rows in memory there."""
    import dask.array as da
    import distributed
    from dask_ml.cluster import KMeans as DaskMl

    import exactmeans
    from exactmeans.dask import KMeans

    X = load(name, "float32")
    centres, _ = start(X, K)
    options = {"init": centres, "max_iter": iterations, "tol": 0.0}
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        chunks = client.persist(da.from_array(X, chunks=(len(X) // 4 + 1, X.shape[1])))
        distributed.wait(chunks)
        KMeans(K, **{**options, "max_iter": 2}).fit(chunks)  # workers import what they need
        ours, model = timed(lambda: KMeans(K, **options).fit(chunks), 5)
        local, _ = timed(lambda: exactmeans.KMeans(K, **options, n_jobs=2).fit(X), 5)
        theirs, other = timed(lambda: DaskMl(K, **options).fit(chunks), 1)
        print(f"{name} {X.shape} k={K}, {model.n_iter_} iterations, 2 workers")
        show("exactmeans.dask", ours, ours, inertia_of(X, model.cluster_centers_))
        show("exactmeans, 2 threads", local, ours, model.inertia_)
        show("dask-ml", theirs, ours, inertia_of(X, np.asarray(other.cluster_centers_, X.dtype)))
        print(f"round trip of an empty request: {_round_trip(client):.2f} ms")


def _round_trip(client: Any) -> float:
    """Milliseconds from the client to two engines and back."""
    import dask.array as da

    from exactmeans.dask import KMeans
    from exactmeans.engine.cluster.worker_engine import WorkerEngine

    times: list[float] = []
    X = da.from_array(np.random.default_rng(0).normal(size=(1000, 4)), chunks=(250, 4))

    class Timed(KMeans):
        def _labels_for_users(self, labels: Any, engine: Any) -> Any:
            for _ in range(300):
                began = time.perf_counter()
                engine.query(WorkerEngine.largest_weight)
                times.append(time.perf_counter() - began)
            return super()._labels_for_users(labels, engine)

    Timed(3).fit(X)
    return 1e3 * median(times)


def session(memory: str = "3g") -> Any:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.driver.memory", memory)
    for setting in ("spark.ui.enabled", "spark.ui.showConsoleProgress"):
        builder = builder.config(setting, "false")
    for setting in ("spark.driver.bindAddress", "spark.driver.host"):
        builder = builder.config(setting, "127.0.0.1")
    return builder.config("spark.log.level", "ERROR").getOrCreate()


def frame(spark: Any, X: Any, folder: str) -> Any:
    """Rows with ids, as vectors in the memory of Spark."""
    from pyspark.sql import functions

    if sp.issparse(X):
        from sklearn.datasets import dump_svmlight_file

        path = str(Path(folder) / "x.libsvm")
        dump_svmlight_file(X, np.arange(X.shape[0]), path, zero_based=False)
        df = spark.read.format("libsvm").option("numFeatures", X.shape[1]).load(path)
        df = df.withColumnRenamed("label", "id")
    else:
        import pyarrow as pa
        import pyarrow.parquet as pq
        from pyspark.ml.functions import array_to_vector

        path = str(Path(folder) / "x.parquet")
        rows = pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), X.shape[1])
        pq.write_table(
            pa.table({"id": np.arange(len(X)), "x": rows.cast(pa.list_(pa.float64()))}), path
        )
        df = spark.read.parquet(path).select(
            "id", array_to_vector(functions.col("x")).alias("features")
        )
    df = df.repartition(2).cache()
    df.count()
    return df


def on_spark(name: str, iterations: int, repeats: int) -> None:
    """Two tasks at once. MLlib's first centres are those of a fit without iterations.

    On text its inertia may differ from ours: rows that share no term with any of these centres are
    as far from all of them, so rounding errors decide where they go.
    """
    from pyspark.ml.clustering import KMeans as Mllib

    import exactmeans
    from exactmeans.spark import KMeans

    X = load(name, "float64")
    with tempfile.TemporaryDirectory() as folder:
        spark = session()
        df = frame(spark, X, folder)
        options: dict[str, Any] = {"k": K, "seed": 1, "tol": 0.0}
        first = Mllib(**options, initMode="random", maxIter=0).fit(df)
        centres = np.array(first.clusterCenters())
        ours_of = KMeans(**options, maxIter=iterations, initialCenters=centres)
        in_order = ours_of.copy().setIdCol("id")
        their_of = Mllib(**options, initMode="random", maxIter=iterations)
        for estimator in (ours_of, in_order, their_of):  # starts Python workers, compiles Java
            estimator.copy().setMaxIter(2).fit(df)
        ours, model = timed(lambda: ours_of.fit(df), repeats)
        ordered, _ = timed(lambda: in_order.fit(df), repeats)
        given: dict[str, Any] = {"init": centres, "max_iter": iterations, "tol": 0.0}
        local, _ = timed(lambda: exactmeans.KMeans(K, **given, n_jobs=2).fit(X), repeats)
        print(f"{name} {X.shape} k={K}, {iterations} iterations, 2 tasks", flush=True)
        show("exactmeans.spark", ours, ours, inertia_of(X, model.local.cluster_centers_))
        show("exactmeans, 2 threads", local, ours, model.summary.trainingCost)
        show("the same, with idCol", ordered, ours, model.summary.trainingCost)
        theirs, other = timed(lambda: their_of.fit(df), repeats)
        show("Spark MLlib", theirs, ours, inertia_of(X, np.array(other.clusterCenters())))
        spark.stop()


class Memory(threading.Thread):
    """The most memory that Spark's Python processes and its JVM took, in MB."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.most = {"java": 0.0, "python": 0.0}
        self._ended = threading.Event()

    def run(self) -> None:
        import psutil

        while not self._ended.wait(0.2):
            now = dict.fromkeys(self.most, 0.0)
            for process in psutil.Process().children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    kind = "java" if process.name() == "java" else "python"
                    # Forked processes share pages with the daemon that forked them.
                    now[kind] += process.memory_full_info().uss / 1e6
            for kind, megabytes in now.items():
                self.most[kind] = max(self.most[kind], megabytes)

    def __enter__(self) -> Memory:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self.join()


def wide(iterations: int, n: int = 100_000, d: int = 2_381_304, k: int = 1000) -> None:
    """Sparse rows with as many features as Wiki-500K, so that k dense centres take 19 GB."""
    from pyspark.ml.clustering import KMeans as Mllib

    from exactmeans.spark import KMeans

    rng = np.random.default_rng(0)
    nonzeros = 60
    indices = np.minimum(rng.zipf(1.3, size=n * nonzeros) - 1, d - 1).astype(np.int32)
    X = sp.csr_matrix((rng.random(n * nonzeros), indices, np.arange(n + 1) * nonzeros), (n, d))
    X.sum_duplicates()
    with tempfile.TemporaryDirectory() as folder:
        spark = session()
        df = frame(spark, X, folder)
        options: dict[str, Any] = {"k": k, "seed": 1, "maxIter": iterations, "initMode": "random"}
        print(f"wide ({n}, {d}), {X.nnz} values, k={k}; dense centres {k * d * 8 / 1e9:.1f} GB")
        with Memory() as memory:
            ours, model = timed(lambda: KMeans(**options, idCol="id").fit(df), 1)
        print(f"exactmeans.spark: {ours:.1f} s, {model.summary.numIter} iterations")
        print(f"centres have {model.local.cluster_centers_.nnz} values; most MB {memory.most}")
        began = time.perf_counter()
        try:
            Mllib(**options).fit(df)
            print(f"Spark MLlib: {time.perf_counter() - began:.1f} s")
        except Exception as error:
            lines = str(error).splitlines()
            what = [line for line in lines if "Error" in line or "Exception" in line][:1]
            print(f"Spark MLlib failed after {time.perf_counter() - began:.1f} s:", *what)
        with contextlib.suppress(Exception):  # its JVM may be gone
            spark.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("dask", "spark", "wide"))
    parser.add_argument("name", nargs="?", default="covtype")
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=3, help="of fits on Spark")
    given = parser.parse_args()
    if given.what == "dask":
        on_dask(given.name, given.iterations)
    elif given.what == "spark":
        on_spark(given.name, given.iterations, given.repeats)
    else:
        wide(given.iterations)


if __name__ == "__main__":
    main()
