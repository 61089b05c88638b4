"""How many tasks Spark runs at once, and into how many partitions rows are cut."""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F


def slots_of(spark: Any) -> int:
    """How many tasks run at once: as many as the partitions that Spark gives a range."""
    context = getattr(spark, "_sc", None)
    if context is not None:
        return int(context.defaultParallelism)
    parts = spark.range(100_000).select(F.spark_partition_id().alias("part"))
    return max(1, int(parts.distinct().count()))


def partitions_of(rows: Any) -> int | None:
    """Of a data frame, without running any of it; None if only running it would tell.

    Spark Connect does not tell either.
    """
    frame = getattr(rows, "_jdf", None)
    if frame is None:
        return None
    execution = frame.queryExecution()
    plan = execution.executedPlan()
    if _kind(plan) == "AdaptiveSparkPlanExec":
        plan = plan.inputPlan()
    nodes = [plan]
    for node in nodes:  # which grows
        if "Exchange" in _kind(node):  # counting partitions would run what comes before it
            return None
        children = node.children()
        nodes += [children.apply(i) for i in range(children.size())]
    return int(execution.toRdd().getNumPartitions())


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())
