"""What a fit did and why: `explain()` of the estimators, as a dict and as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from exactmeans import _core
from exactmeans.callbacks import Iteration
from exactmeans.data.arrays import Matrix
from exactmeans.engine.frame import Frame
from exactmeans.fit.policy import Choice
from exactmeans.fit.problem import unscaled


class FinishedFit(Protocol):
    """What a fitted model keeps of its fit."""

    cluster_centers_: Matrix
    inertia_: float
    n_iter_: int
    n_features_in_: int
    n_distances_: int
    history_: list[Iteration]
    _n_rows: int
    _frame: Frame
    _choice: Choice
    _stages: list[tuple[int, str, str]]  # first iteration, algorithm, why
    _stopped: str
    _n_jobs_used: int
    _passes: float
    _unread: int


def explanation(model: FinishedFit) -> dict[str, Any]:
    """The facts of a finished fit, as plain numbers, strings, lists and dicts."""
    n, k = model._n_rows, model.cluster_centers_.shape[0]
    # The centres moved after the last iteration: labels at the final ones took one pass more.
    passes = model.n_iter_ + (model.history_[-1].changed > 0)
    plain = n * k * passes
    # Gradient steps on batches may compute more distances than one pass has.
    share = model.n_distances_ / plain if model.n_distances_ <= plain else None
    return {
        "stages": [
            {"from_iteration": first, "algorithm": name, "reason": why}
            for first, name, why in model._stages
        ],
        "rows": n,
        "features": int(model.n_features_in_),
        "clusters": k,
        "dtype": str(model.cluster_centers_.dtype),
        "metric": model._frame.metric,
        "shifted": model._frame.shift is not None,
        "zero_based": getattr(model, "_zero_based", None),
        "distinct_rows": model._choice.distinct_rows,
        "threads": model._n_jobs_used,
        "instruction_set": _core.active_isa(),
        "iterations": model.n_iter_,
        "stopped": model._stopped,
        "seconds": model.history_[-1].seconds,
        "inertia": model.inertia_,
        "distances": model.n_distances_,
        "passes_plain": passes,
        "distances_plain": plain,
        "distances_share": share,
        "integer_filter": _filter_facts(model.history_),
        "passes": model._passes,
        "blocks_unread": model._unread,
        "bytes_needed": model._choice.bytes_needed,
        "limits": _limits(model),
    }


def _limits(model: FinishedFit) -> dict[str, Any] | None:
    """What size limits cost, at the final centres."""
    limited = getattr(model, "_limited", None)
    if limited is None:
        return None
    return {
        "size_of": "weight" if limited.limits.scale else "rows",
        "size_min": limited.limits.size(limited.limits.least),
        "size_max": limited.limits.size(limited.limits.most),
        "inertia_without_limits": unscaled(limited.free_inertia, model._frame.cost_exponent),
        "rows_not_nearest": limited.moved,
        "rows_on_borders": len(limited.border.labels),
    }


def _sizes(limits: dict[str, Any]) -> str:
    least, most = limits["size_min"], limits["size_max"]
    if limits["size_of"] == "rows":
        return f"{least} to {most} rows"
    return f"weights of {least:g} to {most:g}, up to the weight of a row"


def _filter_facts(history: Sequence[Iteration]) -> dict[str, Any] | None:
    """What the 8-bit filter for dense rows did; None if no pass used it."""
    passes = [record for record in history if record.filtered]
    if not passes:
        return None
    rows = sum(record.filtered for record in passes)
    return {
        "iterations": len(passes),
        "rows": rows,
        "decided_share": sum(record.decided for record in passes) / rows,
        "candidates_per_row": sum(record.verified for record in passes) / rows,
    }


def as_text(explained: dict[str, Any]) -> str:
    """The same in a few lines."""
    several = len(explained["stages"]) > 1
    lines = [
        f"algorithm: {stage['algorithm']}"
        + (f" from iteration {stage['from_iteration']}" if several else "")
        + f" ({stage['reason']})"
        for stage in explained["stages"]
    ]
    shift = "shifted to the mean" if explained["shifted"] else "not shifted"
    lines.append(
        f"data: {explained['rows']} x {explained['features']}, {explained['dtype']}, {shift}"
    )
    if explained["zero_based"] is not None:
        lines.append(f"indices of svmlight files: from {0 if explained['zero_based'] else 1} on")
    if explained["distinct_rows"] is not None:
        lines.append(f"distinct rows: {explained['distinct_rows']}; only these were compared")
    lines.append(
        f"threads: {explained['threads']}, instruction set: {explained['instruction_set']}"
    )
    lines.append(f"iterations: {explained['iterations']}; stopped because {explained['stopped']}")
    share = ""
    if explained["distances_share"] is not None:
        plain, passes = explained["distances_plain"], explained["passes_plain"]
        share = f" of {plain} that plain Lloyd computes in {passes} passes"
        share += f" ({explained['distances_share']:.1%})"
    lines.append(f"distances: {explained['distances']}{share}")
    if explained["integer_filter"] is not None:
        facts = explained["integer_filter"]
        lines.append(
            f"8-bit filter: decided {facts['decided_share']:.1%} of {facts['rows']} rows in "
            f"{facts['iterations']} iterations and left "
            f"{facts['candidates_per_row']:.2f} distances per row"
        )
    if explained["passes"]:
        lines.append(
            f"passes over blocks that are not in memory: {explained['passes']:.3g}; "
            f"{explained['blocks_unread']} times a block was not read, since no label in it could "
            "change"
        )
    if explained["limits"] is not None:
        limits, inertia = explained["limits"], explained["inertia"]
        free = limits["inertia_without_limits"]
        lines.append(
            f"size limits: {_sizes(limits)}; at these centres "
            f"inertia is {inertia:.6g}, without limits {free:.6g}; "
            f"{limits['rows_not_nearest']} rows are not with their nearest centre"
        )
    lines.append(f"memory beside the data: about {explained['bytes_needed'] / 1e6:.1f} MB")
    return "\n".join(lines)
