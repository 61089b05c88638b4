"""One small adapter per contender: how each is made to do the same work.

An adapter is built inside its own process, with the number of threads it may use. Libraries are
imported there and nowhere else, so one that is missing only costs its own cells.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp


@dataclass(frozen=True)
class Work:
    """What to fit: `init` is an array of centres or "k-means++"; `seed` drew or draws it."""

    k: int
    init: Any
    max_iter: int
    tol: float
    seed: int


@dataclass(frozen=True)
class Fitted:
    """A fit's outcome. Labels are None where the library gives none that fit its centres."""

    labels: Any
    centres: Any
    n_iter: int | None = None


class Peer:
    package = ""
    dense = sparse = float64 = seeds = True

    def __init__(self, threads: int) -> None:
        self.threads = threads

    def version(self) -> str:
        return importlib.metadata.version(self.package)

    def refuses(self, X: Any, init: Any) -> str | None:
        """Why this work is beyond the library, or None."""
        if sp.issparse(X) and not self.sparse:
            return "no sparse input"
        if not sp.issparse(X) and not self.dense:
            return "no dense input"
        if X.dtype == np.float64 and not self.float64:
            return "float32 only"
        if isinstance(init, str) and not self.seeds:
            return "no k-means++"
        return None

    def fit(self, X: Any, work: Work) -> Fitted:
        raise NotImplementedError("does not fit")

    def assigner(self, X: Any, work: Work) -> Callable[[], Any]:
        """A call that labels X by fixed centres (None: it does the arithmetic only)."""
        raise NotImplementedError("does not assign")

    def passes(self, X: Any, work: Work) -> Callable[[], Any]:
        """A call that labels X twice, as the last two iterations of a fit do; its last labels."""
        raise NotImplementedError("has no passes of its own")

    def seeder(self, X: Any, work: Work) -> Callable[[], Any]:
        """A call that chooses centres by greedy k-means++ and says which rows they are."""
        raise NotImplementedError("does not seed")


class SklearnLike(Peer):
    """scikit-learn and everything with its interface. One run (n_init=1) from the given centres;
    with tol=0 it stops early only if no label changes, which `n_iter` reports."""

    def __init__(
        self, threads: int, package: str, module: str, algorithm: str, **options: Any
    ) -> None:
        super().__init__(threads)
        self.package = package
        self.options = {"algorithm": algorithm, **options}
        self.module: Any = importlib.import_module(module)
        self.KMeans: Any = self.module.KMeans

    def estimator(self, work: Work) -> Any:
        return self.KMeans(
            n_clusters=work.k,
            init=work.init,
            n_init=1,
            max_iter=work.max_iter,
            tol=work.tol,
            random_state=work.seed,
            **self.options,
        )

    def fit(self, X: Any, work: Work) -> Fitted:
        model = self.estimator(work).fit(X)
        return Fitted(model.labels_, model.cluster_centers_, int(model.n_iter_))

    def assigner(self, X: Any, work: Work) -> Callable[[], Any]:
        model = self.estimator(work).fit(X)
        return partial(model.predict, X)

    def seeder(self, X: Any, work: Work) -> Callable[[], Any]:
        return partial(self.module.kmeans_plusplus, X, work.k, random_state=work.seed)


# Instruction sets with integer dot products, and the same without them: no 8-bit filter for dense
# rows, all else the same.
WITHOUT_FILTER = {
    **{"amx": "avx512", "avx512vnni": "avx512", "avxvnni": "avx2"},
    **{"neondot": "neon"},
}


class ExactMeans(SklearnLike):
    """Ours: scikit-learn's interface, threads by n_jobs."""

    def __init__(
        self, threads: int, algorithm: str, *, dense_filter: bool = True, **options: Any
    ) -> None:
        if not dense_filter:  # the module reads it when it first computes something
            os.environ["EXACTMEANS_ISA"] = WITHOUT_FILTER.get(_best_isa(), _best_isa())
        super().__init__(threads, "exactmeans", "exactmeans", algorithm, n_jobs=threads, **options)

    def passes(self, X: Any, work: Work) -> Callable[[], Any]:
        local: Any = importlib.import_module("exactmeans.engine.local.engine")
        problems: Any = importlib.import_module("exactmeans.fit.problem")
        engine = local.LocalEngine([X], None, self.threads)
        problem = problems.analyse(engine, 0.0)
        last = [
            problem.frame.centroids(
                self.estimator(replace(work, max_iter=work.max_iter - back))
                .fit(X)
                .cluster_centers_,
                engine,
            )
            for back in (1, 0)
        ]
        problem.start(self.options["algorithm"], work.k, passes=30)

        def run() -> Any:
            for centroids in last:
                engine.assign(centroids)
            return engine.labels()

        run()  # the second pass stores what later ones read
        return run


def _best_isa() -> str:
    """What the CPU offers, read in a process of its own, because the choice is made once."""
    ask = "from exactmeans import _core; print(_core.active_isa())"
    environment = {key: value for key, value in os.environ.items() if key != "EXACTMEANS_ISA"}
    done = subprocess.run(
        [sys.executable, "-c", ask], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


class Intelex(SklearnLike):
    """oneDAL through `sklearnex.cluster`, without patching scikit-learn. Lloyd is all it has.
    It falls back to scikit-learn silently where oneDAL cannot serve; that is an error here."""

    def __init__(self, threads: int) -> None:
        super().__init__(threads, "scikit-learn-intelex", "sklearnex.cluster", "lloyd")
        importlib.import_module("daal4py").daalinit(threads)

    def fit(self, X: Any, work: Work) -> Fitted:
        model = self.estimator(work).fit(X)
        if not hasattr(model, "_onedal_estimator"):
            raise RuntimeError("fell back to scikit-learn")
        return Fitted(model.labels_, model.cluster_centers_, int(model.n_iter_))


class Faiss(Peer):
    """Exact Lloyd by SGEMM. `max_points_per_centroid` is lifted because it would silently sample
    256 rows per centre. It returns centres only and always runs `niter` iterations. Its OpenBLAS
    takes new CPUs for old ones and is several times slower then, so the kind of CPU is set."""

    package = "faiss-cpu"
    sparse = float64 = seeds = False

    def __init__(self, threads: int) -> None:
        super().__init__(threads)
        if "avx512f" in _cpu_flags():
            os.environ.setdefault("OPENBLAS_CORETYPE", "SkylakeX")
        self.faiss: Any = importlib.import_module("faiss")
        self.faiss.omp_set_num_threads(threads)

    def fit(self, X: Any, work: Work) -> Fitted:
        model = self.faiss.Kmeans(
            X.shape[1],
            work.k,
            niter=work.max_iter,
            max_points_per_centroid=2**31 - 1,
            min_points_per_centroid=1,
        )
        model.train(X, init_centroids=work.init)
        return Fitted(None, model.centroids, len(model.obj))


def _cpu_flags() -> list[str]:
    information = Path("/proc/cpuinfo")
    return information.read_text().split() if information.is_file() else []


class SuperKMeans(Peer):
    """Flat, all rows, no early stop. `use_blas_only` makes it plain Lloyd by SGEMM; without it
    (the "-pruned" contender) it prunes by a statistical test, so it is approximate. It takes no
    initial centres: `data.start` draws the rows it would draw from the same seed."""

    package = "superkmeans"
    sparse = float64 = seeds = False

    def __init__(self, threads: int, plain: bool) -> None:
        super().__init__(threads)
        self.plain = plain
        self.SuperKMeans: Any = importlib.import_module("superkmeans").SuperKMeans

    def fit(self, X: Any, work: Work) -> Fitted:
        model = self.SuperKMeans(
            work.k,
            X.shape[1],
            hierarchical=False,
            iters=work.max_iter,
            sampling_fraction=1.0,
            max_points_per_cluster=2**31 - 1,
            n_threads=self.threads,
            seed=work.seed,
            use_blas_only=self.plain,
            tol=0.0,
            early_termination=False,
        )
        return Fitted(None, model.train(X), work.max_iter)


class SparseKMeans(Peer):
    """GraphBLAS on CSR, always in float64. It draws its own k-means++ seeds; given centres replace
    that one method and everything after it runs untouched. Its labels at max_iter precede its last
    centres, so they are left out. It assigns max_iter times, scikit-learn once more."""

    package = "sparsekmeans"
    dense = False

    def __init__(self, threads: int, algorithm: str) -> None:
        super().__init__(threads)
        self.model: Any = getattr(importlib.import_module("sparsekmeans"), algorithm)
        self.graphblas: Any = importlib.import_module("graphblas")
        self.graphblas.ss.config["nthreads"] = threads  # some of its calls name no number
        self.start: tuple[Any, Any] = (None, None)

    def fit(self, X: Any, work: Work) -> Fitted:
        model = self.model(
            n_clusters=work.k,
            n_threads=self.threads,
            max_iter=work.max_iter,
            tol=work.tol,
            random_state=work.seed,
        )
        if not isinstance(work.init, str):
            if self.start[0] is not work.init:  # made sparse once, in the untimed warm-up
                self.start = (work.init, sp.csr_matrix(work.init, dtype=np.float64))
            seeded = self.graphblas.io.from_scipy_sparse(self.start[1])
            model._initialize_centroids = lambda _: seeded
        model.fit(X)
        return Fitted(None, model.centroids.to_dense(fill_value=0))


class Gemm(Peer):
    """NumPy's product X @ centres.T and nothing else: the yardstick of the fused kernel. In one
    call, or in blocks of rows into one buffer that stays in cache, whichever suits BLAS better."""

    package = "numpy"
    sparse = False

    def __init__(self, threads: int, block: int | None) -> None:
        super().__init__(threads)
        self.block = block

    def assigner(self, X: Any, work: Work) -> Callable[[], Any]:
        step = self.block or len(X)
        out = np.empty((step, work.k), X.dtype)
        right = work.init.T

        def run() -> None:
            for low in range(0, len(X), step):
                rows = X[low : low + step]
                np.matmul(rows, right, out=out[: len(rows)])

        return run


class OnDask(Peer):
    """A LocalCluster of processes with a thread each. The rows are on the workers, two chunks
    each, before the clock starts; labels are computed before it stops, and stay there."""

    sparse = seeds = False

    def __init__(self, threads: int, package: str, module: str, **options: Any) -> None:
        super().__init__(threads)
        self.package = package
        self.KMeans: Any = importlib.import_module(module).KMeans
        self.options = options
        self.rows: Any = None
        # Contenders are daemons, which multiprocessing forbids to have children of their own.
        multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]
        distributed: Any = importlib.import_module("distributed")
        self.client = distributed.Client(
            distributed.LocalCluster(
                n_workers=threads,
                threads_per_worker=1,
                dashboard_address=":0",
                host="127.0.0.1",
            )
        )

    def fit(self, X: Any, work: Work) -> Fitted:
        if self.rows is None:
            array: Any = importlib.import_module("dask.array")
            chunk = -(-X.shape[0] // (2 * self.threads))
            rows = array.from_array(X, chunks=(chunk, X.shape[1]))
            self.rows = rows.map_blocks(np.array, dtype=X.dtype).persist()  # workers' own copies
            self.client.wait_for_workers(self.threads)
            importlib.import_module("distributed").wait(self.rows)
        model = self.KMeans(
            n_clusters=work.k,
            init=work.init,
            max_iter=work.max_iter,
            tol=work.tol,
            random_state=work.seed,
            **self.options,
        ).fit(self.rows)
        labels = model.labels_.persist()
        importlib.import_module("distributed").wait(labels)
        return Fitted(None, model.cluster_centers_, int(model.n_iter_))


PEERS: dict[str, Callable[[int], Peer]] = {
    "exactmeans": partial(ExactMeans, algorithm="lloyd"),
    **{
        f"exactmeans-{name}": partial(ExactMeans, algorithm=name)
        for name in ("auto", "elkan", "hamerly", "yinyang", "kdtree", "pca")
    },
    **{
        name: partial(ExactMeans, algorithm=way, metric="cosine", zero_rows="keep")
        for name, way in (("exactmeans-cosine", "lloyd"), ("exactmeans-cosine-auto", "auto"))
    },
    **{
        name: partial(ExactMeans, algorithm=way, dense_filter=False)
        for name, way in (("exactmeans-float", "lloyd"), ("exactmeans-float-auto", "auto"))
    },
    "scikit-learn": partial(
        SklearnLike, package="scikit-learn", module="sklearn.cluster", algorithm="lloyd"
    ),
    "scikit-learn-elkan": partial(
        SklearnLike, package="scikit-learn", module="sklearn.cluster", algorithm="elkan"
    ),
    "intelex": Intelex,
    "faiss": Faiss,
    "superkmeans": partial(SuperKMeans, plain=True),
    "superkmeans-pruned": partial(SuperKMeans, plain=False),
    "sparsekmeans": partial(SparseKMeans, algorithm="LloydKmeans"),
    "sparsekmeans-elkan": partial(SparseKMeans, algorithm="ElkanKmeans"),
    "exactmeans-dask": partial(OnDask, package="exactmeans", module="exactmeans.dask"),
    "dask-ml": partial(OnDask, package="dask-ml", module="dask_ml.cluster"),
    "gemm": partial(Gemm, block=None),
    "gemm-blocks": partial(Gemm, block=1024),
}
