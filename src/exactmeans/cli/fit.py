"""`exactmeans fit`: cluster the rows of a file or of a query."""

from __future__ import annotations

from typing import Any

from exactmeans.cli import clusters, options, screen
from exactmeans.cli.groups import Clustering, Features, Reading, grouped
from exactmeans.cli.opening import opened
from exactmeans.cli.output import TABLES, Outputs, write_centers, write_labels
from exactmeans.cli.queries import Into
from exactmeans.cli.select_k import chosen_k, parameters
from exactmeans.cli.table import Table
from exactmeans.kmeans import KMeans
from exactmeans.reporting.page import write_page
from exactmeans.reporting.summary import summarise


@grouped
def fit(
    reading: Reading,
    features: Features,
    clustering: Clustering,
    k: options.Clusters,
    size_min: options.SizeMin = None,
    size_max: options.SizeMax = None,
    size_of: options.SizeOf = "rows",
    starts: options.Starts = None,
    tol: options.Tol = 1e-4,
    max_iter: options.MaxIter = 300,
    checkpoint: options.CheckpointPath = None,
    into: options.Into = None,
    schema: options.Schema = None,
    model: options.ModelOut = None,
    labels: options.Labels = None,
    centers: options.Centers = None,
    report: options.Report = None,
    json: options.Json = False,
    force: options.Force = False,
    quiet: options.Quiet = False,
) -> None:
    """Cluster the rows of DATA and say what the clusters are.

    \b
    exactmeans fit customers.csv -k 5 --exclude Gender --standardize --report groups.html
    exactmeans fit reviews.txt --text -k auto --labels topics.csv
    exactmeans fit duckdb:///shop.duckdb --query "SELECT * FROM buyers" --key id -k 5 --into groups
    """
    screen.be_quiet(quiet)
    outputs = Outputs(force=force)
    model_path = outputs.add("--model", model, (".safetensors",))
    labels_path = outputs.add("--labels", labels, TABLES)
    centers_path = outputs.add("--centers", centers, TABLES)
    report_path = outputs.add("--report", report, (".html", ".htm"))
    target = Into.checked(reading, into, schema, force=force)
    with opened(reading, features) as table:
        params = parameters(table, clustering)
        params |= {"n_init": starts or "auto", "tol": tol, "max_iter": max_iter}
        limits = {
            "size_min": options.size("--size-min", size_min),
            "size_max": options.size("--size-max", size_max),
            "size_of": size_of,
        }
        count, selection = chosen_k(k, table, params)
        free = checkpoint is None and starts is None and size_min is None and size_max is None
        if selection is not None and free:
            fitted = selection.model
        else:
            fitted = _fitted(count, table, {**params, **limits, "checkpoint": checkpoint})
        table.preparation.store(fitted)
        summary = summarise(fitted, table.X)
        if target is not None:
            target.write(table, summary.labels, summary.distance)
            outputs.wrote("into", target.table)
        if report_path is not None:
            write_page(fitted, summary, report_path, selection=selection, **for_report(table))
        if labels_path is not None:
            write_labels(labels_path, table, summary.labels, summary.distance)
        if centers_path is not None:
            write_centers(centers_path, fitted, table)
        if model_path is not None:
            fitted.save(model_path)
        explained = fitted.explain(as_dict=True)
        if json:
            result = clusters.as_dict(summary, table)
            if selection is not None:
                result["reason"] = selection.reason
            screen.as_json({**result, "fit": explained, "written": outputs.as_dict()})
            return
        if selection is not None:
            screen.say(selection.reason)
        clusters.show(summary, table, explained, max_iter)
        screen.say()
        outputs.show()
        if not outputs.as_dict():
            screen.note("no file was written: --model, --labels and --report write some.")


def _fitted(k: int, table: Table, params: dict[str, Any]) -> KMeans:
    if k > (n := table.X.shape[0]):
        raise ValueError(f"-k must be at most {n:,}, the rows of {table.name}, not {k:,}.")
    with screen.steps(f"clustering {table.name}", params["max_iter"]) as progress:
        progress.at(0, "choosing initial centres")
        model = KMeans(k, callbacks=progress.record, **params)
        model.fit(table.X, sample_weight=table.weights)
    return model


def for_report(table: Table) -> dict[str, Any]:
    """Arguments of a report that describe the rows."""
    return {
        "feature_names": table.feature_names,
        "texts": table.texts,
        "ids": table.kept_ids
        if table.kept is None or table.ids is not None
        else [f"Row {i}" for i in table.kept],
        "units": table.units,
        "title": f"Clusters of {table.name}",
    }
