"""The plan of a fit: how much work it is, which algorithm begins, which blocks stay in memory."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from exactmeans.engine.protocol import Engine
from exactmeans.fit.cost_model import Workload
from exactmeans.fit.policy import Choice, choose_algorithm, may_deduplicate
from exactmeans.memory import memory_of_machine


@dataclass(frozen=True)
class Plan:
    """The work of a fit, and the algorithm to begin with."""

    work: Workload
    choice: Choice


def plan_fit(
    engine: Engine, k: int, algorithm: str, memory_limit: int | None, max_iter: int
) -> Plan:
    """Choose, refuse what does not fit `memory_limit`, and prepare the engine accordingly."""
    work = Workload.of(engine, k)
    work = replace(work, overlap=engine.overlap(), passes=min(max_iter, work.passes))
    if may_deduplicate(algorithm, work, memory_limit):
        work = replace(work, distinct_rows=engine.deduplicate())
    here = work if engine.most_rows == work.n else replace(work, n=engine.most_rows)
    choice = choose_algorithm(algorithm, here, memory_limit)
    kept = engine.keep(block_budget(memory_limit) - choice.bytes_needed)
    codes = here.code_bytes if here.code_bytes <= (engine.scratch_limit or math.inf) else 0
    return Plan(work, replace(choice, bytes_needed=choice.bytes_needed + kept + codes))


def block_budget(memory_limit: int | None) -> int:
    """Bytes that blocks, and what a fit needs beside them, may take in memory.

    A quarter is left to the allocator, which does not return all freed memory.
    """
    return (memory_limit or memory_of_machine() // 4) * 3 // 4
