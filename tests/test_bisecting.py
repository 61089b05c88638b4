"""BisectingKMeans: against scikit-learn's and against its own general loop."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
import sklearn.cluster
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import parametrize_with_checks

import exactmeans
from exactmeans import BisectingKMeans
from trees import assert_same_tree, data, dense_rows, sparse_rows

Test = TypeVar("Test", bound=Callable[..., None])


@pytest.mark.parametrize("n_init", [1, 3])
@pytest.mark.parametrize("strategy", ["biggest_inertia", "largest_cluster"])
@pytest.mark.parametrize("init", ["random", "k-means++"])
@pytest.mark.parametrize("kind", ["dense", "far", "csr"])
def test_bisecting_follows_scikit_learn(kind: str, init: Any, strategy: Any, n_init: int) -> None:
    X = data(kind)
    given = {"init": init, "bisecting_strategy": strategy, "n_init": n_init, "random_state": 7}
    theirs = sklearn.cluster.BisectingKMeans(15, **given).fit(X)
    ours = BisectingKMeans(15, **given).fit(X)
    assert np.array_equal(theirs.labels_, ours.labels_)
    assert np.allclose(theirs.cluster_centers_, ours.cluster_centers_, rtol=1e-9)
    assert ours.inertia_ == pytest.approx(theirs.inertia_, rel=1e-9)
    assert ours.score(X) == pytest.approx(theirs.score(X), rel=1e-9)
    assert np.allclose(theirs.transform(X), ours.transform(X), rtol=1e-6, atol=1e-6)
    assert (ours.predict(X) == ours.labels_).all()


def test_bisecting_by_both_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    bisect = importlib.import_module("exactmeans.tree.bisect")
    X = sparse_rows()
    ours = BisectingKMeans(12, random_state=7).fit(X)
    monkeypatch.setattr(bisect, "LARGE_ROWS", 100)
    assert np.array_equal(ours.labels_, BisectingKMeans(12, random_state=7).fit(X).labels_)


def grid_rows(n: int) -> NDArray[np.float64]:
    """Small integers: rows at the same distance from two centres, and many equal rows."""
    return np.random.default_rng(n).integers(0, 4, (n, 3)).astype(np.float64)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize(
    "X",
    [
        dense_rows(9000, 5),
        dense_rows(9000, 5, 1e4).astype(np.float32),
        # Two groups about 0, so no shift helps: errors of scores exceed the gaps within a group.
        (dense_rows(9000, 5) + 3e3 * np.where(np.arange(9000) % 2, 1, -1)[:, None]).astype("f"),
        np.asfortranarray(dense_rows(9000, 40)),
        grid_rows(9000),
        dense_rows(9000, 3) * 1e-150,
        dense_rows(9000, 3) * 1e150,
    ],
    ids=["float64", "far", "apart", "fortran", "grid", "tiny", "huge"],
)
def test_bisections_by_gaps_have_the_bits_of_the_general_loop(
    X: Any, jobs: int, weighted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bounds of gaps against every algorithm's loop, which the fit uses where they do not hold."""
    weights = np.random.default_rng(0).integers(0, 4, len(X)) if weighted else None
    bisect = importlib.import_module("exactmeans.tree.bisect")
    for max_iter in (1, 300):
        model = BisectingKMeans(25, random_state=3, max_iter=max_iter, n_jobs=jobs)
        ours = clone(model).fit(X, sample_weight=weights)
        with monkeypatch.context() as patch:
            patch.setattr(bisect.Bisector, "_run_dense", lambda *_: None)
            general = clone(model).fit(X, sample_weight=weights)
        assert_same_tree(ours, general)
        assert np.array_equal(ours.node_n_iter_, general.node_n_iter_)
        assert (ours.predict(X) == ours.labels_).all()


@pytest.mark.parametrize("X", [dense_rows(200), sparse_rows(200)], ids=["dense", "csr"])
def test_iterations_beyond_int64(X: Any) -> None:
    expected = BisectingKMeans(5, random_state=0).fit(X)
    assert_same_tree(expected, BisectingKMeans(5, random_state=0, max_iter=2**63).fit(X))


def test_bisecting_leaves_equal_rows_together() -> None:
    X = np.repeat([[0.0, 0.0], [1.0, 0.0], [5.0, 5.0]], 4, axis=0)
    with pytest.warns(ConvergenceWarning, match=r"distinct clusters \(3\) found smaller"):
        ours = BisectingKMeans(5, random_state=0).fit(X)
    assert sorted(np.bincount(ours.labels_)) == [4, 4, 4]


def test_a_warning_as_error_leaves_a_bisecting_model_as_it_was() -> None:
    X = np.repeat([[0.0, 0.0], [1.0, 0.0], [5.0, 5.0]], 4, axis=0)
    model = BisectingKMeans(2, random_state=0).fit(X)
    before = dict(vars(model))
    model.n_clusters = 5
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        with pytest.raises(ConvergenceWarning):
            model.fit(X)
    assert vars(model) == {**before, "n_clusters": 5}


def test_bisecting_saves(tmp_path: Path) -> None:
    X = sparse_rows(300)
    ours = BisectingKMeans(9, random_state=0).fit(X)
    ours.save(tmp_path / "model")
    again: Any = exactmeans.load(tmp_path / "model")
    assert (again.predict(X) == ours.labels_).all()
    assert np.array_equal(again.transform(X), ours.transform(X))
    assert "(" in again.to_newick()
    assert len(again.to_pecos()[-1].tocsr().indices) == 300


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"n_clusters": 0}, "n_clusters must be an int of at least 1"),
        ({"n_clusters": 60}, "n_samples=50 should be >= n_clusters=60"),
        ({"init": "furthest"}, "init must be 'k-means\\+\\+', 'random' or a callable"),
        ({"bisecting_strategy": "x"}, "bisecting_strategy must be one of"),
        ({"algorithm": "yinyang"}, "algorithm must be one of 'lloyd', 'elkan'"),
        ({"memory_limit": 900}, "memory_limit must be at least .* bytes for 8 clusters of 50 rows"),
    ],
)
def test_bad_parameters_of_bisecting(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BisectingKMeans(**given).fit(dense_rows(50))


# scikit-learn's own checks and tests --------------------------------------------------------------

_DRAWS = "the draws of k-means++ depend on the number of rows"
EXPECTED_FAILURES = {
    "check_sample_weight_equivalence_on_dense_data": _DRAWS,
    "check_sample_weight_equivalence_on_sparse_data": _DRAWS,
}


def checks() -> Callable[[Test], Test]:
    decorate: Callable[[Test], Test] = parametrize_with_checks(
        [BisectingKMeans(3)],
        expected_failed_checks=lambda estimator: EXPECTED_FAILURES,
    )
    return decorate


@checks()
def test_sklearn_check(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


def _their_tests() -> list[Any]:
    """scikit-learn's own tests of BisectingKMeans, with ours in the place of theirs."""
    name = "sklearn.cluster.tests.test_bisect_k_means"
    if importlib.util.find_spec("sklearn.cluster.tests") is None:
        return []
    module = importlib.import_module(name)
    return [value for key, value in vars(module).items() if key.startswith("test_")]


@pytest.mark.parametrize("test", _their_tests(), ids=lambda test: test.__name__)
def test_of_scikit_learn(test: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module(test.__module__)
    monkeypatch.setattr(module, "BisectingKMeans", BisectingKMeans)
    marks = [mark for mark in getattr(test, "pytestmark", []) if mark.name == "parametrize"]
    cases: list[dict[str, Any]] = [{}]
    for mark in marks:
        names = [name.strip() for name in mark.args[0].split(",")]
        cases = [
            {**case, **dict(zip(names, value if len(names) > 1 else [value], strict=True))}
            for case in cases
            for value in mark.args[1]
        ]
    for case in cases:
        if "global_dtype" in test.__code__.co_varnames[: test.__code__.co_argcount]:
            for dtype in (np.float32, np.float64):
                test(**case, global_dtype=np.dtype(dtype))
        else:
            test(**case)
