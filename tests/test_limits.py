"""Size limits: feasible, optimal, the same bits for any blocks and threads, and kept by predict."""

from __future__ import annotations

import warnings
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment, linprog

import datasets
import exactmeans
from cases import DTYPES, bits, cut
from exactmeans import KMeans, MiniBatchKMeans

pytestmark = pytest.mark.core


def rows_of(n: int = 300, d: int = 4, seed: int = 0) -> NDArray[np.float64]:
    """A large cluster, some small ones, duplicates and ties."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) + 4 * rng.integers(0, 4, (n, 1)) ** 2 * rng.random((1, d))
    X[: n // 3] = np.round(rng.normal(size=(n // 3, d)))
    return X


def squared(X: Any, centres: Any) -> NDArray[np.float64]:
    rows = np.asarray(X if isinstance(X, np.ndarray) else X.toarray(), dtype=np.float64)
    apart: NDArray[np.float64] = rows[:, None] - np.asarray(centres, dtype=np.float64)
    return np.asarray(np.einsum("ijf,ijf->ij", apart, apart))


def least_cost(costs: NDArray[np.float64], least: int, most: int) -> float:
    """The optimum by SciPy: every cluster is `most` columns, of which `least` must be taken."""
    n, k = costs.shape
    must = costs.min() - 1e6 * (1 + np.abs(costs).max())
    columns = [costs[:, j] + (must if t < least else 0) for j in range(k) for t in range(most)]
    spare = np.zeros((len(columns) - n, len(columns)))  # rows of no cost that fill the columns
    spare[:, [t < least for _ in range(k) for t in range(most)]] = 1e9 * abs(must)
    row, column = linear_sum_assignment(np.vstack([np.column_stack(columns), spare]))
    return float(sum(costs[i, j // most] for i, j in zip(row, column, strict=True) if i < n))


def by_linear_program(costs: NDArray[np.float64], least: int, most: int) -> float:
    n, k = costs.shape
    solve: Any = linprog  # its stubs know no sparse constraints
    each = sp.kron(sp.eye_array(n), np.ones((1, k)))
    sizes = sp.kron(np.ones((1, n)), sp.eye_array(k))
    found = solve(
        costs.ravel(),
        A_ub=sp.vstack([sizes, -sizes]),
        b_ub=np.repeat([most, -least], k),
        A_eq=each,
        b_eq=np.ones(n),
        bounds=(0, 1),
    )
    return float(found.fun)


LIMITS = [(None, 1.0), (1.0, 1.0), (None, 1.2), (0.7, None), (10, 70), (0, 60)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("size_min", "size_max"), LIMITS)
def test_one_assignment_is_optimal(dtype: str, size_min: Any, size_max: Any) -> None:
    X, k = rows_of(n=203).astype(dtype), 7
    centres = X[np.random.default_rng(3).choice(len(X), k, replace=False)]
    model = KMeans(k, init=centres, n_init=1, max_iter=1, size_min=size_min, size_max=size_max)
    model.fit(X)
    labels = model.predict(X, size_min=size_min, size_max=size_max)
    costs = squared(X, model.cluster_centers_)
    sizes = np.bincount(labels, minlength=k)
    least, most = _rows(size_min, 203, k, 0), _rows(size_max, 203, k, 203)
    assert least <= sizes.min()
    assert sizes.max() <= most
    most = min(most, 203 - (k - 1) * least)
    cost = costs[np.arange(len(X)), labels].sum()
    assert cost == pytest.approx(by_linear_program(costs, least, most), rel=1e-6)
    if most <= 60:
        assert cost == pytest.approx(least_cost(costs, least, most), rel=1e-6)
    assert model.inertia_ == pytest.approx(cost, rel=1e-6)


def _rows(size: Any, n: int, k: int, default: int) -> int:
    if size is None:
        return default
    if isinstance(size, int):
        return size
    return int(size * n / k) if default == 0 else -int(-size * n // k)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_cosine_and_sparse_rows_are_optimal_too(metric: Any, sparse: bool) -> None:
    X = np.abs(rows_of(n=120, d=5)) + 0.1
    X[np.random.default_rng(0).random(X.shape) < 0.4] = 0
    X[:, 0] += 0.01
    model = KMeans(6, metric=metric, size_max=1.0, random_state=0, n_init=1)
    model.fit(sp.csr_array(X) if sparse else X)
    costs = squared(X, model.cluster_centers_)
    if metric == "cosine":
        unit = X / np.linalg.norm(X, axis=1, keepdims=True)
        costs = 1 - unit @ np.asarray(model.cluster_centers_).T
    assert np.bincount(model.labels_).max() == 20
    assert model.inertia_ == pytest.approx(least_cost(costs, 0, 20), rel=1e-6)
    # prices_ are in units of the objective: the cheapest cluster is the label.
    priced = costs + model.prices_
    own = priced[np.arange(120), model.labels_]
    assert (own <= priced.min(axis=1) + 1e-9).all()


@st.composite
def problems(draw: st.DrawFn) -> tuple[Any, NDArray[np.float64] | None, dict[str, Any]]:
    """Few values, so that duplicates and ties abound."""
    n, d = draw(st.integers(1, 40)), draw(st.integers(1, 3))
    k = draw(st.integers(1, min(n, 6)))
    palette = draw(st.sampled_from([[0.0, 1.0], [-1.0, 0.0, 2.0, 3.0], [0.1, 0.2, 1 / 3]]))
    X: Any = draw(arrays(np.float64, (n, d), elements=st.sampled_from(palette)))
    X = X.astype(draw(st.sampled_from(DTYPES)))
    weights = None
    if draw(st.booleans()):
        weights = draw(arrays(np.float64, n, elements=st.sampled_from([0.1, 1.0, 2.0])))
    low, high = draw(st.integers(0, n // k)), draw(st.integers(-(-n // k), n))
    options = {
        "n_clusters": k,
        "n_init": 1,
        "size_min": draw(st.sampled_from([None, low])),
        "size_max": draw(st.sampled_from([None, high])),
        "random_state": draw(st.integers(0, 3)),
        "max_iter": draw(st.sampled_from([1, 3, 100])),
    }
    return (sp.csr_matrix(X) if draw(st.booleans()) else X), weights, options


def fitted(X: Any, weights: Any, options: dict[str, Any], **more: Any) -> KMeans:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Number of distinct clusters")
        return KMeans(**{**options, **more}).fit(X, sample_weight=weights)


@given(problems())
def test_limits_hold_and_predict_repeats_the_labels(problem: Any) -> None:
    X, weights, options = problem
    model = fitted(X, weights, options)
    n, k = X.shape[0], options["n_clusters"]
    sizes = np.bincount(model.labels_, minlength=k)
    assert (options["size_min"] or 0) <= sizes.min()
    assert sizes.max() <= (n if options["size_max"] is None else options["size_max"])
    assert np.array_equal(model.predict(X), model.labels_)
    assert model.score(X, sample_weight=weights) == -model.inertia_
    history = [record.inertia for record in model.history_]
    assert all(after <= before + 1e-4 for before, after in pairwise([*history, model.inertia_]))


@given(problems())
def test_blocks_and_threads_give_the_same_bits(problem: Any) -> None:
    X, weights, options = problem
    one = fitted(X, weights, options, n_jobs=1)
    half = X.shape[0] // 2
    for other in [X, *([cut(X, [half])] if half else [])]:
        model = fitted(other, weights, options, n_jobs=3)
        assert bits(model) == bits(one)
        if hasattr(one, "prices_"):
            assert model.prices_.tobytes() == one.prices_.tobytes()


def test_many_rows_come_by_samples_and_in_blocks() -> None:
    X = datasets.blobs(60_000, 6, 40, spread=3.0, seed=1)
    X[:20_000] = np.round(X[:20_000])
    options: dict[str, Any] = {
        "n_clusters": 40,
        "init": X[:40],
        "n_init": 1,
        "max_iter": 5,
        "size_max": 1.0,
    }
    model = KMeans(**options, size_min=1.0).fit(X)
    assert set(np.bincount(model.labels_)) == {1500}
    assert set(np.bincount(model.predict(X, size_min=1500, size_max=1500))) == {1500}
    assert np.array_equal(model.predict(X), model.labels_)
    again = KMeans(**options, size_min=1.0, n_jobs=1).fit(cut(X, [7, 20_000, 20_001]))
    assert bits(again) == bits(model)


@pytest.mark.parametrize("size_min", [None, 0.5])
def test_prices_certify_the_optimum_of_many_rows(size_min: float | None) -> None:
    """Only full clusters have prices above 0, only those of least size have prices below 0."""
    X = np.concatenate([datasets.blobs(20_000, 5, 10, spread=s, seed=1) for s in (1.0, 6.0)])
    options: dict[str, Any] = {"size_min": size_min, "size_max": 1.3, "init": X[:25], "n_init": 1}
    for max_iter in (1, 2, 8):
        model = KMeans(25, **options, max_iter=max_iter).fit(X)
        sizes = np.bincount(model.labels_, minlength=25)
        assert (sizes[model.prices_ > 1e-9] == 2080).all()
        assert (sizes[model.prices_ < -1e-9] == (0 if size_min is None else 800)).all()
        priced = squared(X, model.cluster_centers_) + model.prices_
        assert (priced[np.arange(len(X)), model.labels_] <= priced.min(axis=1) + 1e-9).all()


def test_the_filter_of_sparse_rows_changes_nothing() -> None:
    """With 32 centres or more the int8 filter certifies gaps; dense rows never use it."""
    rng = np.random.default_rng(4)
    X: Any = sp.random_array((3000, 60), density=0.15, rng=rng, format="csr")
    X.data = np.round(X.data * 8) / 8 + 0.125  # sums of products are exact in any order
    centres = X[:48].toarray()
    options: dict[str, Any] = {
        "n_clusters": 48,
        "init": centres,
        "n_init": 1,
        "max_iter": 1,
        "size_max": 1.1,
    }
    sparse, dense = KMeans(**options).fit(X), KMeans(**options).fit(X.toarray())
    assert sparse.inertia_ == pytest.approx(dense.inertia_, rel=1e-6)
    assert np.array_equal(sparse.predict(X), sparse.labels_)
    costs = squared(X, sparse.cluster_centers_)
    assert sparse.inertia_ == pytest.approx(by_linear_program(costs, 0, 69), rel=1e-9)


def test_files_keep_prices_and_rows_on_borders(tmp_path: Any) -> None:
    X = np.repeat(rows_of(20), 5, axis=0)
    model = KMeans(4, size_min=1.0, size_max=1.0, random_state=0, n_init=1).fit(X)
    assert len(model._limited.border.labels)  # duplicates in several clusters
    model.save(tmp_path / "model")
    loaded = exactmeans.load(tmp_path / "model")
    assert np.array_equal(loaded.prices_, model.prices_)
    assert np.array_equal(loaded.predict(X), model.labels_)
    assert loaded.explain() == model.explain()


class Killed(BaseException):
    pass


def test_a_checkpoint_resumes_with_the_same_bits(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from exactmeans.io import checkpoint

    monkeypatch.setattr(checkpoint, "INTERVAL", 0.0)
    X = rows_of(400)
    options: dict[str, Any] = {"n_clusters": 6, "size_max": 1.05, "n_init": 2, "random_state": 1}
    expected = KMeans(**options).fit(X)

    def kill(record: Any) -> None:
        if (record.run, record.iteration) in {(0, 3), (1, 2)} - seen:
            seen.add((record.run, record.iteration))
            raise Killed

    seen: set[tuple[int, int]] = set()
    for _ in range(2):
        with pytest.raises(Killed):
            KMeans(**options, checkpoint=tmp_path / "c", callbacks=kill).fit(X)
    model = KMeans(**options, checkpoint=tmp_path / "c").fit(X)
    assert bits(model) == bits(expected)
    assert model.prices_.tobytes() == expected.prices_.tobytes()
    finished = KMeans(**options, checkpoint=tmp_path / "c").fit(X)
    assert np.array_equal(finished.predict(X), expected.labels_)


def test_new_rows_follow_the_power_diagram() -> None:
    X, new = rows_of(300, seed=1), rows_of(100, seed=2)
    model = KMeans(5, size_max=1.0, random_state=0, n_init=1).fit(X)
    expected = (squared(new, model.cluster_centers_) + model.prices_).argmin(axis=1)
    assert np.array_equal(model.predict(new), expected)
    balanced = model.predict(new, size_max=20)
    assert set(np.bincount(balanced)) == {20}
    # A fit without limits forgets the prices.
    model.set_params(size_max=None).fit(X)
    assert not hasattr(model, "prices_")


def test_rows_without_direction_are_not_counted() -> None:
    X = np.abs(rows_of(100)) + 0.1
    X[::10] = 0
    model = KMeans(5, metric="cosine", zero_rows="keep", size_max=18, random_state=0).fit(X)
    assert (model.labels_[::10] == -1).all()
    assert np.bincount(model.labels_[model.labels_ >= 0]).tolist() == [18] * 5
    assert np.array_equal(model.predict(X), model.labels_)


def test_explain_says_what_limits_cost() -> None:
    X = rows_of(300)
    model = KMeans(5, size_min=1.0, size_max=1.0, random_state=0, n_init=1).fit(X)
    facts = model.explain(as_dict=True)["limits"]
    nearest = squared(X, model.cluster_centers_)
    assert facts["size_min"] == facts["size_max"] == 60
    assert facts["inertia_without_limits"] == pytest.approx(nearest.min(axis=1).sum())
    assert facts["rows_not_nearest"] == np.count_nonzero(nearest.argmin(axis=1) != model.labels_)
    assert "size limits: 60 to 60 rows" in model.explain()
    assert "algorithm: lloyd (size limits)" in model.explain()


REFUSED = [
    ({"size_max": 59}, "size_max must be at least 60, but 5 clusters of at most 59 rows hold 295"),
    ({"size_min": 61}, "size_min must be at most 60, but 5 clusters of at least 61 rows need 305"),
    ({"size_min": 1.5}, "size_min must be at most 60, but 5 clusters of at least 90"),
    ({"size_min": 60, "size_max": 0}, "size_max must be None, an int of at least 1"),
    ({"size_max": "many"}, "size_max must be None, an int of at least 1"),
    ({"size_max": True}, "size_max must be None"),
    ({"size_max": -1.0}, "size_max must be None"),
    ({"size_max": 60, "metric": "manhattan"}, "metric must be 'euclidean' or 'cosine' with"),
    ({"size_max": 60, "algorithm": "elkan"}, "algorithm must be 'auto' or 'lloyd' with size_min"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_what_cannot_be_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        KMeans(5, **options).fit(rows_of(300))


def test_batches_and_clusters_of_machines_refuse_limits() -> None:
    with pytest.raises(ValueError, match="size_max must be None for MiniBatchKMeans"):
        MiniBatchKMeans(5, size_max=60).fit(rows_of(300))
    da = pytest.importorskip("dask.array")
    from exactmeans.dask import KMeans as DaskKMeans

    with pytest.raises(ValueError, match="size_max must be None for Dask collections"):
        DaskKMeans(5, size_max=60).fit(da.from_array(rows_of(300), chunks=(100, 4)))
