"""Sources of row blocks: every format gives the very rows."""

from __future__ import annotations

import gzip
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import exactmeans.data.lines
import exactmeans.data.source
import exactmeans.data.svmlight
import exactmeans.data.text
from cases import dense
from exactmeans import BlockSource, KMeans, MiniBatchKMeans, kmeans_plusplus, open_blocks
from formats import (
    FORMATS,
    D,
    N,
    counts,
    data_of,
    dump_svmlight_file,
    numbers,
    options_of,
    text_file,
    whole,
    write_csv,
    write_npy,
    write_parquet,
    write_svm,
)


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
    stored: Any = open_blocks(write_parquet(tmp_path, X))
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
            dump_svmlight_file(counts()[rows], y, str(folder / "plain"))
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
    csv = write_csv(tmp_path, numbers())
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
        open_blocks(write_npy(tmp_path, numbers()), columns=columns)


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
    path = text_file(text, "x.csv")(tmp_path)
    with pytest.raises(ValueError, match=rf"header must be True or False for .*: {why}\.$"):
        open_blocks(path)
    named: Any = open_blocks(path, header=True)
    assert named.shape[0] == text.count("\n") - 1
    assert named.names == [cell.strip('"') for cell in text.splitlines()[0].split(",")]
    bare: Any = open_blocks(path, header=False)
    assert bare.names is None
    assert bare.shape[0] == text.count("\n")


def test_missing_cells_of_the_first_row_are_named(tmp_path: Path) -> None:
    path = text_file("1,,3\n4,5,6\n", "x.csv")(tmp_path)
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
    path = text_file(text, "x.csv")(tmp_path)
    rows = [[float(cell.strip('"')) for cell in row.split(",")] for row in text.splitlines()]
    assert whole(open_blocks(path)).tolist() == rows
    assert whole(open_blocks(path, header=False)).tolist() == rows


@pytest.mark.parametrize("value", [None, 1, 0, "yes", "True", [True]])
def test_header_is_checked(value: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"header must be True, False or 'auto', not"):
        open_blocks(write_csv(tmp_path, numbers()), header=value)


def test_header_is_for_csv_files(tmp_path: Path) -> None:
    for thing in (write_npy(tmp_path, numbers()), numbers(), [numbers()]):
        with pytest.raises(ValueError, match=r"header must be 'auto', not True: "):
            open_blocks(thing, header=True)


# where indices of svmlight files begin -----------------------------------------------------------


def test_the_index_base_is_given_or_guessed(tmp_path: Path) -> None:
    path = text_file("1 1:5 3:7\n-1 2:6\n", "x.svm")(tmp_path)
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
        open_blocks(write_npy(tmp_path, numbers()), zero_based=True)
    other = text_file("1 0:5\n", "y.svm")(tmp_path)
    with pytest.raises(ValueError, match=r"zero_based must be True or 'auto' .* has an index 0\.$"):
        open_blocks(other, zero_based=False)


def test_a_model_refuses_svmlight_columns_that_shifted(tmp_path: Path) -> None:
    """A file from 0 on in which no row has a 0: guessed, its columns would be one off."""
    rng = np.random.default_rng(0)
    X = rng.random((30, 4)) * [100, 1, 1, 1]
    known = write_svm(tmp_path, sp.csr_matrix(X), zero_based=True)
    model = KMeans(3, random_state=0).fit(open_blocks(known))
    X[:, 0] = 0
    later = write_svm(tmp_path, sp.csr_matrix(X), zero_based=True)
    with pytest.raises(ValueError, match=r"zero_based must be True for .*those of fit began at 0"):
        model.predict(open_blocks(later))
    found = model.predict(open_blocks(later, zero_based=True))
    np.testing.assert_array_equal(found, model.predict(sp.csr_matrix(X)))


def test_svmlight_lines_in_any_form(tmp_path: Path) -> None:
    text = "1,2 qid:3 2:5 1:4 # 9:9\n 3:6\n\n1.5\t1:1\t2:2\r\n-1\n"
    rows = [[4, 5, 0], [0, 0, 6], [1, 2, 0], [0, 0, 0]]
    for block_rows in (None, 1):
        source = open_blocks(text_file(text, "x.svm")(tmp_path), block_rows=block_rows)
        assert whole(source).tolist() == rows
    headed: Any = open_blocks(text_file("3 5 9\n0 0:1\n  \n8 3:2\n", "y.svm")(tmp_path))
    assert whole(headed).tolist() == [[1, 0, 0, 0, 0], [0] * 5, [0, 0, 0, 2, 0]]
