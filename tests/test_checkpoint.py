"""Fits that survive a kill: the bits of an undisturbed fit, or a sentence on why not."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import textwrap
import tracemalloc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import scipy.sparse as sp
from numpy.typing import NDArray

import cases
import datasets
from cases import Case, bits
from exactmeans import Iteration, KMeans, open_blocks
from exactmeans.io import checkpoint as checkpoints
from exactmeans.io import model_file
from metric_oracle import FORMS, OTHERS, some_rows, some_weights


class Killed(BaseException):
    """Stands for a kill: nothing catches it, and nothing is cleaned up after it."""


def kill_at(run: int, iteration: int) -> Any:
    def callback(record: Iteration) -> None:
        if (record.run, record.iteration) == (run, iteration):
            raise Killed

    return callback


@pytest.fixture(autouse=True)
def _every_iteration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "INTERVAL", 0.0)
    monkeypatch.setattr(os, "fsync", lambda file: None)  # it waits for the disk


def blobs() -> NDArray[np.float64]:
    return datasets.blobs(400, 4, 8, spread=6.0, seed=5)


def killed(model: KMeans, X: Any, *when: tuple[int, int], weights: Any = None) -> None:
    for run, iteration in when:
        model.set_params(callbacks=kill_at(run, iteration))
        with pytest.raises(Killed):
            model.fit(X, sample_weight=weights)
    model.set_params(callbacks=None)


# the same bits ------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", cases.params(c for c in cases.cases() if c.weights != "none"))
def test_resumed_fits_end_with_the_same_bits(case: Case, tmp_path: Path) -> None:
    """Killed in the first iteration that reports, the second, and so on."""
    expected = case.fit()
    model = KMeans(case.k, init=case.init, tol=0, checkpoint=tmp_path / "fit")
    stops = [(0, i) for i in range(1, min(4, expected.n_iter_) + 1)]
    killed(model, case.X, *stops, weights=case.sample_weight)
    resumed = cases.fit(
        case.X, case.init, case.sample_weight, checkpoint=tmp_path / "fit", algorithm="hamerly"
    )
    assert bits(resumed) == bits(expected)


@pytest.mark.parametrize("init", ["k-means++", "random", "k-means||", ("d", 2)], ids=str)
@pytest.mark.parametrize("seed", [3, None, "state"])
def test_runs_and_draws_go_on(init: Any, seed: Any, tmp_path: Path) -> None:
    """Several runs from one generator, which must be where it was."""
    X = blobs()

    def model(checkpoint: Path) -> KMeans:
        given = np.random.RandomState(9) if seed == "state" else seed
        return KMeans(8, init=init, n_init=4, random_state=given, tol=0, checkpoint=checkpoint)

    np.random.seed(77)
    whole = model(tmp_path / "whole").fit(X)
    np.random.seed(77)
    for when in ((0, 1), (0, 3), (1, 2), (3, 2)):
        killed(model(tmp_path / "cut"), X, when)
    resumed = model(tmp_path / "cut")
    assert bits(resumed.fit(X)) == bits(whole)
    if seed == "state":
        undisturbed = model(tmp_path / "again")
        undisturbed.fit(X)
        assert resumed.random_state.uniform() == undisturbed.random_state.uniform()
    if seed is not None:
        assert bits(model(tmp_path / "third").set_params(checkpoint=None).fit(X)) == bits(whole)


def test_a_seed_that_was_drawn_is_kept(tmp_path: Path) -> None:
    """Without a random_state, whatever NumPy's generator does meanwhile; nor is that disturbed."""
    X = blobs()
    options: dict[str, Any] = {"n_init": 3, "init": "random", "tol": 0}
    np.random.seed(77)
    whole = KMeans(8, **options, checkpoint=tmp_path / "whole").fit(X)
    np.random.seed(77)
    model = KMeans(8, **options, checkpoint=tmp_path / "cut")
    killed(model, X, (1, 2))
    np.random.seed(1)
    assert bits(model.fit(X)) == bits(whole)
    after = np.random.uniform()
    np.random.seed(1)
    np.random.randint(2**31)  # drawn before the file is looked at
    assert after == np.random.uniform()


@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_files_go_on_too(layout: str, tmp_path: Path) -> None:
    X: Any = blobs()
    if layout == "csr":
        X = datasets.load("sparse_random").X
        sp.save_npz(tmp_path / "x.npz", X)
    else:
        np.save(tmp_path / "x.npy", X)
    source = open_blocks(tmp_path / ("x.npz" if layout == "csr" else "x.npy"), block_rows=90)
    model = KMeans(6, random_state=1, tol=0, checkpoint=tmp_path / "fit")
    killed(model, source, (0, 1), (0, 2))
    # The same rows, cut otherwise, are the same data.
    assert bits(model.fit(X)) == bits(KMeans(6, random_state=1, tol=0).fit(X))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("metric", OTHERS)
@pytest.mark.parametrize("tol", [0, 1e-2])
def test_fits_by_other_metrics_go_on(metric: str, form: str, tol: float, tmp_path: Path) -> None:
    """Killed in every iteration: also between rough geodesic means and thorough ones."""
    X, weights = some_rows(form), some_weights(300)
    params: dict[str, Any] = {"metric": metric, "n_init": 2, "init": "random", "tol": tol}
    whole = KMeans(7, random_state=4, **params).fit(X, sample_weight=weights)
    ends: list[tuple[int, int]] = []
    model = KMeans(7, random_state=4, checkpoint=tmp_path / "fit", **params)
    model.set_params(callbacks=lambda record: ends.append((record.run, record.iteration)))
    model.fit(X, sample_weight=weights)
    os.unlink(tmp_path / "fit")
    killed(model, X, *ends, weights=weights)
    assert bits(model.fit(X, sample_weight=weights)) == bits(whole)
    assert len(ends) > 4


def test_cosine_fits_of_files_go_on(tmp_path: Path) -> None:
    X = some_rows("csr64")
    sp.save_npz(tmp_path / "x.npz", X)
    source = open_blocks(tmp_path / "x.npz", block_rows=70)
    model = KMeans(6, metric="cosine", random_state=1, tol=0, checkpoint=tmp_path / "fit")
    killed(model, source, (0, 1), (0, 2), (0, 3))
    whole = KMeans(6, metric="cosine", random_state=1, tol=0).fit(X)
    assert bits(model.fit(source)) == bits(whole)


def test_sparse_centres_given_go_on(tmp_path: Path) -> None:
    """They are known by their values, in whatever format they come."""
    X = datasets.load("sparse_random").X
    model = KMeans(4, init=X[:4], tol=0, checkpoint=tmp_path / "fit")
    killed(model, X, (0, 1))
    other = X[:4].copy()
    other.data[3] = np.nextafter(other.data[3], 9)
    with pytest.raises(ValueError, match=r"init=<sparse \(4, .*>, not init=<sparse \(4, .*>"):
        model.set_params(init=other).fit(X)
    moved = X[:4].copy()
    moved.indices[0] += 1 if moved.indices[1] > moved.indices[0] + 1 else -1
    with pytest.raises(ValueError, match="not init=<sparse"):
        model.set_params(init=moved).fit(X)
    whole = KMeans(4, init=X[:4].toarray(), tol=0).fit(X)
    assert bits(model.set_params(init=X[:4].tocoo()).fit(X)) == bits(whole)


def test_sparse_centres_are_not_made_dense_to_be_known() -> None:
    k, d = 40, 200_000
    init = sp.random_array((k, d), density=1e-4, random_state=0, format="csr")
    tracemalloc.start()
    checkpoints.describe({"init": init})
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < k * d  # bytes; an array of float64 has eight times as many


def test_how_it_is_computed_may_change(tmp_path: Path) -> None:
    X = blobs()
    killed(KMeans(8, random_state=0, tol=0, checkpoint=tmp_path / "fit"), X, (0, 2))
    other = KMeans(
        8,
        random_state=0,
        tol=0,
        checkpoint=str(tmp_path / "fit"),
        algorithm="hamerly",
        n_jobs=1,
        memory_limit="1GB",
        copy_x=False,
    )
    assert bits(other.fit(np.asfortranarray(X))) == bits(KMeans(8, random_state=0, tol=0).fit(X))


@pytest.mark.parametrize("metric", ["euclidean", "angular"])
@pytest.mark.parametrize("last", [(0, 1), (0, 3), (1, 3)], ids=str)
def test_a_run_that_a_callback_stopped_stays_stopped(
    last: tuple[int, int], metric: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after the last iteration of a run is kept, and before the run ends."""
    params: dict[str, Any] = {"init": "random", "n_init": 2, "tol": 0, "metric": metric}
    params["callbacks"] = lambda record: record.iteration == (last[1] if record.run == 0 else 3)
    whole = KMeans(8, random_state=1, **params).fit(blobs())
    keep = checkpoints.Checkpoint.keep

    def keep_and_die(self: Any, centres: Any, history: list[Iteration], **options: Any) -> None:
        keep(self, centres, history, **options)
        if (history[-1].run, history[-1].iteration) == last:
            raise Killed

    model = KMeans(8, random_state=1, checkpoint=tmp_path / "fit", **params)
    monkeypatch.setattr(checkpoints.Checkpoint, "keep", keep_and_die)
    with pytest.raises(Killed):
        model.fit(blobs())
    monkeypatch.setattr(checkpoints.Checkpoint, "keep", keep)
    assert bits(model.fit(blobs())) == bits(whole)
    assert model.n_iter_ == whole.n_iter_
    assert model.explain().splitlines()[3:] == whole.explain().splitlines()[3:]


def test_a_finished_fit_returns_at_once(tmp_path: Path) -> None:
    X = blobs()
    model = KMeans(8, random_state=0, checkpoint=tmp_path / "fit").fit(X)
    before = (tmp_path / "fit").read_bytes()
    seen: list[Iteration] = []
    again = KMeans(8, random_state=0, checkpoint=tmp_path / "fit", callbacks=seen.append).fit(X)
    assert bits(again) == bits(model)
    assert not seen
    assert (tmp_path / "fit").read_bytes() == before
    assert again.explain() == model.explain()
    np.testing.assert_array_equal(again.predict(X), model.labels_)


def test_files_are_written_at_intervals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "INTERVAL", 1e9)
    writes = []
    write = model_file.write

    def noted(*arguments: Any) -> None:
        writes.append(arguments[2]["finished"])
        write(*arguments)

    monkeypatch.setattr(model_file, "write", noted)
    model = KMeans(8, random_state=0, tol=0, checkpoint=tmp_path / "fit").fit(blobs())
    assert model.n_iter_ > 3
    assert writes == [False, True]  # after seeding, and the end
    monkeypatch.setattr(checkpoints, "INTERVAL", 0.0)
    writes.clear()
    model.set_params(checkpoint=tmp_path / "other").fit(blobs())
    assert len(writes) == model.n_iter_ + 2


class Clock:
    """Stands for the clock of the checkpoint."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(checkpoints, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(checkpoints, "INTERVAL", 5.0)

    def life(self, seconds: float) -> Any:
        """A callback: every iteration takes a second, and the process is killed after a few."""
        end = self.now + seconds

        def callback(record: Iteration) -> None:
            self.now += 1
            if self.now >= end:
                raise Killed

        return callback


def test_fits_that_live_shorter_than_the_interval_get_further(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    whole = KMeans(8, random_state=0, tol=0).fit(blobs())
    model = KMeans(8, random_state=0, tol=0, checkpoint=tmp_path / "fit")
    lives = 0
    while not hasattr(model, "labels_"):
        lives += 1
        assert lives <= whole.n_iter_ + 1  # all but the first keep one iteration more
        with contextlib.suppress(Killed):
            model.set_params(callbacks=clock.life(2)).fit(blobs())
    assert lives > 3
    assert bits(model) == bits(whole)


def test_the_first_file_of_a_resumed_fit_waits_until_it_is_cheap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading took 3 s, so 2 % of the time since the start must be as much; the next ones wait."""
    started(tmp_path)
    clock = Clock(monkeypatch)
    monkeypatch.setattr(checkpoints, "INTERVAL", 1000.0)
    read = model_file.read

    def slowly(*arguments: Any) -> Any:
        clock.now += 3
        return read(*arguments)

    kept: list[checkpoints.Checkpoint] = []
    resume = checkpoints.Checkpoint.resume

    def noted(self: Any, place: Any) -> None:
        resume(self, place)
        kept.append(self)

    monkeypatch.setattr(model_file, "read", slowly)
    monkeypatch.setattr(checkpoints.Checkpoint, "resume", noted)
    killed(KMeans(8, random_state=0, checkpoint=tmp_path / "fit"), blobs(), (0, 3))
    (checkpoint,) = kept
    assert isinstance(checkpoint.found, checkpoints.Resume)
    for later, due in ((0, False), (100, False), (46.9, False), (0.2, True)):
        clock.now += later
        assert checkpoint.due == due
    checkpoint.keep(checkpoint.found.centres, checkpoint.found.history, stop=False)
    clock.now += 999
    assert not checkpoint.due
    clock.now += 2
    assert checkpoint.due


# what is refused ----------------------------------------------------------------------------------


def started(folder: Path, **params: Any) -> KMeans:
    model = KMeans(8, **{"random_state": 0, "checkpoint": folder / "fit", **params})
    killed(model, blobs(), (0, 2))
    return model


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({"n_clusters": 7}, "n_clusters=8, not n_clusters=7"),
        ({"random_state": 1}, "random_state=0, not random_state=1"),
        ({"random_state": None}, "random_state=0, not random_state=None"),
        ({"tol": 0.5}, r"tol=0\.0001, not tol=0\.5"),
        ({"max_iter": 299}, "max_iter=300, not max_iter=299"),
        ({"init": "random"}, "init='k-means.*', not init='random'"),
        ({"init": np.ones((8, 4))}, r"init='k-means.*', not init=<array \(8, 4\)"),
        ({"n_init": 2}, "n_init='auto', not n_init=2"),
        ({"dtype": "float32"}, "dtype=None, not dtype='float32'"),
        ({"init_options": {"n_local_trials": 2}}, "init_options=None, not"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_other_parameters_are_refused(params: dict[str, Any], says: str, tmp_path: Path) -> None:
    model = started(tmp_path)
    before = (tmp_path / "fit").read_bytes()
    with pytest.raises(
        ValueError, match=f"checkpoint .*fit is of.*{says.split('of a fit with ')[-1]}"
    ):
        model.set_params(**params).fit(blobs())
    assert (tmp_path / "fit").read_bytes() == before


def _swapped(X: NDArray[Any]) -> NDArray[Any]:
    X[[3, 4]] = X[[4, 3]]
    return X


def _nudged(X: NDArray[Any]) -> NDArray[Any]:
    X[7, 1] = np.nextafter(X[7, 1], 100)
    return X


@pytest.mark.parametrize(
    "change",
    [_swapped, _nudged, lambda X: X[:-1], lambda X: X.astype("f4"), sp.csr_matrix],
    ids=["swapped", "nudged", "shorter", "float32", "sparse"],
)
def test_other_data_is_refused(change: Any, tmp_path: Path) -> None:
    model = started(tmp_path)
    with pytest.raises(ValueError, match="is of a fit of other data or sample_weight: name"):
        model.fit(change(blobs()))
    with pytest.raises(ValueError, match="other data or sample_weight"):
        model.fit(blobs(), sample_weight=np.ones(400))


def test_torn_and_foreign_files_are_refused(tmp_path: Path) -> None:
    model = started(tmp_path)
    path = tmp_path / "fit"
    whole = path.read_bytes()
    for length in (0, 7, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"checkpoint cannot be resumed: .*is not a whole"):
            model.fit(blobs())
    for at in range(8, len(whole), 97):
        torn = bytearray(whole)
        torn[at] ^= 1
        path.write_bytes(torn)
        with pytest.raises(ValueError, match="checkpoint"):
            model.fit(blobs())
    safetensors.numpy.save_file({"w": np.zeros(3)}, path)
    with pytest.raises(ValueError, match="was not written by exactmeans"):
        model.fit(blobs())
    KMeans(8, random_state=0).fit(blobs()).save(path)
    with pytest.raises(ValueError, match="holds a model, not a checkpoint"):
        model.fit(blobs())
    model_file.write(path, "checkpoint", {"finished": False}, {})
    with pytest.raises(ValueError, match="checkpoint cannot be resumed"):
        model.fit(blobs())


@pytest.mark.parametrize("finished", [False, True])
def test_centres_of_altered_files_are_refused(finished: bool, tmp_path: Path) -> None:
    """Their digest is right: a program that alters a file can compute it."""
    X = datasets.load("sparse_random").X
    path = tmp_path / "fit"
    model = KMeans(4, random_state=0, tol=0, checkpoint=path)
    if finished:
        model.fit(X)
    else:
        killed(model, X, (0, 2))
    whole = path.read_bytes()
    name = "best.centres" if finished else "centres"
    d = X.shape[1]
    for part, at, value, says in (
        (0, 1, np.nan, f"centres of checkpoint {path} must be finite"),
        (1, 0, 2**30, "checkpoint cannot be resumed: .* well-formed"),
        (3, 1, 2 * d, rf"centres of checkpoint {path} must have shape \(4, {d}\)"),
    ):
        content, tensors = model_file.read(path, "checkpoint")
        changed = tensors[f"{name}.{part}"].copy()
        changed[at] = value
        model_file.write(path, "checkpoint", content, {**tensors, f"{name}.{part}": changed})
        with pytest.raises(ValueError, match=says):
            model.fit(X)
        path.write_bytes(whole)
    content, tensors = model_file.read(path, "checkpoint")
    single = tensors[f"{name}.0"].astype(np.float32)
    model_file.write(path, "checkpoint", content, {**tensors, f"{name}.0": single})
    with pytest.raises(ValueError, match=f"checkpoint {path} must have centres of float64"):
        model.fit(X)


@pytest.mark.parametrize(
    ("value", "says"),
    [(3, "checkpoint must be None or a path"), ("no/such/fit", "must lie in a folder that exists")],
)
def test_paths_are_checked(value: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        KMeans(2, checkpoint=value).fit(blobs())


def test_without_safetensors_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "safetensors.numpy", None)
    with pytest.raises(ImportError, match=r"pip install exactmeans\[io\]\.$"):
        KMeans(2, checkpoint=tmp_path / "fit").fit(blobs())


# real kills ---------------------------------------------------------------------------------------

_KILLS = """
    import json, os, random, signal, sys, time
    import numpy as np
    import datasets
    from cases import bits
    from exactmeans import KMeans
    from exactmeans.io import checkpoint as checkpoints
    checkpoints.INTERVAL = 0.0
    X = datasets.blobs(6000, 6, 40, spread=6.0, seed=5)
    def fit(path):
        model = KMeans(40, init="random", n_init=2, random_state=3, tol=0, n_jobs=2, max_iter=60,
                       checkpoint=path)
        return model.fit(X)
    whole = bits(fit(sys.argv[1] + "/whole"))
    began = time.perf_counter()
    fit(sys.argv[1] + "/timed")
    usual = time.perf_counter() - began
    rng = random.Random(1)
    died = 0
    for attempt in range(12):
        child = os.fork()
        if not child:
            fit(sys.argv[1] + "/cut")
            os._exit(0)
        time.sleep(rng.uniform(0, usual / 4))
        os.kill(child, signal.SIGKILL)
        died += os.WIFSIGNALED(os.waitpid(child, 0)[1])
    print(died, bits(fit(sys.argv[1] + "/cut")) == whole)
"""


def _run(code: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(folder)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_dozen_kills_at_random_moments(tmp_path: Path) -> None:
    died, same = _run(_KILLS, tmp_path).split()
    assert int(died) >= 1  # the later ones may find a finished fit
    assert same == "True"


_IN_THE_ACT = """
    import os, signal, sys
    import datasets
    from cases import bits
    from exactmeans import KMeans
    from exactmeans.io import checkpoint as checkpoints
    from exactmeans.io import model_file
    checkpoints.INTERVAL = 0.0
    X = datasets.blobs(400, 4, 8, spread=6.0, seed=5)
    def fit(path):
        return KMeans(8, random_state=3, tol=0, checkpoint=path).fit(X)
    whole = bits(fit(sys.argv[1] + "/whole"))
    died = 0
    for name in ("replace", "fsync", "open"):
        for call in (1, 2, 3, 5):
            child = os.fork()
            if not child:
                real, calls = getattr(model_file.os, name), [0]
                def deadly(*arguments, **options):
                    calls[0] += 1
                    if calls[0] == call:
                        os.kill(os.getpid(), signal.SIGKILL)
                    return real(*arguments, **options)
                setattr(model_file.os, name, deadly)
                fit(sys.argv[1] + "/cut")
                os._exit(0)
            died += os.WIFSIGNALED(os.waitpid(child, 0)[1])
    print(died, bits(fit(sys.argv[1] + "/cut")) == whole)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_kills_while_the_file_is_written(tmp_path: Path) -> None:
    died, same = _run(_IN_THE_ACT, tmp_path).split()
    assert int(died) >= 6
    assert same == "True"
