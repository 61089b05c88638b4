"""What readers copy runs: README, pages, docstrings. The API pages show what is public."""

from __future__ import annotations

import contextlib
import doctest
import importlib
import inspect
import io
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import exactmeans
import exactmeans.dask
import exactmeans.labels
import exactmeans.plot
import exactmeans.seeding
import exactmeans.spark
import exactmeans.sql
import exactmeans.text
from spark import skip_without_java, use_quick_settings
from test_package import modules

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
ROOMS = [
    f"exactmeans.{name}" for name in ("seeding", "text", "labels", "dask", "spark", "plot", "sql")
]

# docstrings ---------------------------------------------------------------------------------------


def _doctests() -> list[Any]:
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = []
    for name in modules():
        module: ModuleType = importlib.import_module(name)
        found += [test for test in finder.find(module, name) if test.examples]
    return found


def _public_callables() -> list[str]:
    """What pages of the API show: functions, classes and their methods, by dotted name.

    Estimators for clusters have the methods of the local ones, or MLlib's: the examples of their
    classes call them. Names of types and errors of Spark's kind need none.
    """
    without = {"exactmeans.plot", "exactmeans.sql.IfExists"}
    without |= {f"exactmeans.spark.{name}" for name in ("KMeansModel", "KMeansSummary")}
    found = []
    for place in ("exactmeans", *ROOMS):
        for name in importlib.import_module(place).__all__:
            thing = _find(f"{place}.{name}")
            found.append(f"{place}.{name}")
            if inspect.isclass(thing) and place not in ("exactmeans.dask", "exactmeans.spark"):
                methods = inspect.getmembers(thing, inspect.isfunction)
                found += [
                    f"{place}.{name}.{method}"
                    for method, function in methods
                    if not method.startswith("_") and function.__module__.startswith("exactmeans")
                ]
    protocol = {"exactmeans.BlockSource.read"}  # the example of the class implements it
    return [name for name in found if name not in without | protocol]


def _find(name: str) -> Any:
    place, _, rest = name.partition(".")
    thing: Any = importlib.import_module(place)
    for part in rest.split("."):
        thing = getattr(thing, part)
    return thing


@pytest.mark.parametrize("example", _doctests(), ids=lambda test: test.name)
def test_doctest(example: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source = "".join(one.source for one in example.examples)
    skip_without_java(source)
    use_quick_settings()
    if "to_networkx" in source:
        pytest.importorskip("networkx")
    out = io.StringIO()
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    assert runner.run(example, out=out.write).failed == 0, out.getvalue()


@pytest.mark.parametrize("name", _public_callables())
def test_what_users_call_has_an_example(name: str) -> None:
    """Every public function, class and method has a section of examples; test_doctest runs them."""
    text = inspect.getdoc(_find(name)) or ""
    assert re.search(r"^Examples\n-+\n>>> ", text, flags=re.MULTILINE), f"{name} has no example"


# pages --------------------------------------------------------------------------------------------


def _python_blocks(path: Path) -> list[str]:
    text = path.read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


def _run(path: Path) -> dict[str, Any]:
    """Runs the blocks of a page; later ones may build on earlier ones, as for a reader."""
    names: dict[str, Any] = {"__name__": path.stem}
    for block in _python_blocks(path):
        exec(compile(block, str(path.relative_to(ROOT)), "exec"), names)
    return names


@pytest.mark.skipif(not (ROOT / "README.md").exists(), reason="no sources beside the tests")
def test_readme_runs(capsys: pytest.CaptureFixture[str]) -> None:
    names = _run(ROOT / "README.md")
    assert capsys.readouterr().out
    model = names["km"]
    assert (model.predict(names["X"]) == model.labels_).all()


def _pages() -> list[Path]:
    return [page for page in sorted(DOCS.rglob("*.md")) if _python_blocks(page)]


@pytest.mark.parametrize("page", _pages(), ids=lambda page: str(page.relative_to(DOCS)))
def test_pages_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    skip_without_java("".join(_python_blocks(page)))
    use_quick_settings()
    with contextlib.redirect_stdout(io.StringIO()):
        _run(page)


# commands -----------------------------------------------------------------------------------------


def _shell_blocks(path: Path) -> list[str]:
    """Blocks of a page whose commands are ours; others install or build."""
    text = path.read_text(encoding="utf-8")
    found = re.findall(r"^```sh\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    return [block for block in found if re.search(r"^exactmeans ", block, flags=re.MULTILINE)]


def _pages_with_commands() -> list[Path]:
    pages = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
    return [page for page in pages if page.exists() and _shell_blocks(page)]


@pytest.mark.skipif(shutil.which("sh") is None, reason="needs a POSIX shell")
@pytest.mark.parametrize("page", _pages_with_commands(), ids=lambda page: page.stem)
def test_commands_of_pages_run(page: Path, tmp_path: Path) -> None:
    pytest.importorskip("typer", reason="needs the extra cli")
    work, programs = tmp_path / "work", tmp_path / "bin"
    work.mkdir()
    programs.mkdir()
    for name, module in (("exactmeans", "-m exactmeans"), ("python", "")):
        program = programs / name
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" {module} "$@"\n')
        program.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([str(programs), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    for block in _shell_blocks(page):
        done = subprocess.run(
            ["sh", "-eu", "-c", block],
            cwd=work,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{block}\n{done.stderr}"


def test_the_page_of_the_command_line_has_commands() -> None:
    if DOCS.exists():
        assert DOCS / "command_line.md" in _pages_with_commands()


@pytest.mark.skipif(not DOCS.exists(), reason="no sources beside the tests")
def test_the_api_pages_show_everything_that_is_public() -> None:
    pages = "".join(path.read_text(encoding="utf-8") for path in (DOCS / "api").glob("*.md"))
    shown = set(re.findall(r"^::: exactmeans\.([\w.]+)", pages, flags=re.MULTILINE))
    public = set(exactmeans.__all__) - {"kmeans_plusplus", "from_sql", "plot"}  # in rooms below
    for room in ROOMS:
        module = importlib.import_module(room)
        public |= {f"{room.removeprefix('exactmeans.')}.{name}" for name in module.__all__}
    assert shown == public - {"sql.IfExists"}


@pytest.mark.skipif(not DOCS.exists(), reason="no sources beside the tests")
def test_pages_link_to_pages_that_exist() -> None:
    """`make docs` checks the whole site; this is what can be checked without MkDocs."""
    generated = ["gallery/", "decisions/index.md", "changelog.md", "contributing.md"]
    generated += ["architecture.md", "security.md"]
    for page in DOCS.rglob("*.md"):
        for link in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8")):
            target = (page.parent / link).resolve()
            if link.startswith("http") or link.endswith(".html"):
                continue
            if target.is_relative_to(DOCS) and str(target.relative_to(DOCS)).startswith(
                tuple(generated)
            ):
                continue
            assert target.exists(), f"{page.name} links to {link}"
