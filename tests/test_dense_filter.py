"""The 8-bit filter for dense rows changes how long passes take, never what they give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from exactmeans import KMeans, MiniBatchKMeans, _core
from exactmeans.fit import policy
from models import assert_same_model

K, N, D = 128, 4000, 160
pytestmark = [
    pytest.mark.core,
    pytest.mark.skipif(
        _core.code_bytes(True, N, K, D, 9) == 0,
        reason=f"{_core.active_isa()} has no integer dot products",
    ),
]


def rows(dtype: Any, seed: int = 0, offset: float = 0.0) -> Any:
    random = np.random.default_rng(seed)
    centres = random.normal(size=(K, D)) * 1.5
    X = centres[random.integers(K, size=N)] + random.normal(size=(N, D)) + offset
    X[:20] = X[20:40]  # ties of rows
    X[40:60] = 0
    return np.ascontiguousarray(X, dtype=dtype)


def fit(X: Any, algorithm: Any = "lloyd", **params: Any) -> KMeans:
    return KMeans(
        K, init=X[100 : 100 + K], n_init=1, max_iter=8, tol=0, algorithm=algorithm, **params
    ).fit(X)


def test_codes_are_kept_only_if_enough_passes_follow() -> None:
    """Quantising all rows costs more than one pass saves if the centres are few."""
    for single in (True, False):
        kept = [_core.code_bytes(single, N, 100, D, passes) > 0 for passes in (1, 2, 5, 30)]
        assert kept == sorted(kept)
        assert kept[-1]
    assert _core.code_bytes(True, N, 100, 100, 1) == 0
    X = rows(np.float32)
    short, long = (
        KMeans(40, init=X[100:140], n_init=1, max_iter=m, tol=0, algorithm="lloyd").fit(X)
        for m in (1, 30)
    )
    assert not short.history_[0].filtered
    assert long.history_[0].filtered == N


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("offset", [0.0, 30.0])
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_the_filter_gives_the_bits_of_algorithms_without_it(
    dtype: Any, offset: float, metric: str
) -> None:
    X = rows(dtype, offset=offset)
    params: dict[str, Any] = {"metric": metric}
    if metric == "cosine":
        params["zero_rows"] = "keep"
    filtered = fit(X, **params)
    # Rows decided by codes, and far fewer distances than rows times centres.
    assert all(record.skipped > N / 4 for record in filtered.history_[1:])
    assert filtered.n_distances_ < 0.2 * N * K * filtered.n_iter_
    assert_same_model(filtered, fit(X, "elkan", **params))
    assert_same_model(filtered, fit(X, n_jobs=2, **params))
    assert np.array_equal(filtered.predict(X), filtered.labels_)
    assert np.array_equal(filtered.predict(X[::-1]), filtered.labels_[::-1])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("algorithm", ["hamerly", "yinyang"])
def test_bounds_from_the_filter_give_the_same_bits(algorithm: str, dtype: Any) -> None:
    X = rows(dtype, offset=3.0)
    model = fit(X, algorithm)
    # Canonical scores of all centres would be N * K of them.
    assert model.history_[0].distances < 0.2 * N * K
    assert_same_model(model, fit(X, "elkan"))
    assert_same_model(model, fit(X, algorithm, n_jobs=2))


@pytest.mark.parametrize("algorithm", ["hamerly", "yinyang"])
def test_bounds_from_the_filter_for_directions(algorithm: str) -> None:
    X = rows(np.float32)
    model = fit(X, algorithm, metric="cosine", zero_rows="keep")
    assert_same_model(model, fit(X, "elkan", metric="cosine", zero_rows="keep"))


def extreme(kind: str) -> Any:
    random = np.random.default_rng(3)
    X = rows(np.float32)
    if kind == "magnitudes":
        return (X * 10.0 ** random.uniform(-6, 6, (N, 1))).astype(np.float32)
    if kind == "offset":
        return X + np.float32(1e5)
    if kind == "constant":
        X[:] = 7
        X[100 : 100 + K, 0] += np.arange(K)  # centres that differ
    if kind == "duplicates":
        X[200:] = X[200 + np.arange(N - 200) % 300]
    return X


@pytest.mark.parametrize("algorithm", ["lloyd", "hamerly", "yinyang", "pca", "auto"])
@pytest.mark.parametrize("kind", ["magnitudes", "offset", "constant", "duplicates"])
def test_wild_data_has_the_bits_of_elkan(kind: str, algorithm: str) -> None:
    X = extreme(kind)
    assert_same_model(fit(X, algorithm), fit(X, "elkan"))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("m", [1, 2, 9, 40])
def test_nearest_is_the_same_without_the_filter(m: int, dtype: Any) -> None:
    X = rows(dtype)
    model = fit(X)
    labels, distances = model.nearest(X, m)
    # Few rows are compared with all centres.
    pieces = [model.nearest(X[begin : begin + 1000], m) for begin in range(0, N, 1000)]
    np.testing.assert_array_equal(labels, np.concatenate([own[0] for own in pieces]))
    np.testing.assert_array_equal(distances, np.concatenate([own[1] for own in pieces]))
    all_ = model.transform(X)
    np.testing.assert_array_equal(distances, np.take_along_axis(all_, labels.astype(int), axis=1))
    assert (np.diff(distances, axis=1) >= -1e-5 * distances[:, 1:]).all()
    np.testing.assert_allclose(distances, np.sort(all_, axis=1)[:, :m], rtol=1e-5, atol=1e-5)


def test_auto_makes_no_probe_for_a_very_short_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    class ProbeError(Exception):
        pass

    def probe(*_: Any) -> float:
        raise ProbeError

    monkeypatch.setattr(policy, "cost_with_filter", probe)
    X = rows(np.float32)
    KMeans(K, init=X[:K], n_init=1, max_iter=2, tol=0).fit(X)
    with pytest.raises(ProbeError):
        KMeans(K, init=X[:K], n_init=1, max_iter=3, tol=0).fit(X)


def test_fortran_order_and_strides_do_without_the_filter() -> None:
    X = rows(np.float32)
    assert_same_model(fit(X), fit(np.asfortranarray(X)))
    wide = np.zeros((N, 2 * D), dtype=np.float32)
    wide[:, ::2] = X
    assert_same_model(fit(X), fit(wide[:, ::2]))


@pytest.mark.parametrize("algorithm", ["lloyd", "hamerly", "yinyang"])
def test_explain_tells_what_the_filter_decided(algorithm: str) -> None:
    X = rows(np.float32)
    model = fit(X, algorithm)
    passes = [record for record in model.history_ if record.filtered]
    compared = sum(record.filtered for record in passes)
    facts = model.explain(as_dict=True)["integer_filter"]
    assert facts["iterations"] == len(passes) > 0
    assert facts["rows"] == compared
    assert facts["decided_share"] == sum(r.decided for r in passes) / compared
    assert facts["candidates_per_row"] == sum(r.verified for r in passes) / compared
    assert f"% of {compared} rows in {len(passes)} iterations and left" in model.explain()
    assert all(len(line) <= 100 for line in model.explain().splitlines())
    for record in passes:
        assert record.filtered <= N
        assert record.decided <= record.filtered
        if algorithm == "lloyd":
            assert (record.skipped, record.distances) == (record.decided, record.verified)
        else:
            assert record.filtered <= N - record.skipped
            assert record.distances >= record.filtered + record.verified
    if algorithm == "yinyang":  # uses it for its first bounds only
        assert len(passes) == 1
    few = KMeans(3, n_init=1, random_state=0, algorithm="lloyd").fit(X)
    assert few.explain(as_dict=True)["integer_filter"] is None
    assert "8-bit filter" not in few.explain()


@pytest.mark.parametrize("algorithm", ["lloyd", "hamerly", "yinyang"])
def test_statistics_of_the_filter_count_twins(algorithm: Any) -> None:
    """Codes decide rows of clusters far apart, except rows whose centre occurs twice.

    Such a row has two candidates, which tie, and are compared by canonical scores too: four
    distances. yinyang leaves the second of equal centres out.
    """
    random = np.random.default_rng(5)
    n, k = 2400, 160  # with more rows, inter-centre distances would prune in yinyang's first pass
    centres = 10 * random.normal(size=(k, D)).astype(np.float32)
    centres[7] = centres[3]
    label = random.integers(k, size=n)
    X = (centres[label] + 0.1 * random.normal(size=(n, D))).astype(np.float32)
    first = KMeans(k, init=centres, n_init=1, max_iter=1, algorithm=algorithm).fit(X)
    record = first.history_[0]
    twins = 0 if algorithm == "yinyang" else np.isin(label, (3, 7)).sum()
    assert (record.filtered, record.decided, record.verified) == (n, n - twins, 4 * twins)
    # Bounds need the distance to the label of every row.
    assert record.distances == 4 * twins + (0 if algorithm == "lloyd" else n)
    assert record.skipped == (n - twins if algorithm == "lloyd" else 0)


@pytest.mark.parametrize("method", ["sgd", "memoized"])
def test_mini_batches_tell_what_the_filter_decided(method: Any) -> None:
    X = rows(np.float32)
    options: dict[str, Any] = {"method": method, "init": X[100 : 100 + K], "max_iter": 2}
    large, small = (
        MiniBatchKMeans(K, n_init=1, batch_size=size, random_state=0, **options).fit(X)
        for size in (N, 1000)
    )
    assert "8-bit filter" in large.explain()
    for record in large.history_:
        assert record.filtered == N
        assert N / 4 < record.decided == record.skipped
        assert record.distances == record.verified < 0.2 * N * K
    last = large.n_distances_ - sum(record.distances for record in large.history_)
    assert 0 <= last < 0.2 * N * K
    # Batches of fewer rows than quantising the centres pays for.
    assert not any(record.filtered for record in small.history_)
    assert all(record.distances % K == 0 for record in small.history_)


def test_statistics_of_the_filter_are_of_distinct_rows() -> None:
    X = rows(np.float32)
    distinct = 60 + 2440
    X = X[np.concatenate((np.arange(distinct), np.arange(N - distinct)))]
    model = fit(X, "auto")
    compared = model.explain(as_dict=True)["distinct_rows"]
    assert compared < N
    plain = [record for record in model.history_ if record.algorithm == "lloyd"]
    assert plain
    for record in plain:
        assert record.filtered == compared
        assert record.skipped == N - compared + record.decided


def test_without_room_codes_are_not_kept() -> None:
    X = rows(np.float32)
    plain = fit(X)
    assert plain.explain(as_dict=True)["bytes_needed"] > N * D
    limit = N * D * 3 // 4
    tight = fit(X, memory_limit=limit)
    assert tight.explain(as_dict=True)["bytes_needed"] <= limit
    assert_same_model(plain, tight)


def test_data_that_codes_cannot_decide_goes_without() -> None:
    random = np.random.default_rng(1)
    # One feature dwarfs the others, which alone tell clusters apart.
    X = rows(np.float32)
    X[:, 0] = 1e4 * random.normal(size=N)
    model = fit(X)
    assert model.history_[-1].distances > 0.5 * N * K
    assert_same_model(model, fit(X, "elkan"))


def test_values_that_are_not_finite_are_refused() -> None:
    X = rows(np.float32)
    model = fit(X)
    X[7, 3] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        model.predict(X)
