"""Files that are damaged or no rows of numbers: what is wrong is said exactly."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

import exactmeans.data.source
from exactmeans import open_blocks
from formats import (
    FORMATS,
    N,
    counts,
    data_of,
    numbers,
    text_file,
    whole,
    write_feather,
    write_npz,
    write_parquet,
)


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
    path = write_npz(folder, counts())
    with zipfile.ZipFile(path) as archive:
        at = archive.getinfo("data.npy").header_offset + 60
    raw = bytearray(path.read_bytes())
    raw[at] ^= 255
    path.write_bytes(raw)
    return Path(path)


MM = "%%MatrixMarket matrix coordinate real general\n"
REFUSED: dict[str, tuple[Callable[[Path], Any], str]] = {
    "missing": (lambda folder: folder / "no.npy", "there is no .*no.npy"),
    "suffix": (text_file("", "x.doc"), r"source must be .* end in \.npy, .*, but it is .*x\.doc"),
    "npy-empty": (text_file(b"", "x.npy"), r"x\.npy is not a whole \.npy file"),
    "npy-foreign": (text_file(b"PK" * 100, "x.npy"), "is not a whole .npy file"),
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
        text_file("a,b\n1,2\n3,x\n", "x.csv"),
        r"x\.csv: row 1, column 'b': 'x' is not a number\.$",
    ),
    "csv-bare-text": (text_file("1,2\n3,x\n", "x.csv"), "row 1, column 1: 'x' is not a number"),
    "csv-missing": (text_file("a,b\n1,\n3,4\n", "x.csv"), r"row 0, column 'b' is empty\.$"),
    "csv-missing-later": (text_file("1,2\n3,4\n,5\n", "x.csv"), r"row 2, column 0 is empty\.$"),
    "csv-missing-line": (text_file("a\n1\n\n3\n", "x.csv"), r"row 1, column 'a' is empty\.$"),
    "csv-underscore": (text_file("a,b\n1,1_0\n", "x.csv"), "column 'b': '1_0' is not a number"),
    "csv-ragged": (text_file("a,b\n1,2\n3\n", "x.csv"), r"x\.csv: row 1 has 1 columns, not 2\.$"),
    "csv-long": (text_file("a,b\n1,2\n3,4,5\n", "x.csv"), "row 1 has 3 columns, not 2"),
    "csv-all-long": (text_file("a,b\n3,4,5\n", "x.csv"), "row 0 has 3 columns, not 2"),
    "csv-empty": (text_file("", "x.csv"), r"x\.csv has no rows"),
    "csv-names-only": (text_file("a,b\n", "x.csv"), r"x\.csv has no rows"),
    "svm-empty": (text_file("# nothing\n\n", "x.svm"), r"x\.svm has no rows"),
    "svm-no-entries": (text_file("1\n-1\n", "x.svm"), r"x\.svm has no entries"),
    "svm-text": (
        text_file("1 1:2\n1 2:x\n", "x.svm"),
        r"x\.svm: row 1 has '2:x' where index:value is expected\.$",
    ),
    "svm-cut": (text_file("1 1:2\n1 2\n", "x.svm"), "row 1 has '2' where index:value is expected"),
    "svm-twice": (text_file("1 1:2\n# x\n1 3:1 2:1 3:2\n", "x.svm"), r"row 1 has index 3 twice\.$"),
    "svm-target": (text_file("1 1:2\nx 1:2\n", "x.svm"), r"row 1 has 'x' for a target\.$"),
    "svm-colons": (text_file("1 1:2:3\n", "x.svm"), "row 0 has '1:2:3' where index:value is"),
    "svm-fraction": (text_file("1 1.5:2\n", "x.svm"), "row 0 has '1.5:2' where index:value is"),
    "svm-header-rows": (text_file("3 2 1\n0 0:1\n", "x.svm"), "the 3 rows of its header, not 1"),
    "svm-header-features": (
        text_file("1 2 1\n0 2:1\n", "x.svm"),
        "has 2 features by its header, but it has index 2",
    ),
    "mtx-foreign": (text_file("1 1 1\n", "x.mtx"), "does not begin as a Matrix Market file does"),
    "mtx-array": (
        text_file("%%MatrixMarket matrix array real general\n1 1\n1\n", "x.mtx"),
        "must be a general coordinate matrix, but it is general array",
    ),
    "mtx-complex": (
        text_file("%%MatrixMarket matrix coordinate complex general\n1 1 1\n1 1 1 0\n", "x.mtx"),
        "must hold real numbers, but it is complex",
    ),
    "mtx-sizes": (text_file(MM + "% c\n3 x 1\n", "x.mtx"), "lacks the line of rows, columns and"),
    "mtx-cut": (
        text_file(MM + "3 3 3\n1 1 1\n2 2 1\n", "x.mtx"),
        "has 2 entries, but .* promises 3",
    ),
    "mtx-entry": (
        text_file(MM + "3 3 2\n1 1 1\n2 2\n", "x.mtx"),
        "entry 2 is '2 2', not 3 numbers",
    ),
    "mtx-text": (text_file(MM + "3 3 1\n1 1 x\n", "x.mtx"), "entry 1 is '1 1 x', not 3 numbers"),
    "mtx-outside": (
        text_file(MM + "3 3 2\n1 1 1\n2 4 1\n", "x.mtx"),
        "entry 2 is outside of 3 rows and 3 columns",
    ),
    "mtx-order": (
        text_file(MM + "3 3 2\n2 1 1\n1 2 1\n", "x.mtx"),
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
    path = write_npz(tmp_path, X)
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

    path, other = write_parquet(tmp_path, numbers()), write_feather(tmp_path, numbers())
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for file in (path, other):
        with pytest.raises(ImportError, match=r"pip install exactmeans\[io\]\.$"):
            open_blocks(file)
