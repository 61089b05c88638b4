"""The estimators on Dask collections; needs `pip install exactmeans[dask]`."""

from exactmeans.dask.kmeans import KMeans
from exactmeans.dask.minibatch import MiniBatchKMeans

__all__ = ["KMeans", "MiniBatchKMeans"]
