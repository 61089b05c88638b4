"""What travels between the loop and the worker engines: requests, responses and their parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exactmeans.data.arrays import Double, Matrix


@dataclass(frozen=True)
class Request:
    """An operation for worker engines, with the state versions before and after it."""

    what: str  # a method, as "WorkerEngine.name" or "SeedBlocks.name"
    arguments: tuple[Any, ...]
    from_version: int
    to_version: int

    @staticmethod
    def of(
        operation: Callable[..., Any], arguments: tuple[Any, ...], before: int, after: int
    ) -> Request:
        return Request(operation.__qualname__, arguments, before, after)


@dataclass(frozen=True)
class Response:
    """The reduced results of worker engines; `lost`: numbers of those that lack the state."""

    value: Any = None
    lost: tuple[int, ...] = ()


@dataclass(frozen=True)
class Failure:
    """An operation that raised an exception, by the names of its type."""

    module: str
    kind: str
    message: str
    traceback: str


@dataclass(frozen=True)
class Centres:
    """Centres to assign by: all of them, or only those that moved since the last request."""

    rows: Matrix
    moved: NDArray[np.intp] | None = None
    norms2: tuple[Double, int] | None = None  # of initial centres, as scikit-learn rounds them


@dataclass(frozen=True)
class Opening:
    """What an engine needs to know of all rows before its first operation."""

    dtype: str
    metric: str
    places: list[int]  # the numbers of its blocks among all
    begins: NDArray[np.int64]  # the first row of every block of the data, and the end
    weights: list[Double] | None = None  # by block, unless the worker has them already
    scratch_limit: int | None = None
