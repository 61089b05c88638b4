"""Digests of fits, to show that a change of the code keeps every bit.

    python tools/digests.py > new.txt            # with the environment of one build
    python tools/digests.py > old.txt            # with that of another
    diff old.txt new.txt                         # no output: the same bits

Every line names a fit (data, dtype, metric, algorithm, seeding, clusters) and a hash of its labels,
centres, inertia and iterations. Data sets come from the folder that the benchmarks use; those that
are missing are named and left out. `--only TEXT` selects lines, `--rows N` cuts the data.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import warnings
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # the benchmarks know the data

from benchmarks import data

from exactmeans import KMeans

ALGORITHMS = {
    "dense": ("auto", "lloyd", "elkan", "hamerly", "yinyang", "pca", "kdtree"),
    "csr": ("auto", "lloyd", "elkan", "hamerly", "yinyang", "moving", "products"),
}
SEEDINGS: tuple[Any, ...] = ("k-means++", "k-means||", "random", "furthest", ("d", 1.0), ("d", 2.0))
DATA: tuple[str, ...] = ("birch1", "cloud", "covtype", "glove", "kdd", "letter", "mnist")
DATA += ("20news", "20news_bigram", "acl", "cve")
METRICS = ("euclidean", "cosine", "angular", "manhattan")


class Fit(NamedTuple):
    """One line of the output."""

    data: str
    dtype: str
    metric: str
    algorithm: str
    init: Any
    k: int


def fits(name: str, layout: str, d: int) -> Iterator[Fit]:
    """Every algorithm from the same random rows, and every seeding with the default algorithm."""
    ways = [(algorithm, "random") for algorithm in ALGORITHMS[layout]]
    ways += [("auto", init) for init in SEEDINGS if init != "random"]
    for dtype, metric, (algorithm, init) in product(("float32", "float64"), METRICS, ways):
        if algorithm == "kdtree" and d > 16:
            continue
        if metric == "manhattan" and layout == "csr" and d > 100_000:
            continue  # medians of dense centres
        for k in (20, 300) if algorithm != "elkan" else (20,):
            yield Fit(name, dtype, metric, algorithm, init, k)


def digest(X: Any, fit: Fit, max_iter: int) -> str:
    """A hash of all that a fit gives, or the sentence with which it refuses."""
    model = KMeans(
        fit.k,
        init=fit.init,
        n_init=1,
        random_state=0,
        max_iter=max_iter,
        metric=fit.metric,  # type: ignore[arg-type]
        algorithm=fit.algorithm,  # type: ignore[arg-type]
        zero_rows="keep",
        sparse_centers=False,
    )
    try:
        model.fit(X)
    except ValueError as refusal:
        return f"refused: {refusal}"
    found = hashlib.sha256(np.ascontiguousarray(model.labels_).tobytes())
    found.update(np.ascontiguousarray(model.cluster_centers_).tobytes())
    found.update(repr((model.inertia_, model.n_iter_)).encode())
    return found.hexdigest()[:16]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="lines that contain this text")
    parser.add_argument("--rows", type=int, default=8000, help="the most rows of a data set")
    parser.add_argument("--max-iter", type=int, default=6)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in DATA:
        if reason := data.missing(name):
            print(f"{name}: {reason}", file=sys.stderr)
            continue
        original = data.load(name, "float64", options.rows)
        layout = "csr" if sp.issparse(original) else "dense"
        for fit in fits(name, layout, original.shape[1]):
            line = " ".join(map(str, fit))
            if options.only in line:
                print(line, digest(original.astype(fit.dtype), fit, options.max_iter), flush=True)


if __name__ == "__main__":
    main()
