"""`exactmeans predict`: the nearest cluster of each row of a file."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exactmeans.cli import options, screen
from exactmeans.cli.output import TABLES, Outputs, labels_of_all, write_labels
from exactmeans.cli.table import opened
from exactmeans.io.model_file import load


def predict(
    model: options.Model,
    data: options.Data,
    columns: options.Columns = [],  # noqa: B006
    id: options.Id = None,
    header: options.Header = None,
    delimiter: options.Delimiter = None,
    na: options.Na = None,
    zero_based: options.ZeroBased = None,
    jobs: options.Jobs = None,
    labels: options.Labels = None,
    json: options.Json = False,
    force: options.Force = False,
    quiet: options.Quiet = False,
) -> None:
    """Give each row of DATA the nearest cluster of MODEL, with its distance.

    Columns, scales and terms are those of the fit. Without --labels, the labels are printed as CSV.

    \b
    exactmeans predict m.safetensors new.csv --labels labels.csv
    """
    screen.be_quiet(quiet)
    outputs = Outputs(force=force)
    path = outputs.add("--labels", labels, TABLES)
    fitted = load_model(model)
    if jobs is not None:
        fitted.n_jobs = jobs
    reading = options.Reading(data, columns, [], id, None, header, delimiter, na, zero_based, False)
    with opened(reading, fitted) as table:
        found, distance = _found(fitted, table.X)
        if json:
            every = labels_of_all(table, found)
            if path is not None:
                write_labels(path, table, found, distance)
            ids = list(range(table.total)) if table.ids is None else table.ids
            screen.as_json(
                {"data": table.name, "ids": ids, "labels": every, "written": outputs.as_dict()}
            )
            return
        write_labels(path, table, found, distance)
        outputs.tell()


def _found(fitted: Any, X: Any) -> tuple[NDArray[np.int32], NDArray[Any] | None]:
    """Labels and distances; of trees, leaves alone."""
    if not hasattr(fitted, "nearest"):
        return fitted.predict(X), None
    labels, distances = fitted._own_and_next(X, 1)
    return labels[:, 0], distances[:, 0]


def load_model(path: str) -> Any:
    """The model of a file; one sentence for a file of data."""
    if not os.path.exists(path):
        raise ValueError(f"there is no file {path!r}.")
    if os.path.isdir(path):
        raise ValueError(f"{path} is a folder, not a model.")
    try:
        return load(path)
    except ValueError as error:
        if path.endswith(".safetensors"):
            raise
        raise ValueError(
            f"{path} is not a model: 'exactmeans fit DATA -k K --model M.safetensors' writes one, "
            "and MODEL comes before DATA."
        ) from error
