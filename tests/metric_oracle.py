"""Slow truths about metrics, with NumPy and SciPy, and rows to try them on."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.optimize import minimize

from cases import dense

OTHERS = ("cosine", "angular", "manhattan")
DIRECTED = ("cosine", "angular")


def unit(rows: Any) -> NDArray[np.float64]:
    values = dense(rows).astype(np.float64)
    largest = np.abs(values).max(axis=1, keepdims=True)
    values = values / np.where(largest > 0, largest, 1)  # so that squares stay in range
    norms = np.linalg.norm(values, axis=1, keepdims=True)
    return np.asarray(values / np.where(norms > 0, norms, 1))


def costs(metric: str, X: Any, centres: Any) -> NDArray[np.float64]:
    """What the objective adds up, of every row at every centre."""
    if metric == "manhattan":
        rows, places = dense(X).astype(np.float64), dense(centres).astype(np.float64)
        return np.asarray(np.abs(rows[:, np.newaxis] - places[np.newaxis]).sum(axis=2))
    cosines = unit(X) @ unit(centres).T
    if metric == "cosine":
        return np.asarray(1 - cosines)
    return np.arccos(np.clip(cosines, -1, 1)) ** 2


def lower_median(values: Any, weights: Any) -> float:
    """The least value with at least half of the weight at or below it."""
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(np.asarray(weights)[order])
    return float(np.asarray(values)[order][np.searchsorted(reached, reached[-1] / 2)])


def best_centre(metric: str, rows: Any, weights: Any) -> NDArray[np.float64]:
    """The centre of a cluster; that of "angular" by a general optimiser."""
    if metric == "manhattan":
        return np.array([lower_median(column, weights) for column in dense(rows).T])
    directions = unit(rows)
    mean = weights @ directions
    mean /= np.linalg.norm(mean)
    if metric == "cosine":
        return np.asarray(mean)

    def objective(c: NDArray[np.float64]) -> float:
        return float(weights @ np.arccos(np.clip(directions @ c / np.linalg.norm(c), -1, 1)) ** 2)

    found = minimize(objective, mean, method="BFGS", options={"gtol": 1e-10}).x
    return np.asarray(found / np.linalg.norm(found))


def tangent(c: NDArray[np.float64], rows: Any, weights: Any) -> float:
    """How far a centre is from the geodesic mean, to first order: the mean of log_c."""
    directions = unit(rows)
    cosines = np.clip(directions @ c, -1, 1)
    angles = np.arccos(cosines)
    # the sinc of NumPy has no trouble at 0
    logs = (directions - np.outer(cosines, c)) / np.sinc(angles / np.pi)[:, np.newaxis]
    return float(np.linalg.norm(weights @ logs / np.sum(weights)))


# Data ---------------------------------------------------------------------------------------------


def some_rows(form: str, n: int = 300, d: int = 12) -> Any:
    rng = np.random.default_rng(7)
    X = rng.normal(size=(n, d)) + 4 * rng.normal(size=(5, d))[rng.integers(5, size=n)]
    X *= np.exp(rng.normal(size=(n, 1)))  # lengths that have nothing to do with directions
    if form.startswith("csr"):
        X *= rng.random(X.shape) < 0.4
        X[:, 0] += 0.01
    X = X.astype("float32" if form.endswith("32") else "float64")
    return sp.csr_matrix(X) if form.startswith("csr") else X


FORMS = ("dense64", "dense32", "csr64", "csr32")


def some_weights(n: int, *, kind: str = "random") -> Any:
    rng = np.random.default_rng(3)
    return None if kind == "none" else rng.uniform(0.1, 3, n) * (rng.random(n) < 0.9)
