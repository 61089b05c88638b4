"""Trees beside LibMultiLabel's recursion, PECOS and scikit-learn's BisectingKMeans.

    python -m benchmarks.trees labels [--python PATH]      an interpreter with sparsekmeans
    python -m benchmarks.trees balanced [--python PATH]    an interpreter with libpecos
    python -m benchmarks.trees bisecting
    python -m benchmarks.trees leaves

PECOS needs SciPy < 1.12, so peers run in interpreters of their own; both sides use all cores of the
process (taskset limits them). `labels` and `balanced` need acl_authors in EXACTMEANS_DATA.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from exactmeans import BisectingKMeans, KMeansTree
from exactmeans.labels import representations
from exactmeans.text import tfidf

from .sources import read

# LibMultiLabel 0.10, linear/tree.py: the recursion of _build_tree on sparsekmeans.
SPARSEKMEANS = """
import sys, time, numpy as np, scipy.sparse as sp
from sparsekmeans import ElkanKmeans, LloydKmeans
X, K, dmax = sp.csr_matrix(sp.load_npz(sys.argv[1])), int(sys.argv[3]), 10
leaf, count = np.zeros(X.shape[0], dtype=np.int64), [0]
def build(rows, d):
    if d < dmax and len(rows) > K:
        algorithm = ElkanKmeans if len(rows) > 10000 else LloydKmeans
        found = algorithm(n_clusters=K, max_iter=300, tol=0.0001,
                          random_state=np.random.randint(2**31 - 1), verbose=False).fit(X[rows])
        whole = len(np.unique(found)) == K
        for i in np.unique(found):
            build(rows[found == i], d + 1 if whole else dmax)
        return
    leaf[rows] = count[0]
    count[0] += 1
np.random.seed(0)
began = time.perf_counter()
build(np.arange(X.shape[0]), 0)
print(time.perf_counter() - began)
np.save(sys.argv[2], leaf)
"""
PECOS = """
import sys, time, numpy as np, scipy.sparse as sp
from pecos.xmc import Indexer
X = sp.csr_matrix(sp.load_npz(sys.argv[1]), dtype=np.float32)
began = time.perf_counter()
chain = Indexer.gen(X, indexer_type="hierarchicalkmeans", nr_splits=int(sys.argv[3]),
                    max_leaf_size=100, seed=0)
print(time.perf_counter() - began)
np.save(sys.argv[2], chain[-1].tocsr().indices)
"""


def label_rows() -> Any:
    """acl_authors: unit rows of its labels, float64."""
    folder = Path(os.environ["EXACTMEANS_DATA"])
    Z = tfidf(sp.load_npz(folder / "acl_authors.counts.npz"), dtype="float64").X
    return representations(sp.load_npz(folder / "acl_authors.labels.npz"), Z).X


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    done = work()
    return time.perf_counter() - began, done


def peer(python: str | None, script: str, X: Any, argument: int) -> tuple[float, Any] | None:
    """Seconds and leaves of a peer in another interpreter."""
    if python is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        rows, out = Path(folder) / "X.npz", Path(folder) / "leaf.npy"
        sp.save_npz(rows, sp.csr_matrix(X))
        done = subprocess.run(
            [python, "-c", script, rows, out, str(argument)],
            capture_output=True,
            text=True,
            check=True,
        )
        return float(done.stdout.split()[-1]), np.load(out)


def report(name: str, seconds: float, X: Any, leaf: Any) -> None:
    """Leaves, their sizes, and the mean cosine of unit rows to the centre of their leaf."""
    n, k = X.shape[0], int(leaf.max()) + 1
    member = sp.csr_array((np.ones(n), (leaf, np.arange(n))), shape=(k, n))
    sums = sp.csr_array(member @ sp.csr_array(X))
    cohesion = np.sqrt(np.asarray(sums.multiply(sums).sum(axis=1)).ravel()).sum() / n
    size = np.bincount(leaf)
    size = size[size > 0]
    marks = np.percentile(size, [50, 90, 100]).astype(int).tolist()
    print(f"{name}: {seconds:.2f} s, {len(size)} leaves, sizes {marks} (50, 90, 100 %), "
          f"mean cosine {cohesion:.4f}", flush=True)  # fmt: skip


def labels(python: str | None) -> None:
    X = label_rows()
    for K in (100, 16):
        model = KMeansTree(K, max_leaf_size=K, max_depth=10, random_state=0)
        seconds, tree = timed(lambda model=model: model.fit(X))
        report(f"K={K} KMeansTree", seconds, X, tree.labels_)
        if (theirs := peer(python, SPARSEKMEANS, X, K)) is not None:
            report(f"K={K} LibMultiLabel's recursion", theirs[0], X, theirs[1])
            print(f"ratio {theirs[0] / seconds:.1f}")


def balanced(python: str | None) -> None:
    X = sp.csr_matrix(label_rows(), dtype=np.float32)
    for branching in (16, 2):
        model = KMeansTree(
            branching,
            max_leaf_size=100,
            balanced=True,
            metric="cosine",
            max_iter=20,
            random_state=0,
        )
        seconds, tree = timed(lambda model=model: model.fit(X))
        report(f"branching={branching} KMeansTree", seconds, X, tree.labels_)
        if (theirs := peer(python, PECOS, X, branching)) is not None:
            report(f"branching={branching} PECOS", theirs[0], X, theirs[1])
            print(f"ratio {theirs[0] / seconds:.2f}")


def bisecting(_: str | None) -> None:
    from sklearn.cluster import BisectingKMeans as Theirs

    X = np.asarray(read("covtype"), dtype=np.float64)
    ours, a = timed(lambda: BisectingKMeans(100, random_state=0).fit(X))
    theirs, b = timed(lambda: Theirs(100, random_state=0).fit(X))
    same = (a.labels_ == b.labels_).mean()
    print(f"covtype k=100: {ours:.2f} s, scikit-learn {theirs:.2f} s, ratio {theirs / ours:.1f}, "
          f"same labels {same:.4f}, inertia {a.inertia_ / b.inertia_ - 1:+.1e}")  # fmt: skip


def leaves(_: str | None) -> None:
    for n in (250_000, 500_000, 1_000_000):
        X = np.random.default_rng(0).standard_normal((n, 96), dtype=np.float32)
        model = KMeansTree(100, n_leaves=n // 10, random_state=0, max_iter=20)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        seconds, tree = timed(lambda model=model, X=X: model.fit(X))
        more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**20
        print(f"{n:,} x 96 float32: {seconds:.1f} s, {len(tree.leaves_):,} leaves, depth "
              f"{tree.depth_.max()}, {more:.2f} GiB beside the rows", flush=True)  # fmt: skip


def main() -> None:
    cases = {f.__name__: f for f in (labels, balanced, bisecting, leaves)}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", choices=cases)
    parser.add_argument("--python", help="an interpreter that has the peer")
    given = parser.parse_args()
    cases[given.case](given.python)


if __name__ == "__main__":
    main()
