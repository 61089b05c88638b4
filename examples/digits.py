"""Ten centres of handwritten digits.

1,797 images of 8 × 8 pixels are rows of 64 features. A centre is the mean of its images, so it is
an image, too. `explain()` says what the fit did.
"""

from __future__ import annotations

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

from exactmeans import KMeans

X = load_digits().data
km = KMeans(10, n_init=5, random_state=0).fit(X)
print(km.explain())

fig, axes = plt.subplots(2, 5, figsize=(7, 3))
for ax, centre in zip(axes.flat, km.cluster_centers_, strict=True):
    ax.imshow(centre.reshape(8, 8), cmap="Greys")
    ax.set_axis_off()
plt.show()
