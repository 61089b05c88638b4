"""Rows and centres in two dimensions: the principal axes of a sample of rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

_EXTRA = 8  # directions beside the two wanted ones, which make the two accurate
_POWERS = 4  # multiplications by XᵀX; four separate variances that differ by a few percent


class Projection(NamedTuple):
    """Two orthogonal axes of the feature space, and how much of the variance lies along them."""

    mean: NDArray[np.float64]
    axes: NDArray[np.float64]  # features by 2
    explained: tuple[float, float]  # shares of the sample's variance

    def __call__(self, X: Any) -> NDArray[np.float64]:
        """Coordinates of rows, n by 2."""
        return np.asarray(X @ self.axes) - self.mean @ self.axes


def principal_axes(X: Any, seed: int = 0) -> Projection:
    """The two axes of the largest variance of the rows of X, dense or CSR.

    By randomised subspace iteration (Halko, Martinsson and Tropp, 2011). The mean is subtracted
    in the products, never in X, so that sparse rows stay sparse: this is the truncated SVD of the
    centred rows. Each axis points to where its largest component is positive.
    """
    n, d = X.shape
    values = X.data if is_sparse(X) else X
    mean = np.asarray(X.mean(axis=0), dtype=np.float64).ravel()
    total = float(np.square(values, dtype=np.float64).sum()) / n - float(mean @ mean)
    width = min(d, n, 2 + _EXTRA)
    basis = np.random.default_rng(seed).standard_normal((d, width))
    for _ in range(_POWERS):
        image = np.asarray(X @ basis) - mean @ basis
        basis = np.asarray(X.T @ image) - np.outer(mean, image.sum(axis=0))
        basis, _ = np.linalg.qr(basis)
    image = np.asarray(X @ basis) - mean @ basis
    _, lengths, turn = np.linalg.svd(image, full_matrices=False)
    axes = basis @ turn[:2].T
    if axes.shape[1] < 2:  # one feature
        axes = np.hstack([axes, np.zeros((d, 2 - axes.shape[1]))])
        lengths = np.append(lengths, 0.0)
    largest = axes[np.abs(axes).argmax(axis=0), [0, 1]]
    axes = axes * np.where(largest < 0, -1.0, 1.0)
    first, second = (lengths[:2] ** 2 / n / total).tolist() if total > 0 else (0.0, 0.0)
    return Projection(mean, axes, (min(first, 1.0), min(second, 1.0)))


def between_axes(X: Any, means: Any, weights: Any, seed: int = 0) -> Projection:
    """The two axes along which weighted means of clusters vary most, and the share of X's variance.

    Rows of text vary in thousands of directions, of which none holds one percent of the variance;
    the axes of the means show at least the clusters apart.
    """
    share = np.sqrt(np.asarray(weights, dtype=np.float64) / np.sum(weights))
    middle = np.asarray(means.T @ share**2).ravel()
    apart = (np.asarray(means.toarray() if is_sparse(means) else means) - middle) * share[:, None]
    found = principal_axes(np.vstack([apart, -apart]), seed)  # whose mean is 0
    mean = np.asarray(X.mean(axis=0), dtype=np.float64).ravel()
    values = X.data if is_sparse(X) else X
    total = float(np.square(values, dtype=np.float64).sum()) / X.shape[0] - float(mean @ mean)
    along = np.var(np.asarray(X @ found.axes), axis=0) / total if total > 0 else np.zeros(2)
    return Projection(middle, found.axes, (float(along[0]), float(along[1])))


def unit_rows(X: Any) -> Any:
    """Rows divided by their lengths, as metrics of directions see them; zeros stay zeros."""
    if is_sparse(X):
        given: Any = X
        lengths = np.sqrt(np.asarray(given.multiply(given).sum(axis=1))).ravel()
        return sp.csr_matrix(sp.diags(1 / np.where(lengths > 0, lengths, 1.0)) @ given)
    lengths = np.linalg.norm(X, axis=1)
    return X / np.where(lengths > 0, lengths, 1.0)[:, None]


def sample_rows(n: int, most: int, seed: int) -> NDArray[np.intp]:
    """Numbers of at most `most` of n rows, drawn without replacement, ascending."""
    if n <= most:
        return np.arange(n)
    return np.sort(np.random.default_rng(seed).choice(n, most, replace=False))


def is_sparse(X: Any) -> bool:
    """scipy's `issparse`, without its narrowing of types."""
    return bool(sp.issparse(X))
