"""When the growth of a tree stops."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from exactmeans.parameters import check_int

LARGEST = 2**63 - 1  # of the ints that arrays and the core take


@dataclass(frozen=True)
class Stops:
    """A node is a leaf if it has few rows or is deep; growth ends with enough leaves."""

    branching: int
    max_leaf_size: int
    max_depth: int | None
    n_leaves: int | None

    @classmethod
    def check(cls, estimator: Any) -> Stops:
        branching = check_int("branching", estimator.branching, 2)
        size, depth, leaves = (
            None if value is None else check_int(name, value, least)
            for name, value, least in (
                ("max_leaf_size", estimator.max_leaf_size, 1),
                ("max_depth", estimator.max_depth, 1),
                ("n_leaves", estimator.n_leaves, 2),
            )
        )
        if leaves is not None and depth is not None:
            # 2**bit_length() is more than `leaves`, so huge depths need no huge power.
            most = branching ** min(depth, leaves.bit_length())
            if leaves > most:
                raise ValueError(
                    f"n_leaves must be at most {most}, which a tree with "
                    f"branching={branching} and max_depth={depth} can have, but it is {leaves}."
                )
        if size is None:
            size = branching if leaves is None and depth is None else 1
        return cls(branching, size, depth, leaves)

    def refuse_rows(self, n: int, *, balanced: bool) -> None:
        """Refuse n_leaves that contradicts max_leaf_size or the number of rows.

        max_depth with max_leaf_size is never refused: both only keep nodes from being split.
        """
        if self.n_leaves is None:
            return
        if self.n_leaves > n:
            raise ValueError(
                f"n_leaves must be at most {n}, the number of rows, but it is {self.n_leaves}."
            )
        if self.max_leaf_size > 1 and self.n_leaves * self.max_leaf_size < n:
            raise ValueError(
                f"n_leaves must be at least {math.ceil(n / self.max_leaf_size)}, as many leaves as "
                f"{n} rows need with max_leaf_size={self.max_leaf_size}, but it is {self.n_leaves}."
            )
        if n <= self.max_leaf_size:
            raise ValueError(
                f"max_leaf_size must be less than {n}, the number of rows, if "
                f"n_leaves={self.n_leaves}, but it is {self.max_leaf_size}."
            )
        most = self._most_leaves(n, balanced=balanced)
        if self.n_leaves > most:
            rows = f"{n} distinct rows" if balanced else f"{n} rows"
            kind = "balanced tree" if balanced else "tree"
            raise ValueError(
                f"n_leaves must be at most {most}, which a {kind} of {rows} with "
                f"branching={self.branching} and max_leaf_size={self.max_leaf_size} can have, but "
                f"it is {self.n_leaves}."
            )

    def _most_leaves(self, n: int, *, balanced: bool) -> int:
        """No tree of n rows has more leaves.

        Most come if each split leaves all rows but one per other child in one child, until that is
        too small to be split. A balanced node of m rows, more than the size s of a leaf, has at
        most ceil(m / s) children, so each has s / 2 rows or more.
        """
        size = self.max_leaf_size
        if n <= size:
            return 1
        most = min(n, n - size + self.branching - 1)
        return min(most, n // ((size + 1) // 2)) if balanced else most

    def most_children(self, rows: Any, *, balanced: bool) -> Any:
        """The most children of nodes with so many rows (a number, or an array of them).

        Balanced nodes have no more children than leaves of the largest size need.
        """
        branching, size = min(self.branching, LARGEST), min(self.max_leaf_size, LARGEST)
        if not balanced:
            return np.minimum(rows, branching)
        return np.minimum(branching, -(-rows // size))

    def fewest_leaves(self, n: int) -> int:
        """At least so many leaves come of n distinct rows."""
        fewest = math.ceil(n / self.max_leaf_size)
        if self.max_depth is not None:
            fewest = min(fewest, self.branching)
        return fewest if self.n_leaves is None else min(fewest, self.n_leaves)
