"""Which algorithm runs: names and abilities from the core, the memory model, the `auto` policy."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

import numpy as np

from exactmeans import _core
from exactmeans.data.arrays import Matrix
from exactmeans.data.centres import from_core
from exactmeans.data.rows import rows_of
from exactmeans.engine.protocol import AssignStats, Engine
from exactmeans.fit.cost_model import (
    AT_ONCE,
    GAPS,
    KEPT,
    LEFT,
    PROBE,
    PROBING,
    PROJECTED,
    PROJECTING,
    PROMISING,
    READING,
    SAVED,
    SHORT_PASS,
    SIFTED,
    SPARE,
    TREE_FEATURES,
    TRIED,
    Workload,
)

#: What `algorithm` may be, for type checkers; the core's registry decides.
AlgorithmName = Literal[
    "auto", "lloyd", "elkan", "hamerly", "yinyang", "kdtree", "products", "pca", "moving"
]
_TRAITS = {traits["name"]: traits for traits in _core.algorithms()}
ALGORITHM_NAMES = ("auto", *_TRAITS)


@dataclass(frozen=True)
class Choice:
    algorithm: str
    why: str
    bytes_needed: int
    adaptive: bool = False  # lloyd may take over while bounds do not pay
    distinct_rows: int | None = None  # rows that differ, if only those are compared
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


def choose_algorithm(algorithm: str, work: Workload, memory_limit: int | None) -> Choice:
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


def may_deduplicate(algorithm: str, work: Workload, memory_limit: int | None) -> bool:
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
        distinct_rows=work.distinct_rows,
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

    def after(self, iteration: int, stats: AssignStats, *, looks: bool = True) -> None:
        """Take note of an iteration; `algorithm` is what the next one should use.

        `looks`: the centres are not too thin for a first look.
        """
        if not self._choice.adaptive or self._choice.algorithm == "lloyd":
            return
        share = stats.changed / self._work.n
        self._spare += SPARE
        if self.algorithm == "lloyd":
            if self._products_pay(stats.changed, 1.0, looks):
                self._go_on(iteration, "products", f"{share:.1%} of rows changed")
            elif stats.changed <= self._changed_at_entry and self._affordable(iteration):
                self._go_on(iteration, self._choice.algorithm, f"{share:.1%} of rows changed")
            return
        cost = self._work.cost(self.algorithm, stats) / self._work.plain_cost()
        if self.stages[-1][0] == iteration:  # the pass that begins the bounds computes all
            self._spare += 1 - (self._first_cost(stats.distances) if self._bounds else cost)
        else:
            self._spare += 1 - cost
            self._lost = max(0.0, self._lost + cost - 1)
        if self.algorithm != "products" and self._products_pay(stats.changed, cost, looks):
            self._go_on(iteration, "products", f"{share:.1%} of rows changed")
        elif self._lost > self._tried:
            self._changed_at_entry = min(stats.changed / 16, self._promising)
            share = 1 - stats.skipped / self._work.n
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
