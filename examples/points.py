"""Clusters of points and the borders between them.

Six clouds of points in the plane. The lines are where the nearest centre changes: k-means cuts the
plane into the Voronoi cells of its centres.
"""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_blobs

from exactmeans import KMeans

CENTRES = [[-6, -3], [-2, 4], [1, -4], [3, 3], [7, -1], [9, 5]]
X, _ = make_blobs(3000, centers=CENTRES, cluster_std=1.1, random_state=3)
km = KMeans(n_clusters=6, random_state=0).fit(X)
print(f"{km.n_iter_} iterations, inertia {km.inertia_:.0f}")

low, high = X.min(axis=0) - 1, X.max(axis=0) + 1
x, y = np.meshgrid(*np.linspace(low, high, 400).T)
cells = km.predict(np.column_stack([x.ravel(), y.ravel()])).reshape(x.shape)
fig, ax = plt.subplots(figsize=(7, 4.5))
ax.scatter(*X.T, c=km.labels_, s=4, cmap="tab10", vmax=9)
ax.contour(x, y, cells, levels=np.arange(6) + 0.5, colors="0.3", linewidths=0.7)
ax.scatter(*km.cluster_centers_.T, marker="x", s=70, color="black")
ax.set_axis_off()
plt.show()
