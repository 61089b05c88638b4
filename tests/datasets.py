"""Named test data: small sets made here or shipped with scikit-learn, and samples of real ones.

Real sets come from the folder in EXACTMEANS_DATA (default: ../shared/data beside the repository);
a test that needs one is skipped where the folder is missing. Every set is made once per process.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray

# Loaded by name because scikit-learn has no types: no import for mypy to complain about.
toy: Any = import_module("sklearn.datasets")

ROOT = Path(__file__).resolve().parents[1]
Maker = Callable[[], Any]
MAKERS: dict[str, tuple[int, Maker]] = {}
REAL: list[str] = []


@dataclass(frozen=True)
class Dataset:
    """Rows in float64 (dense C order or CSR) and a number of clusters that suits them."""

    name: str
    X: Any
    k: int

    @property
    def is_sparse(self) -> bool:
        return bool(sp.issparse(self.X))

    def astype(self, dtype: str) -> Any:
        return self.X.astype(dtype)


def _set(k: int, *, real: bool = False) -> Callable[[Maker], Maker]:
    def register(make: Maker) -> Maker:
        name = make.__name__.removeprefix("_")
        MAKERS[name] = (k, make)
        if real:
            REAL.append(name)
        return make

    return register


@cache
def load(name: str) -> Dataset:
    """The named set; skips the calling test when its file is missing."""
    k, make = MAKERS[name]
    X = make()
    if isinstance(X, np.ndarray):
        X = np.ascontiguousarray(X, dtype=np.float64)
        X.flags.writeable = False  # shared by all tests, which must not change it
    return Dataset(name, X, k)


def names(*, real: bool | None = None, sparse: bool | None = None) -> list[str]:
    """Names to parametrize over, without making any data."""
    return [
        name for name in MAKERS if real in (None, name in REAL) and sparse in (None, name in SPARSE)
    ]


def data_folder() -> Path:
    return Path(os.environ.get("EXACTMEANS_DATA") or ROOT / ".." / "shared" / "data")


def data_file(name: str) -> Path:
    path = data_folder() / name
    if not path.exists():
        pytest.skip(f"{name} is not in the data folder (set EXACTMEANS_DATA)")
    return path


def _rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def blobs(n: int, d: int, centres: int, *, spread: float = 1.0, seed: int = 0) -> NDArray[Any]:
    """Gaussian clusters around centres drawn in a cube of side 20."""
    rng = _rng(seed)
    middle = rng.uniform(-10, 10, (centres, d))
    return middle[rng.integers(centres, size=n)] + rng.normal(0, spread, (n, d))


@_set(3)
def _iris() -> Any:
    return toy.load_iris().data


@_set(10)
def _digits() -> Any:
    return toy.load_digits().data


@_set(3)
def _wine() -> Any:
    return toy.load_wine().data


@_set(5)
def _blobs_flat() -> Any:
    return blobs(500, 2, 5)


@_set(8)
def _blobs_overlapping() -> Any:
    return blobs(600, 5, 8, spread=6.0, seed=1)


@_set(20)
def _blobs_many() -> Any:
    return blobs(1000, 16, 20, seed=2)


@_set(4)
def _blobs_wide() -> Any:
    return blobs(60, 300, 4, spread=4.0, seed=3)


@_set(4)
def _one_column() -> Any:
    return blobs(200, 1, 4, seed=4)


@_set(6)
def _duplicates() -> Any:
    """400 rows, at most 27 distinct ones."""
    return _rng(5).integers(0, 3, (400, 3))


@_set(6)
def _few_distinct() -> Any:
    """Fewer distinct rows than clusters: empties that no repair can fill."""
    return np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0], [5.0, 5.0]])[_rng(6).integers(4, size=50)]


@_set(5)
def _far_from_origin() -> Any:
    return blobs(400, 4, 5, seed=7) + 1e6


@_set(5)
def _tiny_scale() -> Any:
    return blobs(400, 4, 5, seed=8) * 1e-9


@_set(5)
def _magnitude_1e200() -> Any:
    return blobs(300, 4, 5, seed=9) * 1e200


@_set(5)
def _magnitude_1e_200() -> Any:
    return blobs(300, 4, 5, seed=10) * 1e-200


@_set(9)
def _lattice() -> Any:
    """Integer grid: midpoints between centres tie exactly, whatever the arithmetic."""
    side = np.arange(15.0)
    return np.stack(np.meshgrid(side, side, indexing="ij"), axis=-1).reshape(-1, 2)


@_set(8)
def _one_hot() -> Any:
    """Six categories of four values each as 24 columns of 0 and 1: exact ties everywhere."""
    return np.eye(4)[_rng(16).integers(4, size=(1000, 6))].reshape(1000, 24)


def _random_csr(n: int, d: int, density: float, seed: int) -> Any:
    rng = _rng(seed)
    X = rng.random((n, d)) * (rng.random((n, d)) < density)
    X[rng.choice(n, n // 20, replace=False)] = 0
    X[:, rng.choice(d, d // 10, replace=False)] = 0
    return sp.csr_matrix(X)


@_set(6)
def _sparse_random() -> Any:
    """CSR with empty rows and empty columns."""
    return _random_csr(400, 80, 0.08, 11)


@_set(8)
def _sparse_counts() -> Any:
    """Small counts in CSR: exact ties and duplicate rows."""
    X = _rng(12).poisson(0.15, (500, 40)).astype(np.float64)
    X[::25] = 0
    return sp.csr_matrix(X)


@_set(12)
def _sparse_unit() -> Any:
    """Unit rows, most of which share no feature with any given centre."""
    return unit_rows(_random_csr(500, 400, 0.01, 13))


def unit_rows(X: Any) -> Any:
    """CSR rows divided by their norms; empty rows stay empty."""
    X = sp.csr_matrix(X, dtype=np.float64, copy=True)
    norm = np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())
    X.data /= np.repeat(norm, np.diff(X.indptr))
    return X


def tfidf(counts: Any) -> Any:
    """Unit TF-IDF rows with smooth idf, float64."""
    n, d = counts.shape
    df = np.bincount(counts.indices, minlength=d)
    weighted = sp.csr_matrix(counts, dtype=np.float64, copy=True)
    weighted.data *= (np.log((n + 1) / (df + 1)) + 1)[weighted.indices]
    return unit_rows(weighted)


def _sample(n: int, size: int, seed: int) -> NDArray[np.intp]:
    return np.sort(_rng(seed).choice(n, size, replace=False))


def _text(name: str, size: int) -> Any:
    counts = sp.csr_matrix(sp.load_npz(data_file(f"{name}.counts.npz")))
    return tfidf(counts[_sample(counts.shape[0], size, 14)])


def _table(name: str, size: int) -> NDArray[Any]:
    with np.load(data_file(f"{name}.npz"), allow_pickle=False) as archive:
        X = archive["X"]
    return np.asarray(X[_sample(len(X), min(size, len(X)), 15)], dtype=np.float64)


@_set(20, real=True)
def _news() -> Any:
    return _text("20news", 2000)


@_set(15, real=True)
def _titles() -> Any:
    """Very short texts, some of them empty."""
    return _text("stackoverflow_titles", 3000)


@_set(10, real=True)
def _mnist() -> Any:
    return _table("mnist_train", 2000)


@_set(20, real=True)
def _letter() -> Any:
    """Small integers in 16 columns: duplicates and exact ties in real data."""
    return _table("letter", 3000)


@_set(10, real=True)
def _covtype() -> Any:
    """Integers of many sizes beside 44 columns of 0 and 1."""
    return _table("covtype", 3000)


@_set(10, real=True)
def _w8a() -> Any:
    """300 columns of 0 and 1, a dozen ones a row: rows without any, duplicates, exact ties."""
    X, _ = toy.load_svmlight_file(str(data_file("small/w8a.svm")), n_features=300)
    return sp.csr_matrix(X[_sample(X.shape[0], 3000, 17)])


@_set(12, real=True)
def _kdd() -> Any:
    """Columns of wildly different scales, masses of duplicates."""
    return _table("kddcup99_10pct_num38", 3000)


SPARSE = frozenset({"sparse_random", "sparse_counts", "sparse_unit", "news", "titles", "w8a"})
