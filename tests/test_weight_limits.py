"""Size limits on weights: kept up to the weight of a row, at the least cost for their weights."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from scipy.optimize import linprog
from sklearn.base import clone

import exactmeans
from cases import DTYPES, bits, cut
from exactmeans import KMeans, MiniBatchKMeans
from test_limits import Killed, rows_of, squared

pytestmark = pytest.mark.core


def least_cost(
    costs: NDArray[np.float64], weights: NDArray[np.float64], least: Any, most: Any
) -> float:
    """The optimum of the linear program, which may split rows between clusters."""
    n, k = costs.shape
    solve: Any = linprog  # its stubs know no sparse constraints
    each = sp.kron(sp.eye_array(n), np.ones((1, k)))
    sizes = sp.kron(weights[None], sp.eye_array(k))
    found = solve(
        (costs * weights[:, None]).ravel(),
        A_ub=sp.vstack([sizes, -sizes]),
        b_ub=np.concatenate([np.broadcast_to(most, k), -np.broadcast_to(least, k)]),
        A_eq=each,
        b_eq=np.ones(n),
        bounds=(0, 1),
    )
    assert found.status == 0
    return float(found.fun)


def weights_of(n: int, seed: int = 0) -> NDArray[np.float64]:
    rng = np.random.default_rng(seed)
    return np.where(rng.random(n) < 0.1, 0.0, rng.lognormal(0, 1, n))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("size_min", "size_max"), [(1.0, 1.0), (None, 1.2), (0.7, None), (5, 90)])
def test_weights_are_kept_up_to_one_row_at_the_least_cost(
    dtype: str, sparse: bool, size_min: Any, size_max: Any
) -> None:
    n, k = 203, 6
    X, weights = rows_of(n).astype(dtype), weights_of(n)
    given: Any = sp.csr_array(X) if sparse else X
    options: dict[str, Any] = {"n_clusters": k, "size_min": size_min, "size_max": size_max}
    model = KMeans(**options, size_of="weight", random_state=0, n_init=1)
    model.fit(given, sample_weight=weights)
    mean = weights.sum() / k
    least = {None: 0.0, 5: 5.0}.get(size_min, (size_min or 0) * mean)
    most = {None: weights.sum(), 90: 90.0}.get(size_max, (size_max or 0) * mean)
    sums = np.bincount(model.labels_, weights, minlength=k)
    largest = weights.max()
    assert sums.min() > least - largest
    assert sums.max() < most + largest
    assert np.array_equal(model.predict(given), model.labels_)
    costs = squared(X, model.cluster_centers_)
    # No other assignment with these weights costs less, even if it splits rows.
    slack = 1e-9 * weights.sum()
    exact = least_cost(costs, weights, sums - slack, sums + slack)
    assert model.inertia_ == pytest.approx(exact, rel=1e-5)
    # And it is off the optimum within the limits by what rounding moves, at the prices.
    relaxed = least_cost(costs, weights, least, most)
    assert abs(model.inertia_ - relaxed) <= np.abs(model.prices_).sum() * largest + 1e-5 * relaxed


@st.composite
def problems(draw: st.DrawFn) -> tuple[Any, NDArray[np.float64], dict[str, Any]]:
    """Few values and weights, so that duplicates and ties abound."""
    n, d = draw(st.integers(1, 40)), draw(st.integers(1, 3))
    k = draw(st.integers(1, min(n, 6)))
    X: Any = draw(arrays(np.float64, (n, d), elements=st.sampled_from([-1.0, 0.0, 1 / 3, 2.0])))
    X = X.astype(draw(st.sampled_from(DTYPES)))
    palette = draw(st.sampled_from([[1.0], [0.1, 1.0, 7.5], [0.0, 1 / 3, 2.0], [1e-300, 1e-297]]))
    weights = draw(arrays(np.float64, n, elements=st.sampled_from(palette)))
    weights[0] = palette[-1]
    options = {
        "n_clusters": k,
        "n_init": 1,
        "size_min": draw(st.sampled_from([None, 0.5, 1.0])),
        "size_max": draw(st.sampled_from([None, 1.0, 1.3])),
        "size_of": "weight",
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
    k, total, largest = options["n_clusters"], weights.sum(), weights.max()
    sums = np.bincount(model.labels_, weights, minlength=k)
    room = largest + 1e-12 * total
    assert sums.min() >= (options["size_min"] or 0) * total / k - room
    if options["size_max"] is not None:
        assert sums.max() <= options["size_max"] * total / k + room
    assert np.array_equal(model.predict(X), model.labels_)


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


def test_equal_weights_are_rows() -> None:
    X = rows_of(300)
    options: dict[str, Any] = {"size_max": 1.0, "random_state": 0, "n_init": 1}
    rows = KMeans(5, **options).fit(X)
    weight = KMeans(5, **options, size_of="weight")
    assert bits(weight.fit(X)) == bits(rows)
    weight.fit(X, sample_weight=np.full(300, 0.25))
    assert np.bincount(weight.labels_).tolist() == [60] * 5


def test_many_rows_in_blocks_keep_weights() -> None:
    rng = np.random.default_rng(2)
    X, weights = rng.normal(size=(40_000, 5)), rng.lognormal(0, 1, 40_000)
    options: dict[str, Any] = {"init": X[:20], "n_init": 1, "max_iter": 4, "size_of": "weight"}
    model = KMeans(20, **options, size_min=1.0, size_max=1.0).fit(X, sample_weight=weights)
    sums = np.bincount(model.labels_, weights)
    assert np.abs(sums - weights.sum() / 20).max() < weights.max()
    assert np.array_equal(model.predict(X), model.labels_)
    again = KMeans(20, **options, size_min=1.0, size_max=1.0, n_jobs=1)
    again.fit(cut(X, [7, 20_000]), sample_weight=weights)
    assert bits(again) == bits(model)


def test_files_and_checkpoints_keep_weight_limits(tmp_path: Any) -> None:
    X, weights = np.repeat(rows_of(40), 5, axis=0), weights_of(200)
    options: dict[str, Any] = {"size_max": 1.1, "size_of": "weight", "random_state": 0, "n_init": 1}
    model = KMeans(4, **options).fit(X, sample_weight=weights)
    assert model.get_params()["size_of"] == "weight"
    assert clone(model).size_of == "weight"
    model.save(tmp_path / "model")
    loaded = exactmeans.load(tmp_path / "model")
    assert loaded.size_of == "weight"
    assert np.array_equal(loaded.predict(X), model.labels_)
    assert loaded.explain() == model.explain()

    def kill(record: Any) -> None:
        if record.iteration == 2:
            raise Killed

    with pytest.raises(Killed):
        KMeans(4, **options, checkpoint=tmp_path / "c", callbacks=kill).fit(
            X, sample_weight=weights
        )
    resumed = KMeans(4, **options, checkpoint=tmp_path / "c").fit(X, sample_weight=weights)
    assert bits(resumed) == bits(model)


def test_explain_names_weights() -> None:
    X, weights = rows_of(100), weights_of(100)
    model = KMeans(5, size_max=1.5, size_of="weight", random_state=0, n_init=1)
    model.fit(X, sample_weight=weights)
    told = model.explain(as_dict=True)["limits"]
    assert told["size_of"] == "weight"
    assert told["size_max"] == pytest.approx(1.5 * weights.sum() / 5)
    assert "size limits: weights of 0 to " in model.explain()


def test_rows_without_direction_have_no_weight() -> None:
    X, weights = np.abs(rows_of(100)) + 0.1, weights_of(100)
    X[::10] = 0
    model = KMeans(
        5, metric="cosine", zero_rows="keep", size_max=1.0, size_of="weight", random_state=0
    ).fit(X, sample_weight=weights)
    own = model.labels_ >= 0
    sums = np.bincount(model.labels_[own], weights[own])
    assert sums.max() < weights[own].sum() / 5 + weights.max()
    assert np.array_equal(model.predict(X), model.labels_)


REFUSED = [
    ({"size_max": 1}, r"size_max must be at least 20 with size_of='weight', but 5 clusters of at"),
    ({"size_min": 40}, r"size_min must be at most 20 with size_of='weight', but 5 clusters of at"),
    ({"size_max": 0.5}, r"hold 50, and all rows weigh 100"),
    ({"size_max": 1.0, "size_of": "mass"}, r"size_of must be one of 'rows', 'weight'"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_what_cannot_be_is_refused(options: dict[str, Any], message: str) -> None:
    model = KMeans(5, **{"size_of": "weight", **options})
    with pytest.raises(ValueError, match=message):
        model.fit(rows_of(50), sample_weight=np.full(50, 2.0))


def test_batches_take_the_parameter_without_limits() -> None:
    X = rows_of(300)
    plain = MiniBatchKMeans(5, random_state=0).fit(X)
    assert bits(MiniBatchKMeans(5, random_state=0, size_of="weight").fit(X)) == bits(plain)
    with pytest.raises(ValueError, match="size_of must be one of 'rows', 'weight'"):
        MiniBatchKMeans(5, size_of="mass").fit(X)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="size_max must be None for MiniBatchKMeans"):
        MiniBatchKMeans(5, size_max=1.1, size_of="weight").fit(X)


def test_memory_limits_count_the_options_of_open_rows() -> None:
    X = np.zeros((20_000, 2))  # every row is on the border
    X[0], init = 1, np.array([[0.0, 0], [1, 1], [0, 1], [1, 0]])
    options: dict[str, Any] = {"init": init, "n_init": 1, "max_iter": 1, "size_max": 1.0}
    with pytest.raises(ValueError, match=r"memory_limit must leave .* bytes for the clusters that"):
        KMeans(4, **options, memory_limit=3_000_000).fit(X)
    with pytest.raises(ValueError, match=r"memory_limit must be at least .* with size limits"):
        KMeans(400, size_max=1.0, n_init=1, memory_limit=4_500_000).fit(rows_of(2000))
    roomy = KMeans(4, **options, memory_limit=40_000_000).fit(X)
    assert np.bincount(roomy.labels_).tolist() == [5000] * 4
