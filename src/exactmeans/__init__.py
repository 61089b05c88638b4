"""exactmeans: k-means for Python, exact, reproducible and fast; sparse data first."""

from importlib.metadata import version as _version

from exactmeans import plot
from exactmeans.bisecting import BisectingKMeans
from exactmeans.callbacks import Iteration
from exactmeans.data.open import BlockSource, open_blocks
from exactmeans.data.sql import open_sql
from exactmeans.io.model_file import load
from exactmeans.kmeans import KMeans
from exactmeans.kmeans_tree import KMeansTree
from exactmeans.minibatch import MiniBatchKMeans
from exactmeans.quality import (
    Silhouette,
    calinski_harabasz,
    cluster_stats,
    davies_bouldin,
    silhouette,
)
from exactmeans.reporting import report
from exactmeans.seeding import kmeans_plusplus
from exactmeans.select import KSelection, select_k
from exactmeans.sql.centers import from_sql
from exactmeans.versions import show_versions

__all__ = [
    "BisectingKMeans",
    "BlockSource",
    "Iteration",
    "KMeans",
    "KMeansTree",
    "KSelection",
    "MiniBatchKMeans",
    "Silhouette",
    "calinski_harabasz",
    "cluster_stats",
    "davies_bouldin",
    "from_sql",
    "kmeans_plusplus",
    "load",
    "open_blocks",
    "open_sql",
    "plot",
    "report",
    "select_k",
    "show_versions",
    "silhouette",
]
__version__ = _version("exactmeans")
