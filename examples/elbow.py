"""Choosing k by inertia and silhouette.

Inertia falls with every further cluster; the bend, where it begins to fall slowly, is at the six
clouds that the points were drawn from. The silhouette, which compares distances within clusters to
those between clusters, is highest there.
"""

from __future__ import annotations

import matplotlib.pyplot as plt
from sklearn.datasets import make_blobs
from sklearn.metrics import silhouette_score

from exactmeans import KMeans

CENTRES = [[-6, -3], [-2, 4], [1, -4], [3, 3], [7, -1], [9, 5]]
X, _ = make_blobs(3000, centers=CENTRES, cluster_std=1.1, random_state=3)
numbers = range(2, 11)
models = [KMeans(k, n_init=5, random_state=0).fit(X) for k in numbers]
silhouettes = [silhouette_score(X, km.labels_) for km in models]
for k, km, silhouette in zip(numbers, models, silhouettes, strict=True):
    print(f"k = {k:2d}: inertia {km.inertia_:8.0f}, silhouette {silhouette:.3f}")

fig, (left, right) = plt.subplots(1, 2, figsize=(8, 3))
left.plot(numbers, [km.inertia_ for km in models], "o-")
left.set(xlabel="k", ylabel="inertia", ylim=(0, None))
right.plot(numbers, silhouettes, "o-", color="tab:orange")
right.set(xlabel="k", ylabel="silhouette")
fig.tight_layout()
plt.show()
