"""Runs the Python tests with the oldest dependencies that pyproject.toml allows.

    python tools/oldest.py [pytest arguments]

The lower bound of every dependency is installed exactly, in an environment of its own.
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


def pins() -> list[str]:
    """`name==lower bound` of everything that tests use."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted = list(project["dependencies"])
    for extra in ("dask", "cli", "io", "report", "dev"):
        wanted += extras[extra]
    found = []
    for requirement in wanted:
        name, _, bound = requirement.partition(">=")
        if bound and re.sub(r"\[.*", "", name) not in UNTESTED:
            found.append(f"{name}=={bound.partition(';')[0].partition(',')[0].strip()}")
    return found


def main() -> None:
    if not (ENVIRONMENT / "pyvenv.cfg").exists():
        venv.create(ENVIRONMENT, with_pip=True)
    python = ENVIRONMENT / ("Scripts" if os.name == "nt" else "bin") / "python"
    pip = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
    print("the oldest:", *pins(), flush=True)
    subprocess.run([*pip, *pins(), str(ROOT)], check=True, cwd=ROOT)
    arguments = sys.argv[1:] or ["-n", "auto"]
    done = subprocess.run([str(python), "-m", "pytest", *arguments], cwd=ROOT, check=False)
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
