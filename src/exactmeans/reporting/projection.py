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
        axes = self.axes.astype(X.dtype, copy=False)  # else NumPy would copy a float32 X
        return np.asarray(X @ axes, dtype=np.float64) - self.mean @ self.axes


def principal_axes(X: Any, seed: int = 0) -> Projection:
    """The two axes of the largest variance of the rows of X, dense or CSR.

    The mean is subtracted in the products, never in X, so that sparse rows stay sparse: this is the
    truncated SVD of the centred rows.
    """
    n = X.shape[0]
    mean = np.asarray(X.mean(axis=0), dtype=np.float64).ravel()
    axes, along = _leading_axes(X, mean, np.full(n, 1 / np.sqrt(n)), seed)
    total = _variance(X, mean)
    first, second = np.minimum(along / total, 1.0).tolist() if total > 0 else (0.0, 0.0)
    return Projection(mean, axes, (first, second))


def between_axes(X: Any, means: Any, weights: Any, seed: int = 0) -> Projection:
    """The two axes along which weighted means of clusters vary most, and the share of X's variance.

    Rows of text vary in thousands of directions, of which none holds one percent of the variance;
    the axes of the means show at least the clusters apart.
    """
    share = np.asarray(weights, dtype=np.float64) / np.sum(weights)
    middle = np.asarray(means.T @ share.astype(means.dtype), dtype=np.float64).ravel()
    axes, _ = _leading_axes(means, middle, np.sqrt(share), seed)
    total = _variance(X, np.asarray(X.mean(axis=0), dtype=np.float64).ravel())
    along = np.var(np.asarray(X @ axes), axis=0) / total if total > 0 else np.zeros(2)
    return Projection(middle, axes, (float(along[0]), float(along[1])))


def _leading_axes(
    X: Any, mean: NDArray[np.float64], scale: NDArray[np.float64], seed: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The two leading right singular vectors of diag(scale) (X - mean), and the squared values.

    By randomised subspace iteration (Halko, Martinsson and Tropp, 2011). X is only multiplied, in
    its own dtype: float32 is as exact as a map needs. Each axis points to where its largest
    component is positive.
    """
    n, d = X.shape
    width = min(d, n, 2 + _EXTRA)
    basis = np.random.default_rng(seed).standard_normal((d, width))

    def image_of(basis: NDArray[np.float64]) -> NDArray[np.float64]:
        products = np.asarray(X @ basis.astype(X.dtype, copy=False), dtype=np.float64)
        return (products - mean @ basis) * scale[:, np.newaxis]

    for _ in range(_POWERS):
        image = image_of(basis)
        if n < d:  # the smaller side is quicker to make orthogonal
            image, _ = np.linalg.qr(image)
        image *= scale[:, np.newaxis]
        back = np.asarray(X.T @ image.astype(X.dtype, copy=False), dtype=np.float64)
        basis = back - np.outer(mean, image.sum(axis=0))
        if n >= d:
            basis, _ = np.linalg.qr(basis)
    if n < d:
        basis, _ = np.linalg.qr(basis)
    _, lengths, turn = np.linalg.svd(image_of(basis), full_matrices=False)
    axes, lengths = basis @ turn[:2].T, lengths[:2]
    if axes.shape[1] < 2:  # one feature, or one row
        axes = np.hstack([axes, np.zeros((d, 2 - axes.shape[1]))])
        lengths = np.append(lengths, np.zeros(2 - len(lengths)))
    largest = axes[np.abs(axes).argmax(axis=0), [0, 1]]
    return axes * np.where(largest < 0, -1.0, 1.0), lengths**2


def _variance(X: Any, mean: NDArray[np.float64]) -> float:
    """The sum of the variances of all features."""
    values = X.data if is_sparse(X) else X
    squares = float(np.square(values, dtype=np.float64).sum())
    return squares / int(X.shape[0]) - float(mean @ mean)


def unit_rows(X: Any) -> Any:
    """Rows divided by their lengths, as metrics of directions see them; zeros stay zeros."""
    if is_sparse(X):
        given: Any = X
        lengths = np.sqrt(np.asarray(given.multiply(given).sum(axis=1))).ravel()
        return sp.csr_matrix(sp.diags(1 / np.where(lengths > 0, lengths, 1.0)) @ given)
    lengths = np.linalg.norm(X, axis=1)
    return X / np.where(lengths > 0, lengths, 1.0)[:, None]


def means_of_unit_rows(centres: Any, mean_distance: NDArray[np.float64]) -> Any:
    """The means of the unit rows of clusters, from centres of cosine, which are directions."""
    if is_sparse(centres):
        return sp.csr_matrix(sp.diags(1 - mean_distance) @ centres)
    return centres * (1 - mean_distance)[:, None].astype(centres.dtype)


def sample_rows(n: int, most: int, seed: int) -> NDArray[np.intp]:
    """Numbers of at most `most` of n rows, drawn without replacement, ascending."""
    if n <= most:
        return np.arange(n)
    return np.sort(np.random.default_rng(seed).choice(n, most, replace=False))


def is_sparse(X: Any) -> bool:
    """scipy's `issparse`, without its narrowing of types."""
    return bool(sp.issparse(X))
