"""KMeans as scikit-learn and its users meet it: the contract, containers, weights, manners."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import io
import os
import pickle
import re
import signal
import subprocess
import sys
import textwrap
import time
import tracemalloc
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
import sklearn
import sklearn.cluster
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import check_estimator, parametrize_with_checks

import datasets
import oracle
from exactmeans import (
    BlockSource,
    Iteration,
    KMeans,
    MiniBatchKMeans,
    kmeans_plusplus,
    open_blocks,
)


def dense(X: Any) -> NDArray[Any]:
    return np.asarray(X.toarray() if hasattr(X, "toarray") else X)


SPARSE_FORMATS = ["csr", "csc", "coo", "lil", "dok", "bsr", "dia"]

Test = TypeVar("Test", bound=Callable[..., None])


def blobs() -> NDArray[np.float64]:
    """60 rows in 4 clear clusters; a fresh array, so that a test may do with it what it likes."""
    return datasets.blobs(60, 3, 4, seed=21)


def counts() -> NDArray[np.float64]:
    """Mostly zeros, and whole numbers, so that any container holds the very same values."""
    rng = np.random.default_rng(22)
    return (rng.integers(1, 5, (50, 12)) * (rng.random((50, 12)) < 0.3)).astype(np.float64)


def fitted(X: Any, k: int = 4, *, sample_weight: Any = None, **params: Any) -> KMeans:
    return KMeans(k, **{"random_state": 0, **params}).fit(X, sample_weight=sample_weight)


def assert_same_model(a: KMeans, b: KMeans) -> None:
    """Equal to the last bit."""
    assert a.cluster_centers_.dtype == b.cluster_centers_.dtype
    np.testing.assert_array_equal(a.cluster_centers_, b.cluster_centers_)
    np.testing.assert_array_equal(a.labels_, b.labels_)
    assert (a.inertia_, a.n_iter_) == (b.inertia_, b.n_iter_)


def state(estimator: Any) -> dict[str, Any]:
    """What an estimator holds, with arrays as bytes so that states can be compared."""
    return {
        name: (value.shape, value.tobytes()) if isinstance(value, np.ndarray) else value
        for name, value in vars(estimator).items()
    }


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
    assert list(ours) == list(theirs)


def test_tags() -> None:
    ours = dataclasses.asdict(get_tags(KMeans()))
    theirs = dataclasses.asdict(get_tags(sklearn.cluster.KMeans()))
    # float32 in, float32 out; scikit-learn's transform keeps it as well but does not say so.
    assert ours.pop("transformer_tags") == {"preserves_dtype": ["float64", "float32"]}
    theirs.pop("transformer_tags")
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


# names of features --------------------------------------------------------------------------------

NAMES = ["length", "width", "height"]


def _frame(kind: str, X: NDArray[Any]) -> Any:
    columns = dict(zip(NAMES, X.T, strict=True))
    if kind == "pandas":
        return pd.DataFrame(columns)
    return pl.DataFrame(columns) if kind == "polars" else pa.table(columns)


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow"])
def test_frames_are_arrays_with_names(kind: str) -> None:
    X = blobs()
    frame = _frame(kind, X)
    model = fitted(frame)
    assert_same_model(model, fitted(X))
    assert model.feature_names_in_.tolist() == NAMES
    np.testing.assert_array_equal(model.predict(frame), model.labels_)
    np.testing.assert_array_equal(model.transform(frame), model.transform(frame))
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        model.predict(X)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(_frame("pandas", X).rename(columns={"width": "depth"}))
    with pytest.warns(UserWarning, match="has feature names"):
        fitted(X).predict(frame)


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow"])
def test_float32_frames_stay_float32(kind: str) -> None:
    X = blobs().astype(np.float32)
    model = fitted(_frame(kind, X))
    assert_same_model(model, fitted(X))
    assert model.feature_names_in_.tolist() == NAMES


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_set_output(kind: str) -> None:
    X = blobs()
    frame = _frame("pandas", X)
    frame.index = np.arange(60) + 100
    model = KMeans(4, random_state=0).set_output(transform=kind)
    given = frame if kind == "pandas" else _frame(kind, X)
    first, second = model.fit_transform(given), model.transform(given)
    expected = fitted(X).transform(X)
    for out in (first, second):
        assert type(out).__module__.split(".")[0] == kind
        assert list(out.columns) == ["kmeans0", "kmeans1", "kmeans2", "kmeans3"]
        np.testing.assert_array_equal(out.to_numpy(), expected)
    if kind == "pandas":
        assert first.index.equals(frame.index)
    assert isinstance(model.predict(given), np.ndarray)


def test_get_feature_names_out() -> None:
    ours = fitted(_frame("pandas", blobs())).get_feature_names_out()
    theirs = sklearn.cluster.KMeans(4).fit(_frame("pandas", blobs())).get_feature_names_out()
    np.testing.assert_array_equal(ours, theirs)


# containers ---------------------------------------------------------------------------------------


def _read_only(X: NDArray[Any]) -> NDArray[Any]:
    X = X.copy()
    X.flags.writeable = False
    return X


def _unaligned(X: NDArray[Any]) -> NDArray[Any]:
    records = np.zeros(X.shape, dtype=[("pad", "u1"), ("value", X.dtype)])
    records["value"] = X
    view: NDArray[Any] = records["value"]
    return view


def _odd_strides(X: NDArray[Any]) -> NDArray[Any]:
    """Aligned, but the step from value to value is no multiple of a value's size."""
    records = np.zeros(X.shape, dtype=np.dtype([("value", X.dtype), ("pad", "f4")], align=False))
    view: NDArray[Any] = records["value"]
    view[:] = X
    return view


def _every_second(X: NDArray[Any]) -> NDArray[Any]:
    wide = np.full((2 * X.shape[0], 3 * X.shape[1]), np.nan)  # NaN would be noticed if read
    wide[::2, 1::3] = X
    view: NDArray[Any] = wide[::2, 1::3]
    return view


def _reversed_view(X: NDArray[Any]) -> NDArray[Any]:
    return np.ascontiguousarray(X[::-1, ::-1])[::-1, ::-1]


DENSE: dict[str, Callable[[NDArray[Any]], Any]] = {
    "list": lambda X: X.tolist(),
    "tuple of arrays": tuple,
    "F order": np.asfortranarray,
    "read-only": _read_only,
    "every second": _every_second,
    "negative strides": _reversed_view,
    "transposed view": lambda X: np.ascontiguousarray(X.T).T,
    "unaligned": _unaligned,
    "odd strides": _odd_strides,
    "big-endian": lambda X: X.astype(">f8"),
    "objects": lambda X: X.astype(object),
    "long double": lambda X: X.astype(np.longdouble),
    "pandas with a column per dtype": lambda X: pd.DataFrame(X).astype({0: "float32", 1: "int64"}),
}


@pytest.mark.core
@pytest.mark.parametrize("container", DENSE)
def test_dense_containers_give_the_same_bits(container: str) -> None:
    values = counts()
    X = DENSE[container](values)
    expected = fitted(values)
    model = fitted(X)
    assert_same_model(model, expected)
    np.testing.assert_array_equal(model.predict(X), expected.labels_)
    np.testing.assert_array_equal(model.transform(X), expected.transform(values))
    np.testing.assert_array_equal(np.asarray(X, dtype=np.float64), values)


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint8", "int16", "int32", "int64", "uint64", "float16", ">i4", ">f2"]
)
def test_other_dtypes_become_float64(dtype: str) -> None:
    X = counts().astype(dtype)
    assert_same_model(fitted(X), fitted(X.astype(np.float64)))
    assert_same_model(fitted(X, dtype="float32"), fitted(X.astype(np.float32)))
    if dtype not in ("float16", ">i4", ">f2"):  # which SciPy does not hold
        assert_same_model(fitted(sp.csr_array(X)), fitted(sp.csr_array(X.astype(np.float64))))


def test_memmap_is_read_where_it_is(tmp_path: Path) -> None:
    X = blobs()
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    seen: list[Any] = []
    assert_same_model(fitted(mapped, init=_first_rows(seen)), fitted(X, init=_first_rows([])))
    assert np.shares_memory(seen[0], mapped)


@pytest.mark.parametrize("kind", ["matrix", "array"])
@pytest.mark.parametrize("layout", SPARSE_FORMATS)
def test_sparse_formats_give_the_same_bits(layout: str, kind: str) -> None:
    values = counts()
    X = getattr(sp, f"{layout}_{kind}")(values)
    expected = fitted(sp.csr_array(values))
    model = fitted(X)
    assert_same_model(model, expected)
    np.testing.assert_array_equal(model.predict(X), expected.labels_)
    np.testing.assert_array_equal(model.labels_, fitted(values).labels_)
    assert X.format == layout
    np.testing.assert_array_equal(X.toarray(), values)


@pytest.mark.core
@pytest.mark.parametrize("pointers", ["int32", "int64"])
@pytest.mark.parametrize("indices", ["int32", "int64"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_csr_index_dtypes(dtype: str, indices: str, pointers: str) -> None:
    X = sp.csr_matrix(counts().astype(dtype))
    expected = fitted(X)
    wide = X.copy()  # SciPy narrows indices that are handed to its constructors
    wide.indices = wide.indices.astype(indices)
    wide.indptr = wide.indptr.astype(pointers)
    seen: list[Any] = []
    assert_same_model(fitted(wide), expected)
    np.testing.assert_array_equal(expected.predict(wide), expected.labels_)
    fitted(wide, init=_first_rows(seen))
    assert np.shares_memory(seen[0].indices, wide.indices)
    assert wide.indices.dtype == indices
    assert wide.indptr.dtype == pointers


def _shuffled(X: Any) -> Any:
    """The entries of each row in reverse order."""
    X = X.copy()
    for begin, end in zip(X.indptr[:-1], X.indptr[1:], strict=True):
        X.indices[begin:end] = X.indices[begin:end][::-1].copy()
        X.data[begin:end] = X.data[begin:end][::-1].copy()
    X.has_sorted_indices = False
    return X


def _duplicated(X: Any) -> Any:
    """Every entry split into two halves at the same place."""
    data, indices = np.repeat(X.data / 2, 2), np.repeat(X.indices, 2)
    return sp.csr_matrix((data, indices, 2 * X.indptr), shape=X.shape)


def _mislabelled(X: Any) -> Any:
    """Out of order, while SciPy's cached flags say otherwise."""
    X = _duplicated(_shuffled(X))
    X.has_canonical_format = True
    return X


def _with_zeros(X: Any) -> Any:
    full = sp.csr_matrix(np.ones_like(X.toarray()))
    full.data[:] = X.toarray().ravel()
    return full


def _scattered(X: Any) -> Any:
    """Arrays that are not contiguous and may not be written to."""
    X = X.copy()
    X.data = np.repeat(X.data, 2)[::2]
    X.indices = np.repeat(X.indices, 3)[::3]
    for array in (X.data, X.indices, X.indptr):
        array.flags.writeable = False
    return X


def _with_room(X: Any) -> Any:
    """More room than entries, as left behind by an in-place construction."""
    X = X.copy()
    X.data = np.append(X.data, [np.nan, np.inf]).astype(X.data.dtype)
    X.indices = np.append(X.indices, [-1, 10**6]).astype(X.indices.dtype)
    return X


@pytest.mark.core
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "untidy", [_shuffled, _duplicated, _mislabelled, _with_zeros, _scattered, _with_room]
)
def test_untidy_csr(untidy: Callable[[Any], Any], dtype: str, weighted: bool) -> None:
    tidy = sp.csr_matrix(counts().astype(dtype))
    X = untidy(tidy)
    before = [array.copy() for array in (X.data, X.indices, X.indptr)]
    weights = np.arange(50.0) if weighted else None
    model = fitted(X, sample_weight=weights)
    assert_same_model(model, fitted(tidy, sample_weight=weights))
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    np.testing.assert_array_equal(model.transform(X), model.transform(tidy))
    for array, kept in zip((X.data, X.indices, X.indptr), before, strict=True):
        np.testing.assert_array_equal(array, kept)


MALFORMED = {
    "index too large": ([0, 3, 1, 2], [0, 1, 2, 3, 4]),
    "index far too large": ([0, 2**31 - 1, 1, 2], [0, 1, 2, 3, 4]),
    "negative index": ([0, -1, 1, 2], [0, 1, 2, 3, 4]),
    "indptr runs back": ([0, 1, 1, 2], [0, 3, 2, 3, 4]),
    "indptr negative": ([0, 1, 1, 2], [0, -5, 2, 3, 4]),
    "indptr past the end": ([0, 1, 1, 2], [0, 1, 2, 3, 9]),
    "indptr far past the end": ([0, 1, 1, 2], [0, 1, 2, 3, 2**31 - 1]),
    "indptr does not start at 0": ([0, 1, 1, 2], [1, 1, 2, 3, 4]),
    "fewer indices than data": ([0, 1], [0, 1, 2, 3, 4]),
    "indptr empty": ([0, 1, 1, 2], []),
    "indptr too short": ([0, 1, 1, 2], [0, 1, 4]),
    "indptr too long": ([0, 1, 1, 2], [0, 1, 2, 3, 4, 4]),
}


def _malformed(case: str, *, dtype: str = "float64", index: str = "int32") -> Any:
    """A 4 x 3 matrix as no constructor would make it."""
    indices, indptr = MALFORMED[case]
    X = sp.csr_matrix(np.zeros((4, 3), dtype=dtype))
    X.data = np.arange(1, 5).astype(dtype)
    X.indices, X.indptr = np.array(indices, dtype=index), np.array(indptr, dtype=index)
    return X


@pytest.mark.core
@pytest.mark.parametrize("index", ["int32", "int64"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_csr_is_refused(case: str, dtype: str, index: str) -> None:
    X = _malformed(case, dtype=dtype, index=index)
    model = fitted(blobs())
    uses: list[Callable[[], Any]] = [
        lambda: fitted(X, 2),
        lambda: fitted(X, 2, sample_weight=np.ones(4)),
        lambda: fitted(open_blocks([X]), 2),
        lambda: kmeans_plusplus(X, 2),
        lambda: model.predict(X),
        lambda: model.transform(X),
    ]
    for use in uses:
        with pytest.raises(ValueError, match="X") as info:
            use()
        assert "\n" not in str(info.value)


# dtypes and copies --------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [np.asarray, sp.csr_matrix], ids=["dense", "csr"])
def test_float32_stays_float32_and_predict_takes_either(make: Callable[[Any], Any]) -> None:
    values = counts()
    single, double = make(values.astype(np.float32)), make(values)
    model = fitted(single)
    assert model.cluster_centers_.dtype == model.transform(single).dtype == np.float32
    assert fitted(double).cluster_centers_.dtype == np.float64
    np.testing.assert_array_equal(model.predict(double), model.labels_)
    np.testing.assert_array_equal(fitted(double).predict(single), fitted(double).labels_)


@pytest.mark.parametrize("dtype", ["float32", "float64", np.float32, np.dtype("float64")])
def test_dtype_parameter(dtype: Any) -> None:
    for given in ("float32", "float64"):
        model = fitted(counts().astype(given), dtype=dtype)
        assert_same_model(model, fitted(counts().astype(dtype)))


@pytest.mark.parametrize("copy_x", [True, False])
@pytest.mark.parametrize("offset", [0.0, 1e5])  # scikit-learn centres in place when copy_x=False
def test_input_is_never_modified(copy_x: bool, offset: float) -> None:
    X, weights = blobs() + offset, np.linspace(0, 1, 60)
    kept, kept_weights = X.copy(), weights.copy()
    model = fitted(X, copy_x=copy_x, sample_weight=weights)
    model.predict(X), model.transform(X), model.score(X, sample_weight=weights)
    kmeans_plusplus(X, 3, sample_weight=weights)
    np.testing.assert_array_equal(X, kept)
    np.testing.assert_array_equal(weights, kept_weights)


def _first_rows(seen: list[Any]) -> Callable[..., Any]:
    """An init that notes what it is given."""

    def init(X: Any, n_clusters: int, random_state: Any) -> Any:
        seen.append(X)
        return dense(X[:n_clusters]).copy()  # scikit-learn writes into what it gets

    return init


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_arrays_are_not_copied(dtype: str) -> None:
    X = blobs().astype(dtype)
    for view in (X, np.asfortranarray(X), X[::2], X[:, ::-1]):
        seen: list[Any] = []
        fitted(view, init=_first_rows(seen), n_init=2)
        assert len(seen) == 2
        assert all(np.shares_memory(given, view) for given in seen)
    csr = sp.csr_array(X)
    seen = []
    fitted(csr, init=_first_rows(seen))
    for name in ("data", "indices", "indptr"):
        assert np.shares_memory(getattr(seen[0], name), getattr(csr, name)), name


@pytest.mark.parametrize("layout", ["C", "F", "strided"])
def test_fit_allocates_little_in_python(layout: str) -> None:
    X = np.random.default_rng(0).normal(size=(20_000, 64))
    if layout != "C":
        X = np.asfortranarray(X) if layout == "F" else X[:, ::2]
    weights = np.ones(len(X))
    tracemalloc.start()
    try:
        model = fitted(X, max_iter=2, sample_weight=weights)
        model.predict(X)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < X.nbytes / 2


@pytest.mark.skipif(sys.platform != "linux", reason="reads ru_maxrss in kilobytes")
@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_fit_allocates_little_in_the_core(layout: str) -> None:
    """What C++ allocates is seen by the operating system only."""
    report = _run(
        f"""
        import resource
        import numpy as np, scipy.sparse as sp
        from exactmeans import KMeans
        def most():
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        KMeans(2).fit(np.eye(50)), KMeans(2).fit(sp.csr_array(np.eye(50)))  # threads, libraries
        X = np.ones((30_000, 128)); X[::2] = 2; X[:, 0] = np.arange(30_000)
        if {layout!r} == "csr":
            indptr = np.arange(30_001) * 128
            X = sp.csr_array((X.ravel(), np.tile(np.arange(128), 30_000), indptr))
        before = most()
        model = KMeans(4, max_iter=2, random_state=0).fit(X)
        model.predict(X)
        print((most() - before) * 1024)
        """
    )
    assert int(report) < 30_000 * 128 * 8 / 2


# init and n_init ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("init", "n_init", "runs"),
    [
        ("k-means++", "auto", 1),
        ("random", "auto", 10),
        ("callable", "auto", 10),
        ("array", "auto", 1),
        ("k-means++", 3, 3),
        ("random", 2, 2),
        ("callable", 4, 4),
        ("array", 1, 1),
        ("k-means++", np.int64(2), 2),
    ],
)
def test_n_init(init: str, n_init: Any, runs: int) -> None:
    X = blobs()
    choices: dict[str, Any] = {"array": X[:4], "callable": _first_rows([])}
    seen: list[Iteration] = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted(X, init=choices.get(init, init), n_init=n_init, callbacks=seen.append)
    assert sorted({record.run for record in seen}) == list(range(runs))


def test_best_run_is_kept() -> None:
    X = datasets.blobs(300, 2, 10, seed=3)
    runs: dict[int, list[Iteration]] = {}
    model = fitted(
        X,
        10,
        init="random",
        n_init=8,
        tol=0,
        callbacks=lambda record: runs.setdefault(record.run, []).append(record),
    )
    last = {run: records[-1].inertia for run, records in runs.items()}
    assert len({round(value, 6) for value in last.values()}) > 1  # else this shows nothing
    best = min(last, key=lambda run: last[run])
    assert model.history_ == runs[best]
    assert model.inertia_ == pytest.approx(last[best], rel=1e-9)


@pytest.mark.parametrize("n_init", [2, 10])
def test_given_centres_and_many_runs_warn(n_init: int) -> None:
    X = blobs()
    with pytest.warns(RuntimeWarning, match="performing only one init in KMeans") as caught:
        model = fitted(X, init=X[:4], n_init=n_init)
    assert [warning.filename for warning in caught] == [__file__]
    assert_same_model(model, fitted(X, init=X[:4]))


@pytest.mark.parametrize("init", ["k-means++", "random", "array", "callable"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("make", [np.asarray, sp.csr_matrix], ids=["dense", "csr"])
def test_inits_give_what_scikit_learn_gives(
    init: str, weighted: bool, make: Callable[[Any], Any]
) -> None:
    X = make(datasets.blobs(200, 5, 6, spread=2.0, seed=4))
    choices: dict[str, Any] = {
        "array": dense(X[:6]),
        "callable": _first_rows([]),
    }
    weights = np.random.default_rng(5).uniform(0, 3, 200) if weighted else None
    params: dict[str, Any] = {
        "init": choices.get(init, init),
        "n_init": 1 if init == "array" else 3,
        "random_state": 7,
    }
    ours = KMeans(6, **params).fit(X, sample_weight=weights)
    theirs = sklearn.cluster.KMeans(6, **params).fit(X, sample_weight=weights)
    np.testing.assert_array_equal(ours.labels_, theirs.labels_)
    assert ours.n_iter_ == theirs.n_iter_
    assert ours.inertia_ == pytest.approx(theirs.inertia_, rel=1e-9)
    np.testing.assert_allclose(ours.cluster_centers_, theirs.cluster_centers_, rtol=1e-9)


def test_init_containers() -> None:
    X = blobs()
    expected = fitted(X, init=X[:4])
    for init in (
        X[:4].tolist(),
        pd.DataFrame(X[:4]),
        sp.csr_array(X[:4]),
        np.asfortranarray(X[:4]),
    ):
        assert_same_model(fitted(X, init=init), expected)


def test_callable_init_gets_scikit_learns_arguments() -> None:
    seen: list[Any] = []

    def init(X: Any, n_clusters: int, random_state: Any) -> Any:
        seen.append((type(X), X.shape, n_clusters, type(random_state)))
        return X[random_state.permutation(len(X))[:n_clusters]]

    ours = fitted(blobs(), init=init, n_init=2)
    theirs = sklearn.cluster.KMeans(4, init=init, n_init=2, random_state=0).fit(blobs())
    assert seen[:2] == [(np.ndarray, (60, 3), 4, np.random.RandomState)] * 2
    np.testing.assert_array_equal(ours.labels_, theirs.labels_)


@pytest.mark.parametrize("seed", [0, np.int64(3), np.random.RandomState(5), None])
def test_random_state(seed: Any) -> None:
    fitted(blobs(), random_state=seed)
    if isinstance(seed, np.random.RandomState):  # is advanced, as in scikit-learn
        theirs = np.random.RandomState(5)
        sklearn.cluster.KMeans(4, random_state=theirs).fit(blobs())
        assert seed.randint(2**31) == theirs.randint(2**31)


def test_fewer_distinct_rows_than_clusters_warns_once() -> None:
    X = datasets.load("few_distinct").X
    with pytest.warns(ConvergenceWarning, match=r"distinct clusters \(4\) found smaller") as caught:
        model = fitted(X, 6)
    assert [warning.filename for warning in caught] == [__file__]
    assert len(np.unique(model.labels_)) == 4
    assert model.inertia_ == 0


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


def _raise(error: BaseException) -> Callable[[Iteration], None]:
    def callback(record: Iteration) -> None:
        raise error

    return callback


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
    "raising callback": ({"callbacks": _raise(OSError())}, np.ones((9, 5)), None, OSError),
    "Ctrl-C": ({"callbacks": _raise(KeyboardInterrupt())}, np.eye(9, 5), None, KeyboardInterrupt),
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
        np.testing.assert_array_equal(model.predict(blobs()), model.labels_)


def _run(code: str, **options: Any) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        **options,
    )
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


# Each is busy for minutes in another part of the work.
LONG_FITS = {
    "iterations": "KMeans(300, init='random', tol=0, max_iter=10**6, n_init=99)",
    "seeding": "KMeans(4000, init='k-means++')",
    "one thread": "KMeans(2000, init='random', n_init=99, n_jobs=1)",
    "bounds": "KMeans(300, init='random', tol=0, n_init=99, algorithm='hamerly')",
}


@pytest.mark.skipif(sys.platform == "win32", reason="SIGINT cannot be sent to one process there")
@pytest.mark.parametrize("work", LONG_FITS)
def test_interrupt_stops_within_a_second(work: str) -> None:
    code = f"""
        import signal
        import numpy as np
        from exactmeans import KMeans
        # A shell may have started us with the signal ignored.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        X = np.random.default_rng(0).random((100_000, 24))
        model = {LONG_FITS[work]}
        before = dict(vars(model))
        print("ready", flush=True)
        try:
            model.fit(X)
        except KeyboardInterrupt:
            print("as it was" if vars(model) == before else vars(model), flush=True)
            raise
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
        assert child.stdout.readline() == "ready\n"
        time.sleep(0.7)  # so that it is deep inside the core
        began = time.perf_counter()
        child.send_signal(signal.SIGINT)
        line = child.stdout.readline()
        took = time.perf_counter() - began
        _, errors = child.communicate(timeout=20)
    finally:
        child.kill()
        child.communicate()
    assert line == "as it was\n"
    assert took < 1
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
    for given in (centres, np.asfortranarray(centres), _read_only(centres)):
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


# kmeans_plusplus ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("trials", [None, 1, 5])
@pytest.mark.parametrize("kind", ["dense", "centred", "csr", "list"])
def test_kmeans_plusplus_draws_as_scikit_learn(
    kind: str, trials: int | None, weighted: bool, seed: int
) -> None:
    X: Any = datasets.blobs(200, 6, 12, spread=3.0, seed=seed)
    if kind == "centred":
        X = X - X.mean(axis=0)
    elif kind == "csr":
        X = sp.csr_matrix(X * (np.random.default_rng(seed).random(X.shape) < 0.4))
    elif kind == "list":
        X = X.tolist()
    weights = np.random.default_rng(seed).uniform(0, 2, 200) if weighted else None
    params: dict[str, Any] = {
        "sample_weight": weights,
        "random_state": seed,
        "n_local_trials": trials,
    }
    centres, indices = kmeans_plusplus(X, 12, **params)
    given = np.array(X) if kind == "list" else X  # scikit-learn's takes no lists
    expected_centres, expected = sklearn.cluster.kmeans_plusplus(given, 12, **params)
    np.testing.assert_array_equal(indices, expected)
    assert indices.dtype.kind == expected.dtype.kind
    np.testing.assert_array_equal(centres, dense(expected_centres))


def test_kmeans_plusplus_takes_norms_and_all_rows() -> None:
    X = blobs()
    norms = np.square(X).sum(axis=1)
    centres, indices = kmeans_plusplus(X, 60, x_squared_norms=norms, random_state=1)
    assert sorted(indices) == list(range(60))
    np.testing.assert_array_equal(centres, X[indices])
    assert kmeans_plusplus(X.astype(np.float32), 2, random_state=1)[0].dtype == np.float32


def test_kmeans_plusplus_never_picks_weightless_rows() -> None:
    X = blobs()
    weights = (np.arange(60) % 3 == 0).astype(float)
    for seed in range(10):
        _, indices = kmeans_plusplus(X, 15, sample_weight=weights, random_state=seed)
        assert (weights[indices] > 0).all()


def test_kmeans_plusplus_in_blocks() -> None:
    X = blobs()
    centres, indices = kmeans_plusplus(X, 5, random_state=2)
    cut = kmeans_plusplus(open_blocks([X[:7], X[7:8], X[8:]]), 5, random_state=2)
    np.testing.assert_array_equal(cut[0], centres)
    np.testing.assert_array_equal(cut[1], indices)


# open_blocks --------------------------------------------------------------------------------------


def test_blocks_are_read_where_they_are() -> None:
    X = blobs()
    source = open_blocks([X[:20], X[20:]])
    assert isinstance(source, BlockSource)
    assert (len(source), source.shape) == (2, (60, 3))
    assert np.shares_memory(source.read(1), X)
    again: Any = source
    assert open_blocks(again) is source
    assert repr(source) == "<2 blocks, 60 rows x 3 columns>"


@pytest.mark.parametrize("make", [np.asarray, sp.csr_matrix, sp.csc_array])
def test_blocks_work_wherever_arrays_do(make: Callable[[Any], Any]) -> None:
    X = blobs()
    weights = np.linspace(0, 2, 60)
    blocks = open_blocks(make(part) for part in (X[:1], X[1:33], X[33:]))  # any iterable will do
    model = fitted(blocks, sample_weight=weights)
    assert_same_model(model, fitted(make(X), sample_weight=weights))
    np.testing.assert_array_equal(model.predict(blocks), model.labels_)
    np.testing.assert_array_equal(model.transform(blocks), model.transform(make(X)))
    assert model.score(blocks, sample_weight=weights) == -model.inertia_


def test_blocks_of_lists_frames_and_mixed_dtypes() -> None:
    X = np.rint(blobs())
    blocks = [X[:10].tolist(), pd.DataFrame(X[10:20]), X[20:40].astype("f4"), X[40:].astype("i8")]
    assert_same_model(fitted(open_blocks(blocks)), fitted(X))


class _Generated:
    """A source of the user's own, without a base class."""

    shape = (60, 3)

    def __len__(self) -> int:
        return 3

    def read(self, block: int) -> Any:
        return blobs()[20 * block : 20 * block + 20]


def test_any_block_source() -> None:
    assert_same_model(fitted(_Generated()), fitted(blobs()))


# what a fit tells ---------------------------------------------------------------------------------


KINDS = [int, int, float, float, int, int, int, str, float, int]


@pytest.mark.parametrize("algorithm", ["auto", "lloyd", "elkan", "hamerly", "yinyang", "kdtree"])
def test_history(algorithm: str) -> None:
    X = datasets.blobs(400, 4, 8, spread=4.0)
    seen: list[Iteration] = []
    model = fitted(X, 8, algorithm=algorithm, tol=0, callbacks=seen.append)
    history = model.history_
    assert history == seen
    assert len(history) == model.n_iter_ > 3
    assert [record.iteration for record in history] == list(range(1, model.n_iter_ + 1))
    assert {record.run for record in history} == {0}
    inertias = [record.inertia for record in history]
    assert inertias == sorted(inertias, reverse=True)
    assert inertias[-1] == pytest.approx(model.inertia_, rel=1e-9)
    assert history[0].changed == 400
    assert history[-1].changed == 0
    assert all(record.shift >= 0 for record in history)
    assert [r.seconds for r in history] == sorted(r.seconds for r in history)
    assert model.n_distances_ == sum(record.distances for record in history)
    assert model.algorithm_ == ("lloyd" if algorithm == "auto" else algorithm)
    assert {record.algorithm for record in history} == {model.algorithm_}
    for record in history:
        assert [type(value) for value in record] == KINDS
        # A row is skipped, or at least its own distance is computed.
        assert 400 - record.distances <= record.skipped <= 400 - record.changed
    assert history[0].skipped == 0
    # So few rows are one leaf of a tree.
    assert (history[-1].skipped > 0) == (model.algorithm_ not in ("lloyd", "kdtree"))


def test_lloyd_counts_every_distance() -> None:
    model = fitted(blobs(), algorithm="lloyd", tol=0)
    assert [record.distances for record in model.history_] == [60 * 4] * model.n_iter_


@pytest.mark.parametrize("true", [True, np.True_])
def test_callback_stops_the_fit(true: Any) -> None:
    X = datasets.blobs(400, 4, 8, spread=6.0)
    model = fitted(X, 8, tol=0, callbacks=lambda record: true if record.iteration == 2 else None)
    assert model.n_iter_ == 2
    assert_same_model(model, fitted(X, 8, tol=0, max_iter=2))
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    assert "callback" in model.explain()


def test_every_callback_is_called() -> None:
    """One that stops the fit does not keep the others from seeing the iteration."""
    first: list[Iteration] = []
    last: list[Iteration] = []
    callbacks = (first.append, lambda record: True, last.append)
    fitted(blobs(), init="random", n_init=3, callbacks=callbacks)
    assert first == last
    assert [(record.run, record.iteration) for record in first] == [(0, 1), (1, 1), (2, 1)]


def test_callbacks_that_return_other_things_do_not_stop() -> None:
    expected = fitted(blobs())
    for value in (None, False, 0, 1, "yes", [True]):
        assert fitted(blobs(), callbacks=lambda record, value=value: value).n_iter_ == (
            expected.n_iter_
        )


def test_silent_unless_asked(capfd: pytest.CaptureFixture[str]) -> None:
    X = blobs()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = fitted(X, n_init=3, callbacks=lambda record: None)
        model.predict(X), model.transform(X), model.score(X), model.explain()
        kmeans_plusplus(X, 3)
    assert capfd.readouterr() == ("", "")


def test_verbose_prints_a_line_per_iteration(capfd: pytest.CaptureFixture[str]) -> None:
    seen: list[Iteration] = []
    model = fitted(blobs(), n_init=2, verbose=1, callbacks=seen.append)
    out, err = capfd.readouterr()
    lines = out.splitlines()
    assert err == ""
    assert len(lines) == len(seen)
    for line, record in zip(lines, seen, strict=True):
        assert line.startswith(f"run {record.run} iteration {record.iteration}: inertia ")
        assert f"{record.changed} rows changed" in line
    assert_same_model(model, fitted(blobs(), n_init=2))


def test_verbose_tells_rate_and_time_left(capfd: pytest.CaptureFixture[str]) -> None:
    fitted(blobs(), verbose=1)
    for line in capfd.readouterr().out.splitlines():
        assert re.search(
            r"inertia [\d.e+]+, \d+ rows changed, [\d.e+]+ rows/s, .*at most \d+ s", line
        )


@pytest.mark.parametrize("without", [False, True])
def test_verbose_draws_a_bar_in_terminals(without: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With rich; without it, lines."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    if without:
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    model = fitted(blobs(), verbose=1)
    assert ("\x1b[" in stream.getvalue()) == (not without)
    assert f"iteration {model.n_iter_}" in stream.getvalue()
    assert "rows changed" in stream.getvalue()


@pytest.mark.parametrize("widgets", [False, True])
def test_verbose_in_notebooks(
    widgets: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A bar is a widget there; without widgets, lines, and no word of what is missing."""
    bars: list[Any] = []
    found = importlib.util.find_spec

    def find(name: str) -> Any:
        return (True if widgets else None) if name == "ipywidgets" else found(name)

    monkeypatch.setattr("importlib.util.find_spec", find)
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr("rich.progress.Progress.start", lambda bar: bars.append(bar))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = fitted(blobs(), verbose=1)
    assert len(bars) == widgets
    lines = [line for line in capsys.readouterr().out.splitlines() if "rows changed" in line]
    assert len(lines) == (0 if widgets else model.n_iter_)


class _Monitor:
    """A callback of scikit-learn's kind."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.events: list[str] = []
        self._stop_at = stop_at

    def setup(self, estimator: Any, context: Any) -> None:
        self.events.append("setup")

    def teardown(self, estimator: Any, context: Any) -> None:
        self.events.append("teardown")

    def on_fit_task_begin(self, estimator: Any, context: Any) -> None:
        self.events.append(f"begin {context.task_name}")

    def on_fit_task_end(self, estimator: Any, context: Any) -> bool:
        self.events.append(f"end {context.task_name}")
        return len(self.events) == self._stop_at


@pytest.mark.skipif(not hasattr(KMeans, "set_callbacks"), reason="scikit-learn 1.9 has callbacks")
@pytest.mark.parametrize("kind", [KMeans, MiniBatchKMeans])
def test_callbacks_of_scikit_learn(kind: Any) -> None:
    monitor = _Monitor()
    model = kind(4, random_state=0).set_callbacks(monitor).fit(blobs())
    iteration = ["begin iteration", "end iteration"] * len(model.history_)
    assert monitor.events == ["setup", "begin fit", *iteration, "end fit", "teardown"]
    stopping = _Monitor(stop_at=4)
    stopped = kind(4, random_state=0, tol=0).set_callbacks(stopping).fit(blobs())
    assert len(stopped.history_) == 1
    failing = _Monitor()
    with pytest.raises(RuntimeError, match="no"):
        kind(4, callbacks=_raise(RuntimeError("no"))).set_callbacks(failing).fit(blobs())
    assert failing.events[-1] == "teardown"


class _Scores(_Monitor):
    """What callbacks are promised: the data, and an estimator as if the fit had ended there."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, Any]] = []

    def on_fit_task_begin(self, estimator: Any, context: Any, *, fitted_estimator: Any) -> None:  # type: ignore[override]
        self._note(f"begin {context.task_name}", fitted_estimator)

    def on_fit_task_end(  # type: ignore[override]
        self, estimator: Any, context: Any, *, X: Any, y: Any, metadata: Any, fitted_estimator: Any
    ) -> bool:
        assert fitted_estimator is not estimator
        assert y == "targets"
        weights = metadata["sample_weight"]
        cost = oracle.inertia(X, fitted_estimator.cluster_centers_, fitted_estimator.predict(X))
        assert fitted_estimator.score(X) == pytest.approx(-cost)
        assert fitted_estimator.transform(X).shape == (len(X), 4)
        assert weights is None or len(weights) == len(X)
        self._note(f"end {context.task_name}", fitted_estimator)
        return False

    def _note(self, event: str, fitted: Any) -> None:
        self.seen.append((event, None if fitted is None else fitted.cluster_centers_.copy()))
        if event != "end fit" and fitted is not None:
            assert not hasattr(fitted, "labels_")


@pytest.mark.skipif(not hasattr(KMeans, "set_callbacks"), reason="scikit-learn 1.9 has callbacks")
@pytest.mark.parametrize(
    ("kind", "options"),
    [(KMeans, {}), (MiniBatchKMeans, {}), (MiniBatchKMeans, {"method": "memoized"})],
)
@pytest.mark.parametrize("weighted", [False, True])
def test_callbacks_get_an_estimator_as_if_the_fit_had_ended(
    kind: Any, options: dict[str, Any], weighted: bool
) -> None:
    X, scores = blobs(), _Scores()
    weights = np.ones(len(X)) if weighted else None
    model = kind(4, init=X[:4], n_init=1, random_state=0, **options).fit(X).set_callbacks(scores)
    model.fit(X, "targets", sample_weight=weights)
    (first, nothing), *between, (last, end) = scores.seen
    assert (first, nothing, last) == ("begin fit", None, "end fit")
    np.testing.assert_array_equal(end, model.cluster_centers_)
    np.testing.assert_array_equal(between[0][1], X[:4])
    assert len(between) == 2 * len(model.history_)
    for (_, ended), (_, begun) in zip(between[1::2], between[2::2], strict=False):
        np.testing.assert_array_equal(ended, begun)
    if kind is KMeans:
        stopped = KMeans(4, init=X[:4], max_iter=1, tol=0).fit(X, sample_weight=weights)
        np.testing.assert_array_equal(between[1][1], stopped.cluster_centers_)


def _score(model: Any, X: Any, y: Any, **options: Any) -> float:
    return float(model.score(X, y, **options))


@pytest.mark.skipif(not hasattr(KMeans, "set_callbacks"), reason="scikit-learn 1.9 has callbacks")
def test_scikit_learns_own_callbacks_work(capsys: pytest.CaptureFixture[str]) -> None:
    theirs: Any = importlib.import_module("sklearn.callback")
    X, monitor = blobs(), theirs.ScoringMonitor(scoring={"score": _score})
    model = KMeans(4, init=X[:4], tol=0).set_callbacks(monitor, theirs.ProgressBar())
    model.fit(X, np.zeros(len(X)))
    scores = [row["score"] for row in monitor.get_logs().data if row["task_name"] == "iteration"]
    assert len(scores) == model.n_iter_
    assert scores == sorted(scores)
    assert scores[-1] == -model.inertia_
    assert "KMeans" in capsys.readouterr().out


def test_verbose_goes_where_print_goes() -> None:
    stream = io.StringIO()
    stdout, sys.stdout = sys.stdout, stream
    try:
        fitted(blobs(), verbose=1)
    finally:
        sys.stdout = stdout
    assert "iteration 1" in stream.getvalue()


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({}, ["lloyd", "auto", "60 x 3", "float64", "no label changed", "MB"]),
        ({"algorithm": "hamerly"}, ["hamerly", "algorithm='hamerly'"]),
        ({"max_iter": 1, "init": "random", "n_init": 1}, ["iterations: 1;", "max_iter"]),
        ({"tol": 1e3}, ["tol"]),
        ({"dtype": "float32"}, ["float32"]),
        ({"n_jobs": 2}, ["threads: 2"]),
    ],
)
def test_explain(params: dict[str, Any], words: list[str]) -> None:
    model = fitted(blobs(), **params)
    text = model.explain()
    assert all(word in text for word in words), text
    assert f"iterations: {model.n_iter_}" in text
    assert f"distances: {model.n_distances_} of " in text
    assert all(line.strip() and len(line) <= 100 for line in text.splitlines())


def test_explain_counts_what_was_saved() -> None:
    X = datasets.blobs(500, 4, 10, seed=1)
    assert "(100.0%)" in fitted(X, 10, algorithm="lloyd").explain()
    pruned = fitted(X, 10, algorithm="hamerly", tol=0)
    assert pruned.n_distances_ < 500 * 10 * pruned.n_iter_
    assert "(100.0%)" not in pruned.explain()


# limits -------------------------------------------------------------------------------------------


LIMITS = ["2GB", "2 gb", "1.5GiB", "900MB", "800000KB", "64MiB", " 1TB ", "1tib", "99999999B"]


@pytest.mark.parametrize(
    "limit",
    [None, 10**9, np.int64(10**9), 0.5, 1.0, np.float64(0.25), *LIMITS],
)
def test_memory_limit_is_understood(limit: Any) -> None:
    assert_same_model(fitted(blobs(), memory_limit=limit), fitted(blobs()))


@pytest.mark.parametrize(
    ("limit", "shown"),
    [(1, "1"), ("10B", "10"), ("0.5KB", "500"), ("0.5KiB", "512"), (1e-12, r"\d+")],
)
def test_memory_limit_refuses_with_what_it_needs(limit: Any, shown: str) -> None:
    pattern = rf"memory_limit must be at least [\d,]+ bytes .*60 rows.* but it is {shown}\.$"
    if isinstance(limit, float):
        pattern = "memory_limit must be"
    with pytest.raises(ValueError, match=pattern):
        fitted(blobs(), memory_limit=limit)


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
