"""Where Spark's tasks run and by which Python, and what they report in MLlib's words."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from functools import cache
from typing import Any

_NO_MODULE = re.compile(r"No module named '([^']+)'")
_ABSENT = 3  # exit code of _FIND_PACKAGE
_FIND_PACKAGE = (
    f"import importlib.util as u, sys; sys.exit({_ABSENT} * (not u.find_spec('exactmeans')))"
)
#: Arguments of exactmeans.KMeans in errors of tasks, and what they are here.
_NAMES = (
    (re.compile(r"^X must have rows,.*"), "dataset must have rows, but it has none."),
    (
        re.compile(r"^X must have blocks of one width, but they have (.*) columns\.$"),
        r"featuresCol must have rows of one size, but they have \1.",
    ),
    (re.compile(r"^X(?= must )"), "featuresCol"),
    (re.compile(r"^init(?= must )"), "initialCenters"),
    (re.compile(r"\bsample_weight\b"), "weightCol"),
    (re.compile(r"\brow \d+ of its block is\b"), "some rows are"),
    (re.compile(r"\bmetric="), "distanceMeasure="),
    (
        re.compile(r"^n_samples=(\d+) should be >= n_clusters=(\d+)\.$"),
        r"k must be at most \1, the number of rows, but it is \2.",
    ),
    (re.compile(r"\bn_clusters="), "k="),
)


def run_here(spark: Any) -> bool:
    """Whether tasks run on the driver's machine; False where only Spark would know."""
    context = getattr(spark, "_sc", None)
    return context is not None and str(context.master).startswith("local")


def check_python(spark: Any) -> None:
    """Refuse a Python of the tasks that has no exactmeans, if they run on this machine.

    Spark would run the stage four times, and print the traces of each.
    """
    if not run_here(spark):
        return
    context = spark._sc
    python = shutil.which(context.pythonExec)
    paths = [context.environment.get("PYTHONPATH"), os.environ.get("PYTHONPATH")]
    if python is not None and _lacks_package(python, os.pathsep.join(filter(None, paths))):
        raise RuntimeError(
            f"Spark's tasks run {python}, which has no exactmeans: set the environment variable "
            f"PYSPARK_PYTHON to {sys.executable} before the session starts."
        )


@cache
def _lacks_package(python: str, paths: str) -> bool:
    """False if in doubt."""
    if os.path.abspath(python) == os.path.abspath(sys.executable):
        return False
    environment = {**os.environ, "PYTHONPATH": paths}
    try:
        done = subprocess.run(
            [python, "-c", _FIND_PACKAGE], env=environment, capture_output=True, timeout=60
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == _ABSENT


def explain_no_module(error: Exception) -> None:
    """Say what to do where the Python of the tasks is another one than that of the driver."""
    missing = _NO_MODULE.search(str(error))
    if missing is not None:
        raise RuntimeError(
            f"Spark's tasks found no module {missing[1]!r}: install it for the Python that they "
            "run, or name the Python that has it in the environment variable PYSPARK_PYTHON, or "
            "for spark-submit in spark.pyspark.python, before the session starts."
        ) from error


def in_mllibs_words(message: str) -> str:
    """An error of exactmeans.KMeans with the names that the user of Spark knows."""
    for ours, theirs in _NAMES:
        message = ours.sub(theirs, message)
    return message
