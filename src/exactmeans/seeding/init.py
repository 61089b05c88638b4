"""`init` of the estimators: checks, and initial centres by it."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from exactmeans.data.arrays import Double, Matrix, stacked
from exactmeans.data.centres import as_directions, call_init, check_centres, like_rows
from exactmeans.engine.protocol import Engine
from exactmeans.fit.problem import Problem, centre_of_all
from exactmeans.parameters import (
    check_choice,
    check_int,
    check_real,
    refuse,
    warn,
)
from exactmeans.seeding.draws import d_alpha, farthest_rows, parallel, plus_plus, random_rows

Seeds: TypeAlias = tuple[Matrix, NDArray[np.intp]]  # centres, and which rows they are

#: What `init` may be beside centres and callables, for type checkers.
InitName = Literal["k-means++", "k-means||", "random", "furthest"] | tuple[Literal["d"], float]
INIT_NAMES = ("k-means++", "k-means||", "random", "furthest")
_OPTIONS = {"k-means++": ("n_local_trials",), "k-means||": ("oversampling", "rounds")}


#: What else `init` may be, for the error about a wrong one.
_OTHER_INIT = "('d', alpha), a callable or an array of centres"


def check_init(init: Any, other: str = _OTHER_INIT) -> str | tuple[str, float]:
    """A name, or ("d", alpha)."""
    if not (isinstance(init, tuple) and len(init) > 0 and isinstance(init[0], str)):
        return check_choice("init", init, INIT_NAMES, other)
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
        refuse(what, options, "None or a dict")
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


class HasInit(Protocol):
    """An estimator with the parameters of initial centres."""

    init: Any
    n_init: Literal["auto"] | int
    init_options: Mapping[str, Any] | None


def _is_named(init: Any) -> bool:
    return isinstance(init, str) or (
        isinstance(init, tuple) and len(init) > 0 and isinstance(init[0], str)
    )


def check_without_rows(estimator: HasInit, *, in_blocks: bool) -> tuple[Any, dict[str, Any]]:
    """`init` and its options; refuses what is wrong for any rows, in `n_init` too."""
    init: Any = estimator.init
    if _is_named(init):
        init = check_init(init)
    elif callable(init) and in_blocks:
        raise ValueError("init must not be a callable when X comes in blocks.")
    if isinstance(estimator.n_init, str):
        check_choice("n_init", estimator.n_init, ("auto",), "an int of at least 1")
    else:
        check_int("n_init", estimator.n_init, 1)
    return init, check_options(estimator.init_options, init)


@dataclass(frozen=True)
class Init:
    """`init`, `n_init` and `init_options` of an estimator, checked against the rows."""

    method: str | tuple[str, float] | Callable[..., Any] | Matrix
    n_init: int
    options: Mapping[str, Any]

    @classmethod
    def check(
        cls, estimator: HasInit, k: int, engine: Engine, *, auto: int, in_blocks: bool
    ) -> Init:
        """`auto`: what n_init='auto' means for random and callable `init`."""
        init, options = check_without_rows(estimator, in_blocks=in_blocks)
        given = not _is_named(init) and not callable(init)
        if given:
            init = check_centres(init, k, engine.d, engine.dtype, sparse=engine.sparse)
            init = as_directions(init, engine.metric, "init")
        n_init: str | int = estimator.n_init
        if isinstance(n_init, str):  # "auto"
            n_init = auto if callable(init) or (not given and init == "random") else 1
        n_init = int(n_init)
        if given and n_init != 1:
            warn(
                "Explicit initial center position passed: performing only one init in "
                f"{type(estimator).__name__} instead of n_init={n_init}.",
                RuntimeWarning,
            )
            n_init = 1
        return cls(init, n_init, options)

    def centres(self, problem: Problem, k: int, rng: np.random.RandomState) -> Matrix:
        """Initial centres for one run."""
        engine, method = problem.engine, self.method
        if callable(method):
            centres = call_init(method, engine.one_block().whole(), k, rng)
            what = "what init returned"
            given = check_centres(centres, k, engine.d, engine.dtype, what, sparse=engine.sparse)
            return as_directions(given, engine.metric, what)
        if not isinstance(method, (str, tuple)):
            return method
        exponent = problem.frame.cost_exponent
        return choose_seeds(engine, method, k, rng, exponent, self.options)[0]


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
    return stacked([like_rows(first, sparse=engine.sparse), rest]), indices
