"""`exactmeans tree`: a tree of clusters of the rows of a file."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import typer

from exactmeans.cli import options, screen
from exactmeans.cli.groups import Clustering, Features, Reading, grouped
from exactmeans.cli.opening import opened
from exactmeans.cli.output import TABLES, Outputs, write_labels
from exactmeans.cli.select_k import parameters
from exactmeans.io.files import replace_file
from exactmeans.kmeans_tree import KMeansTree

_TREE, _OUT = "Tree", "Output"


@grouped
def tree(
    reading: Reading,
    features: Features,
    branching: Annotated[
        int,
        typer.Option(
            "--branching", "-b", rich_help_panel=_TREE, help="The most children of a node."
        ),
    ] = 10,
    max_leaf_size: Annotated[
        int | None,
        typer.Option(
            "--max-leaf-size", rich_help_panel=_TREE, help="Nodes with so many rows are leaves."
        ),
    ] = None,
    max_depth: Annotated[
        int | None,
        typer.Option("--max-depth", rich_help_panel=_TREE, help="Nodes at this depth are leaves."),
    ] = None,
    leaves: Annotated[
        int | None,
        typer.Option("--leaves", rich_help_panel=_TREE, help="Stop with so many leaves."),
    ] = None,
    balanced: Annotated[
        bool,
        typer.Option("--balanced", rich_help_panel=_TREE, help="Children of equal size."),
    ] = False,
    metric: options.Metric = None,
    seed: options.Seed = 0,
    jobs: options.Jobs = None,
    memory_limit: options.MemoryLimit = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            metavar="OUT",
            rich_help_panel=_OUT,
            help="Write the tree: .safetensors.",
        ),
    ] = None,
    labels: options.Labels = None,
    newick: Annotated[
        str | None,
        typer.Option(
            "--newick", metavar="OUT", rich_help_panel=_OUT, help="Write Newick's format: .nwk."
        ),
    ] = None,
    json: options.Json = False,
    force: options.Force = False,
    quiet: options.Quiet = False,
) -> None:
    """Cluster the rows of DATA hierarchically; leaves are numbered from left to right.

    \b
    exactmeans tree data.csv --branching 10 --max-leaf-size 100 --labels leaves.csv
    """
    screen.be_quiet(quiet)
    outputs = Outputs(force=force)
    model_path = outputs.add("--model", model, (".safetensors",))
    labels_path = outputs.add("--labels", labels, TABLES)
    newick_path = outputs.add("--newick", newick, (".nwk", ".newick", ".txt"))
    clustering = Clustering(metric, seed=seed, jobs=jobs, memory_limit=memory_limit)
    with opened(reading, features) as table:
        params = parameters(table, clustering)
        fitted = KMeansTree(
            branching,
            max_leaf_size=max_leaf_size,
            max_depth=max_depth,
            n_leaves=leaves,
            balanced=balanced,
            metric=params["metric"],
            random_state=seed,
            n_jobs=jobs,
            memory_limit=memory_limit,
        ).fit(table.X, sample_weight=table.weights)
        table.preparation.store(fitted)
        if labels_path is not None:
            write_labels(labels_path, table, fitted.labels_, None)
        if newick_path is not None:
            replace_file(newick_path, fitted.to_newick().encode())
        if model_path is not None:
            fitted.save(model_path)
        size = fitted.size_[fitted.leaves_]
        if json:
            screen.as_json(
                {
                    "data": table.name,
                    "nodes": len(fitted.parent_),
                    "leaves": len(fitted.leaves_),
                    "depth": int(fitted.depth_.max()),
                    "inertia": fitted.inertia_,
                    "parent": fitted.parent_.tolist(),
                    "size": fitted.size_.tolist(),
                    "written": outputs.as_dict(),
                }
            )
            return
        screen.say(
            f"{len(fitted.leaves_):,} leaves in {int(fitted.depth_.max())} levels below the root; "
            f"{size.min():,} to {size.max():,} rows each, {np.median(size):g} in the middle."
        )
        screen.table(
            [("depth", "right"), ("nodes", "right"), ("leaves", "right"), ("largest", "right")],
            [
                [
                    str(depth),
                    f"{(fitted.depth_ == depth).sum():,}",
                    f"{(fitted.depth_[fitted.leaves_] == depth).sum():,}",
                    f"{fitted.size_[fitted.depth_ == depth].max():,}",
                ]
                for depth in range(int(fitted.depth_.max()) + 1)
            ],
        )
        outputs.tell()
        if not outputs.as_dict():
            screen.note("no file was written: --model, --labels and --newick write some.")
