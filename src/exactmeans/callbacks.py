"""Reports of a running fit: records, a progress bar, scikit-learn's callbacks."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from exactmeans.data.arrays import Matrix
from exactmeans.data.centres import for_users
from exactmeans.parameters import check_verbose, refuse

if TYPE_CHECKING:
    from exactmeans.engine.frame import Frame

__all__ = ["Callback", "Iteration"]


class Iteration(NamedTuple):
    """One iteration of a fit, as found in `history_` and handed to callbacks.

    Attributes
    ----------
    run : int
        Which of the `n_init` runs, from 0.
    iteration : int
        From 1.
    inertia : float
        Of the new labels at the centres they were found with.
    shift : float
        The sum of the squared distances that the centres moved.
    changed : int
        Rows that got another label.
    distances : int
        Distances computed, each between a row and a centre.
    skipped : int
        Rows whose label followed from bounds or 8-bit scores, without any distance.
    algorithm : str
        The algorithm that labelled the rows.
    seconds : float
        Since the run began.
    unread : int
        Blocks on disk that were not read, because no label in them could change.
    filtered : int
        Dense rows that the 8-bit filter compared with all centres.
    decided : int
        Of these, rows whose label 8-bit scores decided alone.
    verified : int
        Of `distances`, those to the centres that 8-bit scores left.

    Examples
    --------
    >>> from exactmeans import KMeans
    >>> kmeans = KMeans(2, init=[[0.0], [1.0]]).fit([[0.0], [1.0], [8.0], [9.0]])
    >>> [(record.iteration, record.changed) for record in kmeans.history_]
    [(1, 4), (2, 1), (3, 0)]
    """

    run: int
    iteration: int
    inertia: float
    shift: float
    changed: int
    distances: int
    skipped: int
    algorithm: str
    seconds: float
    unread: int = 0
    filtered: int = 0
    decided: int = 0
    verified: int = 0


#: Called with each `Iteration`; returning True stops the fit after that iteration.
Callback = Callable[[Iteration], Any]


def check_callbacks(given: Any) -> list[Callback]:
    """`callbacks` of an estimator as a list."""
    if given is None:
        return []
    if callable(given):
        given = [given]
    callbacks: list[Callback] = list(given) if isinstance(given, Sequence) else []
    if not isinstance(given, Sequence) or not all(map(callable, callbacks)):
        refuse("callbacks", given, "None, a callable or a sequence of callables")
    return callbacks


_LOGGER = logging.getLogger("exactmeans")


class Progress:
    """What `verbose=1` shows: a line per iteration, or a bar if rich is installed and can draw one.

    Lines go to the logger "exactmeans" at level INFO if it has handlers and there is no terminal,
    as in a service; else they are printed.
    """

    def __init__(self, verbose: Any) -> None:
        self.rows = 0  # of an iteration
        self.relabels = True  # whether changed labels are counted
        self.runs, self.most = 1, 1  # runs, and the most iterations of each
        self._verbose = check_verbose(verbose)
        self._bar: Any = None
        self._task: Any = None
        self._run, self._before = -1, 0  # the current run, and its iterations before it resumed
        self._last = 0.0  # seconds from the start of the run to the last record

    def expect(self, *, rows: int, iterations: int, runs: int = 1, relabels: bool = True) -> None:
        """Set the work to come: rows per iteration, the most iterations of a run, runs."""
        self.rows, self.most, self.runs, self.relabels = rows, iterations, runs, relabels

    @property
    def callbacks(self) -> list[Callback]:
        return [self.show] if self._verbose else []

    def __enter__(self) -> Progress:
        if self._verbose and importlib.util.find_spec("rich"):
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn
            from rich.progress import Progress as Bar

            console = Console()
            # In notebooks, bars are widgets; where there are none, lines do.
            drawn = console.is_jupyter and bool(importlib.util.find_spec("ipywidgets"))
            if drawn or (console.is_terminal and not console.is_jupyter):
                columns = (TextColumn("run {task.fields[run]} iteration {task.completed}"),)
                text = TextColumn("{task.description}")
                self._bar = Bar(*columns, BarColumn(bar_width=20), text, console=console)
                self._task = self._bar.add_task("choosing initial centres", total=None, run=0)
                self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, record: Iteration) -> None:
        if record.run != self._run:
            self._run, self._before, self._last = record.run, record.iteration - 1, 0.0
        took, self._last = max(record.seconds - self._last, 1e-9), record.seconds
        to_come = self.most * (self.runs - record.run) - record.iteration
        left = to_come * record.seconds / (record.iteration - self._before)
        changed = f"{record.changed} rows changed, " if self.relabels else ""
        text = (
            f"inertia {record.inertia:.6g}, {changed}"
            f"{self.rows / took:.3g} rows/s, {record.seconds:.2f} s, at most {left:.0f} s left"
        )
        if self._bar is None:
            show_line(f"run {record.run} iteration {record.iteration}: {text}")
            return
        now = {"completed": record.iteration, "total": self.most, "run": record.run}
        self._bar.update(self._task, description=text, **now)


def show_line(line: str) -> None:
    """Log a line if the logger has handlers and there is no terminal; else print it."""
    if _logs():
        _LOGGER.info(line)
    else:
        print(line, flush=True)


def _logs() -> bool:
    """Whether the logger has handlers and there is no terminal."""
    listened_to = _LOGGER.isEnabledFor(logging.INFO) and _LOGGER.hasHandlers()
    return listened_to and not (sys.stdout is not None and sys.stdout.isatty())


class TakesCallbacks:
    """`set_callbacks`, where scikit-learn has it: from 1.9 on. Nothing is imported until then."""

    if importlib.util.find_spec("sklearn.callback"):

        def set_callbacks(self, *callbacks: Any) -> Any:
            """Set scikit-learn's callbacks, which are called after every iteration.

            Parameters
            ----------
            *callbacks : callbacks of scikit-learn's kind
                None of them removes those that were set before.

            Returns
            -------
            self

            Examples
            --------
            >>> from exactmeans import KMeans
            >>> from sklearn.callback import ProgressBar
            >>> kmeans = KMeans(2).set_callbacks(ProgressBar())
            """
            theirs = importlib.import_module("sklearn.callback")
            return theirs.CallbackSupportMixin.set_callbacks(self, *callbacks)

        def _init_callback_context(self, **options: Any) -> Any:
            theirs = importlib.import_module("sklearn.callback")
            return theirs.CallbackSupportMixin._init_callback_context(self, **options)


class Tasks:
    """scikit-learn's own callbacks, for which each iteration is a task.

    Callbacks can get the estimator of the current centres, which can predict, transform and score,
    but has no labels yet.
    """

    def __init__(self, estimator: Any, most: int, X: Any, y: Any, sample_weight: Any) -> None:
        self._estimator = estimator
        self._given = {"X": X, "y": y, "metadata": {"sample_weight": sample_weight}}
        for name in ("labels_", "inertia_", "n_iter_", "history_"):
            vars(estimator).pop(name, None)  # of a fit before; copies must not have them
        self._root = estimator._init_callback_context(max_subtasks=most)
        self._root.call_on_fit_task_begin(estimator=estimator, **self._given)
        self._task: Any = None

    @classmethod
    def opened(cls, estimator: Any, *arguments: Any) -> Tasks | None:
        return cls(estimator, *arguments) if cls.wanted(estimator) else None

    @staticmethod
    def wanted(estimator: Any) -> bool:
        """Whether the estimator has such callbacks; cheap, because most fits have none."""
        return hasattr(estimator, "_skl_callbacks") or hasattr(estimator, "_parent_callback_ctx")

    @staticmethod
    def managed(method: Any) -> Any:
        """The method, with callbacks torn down after it, also if it fails."""
        return importlib.import_module("sklearn.callback").with_callbacks(method)

    def begin(self, frame: Frame, centres: Callable[[], Matrix]) -> None:
        """An iteration begins, with these centres."""
        self._task = self._root.subcontext(task_name="iteration")
        self._task.call_on_fit_task_begin(**self._now(frame, centres))

    def end(self, frame: Frame, centres: Callable[[], Matrix]) -> bool:
        """The iteration is done; returns whether a callback stops the fit."""
        return bool(self._task.call_on_fit_task_end(**self._now(frame, centres)))

    def close(self) -> None:
        """The estimator is fitted."""
        self._root.call_on_fit_task_end(
            estimator=self._estimator, reconstruction_attributes={}, **self._given
        )

    def _now(self, frame: Frame, centres: Callable[[], Matrix]) -> dict[str, Any]:
        def fitted() -> dict[str, Any]:
            own = for_users(centres(), self._estimator.sparse_centers)
            return {"cluster_centers_": own, "_frame": frame, "_n_features_out": own.shape[0]}

        return {"estimator": self._estimator, "reconstruction_attributes": fitted, **self._given}


class Reports:
    """Calls the callbacks of users, and scikit-learn's, about the iterations of a fit."""

    def __init__(self, callbacks: Sequence[Callback] = (), tasks: Tasks | None = None) -> None:
        self._callbacks, self._tasks = callbacks, tasks

    def begin(self, frame: Frame, centres: Callable[[], Matrix]) -> None:
        """An iteration begins, with these centres."""
        if self._tasks is not None:
            self._tasks.begin(frame, centres)

    def end(self, record: Iteration, frame: Frame, centres: Callable[[], Matrix]) -> bool:
        """The iteration is done; returns whether a callback stops the fit.

        Only True and NumPy's True stop a fit: callbacks may return anything else.
        """
        stop = False
        for callback in self._callbacks:
            answer = callback(record)
            stop = stop or (isinstance(answer, (bool, np.bool_)) and bool(answer))
        return (self._tasks is not None and self._tasks.end(frame, centres)) or stop

    def close(self) -> None:
        """The estimator is fitted."""
        if self._tasks is not None:
            self._tasks.close()
