"""Cluster the docstrings of Python's own standard library: real text, already on every machine.

Run it with ``make demo``, or with ``python examples/stdlib_docstrings.py [REPORT.html]`` once
installed. It ends with the path of a report that it made.
"""

from __future__ import annotations

import ast
import shutil
import sys
import sysconfig
import textwrap
import time
import warnings
from collections.abc import Callable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans as ScikitKMeans  # type: ignore[import-untyped, unused-ignore]
from sklearn.feature_extraction.text import (  # type: ignore[import-untyped, unused-ignore]
    ENGLISH_STOP_WORDS,
    TfidfVectorizer,
)

from exactmeans import KMeans, report

SETTINGS: dict[str, Any] = {"n_clusters": 20, "n_init": 10, "random_state": 0}
MIN_WORDS = 12  # shorter docstrings share too few words with any other
REPEATS = 3
SKIPPED = {"test", "tests", "idlelib", "lib2to3", "turtledemo", "pydoc_data"}  # not for users
SKIPPED |= {"distutils", "encodings", "ensurepip", "site-packages"}  # gone, generated, bundled
# Every API speaks of these; they would hold unrelated texts together.
API_WORDS = (
    "argument arguments called default example false given method methods new none note object "
    "objects optional raise raises return returned returns self specified true use used using "
    "value values"
)

T = TypeVar("T")
Scope = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def source_files() -> Iterator[tuple[str, Path]]:
    """Yield (dotted module name, path) of the Python sources of the standard library."""
    root = Path(sysconfig.get_path("stdlib"))
    for top in sorted(sys.stdlib_module_names - SKIPPED):
        single = root / f"{top}.py"
        for path in [single] if single.exists() else sorted((root / top).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            if SKIPPED.isdisjoint(parts):
                yield ".".join(parts).removesuffix(".__init__"), path


def docstrings_of(scope: Scope, name: str) -> Iterator[tuple[str, str]]:
    """Yield (qualified name, docstring) of a module, class or function and of all it defines."""
    text = ast.get_docstring(scope)
    if text and len(text.split()) >= MIN_WORDS:
        yield name, text
    for child in scope.body:
        if isinstance(child, Scope):
            yield from docstrings_of(child, f"{name}.{child.name}")


def read_docstrings() -> tuple[list[str], list[str]]:
    """Return names and texts of all docstrings; of equal texts the first is kept."""
    name_of: dict[str, str] = {}
    for module, path in source_files():
        # Parsed, never imported: nothing of the library gets to run, whatever the platform.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(path.read_bytes())
        for name, text in docstrings_of(tree, module):
            name_of.setdefault(text, name)
    return list(name_of.values()), list(name_of)


def timed(call: Callable[[], T]) -> tuple[T, float]:
    """Return what the call returns and how many seconds it took."""
    start = time.perf_counter()
    result = call()
    return result, time.perf_counter() - start


def fit_both(X: Any) -> tuple[Any, float, Any, float]:
    """Fit exactmeans and scikit-learn in turn; each with the shortest of its times."""
    ours, theirs = KMeans(**SETTINGS), ScikitKMeans(**SETTINGS)
    pairs = [
        (timed(lambda: ours.fit(X))[1], timed(lambda: theirs.fit(X))[1]) for _ in range(REPEATS)
    ]
    return ours, min(a for a, _ in pairs), theirs, min(b for _, b in pairs)


def clip(text: str, width: int) -> str:
    """Shorten a dotted name from the left, where it says least."""
    return text if len(text) <= width else ".." + text[2 - width :]


def print_clusters(X: Any, model: Any, terms: NDArray[np.object_], names: list[str]) -> None:
    """Print, largest cluster first: its size, top terms and the two texts nearest its centre."""
    width = min(max(shutil.get_terminal_size((100, 24)).columns, 60), 140) - 1
    left = (width - 10) // 2
    right = width - 10 - left
    print(f"{'size':>6}  {'top terms':<{left}}  typical docstrings\n{'-' * width}")
    sizes = np.bincount(model.labels_, minlength=len(model.cluster_centers_))
    for j in np.argsort(-sizes, kind="stable"):
        centre, rows = model.cluster_centers_[j], np.flatnonzero(model.labels_ == j)
        # Rows have length one, so the nearest has the largest product with the centre.
        nearest = rows[np.argsort(-(X[rows] @ centre), kind="stable")[:2]]
        top = ", ".join(terms[np.argsort(-centre, kind="stable")[:7]])
        words = textwrap.wrap(top, left, max_lines=2, placeholder="")
        words[-1] = words[-1].rstrip(",")
        samples = [clip(names[i], right) for i in nearest]
        for size, word, sample in zip_longest([f"{sizes[j]:,}"], words, samples, fillvalue=""):
            print(f"{size:>6}  {word:<{left}}  {sample}")


def main(page: str = "stdlib_docstrings.html") -> None:
    (names, texts), reading = timed(read_docstrings)
    if len(texts) < 500:
        sys.exit("This Python comes without the sources of its standard library: nothing to do.")
    stop_words = sorted(ENGLISH_STOP_WORDS.union(API_WORDS.split()))
    vectorizer = TfidfVectorizer(
        sublinear_tf=True, min_df=10, stop_words=stop_words, token_pattern=r"\b[^\W\d_]{3,}\b"
    )
    X, vectorising = timed(lambda: vectorizer.fit_transform(texts))
    ours, our_time, theirs, their_time = fit_both(X)

    print_clusters(X, ours, vectorizer.get_feature_names_out(), names)
    print(f"\n{X.shape[0]:,} texts x {X.shape[1]:,} terms, {X.nnz:,} nonzeros, {X.dtype}")
    print(f"best of {ours.n_init} starts: {ours.n_iter_} iterations, inertia {ours.inertia_:.6f}")
    print(
        f"seconds: reading {reading:.2f}, vectorising {vectorising:.2f}, clustering {our_time:.3f}"
    )
    differ = int(np.count_nonzero(ours.labels_ != theirs.labels_))
    print(f"\nscikit-learn on the same data, with the same random_state: {their_time:.3f} seconds,")
    print("the same labels;" if differ == 0 else f"{differ:,} labels are different;", end=" ")
    print(f"exactmeans was {their_time / our_time:.1f} times as fast in this run")
    print(f"(the best of {REPEATS} fits each, one after the other, default threads)")
    terms = vectorizer.get_feature_names_out()
    title = "Docstrings of the standard library"
    report(ours, X, page, feature_names=terms, texts=texts, ids=names, title=title)
    print(f"\nreport: {Path(page).resolve()}")


if __name__ == "__main__":
    main(*sys.argv[1:])
