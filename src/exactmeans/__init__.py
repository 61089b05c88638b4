"""exactmeans: k-means for Python, exact, reproducible and fast; sparse data first."""

from importlib.metadata import version as _version

from exactmeans.blocks import BlockSource, open_blocks
from exactmeans.callbacks import Iteration
from exactmeans.kmeans import KMeans
from exactmeans.minibatch import MiniBatchKMeans
from exactmeans.persistence import load
from exactmeans.seeding import kmeans_plusplus

__all__ = [
    "BlockSource",
    "Iteration",
    "KMeans",
    "MiniBatchKMeans",
    "kmeans_plusplus",
    "load",
    "open_blocks",
]
__version__ = _version("exactmeans")
