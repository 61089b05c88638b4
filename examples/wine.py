"""Why columns need one scale.

Wines by 13 measurements. Proline is in the hundreds, and all other columns are small: without
scaling, proline alone decides the clusters. Clusters of standardised columns agree with the three
cultivars, which the fit does not know.
"""

from __future__ import annotations

import matplotlib.pyplot as plt
from sklearn.datasets import load_wine
from sklearn.metrics import adjusted_rand_score
from sklearn.preprocessing import StandardScaler

from exactmeans import KMeans

wine = load_wine()
scaled = StandardScaler().fit_transform(wine.data)
fig, axes = plt.subplots(1, 2, figsize=(8, 3.2), sharey=True)
for ax, rows, name in zip(axes, (wine.data, scaled), ("as measured", "standardised"), strict=True):
    labels = KMeans(3, n_init=10, random_state=0).fit_predict(rows)
    agreement = adjusted_rand_score(wine.target, labels)
    print(f"{name}: adjusted Rand index with the cultivars {agreement:.2f}")
    ax.scatter(wine.data[:, 12], wine.data[:, 6], c=labels, s=12, cmap="tab10", vmax=9)
    ax.set(xlabel="proline", title=f"{name}: agreement {agreement:.2f}")
axes[0].set_ylabel("flavanoids")
fig.tight_layout()
plt.show()
