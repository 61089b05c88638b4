"""`exactmeans info` and `version`: what a file is, what a model is, what this machine is."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from exactmeans import _core
from exactmeans.cli import columns as cols
from exactmeans.cli import options, screen
from exactmeans.cli.groups import Features, Reading
from exactmeans.cli.models import load_model
from exactmeans.cli.opening import existing, opened
from exactmeans.data.svmlight import SvmlightRows
from exactmeans.database.connect import is_uri
from exactmeans.kmeans_tree import KMeansTree
from exactmeans.memory import memory_of_machine
from exactmeans.parameters import check_n_jobs
from exactmeans.preparation import Preparation
from exactmeans.versions import versions_of_packages


def version() -> None:
    """Print the version."""
    screen.say(importlib.metadata.version("exactmeans"))


def info(
    what: Annotated[
        str | None,
        typer.Argument(metavar="[MODEL|DATA]", help="A model, data, or nothing for this machine."),
    ] = None,
    header: options.Header = None,
    delimiter: options.Delimiter = None,
    text: options.IsText = False,
    json: options.Json = False,
) -> None:
    """Describe a model, a file of data with its columns, or this installation."""
    if what is None:
        found = _machine()
    elif Path(what).suffix == ".safetensors":
        found = _model(what)
    elif is_uri(what):
        raise ValueError(
            "info takes a file: for a database, try fit or select-k with --query and --key."
        )
    elif cols.is_csv(what) and not text:
        found = _csv(what, header, delimiter, as_json=json)
    else:
        found = _data(what, header, delimiter, text=text)
    if json:
        screen.as_json(found)
        return
    for name, value in found.items():
        if name != "columns":
            screen.say(f"{name}: {_shown(value)}")
    if "columns" in found:
        screen.say()
        _show_columns(found["columns"])


def _shown(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _machine() -> dict[str, Any]:
    return {
        "exactmeans": importlib.metadata.version("exactmeans"),
        "python": platform.python_version(),
        "system": platform.platform(),
        "threads": check_n_jobs(None),
        "memory": f"{memory_of_machine() / 1e9:.1f} GB",
        "instruction set": _core.active_isa(),
        **versions_of_packages(),
    }


def _model(path: str) -> dict[str, Any]:
    model = load_model(path)
    preparation = Preparation.of(model)
    found: dict[str, Any] = {
        "model": path,
        "estimator": type(model).__name__,
    }
    if isinstance(model, KMeansTree):
        metric = model._metric
        found |= {"leaves": len(model.leaves_), "nodes": len(model.parent_)}
    else:
        metric = model._frame.metric
        found["clusters"] = int(model.cluster_centers_.shape[0])
    found |= {
        "features": int(model.n_features_in_),
        "metric": metric,
        "inertia": float(model.inertia_),
        "kind of data": preparation.kind,
    }
    if preparation.columns is not None:
        found["uses columns"] = ", ".join(map(str, preparation.columns))
    if preparation.offsets is not None:
        found["standardised"] = "yes"
    if preparation.terms is not None:
        found["terms"] = len(preparation.terms)
    if hasattr(model, "history_"):
        for line in model.explain().splitlines():
            name, _, value = line.partition(": ")
            found[name if name not in found else f"{name} of the fit"] = value
    return found


def _data(path: str, header: bool | None, delimiter: str | None, *, text: bool) -> dict[str, Any]:
    reading = Reading(path, header=header, delimiter=delimiter)
    with opened(reading, Features(text=text)) as table:
        X = table.X
        sparse = bool(getattr(X, "sparse", text))
        found: dict[str, Any] = {
            "data": path,
            "rows": int(X.shape[0]),
            "features": int(X.shape[1]),
            "layout": "sparse" if sparse else "dense",
            "dtype": str(X.dtype),
        }
        if not text and sparse and _may_be_counts(X.read(0).data):
            found["values"] = "whole numbers; --tfidf weighs them if they are counts of terms"
        if isinstance(X, SvmlightRows):
            found["indices begin at"] = 0 if X.zero_based else "1 (a guess)"
        if table.feature_names is not None:
            names = list(map(str, table.feature_names[:20]))
            more = len(table.feature_names) - len(names)
            found["feature names"] = ", ".join(names) + (f" and {more:,} more" if more else "")
    return found


def _may_be_counts(values: NDArray[Any]) -> bool:
    return bool((values >= 0).all() and (values == np.floor(values)).all() and values.max() > 1)


def _csv(path: str, header: bool | None, delimiter: str | None, *, as_json: bool) -> dict[str, Any]:
    existing(path)
    file = cols.Csv.open(Path(path), header, delimiter)
    described, whole = file.describe()
    rows = sum(1 for _ in file.rows())
    shown = {",": "comma", ";": "semicolon", "\t": "tab"}.get(file.delimiter, repr(file.delimiter))
    found = {
        "data": path,
        "rows": rows,
        "delimiter": shown,
        "header": "the first row" if file.names is not None else "none",
        "columns": [_described(column) for column in described],
    }
    if not whole:
        found["looked at"] = "the first 100,000 rows"
    return found


def _described(column: cols.Column) -> dict[str, Any]:
    remark = ""
    if column.kind == "text":
        remark = f"such as {column.example[1]!r}" if column.example else ""
        remark += "; --exclude it, or --id if it names the rows"
    elif column.counts_up:
        remark = "counts up by one; --id if it numbers the rows"
    elif column.kind == "number" and column.low == column.high:
        remark = "always the same"
    if column.missing and column.kind != "text":
        remark = "; ".join(filter(None, [remark, "--na drop leaves rows out"]))
    number = column.kind == "number"
    return {
        "name": column.name,
        "holds": column.kind,
        "missing": column.missing,
        "from": column.low if number else None,
        "to": column.high if number else None,
        "remark": remark,
    }


def _show_columns(described: list[dict[str, Any]]) -> None:
    screen.table(
        [
            ("column", "fill"),
            ("holds", "left"),
            ("missing", "right"),
            ("from", "right"),
            ("to", "right"),
            ("remark", "fill"),
        ],
        [
            [
                d["name"],
                d["holds"],
                f"{d['missing']:,}" if d["missing"] else "",
                "" if d["from"] is None else f"{d['from']:.6g}",
                "" if d["to"] is None else f"{d['to']:.6g}",
                d["remark"],
            ]
            for d in described
        ],
    )
