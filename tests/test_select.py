"""Choosing k: the table against its parts, and the suggestion on data whose k is known."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.datasets import load_iris
from sklearn.metrics import adjusted_rand_score

from exactmeans import (
    KMeans,
    KSelection,
    calinski_harabasz,
    davies_bouldin,
    open_blocks,
    select_k,
    silhouette,
)
from exactmeans.select.criteria import CRITERIA
from exactmeans.select.measures import Measures, adjusted_rand
from models import assert_same_model


def blobs(k: int, d: int = 3, n: int = 600, spread: float = 1.0) -> NDArray[np.float64]:
    """Clear clusters: centres on a grid, far apart."""
    rng = np.random.default_rng(k)
    corners = np.stack(np.meshgrid(*[np.arange(3.0)] * d), axis=-1).reshape(-1, d)
    centres = 12 * spread * rng.permutation(corners)[:k]
    return np.asarray(centres[np.arange(n) % k] + spread * rng.normal(size=(n, d)))


def topics(k: int, n: int = 500, d: int = 400) -> Any:
    """Sparse counts: each document has words of its topic and of the common vocabulary."""
    rng = np.random.default_rng(1)
    X = sp.lil_matrix((n, d))
    own = np.array_split(np.arange(100, d), k)
    for i in range(n):
        X[i, rng.choice(100, 8, replace=False)] = 1.0
        X[i, rng.choice(own[i % k], 12, replace=False)] = 2.0
    return X.tocsr()


# the table ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "manhattan"])
def test_rows_of_the_table_are_what_the_parts_give(metric: Any) -> None:
    X = blobs(4) + 1.0
    found = select_k(X, [3, 2, 5], random_state=3, metric=metric, keep_models="all")
    assert [row.k for row in found.table] == [2, 3, 5]
    assert sorted(found.models) == [2, 3, 5]
    for row in found.table:
        model = KMeans(row.k, random_state=row.random_state, metric=metric).fit(X)
        assert_same_model(model, found.models[row.k])
        assert row.inertia == model.inertia_
        assert row.silhouette == silhouette(X, model).mean
        assert row.davies_bouldin == davies_bouldin(X, model)
        assert row.calinski_harabasz == calinski_harabasz(X, model)
        counts = np.bincount(model.labels_)
        assert (row.smallest, row.largest) == (counts.min(), counts.max())
        assert row.seconds > 0


def test_stability_is_the_mean_adjusted_rand_index() -> None:
    X = np.random.default_rng(0).normal(size=(300, 4))
    found = select_k(X, [6], n_seeds=3, random_state=7)
    seeds = np.random.RandomState(7).randint(2**31 - 1, size=3)
    a, b, c = (KMeans(6, random_state=int(seed)).fit(X).labels_ for seed in seeds)
    pairs = [adjusted_rand_score(*pair) for pair in ((a, b), (a, c), (b, c))]
    assert found.table[0].stability == pytest.approx(np.mean(pairs))
    assert math.isnan(select_k(X, [6], n_seeds=1, random_state=7).table[0].stability)


def test_adjusted_rand_is_scikit_learns() -> None:
    rng = np.random.default_rng(2)
    for k, m in ((1, 1), (1, 4), (3, 3), (10, 4)):
        a, b = (rng.integers(size, size=50).astype(np.int32) for size in (k, m))
        assert adjusted_rand(a, b) == pytest.approx(adjusted_rand_score(a, b))
        assert adjusted_rand(a, a) == 1


@pytest.mark.parametrize("form", ["dense", "csr", "blocks", "path"])
def test_every_container_gives_the_same_table(form: str, tmp_path: Path) -> None:
    X = np.round(blobs(3, n=200))
    source: Any = {"dense": X, "csr": sp.csr_array(X), "blocks": open_blocks([X[:70], X[70:]])}.get(
        form
    )
    if form == "path":
        source = tmp_path / "rows.npy"
        np.save(source, X)
    wanted, got = (select_k(rows, [2, 3, 4], random_state=0) for rows in (X, source))
    assert (got.best_k, got.clear) == (wanted.best_k, wanted.clear) == (3, True)
    for a, b in zip(got.table, wanted.table, strict=True):
        np.testing.assert_allclose(a[1:6], b[1:6], rtol=1e-9)
        assert a[7:10] == b[7:10]
    if form != "csr":
        bits = [row[:6] for row in wanted.table]
        assert [row[:6] for row in got.table] == bits


def test_one_cluster_has_inertia_only() -> None:
    row = select_k(blobs(3), [1, 2], random_state=0).table[0]
    assert row.k == 1
    assert row.inertia > 0
    assert all(math.isnan(value) for value in row[2:5])


# the suggestion -----------------------------------------------------------------------------------


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("k", [3, 7])
def test_clear_clusters_are_found_by_every_criterion(criterion: Any, k: int) -> None:
    found = select_k(blobs(k), range(2, 11), criterion=criterion, random_state=0)
    assert found.best_k == k
    assert found.clear
    assert found.model.n_clusters == k
    assert str(k) in found.reason
    assert found.reason.endswith(".")


@pytest.mark.parametrize("scales", [(1, 1), (10, 1, 1), tuple(range(1, 11))])
def test_one_blob_has_no_clear_structure(scales: tuple[float, ...]) -> None:
    X = np.random.default_rng(0).normal(size=(800, len(scales))) * scales
    found = select_k(X, range(2, 8), random_state=0)
    assert not found.clear
    assert found.reason.startswith("There is no clear structure")
    assert select_k(X, range(1, 8), random_state=0).best_k == 1


def test_iris_has_two_or_three_clusters() -> None:
    found = select_k(load_iris().data, range(2, 9), random_state=0)
    assert found.best_k in (2, 3)
    assert found.clear


def test_topics_of_sparse_documents() -> None:
    found = select_k(topics(6), range(2, 11), random_state=0, metric="cosine")
    assert found.best_k == 6
    assert found.clear
    permuted = topics(6).tocsc()
    rng = np.random.default_rng(0)
    for f in range(permuted.shape[1]):
        own = slice(permuted.indptr[f], permuted.indptr[f + 1])
        permuted.indices[own] = rng.choice(500, own.stop - own.start, replace=False)
    noise = select_k(permuted.tocsr(), range(2, 9), random_state=0, metric="cosine", n_seeds=1)
    assert not noise.clear


def test_rows_in_no_cluster() -> None:
    X = sp.vstack([topics(3, n=90), sp.csr_matrix((4, 400))], format="csr")
    found = select_k(X, [2, 3, 4], random_state=0, metric="cosine", zero_rows="keep")
    assert found.best_k == 3
    assert found.table[1].smallest == found.table[1].largest == 30
    assert found.table[1].stability == 1


# what it returns ----------------------------------------------------------------------------------


def test_models_that_are_kept() -> None:
    X = blobs(3)
    best = select_k(X, [2, 3], random_state=0)
    every = select_k(X, [2, 3], random_state=0, keep_models="all")
    none = select_k(X, [2, 3], random_state=0, keep_models="none")
    assert list(best.models) == [3]
    assert not none.models
    assert_same_model(best.model, every.models[3])
    with pytest.raises(AttributeError, match="keep_models='none'"):
        _ = none.model


def test_table_as_text_and_frame() -> None:
    found = select_k(blobs(3), [2, 3], random_state=0)
    assert isinstance(found, KSelection)
    frame = found.to_pandas()
    assert frame.index.tolist() == [2, 3]
    assert frame["inertia"].tolist() == [row.inertia for row in found.table]
    lines = str(found).splitlines()
    assert len(lines) == 4
    assert lines[-1] == f"best k: 3. {found.reason}"


def test_progress_and_verbose(capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[Measures] = []
    found = select_k(blobs(3), [2, 3], random_state=0, progress=seen.append)
    assert seen == found.table
    assert capsys.readouterr().out == ""
    select_k(blobs(3), [2, 3], random_state=0, verbose=1)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("k 2 (1 of 2): inertia ")


def test_the_same_seed_gives_the_same_selection() -> None:
    X = np.random.default_rng(5).normal(size=(200, 3))
    a, b = (select_k(X, [2, 3, 4], random_state=1, n_jobs=jobs) for jobs in (1, 3))
    assert [row[:-1] for row in a.table] == [row[:-1] for row in b.table]
    assert (a.best_k, a.reason) == (b.best_k, b.reason)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"k_range": []}, "k_range must be numbers of clusters, such as range"),
        ({"k_range": 3}, "k_range must be numbers of clusters, such as range"),
        ({"k_range": "23"}, "k_range must be numbers of clusters, such as range"),
        ({"k_range": [0, 2]}, "every k of k_range must be an int of at least 1"),
        ({"k_range": [2.5]}, "every k of k_range must be an int of at least 1"),
        ({"k_range": [2, 601]}, "k_range must not exceed the number of rows, 600"),
        ({"k_range": [1]}, "k_range must have a k of at least 2 for criterion='auto'"),
        ({"criterion": "gap"}, "criterion must be one of 'auto', 'silhouette'"),
        ({"criterion": "elbow"}, "k_range must have at least 3 values for criterion='elbow'"),
        ({"criterion": "stability", "n_seeds": 1}, "n_seeds must be an int of at least 2"),
        ({"n_seeds": 0}, "n_seeds must be an int of at least 1"),
        ({"keep_models": True}, "keep_models must be one of 'best', 'all', 'none'"),
        ({"n_clusters": 3}, "n_clusters must not be given, because select_k fits several"),
        ({"checkpoint": "x"}, "checkpoint must not be given"),
        ({"init": np.ones((2, 3))}, "init must be a name or a callable for select_k"),
        ({"metric": "l1"}, "metric must be one of"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        select_k(blobs(3), **{"k_range": [2, 3], **arguments})
    with pytest.raises(TypeError, match="speed"):
        select_k(blobs(3), [2], speed=1)
