"""Files of every format that a source of blocks can be, with the rows that they hold."""

from __future__ import annotations

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
import scipy.io
import scipy.sparse as sp
import zarr
from numpy.typing import NDArray

from cases import dense
from exactmeans import BlockSource

dump_svmlight_file: Any = import_module("sklearn.datasets").dump_svmlight_file

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


def write_npy(folder: Path, X: NDArray[Any]) -> Any:
    np.save(folder / "x.npy", X)
    return folder / "x.npy"


def write_csv(folder: Path, X: NDArray[Any], **options: Any) -> Any:
    pd.DataFrame(X, columns=list("abcde")).to_csv(folder / "x.csv", index=False, **options)
    return folder / "x.csv"


def write_parquet(folder: Path, X: NDArray[Any], rows: int = 40) -> Any:
    pq.write_table(
        pa.table(dict(zip("abcde", X.T, strict=True))), folder / "x.parquet", row_group_size=rows
    )
    return folder / "x.parquet"


def write_parquets(folder: Path, X: NDArray[Any]) -> Any:
    for name, part in (("b", X[30:31]), ("a", X[:30]), ("c", X[31:])):
        (folder / "parts" / name).mkdir(parents=True)
        write_parquet(folder / "parts" / name, part)
    return str(folder / "parts")


def write_embeddings(folder: Path, X: NDArray[Any]) -> Any:
    lists = pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), D)
    pq.write_table(pa.table({"v": lists}), folder / "x.parquet")
    return folder / "x.parquet"


def write_feather(folder: Path, X: NDArray[Any], **options: Any) -> Any:
    table = pa.table(dict(zip("abcde", X.T, strict=True)))
    pyarrow.feather.write_feather(table, str(folder / "x.feather"), chunksize=33, **options)
    return folder / "x.feather"


def write_h5(folder: Path, X: NDArray[Any]) -> Any:
    return h5py.File(folder / "x.h5", "w").create_dataset("x", data=X)


def write_zarr(folder: Path, X: NDArray[Any]) -> Any:
    return zarr.create_array(str(folder / "x.zarr"), data=X, chunks=(20, D))


def write_memmap(folder: Path, X: NDArray[Any]) -> Any:
    np.save(folder / "x.npy", X)
    return np.load(folder / "x.npy", mmap_mode="r")


def write_backed(folder: Path, X: Any) -> Any:
    anndata.AnnData(X).write_h5ad(folder / "x.h5ad")
    return anndata.read_h5ad(folder / "x.h5ad", backed="r")


DENSE: dict[str, Callable[[Path, Any], Any]] = {
    "npy": write_npy,
    "npy-fortran": lambda folder, X: write_npy(folder, np.asfortranarray(X)),
    "npy-big-endian": lambda folder, X: write_npy(folder, X.astype(">f8")),
    "csv": write_csv,
    "csv-bare": lambda folder, X: write_csv(folder, X, header=False),
    "csv-semicolons": lambda folder, X: write_csv(folder, X, sep=";", lineterminator="\r\n"),
    "csv-quoted": lambda folder, X: write_csv(folder, X, quoting=1),
    "parquet": write_parquet,
    "parquet-groups": lambda folder, X: write_parquet(folder, X, 7),
    "parquet-folder": write_parquets,
    "parquet-lists": write_embeddings,
    "feather": write_feather,
    "feather-plain": lambda folder, X: write_feather(folder, X, compression="uncompressed"),
    "h5py": write_h5,
    "zarr": write_zarr,
    "memmap": write_memmap,
    "anndata": write_backed,
    "array": lambda folder, X: X,
    "frame": lambda folder, X: pd.DataFrame(X),
    "list": lambda folder, X: [X[:40], X[40:]],
}


def write_npz(folder: Path, X: Any, **options: Any) -> Any:
    sp.save_npz(folder / "x.npz", X, **options)
    return folder / "x.npz"


def write_svm(folder: Path, X: Any, *, zero_based: bool = False) -> Any:
    path = folder / "x.svm"
    y = np.arange(X.shape[0]) % 3 - 1
    dump_svmlight_file(X, y, str(path), zero_based=zero_based, comment="x")
    return path


def write_mtx(folder: Path, X: Any, **options: Any) -> Any:
    scipy.io.mmwrite(folder / "x.mtx", X.tocsr(), **options)
    return folder / "x.mtx"


SPARSE: dict[str, Callable[[Path, Any], Any]] = {
    "npz": write_npz,
    "npz-stored": lambda folder, X: write_npz(folder, X, compressed=False),
    "svmlight": write_svm,
    "svmlight-from-0": lambda folder, X: write_svm(folder, X, zero_based=True),
    "mtx": write_mtx,
    "anndata": write_backed,
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


def text_file(text: str | bytes, name: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        path = folder / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return write
