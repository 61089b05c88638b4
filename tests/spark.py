"""A Spark session on this machine for tests; skips them where Spark or Java is missing."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


def skip_without_java(code: str = "pyspark") -> None:
    """Skip a test whose code uses Spark where there is no Java."""
    if "pyspark" in code and shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("needs Java")
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


@contextmanager
def spark_session(master: str = "local[2,4]", **settings: str) -> Iterator[Any]:
    """`local[2,4]`: two tasks at once, of which each may fail three times."""
    sql = pytest.importorskip("pyspark.sql", reason="needs pyspark")
    skip_without_java()
    own = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
        **settings,
    }
    builder = sql.SparkSession.builder.master(master)
    for name, value in own.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    try:
        yield session
    finally:
        session.stop()
