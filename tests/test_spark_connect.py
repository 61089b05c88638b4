"""Spark Connect: the driver has no context of Spark's own, only a connection."""

from __future__ import annotations

import importlib
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from spark import plain_environment, skip_without_java

SCRIPT = """
    import numpy as np
    from pyspark.ml.linalg import Vectors
    from pyspark.sql import SparkSession

    import exactmeans
    from exactmeans.spark import KMeans, KMeansModel

    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    assert "connect" in type(spark).__module__
    X = np.random.default_rng(0).normal(size=(300, 3))
    options = {"init": "k-means||", "init_options": {"rounds": 2}, "max_iter": 20, "tol": 0}
    local = exactmeans.KMeans(4, **options, random_state=1).fit(X)
    rows = [(i, Vectors.dense(x)) for i, x in enumerate(X.tolist())]
    df = spark.createDataFrame(rows, ["id", "features"])
    model = KMeans(k=4, seed=1, tol=0.0, idCol="id").fit(df)
    assert np.array_equal(model.clusterCenters(), local.cluster_centers_)
    assert model.summary.trainingCost == local.inertia_
    found = [row.prediction for row in model.transform(df).orderBy("id").collect()]
    assert found == local.labels_.tolist()
    model.write().save("model")
    assert KMeansModel.load("model").getK() == 4
    spark.stop()
    print("all is well")
"""


@pytest.mark.slow
def test_a_fit_over_spark_connect(tmp_path: Path) -> None:
    for module in ("pyspark", "grpc", "grpc_status", "zstandard"):
        pytest.importorskip(module, reason=f"Spark Connect needs {module}")
    jars = Path(importlib.import_module("pyspark").__path__[0], "jars")
    if not list(jars.glob("spark-connect_*.jar")):
        pytest.skip("pyspark before 4.0 comes without a server of Spark Connect")
    skip_without_java()
    script = tmp_path / "connect.py"
    script.write_text(textwrap.dedent(SCRIPT))
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env=plain_environment(),
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert "all is well" in done.stdout, done.stderr[-2000:]
