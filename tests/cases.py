"""The one table of cases: every algorithm, layout, dtype and kind of weights, on all data.

A new algorithm needs one line in ALGORITHMS; a test fails when this table and the core's registry
disagree.
"""

from __future__ import annotations

import hashlib
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import astuple, dataclass
from functools import cache
from heapq import heapify, heappop, heapreplace
from itertools import combinations, pairwise
from typing import Any, TypeAlias

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray

import datasets
from exactmeans import KMeans, open_blocks
from oracle import is_sparse

Rows: TypeAlias = Any  # an array, a CSR matrix, or blocks of them
Weights: TypeAlias = NDArray[np.float64] | None

#: Every algorithm of the core; each must give plain Lloyd's bits on all cases below.
ALGORITHMS = ("lloyd", "elkan", "hamerly", "yinyang", "kdtree", "products", "pca", "moving")
#: Those that take rows of a family.
ABLE = {
    "dense": tuple(name for name in ALGORITHMS if name not in ("products", "moving")),
    "csr": tuple(name for name in ALGORITHMS if name not in ("kdtree", "pca")),
}


def able(X: Any) -> tuple[str, ...]:
    """The algorithms that take these rows."""
    return ABLE["csr" if is_sparse(X) else "dense"]


def skip_unless_able(algorithm: str, X: Any) -> None:
    if algorithm not in able(X):
        pytest.skip(f"{algorithm} does not take these rows")


DTYPES = ("float32", "float64")


# Layouts ------------------------------------------------------------------------------------------


def _strided(X: NDArray[Any]) -> NDArray[Any]:
    """Every other column of every third row, backwards: no stride is what it usually is."""
    n, d = X.shape
    room = np.full((3 * n, 2 * d), np.nan, dtype=X.dtype)
    view = room[::-3, ::-2]
    view[...] = X
    return view


def _csr(X: Any, index: str) -> Any:
    rows = sp.csr_matrix(X)
    rows.indices, rows.indptr = rows.indices.astype(index), rows.indptr.astype(index)
    return rows


def cut(X: Any, ends: list[int]) -> Any:
    """The rows of X as blocks that end at `ends` and at the end."""
    edges = [0, *ends, X.shape[0]]
    return open_blocks([X[a:b] for a, b in pairwise(edges)])


def _thirds(X: Any) -> Any:
    n = X.shape[0]
    return cut(X, [1, n // 3, n // 3 + 1, n - 7])


#: Ways to hand over the same rows. Within a family all must give the same bits; dense and CSR
#: rows add up scores differently and agree up to rounding ties.
LAYOUTS: dict[str, dict[str, Callable[[Any], Rows]]] = {
    "dense": {
        "C": np.ascontiguousarray,
        "F": np.asfortranarray,
        "strided": _strided,
        "blocks": _thirds,
    },
    "csr": {
        "int32": lambda X: _csr(X, "int32"),
        "int64": lambda X: _csr(X, "int64"),
        "array": sp.csr_array,
        "blocks": lambda X: _thirds(sp.csr_matrix(X)),
    },
}
PLAIN = {"dense": "C", "csr": "int32"}


# Data ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Data:
    """A set of datasets.py, the families that it is given in, and the tests that it allows."""

    name: str
    families: tuple[str, ...] = ("dense",)
    tie_free: bool = False  # no row is within rounding of a tie in any iteration of the case's run
    single: float = 1.0  # float32 rows are multiplied by this, to fit the range of float32


BOTH = ("dense", "csr")
DATA = {
    data.name: data
    for data in (
        Data("iris", BOTH),
        Data("digits", BOTH),
        Data("blobs_flat", tie_free=True),
        Data("blobs_overlapping", BOTH, tie_free=True),
        Data("blobs_wide", tie_free=True),
        Data("one_column", tie_free=True),
        Data("duplicates", BOTH),
        Data("few_distinct", BOTH),
        Data("lattice", BOTH),
        Data("far_from_origin"),
        Data("tiny_scale", BOTH, tie_free=True),
        Data("magnitude_1e200", BOTH, tie_free=True, single=1e-170),
        Data("magnitude_1e_200", BOTH, tie_free=True, single=1e170),
        Data("sparse_random", ("csr",), tie_free=True),
        Data("sparse_counts", ("csr",)),
        Data("sparse_unit", ("csr",)),
    )
}


def _no_weights(n: int) -> Weights:
    return None


def _random_weights(n: int) -> Weights:
    return np.random.default_rng(n).uniform(0.1, 3, n)


def _weights_with_zeros(n: int) -> Weights:
    rng = np.random.default_rng(n + 1)
    return rng.uniform(0.1, 3, n) * (rng.random(n) < 0.8)


WEIGHTS = {"none": _no_weights, "random": _random_weights, "zeros": _weights_with_zeros}


@dataclass(frozen=True)
class Case:
    """One problem; layouts and algorithms do not change its answer."""

    data: str
    family: str
    dtype: str
    weights: str

    def __str__(self) -> str:
        return f"{self.data}-{self.family}-{self.dtype}-{self.weights}"

    @property
    def k(self) -> int:
        return datasets.load(self.data).k

    @property
    def X(self) -> Any:  # noqa: N802
        """The rows in the family's plain layout."""
        return _rows(self.data, self.family, self.dtype)

    @property
    def sample_weight(self) -> Weights:
        return WEIGHTS[self.weights](self.X.shape[0])

    @property
    def init(self) -> NDArray[Any]:
        """Rows drawn without regard to equal ones, so that empty clusters come up too."""
        picks = np.random.default_rng(1).choice(self.X.shape[0], self.k, replace=False)
        return dense(self.X[picks])

    def fit(self, layout: str | None = None, **options: Any) -> KMeans:
        X = LAYOUTS[self.family][layout or PLAIN[self.family]](self.X)
        return fit(X, self.init, self.sample_weight, **options)


def fit(X: Rows, init: NDArray[Any], weights: Weights = None, **options: Any) -> KMeans:
    """A fit from given centres; too few distinct rows are no news to the caller."""
    options = {"tol": 0.0, "algorithm": "lloyd", **options}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Number of distinct clusters")
        return KMeans(len(init), init=init, **options).fit(X, sample_weight=weights)


@cache
def _rows(name: str, family: str, dtype: str) -> Any:
    data = datasets.load(name)
    X = data.X if dtype == "float64" else (data.X * DATA[name].single).astype(dtype)
    return LAYOUTS[family][PLAIN[family]](X)


def cases(*, tie_free: bool = False) -> Iterator[Case]:
    for data in DATA.values():
        for family in data.families:
            for dtype in DTYPES:
                for weights in WEIGHTS:
                    if data.tie_free or not tie_free:
                        yield Case(data.name, family, dtype, weights)


def params(found: Iterator[Case]) -> list[Any]:
    return [pytest.param(case, id=str(case)) for case in found]


def sampled(cross: Iterable[tuple[Any, ...]], *, one_in: int = 0) -> list[Any]:
    """Params of a full cross, of which a sample is quick and the others are `slow`.

    The sample has every pair of values that the cross has, and one in so many cases besides. It
    follows from the names of the values, so that it stays the same from run to run.
    """
    rows = list(cross)
    names = ["-".join(map(str, values)) for values in rows]
    hashes = [zlib.crc32(name.encode()) for name in names]
    quick = _with_every_pair([_parts(values) for values in rows], hashes)
    quick |= {at for at, found in enumerate(hashes) if one_in and found % one_in == 0}
    return [
        pytest.param(*values, id=name, marks=() if at in quick else (pytest.mark.slow,))
        for at, (values, name) in enumerate(zip(rows, names, strict=True))
    ]


def _parts(values: tuple[Any, ...]) -> list[str]:
    """A case counts as what it is made of."""
    split = (astuple(value) if isinstance(value, Case) else (value,) for value in values)
    return [str(part) for parts in split for part in parts]


def _with_every_pair(rows: list[list[str]], order: list[int]) -> set[int]:
    """Places of few rows that have every pair of values which any row has.

    Greedily: rows with the most new pairs first, by `order` among equals.
    """
    pairs = [set(combinations(enumerate(row), 2)) for row in rows]
    heap = [(-len(own), order[at], at) for at, own in enumerate(pairs)]
    heapify(heap)
    chosen, seen = set[int](), set[Any]()
    while heap:
        most, _, at = heap[0]
        new = len(pairs[at] - seen)
        if new == 0:
            heappop(heap)
        elif new < -most:  # some were taken since; others may have more
            heapreplace(heap, (-new, order[at], at))
        else:
            heappop(heap)
            chosen.add(at)
            seen |= pairs[at]
    return chosen


# Answers ------------------------------------------------------------------------------------------


def dense(X: Any) -> NDArray[Any]:
    return np.asarray(X.toarray() if is_sparse(X) else X)


Bits: TypeAlias = tuple[Any, ...]


def bits(model: KMeans) -> Bits:
    """All that must not depend on how a fit was computed, to the last bit."""
    centres: Any = model.cluster_centers_
    dense = isinstance(centres, np.ndarray)
    parts = (centres,) if dense else (centres.data, centres.indices)
    return (
        model.labels_.tobytes(),
        centres.dtype.name,
        b"".join(part.tobytes() for part in parts),
        float(model.inertia_).hex(),
        model.n_iter_,
        [(float(r.inertia).hex(), float(r.shift).hex(), r.changed) for r in model.history_],
    )


def digest(*, full: bool) -> str:
    """One word for the bits of many fits, to compare processes by; of a sample unless `full`."""
    cross = [(case, algorithm) for case in cases() for algorithm in ABLE[case.family]]
    wanted = [tuple(one.values) for one in sampled(cross) if full or not one.marks]
    seen = hashlib.sha256()
    for case, algorithm in wanted:
        if case.weights != "none":
            model = case.fit(algorithm=algorithm, max_iter=20)
            seen.update(repr((str(case), algorithm, bits(model))).encode())
            seen.update(model.predict(case.X[::-1]).tobytes())
            seen.update(model.transform(case.X).tobytes())
    return seen.hexdigest()
