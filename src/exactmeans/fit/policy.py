"""Which algorithm runs: by its traits, by memory, and by the statistics of past passes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from exactmeans import _core
from exactmeans.engine.protocol import AssignStats, Engine
from exactmeans.fit.cost_model import (
    AVERAGE_LOSS,
    CHANGED_SHARE_FOR_BOUNDS,
    CHEAP_FIRST_PASS,
    EXPECTED_SAVING,
    KDTREE_MAX_FEATURES,
    MAX_LOSS,
    PCA_FIRST_PASS,
    PCA_MAX_SHARE,
    PCA_MIN_FEATURES,
    PCA_PROBE_SHARE,
    PRODUCTS_BYTES,
    READ_BYTE_COST,
    SHORT_PASS,
    Workload,
)
from exactmeans.fit.probes import cost_with_filter, share_left_by_pca, share_near

#: What `algorithm` may be, for type checkers; the core's registry decides.
AlgorithmName = Literal[
    "auto", "lloyd", "elkan", "hamerly", "yinyang", "kdtree", "products", "pca", "moving"
]
_COST = _core.cost_model
_TRAITS = {traits["name"]: traits for traits in _core.algorithms()}
ALGORITHM_NAMES = ("auto", *_TRAITS)


@dataclass(frozen=True)
class Choice:
    algorithm: str
    why: str
    bytes_needed: int
    adaptive: bool = False  # lloyd may take over while bounds do not pay
    distinct_rows: int | None = None  # if duplicates are not compared
    late: bool = False  # products may take over when few labels change
    probe: bool = False  # pca replaces yinyang if a probe of a few rows suggests it


#: From the algorithm with the most bounds to the one without.
BY_MEMORY = ("elkan", "yinyang", "hamerly", "moving", "lloyd")


def able_algorithms(work: Workload) -> list[str]:
    """The algorithms whose traits fit the layout and the metric."""
    return _able_algorithms(work.sparse, work.metric)


@cache
def _able_algorithms(sparse: bool, metric: str) -> list[str]:
    return [
        name
        for name, traits in _TRAITS.items()
        if (traits["csr"] if sparse else traits["dense"]) and metric in traits["metrics"].split()
    ]


def choose_algorithm(algorithm: str, work: Workload, memory_limit: int | None) -> Choice:
    """The algorithm to run, or a ValueError that says what does not fit."""
    if algorithm == "auto":
        return _choose_auto(work, memory_limit)
    if algorithm not in able_algorithms(work):
        rows = "sparse" if work.sparse else "dense"
        names = ", ".join(map(repr, ("auto", *able_algorithms(work))))
        raise ValueError(
            f"algorithm must be one of {names} for "
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
    """Whether to search for duplicate rows, which are then not compared."""
    fits = memory_limit is None or work.bytes_needed("lloyd") + 24 * work.n <= memory_limit
    return algorithm == "auto" and fits and work.plain_cost() >= SHORT_PASS


def _choose_auto(work: Workload, memory_limit: int | None) -> Choice:
    algorithm, why = _best(work)
    needed = work.bytes_needed(algorithm)
    if memory_limit is not None and needed > memory_limit:
        preferred, after = algorithm, BY_MEMORY.index(algorithm) if algorithm in BY_MEMORY else 0
        for algorithm in [name for name in BY_MEMORY[after + 1 :] if name in able_algorithms(work)]:
            needed = work.bytes_needed(algorithm)
            if needed <= memory_limit:
                break
        why = f"{preferred} would not fit memory_limit"
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
    if "products" not in able_algorithms(work) or work.reading or not math.isfinite(work.overlap):
        return False
    if memory_limit is None:
        return 4 * work.n * work.k <= PRODUCTS_BYTES
    return work.bytes_needed("products") <= memory_limit


def _may_project(work: Workload, memory_limit: int | None) -> bool:
    if (
        "pca" not in able_algorithms(work)
        or work.reading
        or work.d < PCA_MIN_FEATURES
        or work.k < _COST.pca_min_centres
    ):
        return False
    return memory_limit is None or work.bytes_needed("pca") <= memory_limit


def _best(work: Workload) -> tuple[str, str]:
    """The algorithm that should be fastest in the long run if memory does not matter."""
    n, d, k, size = work.compared, work.d, work.k, work.itemsize
    # The tree stores row numbers in 31 bits.
    tree = (
        not work.reading
        and d <= KDTREE_MAX_FEATURES
        and _COST.kdtree_min_rows <= n < 2**31
        and k >= _COST.kdtree_min_centres
        and work.tree_pays()
    )
    if tree and "kdtree" in able_algorithms(work):
        return "kdtree", f"{d} features, {n:,} rows"
    few = k * work.width < _COST.bounds_min_terms or k < _COST.bounds_min_centres
    if work.plain_cost() < SHORT_PASS or few:
        return "lloyd", "too few distances for bounds to pay"
    if (
        work.reading
        and not work.sparse
        and k * (work.width + 6) < READ_BYTE_COST * work.width * size
    ):
        return "lloyd", "rows take longer to read than to compare"
    if "yinyang" not in able_algorithms(work):
        return "lloyd", f"bounds do not hold for {work.metric} distances"
    if work.quantized_filter:
        if work.passes < _COST.moving_least_passes:
            return "lloyd", "too few passes for bounds to pay"
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


class Policy:
    """Chooses the algorithm of each iteration from the statistics of the previous ones.

    Bounds cost more than plain Lloyd at first, and sometimes never pay. So the policy keeps a
    budget, in passes of plain Lloyd: bounds begin at once if their first pass is cheap, otherwise
    when the budget covers it, and end when they lose more than MAX_LOSS.

    Only counts decide, never times: the same data gives the same choices on CPUs with the same kind
    of integer products. The labels do not depend on them.
    """

    def __init__(self, choice: Choice, work: Workload, max_iter: int) -> None:
        self._choice, self._work, self._max_iter = choice, work, max_iter
        self.algorithm: str = choice.algorithm  # of the next iteration
        self._bounds = choice.algorithm not in ("lloyd", "kdtree", "moving")
        self._changed_for_bounds = CHANGED_SHARE_FOR_BOUNDS[work.sparse] * work.n
        self._changed_at_entry = self._changed_for_bounds
        # In plain passes: what the first pass with bounds may cost extra, the net loss of the
        # passes after it, and the loss at which bounds end.
        self._budget = self._lost = 0.0
        self._max_loss = MAX_LOSS
        #: (first iteration, algorithm, why)
        self.stages: list[tuple[int, str, str]] = []
        # The cost of a plain pass with the 8-bit filter for dense rows, as a share of one without.
        self._filter_cost = 1.0
        self._choose_first(1.0)

    def begin(self, engine: Engine, centroids: _core.Centroids) -> None:
        """Refine the first choice by probes with the initial centres."""
        work = self._work
        if self._max_iter <= 2 and self.algorithm == "lloyd":
            return  # too short to win the cost of a probe back
        if self._choice.adaptive and self._bounds:
            self._filter_cost = cost_with_filter(engine, centroids, work)
            self._choose_first(1.0)
        if self._choice.probe and self._may_probe():
            left = share_left_by_pca(engine, centroids, work.k)
            if left <= PCA_MAX_SHARE and self._pca_beats_filter(left):
                why = f"auto: principal coordinates prune {1 - left:.0%} of the centres"
                self._choice = replace(self._choice, algorithm="pca")
                self.algorithm, self.stages = "pca", [(1, "pca", why)]
        if self.algorithm != self._choice.algorithm and work.inter_centre_distances:
            self._choose_first(share_near(engine, centroids, work.k))

    @property
    def passes(self) -> int:
        """How many passes the fit is expected to make."""
        return self._work.passes

    @property
    def _plain_cost(self) -> float:
        """A plain pass, in multiply-adds."""
        return self._work.plain_cost() * self._filter_cost

    def _may_probe(self) -> bool:
        """Whether enough passes follow to recover the cost of the probe and of the first pass."""
        probe = self._work.probe_cost() / self._plain_cost
        return (
            probe <= PCA_PROBE_SHARE * self._max_iter
            and EXPECTED_SAVING * (self._max_iter - 1) >= PCA_FIRST_PASS
        )

    def _pca_beats_filter(self, left: float) -> bool:
        """Whether a pass of `pca` with this share of distances costs less than a filtered one."""
        if self._filter_cost == 1:
            return True
        distances = round(left * self._work.compared * self._work.k)
        stats = AssignStats(changed=self._work.n, distances=distances, skipped=0)
        return self._work.cost("pca", stats) < self._plain_cost

    def _choose_first(self, share: float) -> None:
        """Begin with bounds, or with plain Lloyd if the first pass with bounds costs too much.

        `share`: the share of all distances that the first pass would compute with known labels, by
        a probe; 1.0 without one. The pass costs too much if later passes are expected to save less
        than it costs, or if it costs more than AVERAGE_LOSS for each pass that `max_iter` leaves.
        Bounds may also never win it back, and a fit must not take much longer than with plain
        Lloyd. So later passes may lose AVERAGE_LOSS each, less the loss of the first pass; but at
        least half of MAX_LOSS together, because the second pass rarely gains.
        """
        choice = self._choice
        self.algorithm, why = choice.algorithm, choice.why
        if choice.adaptive and self._bounds:
            all_ = self._work.compared * self._work.k
            # The first pass finds labels, and so computes more than a share measured with labels
            # known: 59 % instead of 9 % for covtype, 100 clusters.
            least = _COST.first_distances
            distances = (least + (1 - least) * math.sqrt(share)) * all_
            left, loss = self._max_iter - 1, self._first_cost(distances) - 1
            first = self._first_cost(share * all_)
            if self._work.sparse:
                self.algorithm, why = "lloyd", "auto: sparse rows start without bounds"
            elif first > CHEAP_FIRST_PASS or loss > min(
                AVERAGE_LOSS * left, self._expected_gain(share)
            ):
                cost = max(first, loss + 1)
                self.algorithm = "lloyd"
                why = f"auto: a first pass of {choice.algorithm} would cost {cost:.1f} plain passes"
            else:
                self._max_loss = min(MAX_LOSS, max(MAX_LOSS / 2, AVERAGE_LOSS * left - loss))
        self.stages = [(1, self.algorithm, why)]

    def _expected_gain(self, share: float) -> float:
        """What all passes with this share of the distances save, in plain passes.

        Infinite for 1.0: without a probe, nothing is known.
        """
        work = self._work
        if share == 1.0:
            return math.inf
        distances = round(share * work.compared * work.k)
        stats = AssignStats(changed=0, distances=distances, skipped=0)
        cost = work.cost(self._choice.algorithm, stats) / self._plain_cost
        return max(0.0, 1 - cost) * work.passes

    def after(self, iteration: int, stats: AssignStats, *, filtered: bool = True) -> None:
        """Record the statistics of an iteration; sets `algorithm` for the next one.

        `filtered`: the centres are dense enough for the 8-bit filter.
        """
        if not self._choice.adaptive or self._choice.algorithm == "lloyd":
            return
        share = stats.changed / self._work.n
        self._budget += AVERAGE_LOSS
        if self.algorithm == "lloyd":
            if self._products_pay(stats.changed, 1.0, filtered):
                self._switch(iteration, "products", f"{share:.1%} of rows changed")
            elif stats.changed <= self._changed_at_entry and self._affordable(iteration):
                self._switch(iteration, self._choice.algorithm, f"{share:.1%} of rows changed")
            return
        cost = self._work.cost(self.algorithm, stats) / self._plain_cost
        if self.stages[-1][0] == iteration:  # the first pass with bounds computes all distances
            first = self._first_cost(stats.distances)
            # The filter takes most of the time of such a pass, and computes few distances.
            if math.isfinite(self._filtered_first_cost):
                first = max(first, self._filtered_first_cost)
            self._budget += 1 - (first if self._bounds else cost)
        else:
            self._budget += 1 - cost
            self._lost = max(0.0, self._lost + cost - 1)
        if self.algorithm != "products" and self._products_pay(stats.changed, cost, filtered):
            self._switch(iteration, "products", f"{share:.1%} of rows changed")
        elif self._lost > self._max_loss:
            self._changed_at_entry = min(
                stats.changed / _COST.retry_bounds, self._changed_for_bounds
            )
            share = 1 - stats.skipped / self._work.n
            self._switch(iteration, "lloyd", f"bounds did not decide {share:.0%} of rows")

    def _first_cost(self, distances: float) -> float:
        """The first pass with bounds, in passes of plain Lloyd."""
        first = self._work.first_cost(self._choice.algorithm, distances)
        return first / self._plain_cost

    @property
    def _filtered_first_cost(self) -> float:
        """The first pass, in plain passes, if the 8-bit filter gives its bounds; else infinite."""
        if self._filter_cost == 1 or self._choice.algorithm not in ("yinyang", "hamerly"):
            return math.inf  # pca prunes by projections
        return self._work.filtered_first_cost() / self._plain_cost

    def _affordable(self, iteration: int) -> bool:
        """Whether the budget covers the first pass, and the remaining passes can recover it."""
        all_ = self._work.compared * self._work.k
        first = min(self._first_cost(all_), self._filtered_first_cost)
        loss = first - 1 if self._bounds else 0.0
        return loss <= min(self._budget, EXPECTED_SAVING * (self._max_iter - iteration))

    def _products_pay(self, changed: int, cost: float, filtered: bool) -> bool:
        """Whether a pass of `products` costs clearly less than the current one."""
        if self._work.quantized_filter and filtered:
            return False  # a filtered pass costs as little, and setting up products takes several
        products = self._work.products_cost(changed) / self._work.plain_cost(filtered=filtered)
        return self._choice.late and products < _COST.products_share * cost

    def _switch(self, iteration: int, algorithm: str, why: str) -> None:
        self.algorithm, self._lost, self._max_loss = algorithm, 0.0, MAX_LOSS
        self.stages.append((iteration + 1, algorithm, why))
