"""The fitted model for Spark data frames, its summary, and how it is written and read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse as sp
from numpy.typing import NDArray
from pyspark.ml import Model
from pyspark.ml.util import (
    DefaultParamsReader,
    DefaultParamsWriter,
    MLReadable,
    MLReader,
    MLWritable,
    MLWriter,
)
from pyspark.sql.types import IntegerType, StructField, StructType

from exactmeans import kmeans
from exactmeans.data.arrays import Matrix
from exactmeans.engine.spark.rows import columns_of, features_of, stacked
from exactmeans.spark.columns import check_features, check_frame, check_prediction
from exactmeans.spark.loop import file_of, model_from
from exactmeans.spark.params import ModelParams
from exactmeans.spark.tasks import check_python

__all__ = ["KMeansModel", "KMeansSummary"]


class KMeansModel(
    ModelParams,
    Model,  # type: ignore[misc, unused-ignore]
    MLReadable["KMeansModel"],  # type: ignore[misc, unused-ignore]
    MLWritable,  # type: ignore[misc, unused-ignore]
):
    """A fitted model: `transform` adds the column of clusters, lazily.

    Attributes
    ----------
    local : exactmeans.KMeans
        The model without labels, for use without Spark.
    """

    def __init__(self, local: kmeans.KMeans | None = None, sparse: bool = False) -> None:
        super().__init__()
        self.local = kmeans.KMeans() if local is None else local
        self._sparse = sparse  # whether the rows of the fit were CSR
        self._summary: KMeansSummary | None = None

    def copy(self, extra: Any = None) -> KMeansModel:
        """With the same centres; `extra`: parameters to set."""
        twin: KMeansModel = super().copy(extra)
        if self._summary is not None:
            twin._summary = KMeansSummary(twin, self._summary.sizes, self._summary.dataset)
        return twin

    def clusterCenters(self) -> list[NDArray[Any]]:
        """The centres, as dense arrays; `local.cluster_centers_` keeps sparse ones sparse."""
        centres = self.local.cluster_centers_
        return list(centres if isinstance(centres, np.ndarray) else centres.toarray())

    def predict(self, value: Any) -> int:
        """The cluster of one vector, or of one row as a list or an array of numbers."""
        given = value.toArray() if hasattr(value, "toArray") else value
        try:
            row = np.asarray(given, dtype=np.float64)
        except (TypeError, ValueError):
            row = np.empty(0)
        if row.shape != (self.numFeatures,):
            raise TypeError(
                f"value must be a vector or a list of {self.numFeatures} numbers, but it is "
                f"{value!r}; transform takes data frames."
            )
        # In the layout of the fit: a dense row would need all centres as a dense array.
        rows = sp.csr_array(row[np.newaxis]) if self._sparse else row[np.newaxis]
        return int(self.local.predict(rows)[0])

    @property
    def numFeatures(self) -> int:
        """The number of features of the rows that the model was fitted on."""
        return self.local.n_features_in_

    def setFeaturesCol(self, value: str | list[str]) -> KMeansModel:
        self._set(featuresCol=value)
        return self

    def setPredictionCol(self, value: str) -> KMeansModel:
        self._set(predictionCol=value)
        return self

    @property
    def hasSummary(self) -> bool:
        """Whether the model was fitted in this session."""
        return self._summary is not None

    @property
    def summary(self) -> KMeansSummary:
        """The summary of the fit; models that were read have none."""
        if self._summary is None:
            raise RuntimeError("summary needs a model that was fitted in this session.")
        return self._summary

    def _transform(self, dataset: Any) -> Any:
        check_frame(dataset)
        check_features(dataset, self.getFeaturesCol())
        name = self.getPredictionCol()
        check_prediction(dataset, name)
        check_python(dataset.sparkSession)
        names = [*dataset.columns, name]
        # As MLlib's models do: encoders need no pass over the rows to count the clusters.
        kinds = {"type": "nominal", "num_vals": self.local.cluster_centers_.shape[0]}
        label = StructField(name, IntegerType(), metadata={"ml_attr": kinds})
        fields = [*dataset.schema.fields, label]
        # mapInArrow takes names with dots for fields of structs, and refuses names that are equal.
        numbers = [str(at) for at in range(len(names))]
        schema = StructType(
            [
                StructField(number, field.dataType, field.nullable, field.metadata)
                for number, field in zip(numbers, fields, strict=True)
            ]
        )
        task = _Predictor(_bare(self.local), names, self.getFeaturesCol(), self._sparse)
        labelled = dataset.toDF(*numbers[:-1]).mapInArrow(lambda batches: task(batches), schema)
        return labelled.toDF(*names)

    def write(self) -> Any:
        return _Writer(self)

    @classmethod
    def read(cls) -> Any:
        return _Reader()


class KMeansSummary:
    """Of a fit, as MLlib's: sizes of clusters, cost, iterations, predictions."""

    def __init__(self, model: KMeansModel, sizes: NDArray[np.int64], dataset: Any) -> None:
        self._model, self.sizes, self.dataset = model, sizes, dataset

    def __repr__(self) -> str:
        return (
            f"KMeansSummary(k={self.k}, numIter={self.numIter}, trainingCost={self.trainingCost})"
        )

    @property
    def k(self) -> int:
        return len(self.sizes)

    @property
    def clusterSizes(self) -> list[int]:
        """How many rows each cluster has."""
        return [int(size) for size in self.sizes]

    @property
    def trainingCost(self) -> float:
        """The inertia."""
        return self._model.local.inertia_

    @property
    def numIter(self) -> int:
        return self._model.local.n_iter_

    @property
    def featuresCol(self) -> str | list[str]:
        return self._model.getFeaturesCol()

    @property
    def predictionCol(self) -> str:
        return self._model.getPredictionCol()

    @property
    def predictions(self) -> Any:
        """The rows of the fit with their clusters, lazily."""
        return self._model.transform(self.dataset)

    @property
    def cluster(self) -> Any:
        """Only the clusters."""
        return self.predictions.select(self.predictionCol)


def _bare(local: kmeans.KMeans) -> kmeans.KMeans:
    """The model with what labels depend on, on one thread: tasks share the cores."""
    model = kmeans.KMeans(n_jobs=1)
    for name in ("cluster_centers_", "n_features_in_", "_n_features_out", "_frame"):
        setattr(model, name, getattr(local, name))
    return model


class _Predictor:
    """Appends the clusters to record batches; `names`: of the columns, which batches number."""

    def __init__(
        self, model: kmeans.KMeans, names: list[str], features: str | list[str], sparse: bool
    ) -> None:
        self._model, self._names, self._features = model, names, features
        self._sparse = sparse

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            labels = np.empty(0, np.int32)
            if batch.num_rows:
                labels = self._model.predict(self._rows(batch))
            columns = [*batch.columns, pa.array(labels, pa.int32())]
            names = [*batch.schema.names, str(len(batch.columns))]
            yield pa.RecordBatch.from_arrays(columns, names=names)

    def _rows(self, batch: Any) -> Matrix:
        at = self._names.index
        if isinstance(self._features, list):
            return columns_of([batch.column(at(name)) for name in self._features])
        rows = features_of(batch.column(at(self._features)))
        dtype = str(self._model.cluster_centers_.dtype)
        # In the layout of the fit, so that labels are those of the fit.
        return stacked([rows], dtype, sparse=self._sparse)


class _Writer(MLWriter):  # type: ignore[misc, unused-ignore]
    def __init__(self, model: KMeansModel) -> None:
        super().__init__()
        self._model = model

    def saveImpl(self, path: str) -> None:
        spark = self.sparkSession
        DefaultParamsWriter.saveMetadata(
            self._model, path, _session_or_context(spark), {"sparseRows": self._model._sparse}
        )
        content = spark.createDataFrame([(bytearray(file_of(self._model.local)),)], "model binary")
        content.coalesce(1).write.parquet(os.path.join(path, "data"))


class _Reader(MLReader["KMeansModel"]):  # type: ignore[misc, unused-ignore]
    def load(self, path: str) -> KMeansModel:
        spark = self.sparkSession
        metadata = DefaultParamsReader.loadMetadata(path, _session_or_context(spark))
        content: Any = spark.read.parquet(os.path.join(path, "data")).first()
        model = KMeansModel(model_from(bytes(content[0])), bool(metadata["sparseRows"]))
        model._resetUid(metadata["uid"])
        DefaultParamsReader.getAndSetParams(model, metadata)
        return model


def _session_or_context(spark: Any) -> Any:
    """Spark 3 wants the context, which Spark Connect does not have."""
    return getattr(spark, "_sc", spark)
