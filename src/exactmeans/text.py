"""From text to rows: TF-IDF through scikit-learn's vectorizers, for `metric="cosine"`.

A document is a string. Documents come from an iterable, from the lines of a file, or from the files
of a folder. Rows are not normalised unless asked for: cosine does not need it.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer

from exactmeans._validation import as_csr, check_choice, check_dtype, check_int

__all__ = ["Rows", "documents", "tfidf", "top_terms"]

IDF = ("smooth", "plain", "none")


class Rows(NamedTuple):
    """Documents as rows, and what the columns stand for."""

    X: Any  # CSR, documents by terms
    terms: NDArray[Any]
    vectorizer: CountVectorizer  # counts the terms of further documents
    weights: NDArray[np.float64]  # what counts of each term are multiplied by


def documents(source: str | os.PathLike[str] | Iterable[str]) -> Iterator[str]:
    """Documents of an iterable, of a file (one a line) or of a folder (one a file, by name).

    A string or path names a file or a folder; files are read as UTF-8, one at a time.
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
    source: str | os.PathLike[str] | Iterable[str],
    *,
    idf: str = "smooth",
    sublinear_tf: bool = False,
    unit: bool = False,
    dtype: Any = "float32",
    **vectorizer: Any,
) -> Rows:
    """Rows of TF-IDF weights.

    Parameters
    ----------
    source : iterable of str, str or path
        Documents, or the name of a file with one a line, or of a folder with one a file.
    idf : {'smooth', 'plain', 'none'}, default='smooth'
        With N documents, of which df have a term: 'smooth' is scikit-learn's
        log((1 + N) / (1 + df)) + 1, 'plain' is log(N / df), under which a term that all documents
        have weighs nothing, and 'none' leaves counts as they are.
    sublinear_tf : bool, default=False
        Replace counts tf by 1 + log(tf).
    unit : bool, default=False
        Divide each row by its length; `metric="cosine"` does not need it.
    dtype : {'float32', 'float64'}, default='float32'
    **vectorizer
        Options of scikit-learn's `CountVectorizer`: `min_df`, `stop_words`, `ngram_range` ...

    Returns
    -------
    Rows
        `X`, `terms`, `vectorizer` and `weights`. A document without terms is a row of zeros.

    Examples
    --------
    >>> from exactmeans.text import tfidf
    >>> rows = tfidf(["red fish", "blue fish"], idf="plain", dtype="float64")
    >>> rows.terms.tolist()
    ['blue', 'fish', 'red']
    >>> rows.X.toarray().round(3).tolist()
    [[0.0, 0.0, 0.693], [0.693, 0.0, 0.0]]
    """
    check_choice("idf", idf, IDF)
    real = check_dtype(dtype) or np.dtype(np.float64)
    counter = CountVectorizer(dtype=np.int64, **vectorizer)
    counts = sp.csr_matrix(counter.fit_transform(documents(source)))
    n, df = counts.shape[0], np.bincount(counts.indices, minlength=counts.shape[1])
    weights = np.ones(counts.shape[1])
    if idf == "smooth":
        weights = np.log((1 + n) / (1 + df)) + 1
    elif idf == "plain":
        weights = np.log(n / np.maximum(df, 1))
    X = TfidfTransformer(norm=None, use_idf=False, sublinear_tf=sublinear_tf).fit_transform(counts)
    X = sp.csr_matrix(X, dtype=np.float64)
    X.data *= weights[X.indices]
    X.eliminate_zeros()
    if unit:
        lengths = np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())
        X.data /= np.repeat(lengths, np.diff(X.indptr))
    return Rows(X.astype(real), counter.get_feature_names_out(), counter, weights)


def top_terms(centres: Any, terms: NDArray[Any], count: int = 10) -> list[list[str]]:
    """The terms with the largest values in each centre, largest first.

    Parameters
    ----------
    centres : array or sparse matrix of shape (n_clusters, n_terms)
        `cluster_centers_` of a model.
    terms : array of shape (n_terms,)
        `terms` of what `tfidf` gives, or a vectorizer's `get_feature_names_out()`.
    count : int, default=10
        How many of each; fewer where a centre has fewer above 0.

    Returns
    -------
    list of list of str, one list per centre
    """
    most = check_int("count", count, 0)
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
    return [[str(terms[f]) for f in _largest(*row, most)] for row in rows]


def _largest(features: NDArray[Any], values: NDArray[Any], count: int) -> NDArray[Any]:
    """The features of the largest values above 0, in that order; of equal values, the first."""
    above = np.flatnonzero(values > 0)
    if count < len(above):
        # No more than these and their equals are sorted.
        least = np.partition(values[above], -count)[-count] if count else np.inf
        above = above[values[above] >= least]
    order = np.argsort(-values[above].astype(np.float64), kind="stable")[:count]
    return features[above[order]]
