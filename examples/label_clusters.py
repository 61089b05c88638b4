"""Clusters of the labels of a multi-label set.

python examples/label_clusters.py [svmlight file with several labels per row]
"""

from __future__ import annotations

import sys

import numpy as np
from sklearn.datasets import make_multilabel_classification

from exactmeans import KMeans
from exactmeans.labels import load_svmlight, representations


def main() -> None:
    if len(sys.argv) > 1:
        Y, Z = load_svmlight(sys.argv[1])
    else:
        Z, Y = make_multilabel_classification(2000, 200, n_classes=60, n_labels=3, random_state=0)
    labels = representations(Y, Z)
    k = max(1, len(labels.kept) // 10)
    model = KMeans(k, metric="cosine", n_init=3, random_state=0).fit(labels.X)
    print(f"{len(labels.kept)} labels in {k} clusters, {len(labels.dropped)} without rows")
    for j in range(k):
        own = labels.kept[np.flatnonzero(model.labels_ == j)]
        print(
            f"cluster {j}: labels {', '.join(map(str, own[:12]))}{' ...' if len(own) > 12 else ''}"
        )


if __name__ == "__main__":
    main()
