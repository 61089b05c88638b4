"""Learning from a stream.

`partial_fit` moves the centres a little with every batch, so a batch need not be kept after it was
used. The line is the inertia of a separate test set, per row; the dashed line that of a full fit.
"""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np

from exactmeans import KMeans, MiniBatchKMeans

rng = np.random.default_rng(0)
centres = 2 * rng.normal(size=(30, 16))
X = centres[rng.integers(30, size=60_000)] + rng.normal(size=(60_000, 16))
test = centres[rng.integers(30, size=5000)] + rng.normal(size=(5000, 16))

stream = MiniBatchKMeans(30, random_state=0)
inertia = []
for batch in np.array_split(X, 120):
    stream.partial_fit(batch)
    inertia.append(-stream.score(test) / len(test))
full = -KMeans(30, random_state=0).fit(X).score(test) / len(test)
print(f"after {len(inertia)} batches {inertia[-1]:.3f}, full fit {full:.3f}")

fig, ax = plt.subplots(figsize=(7, 3))
ax.plot(500 * np.arange(1, 121), inertia, label="partial_fit")
ax.axhline(full, color="black", linestyle="--", label="KMeans on all rows")
ax.set(xlabel="rows seen", ylabel="inertia of test rows, per row")
ax.legend()
fig.tight_layout()
plt.show()
