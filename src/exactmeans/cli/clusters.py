"""The clusters of a fit or a prediction, as people read them and as JSON."""

from __future__ import annotations

from typing import Any

import numpy as np

from exactmeans.cli import screen
from exactmeans.cli.table import Table
from exactmeans.reporting import words
from exactmeans.reporting.projection import is_sparse
from exactmeans.reporting.summary import Summary

_SHOWN = 30  # clusters in the table of a terminal
_ODD = 5  # odd rows that are named


def _feature(table: Table) -> Any:
    names = table.feature_names
    return lambda f: f"feature {f}" if names is None else str(names[f])


def names_of(summary: Summary, table: Table) -> list[str]:
    """What sets each cluster apart."""
    dense = not is_sparse(summary.picked.values)
    feature = _feature(table)
    return [words.cluster_name(top, feature, dense=dense) for top in summary.contrast]


def row_name(table: Table, i: int) -> str:
    """What DATA calls row i of those that were kept."""
    at = i if table.kept is None else int(table.kept[i])
    return f"row {at}" if table.ids is None else str(table.ids[at])


def show(summary: Summary, table: Table, explained: dict[str, Any] | None, max_iter: int) -> None:
    """Sentences and a table, the largest clusters first."""
    dense = not is_sparse(summary.picked.values)
    for sentence in words.story(summary, explained, dense=dense, max_iter=max_iter):
        screen.say(sentence)
    screen.say()
    names = names_of(summary, table)
    n = len(summary.labels)
    order = np.argsort(-summary.size, kind="stable")[:_SHOWN].tolist()
    own = summary.cluster_silhouette
    screen.table(
        [
            ("cluster", "right"),
            ("rows", "right"),
            ("share", "right"),
            ("silhouette", "right"),
            ("what sets it apart", "fill"),
            ("typical", "fill"),
        ],
        [
            [
                str(j),
                f"{summary.size[j]:,}",
                f"{summary.size[j] / n:.0%}",
                "–" if own is None else f"{own[j]:.2f}",
                names[j],
                ", ".join(row_name(table, int(i)) for i in summary.nearest[j][:2]),
            ]
            for j in order
        ],
    )
    if len(names) > len(order):
        screen.say(f"… and {len(names) - len(order)} smaller ones; --report shows all.")
    if len(summary.odd):
        odd = ", ".join(
            f"{row_name(table, int(i))} (cluster {summary.labels[i]})" for i in summary.odd[:_ODD]
        )
        more = f" and {summary.odd_total - _ODD:,} more" if summary.odd_total > _ODD else ""
        screen.say(f"\nOdd rows, far from their centre: {odd}{more}.")


def as_dict(summary: Summary, table: Table) -> dict[str, Any]:
    """The same for programs."""
    feature = _feature(table)
    silhouette = summary.cluster_silhouette
    return {
        "data": table.name,
        "rows": table.total,
        "rows_left_out": 0 if table.kept is None else table.total - len(table.kept),
        "k": len(summary.size),
        "metric": summary.metric,
        "inertia": float(summary.inertia.sum()),
        "silhouette": (
            None
            if summary.silhouette is None
            else float(summary.silhouette[summary.labels >= 0].mean())
        ),
        "clusters": [
            {
                "cluster": j,
                "rows": int(summary.size[j]),
                "name": name,
                "mean_distance": float(summary.mean_distance[j]),
                "radius": float(summary.radius[j]),
                "silhouette": None if silhouette is None else float(silhouette[j]),
                "features": [
                    {"name": feature(t.feature), "value": t.value, "contrast": t.contrast}
                    for t in summary.contrast[j]
                ],
                "nearest": [row_name(table, int(i)) for i in summary.nearest[j]],
            }
            for j, name in enumerate(names_of(summary, table))
        ],
        "odd_rows": [
            {
                "row": row_name(table, int(i)),
                "cluster": int(summary.labels[i]),
                "distance": float(summary.distance[i]),
                "oddness": float(o),
            }
            for i, o in zip(summary.odd, summary.oddness, strict=True)
        ],
    }
