"""Reductions of responses. Totals are exact, so the shape of the tree does not matter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from exactmeans import _core
from exactmeans.data.rows import Lengths
from exactmeans.engine.cluster.requests import Response
from exactmeans.engine.cluster.worker_engine import WorkerEngine
from exactmeans.engine.local.seed_blocks import SeedBlocks
from exactmeans.engine.protocol import AssignStats
from exactmeans.engine.seeding import Blank, Pair


def _surveys(values: list[_core.Survey]) -> _core.Survey:
    whole = _core.Survey(len(values[0].bounds))
    for value in values:
        whole.merge(value, 0)
    return whole


def _exact(values: list[tuple[_core.ExactSum, ...]]) -> tuple[_core.ExactSum, ...]:
    totals = tuple(_core.ExactSum() for _ in values[0])
    for value in values:
        for total, own in zip(totals, value, strict=True):
            total.add(own)
    return totals


def _sums(values: list[tuple[Blank, _core.Exported] | None]) -> tuple[Blank, _core.Exported]:
    some = [value for value in values if value is not None]
    if len(some) == 1:
        return some[0]
    sums = _core.Sums(*some[0][0])
    for _, exported in some:
        sums.absorb(exported)
    return some[0][0], sums.export()


def _assigned(
    values: list[tuple[AssignStats, _core.Exported]], blank: Blank
) -> tuple[AssignStats, _core.Exported]:
    """`blank`: of the sums; responses to every iteration do not repeat it."""
    stats = AssignStats.total(stats for stats, _ in values)
    return stats, _sums([(blank, exported) for _, exported in values])[1]


def _pairs(values: list[list[Pair]]) -> list[Pair]:
    return [
        (sum(high for high, _ in own), sum(low for _, low in own))
        for own in zip(*values, strict=True)
    ]


def _all(values: list[list[Any]]) -> list[Any]:
    return [item for value in values for item in value]


def _lengths(values: list[Lengths]) -> Lengths:
    longest = min(values, key=lambda own: (-own.longest, own.longest_row))
    zeros = [own for own in values if own.zeros]
    return longest._replace(
        zeros=sum(own.zeros for own in zeros),
        first_zero=min((own.first_zero for own in zeros), default=-1),
    )


def _none(values: list[Any]) -> None:
    """Operations without a result."""


def _added(values: list[Any]) -> Any:
    return sum(values[1:], values[0])


#: The operations that a request may name, and how their results are reduced to one.
OPERATIONS: dict[str, Callable[..., Any]] = {
    operation.__qualname__: reduction
    for operation, reduction in (
        (WorkerEngine.open, _none),
        (WorkerEngine.survey, _surveys),
        (WorkerEngine.bins_needed, max),
        (WorkerEngine.weight_bins, max),
        (WorkerEngine.largest_weight, max),
        (WorkerEngine.add_all, _sums),
        (WorkerEngine.scatter, _exact),
        (WorkerEngine.squares, _exact),
        (WorkerEngine.lengths, _lengths),
        (WorkerEngine.total_weight, _sums),
        (WorkerEngine.counted, _all),
        (WorkerEngine.fingerprint, _all),
        (WorkerEngine.rows, _all),
        (WorkerEngine.begin, _none),
        (WorkerEngine.use, _none),
        (WorkerEngine.assign, _assigned),  # needs `blank` besides
        (WorkerEngine.move_row, _sums),
        (WorkerEngine.far_rows, _all),
        (WorkerEngine.renaming, _all),
        (WorkerEngine.sizes, _added),
        (WorkerEngine.used_labels, _all),
        (WorkerEngine.open_seeding, _none),
        (SeedBlocks.exported_weights, _sums),
        (SeedBlocks.potentials, _pairs),
        (SeedBlocks.start, max),
        (SeedBlocks.largest, max),
        (SeedBlocks.set_unit2, max),
        (SeedBlocks.farthest, min),
        (SeedBlocks.lay_grid, _all),
        (SeedBlocks.find, _all),
        (SeedBlocks.accept, _all),
        (SeedBlocks.add, _all),
        (SeedBlocks.sample_bernoulli, _all),
        (SeedBlocks.defer, _none),
        (SeedBlocks.refresh, _all),
        (SeedBlocks.add_deferred, _all),
    )
}


def reduced(what: str, responses: list[Response], blank: Blank | None = None) -> Response:
    """One response for several to the operation `what`; engines lost in any of them are lost.

    `blank`: of the sums of an iteration.
    """
    values = [response.value for response in responses if response.value is not None]
    lost = tuple(number for response in responses for number in response.lost)
    reduction = OPERATIONS[what]
    needed = (blank,) if reduction is _assigned else ()
    return Response(reduction(values, *needed) if values else None, lost)
