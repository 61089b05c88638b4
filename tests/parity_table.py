"""Prints the parity table: how often a fit is scikit-learn's, and how many differences are ties.

python tests/parity_table.py [seeds]
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

    def run(self, seeds: range) -> parity.ParityRow:
        data = datasets.load(self.name)
        X: Any = sp.csr_matrix(data.X) if self.kind == "csr" else data.X
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


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
