"""An image in a few colours.

Every pixel is a row of three features; the centres are the palette. For 32 colours or more `auto`
takes the k-d tree, which excludes centres for whole boxes of pixels.
"""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_sample_image

from exactmeans import KMeans

image = np.asarray(load_sample_image("china.jpg"), dtype=np.float32) / 255
pixels = image.reshape(-1, 3)
fig, axes = plt.subplots(1, 3, figsize=(11, 2.8))
axes[0].imshow(image)
axes[0].set_title(f"{len(np.unique(pixels, axis=0)):,} colours")
for ax, k in zip(axes[1:], (16, 64), strict=True):
    km = KMeans(k, random_state=0).fit(pixels)
    ax.imshow(km.cluster_centers_[km.labels_].reshape(image.shape))
    ax.set_title(f"{k} colours")
    print(f"{k} colours: {km.algorithm_}, {km.n_iter_} iterations")
for ax in axes:
    ax.set_axis_off()
fig.tight_layout()
plt.show()
