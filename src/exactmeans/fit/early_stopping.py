"""When gradient steps stop: scikit-learn's rules."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

# The least share by which the inertia of a batch must fall where batches are cut from blocks. Such
# batches repeat in every pass, so the smoothed inertia has little noise, and ever shorter steps
# could lower it by ever less for all of max_iter.
LEAST_FALL = 1e-3

# Why a run ended.
CENTRES_STOPPED = "the centres moved less than tol"


@dataclass
class EarlyStopping:
    """Stops when the smoothed inertia no longer falls, or when the centres hardly move.

    The rules are scikit-learn's. The first batch does not count: it moves the initial centres all
    the way to its means.
    """

    smoothing: float  # weight of the last batch in the smoothed inertia
    tolerance: float
    max_no_improvement: int | None
    least_fall: float = 0.0  # share by which the smoothed inertia must fall
    inertia: float = np.nan  # smoothed
    least: float = np.inf
    steps: int = 0
    no_improvement: int = 0

    def reason(self, inertia: float, shift2: float) -> str | None:
        """Why to stop after a step with this inertia and this movement, or None to go on."""
        self.steps += 1
        last = 1.0 if self.steps <= 2 else self.smoothing
        self.inertia = inertia if last == 1 else (1 - last) * self.inertia + last * inertia
        if self.steps == 1:
            return None
        if self.tolerance > 0 and shift2 <= self.tolerance:
            return CENTRES_STOPPED
        if self.inertia < self.least * (1 - self.least_fall):
            self.least, self.no_improvement = self.inertia, 0
        else:
            self.no_improvement += 1
        if self.max_no_improvement is not None and self.no_improvement >= self.max_no_improvement:
            return "the inertia did not fall any more"
        return None
