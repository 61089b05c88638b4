"""Which algorithm runs: names and abilities from the core, the memory model, the `auto` policy."""

from __future__ import annotations

from dataclasses import dataclass

from exactmeans import _core

_TRAITS = {traits["name"]: traits for traits in _core.algorithms()}
NAMES = ("auto", *_TRAITS)


@dataclass(frozen=True)
class Workload:
    """What the choice of an algorithm depends on."""

    n: int
    d: int
    k: int
    sparse: bool
    itemsize: int
    reading: int = 0  # bytes of blocks that are at hand or coming; 0 for data in memory

    def bytes_needed(self, algorithm: str) -> int:
        """Memory beside the data itself: per-row state, centres with their layout, exact sums."""
        bounds = _core.bytes_per_row(algorithm, self.itemsize == 4, not self.sparse, self.k)
        per_row = 8 + bounds
        # master, new centres and one packed layout in the compute dtype; sums in float64
        per_centre = self.d * (3 * self.itemsize + 8)
        if self.reading:
            # distances and order of the rows when one is lent; nearest seeds, masses and chances
            per_row = max(per_row + 24, 60)
        return self.n * per_row + self.k * per_centre + self.reading


@dataclass(frozen=True)
class Choice:
    algorithm: str
    why: str
    bytes_needed: int


def choose(algorithm: str, work: Workload, memory_limit: int | None) -> Choice:
    """The algorithm to run, or a ValueError that says what does not fit."""
    asked = algorithm
    if algorithm == "auto":
        algorithm = "lloyd"
    why = f"algorithm={asked!r}" if asked != "auto" else "auto: lloyd is the frugal choice"
    needed = work.bytes_needed(algorithm)
    frugal = work.bytes_needed("lloyd")
    if memory_limit is not None and needed > memory_limit and work.reading and frugal < needed:
        why = f"{algorithm} would take {needed:,} bytes of memory_limit={memory_limit:,}"
        algorithm, needed = "lloyd", frugal
    if memory_limit is not None and needed > memory_limit:
        raise ValueError(
            f"memory_limit must be at least {needed:,} bytes for algorithm={algorithm!r} with "
            f"{work.n:,} rows, {work.d:,} columns and {work.k:,} clusters, but it is "
            f"{memory_limit:,}."
        )
    return Choice(algorithm, why, needed)
