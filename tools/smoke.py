"""Does an installed exactmeans work? Needs nothing but the package: no pytest, no compiler.

python tools/smoke.py
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import sklearn.cluster

import exactmeans
from exactmeans import KMeans, MiniBatchKMeans, _core, open_blocks, seeding
from exactmeans.text import tfidf, top_terms

rng = np.random.default_rng(0)
DENSE = rng.normal(size=(3000, 12)) + 4 * rng.normal(size=(20, 12))[np.arange(3000) % 20]
SPARSE: Any = sp.random(2000, 500, density=0.02, format="csr", random_state=0)


def fitted(rows: Any, **options: Any) -> KMeans:
    return KMeans(20, random_state=0, max_iter=20, **options).fit(rows)


def same(a: KMeans, b: KMeans) -> bool:
    return bool((a.labels_ == b.labels_).all() and (a.cluster_centers_ == b.cluster_centers_).all())


def algorithms() -> None:
    """Every algorithm, one thread and two, float32 and float64: the same bits."""
    for rows, names in (
        (DENSE, ("elkan", "hamerly", "yinyang", "pca", "auto")),
        (DENSE[:, :2].copy(), ("kdtree", "auto")),
        (SPARSE, ("elkan", "hamerly", "yinyang", "moving", "products", "auto")),
    ):
        for dtype in ("float32", "float64"):
            X = rows.astype(dtype)
            plain = fitted(X, algorithm="lloyd", n_jobs=1)
            assert (plain.predict(X) == plain.labels_).all()
            for name, n_jobs in itertools.product(names, (1, 2)):
                assert same(fitted(X, algorithm=name, n_jobs=n_jobs), plain), name


def scikit_learn() -> None:
    """The labels and iterations of scikit-learn."""
    theirs = sklearn.cluster.KMeans(20, random_state=0, max_iter=20).fit(DENSE)
    ours = fitted(DENSE)
    assert (theirs.labels_ == ours.labels_).all()
    assert theirs.n_iter_ == ours.n_iter_


def metrics() -> None:
    for metric, rows in itertools.product(("cosine", "angular", "manhattan"), (DENSE, SPARSE)):
        model = fitted(rows, metric=metric, zero_rows="keep")
        assert (model.predict(rows) == model.labels_).all(), metric


def initial_centres() -> None:
    for choose in (seeding.kmeans_plusplus, seeding.kmeans_parallel, seeding.d_sampling):
        assert choose(DENSE, 10, random_state=0)[0].shape == (10, 12)


def files() -> None:
    """Blocks of a file, saved and loaded models, checkpoints."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.save(folder / "rows.npy", DENSE)
        model = fitted(open_blocks(folder / "rows.npy", block_rows=500))
        assert same(model, fitted(DENSE))
        model.save(folder / "model.safetensors")
        again = exactmeans.load(folder / "model.safetensors")
        assert (again.predict(DENSE) == model.labels_).all()
        assert same(fitted(DENSE, checkpoint=folder / "fit.safetensors"), model)


def mini_batches() -> None:
    for method in ("sgd", "memoized"):
        MiniBatchKMeans(10, random_state=0, method=method, batch_size=512).fit(DENSE)


def text() -> None:
    rows = tfidf(["red fish", "blue fish", "night sky", "sky of stars"], stop_words="english")
    model = KMeans(2, metric="cosine", random_state=0).fit(rows.X)
    assert {"fish", "sky"} == {terms[0] for terms in top_terms(model.cluster_centers_, rows.terms)}


def instruction_sets() -> None:
    """Each one that this CPU has gives the same bits."""
    code = (
        "import runpy, sys, hashlib; m = runpy.run_path(sys.argv[1]); f = m['fitted'](m['DENSE']); "
        "print(hashlib.sha256(f.labels_.tobytes() + f.cluster_centers_.tobytes()).hexdigest())"
    )
    found = {
        isa: subprocess.check_output(
            [sys.executable, "-I", "-c", code, __file__],
            env=os.environ | {"EXACTMEANS_ISA": isa},
            text=True,
        )
        for isa in _core.usable_isas()
    }
    assert len(set(found.values())) == 1, found
    print("    ", *found)


CHECKS = (
    algorithms,
    scikit_learn,
    metrics,
    initial_centres,
    files,
    mini_batches,
    text,
    instruction_sets,
)

if __name__ == "__main__":
    exactmeans.show_versions()
    print("installed in", Path(exactmeans.__file__).parent)
    for check in CHECKS:
        print(check.__name__, flush=True)
        check()
    print("all is well")
