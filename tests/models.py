"""Small data and fitted models, and when two models are the same."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import datasets
from exactmeans import Iteration, KMeans


def dense(X: Any) -> NDArray[Any]:
    return np.asarray(X.toarray() if hasattr(X, "toarray") else X)


def blobs() -> NDArray[np.float64]:
    """60 rows in 4 clear clusters; a fresh array, so that a test may do with it what it likes."""
    return datasets.blobs(60, 3, 4, seed=21)


def counts() -> NDArray[np.float64]:
    """Mostly zeros, and whole numbers, so that any container holds the very same values."""
    rng = np.random.default_rng(22)
    return (rng.integers(1, 5, (50, 12)) * (rng.random((50, 12)) < 0.3)).astype(np.float64)


def fitted(X: Any, k: int = 4, *, sample_weight: Any = None, **params: Any) -> KMeans:
    return KMeans(k, **{"random_state": 0, **params}).fit(X, sample_weight=sample_weight)


def assert_same_model(a: KMeans, b: KMeans) -> None:
    """Equal to the last bit."""
    assert a.cluster_centers_.dtype == b.cluster_centers_.dtype
    np.testing.assert_array_equal(a.cluster_centers_, b.cluster_centers_)
    np.testing.assert_array_equal(a.labels_, b.labels_)
    assert (a.inertia_, a.n_iter_) == (b.inertia_, b.n_iter_)


def same_clustering(a: Any, b: Any) -> bool:
    """Whether centres, labels and inertia are equal to the last bit."""
    return bool(
        a.cluster_centers_.tobytes() == b.cluster_centers_.tobytes()
        and (a.labels_ == b.labels_).all()
        and a.inertia_ == b.inertia_
    )


def state(estimator: Any) -> dict[str, Any]:
    """What an estimator holds, with arrays as bytes so that states can be compared."""
    return {
        name: (value.shape, value.tobytes()) if isinstance(value, np.ndarray) else value
        for name, value in vars(estimator).items()
    }


def run_python(code: str, **options: Any) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        **options,
    )
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


def first_rows(seen: list[Any]) -> Callable[..., Any]:
    """An init that notes what it is given."""

    def init(X: Any, n_clusters: int, random_state: Any) -> Any:
        seen.append(X)
        return dense(X[:n_clusters]).copy()  # scikit-learn writes into what it gets

    return init


def read_only(X: NDArray[Any]) -> NDArray[Any]:
    X = X.copy()
    X.flags.writeable = False
    return X


def raising(error: BaseException) -> Callable[[Iteration], None]:
    def callback(record: Iteration) -> None:
        raise error

    return callback
