"""A tree of the labels of a multi-label set, and how many labels a beam search finds.

A label becomes a row, the sum of the rows that carry it. A tree partitions the labels into leaves
of labels that occur together. To find the label nearest to a row, a beam search compares a few
nodes of each level and the labels of one leaf, instead of all labels.

By default the set is that of label_clusters.py. Two files in SciPy's format take its place:

    python examples/label_tree.py [features.npz labels.npz]
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import scipy.sparse as sp
from label_clusters import standard_library
from sklearn.feature_extraction.text import TfidfTransformer

from exactmeans import KMeansTree
from exactmeans.labels import representations


def multi_label_set() -> tuple[Any, Any, list[str]]:
    """Labels, features and the names of the labels."""
    if len(sys.argv) < 3:
        return standard_library()
    counts, Y = sp.load_npz(sys.argv[1]), sp.load_npz(sys.argv[2])
    return Y, TfidfTransformer().fit_transform(counts), [str(label) for label in range(Y.shape[1])]


def main() -> None:
    Y, Z, names = multi_label_set()
    labels = representations(Y, Z)
    n, branching = len(labels.kept), 16
    tree = KMeansTree(branching, max_leaf_size=branching, metric="cosine", random_state=0)
    tree.fit(labels.X)
    size = tree.size_[tree.leaves_]
    print(f"{n} labels in {len(tree.leaves_)} leaves, {tree.depth_.max()} levels")
    for leaf in np.argsort(-size, kind="stable")[:5]:
        own = labels.kept[tree.labels_ == leaf]
        print(f"leaf {leaf}: {', '.join(names[label] for label in own)}")

    rows = sp.csr_array(Z)[np.flatnonzero(np.diff(sp.csr_array(Z).indptr))[:2000]]
    similarity = (rows @ labels.X.T).toarray()
    nearest = similarity.max(axis=1)
    in_leaf = sp.csr_array((np.ones(n), tree.labels_, np.arange(n + 1)))  # labels by leaves
    for beam in [b for b in (1, 2, 4, 8, 16, 32) if b <= len(size)]:
        leaves, _ = tree.nearest(rows, beam)
        starts = np.arange(0, leaves.size + 1, beam)
        reached = sp.csr_array(
            (np.ones(leaves.size), leaves.ravel(), starts), (len(leaves), len(size))
        )
        among = (reached @ in_leaf.T).toarray() > 0  # labels that are compared with each row
        found = np.where(among, similarity, -1).max(axis=1) >= nearest
        share = among.mean()
        print(
            f"beam {beam:2}: {found.mean():.0%} find their nearest label among {share:.2%} of all"
        )


if __name__ == "__main__":
    main()
