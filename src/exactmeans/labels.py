"""Labels of multi-label data as rows: each label is the sum of the rows that carry it.

Clustering these rows groups labels that occur with the same features, which is how partitions of
extreme multi-label problems are made.
"""

from __future__ import annotations

import importlib
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from exactmeans.data.arrays import as_csr, reals_of, stacked
from exactmeans.data.centres import normalise
from exactmeans.data.svmlight import SvmlightFile, base_of
from exactmeans.kmeans_tree import KMeansTree
from exactmeans.parameters import check_dtype, check_int, check_n_jobs, check_path
from exactmeans.tree.export import rows_by_node

__all__ = ["Representations", "build_tree", "load_svmlight", "representations"]


class Representations(NamedTuple):
    """Labels as unit rows, and which labels they are.

    Attributes
    ----------
    X : CSR array of shape (labels kept, n_features)
    kept : ndarray
        Which label each row is.
    dropped : ndarray
        Labels that no row carries, or only rows without features.

    Examples
    --------
    >>> import numpy as np
    >>> from exactmeans.labels import representations
    >>> found = representations(np.array([[1, 0], [1, 0]]), np.eye(2))
    >>> found.kept.tolist(), found.dropped.tolist()
    ([0], [1])
    """

    X: Any
    kept: NDArray[np.intp]
    dropped: NDArray[np.intp]


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
        anything: Any = given  # SciPy's stubs need the dtype
        return sp.csr_array(as_csr(anything, anything.dtype, what))
    array = reals_of(given, None, copy=False)
    if array is None or array.ndim != 2 or array.dtype.kind not in "biuf":
        raise ValueError(f"{what} must be a two-dimensional matrix of numbers.")
    return sp.csr_array(array)


def _product(a: Any, b: Any, n_jobs: int) -> Any:
    """a @ b by slabs of rows of a, which scipy multiplies without the interpreter's lock."""
    work = np.concatenate([[0], np.cumsum(np.diff(b.indptr)[a.indices])])[a.indptr]
    slabs = max(1, min(a.shape[0], 4 * n_jobs))
    edges = np.searchsorted(work, np.linspace(0, work[-1], slabs + 1)[1:-1])
    cuts = np.unique(np.concatenate([[0], edges, [a.shape[0]]]))
    with ThreadPoolExecutor(n_jobs) as pool:
        parts = list(pool.map(lambda t: a[cuts[t] : cuts[t + 1]] @ b, range(len(cuts) - 1)))
    return stacked(parts)


def build_tree(
    label_representation: Any, label_map: Any, d: int, K: int, dmax: int, *, node: Any = None
) -> Any:
    """LibMultiLabel's label tree with our clustering, a drop-in for its `_build_tree`.

    It stops as LibMultiLabel does: nodes at depth `dmax`, nodes with at most `K` labels, and
    children of nodes with fewer than `K` clusters are leaves. No child is empty. To use it:
    `libmultilabel.linear.tree._build_tree = exactmeans.labels.build_tree`.

    Parameters
    ----------
    label_representation : sparse matrix of shape (n_labels, n_features)
        One row per label, as `representations` makes them.
    label_map : array of shape (n_labels,)
        Which label each row is.
    d : int
        The depth of the root.
    K : int
        The most children of a node.
    dmax : int
        The largest depth.
    node : callable or None, default=None
        Makes a node of `label_map=` and `children=`; None takes LibMultiLabel's `Node`.

    Returns
    -------
    Node
        The seed of its clustering comes from NumPy's global generator, as LibMultiLabel's does.

    Examples
    --------
    >>> import numpy as np
    >>> from exactmeans.labels import build_tree
    >>> rows = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
    >>> root = build_tree(rows, np.array([7, 8, 9]), 0, 2, 10, node=dict)
    >>> sorted(child["label_map"].tolist() for child in root["children"])
    [[7, 8], [9]]
    """
    K, dmax, d = check_int("K", K, 2), check_int("dmax", dmax, 0), check_int("d", d, 0)
    if node is None:
        try:
            node = importlib.import_module("libmultilabel.linear.tree").Node
        except ImportError as error:
            raise ImportError(
                f"node must be given if libmultilabel.linear cannot be imported: {error}."
            ) from error
    label_map = np.asarray(label_map)
    if label_map.shape != (label_representation.shape[0],):
        raise ValueError(
            f"label_map must have one entry for each of the {label_representation.shape[0]} rows, "
            f"but it has shape {label_map.shape}."
        )
    if d >= dmax or label_representation.shape[0] <= K:
        return node(label_map=label_map, children=[])
    tree = KMeansTree(
        K, max_leaf_size=K, max_depth=dmax - d, random_state=np.random.randint(2**31 - 1)
    ).fit(label_representation)
    nodes = tree._nodes()
    rows = rows_by_node(nodes, tree.labels_)
    made: list[Any] = [None] * len(nodes)
    for own in range(len(nodes) - 1, -1, -1):
        children = made[nodes.children[own] : nodes.children[own + 1]]
        parent = nodes.parent[own]
        if parent >= 0 and nodes.children[parent + 1] - nodes.children[parent] < K:
            children = []
        made[own] = node(label_map=label_map[rows[own]], children=children)
    return made[0]


def load_svmlight(
    path: str | os.PathLike[str],
    *,
    n_features: int | None = None,
    n_labels: int | None = None,
    zero_based: bool | str = True,
    dtype: Any = "float32",
) -> tuple[Any, Any]:
    """Read a multi-label svmlight file, with or without the header line of XMC data sets.

    A line is `label,label feature:value feature:value`, or has no labels. A header has rows,
    features and labels; under it, a line of spaces is a row without labels and features.

    Parameters
    ----------
    path : str or path
    n_features, n_labels : int or None, default=None
        Widths; None takes those of the header, or the largest that occur.
    zero_based : True, False or 'auto', default=True
        Whether features count from 0, as labels always do. 'auto' is as for `open_blocks`.
    dtype : {'float32', 'float64'}, default='float32'

    Returns
    -------
    Y : csr_array of shape (n_samples, n_labels), of ones
    Z : csr_array of shape (n_samples, n_features)

    Examples
    --------
    >>> from pathlib import Path
    >>> from exactmeans.labels import load_svmlight
    >>> _ = Path("set.svm").write_text("0,2 0:1.5 3:1\\n1 2:4\\n")
    >>> Y, Z = load_svmlight("set.svm")
    >>> Y.toarray().astype(int).tolist(), Z.shape
    ([[1, 0, 1], [0, 1, 0]], (2, 4))
    """
    real = check_dtype(dtype) or np.dtype(np.float64)
    file_path = check_path("path", path)
    if not file_path.is_file():
        raise ValueError(f"path must name a file, but {str(file_path)!r} is none.")
    for name, width in (("n_features", n_features), ("n_labels", n_labels)):
        if width is not None:
            check_int(name, width, 1)
    if zero_based not in (True, False, "auto"):
        raise ValueError(f"zero_based must be True, False or 'auto', not {zero_based!r}.")
    file = SvmlightFile(file_path, None)
    parts = [file.parse(b) for b in range(len(file.spans))]
    labels = np.concatenate([part.targets for part in parts])
    if len(labels) and not (labels.min() >= 0 and (labels == np.floor(labels)).all()):
        raise ValueError(f"path must have labels 0, 1, 2 and so on, but {file.path} has others.")
    features = np.concatenate([part.indices for part in parts])
    features -= base_of(zero_based, int(features.min(initial=1)), [file])
    values = np.concatenate([part.values for part in parts]).astype(real)
    given = file.sizes or (0, 1 + int(features.max(initial=-1)), 1 + int(labels.max(initial=-1)))
    width, many = n_features or given[1], n_labels or given[2]
    if features.max(initial=-1) >= width or labels.max(initial=-1) >= many:
        raise ValueError(f"path must have at most {width} features and {many} labels.")
    label_ends = _joined([part.targets_end for part in parts])
    Y = _csr(np.ones(len(labels), dtype=real), labels.astype(np.int32), label_ends, many)
    return Y, _csr(values, features, _joined([part.indptr[1:] for part in parts]), width)


def _joined(ends: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Ends of rows, counted from the first part on."""
    before = np.cumsum([0, *(int(own[-1]) for own in ends[:-1])])
    return np.concatenate([own + first for own, first in zip(ends, before, strict=True)])


def _csr(data: NDArray[Any], indices: NDArray[Any], ends: NDArray[Any], width: int) -> Any:
    matrix = sp.csr_array((data, indices, np.concatenate([[0], ends])), shape=(len(ends), width))
    matrix.sum_duplicates()
    return matrix
