"""Versions of everything that matters to a bug report."""

from __future__ import annotations

import importlib.metadata
import platform
import sys

from exactmeans import _core
from exactmeans.memory import known_memory

__all__ = ["show_versions"]

#: What exactmeans needs, with all extras, and the frames that it takes.
PACKAGES = (
    *("exactmeans", "numpy", "scipy", "scikit-learn", "joblib", "pandas", "polars"),
    *("pyarrow", "safetensors", "dask", "distributed", "pyspark", "typer", "rich", "matplotlib"),
    *("duckdb", "adbc-driver-manager", "adbc-driver-postgresql", "adbc-driver-sqlite"),
)


def show_versions() -> None:
    """Print versions, instruction set, cores and memory, to paste into a bug report.

    Examples
    --------
    >>> import exactmeans
    >>> exactmeans.show_versions()  # doctest: +ELLIPSIS
    python: 3...
    exactmeans: ...
    """
    memory = known_memory()
    facts = {
        "python": sys.version.replace("\n", " "),
        "system": platform.platform(),
        "processor": platform.machine(),
        "instruction set": _core.active_isa(),
        "cores": str(_core.usable_cores()),
        "memory": "unknown" if memory is None else f"{memory / 2**30:.1f} GiB",
    }
    for name, fact in (facts | versions_of_packages()).items():
        print(f"{name}: {fact}")


def versions_of_packages() -> dict[str, str]:
    """The version of each of PACKAGES, or that it is not installed."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found
