"""Sparse rows: sums and centres that are held sparsely give the bits of dense ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray

import cases
import datasets
from exactmeans import KMeans, _core, kmeans_plusplus
from exactmeans.data.centres import for_users
from exactmeans.engine.frame import Frame
from exactmeans.engine.local.engine import LocalEngine
from exactmeans.fit.cost_model import Workload
from exactmeans.fit.norms import einsum_norms2

pytestmark = pytest.mark.core


def text(n: int = 300, d: int = 1000, seed: int = 0, dtype: str = "float64") -> Any:
    """Rows like those of text: few features each, some of them in most rows."""
    rng = np.random.default_rng(seed)
    counts = rng.poisson(6, n) + 1
    rows = np.repeat(np.arange(n), counts)
    features = np.minimum(rng.zipf(1.3, len(rows)) - 1, d - 1)
    values = rng.uniform(0.1, 1, len(rows)).astype(dtype)
    return sp.csr_matrix((values, (rows, features)), shape=(n, d))


def make_sums(X: Any, k: int, *, sparse: bool) -> tuple[Any, Any]:
    engine = LocalEngine([X], None, 2)
    grid = _core.Grid(engine.survey(weighted=False).bounds, engine.n)
    grid.bins = engine.bins_needed(grid, weighted=False)
    counts = _core.Grid(np.ones(1), engine.n)
    return _core.Sums(k, engine.d, grid, counts, sparse=sparse), engine._blocks[0].rows


@pytest.mark.parametrize("sparse", [False, True])
def test_exported_sums_add_up(sparse: bool) -> None:
    X, k = text(), 7
    rng = np.random.default_rng(1)
    before, after = (rng.integers(0, k, X.shape[0], dtype=np.int32) for _ in range(2))
    after[:250] = before[:250]
    whole, rows = make_sums(X, k, sparse=sparse)
    difference, total = (make_sums(X, k, sparse=sparse)[0] for _ in range(2))
    summed = np.full(X.shape[0], -1, dtype=np.int32)
    total.relabel(rows, before, summed, 2)
    difference.relabel(rows, after, before.copy(), 2)
    whole.relabel(rows, after, np.full(X.shape[0], -1, dtype=np.int32), 2)
    exported = difference.export()
    assert len(exported[0]) <= k
    total.absorb(exported)
    assert total.bins.tobytes() == whole.bins.tobytes()
    assert total.members.tolist() == whole.members.tolist()
    assert total.weights.tolist() == whole.weights.tolist()
    empty = make_sums(X, k, sparse=sparse)[0].export()
    assert len(empty[0]) == 0
    total.absorb(empty)
    assert total.bins.tobytes() == whole.bins.tobytes()


def test_exported_sums_of_other_grids_are_refused() -> None:
    X = text()
    sums, rows = make_sums(X, 3, sparse=True)
    sums.relabel(rows, None, np.full(X.shape[0], -1, dtype=np.int32), 1)
    ids, offsets, features, words, weights, members = sums.export()
    for bad in (
        (ids + 3, offsets, features, words, weights, members),
        (ids, offsets + 1, features, words, weights, members),
        (ids, offsets, features[::-1].copy(), words, weights, members),
        (ids, offsets, features, words[:, :-1].copy(), weights, members),
        (ids, offsets, features, words, weights, members[:0]),
    ):
        with pytest.raises(ValueError, match=r"exported|cluster|features"):
            sums.absorb(bad)


@pytest.mark.parametrize("d", [1, 7, 63, 64, 65, 1000, 4096, 10_007, 100_001])
def test_norms_are_einsums(d: int) -> None:
    rng = np.random.default_rng(d)
    dense = np.where(rng.uniform(size=(20, d)) < 0.02, rng.normal(size=(20, d)), 0.0)
    dense[:, -1] = 1e-3
    dense[3] = 0
    wanted = [np.einsum("j,j->", row, row) for row in dense]
    assert einsum_norms2(sp.csr_array(dense), None).tolist() == wanted


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_centres_may_be_sparse(dtype: str) -> None:
    X = text(dtype=dtype)
    dense = KMeans(9, random_state=0).fit(X)
    assert isinstance(dense.cluster_centers_, np.ndarray)
    sparse = KMeans(9, random_state=0, sparse_centers=True).fit(X)
    centres: Any = sparse.cluster_centers_
    assert isinstance(centres, sp.csr_array)
    assert centres.dtype == dtype
    assert np.array_equal(centres.toarray(), dense.cluster_centers_)
    assert sparse.inertia_ == dense.inertia_
    for rows in (X, X.toarray()):
        assert np.array_equal(sparse.predict(rows), dense.predict(rows))
        assert np.array_equal(sparse.transform(rows), dense.transform(rows))
        assert sparse.score(rows) == dense.score(rows)
    assert np.array_equal(sparse.labels_, sparse.predict(X))


def test_no_dense_layout_beyond_the_memory_limit() -> None:
    X = text(2000, 3000)
    frame = Frame(0, None)
    dense = 8 * 20 * X.shape[1]
    for limit, lists in ((None, False), (dense, False), (dense - 1, True)):
        engine = LocalEngine([X], None, 2, scratch_limit=limit)
        assert frame.centroids(X[:20], engine).has_posting_lists() == lists
    work = Workload(2000, X.shape[1], 20, True, 8, X.nnz / 2000)
    least = work.bytes_needed("lloyd")
    wide, narrow = (
        KMeans(20, random_state=0, memory_limit=limit).fit(X) for limit in (None, least)
    )
    assert least // 4 < dense < 2**25
    assert cases.bits(narrow) == cases.bits(wide)
    with pytest.raises(ValueError, match=f"memory_limit must be at least {least:,} bytes"):
        KMeans(20, memory_limit=least - 1).fit(X)


def thin_centres(k: int, d: int, per_centre: int) -> Any:
    """Each with so many values, evenly spread; SciPy's random arrays permute all k x d places."""
    rng = np.random.default_rng(0)
    step = d // per_centre
    features = step * np.arange(per_centre) + rng.integers(0, step, (k, per_centre))
    ends = per_centre * np.arange(k + 1)
    return sp.csr_array((rng.random(k * per_centre), features.ravel(), ends), shape=(k, d))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_filter_is_not_made_for_thin_centres(dtype: str) -> None:
    # 64 MB of 8-bit values, of which one in a hundred must not be 0 beyond that
    frame, k = Frame(0, None), 128
    for d, share, look in ((2**18, 0.0001, True), (2**19, 0.0001, False), (2**19, 0.02, True)):
        X = thin_centres(k, d, int(share * d)).astype(dtype)
        assert frame.centroids(X, LocalEngine([X], None, 2)).fits_filter() == look


def test_many_clusters_and_a_hundred_million_features() -> None:
    rng = np.random.default_rng(2)
    n, k, d = 2600, 2500, 10**8
    ends = np.concatenate([[0], np.cumsum(rng.integers(0, 6, n))])  # some rows are empty
    ends[n // 2 :] += 30_000  # and one is very long
    features = rng.integers(0, d, ends[-1])
    rows = np.repeat(np.arange(n), np.diff(ends))
    X = sp.csr_matrix((rng.uniform(0.1, 1, len(rows)), (rows, features)), shape=(n, d))
    X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    model = KMeans(k, init="random", n_init=1, max_iter=3, tol=0, random_state=0).fit(X)
    assert X.indices.dtype == np.int64
    centres: Any = model.cluster_centers_
    assert isinstance(centres, sp.csr_array)
    assert centres.nnz <= X.nnz
    assert np.array_equal(model.predict(X), model.labels_)
    own = X - centres[model.labels_]
    assert own.multiply(own).sum() == pytest.approx(model.inertia_, rel=1e-12)


def test_dense_rows_may_have_sparse_centres() -> None:
    X = datasets.load("iris").X
    model = KMeans(3, random_state=0, sparse_centers=True).fit(X)
    assert sp.issparse(model.cluster_centers_)
    assert np.array_equal(model.predict(X), KMeans(3, random_state=0).fit(X).labels_)


def test_given_centres_may_be_sparse() -> None:
    X = text()
    init: NDArray[Any] = X[:5].toarray()
    wanted = KMeans(5, init=init, n_init=1).fit(X)
    for given in (X[:5], sp.csc_matrix(X[:5]), sp.coo_array(X[:5])):
        model = KMeans(5, init=given, n_init=1).fit(X)
        assert np.array_equal(model.cluster_centers_, wanted.cluster_centers_)
    bad = X[:5].copy()
    bad.data[0] = np.nan
    with pytest.raises(ValueError, match="init must be finite"):
        KMeans(5, init=bad).fit(X)


def test_replaced_centres_may_be_sparse() -> None:
    X = text()
    model = KMeans(4, random_state=0).fit(X)
    labels = model.predict(X)
    model.cluster_centers_ = sp.csr_matrix(model.cluster_centers_)
    assert np.array_equal(model.predict(X), labels)
    model.cluster_centers_ = model.cluster_centers_[:, :-1]
    with pytest.raises(ValueError, match="cluster_centers_ must have shape"):
        model.predict(X)


@pytest.mark.parametrize("given", ["yes", 1, None])
def test_sparse_centers_is_checked(given: Any) -> None:
    with pytest.raises(ValueError, match="sparse_centers must be"):
        KMeans(2, sparse_centers=given).fit(text())


def test_large_centres_are_sparse_by_themselves() -> None:
    narrow = text(40, 1000)
    X = sp.csr_matrix((narrow.data, narrow.indices, narrow.indptr), shape=(40, 5_000_000))
    model = KMeans(20, random_state=0).fit(X)
    assert sp.issparse(model.cluster_centers_)
    assert np.array_equal(model.predict(X), model.labels_)
    assert np.array_equal(model.labels_, KMeans(20, random_state=0).fit(narrow).labels_)
    centres, indices = kmeans_plusplus(X, 20, random_state=0)
    assert isinstance(centres, sp.csr_array)
    assert np.array_equal(centres.indices, X[indices].indices)
    assert np.array_equal(centres.data, X[indices].data)


# Layouts ------------------------------------------------------------------------------------------


def fitted(X: Any, k: int, rare_below: int, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Any:
    """A fit whose panels leave out features of fewer than `rare_below` centres."""
    plain = Frame.centroids

    def forced(self: Frame, centres: Any, engine: LocalEngine) -> _core.Centroids:
        centroids = plain(self, centres, engine)
        centroids.set_rare_below(rare_below)
        return centroids

    with monkeypatch.context() as patch:
        patch.setattr(Frame, "centroids", forced)
        return KMeans(k, random_state=0, tol=0, **options).fit(X)


@pytest.mark.parametrize("algorithm", [t["name"] for t in _core.algorithms() if t["csr"]])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("k", [1, 5, 40, 150])
def test_every_layout_gives_the_same_bits(
    k: int, dtype: str, algorithm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    X = text(400, 900, seed=k, dtype=dtype)
    X.data *= np.random.default_rng(k).choice([-1, 1], X.nnz)
    X[3] = 0
    X.eliminate_zeros()
    wanted = fitted(X, k, 0, monkeypatch)
    for rare_below in (2, 5, k + 1):
        for rows in (X, cases.LAYOUTS["csr"]["int64"](X)):
            model = fitted(rows, k, rare_below, monkeypatch, algorithm=algorithm)
            assert cases.bits(model) == cases.bits(wanted)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_long_rows_in_every_layout(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """float32 chains of more than 4096 entries are cut, by entries that have hits or none."""
    rng = np.random.default_rng(0)
    dense = np.where(rng.uniform(size=(30, 9000)) < 0.6, rng.normal(size=(30, 9000)), 0)
    dense[10:] *= rng.uniform(size=(20, 9000)) < 0.01
    X = sp.csr_matrix(dense.astype(dtype))
    wanted = fitted(X, 6, 0, monkeypatch)
    for rare_below in (2, 3, 7):
        assert cases.bits(fitted(X, 6, rare_below, monkeypatch)) == cases.bits(wanted)


@pytest.mark.parametrize("algorithm", ["lloyd", "moving"])
def test_near_ties_in_every_layout(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows between two centres, but for less than float32 can tell, among many others."""
    rng = np.random.default_rng(2)
    n, d, k = 2000, 300, 12
    centres = np.where(rng.uniform(size=(k, d)) < 0.2, rng.uniform(size=(k, d)), 0)
    centres[1, 1::2] = centres[0, ::2]
    centres[0, 1::2] = centres[1, ::2] = 0
    dense = np.where(rng.uniform(size=(n, d)) < 0.1, rng.uniform(size=(n, d)), 0)
    dense[:40] = centres[0] + centres[1]
    for i, row in enumerate(dense[:40]):
        row[i % 2 :: 2] *= 1 + 1e-10 * (i // 2)
    X = sp.csr_matrix(rng.permutation(dense))
    options = {"init": centres, "n_init": 1, "max_iter": 1}
    wanted = fitted(X, k, 0, monkeypatch, algorithm=algorithm, **options)
    for rare_below in (2, 4, k + 1):
        model = fitted(X, k, rare_below, monkeypatch, algorithm=algorithm, **options)
        assert cases.bits(model) == cases.bits(wanted)


@pytest.mark.parametrize("scale", [1e-180, 1e180])
def test_scaled_rows_in_every_layout(scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    X = text() * scale
    wanted = fitted(X, 12, 0, monkeypatch)
    for rare_below in (2, 13):
        assert cases.bits(fitted(X, 12, rare_below, monkeypatch)) == cases.bits(wanted)


SHAPES = [(300, 2 * 10**7, 3), (2000, 50, 1500), (3000, 10**6, 2500)]


@pytest.mark.parametrize(("n", "d", "k"), SHAPES)
def test_extreme_shapes(n: int, d: int, k: int) -> None:
    X = text(n, 40)
    X = sp.csr_matrix((X.data, X.indices.astype(np.int64) * (d // 40), X.indptr), shape=(n, d))
    before = X.indices.copy()
    model = KMeans(k, random_state=0, init="random", n_init=1, max_iter=3).fit(X)
    assert model.cluster_centers_.shape == (k, d)
    assert np.array_equal(model.labels_, model.predict(X))
    assert np.array_equal(X.indices, before)
    narrow = sp.csr_matrix((X.data, X.indices // (d // 40), X.indptr), shape=(n, 40))
    again = KMeans(k, random_state=0, init="random", n_init=1, max_iter=3).fit(narrow)
    assert np.array_equal(model.labels_, again.labels_)


def test_memory_follows_the_nonzeros() -> None:
    narrow = text(40, 1000)
    X = sp.csr_matrix((narrow.data, narrow.indices, narrow.indptr), shape=(40, 5_000_000))
    KMeans(20, random_state=0, memory_limit="200MB").fit(X)  # k x d alone is four times that
    with pytest.raises(ValueError, match="memory_limit must be at least"):
        KMeans(20, random_state=0, memory_limit="50MB").fit(X)


@pytest.mark.parametrize("n_jobs", [1, 2, 3, 16])
def test_threads_spread_out_large_centres(n_jobs: int) -> None:
    """Whether or not their number divides that of the centres, of which some are empty."""
    rng = np.random.default_rng(5)
    for k, d in ((7, 700_000), (7, 10), (1, 5_000_000)):
        dense = np.zeros((k, d), dtype=np.float32)
        dense[: k - k // 3, rng.integers(0, d, 50)] = rng.random(50, dtype=np.float32)
        out = for_users(sp.csr_array(dense), False, n_jobs)
        assert isinstance(out, np.ndarray)
        assert out.dtype == dense.dtype
        assert out.flags.c_contiguous
        assert (out == dense).all()
