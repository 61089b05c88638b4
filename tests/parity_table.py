"""Prints the parity table: how often a fit is scikit-learn's, and how many differences are ties.

python tests/parity_table.py [seeds]           the data of the tests
python tests/parity_table.py compatibility     the table of docs/compatibility.md
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

import datasets
import parity

HEAD = ("data", "kind", "weights", "tried", "equal", "ties proved", "empties filled otherwise")


@dataclass(frozen=True)
class Comparison:
    """One line of the table."""

    name: str
    kind: str  # "dense" or "csr"
    weighted: bool
    init: str = "k-means++"

    def __str__(self) -> str:
        weights = "weighted" if self.weighted else "plain"
        return f"{self.name}-{self.kind}-{weights}-{self.init}"

    def rows(self) -> Any:
        data = datasets.load(self.name)
        if self.kind == "csr":
            return sp.csr_matrix(data.X)
        return data.X.toarray() if data.is_sparse else data.X

    def run(self, seeds: range) -> parity.ParityRow:
        data = datasets.load(self.name)
        X: Any = self.rows()
        weights: NDArray[np.float64] | None = None
        if self.weighted:
            weights = np.random.default_rng(0).uniform(0.2, 3, X.shape[0])
        return parity.compare(
            X, data.k, seeds, sample_weight=weights, init=self.init, name=str(self),
            allow_repair=True,
        )  # fmt: skip


#: Data, kinds of rows and how many seeds the tests try (the slow ones get fewer).
DATA = [
    ("iris", ("dense", "csr"), 8),
    ("wine", ("dense", "csr"), 8),
    ("digits", ("dense", "csr"), 4),
    ("blobs_flat", ("dense",), 8),
    ("blobs_overlapping", ("dense", "csr"), 8),
    ("blobs_many", ("dense",), 6),
    ("sparse_random", ("csr",), 8),
    ("sparse_unit", ("csr",), 8),
    ("news", ("csr",), 2),
    ("titles", ("csr",), 3),
    ("mnist", ("dense", "csr"), 2),
]
TABLE = [
    (Comparison(name, kind, weighted), seeds)
    for name, kinds, seeds in DATA
    for kind in kinds
    for weighted in (False, True)
]
RANDOM = [(Comparison(name, "dense", True, "random"), 6) for name in ("iris", "digits")]
#: From data whose distances are all different to data where many are equal, with what they hold.
COMPATIBILITY = [
    ("blobs_overlapping", "dense", "normal deviates"),
    ("wine", "dense", "measurements"),
    ("iris", "dense", "multiples of 0.1"),
    ("covtype", "dense", "integers, and columns of 0 and 1"),
    ("news", "csr", "tf-idf"),
    ("titles", "csr", "tf-idf, a few terms a row"),
    ("mnist", "dense", "integers up to 255"),
    ("digits", "dense", "integers up to 16"),
    ("letter", "dense", "integers up to 15"),
    ("lattice", "dense", "integers up to 14, two columns"),
    ("sparse_counts", "dense", "counts, most of them 0 or 1"),
    ("sparse_counts", "csr", "counts, most of them 0 or 1"),
    ("one_hot", "dense", "0 and 1"),
    ("one_hot", "csr", "0 and 1"),
    ("w8a", "dense", "0 and 1"),
    ("w8a", "csr", "0 and 1"),
]
TIES = [(Comparison(name, kind, weighted=False), 3) for name, kind, _ in COMPATIBILITY]
FIFTEEN = range(15)


def main(seeds: int) -> None:
    print("| " + " | ".join(HEAD) + " |\n" + "| --- " * len(HEAD) + "|")
    for comparison, _ in TABLE + RANDOM:
        row = comparison.run(range(seeds))
        name = comparison.name if comparison.init == "k-means++" else f"{comparison.name}, random"
        weights = "random" if comparison.weighted else "none"
        counts = (row.tried, row.equal, row.ties_proved, row.repaired)
        cells = (name, comparison.kind, weights, *counts)
        print("| " + " | ".join(map(str, cells)) + " |", flush=True)
        for detail in row.details:
            print(f"{comparison} {detail}", file=sys.stderr)


def compatibility() -> None:
    """Fits of 15 seeds, and for comparison how often scikit-learn's algorithms agree."""
    head = [
        "data",
        "values",
        "rows × features",
        "k",
        "identical",
        "part at a tie",
        "part at an empty cluster",
        "inertia where labels differ / scikit-learn's",
        "scikit-learn's elkan identical to its lloyd",
    ]
    print("| " + " | ".join(head) + " |\n" + "| --- " * len(head) + "|")
    for name, kind, values in COMPATIBILITY:
        comparison = Comparison(name, kind, weighted=False)
        row = comparison.run(FIFTEEN)
        X, k = comparison.rows(), datasets.load(name).k
        ratios, agree = [], 0
        for seed in FIFTEEN:
            case = parity.Case(X, k, None, {"init": "k-means++", "random_state": seed}, {})
            theirs, ours = case.theirs_fit(), case.ours_fit()
            elkan = case.theirs_fit(algorithm="elkan")
            if not np.array_equal(theirs.labels_, ours.labels_):
                ratios.append(float(ours.inertia_ / theirs.inertia_))
            agree += np.array_equal(theirs.labels_, elkan.labels_)
        ratios.sort()
        others = f"{ratios[0]:.4f} to {ratios[-1]:.4f}" if ratios else "–"
        shape = f"{X.shape[0]:,} × {X.shape[1]:,}"
        counts = (row.equal, row.ties_proved, row.repaired, others, agree)
        cells = (f"{name}, {kind}", values, shape, k, *counts)
        print("| " + " | ".join(map(str, cells)) + " |", flush=True)
        for detail in row.details:
            print(f"{comparison} {detail}", file=sys.stderr)


if __name__ == "__main__":
    if sys.argv[1:] == ["compatibility"]:
        compatibility()
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
