"""MiniBatchKMeans: as good as scikit-learn's by gradient steps, as Lloyd's by exchange."""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn.cluster
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

import cases
import datasets
import exactmeans
import metric_oracle as metrics
import oracle
from exactmeans import Iteration, KMeans, MiniBatchKMeans, open_blocks
from exactmeans.fit import batches, sparse_sgd
from models import same_clustering

METHODS = ["sgd", "memoized"]
Csr: Any = sp.csr_matrix
Test = TypeVar("Test", bound=Callable[..., None])

_DRAWS = "which rows are drawn depends on the number of rows"
EXPECTED_FAILURES = {
    "check_sample_weight_equivalence_on_dense_data": _DRAWS,
    "check_sample_weight_equivalence_on_sparse_data": _DRAWS,
}


def _expected(estimator: Any) -> dict[str, str]:
    return EXPECTED_FAILURES


def _with_checks(*estimators: Any) -> Callable[[Test], Test]:
    decorate: Callable[[Test], Test] = parametrize_with_checks(
        list(estimators), expected_failed_checks=_expected
    )
    return decorate


@_with_checks(MiniBatchKMeans(), MiniBatchKMeans(method="memoized", batch_size=16))
def test_scikit_learn_check(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


def test_parameters_are_those_of_scikit_learn() -> None:
    theirs = inspect.signature(sklearn.cluster.MiniBatchKMeans).parameters
    ours = inspect.signature(MiniBatchKMeans).parameters
    assert set(theirs) <= set(ours)
    for name, parameter in theirs.items():
        assert (ours[name].kind, ours[name].default) == (parameter.kind, parameter.default), name


def blobs(n: int = 900, spread: float = 2.0) -> NDArray[np.float64]:
    return datasets.blobs(n, 4, 6, spread=spread, seed=8)


# sgd ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["digits", "blobs_many", "blobs_overlapping", "sparse_unit"])
def test_sgd_is_as_good_as_scikit_learns(name: str) -> None:
    """On the average of some runs, each from good seeds; single ones differ by what they draw."""
    data = datasets.load(name)
    options: dict[str, Any] = {"n_clusters": data.k, "batch_size": 256, "n_init": 5}
    ours, theirs = [], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(16):
            ours.append(MiniBatchKMeans(random_state=seed, **options).fit(data.X).inertia_)
            other = sklearn.cluster.MiniBatchKMeans(random_state=seed, **options).fit(data.X)
            theirs.append(other.inertia_)
    assert np.mean(ours) <= 1.01 * np.mean(theirs)


DRAWS: dict[str, dict[str, Any]] = {
    "default": {},
    "random": {"init": "random", "batch_size": 300},
    "three seedings, tol": {"n_init": 3, "tol": 1e-3, "max_no_improvement": None, "max_iter": 20},
    "many reassignments": {"reassignment_ratio": 0.9},
    "all passes": {"batch_size": 700, "max_iter": 3, "max_no_improvement": None},
    "a small sample": {"init_size": 40},
    "no labels": {"compute_labels": False},
}


# Since then batches are drawn by weight, which takes other random numbers without weights as well.
DRAWS_BY_WEIGHT = tuple(map(int, sklearn.__version__.split(".")[:2])) >= (1, 9)


@pytest.mark.skipif(not DRAWS_BY_WEIGHT, reason="scikit-learn before 1.9 draws other batches")
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("form", ["dense64", "dense32", "csr64"])
@pytest.mark.parametrize("name", DRAWS)
def test_fits_are_those_of_scikit_learn(name: str, form: str, weighted: bool) -> None:
    """The same rows are drawn and the same rules stop the fit, so only roundings differ."""
    X: Any = blobs(2000, spread=3.0).astype("float32" if form.endswith("32") else "float64")
    X = Csr(X) if form.startswith("csr") else X
    rng = np.random.default_rng(0)
    weight = rng.uniform(0.2, 3, 2000) * (rng.random(2000) < 0.8) if weighted else None
    options: dict[str, Any] = {"batch_size": 100, "random_state": 2, **DRAWS[name]}
    ours, theirs = (
        kind(6, **options).fit(X, sample_weight=weight)
        for kind in (MiniBatchKMeans, sklearn.cluster.MiniBatchKMeans)
    )
    close = 1e-3 if form.endswith("32") else 1e-9
    np.testing.assert_allclose(ours.cluster_centers_, theirs.cluster_centers_, rtol=close)
    assert (ours.n_steps_, ours.n_iter_) == (theirs.n_steps_, theirs.n_iter_)
    assert ours.inertia_ == pytest.approx(theirs.inertia_, rel=close)
    for model in (ours, theirs):
        model.partial_fit(X[:500])
    np.testing.assert_allclose(ours.cluster_centers_, theirs.cluster_centers_, rtol=close)


@pytest.mark.parametrize("form", ["dense64", "dense32", "csr64"])
@pytest.mark.parametrize(
    "options",
    [
        {"init": "random", "n_init": 10},
        {"init": "k-means++"},
        {"init": "random", "init_size": 30},
        {"init": "random", "batch_size": 20, "reassignment_ratio": 0.7},
    ],
    ids=str,
)
def test_partial_fit_is_that_of_scikit_learn(form: str, options: dict[str, Any]) -> None:
    X: Any = blobs(1500, spread=3.0).astype("float32" if form.endswith("32") else "float64")
    X = Csr(X) if form.startswith("csr") else X
    weight = np.random.default_rng(0).uniform(0.2, 3, 1500)
    ours, theirs = (
        kind(6, random_state=1, **options)
        for kind in (MiniBatchKMeans, sklearn.cluster.MiniBatchKMeans)
    )
    for begin in range(0, 1500, 75):
        for model in (ours, theirs):
            model.partial_fit(X[begin : begin + 75], sample_weight=weight[begin : begin + 75])
    close = 1e-3 if form.endswith("32") else 1e-9
    np.testing.assert_allclose(ours.cluster_centers_, theirs.cluster_centers_, rtol=close)
    np.testing.assert_array_equal(ours.labels_, theirs.labels_)


def test_a_sample_smaller_than_the_clusters() -> None:
    X, seen = blobs(500), []

    def init(X: Any, k: int, random_state: Any) -> Any:
        seen.append(len(X))
        return X[:k]

    model = MiniBatchKMeans(20, init=init, n_init=1, init_size=10, batch_size=100)
    for call in (model.fit, MiniBatchKMeans(20, init=init, init_size=10).partial_fit):
        with pytest.warns(RuntimeWarning, match="should be larger than n_clusters=20") as caught:
            call(X)
        assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        model.set_params(init_size=20).fit(X)
        model.set_params(init_size=None).fit(X)
        model.set_params(batch_size=2).fit(X)
        model.set_params(method="memoized", init_size=10).fit(X)  # which takes all rows
    assert seen == [60, 60, 20, 300, 60, 500]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [1, 7, 1000, 123_457])
def test_positions_of_even_rows_are_those_that_a_search_finds(n: int, dtype: Any) -> None:
    cumulated = np.full(n, np.asarray(1, dtype) / np.asarray(n, dtype), dtype="float64").cumsum()
    cumulated /= cumulated[-1]
    edges = np.random.default_rng(0).choice(cumulated[:-1], min(n - 1, 500), replace=False)
    places = np.concatenate([[0.0], edges, np.nextafter(edges, 0), np.nextafter(edges, 1)])
    found = batches._positions(cumulated, places, even=True)
    np.testing.assert_array_equal(found, cumulated.searchsorted(places, side="right"))


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_samples_and_batches_are_drawn_among_rows_that_count(metric: Any) -> None:
    """However few they are: here one row in a hundred."""
    X, weight = 1e3 * np.ones((5000, 4)), np.zeros(5000)
    X[::100], weight[::100] = blobs(50) + 20.0, np.linspace(1e-300, 1e-299, 50)
    options: dict[str, Any] = {"batch_size": 20, "init_size": 40, "init": "random", "n_init": 2}
    model = MiniBatchKMeans(6, random_state=0, metric=metric, **options)
    model.fit(X, sample_weight=weight)
    rows = metrics.unit(X[::100]) if metric == "cosine" else X[::100]
    assert (model.cluster_centers_ >= rows.min(axis=0) - 1e-9).all()
    assert (model.cluster_centers_ <= rows.max(axis=0) + 1e-9).all()


def test_a_centre_is_the_mean_of_the_rows_it_was_nearest_to() -> None:
    """The definition, followed row by row in float64 by an independent loop."""
    X = blobs(300)
    centres = X[:6].copy()
    model = MiniBatchKMeans(6, init=X[:6], n_init=1, reassignment_ratio=0)
    weight = np.random.default_rng(0).uniform(0.5, 2, 300)
    seen, sums = np.zeros(6), np.zeros((6, 4))
    for begin in range(0, 300, 50):
        rows, own = X[begin : begin + 50], weight[begin : begin + 50]
        labels = ((rows[:, None] - centres) ** 2).sum(axis=2).argmin(axis=1)
        np.add.at(sums, labels, rows * own[:, None])
        np.add.at(seen, labels, own)
        centres = np.where(seen[:, None] > 0, sums / np.maximum(seen, 1e-300)[:, None], centres)
        model.partial_fit(rows, sample_weight=own)
        np.testing.assert_allclose(model.cluster_centers_, centres, rtol=1e-12)
    assert model.n_steps_ == 6
    assert (model.predict(X[250:]) == model.labels_).all()


@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_sgd_does_not_depend_on_threads(layout: str) -> None:
    X: Any = blobs(700) if layout == "dense" else datasets.load("sparse_random").X
    fits = [
        MiniBatchKMeans(6, random_state=1, batch_size=64, n_jobs=n_jobs).fit(X) for n_jobs in (1, 3)
    ]
    assert same_clustering(*fits)


def test_dense_and_csr_rows_give_the_same_clustering() -> None:
    X = blobs()
    a = MiniBatchKMeans(6, random_state=1, batch_size=100).fit(X)
    b = MiniBatchKMeans(6, random_state=1, batch_size=100).fit(Csr(X))
    np.testing.assert_allclose(b.cluster_centers_, a.cluster_centers_, rtol=1e-9)


def test_starving_centres_are_fed() -> None:
    """A centre that no row is near to is put on one; without the ratio it stays where it is."""
    X = blobs()
    init = np.vstack([X[:5], X[:1] + 1e3])
    options: dict[str, Any] = {"init": init, "n_init": 1, "random_state": 0, "batch_size": 100}
    for make in (np.asarray, Csr):
        fed = MiniBatchKMeans(6, **options).fit(make(X))
        assert len(np.unique(fed.labels_)) == 6
        with pytest.warns(Warning, match="Number of distinct clusters"):
            starved = MiniBatchKMeans(6, reassignment_ratio=0, **options).fit(make(X))
        np.testing.assert_array_equal(starved.cluster_centers_[5], init[5])
        assert fed.inertia_ < starved.inertia_


def test_sgd_stops_when_the_inertia_does_not_fall() -> None:
    X = blobs(2000)
    patient = MiniBatchKMeans(6, random_state=0, max_no_improvement=None, max_iter=3).fit(X)
    assert patient.n_steps_ == 3 * 2000 // 1024
    assert patient.n_iter_ == 3
    hasty = MiniBatchKMeans(6, random_state=0, max_no_improvement=1, batch_size=50).fit(X)
    assert hasty.n_steps_ < 100 * 2000 // 50
    assert "did not fall" in hasty.explain()
    converged = MiniBatchKMeans(6, random_state=0, tol=0.1, max_no_improvement=None).fit(X)
    assert "less than tol" in converged.explain()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("make", [np.asarray, Csr])
def test_one_batch_is_lloyds_algorithm(method: Any, metric: str, make: Any) -> None:
    X = blobs(500) + 3.0
    options: dict[str, Any] = {"init": X[:6], "n_init": 1, "metric": metric, "tol": 0}
    weight = np.random.default_rng(0).uniform(0.5, 2, 500)
    model = MiniBatchKMeans(6, method=method, **options).fit(make(X), sample_weight=weight)
    lloyd = KMeans(6, algorithm="lloyd", **options).fit(make(X), sample_weight=weight)
    assert same_clustering(model, lloyd)
    assert model.n_steps_ == model.n_iter_ == lloyd.n_iter_
    before = model.cluster_centers_.copy()
    model.partial_fit(make(X[:50]))  # goes on with the weights that the clusters have
    assert 0 < np.abs(model.cluster_centers_ - before).max() < 0.5


@pytest.mark.parametrize("n", [1100, 2400])
def test_all_rows_of_blocks_take_part_in_each_pass(n: int) -> None:
    """In batches of one size, as many passes as were asked for."""
    model = MiniBatchKMeans(6, random_state=0, max_no_improvement=None, max_iter=7)
    model.fit(open_blocks([blobs(n)]))
    assert model.n_iter_ == 7
    batches = -(-n // 1024)
    sizes = [record.distances // 6 for record in model.history_]
    assert sizes == [n // batches] * batches * 7


def test_verbose_sgd_tells_the_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    options: dict[str, Any] = {"random_state": 0, "batch_size": 50, "max_iter": 2, "verbose": 1}
    model = MiniBatchKMeans(6, **options, max_no_improvement=None).fit(blobs())
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == model.n_steps_ == 2 * 18
    for step, line in enumerate(lines, 1):
        assert re.match(rf"run 0 iteration {step}: inertia [\d.e+]+, [\d.e+]+ rows/s,", line)
        assert re.search(r"at most \d+ s left$", line)
    assert lines[-1].endswith("at most 0 s left")


def test_weight_zero_rows_do_not_pull() -> None:
    X = np.vstack([blobs(), np.full((300, 4), 1e5)])
    weights = np.r_[np.ones(900), np.zeros(300)]
    model = MiniBatchKMeans(6, random_state=0, batch_size=128).fit(X, sample_weight=weights)
    assert np.abs(model.cluster_centers_).max() < 100


# memoized -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", cases.params(c for c in cases.cases() if c.weights == "random"))
def test_one_batch_is_lloyd(case: cases.Case) -> None:
    options: dict[str, Any] = {"init": case.init, "n_init": 1, "tol": 0, "max_iter": 50}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = KMeans(case.k, **options).fit(case.X, sample_weight=case.sample_weight)
        model = MiniBatchKMeans(case.k, method="memoized", batch_size=10**6, **options)
        model.fit(case.X, sample_weight=case.sample_weight)
    assert same_clustering(model, expected)
    assert model.n_iter_ == expected.n_iter_


@pytest.mark.parametrize("batch_size", [7, 64])
@pytest.mark.parametrize("case", cases.params(c for c in cases.cases() if c.weights == "random"))
def test_memoized_falls_to_a_fixed_point(case: cases.Case, batch_size: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = MiniBatchKMeans(
            case.k, init=case.init, n_init=1, method="memoized", batch_size=batch_size
        ).fit(case.X, sample_weight=case.sample_weight)
        assert model.n_iter_ < 100
        # Lloyd's algorithm does not move from there, to the last bit.
        after = cases.fit(case.X, cases.dense(model.cluster_centers_), case.sample_weight)
    assert after.n_iter_ == 1
    assert same_clustering(model, after)
    falls = [record.inertia for record in model.history_]
    slack = 1e-9 * max(falls) + 1e-9 * falls[0]
    assert all(b <= a + slack for a, b in pairwise(falls))


def test_memoized_objective_falls_batch_by_batch() -> None:
    """Labels and centres of the estimator after each pass, inertia of the oracle."""
    X = blobs(200, spread=8.0)
    costs = []
    for passes in range(1, 9):
        model = MiniBatchKMeans(
            6, init=X[:6], n_init=1, method="memoized", batch_size=30, max_iter=passes
        ).fit(X)
        costs.append(oracle.inertia(X, model.cluster_centers_, model.labels_))
    assert all(b <= a for a, b in pairwise(costs))
    assert costs[-1] < costs[0]


# both ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_sources_are_read_by_blocks(method: str, layout: str, tmp_path: Path) -> None:
    X: Any = blobs()
    if layout == "csr":
        X = Csr(X)
        sp.save_npz(tmp_path / "x.npz", X)
    else:
        np.save(tmp_path / "x.npy", X)
    path = tmp_path / ("x.npy" if layout == "dense" else "x.npz")
    source = open_blocks(path, block_rows=200)
    options: dict[str, Any] = {"method": method, "random_state": 0, "init": X[:6], "n_init": 1}
    model = MiniBatchKMeans(6, batch_size=100, **options).fit(source)
    np.testing.assert_array_equal(model.predict(source), model.labels_)
    in_memory = open_blocks([X[a : a + 200] for a in range(0, 900, 200)])
    assert same_clustering(model, MiniBatchKMeans(6, batch_size=100, **options).fit(in_memory))


@pytest.mark.parametrize("method", METHODS)
def test_there_are_always_k_centres(method: Any) -> None:
    X = datasets.load("few_distinct").X
    with pytest.warns(Warning, match="Number of distinct clusters"):
        model = MiniBatchKMeans(6, method=method, random_state=0, batch_size=8).fit(X)
    assert model.cluster_centers_.shape == (6, 2)
    assert np.isfinite(model.cluster_centers_).all()


@pytest.mark.parametrize("method", METHODS)
def test_partial_fit_goes_on_from_fit_and_from_files(method: Any, tmp_path: Path) -> None:
    X = blobs()
    model = MiniBatchKMeans(6, method=method, random_state=0, batch_size=100).fit(X)
    model.save(tmp_path / "model")
    loaded = exactmeans.load(tmp_path / "model")
    assert type(loaded) is MiniBatchKMeans
    for other in (model, loaded):
        other.partial_fit(X[:50] + 1)
    assert same_clustering(model, loaded)
    assert not same_clustering(
        model, MiniBatchKMeans(6, method=method, random_state=0, batch_size=100).fit(X)
    )


@pytest.mark.parametrize("method", METHODS)
def test_callbacks_and_history(method: Any) -> None:
    seen: list[Iteration] = []

    def stop(record: Iteration) -> bool:
        seen.append(record)
        return record.iteration == 2

    model = MiniBatchKMeans(6, method=method, random_state=0, batch_size=100, callbacks=stop)
    model.fit(blobs(spread=8.0))
    assert len(seen) == 2
    assert model.history_ == seen
    assert "a callback returned True" in model.explain()


@pytest.mark.parametrize("method", METHODS)
def test_labels_on_demand(method: str) -> None:
    options: dict[str, Any] = {"method": method, "random_state": 0, "batch_size": 300}
    model = MiniBatchKMeans(6, compute_labels=False, **options).fit(blobs())
    assert not hasattr(model, "labels_")
    assert model.predict(blobs()).shape == (900,)
    assert model.inertia_ == pytest.approx(-model.score(blobs()), rel=0.05)
    weighted = model.fit(blobs(), sample_weight=np.full(900, 3.0))
    assert weighted.inertia_ == pytest.approx(-3 * weighted.score(blobs()), rel=0.05)


def test_partial_fit_drops_labels_that_are_out_of_date() -> None:
    model = MiniBatchKMeans(6, random_state=0).fit(blobs())
    model.compute_labels = False
    assert not hasattr(model.partial_fit(blobs(spread=8.0)), "labels_")


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({"method": "adam"}, "method must be one of 'sgd', 'memoized', but it is 'adam'"),
        ({"batch_size": 0}, "batch_size must be an int of at least 1"),
        ({"reassignment_ratio": -1}, "reassignment_ratio must be"),
        ({"max_no_improvement": -1}, "max_no_improvement must be"),
        ({"init_size": 0}, "init_size must be"),
        ({"max_iter": 0}, "max_iter must be"),
        ({"n_clusters": 901}, "n_samples=900 should be >= n_clusters=901"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_mistakes(params: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        MiniBatchKMeans(**params).fit(blobs())


def test_a_failed_step_leaves_the_estimator_as_it_was() -> None:
    model = MiniBatchKMeans(6, random_state=0).partial_fit(blobs())
    centres = model.cluster_centers_.copy()
    with pytest.raises(ValueError, match="X must be finite"):
        model.partial_fit(np.full((10, 4), np.nan))
    np.testing.assert_array_equal(model.cluster_centers_, centres)
    assert model.n_steps_ == 1


# Sparse rows --------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("k", [6, 40])
def test_steps_in_the_features_of_a_batch_are_those_in_all(
    dtype: str, metric: str, k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums of the rows a centre stands for, or the centres themselves: the same clusterings."""
    X = datasets.load("sparse_unit").astype(dtype)
    X = Csr(X[np.diff(X.indptr) > 0])
    weights = metrics.some_weights(X.shape[0])
    X.data *= np.random.default_rng(0).uniform(0.5, 2, X.nnz)  # lengths without ties
    X[70] *= 0
    # Centres that are put on rows tie with others there, if there are as many as rows in a batch.
    ratio = 0.2 if k == 6 else 0.0
    options: dict[str, Any] = {"metric": metric, "batch_size": 50, "reassignment_ratio": ratio}
    options |= {"random_state": 3, "max_no_improvement": None, "max_iter": 2, "init": X[:k]}
    options |= {"zero_rows": "keep"}
    models = []
    for room in (2**29, 0):
        monkeypatch.setattr(sparse_sgd, "DENSE_CENTRES_BYTES", room)
        models.append(MiniBatchKMeans(k, n_init=1, **options).fit(X, sample_weight=weights))
    thin, whole = models
    close = 1e-5 if dtype == "float32" else 1e-11
    np.testing.assert_allclose(
        cases.dense(thin.cluster_centers_), cases.dense(whole.cluster_centers_), atol=close
    )
    np.testing.assert_array_equal(thin.labels_, whole.labels_)
    for ours, theirs in zip(thin.history_, whole.history_, strict=True):
        assert ours.inertia == pytest.approx(theirs.inertia, rel=close)
        assert ours.shift == pytest.approx(theirs.shift, rel=100 * close, abs=close)
    for model in models:
        model.partial_fit(X[:70])
    np.testing.assert_array_equal(thin.labels_, whole.labels_)


@pytest.mark.parametrize("room", [2**29, 0])
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_rows_of_the_other_layout(metric: Any, room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A centre that has seen no row moves all the way to its first ones, whatever its layout."""
    monkeypatch.setattr(sparse_sgd, "DENSE_CENTRES_BYTES", room)
    X = metrics.some_rows("csr64")
    init = np.vstack([X[:5].toarray(), 50 * X[7].toarray()])
    options: dict[str, Any] = {"init": init, "n_init": 1, "reassignment_ratio": 0}
    fits = []
    for first, second in ((Csr, Csr), (Csr, cases.dense), (cases.dense, Csr)):
        for sparse_centers in (False, True):
            model = MiniBatchKMeans(6, metric=metric, sparse_centers=sparse_centers, **options)
            model.partial_fit(first(X[8:80])).partial_fit(second(X[80:] * 30))
            fits.append(cases.dense(model.cluster_centers_))
    for fit in fits[1:]:
        np.testing.assert_allclose(fit, fits[0], atol=1e-10)


def test_rows_that_are_not_canonical() -> None:
    """Entries out of order, entries twice, and rows without any."""
    X = datasets.load("sparse_random").X
    rows, columns = X.nonzero()
    order = np.lexsort((np.random.default_rng(0).permutation(X.nnz), rows))
    twice = np.repeat(order, 2)
    messy = Csr((np.repeat(X.data, 2)[: 2 * X.nnz], np.zeros(2 * X.nnz), 2 * X.indptr), X.shape)
    messy.data, messy.indices = np.asarray(X[rows, columns]).ravel()[twice] / 2, columns[twice]
    before = messy.indices.copy()
    options: dict[str, Any] = {"random_state": 0, "batch_size": 64, "init": X[:6], "n_init": 1}
    a, b = (MiniBatchKMeans(6, **options).fit(rows) for rows in (X, messy))
    np.testing.assert_allclose(a.cluster_centers_, b.cluster_centers_, atol=1e-12)
    a.partial_fit(X), b.partial_fit(messy)
    np.testing.assert_allclose(a.cluster_centers_, b.cluster_centers_, atol=1e-12)
    np.testing.assert_array_equal(messy.indices, before)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_more_unseen_centres_than_half_a_batch(metric: Any) -> None:
    """As many as half the batch has rows are put on rows of it; none ends at the origin."""
    X: Any = sp.random(20, 30, 0.3, format="csr", random_state=0)
    far = -np.eye(14, 30) if metric == "cosine" else 1e3 + np.eye(14, 30)
    init = np.vstack([X[:2].toarray(), far])
    models = [
        MiniBatchKMeans(16, init=init, n_init=1, random_state=0, metric=metric).partial_fit(rows)
        for rows in (X.toarray(), Csr(X))
    ]
    dense, thin = (cases.dense(model.cluster_centers_) for model in models)
    np.testing.assert_allclose(thin, dense, atol=1e-12)
    assert np.linalg.norm(thin, axis=1).min() > 0.1
    rows = metrics.unit(X) if metric == "cosine" else X.toarray()
    assert sum(np.isclose(rows, centre).all(axis=1).any() for centre in thin) >= 10


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_a_batch_of_empty_rows(metric: str) -> None:
    X = datasets.load("sparse_random").X
    options: dict[str, Any] = {"metric": metric, "zero_rows": "keep", "reassignment_ratio": 0}
    models = []
    for make in (Csr, cases.dense):
        model = MiniBatchKMeans(4, init=X[:4].toarray(), n_init=1, **options)
        models.append(model.partial_fit(make(X)).partial_fit(make(Csr((9, X.shape[1])))))
    thin, dense = models
    np.testing.assert_allclose(thin.cluster_centers_, dense.cluster_centers_, atol=1e-12)
    np.testing.assert_array_equal(thin.labels_, dense.labels_)


def test_partial_fit_keeps_the_number_of_clusters() -> None:
    X = datasets.blobs(60, 3, 4, seed=21)
    model = MiniBatchKMeans(4, random_state=0).partial_fit(X)
    with pytest.raises(ValueError, match="n_clusters must stay 4"):
        model.set_params(n_clusters=5).partial_fit(X)


def test_explain_wants_a_fit() -> None:
    X = datasets.blobs(60, 3, 4, seed=21)
    model = MiniBatchKMeans(4, random_state=0).partial_fit(X)
    with pytest.raises(NotFittedError, match="needs a fitted model"):
        model.explain()
    model = MiniBatchKMeans(4, random_state=0, batch_size=20).fit(X)
    assert "that plain Lloyd computes" not in model.explain()
