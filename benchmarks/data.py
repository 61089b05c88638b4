"""Data sets by short name, and the starting centres every contender shares."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

from .sources import TEXT, read
from .sources import missing as missing_file

__all__ = ["load", "missing", "shuffled", "start"]

KEPT = {"covtype": 150_000, "mnist": 60_000}  # rows
# Rows of whole numbers are often at exactly the same distance from two initial centres. Libraries
# break such ties differently, and so end in other clusterings. Noise far below the differences of
# the data removes ties and duplicate rows.
JITTERED = {"covtype", "letter"}
# Sets of few rows, repeated with noise of this many standard deviations to this many rows.
REPEATED = {"minilm_repeated": ("minilm", 100_000, 0.3)}


def missing(name: str) -> str | None:
    """Why the data cannot be had, or None."""
    return missing_file(REPEATED[name][0] if name in REPEATED else name)


def load(name: str, dtype: str, max_rows: int | None = None) -> Any:
    """An ndarray, or a CSR matrix for text; `normal-<n>x<d>` is synthetic."""
    X: Any
    if name == "iris":
        from sklearn.datasets import load_iris

        X = load_iris().data
    elif name.startswith("normal-"):
        n, d = map(int, name.removeprefix("normal-").split("x"))
        X = np.random.default_rng(0).standard_normal((n, d))
    elif name == "norm25":  # 25 unit Gaussians around centres drawn in a cube of side 500
        rng = np.random.default_rng(25)
        X = rng.uniform(0, 500, (25, 15))[np.arange(10_000) % 25] + rng.normal(size=(10_000, 15))
    elif name in REPEATED:
        source, n, noise = REPEATED[name]
        rows = np.asarray(read(source), dtype=np.float32)
        X = rows[np.arange(min(n, max_rows or n)) % len(rows)]
        X += noise * rows.std() * np.random.default_rng(0).standard_normal(X.shape, np.float32)
    elif name in TEXT:
        from sklearn.feature_extraction.text import TfidfTransformer

        counts = sp.csr_matrix(read(name), dtype=np.float64)
        X = TfidfTransformer().fit_transform(counts[:max_rows])
        X.sort_indices()
    else:
        X = np.asarray(read(name)[: KEPT.get(name)][:max_rows], dtype=np.float64)
        if name in JITTERED:
            X += np.random.default_rng(0).uniform(-1e-3, 1e-3, X.shape)
    X = X[:max_rows]
    return np.ascontiguousarray(X, dtype) if isinstance(X, np.ndarray) else X.astype(dtype)


def start(X: Any, k: int) -> tuple[Any, int]:
    """k distinct random rows as an array, and the seed that drew them.

    superkmeans cannot be given centres: it starts from the first k rows of
    `std::shuffle(std::mt19937(seed))`. So the rows are drawn that way for everybody. The first
    seed whose rows all differ is taken: equal centres would bring the libraries' different rules
    for empty clusters into play.

    Text rows all have norm 1, so a row that shares no term with any starting row ties between all
    of them and the last bit of a norm decides. There the centres are shrunk, each a little more
    than the one before (0.1 % at most), which every library sees alike.
    """
    rows: Any = None
    for seed in range(42, 74):
        rows = X[shuffled(X.shape[0], seed)[:k]]
        rows = rows.copy() if isinstance(rows, np.ndarray) else rows.toarray()
        if len({row.tobytes() for row in rows}) == k:
            break
    if sp.issparse(X):
        rows *= (1 - 1e-3 * np.arange(k, dtype=rows.dtype) / k)[:, None]
    return rows, seed


def shuffled(n: int, seed: int) -> Any:
    """0..n-1 in the order libstdc++'s std::shuffle gives with a 32-bit Mersenne twister."""
    order = list(range(n))
    words = _words(seed)
    i = 1
    if (2**32 - 1) // n >= n:  # small n: one draw serves two swaps
        if n % 2 == 0:
            j = _below(words, 2)
            order[1], order[j] = order[j], order[1]
            i = 2
        while i < n:
            for j in divmod(_below(words, (i + 1) * (i + 2)), i + 2):
                order[i], order[j] = order[j], order[i]
                i += 1
    while i < n:
        j = _below(words, i + 1)
        order[i], order[j] = order[j], order[i]
        i += 1
    return np.array(order)


def _words(seed: int) -> Iterator[int]:
    state = np.random.RandomState(seed)  # seeds the twister as std::mt19937 does
    while True:
        yield from state.randint(0, 2**32, size=4096, dtype=np.uint32).tolist()


def _below(words: Iterator[int], bound: int) -> int:
    """A draw from 0..bound-1 by multiplication with rejection, as uniform_int_distribution does."""
    product = next(words) * bound
    while product % 2**32 < (2**32 - bound) % bound:
        product = next(words) * bound
    return product >> 32
