"""A vector index from k-means.

An inverted file index keeps the vectors of each cluster in a list. A query reads only the lists
of its nearest centres. The picture shows how many of the true ten nearest neighbours it finds,
over the share of all vectors that it reads.
"""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np

from exactmeans import KMeans

rng = np.random.default_rng(0)
low = rng.normal(size=(22_000, 12)) @ rng.normal(size=(12, 64))  # vectors have few real dimensions
data = (low + 0.5 * rng.normal(size=low.shape)).astype(np.float32)
vectors, queries = data[:20_000], data[-200:]
km = KMeans(256, max_iter=15, random_state=0).fit(vectors)
lists = [np.flatnonzero(km.labels_ == j) for j in range(256)]


def nearest(query: np.ndarray, rows: np.ndarray, m: int = 10) -> np.ndarray:
    distances = ((vectors[rows] - query) ** 2).sum(axis=1)
    return rows[np.argsort(distances)[:m]]


truth = [nearest(query, np.arange(len(vectors))) for query in queries]
order = km.transform(queries).argsort(axis=1)  # centres by distance to each query
read, recall = [], []
for probes in (1, 2, 4, 8, 16, 32):
    rows = [np.concatenate([lists[j] for j in near[:probes]]) for near in order]
    found = [nearest(query, own) for query, own in zip(queries, rows, strict=True)]
    read.append(np.mean([len(own) for own in rows]) / len(vectors))
    recall.append(np.mean([np.isin(a, b).mean() for a, b in zip(truth, found, strict=True)]))
    print(f"{probes:2d} lists: {read[-1]:5.1%} of the vectors read, recall {recall[-1]:.3f}")

fig, ax = plt.subplots(figsize=(7, 3.2))
ax.plot(read, recall, "o-")
ax.set(xscale="log", xlabel="share of vectors read", ylabel="recall of 10 neighbours", ylim=(0, 1))
fig.tight_layout()
plt.show()
