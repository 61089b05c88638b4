"""Rows that are not in memory: the same bits, within the limit, read ahead."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray

import cases
import datasets
from cases import Case, bits
from exactmeans import KMeans, MiniBatchKMeans, kmeans_plusplus, open_blocks, seeding
from exactmeans.data.source import BufferPool
from exactmeans.data.stream import as_blocks
from exactmeans.engine.local.engine import LocalEngine
from metric_oracle import FORMS, some_rows, some_weights

#: Every way to choose seeds that a source can be given to.
INITS: list[Any] = ["k-means++", "k-means||", ("d", 2), ("d", 1), ("d", 3), "random", "furthest"]


Csr: Any = sp.csr_matrix  # SciPy's stubs want to know the dtype


def stored(X: Any, folder: Path, block_rows: int | None = None) -> Any:
    if sp.issparse(X):
        sp.save_npz(folder / "x.npz", Csr(X))
        return open_blocks(folder / "x.npz", block_rows=block_rows)
    np.save(folder / "x.npy", X)
    return open_blocks(folder / "x.npy", block_rows=block_rows)


class Counted:
    """A source that tells who read what, and when; without edges and dtype, as a user's may be."""

    def __init__(self, X: Any, rows: int) -> None:
        self._X, self._rows = X, rows
        self.shape: tuple[int, int] = X.shape
        self.reads: list[tuple[int, str]] = []
        self.asked = [threading.Event() for _ in range(len(self))]

    def __len__(self) -> int:
        return -(-self.shape[0] // self._rows)

    def read(self, block: int) -> Any:
        self.reads.append((block, threading.current_thread().name))
        self.asked[block].set()
        return self._X[block * self._rows : (block + 1) * self._rows].copy()


# the same bits ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "algorithm"),
    cases.sampled(
        (
            (case, algorithm)
            for case in cases.cases()
            for algorithm in cases.ABLE[case.family]
            if case.weights != "random"
        ),
        one_in=4,
    ),
)
def test_files_give_the_bits_of_arrays(
    case: Case, algorithm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalEngine, "keep", lambda *_: 0)
    rows = max(1, case.X.shape[0] // 4)
    source = stored(case.X, tmp_path, rows)
    model = cases.fit(
        source, case.init, case.sample_weight, algorithm=algorithm, memory_limit="100MB"
    )
    assert bits(model) == bits(case.fit(algorithm=algorithm))


@pytest.mark.parametrize("kept", ["all", "some", "none"])
@pytest.mark.parametrize("init", INITS, ids=str)
@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_seeds_and_whole_fits(
    layout: str, init: Any, kept: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X: Any = datasets.blobs(500, 6, 8, spread=3.0, seed=5)
    if layout == "csr":
        X = datasets.load("sparse_random").X
    weights = np.random.default_rng(0).uniform(0, 2, X.shape[0]) if kept == "some" else None
    share = {"all": 1.0, "some": 0.5, "none": 0.0}[kept]
    keep = LocalEngine.keep

    def limited(self: LocalEngine, budget: float) -> int:
        return keep(self, share * sum(part.size for part in self._blocks))

    monkeypatch.setattr(LocalEngine, "keep", limited)
    source = stored(X, tmp_path, 64)
    options: dict[str, Any] = {"init": init, "random_state": 3, "n_init": 1}
    expected = KMeans(8, **options).fit(X, sample_weight=weights)
    model = KMeans(8, **options).fit(source, sample_weight=weights)
    assert bits(model) == bits(expected)
    assert model.predict(source).tobytes() == expected.labels_.tobytes()
    assert model.transform(source).tobytes() == expected.transform(X).tobytes()
    assert model.score(source, sample_weight=weights) == -expected.inertia_


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("init", INITS, ids=str)
def test_cosine_fits_of_files(init: Any, form: str, tmp_path: Path) -> None:
    """Lengths, seeds, labels, centres and what a model then tells: all as of the array."""
    X, weights = some_rows(form), some_weights(300)
    X = X.copy()
    X[40:43] = 0 * X[40:43]
    source = stored(X, tmp_path, 70)
    assert len(source) == 5
    for algorithm in ("lloyd", "hamerly", "yinyang", "elkan"):
        model, expected = (
            KMeans(
                8,
                metric="cosine",
                init=init,
                n_init=1,
                random_state=2,
                tol=0,
                algorithm=algorithm,
                zero_rows="keep",
            ).fit(rows, sample_weight=weights)
            for rows in (source, X)
        )
        assert bits(model) == bits(expected)
        assert model.algorithm_ == algorithm
    np.testing.assert_array_equal(model.predict(source), expected.labels_)
    np.testing.assert_array_equal(model.transform(source), expected.transform(X))
    assert model.score(source, sample_weight=weights) == expected.score(X, sample_weight=weights)
    with pytest.raises(ValueError, match=r"rows of zeros.*has 3, the first of which is row 40"):
        KMeans(8, metric="cosine", init=init).fit(source)


def test_cosine_fits_of_files_within_a_limit(tmp_path: Path) -> None:
    """Blocks that do not stay in memory are read again, and the lengths of their rows known."""
    X = some_rows("dense64", n=3000, d=40)
    source = stored(X, tmp_path, 100)
    limit = least_limit(source, metric="cosine", random_state=0)
    model = KMeans(8, metric="cosine", random_state=0, memory_limit=limit).fit(source)
    assert model._passes > 5
    assert bits(model) == bits(KMeans(8, metric="cosine", random_state=0).fit(X))


def test_seeding_functions_take_sources(tmp_path: Path) -> None:
    X = datasets.blobs(500, 6, 8, spread=3.0, seed=5)
    source = stored(X, tmp_path, 70)
    for choose in (kmeans_plusplus, seeding.kmeans_parallel, seeding.d_sampling, seeding.random):
        expected = choose(X, 9, random_state=1)
        found = choose(source, 9, random_state=1)
        np.testing.assert_array_equal(found[1], expected[1])
        np.testing.assert_array_equal(found[0], expected[0])


def test_sources_without_edges_are_read_once_more() -> None:
    X = np.rint(datasets.blobs(200, 3, 5))
    model = KMeans(5, random_state=0).fit(Counted(X, 30))
    assert bits(model) == bits(KMeans(5, random_state=0).fit(X))
    mixed = Counted(X.astype(object), 30)
    assert bits(KMeans(5, random_state=0).fit(mixed)) == bits(model)
    single = Counted(X.astype(np.float32), 30)
    assert KMeans(5, random_state=0).fit(single).cluster_centers_.dtype == np.float32
    assert KMeans(5, dtype="float64").fit(single).cluster_centers_.dtype == np.float64


def test_empty_clusters_are_filled_from_files(tmp_path: Path) -> None:
    X = datasets.blobs(300, 4, 6, seed=2)
    init = np.vstack([X[:3], X[:1] + 1e4, X[:1] - 1e4])
    expected = cases.fit(X, init)
    assert bits(cases.fit(stored(X, tmp_path, 50), init)) == bits(expected)
    assert len(np.unique(expected.labels_)) == 5


@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_filling_empty_clusters_reads_few_blocks(
    layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows for empty clusters lie all over the file, and are fetched together."""
    monkeypatch.setattr(LocalEngine, "keep", lambda *_: 0)
    X = datasets.blobs(2000, 4, 6, seed=2)
    k = 122
    init = np.vstack([X[:2], 1e4 + np.arange(4.0 * (k - 2)).reshape(-1, 4)])
    rows = Csr(X) if layout == "csr" else X
    source = Counted(rows, 100)
    model = cases.fit(source, init, max_iter=1)
    assert bits(model) == bits(cases.fit(rows, init, max_iter=1))
    assert len(np.unique(model.labels_)) == k
    # To look at the rows, label, measure, fetch, lend, give back and label again: 20 blocks each.
    assert len(source.reads) <= 13 * len(source)


def test_several_runs(tmp_path: Path) -> None:
    X = datasets.blobs(300, 4, 6, spread=5.0, seed=2)
    options: dict[str, Any] = {"init": "random", "n_init": 4, "random_state": 2}
    expected = KMeans(6, **options).fit(X)
    assert bits(KMeans(6, **options).fit(stored(X, tmp_path, 50))) == bits(expected)


# how they are read --------------------------------------------------------------------------------


def engine_of(source: Any) -> LocalEngine:
    from sklearn.base import BaseEstimator

    blocks = as_blocks(BaseEstimator(), source, reset=True)
    return LocalEngine(blocks, None, 2)


def test_the_next_block_is_read_while_one_is_worked_on() -> None:
    source = Counted(datasets.blobs(100, 3, 4), 20)
    engine = engine_of(source)
    for event in source.asked:
        event.clear()
    main = threading.current_thread().name
    source.reads.clear()
    for part in engine.walk():
        if part.number + 1 < len(source):
            assert source.asked[part.number + 1].wait(20)  # while this one is still at hand
        assert part.loaded is not None
        loaded = [other for other in engine._blocks if other.loaded is not None]
        assert loaded == [part]
    assert [block for block, _ in source.reads] == [0, 1, 2, 3, 4]
    assert main not in {name for _, name in source.reads}


def test_the_next_block_is_read_while_two_threads_work() -> None:
    source = Counted(datasets.blobs(100, 3, 4), 20)
    engine = engine_of(source)
    for event in source.asked:
        event.clear()
    source.reads.clear()

    def work(part: Any, n_jobs: int) -> tuple[int, int]:
        if part.number + 1 < len(source):
            assert source.asked[part.number + 1].wait(20)  # by the other thread
        loaded = [other for other in engine._blocks if other.loaded is not None]
        assert part.number in {other.number for other in loaded}
        assert len(loaded) <= 2
        return part.number, n_jobs

    assert sorted(engine.each(work)) == [(b, 1) for b in range(5)]
    assert [block for block, _ in source.reads] == [0, 1, 2, 3, 4]
    assert len({name for _, name in source.reads}) == 2
    assert not any(part.loaded for part in engine._blocks)


def test_rooms_are_used_again() -> None:
    room = BufferPool()
    for _ in range(3):
        room.clear()
        a, b = room.empty((50, 3), np.dtype("f4")), room.empty((70,), np.dtype("i8"))
        a[:], b[:] = 1, 2
        assert (a == 1).all()
        assert not np.shares_memory(a, b)
        assert b.ctypes.data % 64 == 0
    first = a.ctypes.data
    room.clear()
    assert room.empty((2,), np.dtype("f8")).ctypes.data == first
    assert room.empty((0, 4), np.dtype("f8")).shape == (0, 4)
    large = room.empty((10_000,), np.dtype("f8"))
    assert len(large) == 10_000
    assert (a == 1).any()  # what is left of it is still there


def least_limit(source: Any, **options: Any) -> int:
    with pytest.raises(ValueError, match="memory_limit must be at least ") as info:
        KMeans(**{"n_clusters": 8, **options}, memory_limit=1000).fit(source)
    return int(str(info.value).split("at least ")[1].split(" ")[0].replace(",", ""))


def test_an_iteration_is_one_pass(tmp_path: Path) -> None:
    X = datasets.blobs(600, 3, 8, spread=6.0, seed=4)
    source = stored(X, tmp_path, 100)
    least = least_limit(source, init=X[:8])
    passes = {}
    for max_iter in (2, 7):
        model = cases.fit(source, X[:8], max_iter=max_iter, memory_limit=least)
        passes[max_iter] = model._passes
    assert passes[7] - passes[2] == 5


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("init", "most"),
    [("given", 0), ("random", 1), ("k-means||", 13), ("k-means++", 60)],
)
def test_how_often_a_file_is_read(
    init: str, most: float, weighted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three times before seeding, once by an iteration, and once for the final labels and costs.

    Seeds by k-means|| take two passes a round, and a few; the others one or two each.
    """
    monkeypatch.setattr(LocalEngine, "keep", lambda *_: 0)
    X = datasets.blobs(3000, 3, 30, spread=6.0, seed=4)
    weights = some_weights(3000) if weighted else None
    for iterations in (1, 3):
        source = open_blocks(Slices(X), block_rows=150)
        model = KMeans(30, init=X[:30] if init == "given" else init, n_init=1, random_state=0)
        model.set_params(max_iter=iterations, tol=0, checkpoint=tmp_path / f"{iterations}")
        model.fit(source, sample_weight=weights)
        seeding = model._passes - 3 - iterations - 1
        assert most / 2 <= seeding <= most
    assert f"passes over blocks that are not in memory: {model._passes:.3g};" in model.explain()


def test_answers_take_one_pass() -> None:
    X = datasets.blobs(600, 3, 8, spread=6.0, seed=4)
    model = KMeans(8, init=X[:8]).fit(X)
    for ask in (model.predict, model.score, model.transform):
        rows = Slices(X)
        source = open_blocks(rows, block_rows=100)
        rows.asked.clear()
        ask(source)
        # The first block twice, to see what it is.
        assert sorted(rows.asked) == [0, 0, 100, 200, 300, 400, 500]


class Slices:
    """Something with a shape that can be sliced."""

    def __init__(self, X: NDArray[Any]) -> None:
        self._X, self.shape = X, X.shape
        self.asked: list[int] = []

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        self.asked.append(rows.start)
        return self._X[rows].copy()


@pytest.mark.parametrize("weighted", [False, True])
def test_blocks_that_need_more_words_than_the_first(weighted: bool) -> None:
    """Sums of whole numbers take one word, those of later blocks several."""
    rng = np.random.default_rng(0)
    X = np.vstack([rng.integers(-4, 4, (200, 3)), rng.normal(size=(300, 3))])
    X[400:] *= 2.0 ** rng.integers(-60, 2, (100, 1))
    weights = rng.integers(1, 3, 500).astype(float) if weighted else None
    for rows in (X, Csr(X)):
        model = cases.fit(Counted(rows, 100), X[:5], weights, tol=1e-3)
        assert bits(model) == bits(cases.fit(rows, X[:5], weights, tol=1e-3))


def test_only_blocks_with_wanted_rows_are_read() -> None:
    X = datasets.blobs(100, 3, 4)
    source = Counted(X, 20)
    engine = engine_of(source)
    source.reads.clear()
    np.testing.assert_array_equal(engine.take(np.array([85, 3, 99])), X[[85, 3, 99]])
    assert {block for block, _ in source.reads} == {0, 4}


def test_blocks_that_fit_stay(tmp_path: Path) -> None:
    X = datasets.blobs(600, 3, 8, spread=6.0, seed=4)
    source = Counted(X, 100)
    cases.fit(source, X[:8])  # without a limit, all of it fits
    assert max(np.bincount([block for block, _ in source.reads])) <= 4
    limit = (least_limit(source, init=X[:8]) + 3 * 100 * 24) * 4 // 3 + 4
    source.reads.clear()
    KMeans(8, init=X[:8], tol=0, memory_limit=limit).fit(source)
    counts = np.bincount([block for block, _ in source.reads])
    assert counts[0] == counts[1] + 1 == counts[2] + 1 < counts[3] == counts[4] == counts[5]


def test_an_error_while_reading_reaches_the_caller() -> None:
    class Broken(Counted):
        def read(self, block: int) -> Any:
            if block == 3 and len(self.reads) > 12:
                raise OSError("the disk is gone")
            return super().read(block)

    model = KMeans(4, random_state=0)
    with pytest.raises(OSError, match="the disk is gone"):
        model.fit(Broken(datasets.blobs(100, 3, 4), 20))
    assert not hasattr(model, "labels_")
    names = [thread.name for thread in threading.enumerate()]
    assert not [name for name in names if name.startswith("exactmeans-read")]


def test_blocks_that_change_are_noticed() -> None:
    class Changing(Counted):
        def read(self, block: int) -> Any:
            rows = super().read(block)
            return rows[1:] if len(self.reads) > 12 else rows

    with pytest.raises(ValueError, match=r"X must give the same blocks each time, but block \d is"):
        KMeans(4, random_state=0).fit(Changing(datasets.blobs(100, 3, 4), 20))


@pytest.mark.parametrize("method", ["fit", "predict", "transform", "score"])
@pytest.mark.parametrize(("value", "word"), [(np.nan, "NaN"), (np.inf, "infinity")])
def test_rows_that_are_not_finite_are_named(
    method: str, value: float, word: str, tmp_path: Path
) -> None:
    X = datasets.blobs(100, 3, 4)
    model = KMeans(4, random_state=0).fit(X)
    X[77, 1] = X[88, 0] = value
    with pytest.raises(ValueError, match=f"X must be finite, but it contains {word}.*row is 77"):
        getattr(model, method)(stored(X, tmp_path, 10))


def test_predict_checks_the_width(tmp_path: Path) -> None:
    X = datasets.blobs(100, 3, 4)
    model = KMeans(4, random_state=0).fit(X)
    with pytest.raises(ValueError, match="X has 2 features, but KMeans is expecting 3"):
        model.predict(stored(X[:, :2], tmp_path))


# memory -------------------------------------------------------------------------------------------


def test_bounds_that_do_not_fit_are_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hungry(algorithm: str, *_: Any) -> int:
        return 500 if algorithm == "hamerly" else 0

    monkeypatch.setattr("exactmeans._core.bytes_per_row", hungry)
    X = datasets.blobs(2000, 3, 8, spread=6.0, seed=4)
    source = stored(X, tmp_path, 200)
    options: dict[str, Any] = {"init": X[:8], "algorithm": "hamerly"}
    frugal = KMeans(8, **options, memory_limit=least_limit(source, **options)).fit(source)
    assert frugal.algorithm_ == "lloyd"
    assert "lloyd (hamerly would take" in frugal.explain()
    roomy = KMeans(8, **options, memory_limit=10**9).fit(source)
    assert roomy.algorithm_ == "hamerly"
    assert bits(frugal) == bits(roomy)
    assert "passes over blocks" in roomy.explain()


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="reads peaks from /proc")
@pytest.mark.parametrize(
    ("layout", "init", "limit"),
    [
        ("dense", "k-means||", 0),
        ("dense", "k-means++", 16_000_000),
        ("csr", "k-means++", 24_000_000),
        ("parquet", "k-means||", 0),
        ("feather", "k-means||", 0),
        pytest.param("dense", "k-means++", 24_000_000, marks=pytest.mark.slow),
        pytest.param("csr", "k-means||", 0, marks=pytest.mark.slow),
        pytest.param("feather", "k-means++", 24_000_000, marks=pytest.mark.slow),
    ],
)
def test_memory_stays_within_the_limit(layout: str, init: str, limit: int, tmp_path: Path) -> None:
    """A file of more than twice or three times the limit, by what the operating system counts.

    Limit 0 stands for the least that is not refused.
    """
    X: NDArray[Any] | Any = np.zeros((60_000, 320), dtype=np.float32)
    rng = np.random.default_rng(0)
    for begin in range(0, len(X), 10_000):
        X[begin : begin + 10_000] = rng.random((10_000, 320), dtype=np.float32)
        X[begin : begin + 10_000, 0] += 3 * rng.integers(0, 4, 10_000)
    path = tmp_path / {"dense": "x.npy", "csr": "x.npz"}.get(layout, f"x.{layout}")
    if layout == "dense":
        np.save(path, X)
    elif layout in ("parquet", "feather"):
        table = pa.table({"v": pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), 320)})
        if layout == "feather":
            pyarrow.feather.write_feather(table, str(path), chunksize=1500)
        else:
            table = pa.table({f"c{f}": X[:, f] for f in range(320)})
            pq.write_table(table, path, row_group_size=3000)
        del table
    else:
        indices = np.tile(np.arange(160, dtype=np.int32), len(X))
        indptr = np.arange(len(X) + 1, dtype=np.int64) * 160
        data = X[:, :160].ravel()
        sp.save_npz(path, Csr((data, indices, indptr), (len(X), 320)), compressed=False)
    del X
    if not limit:
        options: dict[str, Any] = {"init": init, "algorithm": "hamerly", "n_clusters": 4}
        limit = least_limit(open_blocks(path, block_rows=1500), **options)
    assert path.stat().st_size > (2 if layout == "parquet" else 3) * limit
    code = f"""
        import numpy as np, scipy.sparse as sp
        from exactmeans import KMeans, open_blocks
        def status(name):
            for line in open("/proc/self/status"):
                if line.startswith(name):
                    return int(line.split()[1]) * 1024
        small = np.random.default_rng(0).random((4000, 320), dtype=np.float32)
        small = sp.csr_matrix(small) if {layout!r} == "csr" else small
        KMeans(4, init={init!r}).fit(small)  # threads and libraries
        del small
        if {layout!r} in ("parquet", "feather"):
            import pyarrow.dataset, pyarrow.ipc, pyarrow.parquet
        source = open_blocks({str(path)!r}, block_rows=1500)
        before = status("VmRSS")
        open("/proc/self/clear_refs", "w").write("5")
        rounds = {{"rounds": 2}} if {init!r} == "k-means||" else None
        model = KMeans(4, random_state=0, init={init!r}, init_options=rounds, max_iter=3,
                       algorithm="hamerly", memory_limit={limit})
        model.fit(source)
        assert (model.predict(source) == model.labels_).all()
        model.score(source)
        print(status("VmHWM") - before)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) <= limit


def test_state_of_rows_that_does_not_fit(tmp_path: Path) -> None:
    """Smaller blocks would not help: the sentence says what would."""
    source = stored(np.zeros((20_000, 2)), tmp_path, 100)
    with pytest.raises(ValueError, match=r"1,200,\d+ of them are for rows.* MiniBatchKMeans keeps"):
        KMeans(2, memory_limit="1MB").fit(source)
    source = stored(np.zeros((2_000, 20)), tmp_path, 1000)
    with pytest.raises(ValueError, match=r"of them are for reading, less with open_blocks"):
        KMeans(2, memory_limit="500KB").fit(source)


@pytest.mark.parametrize("method", ["sgd", "memoized"])
@pytest.mark.parametrize("form", ["array", "file"])
def test_mini_batches_keep_the_limit(method: Any, form: str, tmp_path: Path) -> None:
    X = datasets.blobs(5000, 3, 8, spread=6.0, seed=4)
    rows = stored(X, tmp_path, 500) if form == "file" else X
    model = MiniBatchKMeans(8, method=method, random_state=0, memory_limit="1KB")
    with pytest.raises(ValueError, match=rf"memory_limit must be .* for method='{method}'") as info:
        model.fit(rows)
    needed = int(str(info.value).split("at least ")[1].split(" ")[0].replace(",", ""))
    assert needed > 8 * len(X)
    model.set_params(memory_limit=needed).fit(rows)
    with pytest.raises(ValueError, match="memory_limit"):
        model.set_params(memory_limit=needed - 1).fit(rows)
    if form == "file":
        needs = {"sgd": 20, "memoized": 60}[method] * len(X)
        assert needs < needed < needs + 300_000


def test_answers_keep_the_limit(tmp_path: Path) -> None:
    X = datasets.blobs(5000, 3, 8, spread=6.0, seed=4)
    model = KMeans(8, random_state=0, memory_limit="1MB").fit(X)
    model.set_params(memory_limit=319_999)
    with pytest.raises(
        ValueError,
        match=r"at least 320,000 bytes for the 5,000 x 8 distances.*: transform fewer rows",
    ):
        model.transform(X)
    model.set_params(memory_limit=320_000).transform(X)
    model.set_params(memory_limit=39_999)
    for answer in (model.predict, model.score):
        with pytest.raises(ValueError, match=r"at least 40,000 bytes for the labels of 5,000 rows"):
            answer(X)
    source = stored(X, tmp_path, 500)
    with pytest.raises(ValueError, match=r"at least 88,000 bytes for the labels of 5,000 rows"):
        model.set_params(memory_limit=87_999).predict(source)
    assert len(model.set_params(memory_limit=88_000).predict(source)) == 5000


# blocks that need not be read ---------------------------------------------------------------------


def in_order(form: str) -> Any:
    """Rows by cluster, as files often are: blocks of far clusters settle early, others late."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(1200, 5)) + np.repeat(rng.normal(size=(6, 5)) * [[20.0]], 200, axis=0)
    X[800:] = rng.normal(size=(400, 5)) * 3  # two clusters that overlap
    X = X.astype(np.float32 if form.endswith("32") else np.float64)
    return Csr(X * (np.abs(X) > 0.5)) if form.startswith("csr") else X


@pytest.mark.parametrize("algorithm", ["hamerly", "elkan", "yinyang"])
@pytest.mark.parametrize("form", ["dense64", "dense32", "csr64"])
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_blocks_in_which_no_label_can_change_are_not_read(
    form: str, algorithm: str, metric: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalEngine, "keep", lambda *_: 0)
    X = in_order(form)
    options: dict[str, Any] = {
        "init": X[[0, 210, 420, 630, 850, 1100]],
        "tol": 0.0,
        "metric": metric,
        "algorithm": algorithm,
    }
    source, reads = Counted(X, 100), []

    def count(record: Any) -> None:
        reads.append(len(source.reads))

    model = KMeans(6, **options, callbacks=count).fit(source)
    assert bits(model) == bits(KMeans(6, **{**options, "algorithm": "lloyd"}).fit(X))
    blocks, records = len(source), model.history_
    assert [b - a for a, b in pairwise(reads)] == [blocks - r.unread for r in records[1:]]
    assert records[0].unread == 0
    assert sum(record.unread for record in records) > blocks
    assert all(record.skipped >= 100 * record.unread for record in records)
    assert f"; {model._unread} times a block was not read" in model.explain()


def test_auto_knows_what_reading_costs(tmp_path: Path) -> None:
    """Few centres: comparing is done before the next block is there, with or without bounds."""
    X = datasets.blobs(60_000, 40, 20, spread=6.0, seed=4).astype(np.float32)
    options: dict[str, Any] = {"max_iter": 2, "random_state": 0, "init": "random", "n_init": 1}
    told = []
    for k in (12, 20):
        model = KMeans(k, **options).fit(stored(X, tmp_path, 20_000))
        told.append((model._choice.algorithm, "longer to read than to compare" in model.explain()))
        assert KMeans(k, **options).fit(X)._choice.algorithm == "yinyang"
    assert told == [("lloyd", True), ("yinyang", False)]


def test_lloyd_reads_every_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalEngine, "keep", lambda *_: 0)
    X = in_order("dense64")
    model = KMeans(6, init=X[::200], algorithm="lloyd").fit(Counted(X, 100))
    assert {record.unread for record in model.history_} == {0}
