"""Parameters of the estimator and the model, with MLlib's names, meanings and defaults."""

from __future__ import annotations

from typing import Any

import numpy as np
from pyspark.ml.param import Param, Params, TypeConverters

METRICS = {"euclidean": "euclidean", "cosine": "cosine"}  # distanceMeasure: metric
INIT_MODES = ("k-means||", "k-means++", "random", "furthest")
MODES = ("barrier", "jobs")


def columns(value: Any) -> Any:
    """A column name, or a list of them."""
    if isinstance(value, str):
        return value
    if isinstance(value, (list, tuple)) and value and all(isinstance(v, str) for v in value):
        return list(value)
    raise TypeError("featuresCol must be the name of a column or a list of names.")


def centres(value: Any) -> list[list[float]]:
    """Rows of numbers as lists, which Spark can write to a file."""
    try:
        rows: list[list[float]] = np.asarray(value, dtype=np.float64).tolist()
    except (TypeError, ValueError):
        raise TypeError("initialCenters must be rows of numbers, all of one length.") from None
    return rows


def param(name: str, doc: str, convert: Any) -> Any:
    return Param(Params._dummy(), name, doc, typeConverter=convert)


class ModelParams(Params):
    """What a model has: the parameters of MLlib's models that this package has, too."""

    featuresCol = param("featuresCol", "column of vectors or arrays, or numeric columns", columns)
    predictionCol = param("predictionCol", "column of the cluster", TypeConverters.toString)
    weightCol = param("weightCol", "column of weights", TypeConverters.toString)
    distanceMeasure = param("distanceMeasure", "euclidean or cosine", TypeConverters.toString)
    k = param("k", "number of clusters", TypeConverters.toInt)
    maxIter = param("maxIter", "most iterations", TypeConverters.toInt)
    tol = param("tol", "stop when no centre moves farther", TypeConverters.toFloat)
    seed = param("seed", "random seed", TypeConverters.toInt)
    initMode = param("initMode", f"one of {', '.join(INIT_MODES)}", TypeConverters.toString)
    initSteps = param("initSteps", "rounds of k-means||", TypeConverters.toInt)

    def __init__(self) -> None:
        super().__init__()
        self._setDefault(
            featuresCol="features",
            predictionCol="prediction",
            distanceMeasure="euclidean",
            k=2,
            maxIter=20,
            tol=1e-4,
            initMode="k-means||",
            initSteps=2,
        )

    def getFeaturesCol(self) -> str | list[str]:
        value: str | list[str] = self.getOrDefault(self.featuresCol)
        return value

    def getPredictionCol(self) -> str:
        return str(self.getOrDefault(self.predictionCol))

    def getWeightCol(self) -> str:
        return str(self.getOrDefault(self.weightCol))

    def getDistanceMeasure(self) -> str:
        return str(self.getOrDefault(self.distanceMeasure))

    def getK(self) -> int:
        return int(self.getOrDefault(self.k))

    def getMaxIter(self) -> int:
        return int(self.getOrDefault(self.maxIter))

    def getTol(self) -> float:
        return float(self.getOrDefault(self.tol))

    def getSeed(self) -> int:
        """0 if none was set."""
        return int(self.getOrDefault(self.seed)) if self.isDefined(self.seed) else 0

    def getInitMode(self) -> str:
        return str(self.getOrDefault(self.initMode))

    def getInitSteps(self) -> int:
        return int(self.getOrDefault(self.initSteps))


class FitParams(ModelParams):
    """What a fit needs besides."""

    idCol = param("idCol", "column that orders the rows", TypeConverters.toString)
    initialCenters = param("initialCenters", "centres to begin with", centres)
    numWorkers = param("numWorkers", "tasks of the barrier stage", TypeConverters.toInt)
    mode = param("mode", "barrier or jobs", TypeConverters.toString)
    algorithm = param("algorithm", "of exactmeans.KMeans", TypeConverters.toString)
    checkpointDir = param("checkpointDir", "folder for checkpoints", TypeConverters.toString)

    def __init__(self) -> None:
        super().__init__()
        self._setDefault(mode="barrier", algorithm="auto")

    def _optional(self, of: Any) -> Any:
        return self.getOrDefault(of) if self.isDefined(of) else None

    def getIdCol(self) -> str:
        return str(self.getOrDefault(self.idCol))

    def getInitialCenters(self) -> list[list[float]]:
        value: list[list[float]] = self.getOrDefault(self.initialCenters)
        return value

    def getNumWorkers(self) -> int:
        return int(self.getOrDefault(self.numWorkers))

    def getMode(self) -> str:
        return str(self.getOrDefault(self.mode))

    def getAlgorithm(self) -> str:
        return str(self.getOrDefault(self.algorithm))

    def getCheckpointDir(self) -> str:
        return str(self.getOrDefault(self.checkpointDir))
