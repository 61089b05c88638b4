"""Nearest centres, silhouettes and indices of clusterings, against scikit-learn and plain NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from sklearn.exceptions import NotFittedError
from sklearn.metrics import (
    calinski_harabasz_score,
    davies_bouldin_score,
    silhouette_samples,
    silhouette_score,
)

import exactmeans
from exactmeans import (
    KMeans,
    MiniBatchKMeans,
    calinski_harabasz,
    cluster_stats,
    davies_bouldin,
    open_blocks,
    silhouette,
)
from metric_oracle import FORMS, costs, some_rows, some_weights, unit
from models import dense, fitted

METRICS = ("euclidean", "cosine", "angular", "manhattan")


def distances(metric: str, X: Any, Y: Any) -> NDArray[np.float64]:
    """Distances between rows, with differences in float64."""
    if metric == "euclidean":
        return np.asarray(cdist(dense(X).astype(float), dense(Y).astype(float)))
    apart = costs(metric, X, Y)
    return np.sqrt(apart) if metric == "angular" else apart


def coefficients(apart: NDArray[np.float64], labels: Any) -> NDArray[np.float64]:
    """Silhouettes from a matrix of distances, row by row."""
    out = np.zeros(len(labels))
    for i, own in enumerate(labels):
        if own < 0 or (labels == own).sum() < 2:
            out[i] = np.nan if own < 0 else 0.0
            continue
        a = apart[i, labels == own].sum() / ((labels == own).sum() - 1)
        b = min(apart[i, labels == j].mean() for j in set(labels) - {own, -1})
        out[i] = (b - a) / max(a, b)
    return out


# nearest ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("scale", [1.0, 2.0**70, 2.0**-70])
def test_nearest_is_transform_sorted(metric: str, form: str, scale: float) -> None:
    X = some_rows(form)
    X = X * X.dtype.type(scale)
    model = fitted(X, 7, metric=metric)
    every = model.transform(X)
    for m in (1, 2, 3, 7):
        labels, apart = model.nearest(X, m)
        assert labels.dtype == np.int32
        assert apart.dtype == X.dtype
        assert labels.shape == apart.shape == (X.shape[0], m)
        np.testing.assert_array_equal(labels[:, 0], model.predict(X))
        np.testing.assert_array_equal(apart, np.take_along_axis(every, labels, axis=1))
        wanted = np.sort(every, axis=1)[:, :m]
        np.testing.assert_allclose(apart, wanted, rtol=1e-6 if X.dtype == np.float32 else 1e-12)


@pytest.mark.parametrize("form", FORMS)
def test_nearest_of_shifted_rows(form: str) -> None:
    X = some_rows(form)
    X = X + X.dtype.type(500) if form.startswith("dense") else X
    model = fitted(X, 5)
    labels, apart = model.nearest(X, 5)
    np.testing.assert_array_equal(apart, np.take_along_axis(model.transform(X), labels, axis=1))


def test_nearest_takes_the_lowest_index_on_ties() -> None:
    centres = np.array([[3.0], [1.0], [3.0], [1.0], [9.0]])
    model = fitted(np.arange(5.0)[:, np.newaxis], 5, init=centres, max_iter=1)
    model.cluster_centers_ = centres
    for m in range(1, 6):
        labels, apart = model.nearest([[2.0], [0.0]], m)
        assert labels.tolist() == [[0, 1, 2, 3, 4][:m], [1, 3, 0, 2, 4][:m]]
        assert apart.tolist() == [[1, 1, 1, 1, 7][:m], [1, 1, 3, 3, 9][:m]]


def test_nearest_with_centres_out_of_range() -> None:
    """Their scores are infinite or NaN, and they come last."""
    model = fitted(np.arange(8.0)[:, np.newaxis], 4)
    model.cluster_centers_ = np.array([[1e300], [5.0], [-1e300], [2.0]])
    labels, apart = model.nearest([[4.0], [0.0]], 4)
    assert labels.tolist() == [[1, 3, 0, 2], [3, 1, 0, 2]]
    np.testing.assert_array_equal(labels[:, :2], model.nearest([[4.0], [0.0]], 2)[0])
    np.testing.assert_allclose(apart[0], [1, 2, 1e300, 1e300])


@pytest.mark.parametrize("form", ["dense64", "csr32"])
def test_nearest_is_the_same_for_threads_and_blocks(form: str, tmp_path: Path) -> None:
    X = some_rows(form, n=500)
    model = fitted(X, 9, n_jobs=1)
    labels, apart = model.nearest(X, 3)
    for n_jobs in (2, 5):
        model.n_jobs = n_jobs
        sources: list[Any] = [X, open_blocks([X[:7], X[7:300], X[300:]])]
        if form == "dense64":
            np.save(tmp_path / "rows.npy", X)
            sources.append(open_blocks(tmp_path / "rows.npy", block_rows=64))
        for source in sources:
            again = model.nearest(source, 3)
            np.testing.assert_array_equal(again[0], labels)
            np.testing.assert_array_equal(again[1], apart)


def test_nearest_of_minibatch_models() -> None:
    X = some_rows("dense64")
    model = MiniBatchKMeans(4, random_state=0, batch_size=50).fit(X)
    labels, apart = model.nearest(X, 2)
    np.testing.assert_array_equal(labels[:, 0], model.predict(X))
    np.testing.assert_array_equal(apart, np.take_along_axis(model.transform(X), labels, axis=1))


@pytest.mark.parametrize("metric", ["cosine", "angular"])
def test_nearest_of_rows_of_zeros(metric: str) -> None:
    X = some_rows("csr64").tolil()
    X[3] = 0
    model = fitted(X.tocsr(), 3, metric=metric, zero_rows="keep")
    labels, apart = model.nearest(X.tocsr(), 2)
    assert labels[3].tolist() == [-1, -1]
    assert (labels[:3] >= 0).all()
    np.testing.assert_array_equal(apart[3], model.transform(X.tocsr())[3, :2])


def test_nearest_refuses() -> None:
    X = some_rows("dense64")
    model = fitted(X, 3)
    with pytest.raises(ValueError, match="m must be at most 3, the number of centres, but it is 4"):
        model.nearest(X, 4)
    with pytest.raises(ValueError, match="m must be an int of at least 1"):
        model.nearest(X, 0)
    for bad in (np.nan, np.inf):
        X[5, 2] = bad
        with pytest.raises(ValueError, match="the first such row is 5"):
            model.nearest(X, 2)
    model.memory_limit = 4000
    with pytest.raises(ValueError, match=r"memory_limit must be at least .* that nearest returns"):
        model.nearest(some_rows("dense64"), 3)
    with pytest.raises(NotFittedError):
        KMeans(3).nearest(X, 1)


# silhouettes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("form", FORMS)
def test_exact_silhouette_is_scikit_learns(metric: str, form: str) -> None:
    X = some_rows(form)
    model = fitted(X, 5, metric=metric)
    got = silhouette(X, model, kind="exact")
    rtol = 1e-4 if form.endswith("32") else 1e-10
    apart = distances(metric, X, X)
    np.fill_diagonal(apart, 0.0)  # arccos(1 - 1e-16) is 1e-8
    wanted = coefficients(apart, model.labels_)
    np.testing.assert_allclose(got.samples, wanted, rtol=rtol, atol=rtol / 10)
    if metric != "angular":
        theirs = silhouette_samples(dense(X).astype(float), model.labels_, metric=metric)
        np.testing.assert_allclose(got.samples, theirs, rtol=rtol, atol=rtol / 10)
    assert got.mean == pytest.approx(got.samples.mean())
    means = [got.samples[model.labels_ == j].mean() for j in range(5)]
    np.testing.assert_allclose(got.clusters, means)
    np.testing.assert_array_equal(got.labels, model.labels_)
    np.testing.assert_array_equal(got.rows, np.arange(X.shape[0]))


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("form", FORMS)
def test_simplified_silhouette_is_that_of_the_centres(metric: str, form: str) -> None:
    X = some_rows(form)
    model = fitted(X, 5, metric=metric)
    a, b = np.sort(distances(metric, X, model.cluster_centers_), axis=1)[:, :2].T
    got = silhouette(X, model)
    rtol = 1e-3 if form.endswith("32") else 1e-9
    np.testing.assert_allclose(got.samples, (b - a) / b, rtol=rtol, atol=rtol / 10)
    assert (got.samples >= 0).all()
    np.testing.assert_array_equal(got.labels, model.labels_)


@pytest.mark.parametrize("kind", ["simplified", "exact"])
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_silhouettes_are_the_same_for_threads_and_blocks(
    kind: Any, metric: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X = some_rows("dense64", n=400)
    np.save(tmp_path / "rows.npy", X)
    model = fitted(X, 4, metric=metric, n_jobs=1)
    first = silhouette(X, model, kind)
    monkeypatch.setattr(exactmeans.quality.labelled, "CHUNK_BYTES", 8 * 4 * 100)
    for n_jobs in (1, 3):
        model.n_jobs = n_jobs
        for source in (
            X,
            open_blocks([X[:9], X[9:]]),
            open_blocks(tmp_path / "rows.npy", block_rows=70),
        ):
            again = silhouette(source, model, kind)
            np.testing.assert_array_equal(again.samples, first.samples)
            assert again.mean == first.mean


def test_sampled_silhouettes_are_scikit_learns() -> None:
    X = some_rows("csr64")
    model = fitted(X, 4)
    got = silhouette(X, model, "exact", sample_size=90, random_state=5)
    theirs = silhouette_score(X, model.labels_, sample_size=90, random_state=5)
    assert got.mean == pytest.approx(theirs, rel=1e-10)
    assert len(got.samples) == len(got.labels) == 90
    np.testing.assert_array_equal(got.labels, model.labels_[got.rows])
    some = silhouette(X, model, sample_size=90, random_state=5)
    np.testing.assert_array_equal(some.samples, silhouette(X, model).samples[some.rows])


@pytest.mark.parametrize("kind", ["simplified", "exact"])
def test_rows_in_no_cluster_have_no_silhouette(kind: Any) -> None:
    X = some_rows("dense64")
    with_zeros = np.concatenate([X[:5], np.zeros((2, X.shape[1])), X[5:]])
    model = fitted(X, 3, metric="cosine", zero_rows="keep")
    without, got = silhouette(X, model, kind), silhouette(with_zeros, model, kind)
    assert np.isnan(got.samples[5:7]).all()
    assert got.labels[5:7].tolist() == [-1, -1]
    np.testing.assert_allclose(np.delete(got.samples, [5, 6]), without.samples, rtol=1e-12)
    assert got.mean == pytest.approx(without.mean)
    np.testing.assert_allclose(got.clusters, without.clusters)


@pytest.mark.parametrize("form", FORMS)
def test_equal_centres_count_once(form: str) -> None:
    """Empty clusters lie where another cluster is, which says nothing about separation."""
    X = some_rows(form)
    model = fitted(X, 3)
    wanted = silhouette(X, model)
    model.cluster_centers_ = model.cluster_centers_[[0, 0, 1, 2, 1]]
    got = silhouette(X, model)
    np.testing.assert_array_equal(got.samples, wanted.samples)
    np.testing.assert_array_equal(got.labels, model.predict(X))
    assert np.isnan(got.clusters[[1, 4]]).all()
    exact = silhouette(X, model, "exact")
    assert np.isnan(exact.clusters[[1, 4]]).all()
    assert np.isfinite(exact.samples).all()


def test_a_row_alone_has_silhouette_zero() -> None:
    X = np.array([[0.0], [1.0], [50.0]])
    model = fitted(X, 2)
    got = silhouette(X, model, "exact")
    np.testing.assert_allclose(got.samples, silhouette_samples(X, model.labels_))
    assert got.samples[2] == 0


def test_opposite_rows_have_no_mean_direction() -> None:
    """The mean of a cluster may be zero; every row is then at distance 1 from it on average."""
    X = np.array([[1.0, 0], [0.5, 0], [0, 1], [0, -1], [0, 2], [0, -2]])
    model = fitted(X, 2, metric="cosine", init=np.array([[1.0, 0], [0, 1.0]]), max_iter=1)
    model.cluster_centers_ = np.array([[1.0, 0.0], [-0.1, 1.0]])
    labels = model.predict(X)
    got = silhouette(X, model, "exact")
    np.testing.assert_allclose(got.samples, coefficients(distances("cosine", X, X), labels))


def test_silhouette_refuses() -> None:
    X = some_rows("dense64")
    model = fitted(X, 3)
    with pytest.raises(ValueError, match="model must have at least 2 different centres"):
        silhouette(X, fitted(X, 1))
    with pytest.raises(ValueError, match="kind must be one of 'simplified', 'exact'"):
        silhouette(X, model, "fast")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="sample_size must be at most 300"):
        silhouette(X, model, sample_size=301)
    with pytest.raises(ValueError, match="sample_size must be an int of at least 2"):
        silhouette(X, model, sample_size=1)
    with pytest.raises(ValueError, match="model must be a fitted KMeans or MiniBatchKMeans"):
        silhouette(X, model.labels_)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="model must give X at least 2 clusters"):
        silhouette(X[:1].repeat(3, axis=0), model, "exact")


# indices and statistics ---------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["sgd", "memoized"])
def test_measures_of_minibatch_models(method: Any) -> None:
    X = some_rows("dense64")
    model = MiniBatchKMeans(4, method=method, random_state=0, batch_size=50).fit(X)
    labels = model.predict(X)
    theirs = silhouette_samples(X, labels)
    np.testing.assert_allclose(silhouette(X, model, kind="exact").samples, theirs, atol=1e-12)
    assert davies_bouldin(X, model) == pytest.approx(davies_bouldin_score(X, labels))
    assert calinski_harabasz(X, model) == pytest.approx(calinski_harabasz_score(X, labels))
    assert cluster_stats(X, model)["size"].tolist() == np.bincount(labels).tolist()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("max_iter", [1, 300])
def test_indices_are_scikit_learns(form: str, max_iter: int) -> None:
    X = some_rows(form)
    model = fitted(X, 6, max_iter=max_iter)
    rows = dense(X).astype(float)
    assert davies_bouldin(X, model) == pytest.approx(davies_bouldin_score(rows, model.labels_))
    theirs = calinski_harabasz_score(rows, model.labels_)
    assert calinski_harabasz(X, model) == pytest.approx(theirs)


@pytest.mark.parametrize("metric", ["cosine", "angular", "manhattan"])
@pytest.mark.parametrize("form", FORMS)
def test_indices_under_other_metrics(metric: str, form: str) -> None:
    X = some_rows(form)
    k = 4
    model = fitted(X, k, metric=metric)
    apart = distances(metric, X, model.cluster_centers_)[np.arange(X.shape[0]), model.labels_]
    spread = np.array([apart[model.labels_ == j].mean() for j in range(k)])
    between = distances(metric, model.cluster_centers_, model.cluster_centers_)
    np.fill_diagonal(between, np.inf)
    wanted = ((spread[:, np.newaxis] + spread) / between).max(axis=1).mean()
    assert davies_bouldin(X, model) == pytest.approx(wanted, rel=1e-4)
    total, within = fitted(X, 1, metric=metric, tol=0).inertia_, model.inertia_
    if metric == "angular":
        total = costs(metric, X, unit(X).mean(axis=0, keepdims=True)).sum()
    wanted = (total - within) / (k - 1) / (within / (X.shape[0] - k))
    assert calinski_harabasz(X, model) == pytest.approx(wanted, rel=1e-4)


def test_indices_leave_out_rows_in_no_cluster() -> None:
    X = some_rows("csr64")
    zeros: Any = sp.csr_matrix((4, X.shape[1]))
    model = fitted(X, 3, metric="cosine", zero_rows="keep")
    more = sp.vstack([X, zeros], format="csr")
    assert davies_bouldin(more, model) == pytest.approx(davies_bouldin(X, model))
    assert calinski_harabasz(more, model) == pytest.approx(calinski_harabasz(X, model))
    assert cluster_stats(more, model)["size"].tolist() == cluster_stats(X, model)["size"].tolist()


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("weighted", [False, True])
def test_cluster_stats(metric: str, weighted: bool) -> None:
    X = some_rows("dense64")
    weights = some_weights(len(X)) if weighted else np.ones(len(X))
    model = fitted(X, 5, metric=metric, sample_weight=weights)
    got = cluster_stats(X, model, weights if weighted else None)
    apart = distances(metric, X, model.cluster_centers_)[np.arange(len(X)), model.labels_]
    each = apart**2 if metric in ("euclidean", "angular") else apart
    for j in range(5):
        own = model.labels_ == j
        assert got["size"][j] == own.sum()
        assert got["weight"][j] == pytest.approx(weights[own].sum())
        assert got["inertia"][j] == pytest.approx((weights * each)[own].sum())
        wanted = (weights * apart)[own].sum() / weights[own].sum()
        assert got["mean_distance"][j] == pytest.approx(wanted)
        assert got["radius"][j] == pytest.approx(apart[own].max())
    assert got["inertia"].sum() == pytest.approx(model.inertia_)


def test_cluster_stats_of_empty_clusters() -> None:
    X = some_rows("csr64")
    model = fitted(X, 3)
    model.cluster_centers_ = np.concatenate([model.cluster_centers_, model.cluster_centers_[:1]])
    got = cluster_stats(X, model)
    assert got["size"][3] == got["weight"][3] == got["inertia"][3] == 0
    assert np.isnan(got["radius"][3])
    assert np.isnan(got["mean_distance"][3])


def test_indices_refuse_one_cluster() -> None:
    X = some_rows("dense64")
    for index in (davies_bouldin, calinski_harabasz):
        with pytest.raises(ValueError, match="model must give X between 2 and n_samples - 1"):
            index(X, fitted(X, 1))


def test_indices_of_scaled_rows() -> None:
    """Squares of these values leave the range of float64; the indices do not depend on the unit."""
    X = unit(some_rows("dense64"))
    small, large = fitted(X, 4), fitted(X * 2.0**400, 4)
    assert davies_bouldin(X * 2.0**400, large) == pytest.approx(davies_bouldin(X, small))
    got = silhouette(X * 2.0**400, large, "exact").samples
    np.testing.assert_allclose(got, silhouette(X, small, "exact").samples)
