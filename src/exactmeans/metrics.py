"""The metrics and their properties.

Where a property decides, code reads that property. Code that compares names means that metric
alone; ARCHITECTURE.md ("Add a metric") has a command that lists both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["EUCLIDEAN", "METRICS", "METRIC_NAMES", "Metric", "MetricName", "ZeroRows"]


@dataclass(frozen=True)
class Metric:
    name: str
    objective: str  # what a row of weight 1 adds to it
    directed: bool = False  # only the directions of rows count
    summed: bool = True  # centres follow from sums over rows, so that those may come in blocks
    squared: bool = True  # the objective sums squares of distances, otherwise the distances
    # Scores are sums of absolute differences, not products. So rows are never shifted, the range of
    # values is checked, CSR rows are compared with dense centres, neither filters nor seeding use
    # 8-bit codes, and seeding by distance**alpha doubles alpha. The centre of all rows is their
    # median.
    l1: bool = False

    def refuse_blocks(self) -> None:
        if not self.summed:
            raise ValueError(
                f"X must not come in blocks for metric={self.name!r}, whose centres are not sums "
                "over rows; metric='euclidean' and metric='cosine' take blocks."
            )


#: What `metric` may be, for type checkers.
MetricName = Literal["euclidean", "cosine", "angular", "manhattan"]
ZeroRows = Literal["error", "keep"]
METRICS = {
    metric.name: metric
    for metric in (
        Metric("euclidean", "squared distance"),
        Metric("cosine", "1 - cosine", directed=True, squared=False),
        Metric("angular", "squared angle", directed=True, summed=False),
        Metric("manhattan", "sum of absolute differences", summed=False, squared=False, l1=True),
    )
}
METRIC_NAMES = tuple(METRICS)
EUCLIDEAN = METRICS["euclidean"]
