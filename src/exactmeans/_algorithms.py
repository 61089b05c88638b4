"""Which algorithm runs: names and abilities from the core, the memory model, the `auto` policy."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

import numpy as np

from exactmeans import _core
from exactmeans._centres import from_core
from exactmeans._metrics import METRICS
from exactmeans._validation import Matrix, rows_of
from exactmeans.engines.engine import Engine, Tally

#: What `algorithm` may be, for type checkers; the core's registry decides.
AlgorithmName = Literal[
    "auto", "lloyd", "elkan", "hamerly", "yinyang", "kdtree", "products", "pca", "moving"
]
_TRAITS = {traits["name"]: traits for traits in _core.algorithms()}
NAMES = ("auto", *_TRAITS)


@dataclass
class Workload:
    """What the choice of an algorithm depends on."""

    n: int
    d: int
    k: int
    sparse: bool
    itemsize: int
    width: float  # values of a row: d, or its stored entries on average
    reading: int = 0  # bytes of blocks that are at hand or coming; 0 for data in memory
    metric: str = "euclidean"
    overlap: float = math.inf  # entries of other rows in a row's features, on average; inf: unknown
    kinds: int | None = None  # rows that differ, where one of each kind is compared for all

    @property
    def compared(self) -> int:
        """Rows that are compared with centres."""
        return self.n if self.kinds is None else self.kinds

    def bytes_needed(self, algorithm: str) -> int:
        """Memory beside the data itself: per-row state, centres with their layout, exact sums."""
        bounds = _core.bytes_per_row(algorithm, self.itemsize == 4, not self.sparse, self.k, self.d)
        per_row = 8 + bounds
        metric = METRICS[self.metric]
        if metric.directed:  # lengths, and for bounds their inverses
            per_row += 8 + (self.itemsize if bounds else 0)
        if not metric.summed:  # rows by cluster
            per_row += 8
        if metric.l1 and self.sparse:  # entries of a cluster, which may be all, being sorted
            per_row += int(40 * self.width)
        centres = self._centre_bytes()
        if self.kinds is not None:
            # every row's kind; of each kind its first row and its label
            return int(self.n * 12 + self.kinds * (8 + bounds) + centres)
        if self.reading:
            # distances and order of the rows when one is lent; nearest seeds, masses and chances
            per_row = max(per_row + 24, 60)
        if algorithm == "products":  # rows feature by feature, and the centres of before
            centres += self.n * self.width * (2 * self.itemsize + 6) + 16 * self.d
        return int(self.n * per_row + centres + self.reading)

    def bytes_of_batches(self, batch_size: int, sample: int) -> int:
        """The same for steps over batches, whose first centres come from a sample of the rows."""
        # Row numbers and their order to draw the sample: 16, and 19 by measurement. Labels take
        # less. Directions: also lengths, and weights of the rows that have one.
        per_row = 36 if METRICS[self.metric].directed else 20
        row = self.width * (self.itemsize + 8 * self.sparse)
        some = (min(sample, self.n) + 2 * min(batch_size, self.n)) * row
        return int(self.n * per_row + some + self._centre_bytes() + self.reading)

    def _centre_bytes(self) -> float:
        dense = self.k * self.d
        metric = METRICS[self.metric]
        if not self.sparse or not metric.summed:
            # Master, new centres and one packed layout in the compute dtype; sums in float64, or
            # places and tangents; centres that are not sums are arrays whatever the rows are, and
            # sparse rows are measured from a CSR copy of them.
            doubles = 8 if metric.summed else 16 if metric.directed else 0
            copy = 8 + self.itemsize if self.sparse else 0
            return dense * (3 * self.itemsize + doubles + copy)
        # No centre has a feature that none of its rows has. Master, sums and lists take some 60
        # bytes per nonzero, panels at most as much again; each thread has a vector of sums.
        held = min(dense, self.n * self.width)
        return 120 * held + 24 * self.d

    # Costs in multiply-adds of plain Lloyd, which they are compared with.

    @property
    def first_look(self) -> bool:
        """Do 8-bit centres decide most rows of a plain pass (first_look.hpp)?"""
        return self.sparse and self.k >= 32

    def plain_cost(self, *, looks: bool = True) -> float:
        """A pass of Lloyd; `looks`: with a first look, where that may be."""
        if self.sparse:
            width = 0.6 * self.width if self.first_look and looks else self.width
            return self.compared * self.k * (width + 6)
        # Values are read and put side by side before they are multiplied.
        return self.compared * (self.k * (self.width + 4) + 8 * self.width + 100)

    def cost(self, algorithm: str, tally: Tally) -> float:
        """A pass that left this many distances and rows over."""
        if algorithm == "kdtree":
            return tally.distances * (self.width + 8)
        if algorithm == "moving":
            return self.plain_cost() * tally.distances / (self.compared * self.k)
        # A group of centres gives fewer sums per value that is read than a pass over all does,
        # and a row that is not settled costs bounds, a place in some lists and a cache miss or two.
        if self.sparse:
            per_row, any_row = 6400 / self.itemsize, 40
        elif algorithm == "hamerly":  # distances to own centres are measured one by one
            per_row, any_row = 25 * self.width + 1000, 700
        else:
            per_row, any_row = 5 * self.width + 11 * self.k + 600, 200
        if algorithm == "pca":  # every centre's shadow, at most
            per_row += SHADOW * self.k
        return (
            tally.distances * self._per_distance(algorithm)
            + (self.n - tally.skipped) * per_row
            + any_row * self.compared
        )

    def _per_distance(self, algorithm: str) -> float:
        if self.sparse:
            return 2 * self.width
        return 1.1 * self.width + (6 if algorithm == "hamerly" else 100)

    def first_cost(self, algorithm: str, distances: float) -> float:
        """A pass that begins bounds: rows are measured, and get room for theirs."""
        per_row = 6400 / self.itemsize if self.sparse else 20 * self.width + 2200
        return distances * self._per_distance(algorithm) + self.compared * per_row

    def probe_cost(self) -> float:
        """Finding principal directions and labelling PROBE rows by them (`share_left`).

        One thread does most of it. Measured with 128, 384 and 784 features, 100 and 1024 clusters:
        11 to 57 ms, while a plain pass does 5e7 multiply-adds in a millisecond.
        """
        return self.d * (4e6 + 5.5e3 * self.k)

    @property
    def gaps(self) -> bool:
        """May distances between centres be asked how many of them a row must look at (gaps.hpp)?"""
        told = not self.sparse and self.metric == "euclidean" and 16 * self.k <= self.compared
        return told and not self.reading

    def products_cost(self, changed: int) -> float:
        """A pass that changes kept products for so many rows with a new label (products.hpp)."""
        lists = self.k * self.d * self.itemsize > LISTS
        step = (12 if lists else 32) / self.itemsize
        return 2 * changed * self.overlap * step + self.n * (2 * self.k + 40)


@dataclass(frozen=True)
class Choice:
    algorithm: str
    why: str
    bytes_needed: int
    adaptive: bool = False  # lloyd may take over while bounds do not pay
    kinds: int | None = None  # rows that differ, if only those are compared
    late: bool = False  # products may take over when few labels change
    probe: bool = False  # pca takes the place of yinyang if a few rows say so


#: From the one that prunes most to the one that needs no memory.
FRUGAL = ("elkan", "yinyang", "hamerly", "moving", "lloyd")


def able(work: Workload) -> list[str]:
    """The algorithms that can do it, by their traits."""
    return _able(work.sparse, work.metric)


@cache
def _able(sparse: bool, metric: str) -> list[str]:
    return [
        name
        for name, traits in _TRAITS.items()
        if (traits["csr"] if sparse else traits["dense"]) and metric in traits["metrics"].split()
    ]


def choose(algorithm: str, work: Workload, memory_limit: int | None) -> Choice:
    """The algorithm to run, or a ValueError that says what does not fit."""
    if algorithm == "auto":
        return _choose_auto(work, memory_limit)
    if algorithm not in able(work):
        rows = "sparse" if work.sparse else "dense"
        raise ValueError(
            f"algorithm must be one of {', '.join(map(repr, ('auto', *able(work))))} for "
            f"{rows} X and metric={work.metric!r}, but it is {algorithm!r}."
        )
    why = f"algorithm={algorithm!r}"
    needed = work.bytes_needed(algorithm)
    frugal = work.bytes_needed("lloyd")
    if memory_limit is not None and needed > memory_limit and work.reading and frugal < needed:
        why = f"{algorithm} would take {needed:,} bytes of memory_limit={memory_limit:,}"
        algorithm, needed = "lloyd", frugal
    _refuse_too_large(algorithm, needed, work, memory_limit)
    return Choice(algorithm, why, needed)


def may_merge(algorithm: str, work: Workload, memory_limit: int | None) -> bool:
    """May rows be looked through for copies, which would then not be compared themselves?"""
    room = memory_limit is None or work.bytes_needed("lloyd") + 24 * work.n <= memory_limit
    return algorithm == "auto" and room and work.plain_cost() >= SHORT_PASS


def _choose_auto(work: Workload, memory_limit: int | None) -> Choice:
    algorithm, why = _best(work)
    needed = work.bytes_needed(algorithm)
    if memory_limit is not None and needed > memory_limit:
        wish, after = algorithm, FRUGAL.index(algorithm) if algorithm in FRUGAL else 0
        for algorithm in [name for name in FRUGAL[after + 1 :] if name in able(work)]:
            needed = work.bytes_needed(algorithm)
            if needed <= memory_limit:
                break
        why = f"{wish} would not fit memory_limit"
    _refuse_too_large(algorithm, needed, work, memory_limit)
    late = algorithm not in ("lloyd", "kdtree") and _may_keep_products(work, memory_limit)
    if late:
        needed = max(needed, work.bytes_needed("products"))
    probe = algorithm == "yinyang" and _may_project(work, memory_limit)
    if probe:
        needed = max(needed, work.bytes_needed("pca"))
    return Choice(
        algorithm,
        f"auto: {why}",
        needed,
        adaptive=True,
        late=late,
        probe=probe,
        kinds=work.kinds,
    )


def _may_keep_products(work: Workload, memory_limit: int | None) -> bool:
    if "products" not in able(work) or work.reading or not math.isfinite(work.overlap):
        return False
    if memory_limit is None:
        return 4 * work.n * work.k <= KEPT
    return work.bytes_needed("products") <= memory_limit


def _may_project(work: Workload, memory_limit: int | None) -> bool:
    if "pca" not in able(work) or work.reading or work.d < PROJECTED or work.k < 64:
        return False
    return memory_limit is None or work.bytes_needed("pca") <= memory_limit


def _best(work: Workload) -> tuple[str, str]:
    """The algorithm that should be fastest in the long run if memory does not matter."""
    n, d, k, size = work.compared, work.d, work.k, work.itemsize
    # The tree numbers rows by 31 bits.
    tree = not work.reading and d <= TREE_FEATURES and 10_000 <= n < 2**31 and k >= 32
    if tree and "kdtree" in able(work):
        return "kdtree", f"{d} features, {n:,} rows"
    if work.plain_cost() < SHORT_PASS or k * work.width < 400 or k < 8:
        return "lloyd", "few distances, which bounds would not make fewer fast enough"
    if work.reading and not work.sparse and k * (work.width + 6) < READING * work.width * size:
        return "lloyd", "rows that are read again take longer to read than to compare"
    if "yinyang" not in able(work):
        return "lloyd", f"bounds do not hold for {work.metric} distances"
    if work.first_look:
        return "moving", f"{k} clusters of sparse rows"
    return "yinyang", f"{k} clusters of {'sparse ' if work.sparse else ''}rows"


def _refuse_too_large(
    algorithm: str, needed: int, work: Workload, memory_limit: int | None
) -> None:
    instead = ": MiniBatchKMeans keeps fewer"
    refuse_over_limit(f"algorithm={algorithm!r}", needed, work, memory_limit, instead)


def refuse_over_limit(
    what: str, needed: int, work: Workload, memory_limit: int | None, instead: str = ""
) -> None:
    """One sentence with the bytes that `what` needs; `instead`: what keeps less per row."""
    if memory_limit is None or needed <= memory_limit:
        return
    smaller = ""
    if work.reading and needed - work.reading > memory_limit:
        smaller = (
            f"; {needed - work.reading:,} of them are for rows and centres, some "
            f"{(needed - work.reading) // work.n} per row, whatever the size of blocks{instead}"
        )
    elif work.reading:
        smaller = (
            f"; {work.reading:,} of them are for reading, less with open_blocks(..., "
            "block_rows=...), or row groups that are smaller or have no dictionaries"
        )
    raise ValueError(
        f"memory_limit must be at least {needed:,} bytes for {what} with "
        f"{work.n:,} rows, {work.d:,} columns and {work.k:,} clusters, but it is "
        f"{memory_limit:,}{smaller}."
    )


SHADOW = 60  # multiply-adds that comparing a row with a centre's shadow comes to (shadows.hpp)
PROJECTED = 128  # features from which a few principal coordinates may stand for all
PROBE = 1024  # rows that are asked whether they do
LEFT = 0.35  # share of centres that they may leave
LISTS = 2**25  # bytes of centres from which rare features have lists (layout.hpp)
KEPT = 2**29  # bytes of products that nobody minds
SHORT_PASS = 5e6  # multiply-adds that take less time than keeping bounds
READING = 4  # multiply-adds that take as long as reading a byte that is in the page cache
TREE_FEATURES = 4  # up to so many, boxes lose candidates faster than bounds hold
GAPS = 32  # rows that are asked how many centres the nearest one keeps away from them
PROMISING = {True: 0.1, False: 0.03}  # share of new labels that bounds wait for (sparse, dense)
# In passes of plain Lloyd:
AT_ONCE = 1.75  # bounds whose first pass takes no more need not wait
SPARE = 0.1  # what a pass may lose on average
SAVED = 0.15  # what bounds save in a pass, if they do
TRIED = 0.5  # what bounds may lose after their first pass before they are given up
PROJECTING = 0.5  # what the first pass of pca costs more: 0.44 for SIFT, 1024 clusters, AVX-512
PROBING = 0.02  # the share of all passes that asking a few rows about pca may cost
SIFTED = 0.8  # share of distances from which centres that moved are as good as all of them


def _some_rows(engine: Engine, most: int) -> Matrix:
    """Rows from all over the data, which stand for all of it."""
    return engine.pick(np.linspace(0, engine.n - 1, min(most, engine.n)).astype(np.intp))


def share_left(engine: Engine, centroids: _core.Centroids, k: int) -> float:
    """The share of distances that a few rows, labelled by `pca`, would have computed."""
    rows = _some_rows(engine, PROBE)
    n = len(rows)
    labels = np.full(n, -1, dtype=np.int32)
    assigner = _core.Assigner("pca", engine.dtype == np.float32, n, k)
    _, distances, _ = assigner.assign(rows_of(rows, None), centroids, labels, engine.n_jobs)
    return distances / (n * k)


def share_near(engine: Engine, centroids: _core.Centroids, k: int) -> float:
    """The share of centres that the distances between centres leave to be compared with a row."""
    centres = from_core(centroids.centres, (k, engine.d))
    rows = _some_rows(engine, GAPS)
    n = len(rows)
    away, between = np.empty((2, n, k), dtype=engine.dtype)
    rows_of(rows, None).transform(centres, None, 0, away, engine.n_jobs)
    nearest = away.argmin(axis=1)
    rows_of(centres[nearest], None).transform(centres, None, 0, between, engine.n_jobs)
    return float(np.mean(between <= 2 * away[np.arange(n), nearest][:, None]))


class Policy:
    """Which algorithm each iteration of a run uses, by what the former ones showed.

    Bounds cost more than plain Lloyd before they cost less, and sometimes never do. So accounts are
    kept: bounds begin at once where their first pass is cheap, else when passes enough were made
    that what it costs is little beside them; and they are given up when they lose more.

    Only counts decide, so that the same data takes the same course on any machine; and whatever
    they decide, the labels are the same.
    """

    def __init__(self, choice: Choice, work: Workload, max_iter: int) -> None:
        self._choice, self._work, self._max_iter = choice, work, max_iter
        self._bounds = choice.algorithm not in ("lloyd", "kdtree", "moving")
        self._promising = PROMISING[work.sparse] * work.n
        self._changed_at_entry = self._promising
        # In passes of plain Lloyd: what may be lost; what the bounds in use lost, and may lose.
        self._spare = self._lost = 0.0
        self._tried = TRIED
        #: (first iteration, algorithm, why)
        self.stages: list[tuple[int, str, str]] = []
        self._choose_first(1.0)

    def begin(self, engine: Engine, centroids: _core.Centroids) -> None:
        """Take note of where the centres begin."""
        work = self._work
        if self._choice.probe and self._may_probe():
            left = share_left(engine, centroids, work.k)
            if left <= LEFT:
                why = f"auto: principal coordinates leave {left:.0%} of the centres to be compared"
                self._choice = replace(self._choice, algorithm="pca")
                self.algorithm, self.stages = "pca", [(1, "pca", why)]
        if self.algorithm != self._choice.algorithm and work.gaps:
            self._choose_first(share_near(engine, centroids, work.k))

    def _may_probe(self) -> bool:
        """Are there passes enough to win back the probe, and the first pass of pca?"""
        probe = self._work.probe_cost() / self._work.plain_cost()
        return probe <= PROBING * self._max_iter and SAVED * (self._max_iter - 1) >= PROJECTING

    def _choose_first(self, share: float) -> None:
        """Bounds, or plain Lloyd if their first pass, with this share of distances, is dear.

        It is dear if later passes may be too few to win its cost back. If they do not win it back,
        the fit must not take much longer than with plain Lloyd: what the first pass costs, the next
        ones must not lose. The second one rarely gains, so they may lose a little in any case.
        """
        choice = self._choice
        self.algorithm, why = choice.algorithm, choice.why
        if choice.adaptive and self._bounds:
            all_ = self._work.compared * self._work.k
            # The first pass finds labels, and so computes more than a share measured with labels
            # known: 61 % instead of 9 % for covtype, 100 clusters.
            left, loss = self._max_iter - 1, self._first_cost(math.sqrt(share) * all_) - 1
            dear = self._first_cost(share * all_) > AT_ONCE or loss > SPARE * left
            if dear or self._work.sparse:
                self.algorithm, why = "lloyd", "most rows move at first"
            else:
                self._tried = min(TRIED, max(TRIED / 2, SPARE * left - loss))
        self.stages = [(1, self.algorithm, why)]

    def after(self, iteration: int, tally: Tally, *, looks: bool = True) -> None:
        """Take note of an iteration; `algorithm` is what the next one should use.

        `looks`: the centres are not too thin for a first look.
        """
        if not self._choice.adaptive or self._choice.algorithm == "lloyd":
            return
        share = tally.changed / self._work.n
        self._spare += SPARE
        if self.algorithm == "lloyd":
            if self._products_pay(tally.changed, 1.0, looks):
                self._go_on(iteration, "products", f"{share:.1%} of rows changed")
            elif tally.changed <= self._changed_at_entry and self._affordable(iteration):
                self._go_on(iteration, self._choice.algorithm, f"{share:.1%} of rows changed")
            return
        cost = self._work.cost(self.algorithm, tally) / self._work.plain_cost()
        if self.stages[-1][0] == iteration:  # the pass that begins the bounds computes all
            self._spare += 1 - (self._first_cost(tally.distances) if self._bounds else cost)
        else:
            self._spare += 1 - cost
            self._lost = max(0.0, self._lost + cost - 1)
        if self.algorithm != "products" and self._products_pay(tally.changed, cost, looks):
            self._go_on(iteration, "products", f"{share:.1%} of rows changed")
        elif self._lost > self._tried:
            self._changed_at_entry = min(tally.changed / 16, self._promising)
            share = 1 - tally.skipped / self._work.n
            self._go_on(iteration, "lloyd", f"bounds left {share:.0%} of rows over")

    def _first_cost(self, distances: float) -> float:
        """The pass that begins bounds, in passes of plain Lloyd."""
        first = self._work.first_cost(self._choice.algorithm, distances)
        return first / self._work.plain_cost()

    def _affordable(self, iteration: int) -> bool:
        """May what the first pass costs be lost, and can the passes after it get it back?"""
        all_ = self._work.compared * self._work.k
        loss = self._first_cost(all_) - 1 if self._bounds else 0.0
        return loss <= min(self._spare, SAVED * (self._max_iter - iteration))

    def _products_pay(self, changed: int, cost: float, looks: bool) -> bool:
        """Would they cost clearly less than what a pass costs now?"""
        if self.algorithm == "moving" and looks and cost < SIFTED:
            return False  # whose passes get cheaper, too, and which has nothing to begin with
        products = self._work.products_cost(changed) / self._work.plain_cost(looks=looks)
        return self._choice.late and products < 0.6 * cost

    def _go_on(self, iteration: int, algorithm: str, why: str) -> None:
        self.algorithm, self._lost, self._tried = algorithm, 0.0, TRIED
        self.stages.append((iteration + 1, algorithm, why))
