"""Limits on the sizes of clusters: what an assignment within them takes and gives.

Row i in cluster j costs factor_i * score_ij + price_j. At the prices of an optimal assignment every
row is in its cheapest cluster: prices and centres are a power diagram, which labels new rows, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from exactmeans import _core
from exactmeans.data.arrays import Double, Labels, Matrix

if TYPE_CHECKING:
    from exactmeans.engine.protocol import AssignStats

Hashes = NDArray[np.uint64]  # two words per row


@dataclass(frozen=True)
class Limits:
    """The least and the largest size of a cluster, and the total of all.

    Sizes count rows, or units of weight, of which there are `scale` in a weight of 1: a row counts
    as its weight times `scale`, rounded to an integer, so that sums are exact. `scale` is 0 if rows
    are counted.
    """

    least: int
    most: int
    total: int
    scale: float = 0.0

    def size(self, units: int) -> int | float:
        """A number of rows as it is, units as a weight."""
        return units / self.scale if self.scale else units


@dataclass(frozen=True)
class BorderRows:
    """Rows whose labels the power diagram does not give, by the hash of their values.

    They lie on a border at the final prices, such as duplicates that the limits put into different
    clusters. `labels` has the labels of equal rows in their order; those of `keys[t]` end at
    `past[t]`.
    """

    keys: Hashes  # ascending by the first word
    past: NDArray[np.int64]
    labels: Labels

    @classmethod
    def of(cls, hashes: Hashes, labels: Labels, differ: NDArray[np.bool_]) -> BorderRows:
        """All rows that equal one for which `differ` is set."""
        keys = np.unique(hashes[differ], axis=0)
        member = _positions(keys, hashes)
        rows = np.flatnonzero(member >= 0)
        rows = rows[np.argsort(member[rows], kind="stable")]
        past = np.cumsum(np.bincount(member[rows], minlength=len(keys)), dtype=np.int64)
        return cls(keys, past, labels[rows])

    @classmethod
    def none(cls) -> BorderRows:
        return cls(
            np.empty((0, 2), dtype=np.uint64), np.empty(0, np.int64), np.empty(0, dtype=np.int32)
        )

    def relabel(self, hashes: Hashes, labels: Labels) -> None:
        """Set the labels of stored rows: the first of equal rows gets the first label, and so on.

        Copies beyond those of the fit keep the label that they have.
        """
        member = _positions(self.keys, hashes)
        rows = np.flatnonzero(member >= 0)
        rows = rows[np.argsort(member[rows], kind="stable")]
        member = member[rows]
        begin = np.searchsorted(member, member)
        occurrence = np.arange(len(rows)) - begin
        first = np.concatenate(([0], self.past[:-1]))[member] if len(member) else member
        known = first + occurrence < self.past[member]
        labels[rows[known]] = self.labels[(first + occurrence)[known]]


def _positions(keys: Hashes, hashes: Hashes) -> NDArray[np.intp]:
    """Where each hash is among the keys, which are sorted; -1 if it is not."""
    order, by_first = keys[:, 0], hashes[:, 0]
    found = np.full(len(hashes), -1, dtype=np.intp)
    if not len(keys):
        return found
    at = np.searchsorted(order, by_first)
    # Keys with the same first word are next to each other, and nearly always there is only one.
    near = np.flatnonzero(order[np.minimum(at, len(keys) - 1)] == by_first)
    position = at[near]
    while len(near):
        inside = position < len(keys)
        near, position = near[inside], position[inside]
        same = (keys[position] == hashes[near]).all(axis=1)
        found[near[same]] = position[same]
        more = ~same & (order[position] == by_first[near])
        near, position = near[more], position[more] + 1
    return found


@dataclass(frozen=True)
class LimitedResult:
    """What the limits did to a finished run."""

    limits: Limits
    prices: Double  # in units of scores
    border: BorderRows
    moved: int  # rows that are not with their nearest centre
    free_inertia: float  # of the same centres with every row at its nearest one


class LimitedAssign(Protocol):
    """The assignment step of an engine with limits."""

    @property
    def state(self) -> Double:
        """What the next assignment starts from: prices, the reach of open rows, changed labels."""

    def resume(self, state: Double) -> None:
        """Start from the state of an earlier run."""

    def assign(self, centroids: _core.Centroids) -> AssignStats:
        """Label every row at the least cost within the limits."""

    def result(self, centroids: _core.Centroids, points: Matrix, exponent: int) -> LimitedResult:
        """What the last assignment, which was to these centres, did."""
