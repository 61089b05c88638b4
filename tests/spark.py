"""A Spark session on this machine for tests; skips them where Spark or Java is missing."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

#: What forks Spark's Python workers. Each would import what it needs again, and Spark collects
#: garbage after every task, which goes through all objects that are not frozen.
DAEMON = """
import gc
import pyarrow
import pyspark.daemon
import exactmeans.spark
gc.freeze()
if __name__ == "__main__":
    pyspark.daemon.manager()
"""

#: Sessions last seconds: the second compiler and collectors with threads of their own do not pay.
DEFAULTS = """
spark.python.daemon.module frozen_daemon
spark.executorEnv.PYTHONPATH {folder}
spark.driver.extraJavaOptions -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
"""


def use_quick_settings() -> None:
    """For sessions that this process starts: what they give is the same, how long they take not."""
    os.environ["SPARK_CONF_DIR"] = _settings().name


@cache
def _settings() -> tempfile.TemporaryDirectory[str]:
    folder = tempfile.TemporaryDirectory(prefix="exactmeans-spark-")
    Path(folder.name, "frozen_daemon.py").write_text(DAEMON)
    Path(folder.name, "spark-defaults.conf").write_text(DEFAULTS.format(folder=folder.name))
    return folder


def plain_environment() -> dict[str, str]:
    """For processes whose Spark is as users have it."""
    return {name: value for name, value in os.environ.items() if name != "SPARK_CONF_DIR"}


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
