"""KMeans as scikit-learn and its users meet it: the contract, weights, manners, limits."""

from __future__ import annotations

import dataclasses
import inspect
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import joblib
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import sklearn
import sklearn.cluster
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import check_estimator, parametrize_with_checks

import datasets
from exactmeans import KMeans, open_blocks
from exactmeans.memory import check_memory_limit
from models import assert_same_model, blobs, counts, fitted, raising, read_only, state

Test = TypeVar("Test", bound=Callable[..., None])


# scikit-learn's own checks ------------------------------------------------------------------------

# Seeds are drawn with chances proportional to weights, by row: a row of weight 2 and two equal rows
# lead to different draws from one random_state, in scikit-learn as here.
_DRAWS = "the draws of k-means++ depend on the number of rows"
EXPECTED_FAILURES = {
    "check_sample_weight_equivalence_on_dense_data": _DRAWS,
    "check_sample_weight_equivalence_on_sparse_data": _DRAWS,
}


def _expected_failures(estimator: Any) -> dict[str, str]:
    return EXPECTED_FAILURES


def _with_checks(*estimators: Any) -> Callable[[Test], Test]:
    decorate: Callable[[Test], Test] = parametrize_with_checks(
        list(estimators), expected_failed_checks=_expected_failures
    )
    return decorate


@_with_checks(KMeans(), KMeans(algorithm="hamerly", init="random", n_init=2))
def test_scikit_learn_check(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


def test_expected_failures_are_those_of_scikit_learn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(sklearn.cluster.KMeans(), on_fail=None)
    failed = {result["check_name"] for result in results if result["status"] == "failed"}
    assert failed == set(EXPECTED_FAILURES)


def test_parameters_are_those_of_scikit_learn() -> None:
    theirs = inspect.signature(sklearn.cluster.KMeans).parameters
    ours = inspect.signature(KMeans).parameters
    assert set(theirs) <= set(ours)
    for name, parameter in theirs.items():
        assert ours[name].kind == parameter.kind, name
        if name != "algorithm":  # ours may choose among algorithms that give the same result
            assert ours[name].default == parameter.default, name


@pytest.mark.parametrize(
    "method", ["fit", "fit_predict", "fit_transform", "predict", "transform", "score"]
)
def test_methods_take_the_arguments_of_scikit_learn(method: str) -> None:
    ours = inspect.signature(getattr(KMeans, method)).parameters
    theirs = inspect.signature(getattr(sklearn.cluster.KMeans, method)).parameters
    further = [p for name, p in ours.items() if name not in theirs]
    assert [name for name in ours if name in theirs] == list(theirs)
    assert all(p.kind == p.KEYWORD_ONLY and p.default is None for p in further)


def test_tags() -> None:
    ours = dataclasses.asdict(get_tags(KMeans()))
    theirs = dataclasses.asdict(get_tags(sklearn.cluster.KMeans()))
    # float32 in, float32 out; scikit-learn's transform keeps it as well but does not say so.
    assert ours.pop("transformer_tags") == {"preserves_dtype": ["float64", "float32"]}
    theirs.pop("transformer_tags")
    theirs["input_tags"]["sparse"] = True  # scikit-learn 1.6 takes CSR matrices but does not say so
    assert ours == theirs


# the contract around fit --------------------------------------------------------------------------


def test_attributes_have_scikit_learns_types() -> None:
    X = blobs()
    ours, theirs = fitted(X), sklearn.cluster.KMeans(4, random_state=0).fit(X)
    for name in ["cluster_centers_", "labels_", "inertia_", "n_iter_", "n_features_in_"]:
        assert type(getattr(ours, name)) is type(getattr(theirs, name)), name
    assert ours.labels_.dtype == theirs.labels_.dtype == np.int32
    assert ours.labels_.shape == (60,)
    assert ours.cluster_centers_.shape == (4, 3)
    assert ours.cluster_centers_.flags.c_contiguous
    assert not hasattr(ours, "feature_names_in_")


def test_results_are_the_users_own() -> None:
    """What a user writes into predictions or attributes must not reach the model or the data."""
    X = blobs()
    model = fitted(X, init=X[:4])
    kept = state(model)
    labels, distances = model.predict(X), model.transform(X)
    labels[:] = -7
    distances[:] = -7
    assert state(model) == kept
    model.cluster_centers_[:] = 0
    np.testing.assert_array_equal(X, blobs())


def test_fit_does_not_change_parameters() -> None:
    init = blobs()[:4]
    model = KMeans(4, init=init, n_init=1, callbacks=[])
    before = model.get_params()
    model.fit(blobs())
    assert all(model.get_params()[name] is value for name, value in before.items())
    np.testing.assert_array_equal(init, blobs()[:4])


def test_all_ways_to_fit_agree() -> None:
    X = blobs()
    weights = np.linspace(0.5, 2, 60)
    model = fitted(X, sample_weight=weights)
    again = KMeans(4, random_state=0)
    np.testing.assert_array_equal(again.fit_predict(X, sample_weight=weights), model.labels_)
    np.testing.assert_array_equal(again.fit_transform(X, sample_weight=weights), model.transform(X))
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    assert model.score(X, sample_weight=weights) == -model.inertia_


def test_transform_gives_distances() -> None:
    X = blobs()
    model = fitted(X)
    expected = np.linalg.norm(X[:, np.newaxis] - model.cluster_centers_, axis=2)
    np.testing.assert_allclose(model.transform(X), expected, rtol=1e-12)
    np.testing.assert_allclose(model.transform(sp.csr_array(X)), expected, rtol=1e-12)


@pytest.mark.core
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("d", [2, 16, 40, 5000])
def test_predict_refuses_rows_that_are_not_finite(d: int, value: float) -> None:
    """Such rows are found by their scores, so no kernel may give them a finite one."""
    rng = np.random.default_rng(d)
    X = rng.normal(size=(70, d)) + 3  # shifted by the mean
    X[:, d // 2] = 0  # as are all centres there
    for dtype in ("float32", "float64"):
        model = KMeans(20, n_init=1, random_state=0).fit(X.astype(dtype))
        for row in (0, 33, 69):
            for column in {0, d // 2, d - 1}:
                bad = X.astype(dtype)
                bad[row, column] = value
                with pytest.raises(
                    ValueError, match=rf"must be finite.* first such row is {row}, in column "
                ):
                    model.predict(bad)


def test_predict_takes_rows_whose_scores_overflow() -> None:
    X = np.random.default_rng(0).normal(size=(70, 3)).astype(np.float32)
    model = KMeans(4, n_init=1, random_state=0).fit(X)
    assert set(model.predict(np.float32(3e38) * np.sign(X))) <= set(range(4))


def test_clone_forgets_the_fit_only() -> None:
    model = fitted(blobs(), algorithm="hamerly", n_jobs=2, memory_limit="1GB")
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert not hasattr(copy, "labels_")


def _pickled(model: KMeans, folder: Path) -> Any:
    return pickle.loads(pickle.dumps(model))


def _dumped(model: KMeans, folder: Path) -> Any:
    joblib.dump(model, folder / "model.joblib")
    return joblib.load(folder / "model.joblib")


def _mapped(model: KMeans, folder: Path) -> Any:
    """Arrays come back as read-only maps of the file."""
    joblib.dump(model, folder / "model.joblib")
    return joblib.load(folder / "model.joblib", mmap_mode="r")


@pytest.mark.parametrize("round_trip", [_pickled, _dumped, _mapped])
@pytest.mark.parametrize("offset", [0.0, 1e4], ids=["near", "far"])  # far data is shifted
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_round_trip_keeps_every_bit(
    round_trip: Callable[[KMeans, Path], Any], offset: float, dtype: str, tmp_path: Path
) -> None:
    X = (datasets.blobs(300, 4, 6, spread=5.0) + offset).astype(dtype)
    model = fitted(X, 6)
    loaded = round_trip(model, tmp_path)
    assert_same_model(loaded, model)
    np.testing.assert_array_equal(loaded.predict(X), model.labels_)
    np.testing.assert_array_equal(loaded.transform(X), model.transform(X))
    assert loaded.score(X) == model.score(X)
    assert loaded.explain() == model.explain()


def test_refit_is_a_fit() -> None:
    X = blobs()
    model = fitted(counts(), 7)
    assert_same_model(model.set_params(n_clusters=4).fit(X), fitted(X))
    assert model.n_features_in_ == 3


def test_repr_and_html() -> None:
    model = KMeans(3, tol=0.5)
    assert repr(model) == "KMeans(n_clusters=3, tol=0.5)"
    html = model._repr_html_()
    assert "KMeans" in html
    assert "Not fitted" in html
    assert "<span>Fitted</span>" in model.fit(blobs())._repr_html_()


def test_in_a_pipeline_and_a_search() -> None:
    X = blobs()
    pipeline = make_pipeline(StandardScaler(), KMeans(4, random_state=0)).fit(X)
    scaled = StandardScaler().fit_transform(X)
    np.testing.assert_array_equal(pipeline.predict(X), fitted(scaled).labels_)
    search = sklearn.model_selection.GridSearchCV(
        KMeans(random_state=0), {"n_clusters": [2, 4]}, cv=3
    ).fit(X)
    assert search.best_params_ == {"n_clusters": 4}


def test_metadata_routing_of_sample_weight() -> None:
    X = blobs()
    weights = np.linspace(0, 3, 60)
    with sklearn.config_context(enable_metadata_routing=True):
        step = KMeans(4, random_state=0)
        step.set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        pipeline = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), step)
        pipeline.fit(X, sample_weight=weights)
        scaled = StandardScaler().fit_transform(X)
        alone = fitted(scaled, sample_weight=weights)
        assert_same_model(pipeline[-1], alone)
        assert pipeline.score(X, sample_weight=weights) == -alone.inertia_
        deaf = make_pipeline(KMeans(4).set_fit_request(sample_weight=False))
        with pytest.raises(TypeError, match="sample_weight"):
            deaf.fit(X, sample_weight=weights)


# sample_weight ------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [np.asarray, sp.csr_matrix], ids=["dense", "csr"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_weight_two_is_the_row_twice(make: Callable[[Any], Any], dtype: str) -> None:
    values = datasets.blobs(150, 4, 5, spread=4.0, seed=6).astype(dtype)
    times = 2 ** np.random.default_rng(7).integers(0, 3, 150)  # products that do not round
    params: dict[str, Any] = {"init": values[:5], "tol": 0}
    weighted = fitted(make(values), 5, sample_weight=times, **params)
    repeated = fitted(make(np.repeat(values, times, axis=0)), 5, **params)
    np.testing.assert_array_equal(weighted.cluster_centers_, repeated.cluster_centers_)
    np.testing.assert_array_equal(np.repeat(weighted.labels_, times), repeated.labels_)
    assert weighted.inertia_ == pytest.approx(repeated.inertia_, rel=1e-12)


@pytest.mark.parametrize("make", [np.asarray, sp.csr_matrix], ids=["dense", "csr"])
def test_weight_zero_is_no_row_in_the_centres(make: Callable[[Any], Any]) -> None:
    values = datasets.blobs(150, 4, 5, spread=4.0, seed=8)
    there = np.random.default_rng(9).random(150) < 0.7
    params: dict[str, Any] = {"init": values[:5], "tol": 0}
    weighted = fitted(make(values), 5, sample_weight=there.astype(float), **params)
    left = fitted(make(values[there]), 5, **params)
    np.testing.assert_array_equal(weighted.cluster_centers_, left.cluster_centers_)
    np.testing.assert_array_equal(weighted.labels_[there], left.labels_)
    assert weighted.inertia_ == pytest.approx(left.inertia_, rel=1e-12)
    np.testing.assert_array_equal(weighted.predict(make(values)), weighted.labels_)


def test_weights_of_one_are_no_weights() -> None:
    X = blobs()
    expected = fitted(X)
    for weights in (np.ones(60), [1] * 60, 1, 1.0, np.ones(60, dtype=bool), pd.Series(np.ones(60))):
        assert_same_model(fitted(X, sample_weight=weights), expected)


def test_weights_scale_the_inertia_only() -> None:
    X = blobs()
    weights = np.linspace(0.5, 2, 60)
    once, thrice = (fitted(X, sample_weight=factor * weights) for factor in (1, 4))
    np.testing.assert_array_equal(once.cluster_centers_, thrice.cluster_centers_)
    assert 4 * once.inertia_ == thrice.inertia_  # a power of two scales without rounding


def test_strided_and_integer_weights() -> None:
    X = blobs()
    weights = np.arange(120)[::-2]
    assert_same_model(
        fitted(X, sample_weight=weights),
        fitted(X, sample_weight=np.ascontiguousarray(weights, dtype=float)),
    )


# failure leaves no trace --------------------------------------------------------------------------


def _bad_init(X: Any, n_clusters: int, random_state: Any) -> Any:
    raise KeyError("from init")


FAILURES: dict[str, tuple[dict[str, Any], Any, Any, type[BaseException]]] = {
    "bad parameter": ({"tol": -1}, np.ones((9, 5)), None, ValueError),
    "text": ({}, np.array([["a"] * 5] * 9), None, ValueError),
    "NaN": ({}, np.full((9, 5), np.nan), None, ValueError),
    "too few rows": ({}, np.ones((3, 5)), None, ValueError),
    "bad weights": ({}, np.ones((9, 5)), -np.ones(9), ValueError),
    "bad init": ({"init": np.ones((4, 4))}, np.ones((9, 5)), None, ValueError),
    "memory": ({"memory_limit": 1}, np.ones((9, 5)), None, ValueError),
    "raising init": ({"init": _bad_init}, np.ones((9, 5)), None, KeyError),
    "raising callback": ({"callbacks": raising(OSError())}, np.ones((9, 5)), None, OSError),
    "Ctrl-C": ({"callbacks": raising(KeyboardInterrupt())}, np.eye(9, 5), None, KeyboardInterrupt),
    "names": ({"tol": -1}, pd.DataFrame(np.ones((9, 5)), columns=list("abcde")), None, ValueError),
    "names, late": (
        {},
        pd.DataFrame(np.full((9, 2), np.nan), columns=list("ab")),
        None,
        ValueError,
    ),
    "blocks": ({}, open_blocks([np.ones((9, 5)), np.full((9, 5), np.inf)]), None, ValueError),
}


@pytest.mark.parametrize("before", ["never fitted", "fitted"])
@pytest.mark.parametrize("failure", FAILURES)
def test_failed_fit_leaves_the_estimator_as_it_was(failure: str, before: str) -> None:
    params, X, weights, error = FAILURES[failure]
    model = KMeans(4, random_state=0)
    if before == "fitted":
        model.fit(blobs())
    model.set_params(**params)
    kept = state(model)
    with pytest.raises(error):
        model.fit(X, sample_weight=weights)
    assert state(model) == kept
    if before == "fitted":
        model.set_params(memory_limit=None)  # which predict keeps, too
        np.testing.assert_array_equal(model.predict(blobs()), model.labels_)


# Each is busy for minutes in another part of the work.
LONG_FITS = {
    "iterations": "KMeans(300, init='random', tol=0, max_iter=10**6, n_init=99)",
    "seeding": "KMeans(4000, init='k-means++')",
    "one thread": "KMeans(2000, init='random', n_init=99, n_jobs=1)",
    "bounds": "KMeans(300, init='random', tol=0, n_init=99, algorithm='hamerly')",
}


@pytest.mark.skipif(sys.platform == "win32", reason="SIGINT cannot be sent to one process there")
def test_interrupts_stop_within_a_second() -> None:
    """One process, which interrupts leave able to fit again, until the last one ends it."""
    code = f"""
        import signal
        import numpy as np
        from exactmeans import KMeans
        # A shell may have started us with the signal ignored.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        X = np.random.default_rng(0).random((100_000, 24))
        left = {list(LONG_FITS.values())}
        while left:
            model = eval(left.pop(0))
            before = dict(vars(model))
            print("ready", flush=True)
            try:
                model.fit(X)
            except KeyboardInterrupt:
                print("as it was" if vars(model) == before else vars(model), flush=True)
                if not left:
                    raise
            else:
                print("not interrupted", flush=True)
        """
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout is not None
        for work in LONG_FITS:
            assert child.stdout.readline() == "ready\n"
            time.sleep(0.7)  # so that it is deep inside the core
            began = time.perf_counter()
            child.send_signal(signal.SIGINT)
            assert child.stdout.readline() == "as it was\n", work
            assert time.perf_counter() - began < 1, work
        _, errors = child.communicate(timeout=20)
    finally:
        child.kill()
        child.communicate()
    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert child.returncode == -signal.SIGINT


# a model whose centres were replaced --------------------------------------------------------------


@pytest.mark.parametrize("offset", [0.0, 1e4])
@pytest.mark.parametrize("make", [np.asarray, sp.csr_matrix], ids=["dense", "csr"])
def test_replaced_centres_are_honoured(offset: float, make: Callable[[Any], Any]) -> None:
    values = blobs() + offset
    X = make(values)
    model = fitted(X)
    centres = values[[5, 17, 30]]
    distances = np.linalg.norm(values[:, np.newaxis] - centres, axis=2)
    for given in (centres, np.asfortranarray(centres), read_only(centres)):
        model.cluster_centers_ = given
        np.testing.assert_array_equal(model.predict(X), distances.argmin(axis=1))
        # CSR is never shifted: near a centre far from the origin, digits cancel.
        atol = 1e-6 * (1 + offset) if sp.issparse(X) else 1e-9
        np.testing.assert_allclose(model.transform(X), distances, rtol=1e-6, atol=atol)
        assert -model.score(X) == pytest.approx(np.square(distances.min(axis=1)).sum(), rel=1e-9)
    model.cluster_centers_ = centres.copy()
    model.cluster_centers_[0] = -1e6  # written into, not replaced
    assert 0 not in model.predict(X)


@pytest.mark.parametrize("dtype", ["float32", "int64", ">f8"])
def test_replaced_centres_of_another_dtype(dtype: str) -> None:
    X = np.rint(blobs())
    model = fitted(X)
    model.cluster_centers_ = X[[5, 17, 30]].astype(dtype)
    distances = np.linalg.norm(X[:, np.newaxis] - X[[5, 17, 30]], axis=2)
    np.testing.assert_array_equal(model.predict(X), distances.argmin(axis=1))


@pytest.mark.parametrize(
    "centres", [np.full((4, 3), np.nan), np.ones((4, 2)), np.ones(3), np.full((4, 3), np.inf)]
)
def test_replaced_centres_must_make_sense(centres: NDArray[Any]) -> None:
    model = fitted(blobs())
    model.cluster_centers_ = centres
    with pytest.raises(ValueError, match="cluster_centers_"):
        model.predict(blobs())


# limits -------------------------------------------------------------------------------------------


LIMITS = ["2GB", "2 gb", "1.5GiB", "900MB", "800000KB", "64MiB", " 1TB ", "1tib", "99999999B"]
LIMITS += ["512m", "512M", "1Gi", "1g", "900000k", "1 GiB"]


@pytest.mark.parametrize(
    "limit",
    [None, 10**9, np.int64(10**9), 0.5, 1.0, np.float64(0.25), *LIMITS],
)
def test_memory_limit_is_understood(limit: Any) -> None:
    assert_same_model(fitted(blobs(), memory_limit=limit), fitted(blobs()))


@pytest.mark.parametrize(
    ("limit", "shown"),
    [
        (1, "1"),
        ("10B", "10"),
        ("0.5KB", "500"),
        ("0.5KiB", "512"),
        ("0.5Ki", "512"),
        (1e-12, r"\d+"),
    ],
)
def test_memory_limit_refuses_with_what_it_needs(limit: Any, shown: str) -> None:
    pattern = rf"memory_limit must be at least [\d,]+ bytes .*60 rows.* but it is {shown}\.$"
    if isinstance(limit, float):
        pattern = "memory_limit must be"
    with pytest.raises(ValueError, match=pattern):
        fitted(blobs(), memory_limit=limit)


@pytest.mark.parametrize(
    ("limit", "bytes_"),
    [("512m", 512 * 10**6), ("1Gi", 2**30), ("1GiB", 2**30), ("2G", 2 * 10**9), ("7B", 7)],
)
def test_units_of_memory_limit(limit: str, bytes_: int) -> None:
    assert check_memory_limit(limit) == bytes_


def test_memory_limit_is_as_exact_as_its_message() -> None:
    with pytest.raises(ValueError, match="memory_limit") as info:
        fitted(blobs(), memory_limit=1)
    needed = int(str(info.value).split("at least ")[1].split(" ")[0].replace(",", ""))
    fitted(blobs(), memory_limit=needed)
    with pytest.raises(ValueError, match="memory_limit"):
        fitted(blobs(), memory_limit=needed - 1)


@pytest.mark.core
@pytest.mark.parametrize("n_jobs", [None, 1, 2, 3, 61, 1000, -1, -2, -1000, np.int32(2)])
def test_n_jobs(n_jobs: Any) -> None:
    """More threads than rows or cores are allowed, and never change anything."""
    X = blobs()
    model = fitted(X, n_jobs=n_jobs)
    assert_same_model(model, fitted(X, n_jobs=1))
    np.testing.assert_array_equal(model.predict(X), model.labels_)


@pytest.mark.parametrize("n_jobs", [2**31 - 1, 2**31, 10**30])
def test_n_jobs_beyond_reason(n_jobs: int) -> None:
    """Served with as many threads as there is use for."""
    assert_same_model(fitted(blobs(), n_jobs=n_jobs), fitted(blobs(), n_jobs=1))


def test_n_jobs_counts_the_cores_one_may_use() -> None:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert cores is not None

    def threads(n_jobs: int | None) -> int:
        line = next(
            line
            for line in fitted(blobs(), n_jobs=n_jobs).explain().splitlines()
            if line.startswith("threads: ")
        )
        return int(line.removeprefix("threads: ").split(",")[0])

    assert 1 <= threads(None) <= cores  # fewer under a cgroup limit
    assert threads(-1) == threads(None)
    assert threads(-2) == max(1, threads(None) - 1)
    assert threads(-1000) == 1
