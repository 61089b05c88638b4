"""The sentences of a report: names of clusters, what was found, what the figures show."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from exactmeans.estimators.base import BaseKMeans
from exactmeans.fit.loop import MAX_ITER_REACHED
from exactmeans.metrics import METRICS
from exactmeans.quality.odd_rows import ODD
from exactmeans.reporting.summary import Contrast, Summary

_CLEAR = 0.5  # contrasts below half a standard deviation do not name a cluster
_TERMS = 4
NUMBERED = 60  # clusters, at most, whose numbers the map shows (map.js)
CURVES = 24  # clusters, at most, whose silhouettes are drawn row by row
_WEAK = 0.1  # a term that is less than a tenth above the mean of all rows names no cluster


def cluster_name(top: list[Contrast], names: Callable[[int], str], *, dense: bool) -> str:
    """What sets a cluster apart: its terms, or which features are high and low."""
    if not dense:
        strong = [t for t in top[:_TERMS] if t.contrast > _WEAK * t.value]
        return ", ".join(names(t.feature) for t in strong) or "few terms"
    clear = [t for t in top[:3] if abs(t.contrast) >= _CLEAR] or top[:1]
    said = ", ".join(f"{'high' if t.contrast > 0 else 'low'} {names(t.feature)}" for t in clear)
    if not said:
        return "average"
    return said if abs(clear[0].contrast) >= _CLEAR else f"near the average, {said}"


def story(
    summary: Summary, explained: dict[str, Any] | None, *, dense: bool, max_iter: int
) -> list[str]:
    """The answer in a few sentences: how many groups, how clear, which rows do not fit."""
    sizes = summary.size[summary.size > 0]
    n, k = len(summary.labels), len(summary.size)
    largest = int(sizes.max()) if len(sizes) else 0
    first = f"{n:,} rows form {k:,} clusters" if k > 1 else f"{n:,} rows form one cluster"
    if k > 1:
        first += (
            f" of {int(sizes.min()):,} to {largest:,} rows; the largest has {largest / n:.0%} of "
            "all rows"
        )
    said = [first + "."]
    if summary.silhouette is not None:
        said.append(_separation(_mean_silhouette(summary), dense=dense))
    said.append(_oddness(summary))
    if explained is not None and explained["stopped"] == MAX_ITER_REACHED:
        said.append(
            f"The fit stopped at max_iter={max_iter} before it converged: more iterations may "
            "improve it."
        )
    return said


def _separation(mean: float, *, dense: bool) -> str:
    value = f"the mean silhouette is {mean:.2f}"
    if not dense and mean < 0.25:
        return (
            f"Rows have many features, most of them zero, so all distances are alike and {value}; "
            "judge the clusters by what sets them apart."
        )
    if mean >= 0.7:
        return f"The clusters are clearly apart: {value}."
    if mean >= 0.5:
        return f"The clusters are apart, with some rows between them: {value}."
    if mean >= 0.25:
        return f"The clusters overlap: {value}."
    return f"The clusters overlap widely and divide a cloud rather than separate groups: {value}."


def _oddness(summary: Summary) -> str:
    single = int((summary.size == 1).sum())
    none = int((summary.labels < 0).sum())
    said = []
    if summary.odd_total:
        lies = (
            "row lies unusually far from its"
            if summary.odd_total == 1
            else "rows lie far from their"
        )
        said.append(f"{summary.odd_total:,} {lies} centre")
    if single:
        said.append(f"{single:,} {'cluster has' if single == 1 else 'clusters have'} a single row")
    if none:
        said.append(f"{none:,} {'row of zeros is' if none == 1 else 'rows of zeros are'} in none")
    return "; ".join(said) + "." if said else "No row lies unusually far from its centre."


def _mean_silhouette(summary: Summary) -> float:
    assert summary.silhouette is not None
    return float(summary.silhouette[summary.labels >= 0].mean())


def notes(summary: Summary, *, dense: bool, standardised: bool) -> dict[str, str]:
    """What each figure shows."""
    n, shown = len(summary.labels), len(summary.sample)
    share = sum(summary.projection.explained)
    rows = f"A sample of {shown:,} of {n:,} rows" if shown < n else f"All {n:,} rows"
    between = not dense and len(summary.size) > 2
    how = "along which the centres differ most" if between else "of the largest variance"
    directed = METRICS[summary.metric].directed
    scaled = ", scaled to length 1" if directed else ", standardised" if standardised else ""
    k = len(summary.size)
    centres = "Numbers" if k <= NUMBERED else "Larger dots"
    quality = "of the rows" if k <= CURVES else "of each cluster, the mean of its rows"
    line = " The dashed line is the mean." if k <= CURVES else ""
    return {
        "map": f"{rows}{scaled}, along the two axes {how}; these hold {share:.0%} of the variance, "
        f"so clusters that overlap here may be apart along other axes. {centres} mark centres. "
        "Hover for rows, click to open a cluster.",
        "profile": "Each centre beside the mean of all rows"
        + (f" (of a sample of {shown:,})" if shown < n else "")
        + ": orange is above, blue below; full colour is three standard deviations.",
        "sizes": "Rows in each cluster.",
        "quality": f"Simplified silhouette {quality}: 1 is at the own centre, 0 between two "
        f"centres.{line}",
        "odd": _odd_note(summary),
    }


def _odd_note(summary: Summary) -> str:
    one = summary.odd_total == 1
    if summary.metric == "cosine":
        rule = (
            f"less than 1/{ODD:.0f} as similar to {'its' if one else 'their'} centre as the mean "
            f"of {'its' if one else 'their'} cluster"
        )
    else:
        rule = (
            f"more than {ODD:.0f} standard deviations farther from {'its' if one else 'their'} "
            f"centre than the mean of {'its' if one else 'their'} cluster"
        )
    if summary.odd_total:
        are = "row is" if one else "rows are"
        last = "" if one else "; the oddest come first"
        return f"{summary.odd_total:,} {are} {rule}{last}."
    return f"There are none: no rows are {rule}."


def subtitle(summary: Summary, features: int) -> str:
    """One line under the title."""
    distance = {"euclidean": "Euclidean"}.get(summary.metric, summary.metric)
    rows, k = len(summary.labels), len(summary.size)
    return f"{rows:,} rows, {features:,} features, {k:,} clusters by {distance} distance"


def tiles(summary: Summary, model: BaseKMeans) -> list[tuple[str, str, str]]:
    """The numbers at the top: label, value, remark."""
    sizes = np.sort(summary.size[summary.size > 0])
    found = [
        ("Rows", f"{len(summary.labels):,}", ""),
        ("Clusters", f"{len(summary.size):,}", ""),
        ("Median size", f"{int(np.median(sizes)):,}" if len(sizes) else "–", "rows"),
    ]
    if summary.silhouette is not None:
        found.append(("Silhouette", f"{_mean_silhouette(summary):.2f}", "simplified, mean"))
    found.append(("Inertia", f"{float(summary.inertia.sum()):,.5g}", "of these rows"))
    found.append(("Odd rows", f"{summary.odd_total:,}", "far from their centre"))
    if getattr(model, "history_", None):
        found.append(("Iterations", f"{model.n_iter_:,}", time_of(model.history_[-1].seconds)))
    return found


def facts(explained: dict[str, Any] | None) -> list[tuple[str, str]]:
    """What ran and why, for the list at the end."""
    if explained is None:
        return []
    several = len(explained["stages"]) > 1
    stages = "; ".join(
        (f"from iteration {s['from_iteration']} " if several else "")
        + f"{s['algorithm']} ({s['reason']})"
        for s in explained["stages"]
    )
    found = [
        ("Algorithm", stages),
        ("Data at fit", f"{explained['rows']:,} × {explained['features']:,}, {explained['dtype']}"),
        ("Metric", explained["metric"]),
        ("Stopped because", explained["stopped"]),
        ("Threads", f"{explained['threads']}, {explained['instruction_set']} instructions"),
        ("Distances", f"{explained['distances']:,}"),
        ("Memory beside the data", f"about {explained['bytes_needed'] / 1e6:.1f} MB"),
    ]
    if explained["distances_share"] is not None:
        share = f"{explained['distances_share']:.1%} of plain Lloyd's"
        found[5] = ("Distances", f"{explained['distances']:,}, {share}")
    if explained["passes"]:
        found.append(("Passes over files", f"{explained['passes']:.3g}"))
    return found


def time_of(seconds: float) -> str:
    """Seconds, or milliseconds where there are few."""
    return f"{seconds * 1000:.2g} ms" if seconds < 0.1 else f"{seconds:,.3g} s"
