"""MiniBatchKMeans with metric='cosine': centres are directions."""

from __future__ import annotations

import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn.cluster

import exactmeans
import metric_oracle as metrics
from exactmeans import KMeans, MiniBatchKMeans, open_blocks
from metric_oracle import FORMS
from models import same_clustering


def cosine(k: int = 6, **options: Any) -> MiniBatchKMeans:
    return MiniBatchKMeans(k, metric="cosine", **{"random_state": 0, "n_init": 1, **options})


@pytest.mark.parametrize("form", FORMS)
def test_a_centre_is_the_direction_of_the_unit_rows_it_was_nearest_to(form: str) -> None:
    """The definition, followed in float64 by an independent loop; rows of zeros pull nothing."""
    X, weight = metrics.some_rows(form), metrics.some_weights(300)
    rows = metrics.unit(X)
    X[7], rows[7] = 0 * X[7], 0
    model = cosine(init=X[:6], reassignment_ratio=0, zero_rows="keep")
    centres, sums = rows[:6].copy(), np.zeros((6, rows.shape[1]))
    for begin in range(0, 300, 50):
        some, own = rows[begin : begin + 50], weight[begin : begin + 50]
        np.add.at(sums, (some @ centres.T).argmax(axis=1), some * own[:, None])
        seen = np.linalg.norm(sums, axis=1) > 0
        centres[seen] = metrics.unit(sums[seen])
        model.partial_fit(X[begin : begin + 50], sample_weight=own)
        close = 1e-6 if form.endswith("32") else 1e-12
        np.testing.assert_allclose(model.cluster_centers_, centres, atol=close)
    cost = metrics.costs("cosine", X[250:], model.cluster_centers_)
    assert model.inertia_ == pytest.approx(weight[250:] @ cost.min(axis=1), rel=1e-6)
    np.testing.assert_array_equal(model.predict(X[250:]), model.labels_)


@pytest.mark.parametrize("form", FORMS)
def test_cosine_sgd_is_as_good_as_scikit_learns_on_unit_rows(form: str) -> None:
    X, weights = metrics.some_rows(form, n=2000), metrics.some_weights(2000)
    rows = metrics.unit(X)
    ours, theirs = [], []
    options: dict[str, Any] = {"batch_size": 200, "n_init": 3}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(16):
            model = cosine(**options, random_state=seed).fit(X, sample_weight=weights)
            other = sklearn.cluster.MiniBatchKMeans(6, random_state=seed, **options)
            other.fit(rows, sample_weight=weights)
            cost = metrics.costs("cosine", X, model.cluster_centers_).min(axis=1)
            assert model.inertia_ == pytest.approx(weights @ cost, rel=1e-6)
            np.testing.assert_array_equal(model.predict(X), model.labels_)
            ours.append(model.inertia_)
            cost = metrics.costs("cosine", X, other.cluster_centers_).min(axis=1)
            theirs.append(weights @ cost)
    assert np.mean(ours) <= 1.01 * np.mean(theirs)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("batch_size", [40, 10**6])
def test_cosine_memoized_falls_to_a_fixed_point(form: str, batch_size: int) -> None:
    X, weights = metrics.some_rows(form), metrics.some_weights(300)
    options: dict[str, Any] = {"init": X[:6], "n_init": 1, "tol": 0, "metric": "cosine"}
    model = MiniBatchKMeans(6, method="memoized", batch_size=batch_size, **options)
    model.fit(X, sample_weight=weights)
    assert model.n_iter_ < 100
    after = KMeans(6, **{**options, "init": model.cluster_centers_}).fit(X, sample_weight=weights)
    assert after.n_iter_ == 1
    assert same_clustering(model, after)
    falls = [record.inertia for record in model.history_]
    assert all(b <= a * (1 + 1e-12) for a, b in pairwise(falls))
    assert falls[-1] == pytest.approx(model.inertia_, rel=1e-6)
    if batch_size > 300:
        assert same_clustering(model, KMeans(6, **options).fit(X, sample_weight=weights))


def test_memoized_directions_go_on_as_means_of_all_their_rows() -> None:
    """A step after the fit weighs the rows of the fit by the length of their mean, not by 1."""
    X = metrics.some_rows("dense64")
    model = cosine(method="memoized", batch_size=64, reassignment_ratio=0).fit(X)
    rows, labels = metrics.unit(X), model.labels_.copy()
    sums = np.zeros((6, rows.shape[1]))
    np.add.at(sums, labels, rows)
    new = rows[:60] + 0.4
    np.add.at(sums, (new @ model.cluster_centers_.T).argmax(axis=1), metrics.unit(new))
    model.partial_fit(new)
    np.testing.assert_allclose(model.cluster_centers_, metrics.unit(sums), atol=1e-12)


@pytest.mark.parametrize("method", ["sgd", "memoized"])
@pytest.mark.parametrize("form", ["dense32", "csr64"])
def test_cosine_in_blocks_files_and_threads(form: str, method: str, tmp_path: Path) -> None:
    X = metrics.some_rows(form)
    X[11] = 0 * X[11]
    parts = [X[a : a + 70] for a in range(0, 300, 70)]
    models = []
    for n_jobs in (1, 3):
        model = cosine(method=method, batch_size=32, zero_rows="keep", n_jobs=n_jobs, init=X[:6])
        models.append(model.fit(open_blocks(parts)))
    assert same_clustering(*models)
    models[0].save(tmp_path / "model")
    loaded = exactmeans.load(tmp_path / "model")
    assert (loaded.predict(X) == models[0].labels_).all()
    for other in (models[0], loaded):
        other.partial_fit(X[:50])
    assert same_clustering(models[0], loaded)


def test_directions_that_are_missing() -> None:
    X = metrics.some_rows("dense64")
    X[5] = 0
    for call in (cosine().fit, cosine().partial_fit):
        with pytest.raises(ValueError, match=r"X must not have rows of zeros.*row 5"):
            call(X)
    with pytest.raises(ValueError, match="metric must be one of 'euclidean', 'cosine'"):
        MiniBatchKMeans(metric="manhattan").fit(X)  # type: ignore[arg-type]
    # Means of opposite rows have no direction: the centre stays.
    model = cosine(1, init=[[1.0, 0.0]], reassignment_ratio=0)
    model.partial_fit(np.array([[0.0, 3.0], [0.0, -2.0]]))
    np.testing.assert_array_equal(model.cluster_centers_, [[1.0, 0.0]])
    model.partial_fit(np.array([[0.0, 5.0]]))
    np.testing.assert_array_equal(model.cluster_centers_, [[0.0, 1.0]])


@pytest.mark.parametrize("make", [np.asarray, sp.csr_matrix])
def test_a_centre_without_direction_stays_for_later_batches(make: Any) -> None:
    """Its rows cancel each other out, so nothing but its last direction is known of it."""
    model = cosine(2, init=[[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], reassignment_ratio=0)
    model.partial_fit(make([[2.0, 0.0, 0.0], [-3.0, 0.0, 0.0]]))
    for _ in range(2):
        model.partial_fit(make([[0.0, 0.0, 1.0]]))
        np.testing.assert_allclose(model.cluster_centers_, [[0, 1, 0], [0, 0, 1]], atol=1e-15)
    np.testing.assert_array_equal(model.predict(make(np.eye(3))), [0, 0, 1])
    model.partial_fit(make([[3.0, 0.0, 0.0]]))  # and any row gives it one
    np.testing.assert_allclose(model.cluster_centers_, [[1, 0, 0], [0, 0, 1]], atol=1e-15)
