"""`size_min` and `size_max`, checked, and the limits that they set on the rows of a cluster."""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass
from typing import Any

from exactmeans.engine.limits import Limits
from exactmeans.metrics import Metric
from exactmeans.parameters import refuse

# Shares such as 1.1 * n / k are rounded as if they were exact.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class SizeLimits:
    """Ints count rows, floats are shares of the mean size n / k; None sets no limit."""

    size_min: int | float | None
    size_max: int | float | None

    @classmethod
    def check(cls, size_min: Any, size_max: Any, metric: Metric) -> SizeLimits | None:
        """None if there are no limits."""
        if size_min is None and size_max is None:
            return None
        if not metric.summed:
            raise ValueError(
                "metric must be 'euclidean' or 'cosine' with size_min or size_max, but it is "
                f"{metric.name!r}."
            )
        return cls(_check("size_min", size_min), _check("size_max", size_max))

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
        return Limits(least, min(most, n))


def refuse_limits(estimator: Any, where: str) -> None:
    """Refuse limits where clusters cannot hold them."""
    for name in ("size_min", "size_max"):
        if (value := getattr(estimator, name)) is not None:
            raise ValueError(f"{name} must be None {where}, but it is {value!r}.")


def _check(name: str, value: Any) -> int | float | None:
    """An int or a float, both above 0 but for an int of 0 rows at least."""
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
