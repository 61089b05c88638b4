"""exactmeans: k-means for Python, exact, reproducible and fast; sparse data first."""

from importlib.metadata import version as _version

from exactmeans.callbacks import Iteration
from exactmeans.data.open import BlockSource, open_blocks
from exactmeans.io.model_file import load
from exactmeans.kmeans import KMeans
from exactmeans.minibatch import MiniBatchKMeans
from exactmeans.seeding import kmeans_plusplus
from exactmeans.versions import show_versions

__all__ = [
    "BlockSource",
    "Iteration",
    "KMeans",
    "MiniBatchKMeans",
    "kmeans_plusplus",
    "load",
    "open_blocks",
    "show_versions",
]
__version__ = _version("exactmeans")
