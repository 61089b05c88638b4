"""Seeds of nodes, derived from their path from the root: no order of work changes a draw.

splitmix64 (G. L. Steele et al., OOPSLA 2014), as in core/include/exactmeans/seed/bernoulli.hpp.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.uint64]
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def root_key(seed: int) -> Keys:
    """The key of the root, as an array of one."""
    return _mixed(np.array([seed], dtype=np.uint64) + _GOLDEN)


def child_keys(parents: Keys, child: NDArray[np.int64]) -> Keys:
    """Keys of children, from the keys of their parents and their numbers among siblings."""
    return _mixed(parents + _GOLDEN * (child.astype(np.uint64) + np.uint64(1)))


def seeds_of(keys: Keys) -> NDArray[np.uint32]:
    """What `random_state` of a node is."""
    return (keys >> np.uint64(32)).astype(np.uint32)


def _mixed(z: Keys) -> Keys:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
