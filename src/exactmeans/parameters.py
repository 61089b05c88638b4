"""Parameters of estimators, checked: each error is one sentence that names the argument."""

from __future__ import annotations

import math
import multiprocessing
import numbers
import os
import sys
import warnings
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from joblib.parallel import get_active_backend
from sklearn.utils import check_random_state as check_theirs
from sklearn.utils.validation import check_is_fitted

from exactmeans import _core

__all__ = [
    "REALS",
    "check_choice",
    "check_dtype",
    "check_int",
    "check_model",
    "check_n_jobs",
    "check_path",
    "check_random_state",
    "check_real",
    "check_verbose",
    "refuse",
    "warn",
]

REALS = (np.dtype(np.float64), np.dtype(np.float32))


def check_int(name: str, value: Any, least: int) -> int:
    if type(value) is int and value >= least:
        return value  # the usual case; isinstance(value, Integral) is slow
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < least:
        refuse(name, value, f"an int of at least {least}")
    return int(value)


def check_real(name: str, value: Any, least: float) -> float:
    if (
        not isinstance(value, numbers.Real)
        or isinstance(value, bool)
        or not math.isfinite(value)
        or value < least
    ):
        refuse(name, value, f"a finite number of at least {least:g}")
    return float(value)


def check_choice(name: str, value: Any, choices: tuple[str, ...], other: str = "") -> str:
    """One of these strings; `other`: what else the argument may be, which the caller checks."""
    if not isinstance(value, str) or value not in choices:
        words = ", ".join(map(repr, choices))
        join = ", " if " or " in other else " or "
        if other:
            refuse(name, value, f"{words}{join}{other}")
        refuse(name, value, words if len(choices) == 1 else f"one of {words}")
    return value


def check_verbose(verbose: Any) -> bool:
    """Whether to show progress: True, False or an int, of which any above 0 means True."""
    if isinstance(verbose, (bool, np.bool_)):
        return bool(verbose)
    if not isinstance(verbose, numbers.Integral) or int(verbose) < 0:
        refuse("verbose", verbose, "True, False or an int of at least 0")
    return int(verbose) > 0


def check_random_state(random_state: Any) -> np.random.RandomState:
    """NumPy's own generator, one that a seed starts, or the one that was given."""
    if isinstance(random_state, (np.random.Generator, np.random.BitGenerator)):
        raise ValueError(
            "random_state must be None, an int or a RandomState, but it is a "
            f"{type(random_state).__name__}: pass a seed from it, such as int(rng.integers(2**31))."
        )
    try:
        rng: np.random.RandomState = check_theirs(random_state)
    except (ValueError, TypeError):
        refuse("random_state", random_state, "None, an int in [0, 2**32) or a RandomState")
    return rng


def check_n_jobs(n_jobs: Any) -> int:
    """How many threads to use; -1 means all cores one may use, -2 all but one.

    None means all cores, too, but inside joblib what joblib leaves to each of its tasks.
    """
    cores = _core.usable_cores()
    if n_jobs is None:
        return _share_of_joblib(cores)
    if not isinstance(n_jobs, numbers.Integral) or isinstance(n_jobs, bool) or n_jobs == 0:
        refuse("n_jobs", n_jobs, "None or an int other than 0")
    threads = int(n_jobs)
    return min(threads, _core.max_jobs) if threads > 0 else max(1, cores + 1 + threads)


def _share_of_joblib(cores: int) -> int:
    """Threads that a fit may use where it runs, so that parallel tasks do not share cores."""
    backend, configured = get_active_backend()
    if (
        backend.nesting_level == 0 and configured is None
    ):  # neither in a task nor in parallel_config
        return cores
    if _positive("EXACTMEANS_NUM_THREADS"):
        return cores
    if backend.nesting_level == 0:
        return int(min(backend.effective_n_jobs(configured), _core.max_jobs))
    # loky divides the cores among its processes and sets the variables that limit other pools of
    # threads accordingly. joblib counts one core for each other task.
    in_process = multiprocessing.current_process().name != "MainProcess"
    if not in_process or backend.nesting_level > 1:
        return 1
    variables = getattr(backend, "MAX_NUM_THREADS_VARS", ())
    return min(cores, min(filter(None, map(_positive, variables)), default=1))


def _positive(variable: str) -> int:
    """The value of an environment variable; 0 if that is no positive integer."""
    text = os.environ.get(variable, "")
    return int(text) if text.isdecimal() else 0


def check_dtype(dtype: Any) -> np.dtype[Any] | None:
    if dtype is None:
        return None
    try:
        real: np.dtype[Any] = np.dtype(dtype)
    except TypeError:
        refuse("dtype", dtype, "None, 'float32' or 'float64'")
    if real not in REALS:
        refuse("dtype", dtype, "None, 'float32' or 'float64'")
    return real


def check_model(model: object) -> None:
    """A fitted KMeans or MiniBatchKMeans. Lower rooms use this too, so it asks for no class."""
    if not hasattr(model, "_assigned"):
        raise ValueError(
            "model must be a fitted KMeans or MiniBatchKMeans, but it is of type "
            f"{type(model).__name__!r}."
        )
    check_is_fitted(model)


def check_path(name: str, path: Any) -> Path:
    """The path of a file."""
    if not isinstance(path, (str, os.PathLike)) or not isinstance(os.fspath(path), str):
        refuse(name, path, "the path of a file")
    return Path(path)


def refuse(name: str, value: Any, allowed: str) -> NoReturn:
    shown = " ".join(repr(value).split())  # arrays have a line for each row
    if len(shown) > 80:
        shown = shown[:77] + "..."
    raise ValueError(f"{name} must be {allowed}, but it is {shown}.")


_PACKAGE = os.path.dirname(__file__) + os.sep


def warn(message: str, category: type[Warning]) -> None:
    """Warn at the line that called this package, however deep the call is by now."""
    level, frame = 1, sys._getframe()
    while frame.f_code.co_filename.startswith(_PACKAGE) and frame.f_back is not None:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
