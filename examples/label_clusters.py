"""Clusters of the labels of a multi-label set.

Labels are in one cluster if their rows have similar features. By default the rows are files of
Python's standard library, their words are the features, and the modules that a file imports are its
labels.

    python examples/label_clusters.py [svmlight file with several labels per row]
"""

from __future__ import annotations

import ast
import sys
import sysconfig
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.preprocessing import MultiLabelBinarizer

from exactmeans import KMeans
from exactmeans.labels import load_svmlight, representations
from exactmeans.text import tfidf


def imports_of(source: str) -> set[str]:
    """The modules that a file imports, by their first name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = ast.parse(source)
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {name.name.split(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.split(".")[0])
    return found & sys.stdlib_module_names


def standard_library() -> tuple[Any, Any, list[str]]:
    """Labels, features and the names of the labels."""
    folder = Path(sysconfig.get_path("stdlib"))
    files = [*folder.glob("*.py"), *folder.glob("[a-z]*/*.py")]
    files = [f for f in sorted(files) if f.parent.name not in ("test", "idlelib", "site-packages")]
    sources = [file.read_text(encoding="utf-8", errors="replace") for file in files]
    binarizer = MultiLabelBinarizer(sparse_output=True)
    Y = binarizer.fit_transform([imports_of(source) for source in sources])
    Z = tfidf(sources, min_df=3, max_df=0.3, sublinear_tf=True, token_pattern=r"[A-Za-z]{3,}").X
    return Y, Z, list(binarizer.classes_)


def main() -> None:
    if len(sys.argv) > 1:
        Y, Z = load_svmlight(sys.argv[1])
        names = [str(label) for label in range(Y.shape[1])]
    else:
        Y, Z, names = standard_library()
    labels = representations(Y, Z)
    k = max(1, len(labels.kept) // 10)
    model = KMeans(k, metric="cosine", n_init=3, random_state=0).fit(labels.X)
    print(f"{len(labels.kept)} labels in {k} clusters, {len(labels.dropped)} without rows")
    for j in range(k):
        own = labels.kept[np.flatnonzero(model.labels_ == j)]
        shown = ", ".join(names[label] for label in own[:12])
        print(f"cluster {j}: {shown}{' ...' if len(own) > 12 else ''}")


if __name__ == "__main__":
    main()
