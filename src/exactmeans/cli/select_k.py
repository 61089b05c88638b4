"""`exactmeans select-k`: how many clusters."""

from __future__ import annotations

from typing import Annotated, Any, cast

import typer

from exactmeans.cli import options, screen
from exactmeans.cli.groups import Clustering, Features, Reading, grouped
from exactmeans.cli.opening import opened
from exactmeans.cli.table import Table
from exactmeans.metrics import METRICS
from exactmeans.select import KSelection, Measures
from exactmeans.select import select_k as compare
from exactmeans.select.criteria import CRITERIA, Criterion

_AUTO = (2, 12)  # the numbers of clusters that -k auto tries


@grouped
def select_k(
    reading: Reading,
    features: Features,
    clustering: Clustering,
    k: Annotated[
        str,
        typer.Option(
            "-k",
            "--clusters",
            metavar="FROM:TO",
            rich_help_panel="Clustering",
            help="The numbers of clusters to try: 2:12, 2:30:4 (every fourth), 3,5,8.",
        ),
    ] = "2:12",
    criterion: Annotated[
        str,
        typer.Option(
            "--criterion",
            metavar="|".join(CRITERIA),
            rich_help_panel="Clustering",
            help="What decides.",
        ),
    ] = "auto",
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Cluster DATA with several numbers of clusters, compare them, and suggest one.

    \b
    exactmeans select-k customers.csv -k 2:12 --exclude Gender --standardize
    """
    screen.be_quiet(quiet)
    ks = numbers(k)
    with opened(reading, features) as table:
        found = select(table, ks, criterion, parameters(table, clustering))
    if json:
        records = [_record(measures) for measures in found.table]
        screen.as_json({"best_k": found.best_k, "reason": found.reason, "table": records})
        return
    show(found)


def parameters(table: Table, clustering: Clustering) -> dict[str, Any]:
    """Parameters of the estimator."""
    metric = clustering.metric
    if metric is None:
        directed = table.preparation.kind in ("text", "counts")
        metric = "cosine" if directed else "euclidean"
        if directed:
            screen.note("texts are compared by --metric cosine, if none is given.")
    directed = metric in METRICS and METRICS[metric].directed  # the estimator refuses other names
    return {
        "metric": metric,
        "init": clustering.init,
        "algorithm": clustering.algorithm,
        "random_state": clustering.seed,
        "n_jobs": clustering.jobs,
        "memory_limit": clustering.memory_limit,
        "zero_rows": "keep" if directed else "error",
    }


def numbers(given: str) -> list[int]:
    """2:12 with both ends, 2:30:4 in steps, or a list."""
    try:
        if ":" in given:
            first, last, *step = (int(part) for part in given.split(":"))
            found = list(range(first, last + 1, *step))
        else:
            found = sorted({int(part) for part in given.split(",")})
    except ValueError:
        found = []
    if not found or found[0] < 1:
        raise ValueError(f"-k must be a range such as 2:12 or a list such as 3,5,8, not {given!r}.")
    return found


def chosen_k(given: str, table: Table, params: dict[str, Any]) -> tuple[int, KSelection | None]:
    """The number of clusters, and how it was chosen if it was not given."""
    if given.isdigit() and int(given) > 0:
        return int(given), None
    if given != "auto":
        raise ValueError(f"-k must be a number of at least 1, or auto, not {given!r}.")
    n = table.X.shape[0]
    last = min(_AUTO[1], n - 1)
    if last < _AUTO[0]:
        raise ValueError(f"-k must be given for {n} rows: auto needs at least 3.")
    found = select(table, list(range(_AUTO[0], last + 1)), "auto", params)
    return int(found.best_k), found


def select(table: Table, ks: list[int], criterion: str, params: dict[str, Any]) -> KSelection:
    """`exactmeans.select_k` with progress."""
    if criterion not in CRITERIA:
        raise ValueError(f"--criterion must be one of {', '.join(CRITERIA)}, not {criterion!r}.")
    with screen.steps(f"comparing {len(ks)} numbers of clusters", len(ks)) as progress:

        def done(record: Measures) -> None:
            progress.at(ks.index(record.k) + 1, f"k = {record.k}: {record.silhouette:.3f}")

        return compare(
            table.X,
            ks,
            criterion=cast(Criterion, criterion),
            sample_weight=table.weights,
            progress=done,
            **{name: value for name, value in params.items() if name != "n_init"},
        )


def _record(record: Measures) -> dict[str, Any]:
    return {name: None if v != v else v for name, v in record._asdict().items()}


def show(found: KSelection) -> None:
    """The table and the suggestion."""
    screen.table(
        [
            ("k", "right"),
            ("inertia", "right"),
            ("silhouette", "right"),
            ("Davies–Bouldin", "right"),
            ("Calinski–Harabasz", "right"),
            ("stability", "right"),
            ("sizes", "right"),
            ("seconds", "right"),
        ],
        [
            [
                f"{r.k}",
                f"{r.inertia:.5g}",
                f"{r.silhouette:.3f}",
                f"{r.davies_bouldin:.3f}",
                f"{r.calinski_harabasz:.5g}",
                f"{r.stability:.3f}",
                f"{r.smallest:,} to {r.largest:,}",
                f"{r.seconds:.2g}",
            ]
            for r in found.table
        ],
    )
    screen.say()
    screen.say(f"Suggestion: -k {found.best_k}. {found.reason}")
