"""`init` of the estimators: checks, and initial centres by it."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from exactmeans.data.arrays import Double, Matrix
from exactmeans.engine.protocol import Engine
from exactmeans.fit.problem import centre_of_all
from exactmeans.parameters import (
    check_choice,
    check_int,
    check_real,
)
from exactmeans.seeding.draws import d_alpha, farthest_rows, parallel, plus_plus, random_rows

Seeds: TypeAlias = tuple[Matrix, NDArray[np.intp]]  # centres, and which rows they are

#: What `init` may be beside centres and callables, for type checkers.
InitName = Literal["k-means++", "k-means||", "random", "furthest"] | tuple[Literal["d"], float]
INIT_NAMES = ("k-means++", "k-means||", "random", "furthest")
_OPTIONS = {"k-means++": ("n_local_trials",), "k-means||": ("oversampling", "rounds")}


def check_init(init: str | tuple[str, float]) -> str | tuple[str, float]:
    """A name, or ("d", alpha)."""
    if isinstance(init, str):
        return check_choice("init", init, INIT_NAMES)
    if len(init) != 2:
        raise ValueError(f"init must be ('d', alpha) if it is a tuple with a name, not {init!r}.")
    check_choice("init[0]", init[0], ("d",))
    return "d", check_alpha("init[1]", init[1])


def check_options(
    options: Mapping[str, Any] | None, init: Any, what: str = "init_options"
) -> dict[str, Any]:
    """The options that this init takes, each checked."""
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise ValueError(f"{what} must be None or a dict, but it is {options!r}.")
    allowed = _OPTIONS.get(init, ()) if isinstance(init, str) else ()
    checked: dict[str, Any] = {}
    for name, value in options.items():
        if name not in allowed:
            known = ", ".join(map(repr, allowed)) if allowed else "nothing"
            raise ValueError(f"{what} must hold {known} for init={init!r}, not {name!r}.")
        shown = f"{what}[{name!r}]" if what else name
        if name == "oversampling":
            checked[name] = check_real(shown, value, 0)
            if checked[name] == 0:
                raise ValueError(f"{shown} must be above 0, but it is {value!r}.")
        else:
            checked[name] = check_int(shown, value, 1)
    return checked


def check_alpha(name: str, alpha: Any) -> float:
    """From 0 to infinity, both included."""
    real = isinstance(alpha, numbers.Real) and not isinstance(alpha, bool)
    if not real or not float(alpha) >= 0:
        raise ValueError(f"{name} must be a number from 0 to infinity, but it is {alpha!r}.")
    return float(alpha)


def choose_seeds(
    engine: Engine,
    init: str | tuple[str, float],
    k: int,
    rng: np.random.RandomState,
    exponent: int,
    options: Mapping[str, Any],
) -> Seeds:
    """Centres and row numbers by a checked `init` and its checked options."""
    mean: Double | None = None
    if isinstance(init, tuple):
        indices = d_alpha(engine, k, rng, exponent, init[1])
    elif init == "k-means++":
        indices = plus_plus(engine, k, rng, exponent, **options)
    elif init == "k-means||":
        indices = parallel(engine, k, rng, exponent, **options)
    elif init == "random":
        indices = random_rows(engine, k, rng)
    else:
        mean = centre_of_all(engine)
        indices = farthest_rows(engine, k, exponent, mean)
    if mean is None:
        return engine.take(indices), indices
    first, rest = mean[np.newaxis].astype(engine.dtype), engine.take(indices[1:])
    if engine.sparse:
        return sp.vstack([sp.csr_array(first), rest], format="csr"), indices
    return np.concatenate([first, rest]), indices
