"""Sample weights, checked."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np

from exactmeans.data.arrays import Double, reals_of
from exactmeans.data.source import CutRows, refuse_masked


def weights_of(X: Any, sample_weight: Any) -> Any:
    """The weights that the user gave, or else those that a source of blocks brings along."""
    if sample_weight is None and isinstance(X, CutRows):
        return X.sample_weight
    return sample_weight


def check_weights(sample_weight: Any, n: int, *, part: bool = False) -> Double | None:
    """One finite, non-negative float64 weight per row; None stays None.

    Of a part of the rows, all may be zero.
    """
    if sample_weight is None:
        return None
    if isinstance(sample_weight, numbers.Real):
        sample_weight = np.full(n, float(sample_weight))
    refuse_masked(sample_weight, "sample_weight")
    weights = reals_of(sample_weight, np.float64)
    if weights is None:
        raise ValueError("sample_weight must hold numbers, one per row.")
    if weights.ndim != 1:
        raise ValueError("Sample weights must be 1D array or scalar: sample_weight has more axes.")
    if weights.shape != (n,):
        raise ValueError(f"sample_weight.shape == {weights.shape}, expected {(n,)}!")
    if not np.isfinite(weights).all():
        raise ValueError("sample_weight must be finite, but it contains NaN or infinity (inf).")
    if part and not n:
        return weights
    if weights.min() < 0:
        row = f"row {weights.argmin()}{' of its block' if part else ''}"
        raise ValueError(f"sample_weight must not be negative, but {row} is.")
    if not part and not weights.any():
        raise ValueError("sample_weight must not be zero for every row.")
    return weights
