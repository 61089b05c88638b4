"""Initial centres: init and n_init as scikit-learn takes them, and kmeans_plusplus."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import sklearn
import sklearn.cluster
from sklearn.exceptions import ConvergenceWarning

import datasets
from exactmeans import Iteration, KMeans, kmeans_plusplus, open_blocks
from models import assert_same_model, blobs, dense, first_rows, fitted

# init and n_init ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("init", "n_init", "runs"),
    [
        ("k-means++", "auto", 1),
        ("random", "auto", 10),
        ("callable", "auto", 10),
        ("array", "auto", 1),
        ("k-means++", 3, 3),
        ("random", 2, 2),
        ("callable", 4, 4),
        ("array", 1, 1),
        ("k-means++", np.int64(2), 2),
    ],
)
def test_n_init(init: str, n_init: Any, runs: int) -> None:
    X = blobs()
    choices: dict[str, Any] = {"array": X[:4], "callable": first_rows([])}
    seen: list[Iteration] = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted(X, init=choices.get(init, init), n_init=n_init, callbacks=seen.append)
    assert sorted({record.run for record in seen}) == list(range(runs))


def test_best_run_is_kept() -> None:
    X = datasets.blobs(300, 2, 10, seed=3)
    runs: dict[int, list[Iteration]] = {}
    model = fitted(
        X,
        10,
        init="random",
        n_init=8,
        tol=0,
        callbacks=lambda record: runs.setdefault(record.run, []).append(record),
    )
    last = {run: records[-1].inertia for run, records in runs.items()}
    assert len({round(value, 6) for value in last.values()}) > 1  # else this shows nothing
    best = min(last, key=lambda run: last[run])
    assert model.history_ == runs[best]
    assert model.inertia_ == pytest.approx(last[best], rel=1e-9)


def test_elkan_with_one_cluster_warns_and_is_lloyd() -> None:
    X = datasets.blobs(60, 3, 4, seed=21)
    with pytest.warns(RuntimeWarning, match="doesn't make sense for a single cluster") as seen:
        model = KMeans(1, algorithm="elkan", random_state=0).fit(X)
    assert seen[0].filename == __file__
    assert (model.algorithm, model.algorithm_) == ("elkan", "lloyd")
    np.testing.assert_allclose(model.cluster_centers_[0], X.mean(axis=0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        KMeans(2, algorithm="elkan", random_state=0).fit(X)
        KMeans(1, random_state=0).fit(X)


@pytest.mark.parametrize("n_init", [2, 10])
def test_given_centres_and_many_runs_warn(n_init: int) -> None:
    X = blobs()
    with pytest.warns(RuntimeWarning, match="performing only one init in KMeans") as caught:
        model = KMeans(4, init=X[:4], n_init=n_init).fit(X)
    assert [warning.filename for warning in caught] == [__file__]
    assert_same_model(model, fitted(X, init=X[:4]))


@pytest.mark.parametrize("init", ["k-means++", "random", "array", "callable"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("make", [np.asarray, sp.csr_matrix], ids=["dense", "csr"])
def test_inits_give_what_scikit_learn_gives(
    init: str, weighted: bool, make: Callable[[Any], Any]
) -> None:
    X = make(datasets.blobs(200, 5, 6, spread=2.0, seed=4))
    choices: dict[str, Any] = {
        "array": dense(X[:6]),
        "callable": first_rows([]),
    }
    weights = np.random.default_rng(5).uniform(0, 3, 200) if weighted else None
    params: dict[str, Any] = {
        "init": choices.get(init, init),
        "n_init": 1 if init == "array" else 3,
        "random_state": 7,
    }
    ours = KMeans(6, **params).fit(X, sample_weight=weights)
    theirs = sklearn.cluster.KMeans(6, **params).fit(X, sample_weight=weights)
    np.testing.assert_array_equal(ours.labels_, theirs.labels_)
    assert ours.n_iter_ == theirs.n_iter_
    assert ours.inertia_ == pytest.approx(theirs.inertia_, rel=1e-9)
    np.testing.assert_allclose(ours.cluster_centers_, theirs.cluster_centers_, rtol=1e-9)


def test_init_containers() -> None:
    X = blobs()
    expected = fitted(X, init=X[:4])
    for init in (
        X[:4].tolist(),
        pd.DataFrame(X[:4]),
        sp.csr_array(X[:4]),
        np.asfortranarray(X[:4]),
    ):
        assert_same_model(fitted(X, init=init), expected)


def test_callable_init_gets_scikit_learns_arguments() -> None:
    seen: list[Any] = []

    def init(X: Any, n_clusters: int, random_state: Any) -> Any:
        seen.append((type(X), X.shape, n_clusters, type(random_state)))
        return X[random_state.permutation(len(X))[:n_clusters]]

    ours = fitted(blobs(), init=init, n_init=2)
    theirs = sklearn.cluster.KMeans(4, init=init, n_init=2, random_state=0).fit(blobs())
    assert seen[:2] == [(np.ndarray, (60, 3), 4, np.random.RandomState)] * 2
    np.testing.assert_array_equal(ours.labels_, theirs.labels_)


@pytest.mark.parametrize("seed", [0, np.int64(3), np.random.RandomState(5), None])
def test_random_state(seed: Any) -> None:
    fitted(blobs(), random_state=seed)
    if isinstance(seed, np.random.RandomState):  # is advanced, as in scikit-learn
        theirs = np.random.RandomState(5)
        sklearn.cluster.KMeans(4, random_state=theirs).fit(blobs())
        assert seed.randint(2**31) == theirs.randint(2**31)


def test_fewer_distinct_rows_than_clusters_warns_once() -> None:
    X = datasets.load("few_distinct").X
    with pytest.warns(ConvergenceWarning, match=r"distinct clusters \(4\) found smaller") as caught:
        model = KMeans(6, random_state=0).fit(X)
    assert [warning.filename for warning in caught] == [__file__]
    assert len(np.unique(model.labels_)) == 4
    assert model.inertia_ == 0


# kmeans_plusplus ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("trials", [None, 1, 5])
@pytest.mark.parametrize("kind", ["dense", "centred", "csr", "list"])
def test_kmeans_plusplus_draws_as_scikit_learn(
    kind: str, trials: int | None, weighted: bool, seed: int
) -> None:
    X: Any = datasets.blobs(200, 6, 12, spread=3.0, seed=seed)
    if kind == "centred":
        X = X - X.mean(axis=0)
    elif kind == "csr":
        X = sp.csr_matrix(X * (np.random.default_rng(seed).random(X.shape) < 0.4))
    elif kind == "list":
        X = X.tolist()
    weights = np.random.default_rng(seed).uniform(0, 2, 200) if weighted else None
    params: dict[str, Any] = {
        "sample_weight": weights,
        "random_state": seed,
        "n_local_trials": trials,
    }
    centres, indices = kmeans_plusplus(X, 12, **params)
    given = np.array(X) if kind == "list" else X  # scikit-learn's takes no lists
    expected_centres, expected = sklearn.cluster.kmeans_plusplus(given, 12, **params)
    np.testing.assert_array_equal(indices, expected)
    assert indices.dtype.kind == expected.dtype.kind
    np.testing.assert_array_equal(centres, dense(expected_centres))


def test_kmeans_plusplus_takes_norms_and_all_rows() -> None:
    X = blobs()
    norms = np.square(X).sum(axis=1)
    centres, indices = kmeans_plusplus(X, 60, x_squared_norms=norms, random_state=1)
    assert sorted(indices) == list(range(60))
    np.testing.assert_array_equal(centres, X[indices])
    assert kmeans_plusplus(X.astype(np.float32), 2, random_state=1)[0].dtype == np.float32


def test_kmeans_plusplus_never_picks_weightless_rows() -> None:
    X = blobs()
    weights = (np.arange(60) % 3 == 0).astype(float)
    for seed in range(10):
        _, indices = kmeans_plusplus(X, 15, sample_weight=weights, random_state=seed)
        assert (weights[indices] > 0).all()


def test_kmeans_plusplus_in_blocks() -> None:
    X = blobs()
    centres, indices = kmeans_plusplus(X, 5, random_state=2)
    cut = kmeans_plusplus(open_blocks([X[:7], X[7:8], X[8:]]), 5, random_state=2)
    np.testing.assert_array_equal(cut[0], centres)
    np.testing.assert_array_equal(cut[1], indices)
