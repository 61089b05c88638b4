"""Runs Python tests with the oldest dependencies that pyproject.toml allows.

    python tools/oldest.py [pytest arguments]

The lower bound of every dependency is installed exactly, in an environment of its own. Without
arguments, the tests run that use these dependencies: those of the numerics would take as long
again and meet NumPy and SciPy only as arrays.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = ROOT / "build" / "oldest"
# Of the extra `dev`, what only style and C++ need.
UNTESTED = {"clang-format", "mypy", "pandas-stubs", "ruff", "scipy-stubs", "cmake", "ninja"}
# Tests of what other packages are used for.
FILES = (
    "arrow_streams",
    "blocks",
    "blocks_refused",
    "cli",
    "cli_databases",
    "cluster",
    "containers",
    "dask",
    "dask_failures",
    "estimator",
    "init",
    "minibatch",
    "minibatch_cosine",
    "persistence",
    "plot",
    "quality",
    "report",
    "select",
    "sql",
    "sql_prediction",
    "sql_writing",
    "text_and_labels",
)


def pins() -> list[str]:
    """`name==lower bound` of everything that tests use."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted = list(project["dependencies"])
    for extra in ("dask", "cli", "io", "report", "sql", "dev"):
        wanted += extras[extra]
    found: list[str] = []
    for requirement in wanted:
        name, _, bound = requirement.partition(">=")
        if bound and re.sub(r"\[.*", "", name) not in UNTESTED:
            found.append(f"{name}=={bound.partition(';')[0].partition(',')[0].strip()}")
    return list(dict.fromkeys(found))  # pyarrow is in two extras


def main() -> None:
    if not (ENVIRONMENT / "pyvenv.cfg").exists():
        venv.create(ENVIRONMENT, with_pip=True)
    python = ENVIRONMENT / ("Scripts" if os.name == "nt" else "bin") / "python"
    pip = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
    print("the oldest:", *pins(), flush=True)
    subprocess.run([*pip, *pins(), str(ROOT)], check=True, cwd=ROOT)
    tests = [f"tests/test_{name}.py" for name in FILES]
    arguments = sys.argv[1:] or ["-n", "auto", "-m", "not slow", *tests]
    done = subprocess.run([str(python), "-m", "pytest", *arguments], cwd=ROOT, check=False)
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
