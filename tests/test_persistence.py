"""Models in files: every bit comes back, nothing runs, and what is not a model is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import safetensors.numpy
import scipy.sparse as sp
from numpy.typing import NDArray

import cases
import datasets
import exactmeans
from exactmeans import KMeans, MiniBatchKMeans
from exactmeans.callbacks import Iteration
from exactmeans.io import model_file


def blobs() -> NDArray[np.float64]:
    return datasets.blobs(60, 3, 4, seed=21)


def saved(model: Any, folder: Path) -> Path:
    path = folder / "model.safetensors"
    model.save(path)
    return path


@pytest.mark.parametrize(
    "case",
    cases.params(case for case in cases.cases() if case.weights == "zeros"),
)
def test_every_bit_comes_back(case: cases.Case, tmp_path: Path) -> None:
    """Also of shifted and scaled data, whose frame is part of the model."""
    model = case.fit()
    loaded = exactmeans.load(saved(model, tmp_path))
    assert cases.bits(loaded) == cases.bits(model)
    assert loaded.predict(case.X).tobytes() == model.labels_.tobytes()
    assert loaded.transform(case.X).tobytes() == model.transform(case.X).tobytes()
    assert loaded.explain() == model.explain()
    assert loaded.history_ == model.history_
    assert isinstance(loaded.history_[0], Iteration)


PARAMS: list[dict[str, Any]] = [
    {"dtype": np.dtype("float64"), "random_state": 3, "tol": 0.0, "n_init": 2, "verbose": 0},
    {"init": ("d", 2.0), "random_state": np.int64(1)},
    {"init": blobs()[:4], "dtype": np.float32},
    {"init": blobs()[:4].tolist(), "memory_limit": "1GB"},
    {"init": "k-means||", "init_options": {"rounds": 2}, "random_state": 0},
    {"random_state": np.random.RandomState(5)},
]


@pytest.mark.parametrize("params", PARAMS, ids=lambda params: "-".join(params))
def test_parameters_come_back(params: dict[str, Any], tmp_path: Path) -> None:
    model = KMeans(4, **params).fit(blobs())
    loaded = exactmeans.load(saved(model, tmp_path))
    for name, value in model.get_params().items():
        other = loaded.get_params()[name]
        if isinstance(value, np.random.RandomState):
            assert (
                value.get_state(legacy=False)["state"]["pos"]
                == (other.get_state(legacy=False)["state"]["pos"])
            )
        elif name == "dtype" and value is not None:
            assert np.dtype(value) == other
        else:
            np.testing.assert_array_equal(other, value)
            assert type(other) is type(value) or isinstance(value, np.integer)
    assert cases.bits(loaded.fit(blobs())) == cases.bits(model.fit(blobs()))


def test_callables_are_left_out(tmp_path: Path) -> None:
    def first_rows(X: Any, n_clusters: int, random_state: Any) -> Any:
        return X[:n_clusters]

    model = KMeans(4, init=first_rows, n_init=1, callbacks=[lambda record: None]).fit(blobs())
    loaded = exactmeans.load(saved(model, tmp_path))
    assert (loaded.init, loaded.callbacks) == ("k-means++", None)
    np.testing.assert_array_equal(loaded.predict(blobs()), model.labels_)


def test_column_names_come_back(tmp_path: Path) -> None:
    frame = pd.DataFrame(blobs(), columns=["a", "b", "é"])
    model = KMeans(4, random_state=0).fit(frame).set_output(transform="pandas")
    loaded = exactmeans.load(saved(model, tmp_path))
    assert loaded.feature_names_in_.dtype == object
    np.testing.assert_array_equal(loaded.feature_names_in_, model.feature_names_in_)
    assert list(loaded.transform(frame)) == list(model.transform(frame))
    with pytest.raises(ValueError, match="feature names"):
        loaded.predict(frame.rename(columns={"a": "x"}))


def test_replaced_centres_are_saved(tmp_path: Path) -> None:
    model = KMeans(4, random_state=0).fit(blobs())
    model.cluster_centers_ = np.asfortranarray(model.cluster_centers_[::-1])
    loaded = exactmeans.load(saved(model, tmp_path))
    np.testing.assert_array_equal(loaded.predict(blobs()), model.predict(blobs()))


@pytest.mark.parametrize("make", [sp.csr_array, sp.csr_matrix])
def test_sparse_centres_come_back(make: Any, tmp_path: Path) -> None:
    X = datasets.load("sparse_random").X
    model = KMeans(4, random_state=0, init=make(X[:4]), n_init=1, sparse_centers=True).fit(X)
    loaded = exactmeans.load(saved(model, tmp_path))
    assert type(loaded.cluster_centers_) is type(model.cluster_centers_)
    assert type(loaded.init) is make
    np.testing.assert_array_equal(loaded.predict(X), model.labels_)


def test_unfitted_models_are_not_saved(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not fitted"):
        KMeans().save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("base", [KMeans, MiniBatchKMeans])
@pytest.mark.parametrize("name", ["Mine", "KMeans"])
def test_subclasses_are_not_saved(base: type[KMeans], name: str, tmp_path: Path) -> None:
    """A file cannot bring back their code, not even of one that has the name of its base."""
    model = type(name, (base,), {})(4, random_state=0).fit(blobs())
    with pytest.raises(TypeError, match=rf"^save .*, but {name} is a subclass, .*pickle or joblib"):
        model.save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_another_process_reads_it_and_runs_nothing(tmp_path: Path) -> None:
    """Neither unpickling nor importing by name: both would show in these events."""
    model = KMeans(4, random_state=0).fit(blobs())
    path = saved(model, tmp_path)
    code = """
import sys, exactmeans, safetensors.numpy
exactmeans.KMeans, exactmeans.io.model_file
from exactmeans.kmeans import KMeans
seen = []
sys.addaudithook(lambda event, arguments: seen.append((event, str(arguments)[:200])))
model = exactmeans.load(sys.argv[1])
bad = [e for e in seen if e[0] in ("exec", "compile", "pickle.find_class", "os.system")]
assert not bad, bad
print(model.labels_.tolist() == model.predict(sys.argv[2] and eval(sys.argv[2])).tolist())
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(path), repr(blobs().tolist())],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "True\n", done.stderr


# what is refused ----------------------------------------------------------------------------------


def test_every_cut_is_refused(tmp_path: Path) -> None:
    path = saved(KMeans(4, random_state=0).fit(blobs()), tmp_path)
    whole = path.read_bytes()
    for length in {0, 1, 7, 8, 9, 100, len(whole) // 2, len(whole) - 1}:
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"is not a whole safetensors file.*\.$"):
            exactmeans.load(path)
    path.write_bytes(whole + b"x")
    with pytest.raises(ValueError, match="is not a whole safetensors file"):
        exactmeans.load(path)


def test_every_flipped_byte_is_refused(tmp_path: Path) -> None:
    path = saved(KMeans(4, random_state=0).fit(blobs()), tmp_path)
    whole = path.read_bytes()
    for at in range(8, len(whole), 41):
        torn = bytearray(whole)
        torn[at] ^= 1
        path.write_bytes(torn)
        with pytest.raises(ValueError, match=str(path)):
            exactmeans.load(path)


def test_foreign_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(b"PK\x03\x04" + bytes(200))
    with pytest.raises(ValueError, match="is not a whole safetensors file"):
        exactmeans.load(path)
    safetensors.numpy.save_file({"w": np.zeros(3)}, path)
    with pytest.raises(ValueError, match=r"was not written by exactmeans\.$"):
        exactmeans.load(path)
    model_file.write(path, "checkpoint", {}, {})
    with pytest.raises(ValueError, match="holds a checkpoint, not a model"):
        exactmeans.load(path)
    with pytest.raises(FileNotFoundError):
        exactmeans.load(tmp_path / "missing")
    with pytest.raises(ValueError, match=r"must name a file, but .* is a folder"):
        exactmeans.load(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"class": "os.system"},
        {"params": {"no_such": 1}},
        {"fitted": {"labels_": {"array": "nowhere"}}},
        {"fitted": {"labels_": {"eval": "1"}}},
        {"fitted": 3},
    ],
    ids=repr,
)
def test_altered_content_is_refused(change: dict[str, Any], tmp_path: Path) -> None:
    path = saved(KMeans(4, random_state=0).fit(blobs()), tmp_path)
    content, tensors = model_file.read(path, "model")
    model_file.write(path, "model", {**content, **change}, tensors)
    with pytest.raises(ValueError, match="is not a model that can be read"):
        exactmeans.load(path)


def spoilt(name: str, at: int, value: float) -> Callable[[dict[str, Any]], None]:
    def spoil(tensors: dict[str, Any]) -> None:
        tensors[name] = tensors[name].copy()
        tensors[name][at] = value

    return spoil


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (spoilt("cluster_centers_.0", 2, np.nan), "cluster_centers_ must be finite"),
        (spoilt("cluster_centers_.1", 0, 2**30), "must be a well-formed csr"),
        (spoilt("cluster_centers_.1", 0, -1), "must be a well-formed csr"),
        (spoilt("cluster_centers_.2", 1, 2**30), "must be a well-formed csr"),
        (spoilt("cluster_centers_.2", -1, 2**30), "index pointer"),
        (spoilt("cluster_centers_.3", 1, 10**6), "cluster_centers_ must have shape"),
        (spoilt("init.1", 0, 2**30), "must be a well-formed csr"),
    ],
)
def test_sparse_centres_of_altered_files_are_refused(spoil: Any, says: str, tmp_path: Path) -> None:
    """Their digest is right: a program that alters a file can compute it."""
    X = datasets.load("sparse_random").X
    model = KMeans(4, init=X[:4], n_init=1, sparse_centers=True).fit(X)
    path = saved(model, tmp_path)
    content, tensors = model_file.read(path, "model")
    spoil(tensors)
    model_file.write(path, "model", content, tensors)
    with pytest.raises(ValueError, match=f"is not a model that can be read: .*{says}"):
        exactmeans.load(path)


@pytest.mark.parametrize("change", [np.array([1.0, np.nan, 1.0]), np.ones(5)], ids=["NaN", "wide"])
def test_a_shift_of_an_altered_file_is_refused(change: Any, tmp_path: Path) -> None:
    model = KMeans(4, random_state=0).fit(blobs() + 1e6)
    path = saved(model, tmp_path)
    content, tensors = model_file.read(path, "model")
    assert "_frame.shift" in tensors
    model_file.write(path, "model", content, {**tensors, "_frame.shift": change})
    with pytest.raises(ValueError, match=r"can be read: .*the shift must be 3 finite numbers"):
        exactmeans.load(path)


def test_centres_that_cannot_predict_are_not_saved(tmp_path: Path) -> None:
    """They could not be loaded."""
    model = KMeans(4, random_state=0).fit(blobs())
    model.cluster_centers_ = np.full((4, 3), np.nan)
    with pytest.raises(ValueError, match="cluster_centers_ must be finite"):
        model.save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_other_schemas_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_file, "SCHEMA", 99)
    path = saved(KMeans(4, random_state=0).fit(blobs()), tmp_path)
    monkeypatch.undo()
    with pytest.raises(ValueError, match=r"has schema 99, but .* reads schema 2\.$"):
        exactmeans.load(path)


def test_a_failed_save_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = KMeans(4, random_state=0).fit(blobs())
    path = saved(model, tmp_path)
    before = path.read_bytes()

    def fail(*_: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("exactmeans.io.model_file.os.fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        model.save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_two_writers_of_one_path_do_not_disturb_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One starts and ends while the other is writing; the file is that of the last to end."""
    path = tmp_path / "model"
    slow, fast = (KMeans(k, random_state=0).fit(blobs()) for k in (4, 3))
    fsync = os.fsync

    def in_between(file: int) -> None:
        monkeypatch.setattr(os, "fsync", fsync)
        fast.save(path)
        assert cases.bits(exactmeans.load(path)) == cases.bits(fast)
        fsync(file)

    monkeypatch.setattr(os, "fsync", in_between)
    slow.save(path)
    assert cases.bits(exactmeans.load(path)) == cases.bits(slow)
    assert list(tmp_path.iterdir()) == [path]


def test_no_link_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither one at the path, which is replaced, nor one under the name that is written first."""
    model = KMeans(4, random_state=0).fit(blobs())
    victim, path = tmp_path / "victim", tmp_path / "model"
    victim.write_text("precious")
    path.symlink_to(victim)
    (tmp_path / "model.tmp").symlink_to(victim)
    model.save(path)
    assert victim.read_text() == "precious"
    assert not path.is_symlink()
    assert cases.bits(exactmeans.load(path)) == cases.bits(model)

    monkeypatch.setattr("exactmeans.io.files.secrets.token_hex", lambda size: "0")
    planted = tmp_path / "model.0.tmp"
    planted.symlink_to(victim)
    with pytest.raises(FileExistsError):
        model.save(path)
    assert victim.read_text() == "precious"
    assert planted.is_symlink()


def test_the_header_does_not_grow_with_the_model(tmp_path: Path) -> None:
    """Readers of safetensors refuse headers of more than 100 MB."""
    frame = pd.DataFrame(blobs(), columns=["a", "b", "c"])
    model = KMeans(4, random_state=0, init=blobs()[:4].tolist(), n_init=1).fit(frame)

    def header() -> int:
        return int.from_bytes(saved(model, tmp_path).read_bytes()[:8], "little")

    before = header()
    model.history_ = model.history_ * 3000
    model.init = blobs().tolist() * 100
    model.feature_names_in_ = np.array(["x" * 100_000, "b", "c"], dtype=object)
    assert header() < before + 100
    loaded = exactmeans.load(tmp_path / "model.safetensors")
    assert loaded.history_ == model.history_
    assert loaded.init == model.init


def test_what_cannot_be_saved_is_named(tmp_path: Path) -> None:
    model = KMeans(4, random_state=0).fit(blobs())
    model.own = object()
    with pytest.raises(TypeError, match="own cannot be saved"):
        model.save(tmp_path / "model")


def test_without_safetensors_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = KMeans(4, random_state=0).fit(blobs())
    monkeypatch.setitem(sys.modules, "safetensors.numpy", None)
    for call in (model.save, exactmeans.load):
        with pytest.raises(ImportError, match=r"pip install exactmeans\[io\]\.$"):
            call(tmp_path / "model")
