"""Topics of a collection of documents, with the words that stand for each.

The 20 newsgroups if they are on disk already, in the folder that EXACTMEANS_DATA names (counts,
words and groups) or where scikit-learn keeps them; else the docstrings of the standard library.
Nothing is downloaded.

    python examples/topics.py [file with a document per line, or folder]
"""

from __future__ import annotations

import gzip
import importlib
import os
import pkgutil
import sys
import warnings
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

from exactmeans import KMeans
from exactmeans.text import tfidf, top_terms


class Texts(NamedTuple):
    what: str
    X: Any  # CSR, documents by terms
    terms: NDArray[Any]
    groups: list[str] | None = None  # what people called each document, to compare with


def read(what: str, source: Any, groups: list[str] | None = None) -> Texts:
    rows = tfidf(source, stop_words="english", min_df=2, sublinear_tf=True)
    return Texts(what, rows.X, rows.terms, groups)


def counted_newsgroups(folder: Path) -> Texts | None:
    """From term counts: words that say nothing are left out, the others weigh tf log(N / df)."""
    if not (folder / "20news.counts.npz").exists():
        return None
    counts: Any = sp.csr_matrix(sp.load_npz(folder / "20news.counts.npz"))
    terms, groups = (
        gzip.decompress((folder / f"20news.{part}.txt.gz").read_bytes()).decode().split("\n")
        for part in ("vocab", "labels")
    )
    n, df = counts.shape[0], np.bincount(counts.indices, minlength=counts.shape[1])
    words = np.array(
        [term.isalpha() and len(term) > 2 and term not in ENGLISH_STOP_WORDS for term in terms]
    )[: len(df)]
    kept = np.flatnonzero(words & (df >= 5) & (df < n / 5))
    rows = tfidf(counts[:, kept], terms=np.array(terms)[kept], idf="plain", sublinear_tf=True)
    return Texts("20 newsgroups", rows.X, rows.terms, groups[:n])


def fetched_newsgroups() -> Texts | None:
    try:
        from sklearn.datasets import fetch_20newsgroups

        found: Any = fetch_20newsgroups(remove=("headers",), download_if_missing=False)
    except OSError:
        return None
    groups = [found.target_names[target] for target in found.target]
    return read("20 newsgroups", found.data, groups)


def docstrings() -> Texts:
    """Of the functions and classes of pure modules that are safe to import."""
    found = []
    for name in ("json", "email", "http", "logging", "unittest", "xml", "asyncio", "collections"):
        package = importlib.import_module(name)
        names = [name] + [f"{name}.{m.name}" for m in pkgutil.iter_modules(package.__path__)]
        for module in names:
            if module.endswith("__main__"):
                continue
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    items = vars(importlib.import_module(module)).values()
            except ImportError:
                continue
            found += [d for d in (getattr(item, "__doc__", None) for item in items) if d]
    texts = sorted({text for text in found if isinstance(text, str) and len(text) > 60})
    return read("docstrings of the standard library", texts)


def texts() -> Texts:
    if len(sys.argv) > 1:
        return read(sys.argv[1], sys.argv[1])
    folder = os.environ.get("EXACTMEANS_DATA")
    counted = counted_newsgroups(Path(folder)) if folder else None
    return counted or fetched_newsgroups() or docstrings()


def main() -> None:
    found = texts()
    n, d = found.X.shape
    k = min(20, max(1, n // 20))
    model = KMeans(k, metric="cosine", zero_rows="keep", n_init=3, random_state=0).fit(found.X)
    print(f"{found.what}: {n} documents, {d} terms, objective {model.inertia_:.1f}")
    sizes = np.bincount(model.labels_[model.labels_ >= 0], minlength=k)
    for j, terms in enumerate(top_terms(model.cluster_centers_, found.terms, 7)):
        print(f"{sizes[j]:6d}  {', '.join(terms)}")
        if found.groups is not None:
            own = Counter(found.groups[i] for i in np.flatnonzero(model.labels_ == j))
            print("        " + ", ".join(f"{g} {c / sizes[j]:.0%}" for g, c in own.most_common(2)))


if __name__ == "__main__":
    main()
