"""`exactmeans fit`: cluster the rows of a file."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from exactmeans.cli import clusters, options, screen
from exactmeans.cli.output import TABLES, Outputs, write_centers, write_labels
from exactmeans.cli.select_k import chosen_k, parameters
from exactmeans.cli.table import Table, opened
from exactmeans.kmeans import KMeans
from exactmeans.reporting.page import write_page
from exactmeans.reporting.summary import summarise

_OUT = "Output"


def fit(
    data: options.Data,
    k: options.Clusters,
    columns: options.Columns = [],  # noqa: B006
    exclude: options.Exclude = [],  # noqa: B006
    id: options.Id = None,
    weights: options.Weights = None,
    header: options.Header = None,
    delimiter: options.Delimiter = None,
    na: options.Na = None,
    zero_based: options.ZeroBased = None,
    standardize: options.Standardize = False,
    feature_names: options.FeatureNames = None,
    text: options.IsText = False,
    tfidf: options.Tfidf = False,
    stop_words: options.StopWords = "english",
    min_df: options.MinDf = None,
    metric: options.Metric = None,
    init: options.Init = "k-means++",
    algorithm: options.Algorithm = "auto",
    size_min: options.SizeMin = None,
    size_max: options.SizeMax = None,
    starts: options.Starts = None,
    seed: options.Seed = 0,
    jobs: options.Jobs = None,
    memory_limit: options.MemoryLimit = None,
    tol: options.Tol = 1e-4,
    max_iter: options.MaxIter = 300,
    checkpoint: options.CheckpointPath = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            metavar="OUT",
            rich_help_panel=_OUT,
            help="Write the model: .safetensors.",
        ),
    ] = None,
    labels: options.Labels = None,
    centers: Annotated[
        str | None,
        typer.Option(
            "--centers",
            metavar="OUT",
            rich_help_panel=_OUT,
            help="Write the centres: .csv, .parquet or .npy.",
        ),
    ] = None,
    report: Annotated[
        str | None,
        typer.Option(
            "--report",
            "-r",
            metavar="OUT",
            rich_help_panel=_OUT,
            help="Write a report to look at: .html.",
        ),
    ] = None,
    json: options.Json = False,
    force: options.Force = False,
    quiet: options.Quiet = False,
) -> None:
    """Cluster the rows of DATA and say what the clusters are.

    \b
    exactmeans fit customers.csv -k 5 --exclude Gender --standardize --report groups.html
    exactmeans fit reviews.txt --text -k auto --labels topics.csv
    """
    screen.be_quiet(quiet)
    outputs = Outputs(force=force)
    model_path = outputs.add("--model", model, (".safetensors",))
    labels_path = outputs.add("--labels", labels, TABLES)
    centers_path = outputs.add("--centers", centers, TABLES)
    report_path = outputs.add("--report", report, (".html", ".htm"))
    reading = options.Reading(
        data,
        columns,
        exclude,
        id,
        weights,
        header,
        delimiter,
        na,
        zero_based,
        standardize,
        feature_names,
        text,
        tfidf,
        stop_words,
        min_df,
    )
    with opened(reading) as table:
        params = parameters(table, metric, init, algorithm, starts, seed, jobs)
        params |= {"memory_limit": memory_limit, "tol": tol, "max_iter": max_iter}
        limits = {
            "size_min": options.size("--size-min", size_min),
            "size_max": options.size("--size-max", size_max),
        }
        count, selection = chosen_k(k, table, params)
        free = checkpoint is None and starts is None and size_min is None and size_max is None
        if selection is not None and free:
            fitted = selection.model
        else:
            fitted = _fitted(count, table, {**params, **limits, "checkpoint": checkpoint})
        table.preparation.store(fitted)
        summary = summarise(fitted, table.X)
        if report_path is not None:
            write_page(fitted, summary, report_path, selection=selection, **for_report(table))
        if labels_path is not None:
            write_labels(labels_path, table, summary.labels, summary.distance)
        if centers_path is not None:
            write_centers(centers_path, fitted, table)
        if model_path is not None:
            fitted.save(model_path)
        told = fitted.explain(as_dict=True)
        if json:
            result = clusters.as_dict(summary, table)
            if selection is not None:
                result["reason"] = selection.reason
            screen.as_json({**result, "fit": told, "written": outputs.as_dict()})
            return
        if selection is not None:
            screen.say(selection.reason)
        clusters.show(summary, table, told, max_iter)
        screen.say()
        outputs.tell()
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
    """What a report needs to know about the rows."""
    return {
        "feature_names": table.feature_names,
        "texts": table.texts,
        "ids": table.kept_ids
        if table.kept is None or table.ids is not None
        else [f"Row {i}" for i in table.kept],
        "units": table.units,
        "title": f"Clusters of {table.name}",
    }
