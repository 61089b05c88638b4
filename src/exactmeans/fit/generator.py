"""The random generator of a fit."""

from __future__ import annotations

from collections import deque
from typing import Any, ClassVar

import numpy as np


class FitGenerator(np.random.RandomState):
    """The draws of `RandomState(seed)`, for one fit alone.

    NumPy takes longer to make a Mersenne twister than a small fit takes, and little time to seed
    it. So a new generator reuses the twister of a deleted one. Two generators that exist at the
    same time never share a twister.
    """

    _idle: ClassVar[deque[Any]] = deque(maxlen=64)  # appending and popping are atomic

    @classmethod
    def seeded(cls, seed: int) -> FitGenerator:
        try:
            twister = cls._idle.pop()
        except IndexError:
            twister = np.random.MT19937()
        generator = cls(twister)
        generator.seed(seed)
        return generator

    def __del__(self) -> None:
        self._idle.append(self._bit_generator)
