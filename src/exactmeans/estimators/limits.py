"""`size_min`, `size_max` and `size_of`, checked, and the limits that they set on clusters."""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from exactmeans.engine.limits import Limits
from exactmeans.engine.protocol import Engine
from exactmeans.metrics import Metric
from exactmeans.parameters import check_choice, refuse

# Shares such as 1.1 * n / k are rounded as if they were exact.
_ROUNDING = 1e-9
# All weights together are less than 2^50 units: sums of units are exact in int64 and float64.
_WEIGHT_BITS = 50
_SIZE_OF = ("rows", "weight")


@dataclass(frozen=True)
class SizeLimits:
    """Ints are sizes, floats are shares of the mean size; None sets no limit."""

    size_min: int | float | None
    size_max: int | float | None
    size_of: str = "rows"

    @classmethod
    def check(
        cls, size_min: Any, size_max: Any, metric: Metric, size_of: Any = "rows"
    ) -> SizeLimits | None:
        """None if there are no limits."""
        size_of = check_choice("size_of", size_of, _SIZE_OF)
        if size_min is None and size_max is None:
            return None
        if not metric.summed:
            raise ValueError(
                "metric must be 'euclidean' or 'cosine' with size_min or size_max, but it is "
                f"{metric.name!r}."
            )
        return cls(_check("size_min", size_min), _check("size_max", size_max), size_of)

    def of(self, engine: Engine, k: int) -> Limits:
        """The limits for k clusters of these rows; refuses those that no clustering meets."""
        if self.size_of == "weight" and engine.weighted:
            return self._weights(engine, k)
        return self.rows(engine.directions(), k)

    def rows(self, n: int, k: int) -> Limits:
        """The limits for k clusters of n rows; refuses those that no clustering meets."""
        least, most = 0, n
        if isinstance(self.size_min, float):
            least = math.floor(self.size_min * n / k * (1 + _ROUNDING))
        elif self.size_min is not None:
            least = self.size_min
        if isinstance(self.size_max, float):
            most = math.ceil(self.size_max * n / k * (1 - _ROUNDING))
        elif self.size_max is not None:
            most = self.size_max
        if least * k > n:
            raise ValueError(
                f"size_min must be at most {n // k}, but {k} clusters of at least {least} rows "
                f"need {k * least} rows, and there are {n}."
            )
        if most * k < n:
            raise ValueError(
                f"size_max must be at least {-(-n // k)}, but {k} clusters of at most {most} rows "
                f"hold {k * most} rows, and there are {n}."
            )
        if least > most:
            raise ValueError(
                f"size_min must not exceed size_max, but they are {least} and {most} rows."
            )
        return Limits(least, min(most, n), n)

    def _weights(self, engine: Engine, k: int) -> Limits:
        exponent = math.frexp(engine.total_weight())[1]
        scale = math.ldexp(1.0, min(_WEIGHT_BITS - exponent, 1000))
        total = engine.mass(scale)
        least, most = 0, total
        if isinstance(self.size_min, float):
            least = math.floor(self.size_min * total / k)
            least = min(least, total // k) if self.size_min <= 1 else least
        elif self.size_min is not None:
            least = math.floor(self.size_min * scale)
        if isinstance(self.size_max, float):
            most = math.ceil(self.size_max * total / k)
            most = max(most, -(-total // k)) if self.size_max >= 1 else most
        elif self.size_max is not None:
            most = math.ceil(self.size_max * scale)
        if least * k > total:
            raise ValueError(
                f"size_min must be at most {total / k / scale:g} with size_of='weight', but {k} "
                f"clusters of at least {least / scale:g} need {k * least / scale:g}, and all rows "
                f"weigh {total / scale:g}."
            )
        if most * k < total:
            raise ValueError(
                f"size_max must be at least {total / k / scale:g} with size_of='weight', but {k} "
                f"clusters of at most {most / scale:g} hold {k * most / scale:g}, and all rows "
                f"weigh {total / scale:g}."
            )
        if least > most:
            raise ValueError(
                "size_min must not exceed size_max, but they are "
                f"{least / scale:g} and {most / scale:g}."
            )
        return Limits(least, min(most, total), total, scale)


class HasLimits(Protocol):
    """An estimator with the parameters of size limits."""

    size_min: int | float | None
    size_max: int | float | None
    size_of: Literal["rows", "weight"]


def refuse_limits(estimator: HasLimits, where: str, instead: str) -> None:
    """Refuse limits where no algorithm keeps them; `instead`: what does."""
    check_choice("size_of", estimator.size_of, _SIZE_OF)
    for name in ("size_min", "size_max"):
        if (value := getattr(estimator, name)) is not None:
            raise ValueError(f"{name} must be None for {where}, but it is {value!r}: {instead}.")


def _check(name: str, value: Any) -> int | float | None:
    """An int of at least 1 (0 for `size_min`), or a float above 0."""
    if value is None:
        return None
    least = 0 if name == "size_min" else 1
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if whole and int(value) >= least:
        return int(value)
    real = isinstance(value, numbers.Real) and not isinstance(value, numbers.Integral)
    if real and math.isfinite(value) and value > 0:
        return float(value)
    refuse(
        name,
        value,
        f"None, an int of at least {least} (rows) or a float above 0 (a share of n_samples / "
        "n_clusters)",
    )
