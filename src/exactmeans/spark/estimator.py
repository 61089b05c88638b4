"""KMeans for Spark data frames: an Estimator of pyspark.ml."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from pyspark import keyword_only
from pyspark.ml import Estimator
from pyspark.ml.util import DefaultParamsReadable, DefaultParamsWritable

from exactmeans.data.centres import check_centres
from exactmeans.engine.cluster import wire
from exactmeans.engine.cluster.engine import ClusterEngine, RowOptions
from exactmeans.engine.cluster.requests import Failure
from exactmeans.engine.spark.barrier import RESULT, run_stage
from exactmeans.engine.spark.jobs import ANSWER, JobTransport
from exactmeans.engine.spark.rows import FEATURES, ID, WEIGHT
from exactmeans.fit.policy import ALGORITHM_NAMES
from exactmeans.metrics import METRICS as ALL_METRICS
from exactmeans.parameters import check_choice, check_int, check_real
from exactmeans.spark.batches import small_batches
from exactmeans.spark.columns import (
    check_frame,
    check_prediction,
    features,
    ids,
    weights,
    width_of,
)
from exactmeans.spark.loop import FitLoop, model_from
from exactmeans.spark.model import KMeansModel, KMeansSummary
from exactmeans.spark.params import INIT_MODES, METRICS, MODES, FitParams
from exactmeans.spark.partitions import partitions_of, slots_of
from exactmeans.spark.tasks import check_python, explain_no_module, in_mllibs_words, run_here

__all__ = ["KMeans"]

# What Spark says where it refuses a barrier stage, and what would help.
_REFUSALS = {
    "SPARK-24819": "numWorkers at most the number of tasks that the cluster runs at once",
    "SPARK-24942": "spark.dynamicAllocation.enabled=false",
}
# What it says of rows that reach the stage without a shuffle from another number of partitions.
_CHAIN = "SPARK-24820"


class KMeans(
    FitParams,
    Estimator[KMeansModel],  # type: ignore[misc, unused-ignore]
    DefaultParamsReadable["KMeans"],  # type: ignore[misc, unused-ignore]
    DefaultParamsWritable,  # type: ignore[misc, unused-ignore]
):
    """K-means for Spark data frames, with the parameters of `pyspark.ml.clustering.KMeans`.

    With `idCol`, the model is that of `exactmeans.KMeans` on the same rows in the order of their
    ids, to the last bit. Without, it is exact too, but the seeds depend on the order in which Spark
    hands out the rows.

    Parameters
    ----------
    featuresCol : str or list of str, default='features'
        A column of vectors (dense or sparse) or of arrays, or several numeric columns.
    predictionCol : str, default='prediction'
    k : int, default=2
    initMode : {'k-means||', 'k-means++', 'random', 'furthest'}, default='k-means||'
    initSteps : int, default=2
        Rounds of 'k-means||'.
    tol : float, default=1e-4
        Stop when no centre moves farther than this; as MLlib's.
    maxIter : int, default=20
    seed : int or None, default=None
        None means 0.
    distanceMeasure : {'euclidean', 'cosine'}, default='euclidean'
    weightCol : str or None, default=None
    idCol : str or None, default=None
        A column that is different for every row, and orders them.
    numWorkers : int or None, default=None
        Tasks of the barrier stage; None means as many as the cluster runs at once.
    mode : {'barrier', 'jobs'}, default='barrier'
        'jobs' runs one Spark job per pass, for clusters that refuse barrier stages: many times
        slower for short fits, and the same bits.
    initialCenters : list of rows or None, default=None
        Centres to begin with, instead of `initMode`.
    algorithm : str, default='auto'
        As for `exactmeans.KMeans`.
    checkpointDir : str or None, default=None
        A folder that all executors share. If a task dies, Spark starts the stage again, which
        resumes from the checkpoint there. None means the folder for temporary files of the machine
        that runs task 0: if that changes, the fit begins again, to the same bits. mode='jobs' needs
        no checkpoint.

    Examples
    --------
    >>> from pyspark.ml.linalg import Vectors
    >>> from pyspark.sql import SparkSession
    >>> from exactmeans.spark import KMeans
    >>> spark = SparkSession.builder.master("local[2]").getOrCreate()
    >>> rows = [(i, Vectors.dense(x)) for i, x in enumerate([[1, 2], [1, 4], [10, 2], [10, 4]])]
    >>> df = spark.createDataFrame(rows, ["id", "features"])
    >>> model = KMeans(k=2, seed=0, idCol="id").fit(df)
    >>> [row.prediction for row in model.transform(df).orderBy("id").collect()]
    [1, 1, 0, 0]
    >>> spark.stop()
    """

    @keyword_only
    def __init__(
        self,
        *,
        featuresCol: str | list[str] = "features",
        predictionCol: str = "prediction",
        k: int = 2,
        initMode: str = "k-means||",
        initSteps: int = 2,
        tol: float = 1e-4,
        maxIter: int = 20,
        seed: int | None = None,
        distanceMeasure: str = "euclidean",
        weightCol: str | None = None,
        idCol: str | None = None,
        numWorkers: int | None = None,
        mode: str = "barrier",
        initialCenters: Any = None,
        algorithm: str = "auto",
        checkpointDir: str | None = None,
    ) -> None:
        super().__init__()
        self.setParams(**self._input_kwargs)

    @keyword_only
    def setParams(self, **parameters: Any) -> KMeans:
        """Set parameters by name; None leaves one as it is."""
        given = {name: value for name, value in self._input_kwargs.items() if value is not None}
        self._set(**given)
        return self

    def __getattr__(self, name: str) -> Any:
        """`setK(3)`, `setSeed(1)` and so on, for every parameter."""
        own = name[3:4].lower() + name[4:]
        if name.startswith("set") and own and not own.startswith("_") and self.hasParam(own):
            return partial(self._set_one, own)
        raise AttributeError(name)

    def _set_one(self, name: str, value: Any) -> KMeans:
        return self.setParams(**{name: value})

    # -- fit -----------------------------------------------------------------------------------

    def _fit(self, dataset: Any) -> KMeansModel:
        check_frame(dataset)
        names, spark = self.getFeaturesCol(), dataset.sparkSession
        check_prediction(dataset, self.getPredictionCol())
        loop = self._check(width_of(dataset, names))
        workers = self._workers(spark)
        rows = self._rows(dataset, workers)
        jobs = self.getMode() == "jobs"
        if jobs or run_here(spark):
            loop.check_folder()
        check_python(spark)
        options = RowOptions(
            ALL_METRICS[METRICS[self.getDistanceMeasure()]],
            zero_rows="refuse",
            weighted=self.isDefined(self.weightCol),
            feature_names=names if isinstance(names, list) else None,
        )
        run = _in_jobs if jobs else _in_barrier
        with small_batches(spark):
            try:
                content, sizes, sparse = run(rows, workers, options, loop)
            except Exception as error:
                explain_no_module(error)
                if type(error) is ValueError:  # of ours: it came back from a task
                    error.args = (in_mllibs_words(str(error)),)
                raise
        model = KMeansModel(model_from(content), sparse)
        model._summary = KMeansSummary(model, sizes, dataset)
        return self._copyValues(model)

    def _check(self, width: int | None) -> FitLoop:
        """Check the parameters; `width`: of the rows, if known."""
        check_int("k", self.getK(), 1)
        check_int("maxIter", self.getMaxIter(), 1)
        check_choice("mode", self.getMode(), MODES)
        check_choice("algorithm", self.getAlgorithm(), ALGORITHM_NAMES)
        check_choice("distanceMeasure", self.getDistanceMeasure(), tuple(METRICS))
        init: Any = check_choice("initMode", self.getInitMode(), INIT_MODES)
        steps = check_int("initSteps", self.getInitSteps(), 1)
        given = self._optional(self.initialCenters)
        if given is not None:
            init = self._given_centres(given, width)
            if 2 * np.count_nonzero(init) <= init.size:  # less to send to the tasks
                init = sp.csr_array(init)
        parameters = {
            "n_clusters": self.getK(),
            "init": init,
            "init_options": {"rounds": steps} if given is None and init == "k-means||" else None,
            "max_iter": self.getMaxIter(),
            "random_state": self.getSeed() % 2**32,
            "algorithm": self.getAlgorithm(),
            "metric": METRICS[self.getDistanceMeasure()],
        }
        tol = check_real("tol", self.getTol(), 0)
        folder = self._optional(self.checkpointDir)
        return FitLoop(parameters, tol, uuid.uuid4().hex, folder, self.getMode() == "barrier")

    def _given_centres(self, given: Any, width: int | None) -> Any:
        centres = np.asarray(given)
        if centres.ndim != 2 or len(centres) != self.getK():
            raise ValueError(
                f"initialCenters must have one row for each of k={self.getK()} clusters, but its "
                f"shape is {centres.shape}."
            )
        d = centres.shape[1] if width is None else width
        check_centres(centres, len(centres), d, centres.dtype, "initialCenters")
        if self.getDistanceMeasure() == "cosine" and not centres.any(axis=1).all():
            raise ValueError(
                "initialCenters must not have rows of zeros for distanceMeasure='cosine'."
            )
        return centres

    def _workers(self, spark: Any) -> int:
        """How many partitions; refuses a barrier stage that Spark would refuse much later."""
        slots = slots_of(spark)
        given = self._optional(self.numWorkers)
        workers = slots if given is None else check_int("numWorkers", given, 1)
        if self.getMode() == "jobs":
            return workers
        if spark.conf.get("spark.dynamicAllocation.enabled", "false") == "true":
            raise RuntimeError(_refusal(_REFUSALS["SPARK-24942"]))
        if workers > slots:
            raise ValueError(
                f"numWorkers must be at most {slots}, the tasks that this cluster runs at once, "
                f"but it is {workers}: take fewer, or mode='jobs'."
            )
        return workers

    def _rows(self, dataset: Any, workers: int) -> Any:
        """The columns that tasks read, in one partition per task."""
        chosen = [features(dataset, self.getFeaturesCol()).alias(FEATURES)]
        weight, order = self._optional(self.weightCol), self._optional(self.idCol)
        if weight is not None:
            chosen.append(weights(dataset, weight).alias(WEIGHT))
        if order is None:
            rows = dataset.select(*chosen)
            return rows if partitions_of(rows) == workers else rows.repartition(workers)
        rows = dataset.select(*chosen, ids(dataset, order).alias(ID))
        return rows.repartitionByRange(workers, ID).sortWithinPartitions(ID)


def _in_barrier(rows: Any, workers: int, options: RowOptions, loop: FitLoop) -> Any:
    def task(batches: Iterable[Any]) -> Iterator[Any]:
        return run_stage(batches, options, loop)

    def collected(rows: Any) -> Any:
        # Spark starts a failed barrier stage again only if another stage follows.
        return rows.mapInArrow(task, RESULT, barrier=True).repartition(1).collect()

    try:
        try:
            found = collected(rows)
        except Exception as error:
            if _CHAIN not in str(error):
                raise
            found = collected(rows.repartition(workers))
    except Exception as error:
        for code, needed in _REFUSALS.items():
            if code in str(error):
                raise RuntimeError(_refusal(needed)) from error
        raise
    if not found:  # Spark starts no task where it knows that there are no rows
        if not rows.isEmpty():  # collect() gives nothing if the driver's JVM runs out of memory
            raise RuntimeError(
                "Spark lost the fitted model on its way to the driver: is spark.driver.memory too "
                "small for the centres?"
            )
        raise ValueError("dataset must have rows, but it has none.")
    result = wire.decode(bytes(found[0][0]))
    if isinstance(result, Failure):
        wire.raise_failure(result, "a task of the barrier stage")
    return result


def _refusal(needed: str) -> str:
    return f"Spark runs a barrier stage only with {needed}: set that, or use mode='jobs'."


def _in_jobs(rows: Any, workers: int, options: RowOptions, loop: FitLoop) -> Any:
    """The loop on the driver."""
    rows = rows.persist()

    def run_job(task: Callable[[Iterable[Any]], Iterator[Any]]) -> dict[int, bytes]:
        found = rows.mapInArrow(lambda batches: task(batches), ANSWER).collect()
        return {row[0]: bytes(row[1]) for row in found}

    try:
        transport = JobTransport(run_job)
        layout = transport.layout
        places = {b: [b] for b, info in enumerate(layout.infos) if info.rows}
        return loop(ClusterEngine(transport, layout, places, options))
    finally:
        rows.unpersist()
