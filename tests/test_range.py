"""Values near the ends of the range: centres far from the rows, rows far from the centres."""

from __future__ import annotations

import pickle
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray

from cases import able, bits
from exactmeans import KMeans, _core, open_blocks
from exactmeans.fit.cost_model import Workload
from exactmeans.fit.policy import _best

pytestmark = pytest.mark.core


def normal(n: int, d: int, dtype: str, size: float = 1.0) -> NDArray[Any]:
    return (np.random.default_rng(n + d).normal(size=(n, d)) * size).astype(dtype)


def seeds_with(X: NDArray[Any], k: int, far: dict[int, float]) -> NDArray[Any]:
    """The first rows as centres, some of them far out in every feature."""
    init = X[:k].copy()
    for j, value in far.items():
        init[j] = value
    return init


CASES = {
    "1e20": (normal(400, 1, "float32"), np.array([[0], [1e20]], dtype="float32")),
    "both 1e40": (normal(400, 1, "float64"), np.array([[1e40], [2e40]])),
    "all 1e200": (normal(400, 2, "float64"), np.array([[1e200, 0], [2e200, 0], [0, -1e200]])),
    "3e38": (normal(400, 2, "float32"), np.array([[3e38, 0], [0, 0]], dtype="float32")),
    "tiny rows": (normal(400, 2, "float64", 1e-200), np.array([[1e100, 0], [0, 0]])),
    "tiny single rows": (normal(400, 2, "float32", 1e-38), np.array([[1, 0], [0, 0]], "float32")),
    "wide": (
        normal(900, 130, "float32"),
        seeds_with(normal(900, 130, "float32"), 70, {3: 1e20, 66: -3e38}),
    ),
    "wide double": (
        normal(900, 130, "float64"),
        seeds_with(normal(900, 130, "float64"), 70, {0: 1e40, 3: 1e160, 66: -1e308}),
    ),
}


@pytest.mark.parametrize("form", ["dense", "csr", "blocks"])
@pytest.mark.parametrize("name", CASES)
def test_centres_far_from_the_rows(name: str, form: str) -> None:
    X, init = CASES[name]
    if name.startswith("wide") and form != "dense":
        X = np.where(np.abs(X) < 1, 0, X)
    rows: Any = sp.csr_matrix(X) if form == "csr" else X
    if form == "blocks":
        rows = open_blocks([X[:150], X[150:151], X[151:]])
    wanted = None
    algorithm: Any
    for algorithm in (*able(X if form == "blocks" else rows), "auto"):
        model = KMeans(len(init), init=init, n_init=1, max_iter=20, algorithm=algorithm)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", category=UserWarning)  # clusters may stay empty
            model.fit(rows)
        assert set(model.labels_) <= set(range(len(init)))
        np.testing.assert_array_equal(model.predict(rows), model.labels_)
        assert np.isfinite(model.cluster_centers_).all()
        assert np.isfinite(model.inertia_)
        wanted = wanted or bits(model)
        assert bits(model) == wanted, algorithm


@pytest.mark.parametrize("form", ["dense", "csr"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_centre_out_of_range_is_nobodys(dtype: str, form: str) -> None:
    X = normal(300, 5, dtype)
    rows: Any = sp.csr_matrix(X) if form == "csr" else X
    model = KMeans(3, init=X[:3], n_init=1).fit(rows)
    near = model.predict(rows)
    centres = model.cluster_centers_
    far = np.full((1, 5), np.finfo(dtype).max / 8, dtype=dtype)
    model.cluster_centers_ = np.concatenate([far, centres, far, far])
    np.testing.assert_array_equal(model.predict(rows), near + 1)
    model.cluster_centers_ = np.concatenate([far, far])
    np.testing.assert_array_equal(model.predict(rows), 0)  # of equals, the lowest


@pytest.mark.parametrize("form", ["dense", "csr"])
def test_rows_far_from_the_centres(form: str) -> None:
    X = normal(300, 4, "float64")
    model = KMeans(3, init=X[:3], n_init=1).fit(X)
    far: Any = np.zeros((2, 4))
    far[0, :2] = 3e160, 4e160
    rows = sp.csr_matrix(far) if form == "csr" else far
    assert model.score(rows) == -np.inf
    assert model.score(rows, sample_weight=[0, 1]) > -100
    distances = model.transform(rows)
    np.testing.assert_allclose(distances[0], 5e160, rtol=1e-15)
    np.testing.assert_allclose(distances[1], np.linalg.norm(model.cluster_centers_, axis=1))


def test_infinite_sums_survive_a_pickle() -> None:
    total = _core.ExactSum()
    total.add(np.inf)
    total.add(-np.finfo(float).max)
    assert pickle.loads(pickle.dumps(total)).value == np.inf


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("form", ["dense", "csr"])
@pytest.mark.parametrize(("dtype", "short"), [("float32", 1e-39), ("float64", 1e-310)])
def test_rows_of_subnormal_length_have_no_direction(
    dtype: str, short: float, form: str, weighted: bool
) -> None:
    X = normal(200, 6, dtype)
    X[7] = X[7] / np.linalg.norm(X[7]) * short
    rows: Any = sp.csr_matrix(X) if form == "csr" else X
    weights = np.linspace(1, 2, 200) if weighted else None
    model = KMeans(4, metric="cosine", random_state=0, n_init=1)
    with pytest.raises(ValueError, match=r"shorter than the smallest normal number.*row 7;"):
        model.fit(rows, sample_weight=weights)
    model.set_params(zero_rows="keep").fit(rows, sample_weight=weights)
    assert model.labels_[7] == model.predict(rows)[7] == -1
    np.testing.assert_array_equal(model.predict(rows), model.labels_)
    empty: Any = X.copy()
    empty[7] = 0
    empty = sp.csr_matrix(empty) if form == "csr" else empty
    same = KMeans(4, metric="cosine", random_state=0, n_init=1, zero_rows="keep")
    np.testing.assert_array_equal(same.fit(empty, sample_weight=weights).labels_, model.labels_)
    np.testing.assert_array_equal(same.cluster_centers_, model.cluster_centers_)


def test_labels_that_no_centre_has() -> None:
    X = normal(20, 3, "float64")
    rows = _core.Rows.dense(X, None)
    for wrong in (2, -1, 2**31 - 1):
        labels = np.zeros(20, dtype=np.int32)
        labels[11] = wrong
        with pytest.raises(ValueError, match="a label is out of range"):
            rows.scatter(X[:2], labels, 0, 1)
        with pytest.raises(ValueError, match="a label is out of range"):
            rows.own_distances(X[:2], labels, 0, np.empty(20), 1)


def test_an_assigner_refuses_other_centres() -> None:
    X = normal(20, 3, "float64")
    assigner = _core.Assigner("lloyd", False, 20, 4)
    centroids = _core.Centroids.make(X[:5], None, 0, None, 1)
    with pytest.raises(ValueError, match="other rows or centres"):
        assigner.assign(_core.Rows.dense(X, None), centroids, np.full(20, -1, dtype=np.int32), 1)


def test_blocks_under_manhattan_on_several_threads(tmp_path: Path) -> None:
    """Threads share the centres; each pass once rewrote what scores of dense rows start from."""
    X = normal(100_000, 32, "float32")
    np.save(tmp_path / "x.npy", X)
    model = KMeans(400, metric="manhattan", init=X[:400], n_init=1, max_iter=1, n_jobs=1).fit(X)
    labels, score = model.predict(X), model.score(X)
    model.set_params(n_jobs=3)
    blocks = open_blocks(tmp_path / "x.npy", block_rows=500)
    for _ in range(10):
        np.testing.assert_array_equal(model.predict(blocks), labels)
    assert model.score(blocks) == score


DEADLOCK = """
import threading
import numpy as np
import scipy.sparse as sp
from exactmeans import _core

X = sp.random(600, 20_000, density=0.01, random_state=np.random.default_rng(0), format="csr")
indptr = X.indptr.astype(np.int64)
rows, _ = _core.Rows.csr(X.data, X.indices, indptr, X.shape[1], None)
centres = _core.SparseCentres.make(X.data, X.indices, indptr, X.shape[1])
labels = np.full(600, -1, dtype=np.int32)
for below in range(2, 22):
    centroids = _core.Centroids.make(centres, None, 0, None, 1)
    centroids.set_rare_below(below)
    assigner = _core.Assigner("yinyang", False, 600, 600)
    done = threading.Event()
    def look():
        while not done.is_set():
            centroids.has_posting_lists()
    other = threading.Thread(target=look)
    other.start()
    assigner.assign(rows, centroids, labels, 2)
    done.set()
    other.join()
"""


def test_has_lists_waits_for_layouts_without_the_interpreter() -> None:
    """A thread that makes a layout polls for Ctrl-C, for which it needs the interpreter."""
    subprocess.run([sys.executable, "-c", DEADLOCK], check=True, timeout=300)


def test_auto_leaves_the_tree_where_it_cannot_number_rows() -> None:
    few = Workload(n=2**31 - 1, d=2, k=1000, sparse=False, itemsize=4, width=2)
    many = Workload(n=2**31, d=2, k=1000, sparse=False, itemsize=4, width=2)
    assert _best(few)[0] == "kdtree"
    assert _best(many)[0] != "kdtree"
