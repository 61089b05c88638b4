"""Output: results on standard output; notes, bars and errors on standard error."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from exactmeans.callbacks import Iteration

_LINE_SECONDS = 2.0  # between lines about progress in a pipe

_quiet = False


def be_quiet(quiet: bool) -> None:
    global _quiet
    _quiet = quiet


def error(sentence: str) -> None:
    """One line on standard error; only a terminal wraps it."""
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    console.print(Text.assemble(("exactmeans: ", "bold red"), sentence))


def note(sentence: str) -> None:
    if not _quiet:
        console = Console(stderr=True, soft_wrap=True, highlight=False)
        console.print(Text.assemble(("Note: ", "yellow"), sentence))


def say(sentence: str = "") -> None:
    """A line of the result."""
    Console(soft_wrap=True, highlight=False).print(Text(sentence))


def as_json(result: Any) -> None:
    """The whole result for programs, on standard output."""
    json.dump(result, sys.stdout, indent=2, allow_nan=False, default=_plain)
    sys.stdout.write("\n")


def _plain(value: Any) -> Any:
    """NumPy's numbers and arrays."""
    return value.tolist()


def table(columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[str]]) -> None:
    """Rows under names: drawn on a terminal, separated by tabs in a pipe.

    A column is a name and how it is set: "left", "right", or "fill" for what may be wrapped.
    """
    console = Console(highlight=False)
    if not console.is_terminal:
        for cells in ([name for name, _ in columns], *rows):
            sys.stdout.write("\t".join(cells) + "\n")
        return
    drawn = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name, kind in columns:
        drawn.add_column(
            name, justify="right" if kind == "right" else "left", no_wrap=kind != "fill"
        )
    for cells in rows:
        drawn.add_row(*(Text(cell) for cell in cells))
    console.print(drawn)


class Steps:
    """Progress of one task: a bar on a terminal, now and then a line in a pipe."""

    def __init__(self, task: str, total: int | None) -> None:
        self._task, self._total = task, total
        self._console = Console(stderr=True, highlight=False)
        self._bar: Progress | None = None
        self._id: Any = None
        self._last = time.monotonic()

    def __enter__(self) -> Steps:
        if self._console.is_terminal and not _quiet:
            self._bar = Progress(
                SpinnerColumn(),
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                TextColumn("{task.fields[state]}"),
                TimeElapsedColumn(),
                console=self._console,
                transient=True,
            )
            self._bar.start()
            self._id = self._bar.add_task(self._task, total=self._total, state="")
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def at(self, done: int, state: str, total: int | None = None) -> None:
        """So many steps are done; `state` says what the last one gave."""
        if self._bar is not None:
            self._bar.update(self._id, completed=done, state=state, total=total or self._total)
        elif not _quiet and time.monotonic() - self._last >= _LINE_SECONDS:
            self._last = time.monotonic()
            sys.stderr.write(f"{self._task}: {state}\n")
            sys.stderr.flush()

    def record(self, iteration: Iteration) -> None:
        """A callback of a fit."""
        changed = f", {iteration.changed:,} rows changed" if iteration.changed else ""
        start = f"start {iteration.run + 1}, " if iteration.run else ""
        state = f"{start}iteration {iteration.iteration}, inertia {iteration.inertia:.6g}{changed}"
        self.at(iteration.iteration, state)


@contextmanager
def steps(task: str, total: int | None = None) -> Iterator[Steps]:
    with Steps(task, total) as shown:
        yield shown
