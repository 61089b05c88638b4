"""`exactmeans tree`: a tree of clusters of the rows of a file."""

from __future__ import annotations

from typing import Any

import numpy as np

from exactmeans.cli import options, screen
from exactmeans.cli.groups import Clustering, Features, Reading, grouped
from exactmeans.cli.opening import opened
from exactmeans.cli.output import TABLES, Outputs, write_labels
from exactmeans.cli.select_k import parameters
from exactmeans.io.files import replace_file
from exactmeans.kmeans_tree import KMeansTree


@grouped
def tree(
    reading: Reading,
    features: Features,
    branching: options.Branching = 10,
    max_leaf_size: options.MaxLeafSize = None,
    max_depth: options.MaxDepth = None,
    leaves: options.Leaves = None,
    balanced: options.Balanced = False,
    metric: options.Metric = None,
    seed: options.Seed = 0,
    jobs: options.Jobs = None,
    memory_limit: options.MemoryLimit = None,
    model: options.ModelOut = None,
    labels: options.Labels = None,
    newick: options.Newick = None,
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
        if json:
            known = {"data": table.name, **_as_dict(fitted), "written": outputs.as_dict()}
            screen.as_json(known)
            return
        _show(fitted)
        outputs.show()
        if not outputs.as_dict():
            screen.note("no file was written: --model, --labels and --newick write some.")


def _as_dict(fitted: KMeansTree) -> dict[str, Any]:
    return {
        "nodes": len(fitted.parent_),
        "leaves": len(fitted.leaves_),
        "depth": int(fitted.depth_.max()),
        "inertia": fitted.inertia_,
        "parent": fitted.parent_.tolist(),
        "size": fitted.size_.tolist(),
    }


def _show(fitted: KMeansTree) -> None:
    """A sentence about the leaves, and a table of the levels."""
    size, depth = fitted.size_[fitted.leaves_], fitted.depth_
    if len(size) == 1:
        screen.say(f"1 leaf with all {size[0]:,} rows: the root was not split.")
    else:
        levels = "1 level" if depth.max() == 1 else f"{depth.max()} levels"
        screen.say(
            f"{len(size):,} leaves in {levels} below the root; "
            f"{size.min():,} to {size.max():,} rows each, median {np.median(size):g}."
        )
    screen.table(
        [("depth", "right"), ("nodes", "right"), ("leaves", "right"), ("largest", "right")],
        [
            [
                str(level),
                f"{(depth == level).sum():,}",
                f"{(depth[fitted.leaves_] == level).sum():,}",
                f"{fitted.size_[depth == level].max():,}",
            ]
            for level in range(int(depth.max()) + 1)
        ],
    )
