"""What a fit skips.

`history_` has a record of every iteration. As the centres converge, fewer rows change cluster, and
bounds decide the labels of the other rows without a distance. The result is that of plain Lloyd,
bit for bit, with a fraction of the distances.
"""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np

from exactmeans import KMeans

rng = np.random.default_rng(0)
X = rng.normal(size=(40_000, 24)) + 2 * rng.normal(size=(200, 24))[np.arange(40_000) % 200]
n, k = len(X), 200
plain = KMeans(k, init="random", n_init=1, random_state=0, tol=0, algorithm="lloyd").fit(X)
km = KMeans(k, init="random", n_init=1, random_state=0, tol=0, algorithm="yinyang").fit(X)
assert (km.labels_ == plain.labels_).all()
assert (km.cluster_centers_ == plain.cluster_centers_).all()
print(f"distances computed: {km.n_distances_ / plain.n_distances_:.1%} of plain Lloyd's")

steps = [record.iteration for record in km.history_]
fig, ax = plt.subplots(figsize=(8, 3.2))
ax.plot(steps, [record.changed / n for record in km.history_], label="rows that changed cluster")
ax.plot(steps, [1 - record.skipped / n for record in km.history_], label="rows not skipped")
ax.plot(steps, [record.distances / (n * k) for record in km.history_], label="distances computed")
ax.set(xlabel="iteration", ylabel="share of plain Lloyd", ylim=(0, 1))
ax.legend()
fig.tight_layout()
plt.show()
