"""KMeans for Spark data frames, with MLlib's names; needs `pip install exactmeans[spark]`."""

from exactmeans.spark.estimator import KMeans
from exactmeans.spark.model import KMeansModel, KMeansSummary

__all__ = ["KMeans", "KMeansModel", "KMeansSummary"]
