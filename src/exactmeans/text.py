"""From text to rows: TF-IDF through scikit-learn's vectorizers, for `metric="cosine"`.

A document is a string. Documents come from an iterable, from the lines of a file, or from the files
of a folder; or their terms are counted already. Rows are not normalised unless `unit=True`:
cosine does not need it.
"""

from __future__ import annotations

import itertools
import os
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer
from sklearn.pipeline import Pipeline

from exactmeans.data.arrays import as_csr
from exactmeans.estimators.fitted import FittedKMeans
from exactmeans.parameters import check_choice, check_dtype, check_int, check_model
from exactmeans.quality.labelled import refuse_lazy
from exactmeans.quality.odd_rows import odd_rows

__all__ = [
    "Rows",
    "documents",
    "misfits",
    "representatives",
    "tfidf",
    "top_terms",
    "without_terms",
]

IDF = ("smooth", "plain", "none")
_NAMED = 10  # documents that a warning names


class Rows(NamedTuple):
    """Documents as rows, what the columns stand for, and how to weigh further documents.

    Attributes
    ----------
    X : csr_matrix of shape (n_documents, n_terms)
    terms : ndarray of shape (n_terms,)
        The term of each column.
    vectorizer : sklearn.pipeline.Pipeline
        Its steps are "counts", unless counts were given, and "tfidf".

    Examples
    --------
    >>> from exactmeans.text import tfidf
    >>> rows = tfidf(["red fish", "blue fish"])
    >>> rows.X.shape, rows.terms.tolist()
    ((2, 3), ['blue', 'fish', 'red'])
    """

    X: Any
    terms: NDArray[Any]
    vectorizer: Pipeline

    def transform(self, source: Any) -> Any:
        """Further documents as rows, with the terms and weights of these.

        Parameters
        ----------
        source : iterable of str, str or path; or matrix of counts
            As for `tfidf`: counts if that was given counts, else documents.

        Returns
        -------
        csr_matrix of shape (n_documents, n_terms)
            Documents without known terms are rows of zeros. A warning names them, and
            `without_terms` lists them.

        Examples
        --------
        >>> from exactmeans.text import tfidf
        >>> rows = tfidf(["red fish", "blue fish"])
        >>> rows.transform(["red soup"]).nnz  # "soup" is not among the terms
        1
        """
        if "counts" in self.vectorizer.named_steps:
            given: Any = documents(source)
        else:
            given = _counts(source)
        return _rows(self.vectorizer, given, self.X.dtype)


def documents(source: str | os.PathLike[str] | Iterable[str]) -> Iterator[str]:
    """Documents of an iterable, of a file (one a line) or of a folder (one a file, by name).

    A string or path names a file or a folder; files are read as UTF-8, one at a time.

    Examples
    --------
    >>> from exactmeans.text import documents
    >>> list(documents(["red fish", "blue fish"]))
    ['red fish', 'blue fish']
    """
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        if path.is_dir():
            for file in sorted(p for p in path.rglob("*") if p.is_file()):
                yield file.read_text(encoding="utf-8", errors="replace")
            return
        if not path.is_file():
            raise ValueError(f"source must name a file or a folder, but {str(path)!r} is neither.")
        with path.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                yield line.rstrip("\r\n")
        return
    if not isinstance(source, Iterable):
        raise ValueError(
            "source must be strings, or the name of a file or a folder of them, but it is of type "
            f"{type(source).__name__!r}."
        )
    for document in source:
        if not isinstance(document, str):
            raise ValueError(f"source must hold strings, but it holds {type(document).__name__!r}.")
        yield document


def tfidf(
    source: str | os.PathLike[str] | Iterable[str] | Any,
    *,
    idf: str = "smooth",
    sublinear_tf: bool = False,
    unit: bool = False,
    dtype: Any = "float32",
    terms: Any = None,
    **vectorizer: Any,
) -> Rows:
    """Rows of TF-IDF weights.

    Parameters
    ----------
    source : iterable of str, str or path; or matrix of shape (n_documents, n_terms)
        Documents, or the name of a file with one a line, or of a folder with one a file; or how
        often each document has each term, as a sparse matrix or a two-dimensional array.
    idf : {'smooth', 'plain', 'none'}, default='smooth'
        With N documents, of which df have a term: 'smooth' is scikit-learn's
        log((1 + N) / (1 + df)) + 1, 'plain' is log(N / df), under which a term that all documents
        have weighs nothing, and 'none' leaves counts as they are.
    sublinear_tf : bool, default=False
        Replace counts tf by 1 + log(tf).
    unit : bool, default=False
        Divide each row by its length; `metric="cosine"` does not need it.
    dtype : {'float32', 'float64'}, default='float32'
    terms : array-like of shape (n_terms,) or None, default=None
        With counts, what the columns stand for; None numbers them.
    **vectorizer
        With documents, options of scikit-learn's `CountVectorizer`: `min_df`, `stop_words`,
        `ngram_range` ...

    Returns
    -------
    Rows
        `X`, `terms` and `vectorizer`; `transform` makes rows of further documents. Documents
        without terms are rows of zeros, which a warning names.

    Examples
    --------
    >>> from exactmeans.text import tfidf
    >>> rows = tfidf(["red fish", "blue fish"], idf="plain", dtype="float64")
    >>> rows.terms.tolist()
    ['blue', 'fish', 'red']
    >>> rows.X.toarray().round(3).tolist()
    [[0.0, 0.0, 0.693], [0.693, 0.0, 0.0]]
    >>> rows.transform(["blue sky, blue sea"]).toarray().round(3).tolist()
    [[1.386, 0.0, 0.0]]
    """
    check_choice("idf", idf, IDF)
    real = check_dtype(dtype) or np.dtype(np.float64)
    weigh = TfidfTransformer(
        norm="l2" if unit else None, use_idf=idf != "none", sublinear_tf=sublinear_tf
    )
    if sp.issparse(source) or isinstance(source, np.ndarray):
        if vectorizer:
            name = next(iter(vectorizer))
            raise ValueError(f"{name} must not be given with counts: it is for documents.")
        counts = _counts(source)
        names = np.arange(counts.shape[1]) if terms is None else np.asarray(terms)
        if names.shape != (counts.shape[1],):
            raise ValueError(
                f"terms must be one for each of the {counts.shape[1]} columns, but it has shape "
                f"{names.shape}."
            )
        steps: list[tuple[str, Any]] = []
    else:
        if terms is not None:
            raise ValueError("terms must be None with documents, whose terms are counted.")
        counter = CountVectorizer(dtype=np.float64, **vectorizer)
        found = documents(source)
        first = next(found, None)
        if first is None:
            raise ValueError("source must hold documents, but it holds none.")
        # Sorted, as those of further documents are: lengths are rounded in the order of terms.
        counts = _counts(counter.fit_transform(itertools.chain([first], found)))
        names = counter.get_feature_names_out()
        steps = [("counts", counter)]
    weigh.fit(counts)
    if idf == "plain":
        df = np.bincount(counts.indices, minlength=counts.shape[1])
        weigh.idf_ = np.log(counts.shape[0] / np.maximum(df, 1))
    X = _rows(weigh, counts, real)
    return Rows(X, names, Pipeline([*steps, ("tfidf", weigh)]))


def _counts(given: Any) -> Any:
    """Counts as sorted CSR without zeros, whose logarithms would not be finite."""
    shown = type(given).__name__
    if not sp.issparse(given):
        given = np.asarray(given)
    if given.ndim != 2 or given.dtype.kind not in "biuf":
        raise ValueError(
            "source must be a matrix of counts with a row for each document, but it is a "
            f"{shown} of shape {given.shape}."
        )
    counts = as_csr(
        sp.csr_matrix(given) if isinstance(given, np.ndarray) else given, float, "source"
    )
    if not np.isfinite(counts.data).all() or counts.data.min(initial=0) < 0:
        raise ValueError("source must hold counts, which are finite and not below 0.")
    counts.eliminate_zeros()
    return sp.csr_matrix(counts)


def _rows(weigh: Any, given: Any, dtype: np.dtype[Any]) -> Any:
    """CSR rows of documents or counts; warns of those without terms."""
    X: Any = sp.csr_matrix(weigh.transform(given), dtype=np.float64)
    X.eliminate_zeros()  # terms that all documents have
    empty = without_terms(X)
    if len(empty):
        some = ", ".join(map(str, empty[:_NAMED]))
        some += f" and {len(empty) - _NAMED} more" if len(empty) > _NAMED else ""
        warnings.warn(
            f"{len(empty)} of {X.shape[0]} documents have no known term and are rows of zeros: "
            f"{some}.",
            UserWarning,
            stacklevel=3,
        )
    return X.astype(dtype)


def without_terms(X: Any) -> NDArray[np.intp]:
    """Which rows are zeros, as documents without known terms are.

    Parameters
    ----------
    X : sparse matrix or array of shape (n_documents, n_terms)
        `X` of what `tfidf` gives, or what its `transform` gives.

    Returns
    -------
    numbers of rows, ascending

    Examples
    --------
    >>> import numpy as np
    >>> from exactmeans.text import without_terms
    >>> without_terms(np.array([[1.0, 0.0], [0.0, 0.0]])).tolist()
    [1]
    """
    if getattr(X, "ndim", None) != 2:
        raise ValueError(
            "X must be a matrix with a row for each document, but it is of type "
            f"{type(X).__name__!r}."
        )
    return np.flatnonzero(np.asarray((X != 0).sum(axis=1)).ravel() == 0)


def top_terms(
    centres: Any, terms: NDArray[Any], count: int = 10, *, by: str = "weight"
) -> list[list[str]]:
    """The terms with the largest values in each centre, or those that set it apart from the others.

    Parameters
    ----------
    centres : array or sparse matrix of shape (n_clusters, n_terms)
        `cluster_centers_` of a model.
    terms : array of shape (n_terms,)
        `terms` of what `tfidf` gives, or a vectorizer's `get_feature_names_out()`.
    count : int, default=10
        How many of each; fewer where a centre has fewer above 0.
    by : {'weight', 'contrast'}, default='weight'
        'weight' ranks terms by their value c in the centre, 'contrast' by c log(c / m), where m is
        the mean over all centres: terms that are heavy here and lighter elsewhere.

    Returns
    -------
    list of list of str, one list per centre, the first term ranking highest

    Examples
    --------
    >>> import numpy as np
    >>> from exactmeans.text import top_terms
    >>> centres, terms = np.array([[0.8, 0.6, 0.0], [0.8, 0.0, 0.6]]), np.array(["a", "b", "c"])
    >>> top_terms(centres, terms, 1), top_terms(centres, terms, 1, by="contrast")
    ([['a'], ['a']], [['b'], ['c']])
    """
    most = check_int("count", count, 0)
    check_choice("by", by, ("weight", "contrast"))
    given: Any = centres if sp.issparse(centres) else np.asarray(centres)
    if given.dtype.kind not in "fiu" or given.ndim != 2 or given.shape[1] != len(terms):
        raise ValueError(
            f"centres must be an array with a column for each of the {len(terms)} terms, such as "
            f"cluster_centers_, but it is {type(centres).__name__} of shape {given.shape}."
        )
    if not isinstance(given, np.ndarray):
        csr = as_csr(given, given.dtype, "centres")
        ends = csr.indptr.tolist()
        rows = [(csr.indices[a:b], csr.data[a:b]) for a, b in itertools.pairwise(ends)]
    else:
        features = np.arange(len(terms))
        rows = [(features, row) for row in given]
    if by == "contrast":
        mean = np.maximum(np.asarray(given.mean(axis=0)).ravel(), 0.0)
        rows = [(at, _contrast(values, mean[at])) for at, values in rows]
    return [[str(terms[f]) for f in _largest(*row, most)] for row in rows]


def _contrast(values: NDArray[Any], mean: NDArray[Any]) -> NDArray[np.float64]:
    """c log(c / m); 0 where a value or the mean is not above 0."""
    own = values.astype(np.float64)
    used = (own > 0) & (mean > 0)
    ratios = np.divide(own, mean, out=np.ones(len(own)), where=used)
    return np.asarray(np.where(used, own, 0.0) * np.log(ratios))


def representatives(X: Any, model: FittedKMeans, count: int = 5) -> list[NDArray[np.intp]]:
    """The rows nearest to the centre of each cluster: documents that are typical of it.

    Parameters
    ----------
    X : array-like, sparse matrix, BlockSource or path of shape (n_documents, n_terms)
    model : KMeans or MiniBatchKMeans
    count : int, default=5
        How many of each; fewer where a cluster has fewer.

    Returns
    -------
    list of arrays of row numbers, one per cluster, nearest first

    Examples
    --------
    >>> from exactmeans import KMeans
    >>> from exactmeans.text import representatives
    >>> X = [[0.0], [1.0], [5.0], [20.0]]
    >>> model = KMeans(2, init=[[1.5], [20.0]], max_iter=1).fit(X)
    >>> [rows.tolist() for rows in representatives(X, model, 2)]
    [[1, 0], [3]]
    """
    check_model(model)
    refuse_lazy(X)
    most = check_int("count", count, 1)
    labels, distances = (found[:, 0] for found in model._own_and_next(X, 1))
    order = np.lexsort((distances, labels))  # stable: of equal distances, the first row
    edges = np.searchsorted(labels[order], np.arange(model._given_centres().shape[0] + 1))
    return [order[a : min(a + most, b)] for a, b in itertools.pairwise(edges.tolist())]


def misfits(X: Any, model: FittedKMeans, count: int | None = None) -> NDArray[np.intp]:
    """Rows that fit no cluster: those in none, and those far from their centre.

    For metric='cosine', a row is far if it is less than a third as similar to its centre as the
    mean of the cluster. For other metrics, a row is far if its distance exceeds the mean by more
    than three standard deviations. These are the odd rows of `exactmeans.report`.

    Parameters
    ----------
    X : array-like, sparse matrix, BlockSource or path of shape (n_documents, n_terms)
    model : KMeans or MiniBatchKMeans
    count : int or None, default=None
        How many at most; None means all.

    Returns
    -------
    array of row numbers: rows in no cluster first, then the oddest

    Examples
    --------
    >>> from exactmeans import KMeans
    >>> from exactmeans.text import misfits
    >>> X = [[0.0], [0.1]] * 10 + [[2.0]] + [[9.0], [9.1]] * 10
    >>> model = KMeans(2, random_state=0).fit(X)
    >>> misfits(X, model).tolist()
    [20]
    """
    check_model(model)
    refuse_lazy(X)
    most = None if count is None else check_int("count", count, 0)
    labels, distances = (found[:, 0] for found in model._own_and_next(X, 1))
    none = np.flatnonzero(labels < 0)
    k = model._given_centres().shape[0]
    odd = odd_rows(labels, distances.astype(np.float64), k, model._frame.metric)
    return np.concatenate([none, odd.rows])[:most]


def _largest(features: NDArray[Any], values: NDArray[Any], count: int) -> NDArray[Any]:
    """The features of the largest values above 0, in that order; of equal values, the first."""
    above = np.flatnonzero(values > 0)
    if count < len(above):
        # No more than these and their equals are sorted.
        least = np.partition(values[above], -count)[-count] if count else np.inf
        above = above[values[above] >= least]
    order = np.argsort(-values[above].astype(np.float64), kind="stable")[:count]
    return features[above[order]]
