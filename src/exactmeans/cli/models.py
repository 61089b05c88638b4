"""Models that `exactmeans fit` and `exactmeans tree` wrote, or the library."""

from __future__ import annotations

import os
from typing import TypeAlias

from exactmeans.bisecting import BisectingKMeans
from exactmeans.io.model_file import load
from exactmeans.kmeans import KMeans
from exactmeans.kmeans_tree import KMeansTree
from exactmeans.minibatch import MiniBatchKMeans

Model: TypeAlias = KMeans | MiniBatchKMeans | KMeansTree | BisectingKMeans


def load_model(path: str) -> Model:
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
