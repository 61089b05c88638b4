"""Sources of row blocks: every format gives the very rows, and what is wrong is said exactly."""

from __future__ import annotations

import gzip
import io
import pickle
import zipfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import anndata
import h5py
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import scipy.io
import scipy.sparse as sp
import zarr
from numpy.typing import NDArray

import exactmeans.data.lines
import exactmeans.data.source
import exactmeans.data.svmlight
import exactmeans.data.text
from cases import dense
from exactmeans import BlockSource, KMeans, MiniBatchKMeans, kmeans_plusplus, open_blocks

datasets_of_sklearn: Any = import_module("sklearn.datasets")

N, D = 97, 5


def numbers() -> NDArray[np.float64]:
    return np.random.default_rng(3).normal(size=(N, D))


def counts() -> Any:
    """CSR with empty rows, the first and the last among them, and an empty last column."""
    rng = np.random.default_rng(4)
    X = rng.integers(1, 9, (N, D)) * (rng.random((N, D)) < 0.4) * 1.0
    X[[0, 1, 50, N - 1]] = 0
    X[:, D - 1] = 0
    X[10, 2] = 0.1
    return sp.csr_matrix(X)


# Writers: (folder, X) -> what to open ------------------------------------------------------------


def _npy(folder: Path, X: NDArray[Any]) -> Any:
    np.save(folder / "x.npy", X)
    return folder / "x.npy"


def _csv(folder: Path, X: NDArray[Any], **options: Any) -> Any:
    pd.DataFrame(X, columns=list("abcde")).to_csv(folder / "x.csv", index=False, **options)
    return folder / "x.csv"


def _parquet(folder: Path, X: NDArray[Any], rows: int = 40) -> Any:
    pq.write_table(
        pa.table(dict(zip("abcde", X.T, strict=True))), folder / "x.parquet", row_group_size=rows
    )
    return folder / "x.parquet"


def _parquets(folder: Path, X: NDArray[Any]) -> Any:
    for name, part in (("b", X[30:31]), ("a", X[:30]), ("c", X[31:])):
        (folder / "parts" / name).mkdir(parents=True)
        _parquet(folder / "parts" / name, part)
    return str(folder / "parts")


def _embeddings(folder: Path, X: NDArray[Any]) -> Any:
    lists = pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), D)
    pq.write_table(pa.table({"v": lists}), folder / "x.parquet")
    return folder / "x.parquet"


def _feather(folder: Path, X: NDArray[Any], **options: Any) -> Any:
    table = pa.table(dict(zip("abcde", X.T, strict=True)))
    pyarrow.feather.write_feather(table, str(folder / "x.feather"), chunksize=33, **options)
    return folder / "x.feather"


def _h5(folder: Path, X: NDArray[Any]) -> Any:
    return h5py.File(folder / "x.h5", "w").create_dataset("x", data=X)


def _zarr(folder: Path, X: NDArray[Any]) -> Any:
    return zarr.create_array(str(folder / "x.zarr"), data=X, chunks=(20, D))


def _memmap(folder: Path, X: NDArray[Any]) -> Any:
    np.save(folder / "x.npy", X)
    return np.load(folder / "x.npy", mmap_mode="r")


def _backed(folder: Path, X: Any) -> Any:
    anndata.AnnData(X).write_h5ad(folder / "x.h5ad")
    return anndata.read_h5ad(folder / "x.h5ad", backed="r")


DENSE: dict[str, Callable[[Path, Any], Any]] = {
    "npy": _npy,
    "npy-fortran": lambda folder, X: _npy(folder, np.asfortranarray(X)),
    "npy-big-endian": lambda folder, X: _npy(folder, X.astype(">f8")),
    "csv": _csv,
    "csv-bare": lambda folder, X: _csv(folder, X, header=False),
    "csv-semicolons": lambda folder, X: _csv(folder, X, sep=";", lineterminator="\r\n"),
    "csv-quoted": lambda folder, X: _csv(folder, X, quoting=1),
    "parquet": _parquet,
    "parquet-groups": lambda folder, X: _parquet(folder, X, 7),
    "parquet-folder": _parquets,
    "parquet-lists": _embeddings,
    "feather": _feather,
    "feather-plain": lambda folder, X: _feather(folder, X, compression="uncompressed"),
    "h5py": _h5,
    "zarr": _zarr,
    "memmap": _memmap,
    "anndata": _backed,
    "array": lambda folder, X: X,
    "frame": lambda folder, X: pd.DataFrame(X),
    "list": lambda folder, X: [X[:40], X[40:]],
}


def _npz(folder: Path, X: Any, **options: Any) -> Any:
    sp.save_npz(folder / "x.npz", X, **options)
    return folder / "x.npz"


def _svm(folder: Path, X: Any, *, zero_based: bool = False) -> Any:
    path = folder / "x.svm"
    y = np.arange(X.shape[0]) % 3 - 1
    datasets_of_sklearn.dump_svmlight_file(X, y, str(path), zero_based=zero_based, comment="x")
    return path


def _mtx(folder: Path, X: Any, **options: Any) -> Any:
    scipy.io.mmwrite(folder / "x.mtx", X.tocsr(), **options)
    return folder / "x.mtx"


SPARSE: dict[str, Callable[[Path, Any], Any]] = {
    "npz": _npz,
    "npz-stored": lambda folder, X: _npz(folder, X, compressed=False),
    "svmlight": _svm,
    "svmlight-from-0": lambda folder, X: _svm(folder, X, zero_based=True),
    "mtx": _mtx,
    "anndata": _backed,
    "csr": lambda folder, X: X,
    "csr-array": lambda folder, X: sp.csr_array(X),
}
FORMATS = {**DENSE, **{f"{name}-csr": make for name, make in SPARSE.items()}}


def data_of(kind: str) -> Any:
    return counts() if kind.endswith("-csr") else numbers()


def whole(source: BlockSource) -> NDArray[Any]:
    return np.concatenate([dense(source.read(b)) for b in range(len(source))])


def options_of(kind: str) -> dict[str, Any]:
    if kind == "svmlight-csr":  # the file cannot say that there is an empty last column
        return {"columns": range(D), "zero_based": False}
    return {}


@pytest.mark.parametrize("rows", [None, 1, 8, 40, N, 1000])
@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_gives_the_rows(kind: str, rows: int | None, tmp_path: Path) -> None:
    X = data_of(kind)
    thing = FORMATS[kind](tmp_path, X)
    if kind == "list":
        rows = None
    if kind == "svmlight-from-0-csr":
        X = X[:, : X.indices.max() + 1]
    source: Any = open_blocks(thing, block_rows=rows, **options_of(kind))
    assert source.shape == X.shape
    assert source.sparse == sp.issparse(X)
    assert source.dtype == np.float64
    np.testing.assert_array_equal(whole(source), dense(X))
    if rows:
        assert all(source.read(b).shape[0] <= rows for b in range(len(source)))
    for b in (len(source) - 1, 0, len(source) // 2):  # in any order
        begin, end = source.edges[b : b + 2]
        np.testing.assert_array_equal(dense(source.read(b)), dense(X)[begin:end])
        assert sp.issparse(source.read(b)) == sp.issparse(X)
    with pytest.raises(IndexError):
        source.read(len(source))
    assert isinstance(source, BlockSource)


@pytest.mark.parametrize(
    "kind", [k for k in FORMATS if k not in ("h5py", "anndata", "anndata-csr")]
)
def test_sources_can_be_sent_elsewhere(kind: str, tmp_path: Path) -> None:
    source = open_blocks(FORMATS[kind](tmp_path, data_of(kind)))
    source.read(0)
    again = pickle.loads(pickle.dumps(source))
    np.testing.assert_array_equal(whole(again), whole(source))


@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8", "int64", "bool"])
def test_dtypes_are_kept(dtype: str, tmp_path: Path) -> None:
    X = np.abs(np.rint(numbers())).astype(dtype)
    for kind in ("npy", "h5py", "zarr", "memmap", "array"):
        source: Any = open_blocks(FORMATS[kind](tmp_path, X), block_rows=10)
        assert source.dtype == dtype
        assert source.read(0).dtype == dtype
        np.testing.assert_array_equal(whole(source), X)
        for path in tmp_path.glob("x.*"):
            path.rename(tmp_path / f"{path.name}.{kind}")
    single = dtype in ("float32", "float16")
    stored: Any = open_blocks(_parquet(tmp_path, X))
    assert stored.dtype == ("float32" if single else "float64")
    np.testing.assert_array_equal(whole(stored), X)


def test_default_blocks_are_of_a_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exactmeans.data.source, "BLOCK_BYTES", 800)
    monkeypatch.setattr(exactmeans.data.text, "BLOCK_BYTES", 800)
    monkeypatch.setattr(exactmeans.data.svmlight, "BLOCK_BYTES", 800)
    for kind in ("npy", "csv", "parquet", "h5py", "array", "memmap"):
        source: Any = open_blocks(FORMATS[kind](tmp_path, numbers()))
        sizes = [source.read(b).nbytes for b in range(len(source))]
        assert 5 <= len(sizes) <= 8
        assert max(sizes) <= 800
        np.testing.assert_array_equal(whole(source), numbers())
    for kind in ("npz-csr", "svmlight-csr", "mtx-csr", "csr-csr"):
        source = open_blocks(FORMATS[kind](tmp_path, counts()), **options_of(kind))
        assert len(source) > 3
        np.testing.assert_array_equal(whole(source), dense(counts()))


def test_text_in_small_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines are put together from chunks wherever those end."""
    for chunk in (1, 7, 64):
        monkeypatch.setattr(exactmeans.data.lines, "_CHUNK", chunk)
        for kind in ("csv", "csv-semicolons", "svmlight-csr", "mtx-csr"):
            thing = FORMATS[kind](tmp_path, data_of(kind))
            source = open_blocks(thing, block_rows=9, **options_of(kind))
            np.testing.assert_array_equal(whole(source), dense(data_of(kind)))


# several files, patterns, compressed files --------------------------------------------------------


def _three(folder: Path, suffix: str) -> list[Path]:
    """The rows of numbers() or counts() in three files."""
    paths = []
    for name, rows in (("a", slice(0, 30)), ("b", slice(30, 31)), ("c", slice(31, None))):
        path, X = folder / f"{name}{suffix}", numbers()[rows]
        frame = pd.DataFrame(X, columns=list("abcde"))
        if suffix == ".npy":
            np.save(path, X)
        elif suffix == ".parquet":
            frame.to_parquet(path)
        elif suffix == ".feather":
            frame.to_feather(path)
        elif suffix == ".npz":
            sp.save_npz(path, counts()[rows])
        elif suffix.startswith(".svm"):
            y = np.zeros(counts()[rows].shape[0])
            datasets_of_sklearn.dump_svmlight_file(counts()[rows], y, str(folder / "plain"))
            text = (folder / "plain").read_bytes()
            path.write_bytes(gzip.compress(text) if suffix.endswith(".gz") else text)
        else:
            frame.to_csv(path, index=False)
        paths.append(path)
    return paths


SUFFIXES = [".npy", ".parquet", ".feather", ".csv", ".csv.gz", ".npz", ".svm", ".svm.gz"]


@pytest.mark.parametrize("rows", [None, 8])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_several_files_are_one_source(suffix: str, rows: int | None, tmp_path: Path) -> None:
    paths = _three(tmp_path, suffix)
    options: dict[str, Any] = {"block_rows": rows}
    X = dense(counts()) if suffix in (".npz", ".svm", ".svm.gz") else numbers()
    if suffix.startswith(".svm"):  # widths differ by file
        options |= {"columns": range(D), "zero_based": True}
    for given in (paths, tuple(map(str, paths)), str(tmp_path / f"*{suffix}")):
        source = open_blocks(given, **options)
        assert source.shape == (N, D)
        np.testing.assert_array_equal(whole(source), X)
    again = pickle.loads(pickle.dumps(source))
    for b in (len(source) - 1, 0):
        np.testing.assert_array_equal(dense(again.read(b)), dense(source.read(b)))
    np.testing.assert_array_equal(whole(open_blocks(paths[::-1], **options))[-30:], X[:30])


@pytest.mark.parametrize("given", ["path", "text", "list", "pattern"])
def test_estimators_take_paths(given: str, tmp_path: Path) -> None:
    paths = _three(tmp_path, ".parquet")
    np.save(tmp_path / "x.npy", numbers())
    X = {
        "path": tmp_path / "x.npy",
        "text": str(tmp_path / "x.npy"),
        "list": paths,
        "pattern": str(tmp_path / "?.parquet"),
    }[given]
    model = KMeans(3, random_state=0).fit(X)
    expected = KMeans(3, random_state=0).fit(numbers())
    np.testing.assert_array_equal(model.labels_, expected.labels_)
    np.testing.assert_array_equal(model.predict(X), expected.labels_)
    np.testing.assert_array_equal(model.transform(X), expected.transform(numbers()))
    assert model.score(X) == expected.score(numbers())
    assert MiniBatchKMeans(3, random_state=0).fit(X).labels_.shape == (N,)
    np.testing.assert_array_equal(
        kmeans_plusplus(X, 3, random_state=0)[1], kmeans_plusplus(numbers(), 3, random_state=0)[1]
    )
    with pytest.raises(ValueError, match="init must not be a callable when X comes in blocks"):
        KMeans(3, init=lambda X, k, random_state: X[:k]).fit(X)


def test_paths_that_are_not_there(tmp_path: Path) -> None:
    for X in ("no.npy", tmp_path / "no.npy", ["no.npy"], str(tmp_path / "*.csv"), tmp_path / "no"):
        with pytest.raises(FileNotFoundError, match="there is no"):
            KMeans(2).fit(X)


def test_files_that_do_not_go_together(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", numbers())
    np.save(tmp_path / "b.npy", numbers()[:, :3])
    csv = _csv(tmp_path, numbers())
    with pytest.raises(ValueError, match=r"files of one width, but .* 5 columns and .* has 3\.$"):
        open_blocks([tmp_path / "a.npy", tmp_path / "b.npy"])
    with pytest.raises(ValueError, match=r"files of one kind, but a\.npy and x\.csv are not\.$"):
        open_blocks([tmp_path / "a.npy", csv])
    pd.DataFrame(numbers(), columns=list("abced")).to_csv(tmp_path / "y.csv", index=False)
    with pytest.raises(
        ValueError, match=r"same column names in the same order, but .*y\.csv differ"
    ):
        open_blocks([csv, tmp_path / "y.csv"])


def test_damaged_gzip_files_are_named(tmp_path: Path) -> None:
    path = _three(tmp_path, ".csv.gz")[2]
    good = path.read_bytes()
    for bad in (good[: len(good) // 2], b"no gzip", good[:50] + bytes(60) + good[110:]):
        path.write_bytes(bad)
        with pytest.raises(ValueError, match=r"c\.csv\.gz is not a whole gzip file: .*\.$"):
            whole(open_blocks(path))


def test_hive_partitions_are_columns(tmp_path: Path) -> None:
    X = numbers()
    frame = pd.DataFrame(X, columns=list("abcde"))
    frame["year"] = 2020 + (np.arange(N) > 40)
    frame["land"] = np.where(np.arange(N) % 2, "x", "y")
    frame.to_parquet(tmp_path / "parts", partition_cols=["year", "land"])
    with pytest.raises(ValueError, match="column 'land' holds string, not numbers; name the col"):
        open_blocks(tmp_path / "parts")
    names = ["year", *"abcde"]
    expected = frame.sort_values(["year", "land"], kind="stable")[names].to_numpy()
    for given in (tmp_path / "parts", str(tmp_path / "parts/*/*/*.parquet")):
        source: Any = open_blocks(given, columns=names, block_rows=10)
        assert source.feature_names == names
        np.testing.assert_array_equal(whole(source), expected)
        np.testing.assert_array_equal(whole(pickle.loads(pickle.dumps(source))), expected)
    del frame["land"]
    frame.to_parquet(tmp_path / "years", partition_cols=["year"])
    source = open_blocks(tmp_path / "years")
    assert source.feature_names == [*"abcde", "year"]
    np.testing.assert_array_equal(whole(source), frame[source.feature_names].to_numpy())
    twice = tmp_path / "years" / "year=2022"
    twice.mkdir()
    for folder in twice.parent.iterdir():
        frame.to_parquet(folder / "x.parquet")
        for file in folder.glob("*.parquet"):
            if file.name != "x.parquet":
                file.unlink()
    with pytest.raises(ValueError, match="column 'year' both in its files and in the names of its"):
        open_blocks(tmp_path / "years")


# columns ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [k for k in FORMATS if k != "parquet-lists"])
def test_columns_by_number(kind: str, tmp_path: Path) -> None:
    options = {**options_of(kind), "columns": [3, 0]}
    source = open_blocks(FORMATS[kind](tmp_path, data_of(kind)), **options)
    assert source.shape == (N, 2)
    np.testing.assert_array_equal(whole(source), dense(data_of(kind))[:, [3, 0]])


@pytest.mark.parametrize("kind", ["csv", "parquet", "parquet-folder", "feather"])
def test_columns_by_name(kind: str, tmp_path: Path) -> None:
    thing = FORMATS[kind](tmp_path, numbers())
    source = open_blocks(thing, columns=["e", "b"])
    np.testing.assert_array_equal(whole(source), numbers()[:, [4, 1]])
    with pytest.raises(ValueError, match=r"columns must be in .*, but 'z' is not: it has 'a', 'b'"):
        open_blocks(thing, columns="z")


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ([5], r"columns must lie in \[0, 5\) for .*x\.npy, but 5 does not\.$"),
        ([-1], "but -1 does not"),
        ("a", "has no column names"),
        ([1.5], r"columns must be names or numbers, but one is 1\.5\.$"),
        ([True], "but one is True"),
        ([], "columns must name at least one column"),
    ],
    ids=repr,
)
def test_columns_that_are_not_there(columns: Any, says: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=says):
        open_blocks(_npy(tmp_path, numbers()), columns=columns)


def test_columns_leave_out_text(tmp_path: Path) -> None:
    frame = pd.DataFrame({"name": ["x"] * 9, "v": np.arange(9.0), "w": np.arange(9)})
    frame.to_csv(tmp_path / "x.csv", index=False)
    frame.to_parquet(tmp_path / "x.parquet")
    for path in ("x.csv", "x.parquet"):
        source = open_blocks(tmp_path / path, columns=["w", "v"])
        np.testing.assert_array_equal(whole(source), frame[["w", "v"]].to_numpy(float))


# names in the first row of a CSV file -------------------------------------------------------------

#: First rows that header="auto" cannot tell, and what it says.
AMBIGUOUS = {
    "an empty cell": ("1,,3\n4,5,6\n", "column 1 of it is empty"),
    "an index without a name": (",a,b\n0,1.5,2.5\n", "column 0 of it is empty"),
    "text beside numbers": ("a,b,2020\n4,5,6\n", "it has text and numbers"),
    "years over whole numbers": ("2019,2020,2021\n4,5,6\n", "its numbers may be years"),
    "years, not one by one": ("2000,2020\n4,5\n", "its numbers may be years"),
    "years over decimals": (
        "2019,2020\n1.5,2.5\n",
        "it has whole numbers and the rows below have none",
    ),
    "numbers of columns": ("0,1,2\n7,5,9\n", "its numbers count up by one"),
    "numbers of two columns": ("0,1\n7,5\n", "its numbers count up by one"),
    "whole numbers over decimals": (
        "10,5\n1.5,2e3\n",
        "it has whole numbers and the rows below have none",
    ),
    "one number over decimals": (
        "0\n1.5\n2.5\n",
        "it has whole numbers and the rows below have none",
    ),
    "quoted numbers": ('"3","9"\n1,2\n', "its numbers are quoted and those below are not"),
}


@pytest.mark.parametrize("case", AMBIGUOUS)
def test_a_first_row_that_may_be_names_is_refused(case: str, tmp_path: Path) -> None:
    text, why = AMBIGUOUS[case]
    path = _write(text, "x.csv")(tmp_path)
    with pytest.raises(ValueError, match=rf"header must be True or False for .*: {why}\.$"):
        open_blocks(path)
    named: Any = open_blocks(path, header=True)
    assert named.shape[0] == text.count("\n") - 1
    assert named.names == [cell.strip('"') for cell in text.splitlines()[0].split(",")]
    bare: Any = open_blocks(path, header=False)
    assert bare.names is None
    assert bare.shape[0] == text.count("\n")


def test_missing_cells_of_the_first_row_are_named(tmp_path: Path) -> None:
    path = _write("1,,3\n4,5,6\n", "x.csv")(tmp_path)
    with pytest.raises(ValueError, match=r"row 0, column 1 is empty\.$"):
        whole(open_blocks(path, header=False))


@pytest.mark.parametrize(
    "text",
    [
        "1.5,2.5\n3.5,4.5\n",
        "1,2,3\n4,5,6\n",  # both rows count up
        "1,2\n3,5\n",
        "5,3,8\n1.5,2,3\n",
        "7,7\n1.5,2.5\n",
        "2019,2020\n2021,2022\n",
        "0,1,2\n",
        '"1","2"\n"3","5"\n',
    ],
)
def test_numbers_alone_are_rows(text: str, tmp_path: Path) -> None:
    path = _write(text, "x.csv")(tmp_path)
    rows = [[float(cell.strip('"')) for cell in row.split(",")] for row in text.splitlines()]
    assert whole(open_blocks(path)).tolist() == rows
    assert whole(open_blocks(path, header=False)).tolist() == rows


@pytest.mark.parametrize("value", [None, 1, 0, "yes", "True", [True]])
def test_header_is_checked(value: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"header must be True, False or 'auto', not"):
        open_blocks(_csv(tmp_path, numbers()), header=value)


def test_header_is_for_csv_files(tmp_path: Path) -> None:
    for thing in (_npy(tmp_path, numbers()), numbers(), [numbers()]):
        with pytest.raises(ValueError, match=r"header must be 'auto', not True: "):
            open_blocks(thing, header=True)


# where indices of svmlight files begin -----------------------------------------------------------


def test_the_index_base_is_given_or_guessed(tmp_path: Path) -> None:
    path = _write("1 1:5 3:7\n-1 2:6\n", "x.svm")(tmp_path)
    from_1, from_0 = [[5, 0, 7], [0, 6, 0]], [[0, 5, 0, 7], [0, 0, 6, 0]]
    assert whole(open_blocks(path)).tolist() == from_1
    assert whole(open_blocks(path, zero_based=False)).tolist() == from_1
    assert whole(open_blocks(path, zero_based=True)).tolist() == from_0
    assert whole(open_blocks(path, zero_based=True, columns=[3, 0])).tolist() == [[7, 0], [0, 0]]
    with pytest.raises(ValueError, match=r"zero_based must be True or False where columns are"):
        open_blocks(path, columns=range(4))  # a guess that no width would give away
    with pytest.raises(ValueError, match="zero_based must be True, False or 'auto', not 'yes'"):
        open_blocks(path, zero_based="yes")
    with pytest.raises(ValueError, match="zero_based must be 'auto', not True: "):
        open_blocks(_npy(tmp_path, numbers()), zero_based=True)
    other = _write("1 0:5\n", "y.svm")(tmp_path)
    with pytest.raises(ValueError, match=r"zero_based must be True or 'auto' .* has an index 0\.$"):
        open_blocks(other, zero_based=False)


def test_a_model_refuses_svmlight_columns_that_shifted(tmp_path: Path) -> None:
    """A file from 0 on in which no row has a 0: guessed, its columns would be one off."""
    rng = np.random.default_rng(0)
    X = rng.random((30, 4)) * [100, 1, 1, 1]
    known = _svm(tmp_path, sp.csr_matrix(X), zero_based=True)
    model = KMeans(3, random_state=0).fit(open_blocks(known))
    X[:, 0] = 0
    later = _svm(tmp_path, sp.csr_matrix(X), zero_based=True)
    with pytest.raises(ValueError, match=r"zero_based must be True for .*those of fit began at 0"):
        model.predict(open_blocks(later))
    found = model.predict(open_blocks(later, zero_based=True))
    np.testing.assert_array_equal(found, model.predict(sp.csr_matrix(X)))


def test_svmlight_lines_in_any_form(tmp_path: Path) -> None:
    text = "1,2 qid:3 2:5 1:4 # 9:9\n 3:6\n\n1.5\t1:1\t2:2\r\n-1\n"
    rows = [[4, 5, 0], [0, 0, 6], [1, 2, 0], [0, 0, 0]]
    for block_rows in (None, 1):
        source = open_blocks(_write(text, "x.svm")(tmp_path), block_rows=block_rows)
        assert whole(source).tolist() == rows
    headed: Any = open_blocks(_write("3 5 9\n0 0:1\n  \n8 3:2\n", "y.svm")(tmp_path))
    assert whole(headed).tolist() == [[1, 0, 0, 0, 0], [0] * 5, [0, 0, 0, 2, 0]]


# what is refused ----------------------------------------------------------------------------------


def _write(text: str | bytes, name: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        path = folder / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return write


def _cut(kind: str, share: float) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        path = Path(FORMATS[kind](folder, data_of(kind)))
        path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
        return path

    return write


def _saved(X: Any, name: str = "x.npy") -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        np.save(folder / name, X, allow_pickle=True)
        return folder / name

    return write


def _archive(**arrays: Any) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        X = counts()
        parts = {"indices": X.indices, "indptr": X.indptr, "format": b"csr", "data": X.data}
        parts = {**parts, "shape": X.shape, **arrays}
        np.savez(folder / "x.npz", **{k: v for k, v in parts.items() if v is not None})
        return folder / "x.npz"

    return write


def _other(kind: str, X: Any) -> Callable[[Path], Path]:
    return lambda folder: Path(FORMATS[kind](folder, X))


def _tables(*tables: Any) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        for t, table in enumerate(tables):
            pq.write_table(table, folder / f"{t}.parquet")
        return folder

    return write


def _csc(folder: Path) -> Path:
    sp.save_npz(folder / "x.npz", counts().tocsc())
    return folder / "x.npz"


def _dense_archive(folder: Path) -> Path:
    np.savez(folder / "x.npz", X=numbers())
    return folder / "x.npz"


def _corrupt(folder: Path) -> Path:
    """One byte of the deflated entries."""
    path = _npz(folder, counts())
    with zipfile.ZipFile(path) as archive:
        at = archive.getinfo("data.npy").header_offset + 60
    raw = bytearray(path.read_bytes())
    raw[at] ^= 255
    path.write_bytes(raw)
    return Path(path)


MM = "%%MatrixMarket matrix coordinate real general\n"
REFUSED: dict[str, tuple[Callable[[Path], Any], str]] = {
    "missing": (lambda folder: folder / "no.npy", "there is no .*no.npy"),
    "suffix": (_write("", "x.doc"), r"source must be .* end in \.npy, .*, but it is .*x\.doc"),
    "npy-empty": (_write(b"", "x.npy"), r"x\.npy is not a whole \.npy file"),
    "npy-foreign": (_write(b"PK" * 100, "x.npy"), "is not a whole .npy file"),
    "npy-cut": (_cut("npy", 0.5), r"x\.npy is cut short: \d+ bytes are missing\.$"),
    "npy-vector": (_saved(np.arange(5.0)), r"must be two-dimensional, but its shape is \(5,\)"),
    "npy-objects": (_saved(np.array([[None]])), "must hold real numbers, but its dtype is object"),
    "npy-complex": (_saved(np.ones((2, 2), complex)), "must hold real numbers"),
    "npy-text": (_saved(np.array([["a"]])), "must hold real numbers"),
    "npy-no-rows": (_saved(np.empty((0, 3))), r"x\.npy has no rows"),
    "npy-no-columns": (_saved(np.empty((3, 0))), r"x\.npy has no columns"),
    "npz-cut": (_cut("npz-csr", 0.9), r"x\.npz is not a whole \.npz file"),
    "npz-csc": (_csc, r"must hold a CSR matrix, but it holds csc: save X\.tocsr\(\)"),
    "npz-dense": (
        _dense_archive,
        "must be written by scipy.sparse.save_npz, but it holds X; dense rows go into an .npy",
    ),
    "npz-lacks": (_archive(indices=None), "lacks indices"),
    "npz-indptr": (_archive(indptr=np.arange(5)), r"\(indptr\) must have 98 entries"),
    "npz-falls": (
        _archive(indptr=np.r_[0, 5, 3, np.full(N - 2, 9)]),
        r"\(indptr\) must not decrease, but it does at row 1\.$",
    ),
    "npz-short": (_archive(data=np.ones(3)), r"\(data\) has 3 entries, but indptr promises \d+"),
    "npz-wide": (
        _archive(indices=np.where(np.arange(counts().nnz) == 7, 9, counts().indices)),
        r"x\.npz has 5 columns, but row \d+ has column 9\.$",
    ),
    "npz-corrupt": (_corrupt, r"x\.npz \(data\) is (damaged|not a whole)"),
    "csv-text": (
        _write("a,b\n1,2\n3,x\n", "x.csv"),
        r"x\.csv: row 1, column 'b': 'x' is not a number\.$",
    ),
    "csv-bare-text": (_write("1,2\n3,x\n", "x.csv"), "row 1, column 1: 'x' is not a number"),
    "csv-missing": (_write("a,b\n1,\n3,4\n", "x.csv"), r"row 0, column 'b' is empty\.$"),
    "csv-missing-later": (_write("1,2\n3,4\n,5\n", "x.csv"), r"row 2, column 0 is empty\.$"),
    "csv-missing-line": (_write("a\n1\n\n3\n", "x.csv"), r"row 1, column 'a' is empty\.$"),
    "csv-underscore": (_write("a,b\n1,1_0\n", "x.csv"), "column 'b': '1_0' is not a number"),
    "csv-ragged": (_write("a,b\n1,2\n3\n", "x.csv"), r"x\.csv: row 1 has 1 columns, not 2\.$"),
    "csv-long": (_write("a,b\n1,2\n3,4,5\n", "x.csv"), "row 1 has 3 columns, not 2"),
    "csv-all-long": (_write("a,b\n3,4,5\n", "x.csv"), "row 0 has 3 columns, not 2"),
    "csv-empty": (_write("", "x.csv"), r"x\.csv has no rows"),
    "csv-names-only": (_write("a,b\n", "x.csv"), r"x\.csv has no rows"),
    "svm-empty": (_write("# nothing\n\n", "x.svm"), r"x\.svm has no rows"),
    "svm-no-entries": (_write("1\n-1\n", "x.svm"), r"x\.svm has no entries"),
    "svm-text": (
        _write("1 1:2\n1 2:x\n", "x.svm"),
        r"x\.svm: row 1 has '2:x' where index:value is expected\.$",
    ),
    "svm-cut": (_write("1 1:2\n1 2\n", "x.svm"), "row 1 has '2' where index:value is expected"),
    "svm-twice": (_write("1 1:2\n# x\n1 3:1 2:1 3:2\n", "x.svm"), r"row 1 has index 3 twice\.$"),
    "svm-target": (_write("1 1:2\nx 1:2\n", "x.svm"), r"row 1 has 'x' for a target\.$"),
    "svm-colons": (_write("1 1:2:3\n", "x.svm"), "row 0 has '1:2:3' where index:value is"),
    "svm-fraction": (_write("1 1.5:2\n", "x.svm"), "row 0 has '1.5:2' where index:value is"),
    "svm-header-rows": (_write("3 2 1\n0 0:1\n", "x.svm"), "the 3 rows of its header, not 1"),
    "svm-header-features": (
        _write("1 2 1\n0 2:1\n", "x.svm"),
        "has 2 features by its header, but it has index 2",
    ),
    "mtx-foreign": (_write("1 1 1\n", "x.mtx"), "does not begin as a Matrix Market file does"),
    "mtx-array": (
        _write("%%MatrixMarket matrix array real general\n1 1\n1\n", "x.mtx"),
        "must be a general coordinate matrix, but it is general array",
    ),
    "mtx-complex": (
        _write("%%MatrixMarket matrix coordinate complex general\n1 1 1\n1 1 1 0\n", "x.mtx"),
        "must hold real numbers, but it is complex",
    ),
    "mtx-sizes": (_write(MM + "% c\n3 x 1\n", "x.mtx"), "lacks the line of rows, columns and"),
    "mtx-cut": (_write(MM + "3 3 3\n1 1 1\n2 2 1\n", "x.mtx"), "has 2 entries, but .* promises 3"),
    "mtx-entry": (_write(MM + "3 3 2\n1 1 1\n2 2\n", "x.mtx"), "entry 2 is '2 2', not 3 numbers"),
    "mtx-text": (_write(MM + "3 3 1\n1 1 x\n", "x.mtx"), "entry 1 is '1 1 x', not 3 numbers"),
    "mtx-outside": (
        _write(MM + "3 3 2\n1 1 1\n2 4 1\n", "x.mtx"),
        "entry 2 is outside of 3 rows and 3 columns",
    ),
    "mtx-order": (
        _write(MM + "3 3 2\n2 1 1\n1 2 1\n", "x.mtx"),
        r"must list its entries row by row, but entry 2 goes back: save X\.tocsr",
    ),
    "parquet-cut": (_cut("parquet", 0.7), r"x\.parquet is not a whole Parquet file"),
    "parquet-text": (
        _tables(pa.table({"v": [1.0], "name": ["x"]})),
        "column 'name' holds string, not numbers; name the columns to use with columns=",
    ),
    "parquet-names": (
        _tables(pa.table({"v": [1.0]}), pa.table({"w": [1.0]})),
        r"1\.parquet must have the columns of .*0\.parquet, but they differ in 'v'\.$",
    ),
    "parquet-widths": (
        _tables(pa.table({"v": [1.0]}), pa.table({"v": [1.0], "w": [1.0]})),
        "but they differ in 'w'",
    ),
    "parquet-types": (
        _tables(pa.table({"v": [1.0]}), pa.table({"v": [1]})),
        "but 'v' is int64, not double",
    ),
    "parquet-no-files": (lambda folder: folder, r"holds no \.parquet files"),
    "parquet-no-rows": (_tables(pa.table({"v": pa.array([], pa.float64())})), "has no rows"),
    "feather-cut": (_cut("feather", 0.7), r"x\.feather is not a whole Arrow IPC file"),
    "cube": (lambda folder: np.ones((2, 2, 2)), r"source must be two-dimensional"),
    "text-array": (lambda folder: np.array([["a"]]), "source must hold real numbers"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case: str, tmp_path: Path) -> None:
    make, says = REFUSED[case]
    thing = make(tmp_path)
    kind = FileNotFoundError if case == "missing" else ValueError
    with pytest.raises(kind, match=says) as info:
        whole(open_blocks(thing, block_rows=1))
    assert "\n" not in str(info.value)
    assert str(info.value).endswith(".")


@pytest.mark.parametrize("value", [3, None, b"x.npy", 1.5])
def test_what_is_no_source(value: Any) -> None:
    with pytest.raises(TypeError, match="source must be a path, a list of arrays, or something"):
        open_blocks(value)


@pytest.mark.parametrize("rows", [0, -1, 1.5, True, "8"])
def test_block_rows_is_checked(rows: Any) -> None:
    with pytest.raises(ValueError, match="block_rows must be None or an int of at least 1"):
        open_blocks(numbers(), block_rows=rows)


def test_lists_are_the_blocks() -> None:
    with pytest.raises(ValueError, match="block_rows must be None for a list of arrays"):
        open_blocks([numbers()], block_rows=2)
    source = open_blocks([numbers()])
    with pytest.raises(ValueError, match="columns and block_rows must be None"):
        open_blocks(source, columns=[1])


def test_a_file_that_shrinks_is_noticed(tmp_path: Path) -> None:
    for kind in ("npy", "csv", "svmlight-csr", "npz-stored-csr"):
        path = FORMATS[kind](tmp_path, data_of(kind))
        source = open_blocks(path, block_rows=10)
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 3])
        with pytest.raises(ValueError, match=path.name):
            whole(source)


def test_a_deflated_member_that_ends_early_is_noticed(tmp_path: Path) -> None:
    """Its header promises more than there is: skipping to a later block must end."""
    X = counts()
    path = _npz(tmp_path, X)
    raw = io.BytesIO()
    np.save(raw, X.data)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members["data.npy"] = raw.getvalue()[:-400]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    source = open_blocks(path, block_rows=10)
    with pytest.raises(ValueError, match=r"x\.npz \(data\) is cut short: \d+ bytes are missing\.$"):
        source.read(len(source) - 1)


def test_blocks_of_more_than_two_gigabytes_of_entries() -> None:
    """200 million entries of 12 bytes: more than int32 holds."""
    indptr = np.linspace(0, 200_000_000, 1001).astype(np.int32)
    edges = exactmeans.data.source.edges_by_entries(indptr, 12, None)
    sizes = np.diff(indptr[edges].astype(np.int64)) * 12
    assert len(edges) > 250
    assert sizes.max() <= exactmeans.data.source.BLOCK_BYTES
    wide = exactmeans.data.source.edges_by_entries(indptr.astype(np.int64), 12, None)
    np.testing.assert_array_equal(edges, wide)


def test_a_slice_of_another_shape_is_noticed() -> None:
    class Odd:
        shape = (10, 2)

        def __getitem__(self, rows: Any) -> Any:
            return np.zeros((rows.stop - rows.start, 2 + (rows.start > 0)))

    with pytest.raises(
        ValueError, match="must give 5 x 2 values for rows 5 to 10, but it gave 5 x 3"
    ):
        whole(open_blocks(Odd(), block_rows=5))


def test_without_pyarrow_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    path, other = _parquet(tmp_path, numbers()), _feather(tmp_path, numbers())
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for file in (path, other):
        with pytest.raises(ImportError, match=r"pip install exactmeans\[io\]\.$"):
            open_blocks(file)
