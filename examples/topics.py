"""Topics of a collection of documents, with the words that stand for each.

The 20 newsgroups if scikit-learn has them on disk already, else the docstrings of the standard
library: nothing is downloaded.

    python examples/topics.py [file with a document per line, or folder]
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
import warnings
from collections.abc import Iterable

import numpy as np

from exactmeans import KMeans
from exactmeans.text import tfidf, top_terms


def docstrings() -> list[str]:
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
    return sorted({text for text in found if isinstance(text, str) and len(text) > 60})


def newsgroups() -> list[str] | None:
    try:
        from sklearn.datasets import fetch_20newsgroups

        return list(fetch_20newsgroups(remove=("headers",), download_if_missing=False).data)
    except OSError:
        return None


def main() -> None:
    source: str | Iterable[str] = sys.argv[1] if len(sys.argv) > 1 else newsgroups() or docstrings()
    rows = tfidf(source, stop_words="english", min_df=2, sublinear_tf=True)
    k = min(12, max(1, rows.X.shape[0] // 8))
    model = KMeans(k, metric="cosine", zero_rows="keep", n_init=3, random_state=0).fit(rows.X)
    sizes = np.bincount(model.labels_, minlength=k)
    terms = top_terms(model.cluster_centers_, rows.terms, 6)
    print(f"{rows.X.shape[0]} documents, {rows.X.shape[1]} terms, objective {model.inertia_:.1f}")
    for j in np.argsort(-sizes):
        print(f"{sizes[j]:6d}  {', '.join(terms[j])}")


if __name__ == "__main__":
    main()
