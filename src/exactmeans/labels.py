"""Labels of multi-label data as rows: each label is the sum of the rows that carry it.

Clustering these rows groups labels that occur with the same features, which is how partitions of
extreme multi-label problems are made.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from exactmeans._centres import normalise
from exactmeans._validation import as_csr, check_dtype, check_n_jobs

__all__ = ["Representations", "load_svmlight", "representations"]


class Representations(NamedTuple):
    """Labels as unit rows, and which labels they are."""

    X: Any  # CSR, labels that are kept by features
    kept: NDArray[np.intp]  # which label each row is
    dropped: NDArray[np.intp]  # labels that no row carries, or only rows without features


def representations(Y: Any, Z: Any, *, n_jobs: int | None = None) -> Representations:
    """Rows of YᵀZ, each divided by its length.

    Parameters
    ----------
    Y : sparse matrix or array of shape (n_samples, n_labels)
        Which rows carry which labels: nonzero if they do. Values do not matter.
    Z : sparse matrix or array of shape (n_samples, n_features)
        Features of the rows, for example TF-IDF.
    n_jobs : int or None, default=None
        Threads to use; the result does not depend on it.

    Returns
    -------
    Representations
        `X` of shape (labels kept, n_features), `kept` and `dropped`.

    Examples
    --------
    >>> import numpy as np
    >>> from exactmeans.labels import representations
    >>> Y = np.array([[1, 0, 0], [1, 1, 0]])
    >>> Z = np.array([[3.0, 0.0], [0.0, 4.0]])
    >>> labels = representations(Y, Z)
    >>> labels.X.toarray().tolist()
    [[0.6, 0.8], [0.0, 1.0]]
    >>> labels.dropped.tolist()
    [2]
    """
    has, features = _checked(Y, "Y"), _checked(Z, "Z")
    if has.shape[0] != features.shape[0]:
        raise ValueError(
            f"Y and Z must have one number of rows, but they have {has.shape[0]} and "
            f"{features.shape[0]}."
        )
    if not np.isfinite(features.data).all():
        raise ValueError("Z must be finite, but it contains NaN or infinity (inf).")
    real = features.dtype if features.dtype == np.float32 else np.dtype(np.float64)
    has.eliminate_zeros()
    ones = sp.csr_array((np.ones(has.nnz, dtype=real), has.indices, has.indptr), shape=has.shape)
    carried: Any = sp.csr_array(ones.T)
    product = _product(carried, features.astype(real), check_n_jobs(n_jobs))
    product.sum_duplicates()
    product.eliminate_zeros()
    filled = np.diff(product.indptr) > 0
    X: Any = sp.csr_array(product[np.flatnonzero(filled)])
    normalise(X)
    return Representations(X, np.flatnonzero(filled), np.flatnonzero(~filled))


def _checked(given: Any, what: str) -> Any:
    """A CSR array of its own, whose indices are in range: SciPy's products trust them."""
    if sp.issparse(given):
        anything: Any = given  # SciPy's stubs want to know the dtype
        given = as_csr(anything, anything.dtype, what)
    return sp.csr_array(given)


def _product(a: Any, b: Any, n_jobs: int) -> Any:
    """a @ b by slabs of rows of a, which scipy multiplies without the interpreter's lock."""
    work = np.concatenate([[0], np.cumsum(np.diff(b.indptr)[a.indices])])[a.indptr]
    slabs = max(1, min(a.shape[0], 4 * n_jobs))
    edges = np.searchsorted(work, np.linspace(0, work[-1], slabs + 1)[1:-1])
    cuts = np.unique(np.concatenate([[0], edges, [a.shape[0]]]))
    with ThreadPoolExecutor(n_jobs) as pool:
        parts = list(pool.map(lambda t: a[cuts[t] : cuts[t + 1]] @ b, range(len(cuts) - 1)))
    return sp.csr_array(sp.vstack(parts, format="csr"))


def load_svmlight(
    path: str | os.PathLike[str],
    *,
    n_features: int | None = None,
    n_labels: int | None = None,
    zero_based: bool = True,
    dtype: Any = "float32",
) -> tuple[Any, Any]:
    """Read a multi-label svmlight file, with or without the header line of XMC data sets.

    A line is `label,label feature:value feature:value`; a row without labels begins with a space.
    A header has rows, features and labels. Lines are read one at a time.

    Parameters
    ----------
    path : str or path
    n_features, n_labels : int or None, default=None
        Widths; None takes those of the header, or the largest that occur.
    zero_based : bool, default=True
        Do features count from 0? Labels always do.
    dtype : {'float32', 'float64'}, default='float32'

    Returns
    -------
    Y : csr_array of shape (n_samples, n_labels), of ones
    Z : csr_array of shape (n_samples, n_features)
    """
    real = check_dtype(dtype) or np.dtype(np.float64)
    if not Path(path).is_file():
        raise ValueError(f"path must name a file, but {os.fspath(path)!r} is none.")
    header: list[int] = []
    labels, label_ends = _Growing(np.int32), _Growing(np.int64)
    features, values, ends = _Growing(np.int32), _Growing(real), _Growing(np.int64)
    with Path(path).open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if number == 1 and _is_header(line):
                header = [int(part) for part in line.split()]
                continue
            content = line.split("#", 1)[0].rstrip()
            if not content and "\n" in line and not line.startswith(" "):
                continue  # an empty line is no row
            try:
                _add(content, labels, features, values, first=0 if zero_based else 1)
            except ValueError:
                raise ValueError(
                    f"path must hold svmlight lines, but line {number} of {os.fspath(path)!r} is "
                    "none."
                ) from None
            label_ends.extend([len(labels)])
            ends.extend([len(features)])
    n = len(ends)
    if header and header[0] != n:
        raise ValueError(f"path must have the {header[0]} rows of its header, but it has {n}.")
    width = n_features or (header[1] if header else int(features.get().max(initial=-1)) + 1)
    many = n_labels or (header[2] if header else int(labels.get().max(initial=-1)) + 1)
    if features.get().max(initial=-1) >= width or labels.get().max(initial=-1) >= many:
        raise ValueError(f"path must have at most {width} features and {many} labels.")
    Y = _csr(np.ones(len(labels), dtype=real), labels.get(), label_ends.get(), many)
    return Y, _csr(values.get(), features.get(), ends.get(), width)


class _Growing:
    """An array that numbers are appended to."""

    def __init__(self, dtype: Any) -> None:
        self._values = np.empty(1024, dtype=dtype)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def extend(self, values: list[Any]) -> None:
        end = self._count + len(values)
        if end > len(self._values):
            self._values = np.concatenate([self._values, np.empty_like(self._values, shape=end)])
        self._values[self._count : end] = values
        self._count = end

    def get(self) -> NDArray[Any]:
        return self._values[: self._count]


def _is_header(line: str) -> bool:
    parts = line.split()
    return len(parts) == 3 and all(part.isdigit() for part in parts)


def _add(line: str, labels: _Growing, features: _Growing, values: _Growing, *, first: int) -> None:
    named, _, rest = line.partition(" ")
    if ":" in named:  # no labels, and no space before the features
        named, rest = "", line
    pairs = [pair.split(":") for pair in rest.split() if not pair.startswith("qid:")]
    own = [int(label) for label in named.split(",") if label]
    index = [int(feature) - first for feature, _ in pairs]
    if min(index, default=0) < 0 or min(own, default=0) < 0:
        raise ValueError
    labels.extend(own)
    features.extend(index)
    values.extend([float(value) for _, value in pairs])


def _csr(data: NDArray[Any], indices: NDArray[Any], ends: NDArray[Any], width: int) -> Any:
    matrix = sp.csr_array((data, indices, np.concatenate([[0], ends])), shape=(len(ends), width))
    matrix.sum_duplicates()
    return matrix
