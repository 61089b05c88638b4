"""What a fitted model keeps for predict: never rebuilt without need, never out of date."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import clone

import datasets
from exactmeans import KMeans, MiniBatchKMeans, _core, load
from exactmeans.engine.frame import Frame
from models import fitted, read_only

KINDS: dict[str, Callable[[Any], Any]] = {"dense": np.asarray, "csr": sp.csr_matrix}
METRICS = ("euclidean", "cosine", "angular", "manhattan")


def rows(kind: str = "dense", n: int = 200) -> Any:
    """Counts, mostly zeros: no row and no column is empty."""
    rng = np.random.default_rng(5)
    X = (rng.integers(1, 9, (n, 12)) * (rng.random((n, 12)) < 0.4)).astype(float)
    X[np.arange(n), np.arange(n) % 12] += 1
    return KINDS[kind](X)


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[Frame]:
    """Grows by one whenever centres are brought into a layout."""
    calls: list[Frame] = []
    build = Frame.centroids

    def counted(frame: Frame, *arguments: Any) -> Any:
        calls.append(frame)
        return build(frame, *arguments)

    monkeypatch.setattr(Frame, "centroids", counted)
    return calls


def fresh(model: KMeans, X: Any) -> NDArray[np.int32]:
    """The labels that a copy of the model gives, which has nothing cached."""
    other: KMeans = pickle.loads(pickle.dumps(model))
    return other.predict(X)


# Nothing is built twice ---------------------------------------------------------------------------


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_layout_is_built_once(kind: str, metric: str, built: list[Frame]) -> None:
    X = rows(kind)
    model = fitted(X, 9, metric=metric)
    built.clear()
    for some in (X[:1], X[5:15], X):
        np.testing.assert_array_equal(model.predict(some), fresh(model, some))
    own = [frame for frame in built if frame is model._frame]
    assert len(own) == 1


def test_dense_and_csr_rows_have_a_layout_each(built: list[Frame]) -> None:
    model = fitted(rows(), 9)
    built.clear()
    for _ in range(3):
        for kind in KINDS:
            np.testing.assert_array_equal(model.predict(rows(kind)), model.labels_)
    assert len(built) == 2


def test_read_only_centres_are_not_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    model = fitted(rows(), 9)
    model.cluster_centers_.flags.writeable = False
    model.predict(rows())
    monkeypatch.setattr(_core, "checksum", None)
    np.testing.assert_array_equal(model.predict(rows()), model.labels_)


@pytest.mark.parametrize("view", [True, False])
def test_what_was_read_only_may_change(view: bool) -> None:
    X, model = rows(), fitted(rows(), 9)
    base = model.cluster_centers_.copy()
    model.cluster_centers_ = base[:] if view else base
    model.cluster_centers_.flags.writeable = False
    before = model.predict(X)
    base.flags.writeable = True  # the view stays read-only, but what it shows changes
    base[:] = base[::-1].copy()
    np.testing.assert_array_equal(model.predict(X), 8 - before)


# Nothing is out of date ---------------------------------------------------------------------------


def swap_values(centres: NDArray[Any]) -> None:
    centres[[0, 1]] = centres[[1, 0]]


def flip_signs(centres: NDArray[Any]) -> None:
    centres *= -1


def write_one(centres: NDArray[Any]) -> None:
    centres[-1, -1] += 100


CHANGES = {"swap": swap_values, "signs": flip_signs, "one value": write_one}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("kind", KINDS)
def test_centres_that_are_written_into(kind: str, change: Callable[[Any], None]) -> None:
    X, model = rows(kind), fitted(rows(kind), 9)
    before = model.predict(X)
    change(model.cluster_centers_)
    after = model.predict(X)
    np.testing.assert_array_equal(after, fresh(model, X))
    assert (before != after).any()


@pytest.mark.parametrize("array", ["data", "indices"])
def test_csr_centres_that_are_written_into(array: str) -> None:
    X, model = rows("csr"), fitted(rows("csr"), 9, sparse_centers=True)
    before = model.predict(X)
    part = getattr(model.cluster_centers_, array)
    part[:] = 3 * part if array == "data" else 11 - part
    after = model.predict(X)
    np.testing.assert_array_equal(after, fresh(model, X))
    assert (before != after).any()


@pytest.mark.parametrize("kind", KINDS)
def test_centres_that_are_replaced(kind: str, built: list[Frame]) -> None:
    X, model = rows(kind), fitted(rows(kind), 9)
    model.predict(X)
    centres = model.cluster_centers_
    built.clear()
    model.cluster_centers_ = centres[::-1].copy()
    np.testing.assert_array_equal(model.predict(X), 8 - model.labels_)
    model.cluster_centers_ = centres[:4]
    assert model.predict(X).max() == 3
    assert len(built) == 2


def test_a_model_that_is_fitted_again() -> None:
    X = rows()
    model = KMeans(9, random_state=0).fit(X)
    model.predict(X)
    model.fit(X + 1e6)  # the frame is another one, too
    np.testing.assert_array_equal(model.predict(X + 1e6), model.labels_)


def test_a_model_that_learns_on() -> None:
    X = rows()
    model = MiniBatchKMeans(5, random_state=0).partial_fit(X[:50])
    for begin in range(50, 200, 50):
        model.predict(X)
        model.partial_fit(X[begin : begin + 50])
        np.testing.assert_array_equal(model.predict(X), fresh(model, X))


def test_a_failing_fit_leaves_the_cache_usable() -> None:
    X, model = rows(), fitted(rows(), 9)
    model.predict(X)
    with pytest.raises(ValueError, match="n_samples"):
        model.fit(X[:3])
    np.testing.assert_array_equal(model.predict(X), model.labels_)


# It belongs to one model in one process -----------------------------------------------------------


def copies(model: KMeans, folder: Path) -> dict[str, Any]:
    model.save(folder / "model")
    return {
        "pickle": pickle.loads(pickle.dumps(model)),
        "deepcopy": copy.deepcopy(model),
        "copy": copy.copy(model),
        "clone": clone(model),
        "file": load(folder / "model"),
    }


@pytest.mark.parametrize("how", ["pickle", "deepcopy", "copy", "clone", "file"])
def test_copies_do_not_share_it(how: str, tmp_path: Path) -> None:
    model = fitted(rows(), 9)
    model.predict(rows())
    other = copies(model, tmp_path)[how]
    assert "_centroids_cache" in vars(model)
    assert "_centroids_cache" not in vars(other)
    if how != "clone":
        np.testing.assert_array_equal(other.predict(rows()), model.labels_)


def test_the_pickle_of_a_model_does_not_grow() -> None:
    model = fitted(rows(), 9)
    before = pickle.dumps(model)
    model.predict(rows())
    assert pickle.dumps(model) == before


def test_predict_adds_no_attribute() -> None:
    model = fitted(rows(), 9)
    before = dict(vars(model))
    model.predict(rows())
    assert vars(model) == before


def test_a_forked_child_builds_its_own(built: list[Frame], monkeypatch: pytest.MonkeyPatch) -> None:
    model = fitted(rows(), 9)
    model.predict(rows())
    built.clear()
    monkeypatch.setattr("exactmeans.fit.centres_cache.os.getpid", lambda: -1)
    np.testing.assert_array_equal(model.predict(rows()), model.labels_)
    assert len(built) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_many_threads_predict_with_one_model(kind: str) -> None:
    X = datasets.blobs(400, 6, 5, seed=3)
    model = fitted(X, 40, max_iter=3, n_jobs=2)
    given, wrong = KINDS[kind](X), []
    expected = fresh(model, given)
    start = threading.Barrier(8)

    def serve(first: int) -> None:
        start.wait()
        for begin in range(first, 400, 8):
            labels = model.predict(given[begin:])
            if not np.array_equal(labels, expected[begin:]):
                wrong.append(begin)

    threads = [threading.Thread(target=serve, args=(first,)) for first in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# The checksum -------------------------------------------------------------------------------------


def checksum(array: NDArray[Any], n_jobs: int = 1) -> int:
    return _core.checksum(array.reshape(-1).view(np.uint8), n_jobs)


@pytest.mark.parametrize("size", [0, 1, 7, 8, 63, 64, 65, 1000, 2**20 + 3, 3 * 2**20])
def test_the_checksum_sees_every_byte(size: int) -> None:
    data = np.random.default_rng(0).integers(0, 256, size, dtype=np.uint8)
    seen = {checksum(data), checksum(np.append(data, np.uint8(0)))}
    places = range(size) if size < 2000 else [0, 1, 2**20 - 1, 2**20, size - 1]
    for at in places:
        other = data.copy()
        other[at] ^= 1
        seen.add(checksum(other))
    assert len(seen) == 2 + len(places)


@pytest.mark.parametrize("n", [40, 300_000])
def test_the_checksum_sees_signs_and_order(n: int) -> None:
    values = np.random.default_rng(1).normal(size=n)
    two = values.copy()
    two[[0, 8]] *= -1  # in one lane
    assert len({checksum(v) for v in (values, two, -values, values[::-1].copy())}) == 4


def test_the_checksum_does_not_depend_on_threads() -> None:
    values = np.random.default_rng(2).normal(size=500_000)
    assert len({checksum(values, n_jobs) for n_jobs in (1, 2, 5)}) == 1


# Frames -------------------------------------------------------------------------------------------

FRAMES: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {
    "float64": lambda frame: frame,
    "float32": lambda frame: frame.astype("float32"),
    "integers": lambda frame: frame.astype("int32"),
    "mixed": lambda frame: frame.astype({"b": "int8", "c": "float32"}),
    "half": lambda frame: frame.astype("float16"),
    "big-endian": lambda frame: frame.astype(np.dtype(">f8")),
    "nullable": lambda frame: frame.astype({"a": "Int64"}),
    "bool": lambda frame: frame.assign(a=frame["a"] > 2),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_frames_give_the_labels_of_their_values(kind: str) -> None:
    frame = FRAMES[kind](pd.DataFrame(rows()[:, :4], columns=list("abcd")))
    dtype = np.float32 if kind == "float32" else np.float64
    model = fitted(frame, 5)
    assert list(model.feature_names_in_) == list("abcd")
    assert model.cluster_centers_.dtype == dtype
    values = frame.to_numpy(dtype=dtype)
    np.testing.assert_array_equal(model.labels_, fitted(values, 5).labels_)
    np.testing.assert_array_equal(model.predict(frame[:7]), model.labels_[:7])


def test_plain_frames_skip_the_checks_of_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = pd.DataFrame(rows()[:, :4], columns=list("abcd"))
    model = fitted(frame, 5)
    monkeypatch.setattr("sklearn.utils.validation.check_array", None)
    np.testing.assert_array_equal(model.predict(frame[:1]), model.labels_[:1])
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[["b", "a", "c", "d"]])
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[["a", "b", "c"]])
    with pytest.warns(UserWarning, match="feature names"):
        model.predict(read_only(frame.to_numpy()))
