"""`exactmeans predict`: the nearest cluster of each row."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from exactmeans.bisecting import BisectingKMeans
from exactmeans.cli import options, screen
from exactmeans.cli.groups import Reading, grouped
from exactmeans.cli.models import Model, load_model
from exactmeans.cli.opening import opened
from exactmeans.cli.output import TABLES, Outputs, labels_of_all, write_labels
from exactmeans.cli.queries import Into
from exactmeans.kmeans_tree import KMeansTree


@grouped
def predict(
    model: options.Model,
    reading: Reading,
    jobs: options.Jobs = None,
    into: options.Into = None,
    schema: options.Schema = None,
    labels: options.Labels = None,
    json: options.Json = False,
    force: options.Force = False,
    quiet: options.Quiet = False,
) -> None:
    """Give each row of DATA the nearest cluster of MODEL, with its distance.

    Columns, scales and terms are those of the fit. Without --labels or
    --into, the labels are printed as CSV.

    \b
    exactmeans predict m.safetensors new.csv --labels labels.csv
    exactmeans predict m.safetensors sqlite:///shop.db --query "SELECT * FROM new" --key id --into g
    """
    screen.be_quiet(quiet)
    outputs = Outputs(force=force)
    path = outputs.add("--labels", labels, TABLES)
    fitted = load_model(model)
    target = Into.checked(reading, into, schema, force=force)
    if jobs is not None:
        fitted.n_jobs = jobs
    with opened(reading, model=fitted) as table:
        found, distance = _found(fitted, table.X)
        if target is not None:
            target.write(table, found, distance)
            outputs.wrote("into", target.table)
        if path is not None or (target is None and not json):
            write_labels(path, table, found, distance)
        if json:
            every = labels_of_all(table, found)
            ids = list(range(table.total)) if table.ids is None else table.ids
            screen.as_json(
                {"data": table.name, "ids": ids, "labels": every, "written": outputs.as_dict()}
            )
            return
        outputs.show()


def _found(fitted: Model, X: Any) -> tuple[NDArray[np.int32], NDArray[Any]]:
    """Labels, which size limits may have decided, and distances; of bisections, labels alone."""
    if isinstance(fitted, BisectingKMeans):
        labels = fitted.predict(X)
        return labels, np.full(len(labels), np.nan)
    nearest = fitted.nearest if isinstance(fitted, KMeansTree) else fitted._own_and_next
    found, distances = nearest(X, 1)
    return found[:, 0], distances[:, 0]
