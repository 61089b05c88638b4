"""The command line for tests: in this process, or in one of its own as people run it.

A new interpreter takes two seconds to import what a command needs. Most tests check the output of a
command, which does not depend on the process.
"""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any, Protocol
from unittest import mock

import pytest

#: What a process of the program sees: a known width, and the packages of the tests.
WIDE = {**os.environ, "COLUMNS": "100", "TERM": "xterm", "PYTHONPATH": os.pathsep.join(sys.path)}


class Runner(Protocol):
    """Runs the program; returns its exit code and what it wrote on both streams."""

    def __call__(self, arguments: list[str], stdin: str, cwd: Path | None) -> Any: ...


def process(arguments: list[str], stdin: str, cwd: Path | None) -> Any:
    return subprocess.run(
        [sys.executable, "-m", "exactmeans", *arguments],
        input=stdin,
        cwd=cwd,
        env=WIDE,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def here(arguments: list[str], stdin: str, cwd: Path | None) -> Any:
    """In this process; `run` of the program returns the exit code that a process would have."""
    app = pytest.importorskip("exactmeans.cli.app", reason="needs the extra cli")
    written = io.BytesIO(), io.BytesIO()
    out, err = (io.TextIOWrapper(each, "utf-8", write_through=True) for each in written)
    with (
        contextlib.chdir(cwd or Path.cwd()),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode()), "utf-8")),
        mock.patch.dict(os.environ, {"COLUMNS": "100", "TERM": "xterm"}),
        warnings.catch_warnings(),  # the program shows warnings in its own way
    ):
        code = app.run(arguments)
    return subprocess.CompletedProcess(
        arguments, code, *(each.getvalue().decode() for each in written)
    )


def run(*arguments: Any, stdin: str = "", cwd: Path | None = None, how: Runner = here) -> Any:
    return how([str(argument) for argument in arguments], stdin, cwd)


def good(*arguments: Any, **options: Any) -> Any:
    done = run(*arguments, **options)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done


def refused(*arguments: Any, code: int = 1, **options: Any) -> str:
    """The one sentence of a command that fails, after its notes."""
    done = run(*arguments, **options)
    lines = [line for line in done.stderr.splitlines() if not line.startswith("Note: ")]
    assert done.returncode == code, done.stderr
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("exactmeans: ")
    assert lines[0].endswith(".")
    return str(lines[0].removeprefix("exactmeans: "))
