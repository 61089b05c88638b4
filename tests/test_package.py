"""The package as it is shipped: names, types, examples, and what importing it drags in."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.resources
import inspect
import json
import pkgutil
import re
import shutil
import subprocess
import sys
import tomllib
import typing
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import exactmeans
from exactmeans import _core, metrics
from exactmeans.fit.policy import ALGORITHM_NAMES
from exactmeans.seeding.init import INIT_NAMES

ROOT = Path(__file__).resolve().parents[1]
PUBLIC = ["BisectingKMeans", "BlockSource", "Iteration", "KMeans", "KMeansTree", "KSelection"]
PUBLIC += ["MiniBatchKMeans", "Silhouette"]
PUBLIC += ["calinski_harabasz", "cluster_stats", "davies_bouldin", "from_sql"]
PUBLIC += ["kmeans_plusplus", "load", "open_blocks", "open_sql", "plot", "report"]
PUBLIC += ["select_k", "show_versions", "silhouette"]


def modules() -> list[str]:
    """Every module of the package that is written in Python."""
    found = pkgutil.walk_packages(exactmeans.__path__, "exactmeans.")
    return ["exactmeans", *(m.name for m in found if m.name != "exactmeans._core")]


@cache
def python(*arguments: str) -> str:
    """What a new interpreter prints; several tests compare with the same one."""
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# names and metadata -------------------------------------------------------------------------------


def test_public_names() -> None:
    assert sorted(exactmeans.__all__) == PUBLIC
    for name in exactmeans.__all__:
        thing = getattr(exactmeans, name)
        assert thing.__doc__, name
        where = thing.__name__ if isinstance(thing, ModuleType) else thing.__module__
        assert where.startswith("exactmeans."), name


@pytest.mark.parametrize("name", modules())
def test_modules_say_what_they_are(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__doc__
    for public in getattr(module, "__all__", []):
        assert hasattr(module, public)


def test_public_modules_declare_their_names() -> None:
    """A module without an underscore lists its names, or lies in a room behind the public ones."""
    names: tuple[str, ...] = ("cli.", "data", "engine", "estimators", "fit", "io")
    names += ("dask.", "quality.", "reporting.", "select.", "seeding.", "spark.", "sql.", "tree")
    rooms = tuple(f"exactmeans.{room}" for room in names)
    for name in modules():
        private = any(part.startswith("_") for part in name.split("."))
        if private or name.startswith(rooms):
            continue
        assert hasattr(importlib.import_module(name), "__all__"), name


def test_version() -> None:
    assert exactmeans.__version__ == importlib.metadata.version("exactmeans")
    if (ROOT / "pyproject.toml").exists():
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        assert exactmeans.__version__ == project["version"]


def test_types_are_shipped() -> None:
    files = importlib.resources.files(exactmeans)
    assert files.joinpath("py.typed").is_file()
    assert files.joinpath("_core.pyi").is_file()


def test_stub_names_what_the_core_has() -> None:
    """Every public name of the compiled module is in its stub, and the other way round."""
    stub = importlib.resources.files(exactmeans).joinpath("_core.pyi").read_text()
    declared = set(re.findall(r"^(?:def |class )?([A-Za-z]\w*)[(:]", stub, re.MULTILINE))
    only_types = {"Traits"}
    assert {name for name in dir(_core) if not name.startswith("_")} == declared - only_types
    for name in declared - only_types:
        thing = getattr(_core, name)
        if isinstance(thing, type):
            body = re.search(rf"^class {name}:\n((?:    .*\n|\n)*)", stub, flags=re.MULTILINE)
            assert body is not None
            members = set(re.findall(r"^    def (\w+)", body[1], flags=re.MULTILINE))
            members |= set(re.findall(r"^    (\w+):", body[1], flags=re.MULTILINE))
            actual = {member for member in vars(thing) if not member.startswith("__")}
            assert actual == members - {"__init__"}, name


# what comes along with it -------------------------------------------------------------------------

# Heavy, optional or with threads of their own: to be imported only by what needs them.
UNWANTED = {"cupy", "dask", "distributed", "faiss", "jax", "matplotlib", "numba", "pandas"}
UNWANTED |= {"pyspark"}
UNWANTED |= {"polars", "psutil", "pyarrow", "rich", "safetensors", "tensorflow", "torch", "typer"}
UNWANTED |= {"hypothesis", "nanobind", "pytest", "sklearn.cluster"}
UNWANTED |= {"adbc_driver_manager", "duckdb", "psycopg", "sqlite3"}

FIT = """
import numpy as np, scipy.sparse as sp
X = np.random.default_rng(0).random((50, 4))
exactmeans.KMeans(3).fit(X).predict(X)
exactmeans.KMeans(3, algorithm="hamerly", init="random").fit(sp.csr_array(X)).transform(X)
exactmeans.kmeans_plusplus(X, 3)
"""


@pytest.mark.parametrize("work", ["", FIT], ids=["import", "fit"])
def test_nothing_unwanted_is_imported(work: str) -> None:
    """Beyond what NumPy, SciPy and scikit-learn's base classes import by themselves."""
    needed = (
        "import importlib.metadata, numpy, scipy.sparse, sklearn.base, sklearn.utils.validation"
    )
    report = "\nimport sys, json; print(json.dumps(sorted(sys.modules)))"
    without = set(json.loads(python("-c", needed + report)))
    with_us = set(json.loads(python("-c", f"import exactmeans{work}{report}")))
    assert not UNWANTED & (with_us - without)
    ours = {name for name in with_us if name.split(".")[0] == "exactmeans"}
    assert "exactmeans._core" in ours


def test_import_is_silent_and_starts_no_thread() -> None:
    code = "import exactmeans, os; print(len(os.listdir('/proc/self/task')))"
    if not Path("/proc/self/task").exists():
        pytest.skip("threads are counted in /proc")
    before = python("-c", code.replace("exactmeans", "sklearn.base, scipy.sparse"))
    assert python("-W", "error", "-c", code) == before


def test_import_starts_no_pool_and_limits_none() -> None:
    """OpenMP and BLAS pools are as large after a fit as they were before the import."""
    code = """
import json, numpy, scipy.sparse, sklearn.base, sklearn.utils.validation, threadpoolctl
def pools():
    return sorted((p["filepath"], p["num_threads"]) for p in threadpoolctl.threadpool_info())
before = pools()
import exactmeans
"""
    report = "\nprint(json.dumps([before, pools()]))"
    before, after = json.loads(python("-c", code + FIT + report))
    assert after == before


def core_file() -> Path:
    assert _core.__file__ is not None
    return Path(_core.__file__).resolve()


@pytest.mark.skipif(shutil.which("ldd") is None, reason="needs ldd")
def test_core_links_to_no_openmp_and_no_blas() -> None:
    done = subprocess.run(["ldd", core_file()], capture_output=True, text=True, check=True)
    linked = [line.split()[0] for line in done.stdout.splitlines() if line.strip()]
    assert linked
    forbidden = re.compile(r"gomp|libomp|iomp|blas|lapack|mkl|tbb|libpython", re.IGNORECASE)
    assert not [library for library in linked if forbidden.search(library)]


def _source_paths(binary: bytes) -> list[bytes]:
    """Absolute paths of source files, which __FILE__ and debugging information leave behind."""
    return re.findall(rb"/[ -.0-~]+(?:/[ -.0-~]+)*\.(?:cpp|hpp|h)\b", binary)


def test_core_has_no_path_of_the_machine_that_built_it() -> None:
    assert _source_paths(b"\0x\0/home/me/core/bindings/rows.cpp\0")  # it would be found
    assert _source_paths(core_file().read_bytes()) == []


def test_sources_mention_no_threadpool() -> None:
    """Promise 6: no OpenMP, no BLAS threads, no threadpoolctl; not even an environment variable."""
    forbidden = re.compile(r"threadpoolctl|OMP_NUM_THREADS|MKL_NUM_THREADS|OPENBLAS|omp\.h")
    for path in Path(exactmeans.__file__).parent.rglob("*.py"):
        assert not forbidden.search(path.read_text()), path.name


def test_versions_of_everything_that_extras_install(capsys: pytest.CaptureFixture[str]) -> None:
    needed = [
        re.split(r"[^\w-]", line)[0]
        for line in importlib.metadata.requires("exactmeans") or ()
        if not re.search(r"extra == .(dev|bench|docs|all)", line)
    ]
    assert {"numpy", "pyspark", "duckdb"} <= set(needed)
    exactmeans.show_versions()
    shown = capsys.readouterr().out
    for name in needed:
        assert f"\n{name}: " in shown


# types --------------------------------------------------------------------------------------------


def _hints(function: Any) -> dict[str, Any]:
    return typing.get_type_hints(function, vars(sys.modules[function.__module__]))


def _words(hint: Any) -> list[Any]:
    """The strings of all Literals in a hint."""
    if typing.get_origin(hint) is typing.Literal:
        return list(typing.get_args(hint))
    return [word for part in typing.get_args(hint) for word in _words(part)]


def test_editors_know_what_parameters_may_be() -> None:
    of = _hints(exactmeans.KMeans.__init__)
    assert _words(of["algorithm"]) == list(ALGORITHM_NAMES)
    assert _words(of["metric"]) == list(metrics.METRIC_NAMES)
    assert _words(of["init"]) == [*INIT_NAMES, "d"]
    small = _hints(exactmeans.MiniBatchKMeans.__init__)
    assert _words(small["method"]) == ["sgd", "memoized"]
    assert _words(small["metric"]) == ["euclidean", "cosine"]


def test_editors_know_what_methods_return() -> None:
    assert inspect.signature(exactmeans.load).return_annotation == "KMeans"
    assert inspect.signature(exactmeans.KMeans.fit).return_annotation == "Self"
    assert inspect.signature(exactmeans.MiniBatchKMeans.partial_fit).return_annotation == "Self"
