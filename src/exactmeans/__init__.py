"""k-means: the labels and centres of Lloyd's algorithm to the last bit, for dense and sparse data.

>>> import numpy as np
>>> from exactmeans import KMeans
>>> X = np.array([[1.0, 2.0], [1.0, 4.0], [10.0, 2.0], [10.0, 4.0]])
>>> model = KMeans(n_clusters=2, random_state=0).fit(X)
>>> model.labels_
array([1, 1, 0, 0], dtype=int32)

Estimators
    KMeans, MiniBatchKMeans, BisectingKMeans, as in scikit-learn; KMeansTree, a hierarchy. On
    clusters: exactmeans.dask.KMeans, exactmeans.dask.MiniBatchKMeans, exactmeans.spark.KMeans.
Data
    open_blocks for files larger than memory, open_sql for databases; exactmeans.text makes rows of
    documents, exactmeans.labels of labels.
Results
    select_k suggests a number of clusters. silhouette, davies_bouldin, calinski_harabasz and
    cluster_stats measure a clustering; report and plot show it. load and from_sql read saved
    models.
Other
    kmeans_plusplus and exactmeans.seeding give initial centres. show_versions() says what is
    installed.
"""

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
