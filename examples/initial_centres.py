"""What good initial centres are worth.

25 clouds in 15 dimensions, and 40 fits from each kind of initial centres. From random rows nearly
every fit leaves some clouds together; greedy k-means++ and k-means|| find them all.
"""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from exactmeans import KMeans

rng = np.random.default_rng(25)
X = rng.uniform(0, 500, (25, 15))[np.arange(5000) % 25] + rng.normal(size=(5000, 15))
methods: dict[str, Any] = {
    "random": "random",
    "D¹": ("d", 1),
    "D² (plain k-means++)": ("d", 2),
    "greedy k-means++": "k-means++",
    "k-means||": "k-means||",
    "farthest first": "furthest",
}
inertia = {
    name: [
        KMeans(25, init=init, n_init=1, random_state=seed).fit(X).inertia_ / len(X)
        for seed in range(40)
    ]
    for name, init in methods.items()
}
for name, values in inertia.items():
    print(f"{name:22} inertia per row: mean {np.mean(values):9.1f}, least {min(values):9.1f}")

fig, ax = plt.subplots(figsize=(8, 3.2))
for place, values in enumerate(inertia.values()):
    ax.scatter(values, place + rng.uniform(-0.2, 0.2, len(values)), s=10, alpha=0.6)
ax.set_yticks(range(len(methods)), list(methods))
ax.set(xscale="log", xlabel="inertia per row after Lloyd's algorithm")
ax.invert_yaxis()
fig.tight_layout()
plt.show()
