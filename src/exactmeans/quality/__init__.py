"""How good a clustering is: silhouettes, Davies-Bouldin, Calinski-Harabasz, statistics of clusters.

All functions take X in any form that `KMeans` takes and label it by `model`, so labels are those of
`model.predict(X)`. None needs memory for rows by rows or for all rows by all centres.
"""

from exactmeans.quality.indices import calinski_harabasz, cluster_stats, davies_bouldin
from exactmeans.quality.silhouettes import Silhouette, silhouette

__all__ = [
    "Silhouette",
    "calinski_harabasz",
    "cluster_stats",
    "davies_bouldin",
    "silhouette",
]
