"""Spark gives the bits of the local estimator, with MLlib's names, in real barrier stages."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import tempfile
import time
import tracemalloc
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray

import exactmeans
from spark import spark_session, use_quick_settings

pytest.importorskip("pyspark", reason="needs pyspark")
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.clustering import KMeans as MLlibKMeans
from pyspark.ml.clustering import KMeansModel as MLlibKMeansModel
from pyspark.ml.evaluation import ClusteringEvaluator
from pyspark.ml.feature import StandardScaler, VectorAssembler
from pyspark.ml.linalg import Vectors
from pyspark.ml.tuning import CrossValidator, ParamGridBuilder
from pyspark.sql import functions as F

from exactmeans.spark import KMeans, KMeansModel
from exactmeans.spark.batches import small_batches
from exactmeans.spark.partitions import partitions_of
from exactmeans.spark.tasks import check_python, in_mllibs_words

K = 6


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    use_quick_settings()
    with spark_session() as session:
        yield session


def rows(n: int = 600, d: int = 4) -> NDArray[np.float64]:
    rng = np.random.default_rng(n + d)
    return rng.normal(size=(n, d)) + 4 * rng.integers(0, 3, size=(n, 1))


def texts(n: int = 400, d: int = 90) -> Any:
    return sp.random(n, d, 0.05, format="csr", random_state=1)


def frame(spark: Any, X: Any, weights: Any = None) -> Any:
    """Rows in random order, with their numbers as ids."""
    order = np.random.default_rng(5).permutation(X.shape[0]).tolist()

    def vector(i: int) -> Any:
        if isinstance(X, np.ndarray):
            return Vectors.dense(X[i])
        own = slice(X.indptr[i], X.indptr[i + 1])
        return Vectors.sparse(X.shape[1], X.indices[own].tolist(), X.data[own].tolist())

    weights = np.ones(X.shape[0]) if weights is None else weights
    data = [(i, vector(i), float(weights[i])) for i in order]
    return spark.createDataFrame(data, ["id", "features", "weight"]).repartition(3)


def local_model(X: Any, weights: Any = None, **options: Any) -> exactmeans.KMeans:
    defaults: dict[str, Any] = {"init": "k-means||", "init_options": {"rounds": 2}}
    options = {**defaults, "random_state": 7, **options}
    return exactmeans.KMeans(K, tol=0, max_iter=20, n_init=1, **options).fit(
        X, sample_weight=weights
    )


def same(model: KMeansModel, local: exactmeans.KMeans, df: Any) -> None:
    np.testing.assert_array_equal(
        sp.csr_array(model.local.cluster_centers_).toarray(),
        sp.csr_array(local.cluster_centers_).toarray(),
    )
    assert model.summary.trainingCost == local.inertia_
    assert model.summary.numIter == local.n_iter_
    found = model.transform(df).select("id", "prediction").orderBy("id").collect()
    assert [row.prediction for row in found] == local.labels_.tolist()
    assert model.summary.clusterSizes == np.bincount(local.labels_, minlength=K).tolist()


@pytest.mark.parametrize("init", ["k-means||", "k-means++", "random", "furthest"])
def test_bits_of_the_local_estimator(spark: Any, init: str) -> None:
    X = rows()
    df = frame(spark, X)
    options = {"init_options": {"rounds": 2} if init == "k-means||" else None}
    model = KMeans(k=K, seed=7, tol=0.0, initMode=init, idCol="id").fit(df)
    same(model, local_model(X, init=init, **options), df)


@pytest.mark.parametrize(
    ("measure", "mode"),
    [
        ("euclidean", "barrier"),
        ("cosine", "jobs"),
        pytest.param("euclidean", "jobs", marks=pytest.mark.slow),
        pytest.param("cosine", "barrier", marks=pytest.mark.slow),
    ],
)
def test_sparse_and_weighted_rows(spark: Any, measure: str, mode: str) -> None:
    X = sp.csr_array(sp.hstack([sp.csr_array(np.full((400, 1), 0.5)), texts()]))  # no row of zeros
    weights = np.random.default_rng(0).random(X.shape[0])
    df = frame(spark, X, weights)
    estimator = KMeans(k=K, seed=7, tol=0.0, distanceMeasure=measure, mode=mode)
    model = estimator.setIdCol("id").setWeightCol("weight").fit(df)
    same(model, local_model(X, weights, metric=measure), df)
    assert model._sparse
    assert sp.issparse(model.local.cluster_centers_)  # no k x d values in any task
    assert model.clusterCenters()[0].shape == (91,)


def test_one_row_of_a_sparse_model_stays_sparse() -> None:
    """A dense row would need k x d values."""
    X = texts(300, 20_000)
    local = exactmeans.KMeans(50, init="random", random_state=0, sparse_centers=True).fit(X)
    model = KMeansModel(local, sparse=True)
    nonzero = X[[7]].nonzero()[1]
    row = Vectors.sparse(20_000, nonzero.tolist(), X[[7]].data.tolist())
    tracemalloc.start()
    try:
        assert model.predict(row) == local.labels_[7]
        assert tracemalloc.get_traced_memory()[1] < 50 * 20_000 * 8 / 4
    finally:
        tracemalloc.stop()


def test_arrays_and_columns_of_numbers(spark: Any) -> None:
    X = rows(300, 3).astype(np.float32)
    data = [(i, *map(float, x)) for i, x in enumerate(X)]
    df = spark.createDataFrame(data, "id long, a float, b float, c float")
    df = df.withColumn("features", F.array("a", "b", "c"))
    arrays = KMeans(k=K, seed=7, tol=0.0, idCol="id").fit(df)
    same(arrays, local_model(X), df)
    assert arrays.local.cluster_centers_.dtype == np.float32
    columns = KMeans(k=K, seed=7, tol=0.0, idCol="id", featuresCol=["a", "b", "c"]).fit(df)
    same(columns, local_model(X.astype(np.float64)), df)


def test_given_centres_and_the_meaning_of_tol(spark: Any) -> None:
    """A fit stops when no centre moves farther than tol, as MLlib's does."""
    X, tol = rows(), 0.05
    df = frame(spark, X)
    model = KMeans(k=K, tol=tol, idCol="id", initialCenters=X[:K], maxIter=50).fit(df)
    centres, iterations = X[:K], 0
    while True:
        labels = ((X[:, None] - centres[None]) ** 2).sum(2).argmin(1)
        new = np.array([X[labels == j].mean(0) for j in range(K)])
        moved = np.sqrt(((new - centres) ** 2).sum(1)).max()
        centres, iterations = new, iterations + 1
        if moved <= tol:
            break
    assert model.summary.numIter == iterations > 2
    np.testing.assert_allclose(model.clusterCenters(), centres, rtol=1e-12)


def test_rows_without_ids_give_an_exact_clustering(spark: Any) -> None:
    X = rows()
    df = frame(spark, X)
    model = KMeans(k=K, tol=0.0, seed=1, maxIter=100).fit(df)
    again = exactmeans.KMeans(K, init=model.local.cluster_centers_, tol=0).fit(X)
    assert again.n_iter_ == 1  # nothing moves
    assert again.inertia_ == model.summary.trainingCost


def test_pipelines(spark: Any, tmp_path: Path) -> None:
    data = [(i, *x) for i, x in enumerate(rows(300, 3).tolist())]
    df = spark.createDataFrame(data, ["id", "a", "b", "c"])
    stages: list[Any] = [
        VectorAssembler(inputCols=["a", "b", "c"], outputCol="raw"),
        StandardScaler(inputCol="raw", outputCol="features"),
        KMeans(k=3, seed=1, idCol="id"),
    ]
    fitted = Pipeline(stages=stages).fit(df)
    labels = [row.prediction for row in fitted.transform(df).orderBy("id").collect()]
    fitted.write().overwrite().save(str(tmp_path / "pipeline"))
    again = PipelineModel.load(str(tmp_path / "pipeline"))
    assert [r.prediction for r in again.transform(df).orderBy("id").collect()] == labels


@pytest.mark.slow
def test_cross_validation(spark: Any) -> None:
    estimator = KMeans(seed=1, idCol="id")
    validator = CrossValidator(
        estimator=estimator,
        estimatorParamMaps=ParamGridBuilder().addGrid(estimator.k, [2, 3]).build(),
        evaluator=ClusteringEvaluator(),
        numFolds=2,
        seed=0,
    )
    best: Any = validator.fit(frame(spark, rows(300, 3)))
    assert best.bestModel.getK() in (2, 3)
    assert len(best.avgMetrics) == 2


def test_writing_and_reading(spark: Any, tmp_path: Path) -> None:
    X = texts()
    df = frame(spark, X)
    estimator = KMeans(k=K, seed=3, idCol="id", predictionCol="cluster", maxIter=7)
    estimator.save(str(tmp_path / "estimator"))
    again = KMeans.load(str(tmp_path / "estimator"))
    assert {p.name: v for p, v in again.extractParamMap().items()} == {
        p.name: v for p, v in estimator.extractParamMap().items()
    }
    model = again.fit(df)
    model.write().save(str(tmp_path / "model"))
    read = KMeansModel.load(str(tmp_path / "model"))
    assert (read.getPredictionCol(), read.getMaxIter()) == ("cluster", 7)
    assert not read.hasSummary
    assert read.transform(df).orderBy("id").collect() == model.transform(df).orderBy("id").collect()
    assert read.predict(Vectors.dense(X[:1].toarray()[0])) == model.local.predict(X[:1])[0]
    assert {p.name: v for p, v in read.extractParamMap().items()} == {
        p.name: v for p, v in model.extractParamMap().items()
    }


# Parameters of MLlib's ways to compute, which the estimator does not have either.
WAYS_OF_MLLIB = {"Solver", "MaxBlockSizeInMB", "IntermediateStorageLevel"}


def test_what_models_of_mllib_have(spark: Any) -> None:
    """Every getter, setter and property, with the values of the estimator."""
    df = frame(spark, rows())
    estimator = KMeans(k=K, seed=3, tol=0.5, maxIter=7, initMode="random", weightCol="weight")
    model = estimator.setInitSteps(3).setPredictionCol("cluster").fit(df)
    getters = {name[3:] for name in dir(MLlibKMeansModel) if name.startswith("get")}
    generic = {"OrDefault", "Param"}
    for name in getters - generic - WAYS_OF_MLLIB:
        assert getattr(model, f"get{name}")() == getattr(estimator, f"get{name}")(), name
    assert (model.getK(), model.getTol(), model.getMaxIter(), model.getSeed()) == (K, 0.5, 7, 3)
    assert (model.getInitMode(), model.getInitSteps()) == ("random", 3)
    assert (model.getWeightCol(), model.getPredictionCol()) == ("weight", "cluster")
    assert model.numFeatures == 4
    others = {"setFeaturesCol", "setPredictionCol", "clusterCenters", "predict", "summary"}
    assert others <= set(dir(model))
    assert repr(model.summary) == (
        f"KMeansSummary(k={K}, numIter={model.summary.numIter}, "
        f"trainingCost={model.summary.trainingCost})"
    )


def test_getters_of_the_estimator(spark: Any, tmp_path: Path) -> None:
    given: dict[str, Any] = {
        "idCol": "id",
        "numWorkers": 2,
        "mode": "jobs",
        "algorithm": "hamerly",
        "checkpointDir": str(tmp_path),
        "initialCenters": [[1.0, 2.0]],
    }
    estimator = KMeans(**given)
    for name, value in given.items():
        assert getattr(estimator, f"get{name[0].upper()}{name[1:]}")() == value


def test_one_row(spark: Any) -> None:
    X = rows()
    model = KMeans(k=3, seed=7, idCol="id").fit(frame(spark, X))
    label = int(model.local.predict(X[:1])[0])
    sparse = Vectors.sparse(4, dict(enumerate(X[0].tolist())))
    for one in (Vectors.dense(X[0]), sparse, X[0], X[0].tolist(), tuple(X[0].tolist())):
        assert model.predict(one) == label
    for wrong in (X, X[0, :3], "abcd", ["a", "b", "c", "d"], None, 3.0):
        with pytest.raises(TypeError, match="value must be a vector or a list of 4 numbers"):
            model.predict(wrong)


def test_parameters_and_attributes_are_those_of_mllib(spark: Any) -> None:
    df = frame(spark, rows(60, 3))
    options: dict[str, Any] = {"k": 3, "maxIter": 5, "tol": 1e-3, "seed": 4, "weightCol": "weight"}
    options |= {"initMode": "random", "initSteps": 3, "distanceMeasure": "cosine"}
    estimators: list[Any] = [MLlibKMeans(), KMeans()]
    theirs, ours = (estimator.copy() for estimator in estimators)
    model, own = MLlibKMeans(**options).fit(df), KMeans(**options).fit(df)
    # What concerns MLlib's computation only.
    solving = {"solver", "maxBlockSizeInMB", "intermediateStorageLevel"}
    for name in {param.name for param in theirs.params} - solving:
        assert ours.isDefined(name) == theirs.isDefined(name) or name == "seed"
        if theirs.isDefined(name) and name != "seed":
            assert ours.getOrDefault(name) == theirs.getOrDefault(name)
        assert own.getOrDefault(name) == model.getOrDefault(model.getParam(name))
        getter = "get" + name[0].upper() + name[1:]
        assert getattr(own, getter)() == getattr(model, getter)()

    def public(thing: Any) -> set[str]:
        return {name for name in dir(thing) if not name.startswith("_")}

    accessors = {"get" + name[0].upper() + name[1:] for name in solving}
    assert public(model) - public(own) <= solving | accessors
    assert public(model.summary) <= public(own.summary)
    assert (own.numFeatures, own.summary.k) == (3, model.summary.k)
    assert own.numFeatures == getattr(model, "numFeatures", 3)  # since Spark 4
    labels, labelled = (one.transform(df).schema["prediction"] for one in (own, model))
    assert (labels.dataType, labels.metadata) == (labelled.dataType, labelled.metadata)


# what goes wrong ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"k": 0}, "k must be"),
        ({"k": 900}, "k must be at most 600, the number of rows, but it is 900."),
        ({"distanceMeasure": "manhattan"}, "distanceMeasure must be"),
        ({"initMode": "best"}, "initMode must be"),
        ({"mode": "fast"}, "mode must be"),
        ({"numWorkers": 9}, "numWorkers must be at most 2"),
        ({"featuresCol": "id"}, "featuresCol must be a column of vectors"),
        ({"featuresCol": "Features"}, "'Features' is none: it has id, features, weight"),
        ({"featuresCol": ["weight", "x"]}, "featuresCol must name a column .* 'x'"),
        ({"idCol": "x"}, "idCol must name a column of the data frame, but 'x' is none"),
        ({"weightCol": "x"}, "weightCol must name a column of the data frame, but 'x' is none"),
        ({"weightCol": "features"}, "weightCol must be a column of numbers, but .* is vector"),
        ({"initialCenters": [[1.0, 2.0, 3.0, 4.0]]}, "initialCenters must have one row for each"),
        ({"initialCenters": np.ones((3, 2))}, r"initialCenters must have shape \(3, 4\).* 4\."),
        ({"idCol": "weight"}, "idCol must be different for every row"),
        ({"idCol": "nan"}, "idCol must be different for every row"),
        ({"featuresCol": "empty"}, "featuresCol must have at least one value per row"),
        ({"algorithm": "fast"}, "algorithm must be"),
        (
            {"initialCenters": [[0.0] * 4] * 2},
            "initialCenters must have one row for each of k=3",
        ),
    ],
    ids=str,
)
def test_errors(spark: Any, parameters: dict[str, Any], message: str) -> None:
    df = frame(spark, rows())
    name = parameters.get("idCol", parameters.get("featuresCol"))
    if name == "nan":
        df = df.withColumn("nan", F.when(F.col("id") > 1, F.col("id")).otherwise(float("nan")))
    if name == "empty":
        df = df.withColumn("empty", F.array().cast("array<double>"))
    with pytest.raises(ValueError, match=message):
        KMeans(**{"k": 3, **parameters}).fit(df)


@pytest.mark.parametrize("mode", ["barrier", "jobs"])
def test_values_that_cannot_be_clustered(spark: Any, mode: str) -> None:
    """The errors of the local estimator, in MLlib's words."""
    X = rows()
    X[599, 2] = np.inf
    X[3, 1] = np.nan
    df = frame(spark, X)
    with pytest.raises(ValueError, match="row is 3, in column 1:") as local:
        exactmeans.KMeans(3).fit(X)
    with pytest.raises(ValueError, match="featuresCol must be finite") as ours:
        KMeans(k=3, idCol="id", mode=mode).fit(df)
    assert str(ours.value) == str(local.value).replace("X must", "featuresCol must")
    data = [(i, *x) for i, x in enumerate(X.tolist())]
    named = spark.createDataFrame(data, ["id", "a", "b", "c", "d"])
    with pytest.raises(ValueError, match="the first such row is 3, in column 'b':"):
        KMeans(k=3, idCol="id", mode=mode, featuresCol=["a", "b", "c", "d"]).fit(named)


def test_rows_without_a_direction(spark: Any) -> None:
    X = rows()
    X[5] = 0
    with pytest.raises(ValueError, match=r"^featuresCol must not .* distanceMeasure='cosine'") as e:
        KMeans(k=3, idCol="id", distanceMeasure="cosine").fit(frame(spark, X))
    assert str(e.value).endswith("the first of which is row 5; leave them out.")


def test_weights_that_are_all_zero(spark: Any) -> None:
    with pytest.raises(ValueError, match=r"^weightCol must not be zero for every row"):
        KMeans(k=3, weightCol="weight").fit(frame(spark, rows(), np.zeros(600)))


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("X must have rows, but Found array with 0 sample(s).", "dataset must have rows, but it"),
        ("init must have shape (3, 4).", "initialCenters must have shape (3, 4)."),
        ("sample_weight must be finite.", "weightCol must be finite."),
        (
            "sample_weight must not be negative, but row 2 of its block is.",
            "weightCol must not be negative, but some rows are.",
        ),
        (
            "X must have blocks of one width, but they have [2, 3] columns.",
            "featuresCol must have rows of one size, but they have [2, 3].",
        ),
        ("idCol must be different for every row.", "idCol must be different for every row."),
    ],
)
def test_words_of_mllib(ours: str, theirs: str) -> None:
    assert in_mllibs_words(ours).startswith(theirs)


@pytest.fixture
def no_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fits that start tasks fail."""
    from exactmeans.spark import estimator

    def refused(*_: Any) -> Any:
        raise AssertionError("tasks were started")

    monkeypatch.setattr(estimator, "_in_barrier", refused)
    monkeypatch.setattr(estimator, "_in_jobs", refused)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"checkpointDir": "/no/such"}, "checkpointDir must be a folder that exists, but '/no/su"),
        ({"checkpointDir": "/no/such", "mode": "jobs"}, "checkpointDir must be a folder that"),
        ({"initialCenters": np.ones((3, 2))}, r"initialCenters must have shape \(3, 4\)"),
        ({"initialCenters": np.full((3, 4), np.inf)}, "initialCenters must be finite"),
        (
            {"initialCenters": np.zeros((3, 4)), "distanceMeasure": "cosine"},
            "initialCenters must not have rows of zeros for distanceMeasure='cosine'",
        ),
        ({"predictionCol": "id"}, "predictionCol must be a new column, but 'id' exists already"),
    ],
    ids=str,
)
def test_what_is_refused_before_tasks_run(
    spark: Any, no_tasks: None, parameters: dict[str, Any], message: str
) -> None:
    data = [(i, *x) for i, x in enumerate(rows(20).tolist())]
    names = ["a", "b", "c", "d"]
    df = spark.createDataFrame(data, ["id", *names])
    with pytest.raises(ValueError, match=message):
        KMeans(k=3, featuresCol=names, **parameters).fit(df)
    assembled = VectorAssembler(inputCols=names, outputCol="features").transform(df)
    with pytest.raises(ValueError, match=message):
        KMeans(k=3, **parameters).fit(assembled)


def test_a_missing_folder_on_the_machine_of_the_loop(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a cluster, folders of the driver say nothing."""
    from exactmeans.spark import estimator

    monkeypatch.setattr(estimator, "run_here", lambda spark: False)
    with pytest.raises(ValueError, match=r"^checkpointDir must be a folder that exists"):
        KMeans(k=3, checkpointDir="/no/such").fit(frame(spark, rows()))


def test_mllib_refuses_a_column_of_predictions_in_fit_too(spark: Any) -> None:
    df = frame(spark, rows(20)).withColumn("prediction", F.lit(0))
    for kind in (MLlibKMeans, KMeans):
        with pytest.raises(Exception, match=r"prediction.*(already exists|exists already)"):
            kind(k=3).fit(df)


@pytest.mark.parametrize("wrong", [[[1.0], [1.0, 2.0]], [["a"]], "abc"], ids=str)
def test_centres_that_are_no_rows(wrong: Any) -> None:
    with pytest.raises(TypeError, match="initialCenters must be rows of numbers"):
        KMeans(initialCenters=wrong)


def test_a_python_without_the_package_is_refused_before_tasks_run(
    spark: Any, no_tasks: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of a virtual environment is found on the PATH only if it is activated."""
    package = Path(exactmeans.__file__).parents[1]

    def python(name: str, options: str) -> str:
        path = tmp_path / name
        path.write_text(f'#!/bin/sh\nexec "{sys.executable}" {options} "$@"\n')
        path.chmod(0o755)
        return str(path)

    df = frame(spark, rows(20))
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setattr(spark._sc, "pythonExec", python("bare", "-S"))
    message = rf"bare, which has no exactmeans: set .* PYSPARK_PYTHON to {sys.executable} before"
    with pytest.raises(RuntimeError, match=message):
        KMeans(k=3).fit(df)
    monkeypatch.setitem(spark._sc.environment, "PYTHONPATH", str(package))
    check_python(spark)  # finds it now
    for name in (python("other", ""), "no_such_python", python("broken", "--no-such-option")):
        monkeypatch.setattr(spark._sc, "pythonExec", name)
        check_python(spark)


@pytest.mark.parametrize("mode", ["barrier", "jobs"])
def test_a_data_frame_without_rows(spark: Any, mode: str) -> None:
    with pytest.raises(ValueError, match="must have rows"):
        KMeans(k=3, idCol="id", mode=mode).fit(frame(spark, rows()).limit(0))


def test_a_result_that_spark_loses() -> None:
    """As `collect` does where the driver's memory is too small: it logs, and gives no rows."""
    from exactmeans.spark import estimator

    class Rows:
        def mapInArrow(self, *_: Any, barrier: bool) -> Rows:
            return self

        def repartition(self, _: int) -> Rows:
            return self

        def collect(self) -> list[Any]:
            return []

        def isEmpty(self) -> bool:
            return False

    nothing: Any = None
    with pytest.raises(RuntimeError, match=r"is spark\.driver\.memory too small"):
        estimator._in_barrier(Rows(), 2, nothing, nothing)


def test_what_is_no_data_frame() -> None:
    X: Any = rows()
    with pytest.raises(TypeError, match=r"but it is a ndarray: spark\.createDataFrame"):
        KMeans(k=3).fit(X)


def test_names_as_spark_resolves_them(spark: Any) -> None:
    """Case does not matter, and columns may be fields of structs."""
    X, W = rows(), np.arange(600) % 3 + 1.0
    df = frame(spark, X, W)
    packed = df.select("features", F.struct("id", "weight").alias("row"))
    local = local_model(X, W)
    cases: list[tuple[Any, dict[str, Any]]] = [
        (df, {"idCol": "ID", "weightCol": "Weight"}),
        (packed, {"idCol": "row.id", "weightCol": "row.weight"}),
    ]
    for data, names in cases:
        model = KMeans(k=K, seed=7, tol=0.0, **names).fit(data)
        assert model.summary.trainingCost == local.inertia_


def test_names_with_dots(spark: Any) -> None:
    """Columns of other stages often have them, and Spark takes them for fields of structs."""
    X, W = rows(300, 3), np.arange(300) % 3 + 1.0
    data = [(i, *x, Vectors.dense(x), i % 3 + 1.0) for i, x in enumerate(X.tolist())]
    names = ["my.id", "x.1", "x 2", "x`3", "my.features", "my.weight"]
    df = spark.createDataFrame(data, names)
    options: dict[str, Any] = {"k": K, "seed": 7, "tol": 0.0, "idCol": "my.id"}
    local = local_model(X, W)
    for features in ("my.features", ["x.1", "x 2", "x`3"]):
        model = KMeans(**options, featuresCol=features, weightCol="my.weight").fit(df)
        assert model.summary.trainingCost == local.inertia_
        labelled = model.transform(df)
        assert labelled.columns == [*names, "prediction"]
        found = labelled.select("`my.id`", "prediction").collect()
        assert [label for _, label in sorted(found)] == local.labels_.tolist()


def test_other_columns_stay_as_they_are(spark: Any) -> None:
    """Equal names and metadata too."""
    df = frame(spark, rows())
    model = KMeans(k=3, seed=7, idCol="id").fit(df)
    twice = df.select(F.col("id").alias("id", metadata={"of": "rows"}), "features", "id")
    labelled = model.transform(twice)
    assert labelled.schema.fields[:-1] == twice.schema.fields
    assert labelled.columns == ["id", "features", "id", "prediction"]
    assert [row[:3] for row in labelled.collect()] == [tuple(row) for row in twice.collect()]


def test_a_model_refuses_rows_without_its_column_at_once(spark: Any) -> None:
    df = frame(spark, rows())
    model = KMeans(k=3, seed=7, idCol="id").fit(df)
    with pytest.raises(ValueError, match="featuresCol must name a column"):
        model.transform(df.select("id"))


def test_explain_says_that_tol_stopped_the_fit(spark: Any) -> None:
    """A callback compares the movement with MLlib's tol, but no user passed one."""
    model = KMeans(k=3, seed=7, tol=1e3, idCol="id").fit(frame(spark, rows()))
    assert "stopped because no centre moved farther than tol" in model.local.explain()


def test_tasks_without_the_package(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where PYSPARK_PYTHON names no Python, and that of the PATH has no exactmeans."""
    from exactmeans.spark import estimator

    class Absent:  # cannot be unpickled
        def __reduce__(self) -> Any:
            return importlib.import_module, ("absent_in_tasks",)

    monkeypatch.setattr(estimator, "run_stage", Absent())
    with pytest.raises(RuntimeError, match=r"no module 'absent_in_tasks': .* PYSPARK_PYTHON"):
        KMeans(k=3, idCol="id").fit(frame(spark, rows()))


def test_dynamic_allocation_is_refused_in_a_sentence(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    df = frame(spark, rows())
    get = type(spark.conf).get

    def enabled(self: Any, name: str, *default: Any) -> Any:
        return "true" if name.startswith("spark.dynamicAllocation") else get(self, name, *default)

    monkeypatch.setattr(type(spark.conf), "get", enabled)
    with pytest.raises(RuntimeError, match=r"dynamicAllocation\.enabled=false: .* mode='jobs'"):
        KMeans(k=3).fit(df)


@pytest.mark.parametrize("task", [0, 1])
def test_a_task_that_is_killed_in_mid_fit(
    spark: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, task: int
) -> None:
    """Spark starts the stage again; the fit goes on from the last centres, to the same bits."""
    X = rows()
    df = frame(spark, X)
    mark = tmp_path / "killed"
    cloudpickle: Any = pytest.importorskip("pyspark.cloudpickle")

    from exactmeans.spark import estimator

    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # tasks cannot import tests
    monkeypatch.setattr(estimator, "run_stage", _Deadly(str(mark), task))
    model = KMeans(k=K, seed=7, tol=0.0, idCol="id", checkpointDir=str(tmp_path)).fit(df)
    assert mark.exists()
    same(model, local_model(X), df)
    assert not list(tmp_path.glob("*.checkpoint"))
    iterations = model.summary.numIter
    assert iterations > 9
    assert 0 < len((tmp_path / "after").read_text()) < iterations - 2


class _Deadly:
    """Kills the process of a task at its eighth assignment, once.

    Every iteration has a checkpoint. Counts the assignments of task 0 from then on.
    """

    def __init__(self, mark: str, task: int) -> None:
        self._mark, self._task = mark, task

    def __call__(self, batches: Any, options: Any, loop: Any) -> Any:
        from exactmeans.engine.cluster.worker_engine import WorkerEngine
        from exactmeans.engine.spark.barrier import run_stage
        from exactmeans.io import checkpoint

        respond, seen, interval = WorkerEngine.respond_to, [], checkpoint.INTERVAL

        def deadly(engine: Any, message: Any) -> Any:
            seen.append(b"WorkerEngine.assign" in bytes(message))
            if sum(seen) == 8 and engine.number == self._task and not os.path.exists(self._mark):
                Path(self._mark).write_text(str(time.time()))
                os.kill(os.getpid(), signal.SIGKILL)
            if seen[-1] and engine.number == 0 and os.path.exists(self._mark):
                with Path(self._mark).with_name("after").open("a") as after:
                    after.write("x")
            return respond(engine, message)

        kind: Any = WorkerEngine
        kind.respond_to, checkpoint.INTERVAL = deadly, 0.0
        try:
            yield from run_stage(batches, options, loop)
        finally:
            kind.respond_to, checkpoint.INTERVAL = respond, interval


@pytest.mark.parametrize("before", ["10000", "300"])
def test_the_size_of_batches_is_restored(spark: Any, before: str) -> None:
    """Fits lower it meanwhile, and never raise it."""
    setting, seen = "spark.sql.execution.arrow.maxRecordsPerBatch", []
    spark.conf.set(setting, before)
    with small_batches(spark):
        with small_batches(spark):
            seen.append(spark.conf.get(setting))
        seen.append(spark.conf.get(setting))
    assert seen == [min("1000", before, key=int)] * 2
    assert spark.conf.get(setting) == before
    with pytest.raises(ValueError, match="n_samples=600"):
        KMeans(k=900).fit(frame(spark, rows()))
    assert spark.conf.get(setting) == before
    spark.conf.unset(setting)


def test_temporary_files_are_removed(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoints, and addresses of tasks."""
    own = uuid.uuid4()  # other processes have fits, too
    monkeypatch.setattr(uuid, "uuid4", lambda: own)
    seen: set[str] = set()

    def left() -> set[str]:
        found = {path.suffix for path in Path(tempfile.gettempdir()).glob(f"exactmeans-{own.hex}*")}
        seen.update(found)
        return found

    with ThreadPoolExecutor(1) as pool:
        fit = pool.submit(KMeans(k=3).fit, frame(spark, rows()))
        while not fit.done():
            left()
            time.sleep(0.005)
        fit.result()
    end = time.monotonic() + 10
    while left() and time.monotonic() < end:  # a task may end after the fit
        time.sleep(0.05)
    assert not left()
    assert ".tasks" in seen


def test_jobs_keep_no_checkpoint(
    spark: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nothing would resume from it."""
    from exactmeans.engine.spark.jobs import JobTransport
    from exactmeans.io import checkpoint

    exchange, seen = JobTransport.exchange, list[bytes]()

    def failing(transport: Any, messages: Any) -> Any:
        sent = map(bytes, messages.values())
        seen.extend(message for message in sent if b"WorkerEngine.assign" in message)
        if len(seen) > 4:
            raise KeyboardInterrupt
        return exchange(transport, messages)

    monkeypatch.setattr(JobTransport, "exchange", failing)
    monkeypatch.setattr(checkpoint, "INTERVAL", 0.0)
    estimator = KMeans(k=K, mode="jobs", initMode="random", checkpointDir=str(tmp_path))
    with pytest.raises(KeyboardInterrupt):
        estimator.fit(frame(spark, rows()))
    assert not list(tmp_path.iterdir())


def test_rows_are_shuffled_only_if_they_must_be(spark: Any) -> None:
    """Two tasks read two partitions as they are, unless operators cut them within the stage."""
    line = F.array((F.col("id") % 7).cast("double"), (F.col("id") % 5).cast("double"))
    two = spark.range(0, 200, 1, 2).select(line.alias("features"))
    four = spark.range(0, 200, 1, 4).select(line.alias("features"))
    assert partitions_of(two) == partitions_of(four.coalesce(2)) == 2
    assert partitions_of(four) == 4
    assert partitions_of(four.repartition(2)) is None
    X = np.array([[i % 7, i % 5] for i in range(200)], dtype=float)
    start = X[:3].tolist()
    local = exactmeans.KMeans(3, init=X[:3], tol=0, max_iter=20).fit(X)
    for df in (two, four, four.coalesce(2), four.repartition(2)):
        model = KMeans(k=3, initialCenters=start, tol=0.0).fit(df)
        assert model.summary.trainingCost == local.inertia_
        np.testing.assert_array_equal(model.clusterCenters(), local.cluster_centers_)
