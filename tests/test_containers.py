"""Whatever holds the rows, the bits are the same, and no copy is made."""

from __future__ import annotations

import sys
import tracemalloc
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
import sklearn
import sklearn.cluster
from numpy.typing import NDArray

from exactmeans import BlockSource, KMeans, kmeans_plusplus, open_blocks
from exactmeans.labels import representations
from models import assert_same_model, blobs, counts, first_rows, fitted, read_only, run_python

SPARSE_FORMATS = ["csr", "csc", "coo", "lil", "dok", "bsr", "dia"]


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


def _named_source(kind: str, frame: pd.DataFrame, folder: Path) -> Any:
    if kind == "frame":
        return open_blocks(frame, block_rows=20)
    if kind == "frames":
        return open_blocks([frame[:50], frame[50:]])
    path = folder / f"x.{kind}"
    if kind == "csv":
        frame.to_csv(path, index=False)
    else:
        getattr(frame, f"to_{kind}")(path)
    return open_blocks(path, block_rows=20)


@pytest.mark.parametrize("kind", ["csv", "parquet", "feather", "frame", "frames"])
def test_names_of_files_and_frames_in_blocks_are_kept(kind: str, tmp_path: Path) -> None:
    X = blobs()
    frame = _frame("pandas", X)
    model = fitted(_named_source(kind, frame, tmp_path))
    assert_same_model(model, fitted(X))
    assert model.feature_names_in_.tolist() == NAMES
    assert model.n_features_in_ == 3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(model.predict(frame), model.labels_)
        again = _named_source(kind, frame, tmp_path)
        np.testing.assert_array_equal(model.predict(again), model.labels_)
        assert model.transform(again).shape == (len(X), 4)
    turned = frame[NAMES[::-1]]
    for other in (turned, _named_source(kind, turned, tmp_path)):
        with pytest.raises(ValueError, match=r"(?s)feature names should match.* order"):
            model.predict(other)
    renamed = frame.rename(columns={"width": "depth"})
    with pytest.raises(ValueError, match=r"feature names should match.*it lacks 'width'\.$"):
        model.predict(_named_source(kind, renamed, tmp_path))
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        model.predict(open_blocks([X]))
    with pytest.warns(UserWarning, match="has feature names"):
        fitted(X).predict(_named_source(kind, frame, tmp_path))
    assert not hasattr(model.fit(open_blocks([X])), "feature_names_in_")


def test_names_of_chosen_columns(tmp_path: Path) -> None:
    frame = _frame("pandas", blobs())
    frame.to_csv(tmp_path / "x.csv", index=False)
    frame.to_parquet(tmp_path / "x.parquet")
    for thing in (tmp_path / "x.csv", tmp_path / "x.parquet", frame):
        model = fitted(open_blocks(thing, columns=["height", "length"]))
        assert model.feature_names_in_.tolist() == ["height", "length"]


def test_blocks_with_other_names_are_refused() -> None:
    frame = _frame("pandas", blobs())
    with pytest.raises(ValueError, match="same column names in the same order, but blocks 0 and 1"):
        open_blocks([frame[:50], frame[NAMES[::-1]][50:]])


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
    "read-only": read_only,
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
    assert_same_model(fitted(mapped, init=first_rows(seen)), fitted(X, init=first_rows([])))
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
    fitted(wide, init=first_rows(seen))
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


def _out_of_range(layout: str, at: int) -> Any:
    """A 4 x 3 matrix with an index out of range, as no constructor would make it."""
    whole: Any = sp.coo_array(np.eye(4, 3))
    X = whole.asformat(layout)
    if layout == "lil":
        X.rows[1] = [at]
    else:
        (X.col if layout == "coo" else X.indices)[1] = at
    return X


@pytest.mark.core
@pytest.mark.parametrize("at", [4, 2**30, -1])
@pytest.mark.parametrize("layout", ["csr", "csc", "coo", "lil"])
def test_indices_out_of_range_are_refused_in_every_format(layout: str, at: int) -> None:
    bad = _out_of_range(layout, at)
    ones = np.ones((4, 3))
    with pytest.raises(ValueError, match=r"X must be a well-formed|X\.indices must lie in"):
        fitted(bad, 2)
    with pytest.raises(ValueError, match="Y must be a well-formed"):
        representations(bad, ones)
    with pytest.raises(ValueError, match="Z must be a well-formed"):
        representations(ones, bad)


@pytest.mark.core
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_centres_are_refused(case: str, sparse: bool) -> None:
    """Given as init, returned by a callable, or set as cluster_centers_."""
    X: Any = np.random.default_rng(0).normal(size=(50, 3))
    X = sp.csr_array(X) if sparse else X
    bad = _malformed(case)
    model = KMeans(4, random_state=0).fit(X)
    model.cluster_centers_ = bad
    uses: dict[str, Callable[[], Any]] = {
        "init": lambda: KMeans(4, init=bad, n_init=1).fit(X),
        "what init returned": lambda: KMeans(4, init=lambda *_, **__: bad, n_init=1).fit(X),
        "cluster_centers_": lambda: model.predict(X),
    }
    for what, use in uses.items():
        with pytest.raises(ValueError, match=f"^{what} must be a well-formed csr matrix") as info:
            use()
        assert "\n" not in str(info.value)
    with pytest.raises(ValueError, match="cluster_centers_ must be a well-formed"):
        model.transform(X)


@pytest.mark.parametrize("sparse", [False, True])
def test_centres_may_be_unordered_whatever_their_flags_say(sparse: bool) -> None:
    X: Any = np.random.default_rng(0).normal(size=(50, 3))
    X = sp.csr_array(X) if sparse else X
    start = sp.csr_matrix(np.array([[1.0, 2.0, 0.0], [0.0, 1.0, 3.0]]))
    tidy = KMeans(2, init=start.copy(), n_init=1).fit(X)
    assert start.has_canonical_format  # cached from here on
    start.indices[:2] = [1, 0]
    start.data[:2] = [2.0, 1.0]
    before = start.indices.copy()
    assert_same_model(KMeans(2, init=start, n_init=1).fit(X), tidy)
    np.testing.assert_array_equal(start.indices, before)


@pytest.mark.parametrize("kind", [np.complex128, object])
def test_sparse_centres_must_be_real_numbers(kind: Any) -> None:
    init = sp.csr_matrix(np.eye(2, 3) * 1j) if kind is np.complex128 else None
    if init is None:
        init = sp.csr_matrix((2, 3))
        init.data, init.indices = np.array(["a"], dtype=object), np.array([0], dtype=np.int32)
        init.indptr = np.array([0, 1, 1], dtype=np.int32)
    with pytest.raises(ValueError, match=r"init must be an array of numbers of shape \(2, 3\)"):
        KMeans(2, init=init, n_init=1).fit(np.random.default_rng(0).normal(size=(50, 3)))


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


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_arrays_are_not_copied(dtype: str) -> None:
    X = blobs().astype(dtype)
    for view in (X, np.asfortranarray(X), X[::2], X[:, ::-1]):
        seen: list[Any] = []
        fitted(view, init=first_rows(seen), n_init=2)
        assert len(seen) == 2
        assert all(np.shares_memory(given, view) for given in seen)
    csr = sp.csr_array(X)
    seen = []
    fitted(csr, init=first_rows(seen))
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
    report = run_python(
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


@pytest.mark.parametrize("shape", [(61, 3), (59, 3), (60, 4)])
def test_a_source_must_be_of_its_shape(shape: tuple[int, int]) -> None:
    source = _Generated()
    source.shape = shape
    with pytest.raises(ValueError, match=r"X must have the shape .* \(60, 3\), but X.shape is"):
        fitted(source)
