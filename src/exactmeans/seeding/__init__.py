"""Initial centres: each method as a function that returns centres and row numbers.

Which to use when, and what each costs, is in the guide "Initial centres".
"""

from exactmeans.seeding.functions import (
    d_sampling,
    furthest,
    kmeans_parallel,
    kmeans_plusplus,
    random,
)

__all__ = ["d_sampling", "furthest", "kmeans_parallel", "kmeans_plusplus", "random"]
