"""Bad input gets one sentence that names the argument and says what is allowed."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError

import exactmeans
from exactmeans import (
    KMeans,
    MiniBatchKMeans,
    kmeans_plusplus,
    labels,
    open_blocks,
    plot,
    sql,
    text,
)
from exactmeans.text import tfidf

PACKAGE = Path(exactmeans.__file__).parent

X = np.random.default_rng(0).normal(size=(40, 3))
ONES = np.ones(40)


def put(value: float, row: int = 3, like: NDArray[Any] = X) -> NDArray[Any]:
    """A copy of X with one other value."""
    copy = like.copy()
    copy[row, ...] = value
    return copy


def returns(value: Any) -> Callable[..., Any]:
    """An init that returns `value`."""

    def init(X: Any, n_clusters: int, random_state: Any) -> Any:
        return value

    return init


@dataclass(frozen=True)
class Case:
    """A mistake, the argument it is in, and what the message must say."""

    title: str
    argument: str
    call: Callable[[], Any]
    says: str
    error: type[Exception] = ValueError
    # scikit-learn's validation speaks here, in words that its own checks ask for
    theirs: bool = False


@dataclass
class Table:
    cases: list[Case] = field(default_factory=list)

    def fit(self, title: str, says: str, data: Any = X, weight: Any = None, **params: Any) -> None:
        """A mistake in what KMeans or its fit is given."""
        argument = "sample_weight" if weight is not None else next(iter(params), "X")

        def call() -> Any:
            return KMeans(**{"n_clusters": 3, **params}).fit(data, sample_weight=weight)

        self.cases.append(Case(f"{argument}: {title}", argument, call, says))

    def add(
        self,
        argument: str,
        title: str,
        call: Callable[[], Any],
        says: str,
        error: type[Exception] = ValueError,
        *,
        theirs: bool = False,
    ) -> None:
        self.cases.append(Case(f"{argument}: {title}", argument, call, says, error, theirs))


def call(name: str, *arguments: Any) -> Any:
    """A method of an estimator that was never fitted."""
    return getattr(KMeans(), name)(*arguments)


class h5py_like:  # noqa: N801
    """Rows that are read by slices."""

    def __init__(self, X: NDArray[Any]) -> None:
        self._X, self.shape = X, X.shape

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        return self._X[rows].copy()


table = Table()
fit, add = table.fit, table.add
value: Any

with_none = X.astype(object)
with_none[3, 0] = None

# X: values ----------------------------------------------------------------------------------------
for title, data in {
    "array": put(np.nan),
    "float32": put(np.nan).astype(np.float32),
    "F order": np.asfortranarray(put(np.nan)),
    "list": put(np.nan).tolist(),
    "csr": sp.csr_array(put(np.nan)),
    "csc": sp.csc_matrix(put(np.nan)),
    "pandas": pd.DataFrame(put(np.nan)),
    "None among objects": with_none,
    "blocks": open_blocks([X[:2], put(np.nan)[2:]]),
}.items():
    says = r"must be finite.* NaN.* row is 3, in column 0: leave such rows out or impute"
    fit(f"NaN in {title}", says, data)
says = r"must be finite.* infinity.* row is 7, in column 0: replace it\.$"
fit("inf", says, put(np.inf, 7))
fit("minus inf in csr", says, sp.csr_array(put(-np.inf, 7)))
one_nan = X.copy()
one_nan[5, 2] = np.nan
for title, data in {
    "array": one_nan,
    "csr": sp.csr_array(one_nan),
    "pandas without names": pd.DataFrame(one_nan),
    "blocks": open_blocks([X[:2], one_nan[2:]]),
    "slices": open_blocks(h5py_like(one_nan), block_rows=4),
}.items():
    fit(f"NaN in a column of {title}", r"row is 5, in column 2: ", data)
for title, data in {
    "pandas": pd.DataFrame(one_nan, columns=["a", "b", "c"]),
    "polars": pl.DataFrame(one_nan, schema=["a", "b", "c"]),
    "blocks of frames": open_blocks([pd.DataFrame(one_nan, columns=["a", "b", "c"])]),
}.items():
    fit(f"NaN in a column of {title}", r"row is 5, in column 'c': ", data)
nullable = pd.DataFrame({"a": pd.array([1, None, 3, 4], "Int64"), "b": [1.0, 2, 3, 4]})
fit("NA of pandas", r"NaN; the first such row is 1, in column 'a'", nullable)
masked = np.ma.masked_invalid(one_nan)
fit("masked values", r"must not have masked values, but the first is in row 5, column 2", masked)
add(
    "source",
    "masked values in blocks",
    lambda: open_blocks([X, masked]),
    "source must not have masked values, but the first is in row 5, column 2",
)
add(
    "source",
    "masked values in slices",
    lambda: KMeans(3).fit(open_blocks(masked, block_rows=4)),
    "source must not have masked values",
)
fit("masked", "must not have masked values", init=masked[4:7])
fit("masked", "must not have masked values, but the first is in row 5:", weight=masked[:, 2])
dates = np.arange(12).reshape(4, 3).astype("datetime64[D]")
fit("dates", r"must hold numbers, but it holds dates \(dtype datetime64", dates)
fit("time spans", r"must hold numbers, but it holds time spans", dates - dates[0])
fit(
    "dates in a frame",
    "its column 'when' holds dates: leave it out",
    pd.DataFrame({"a": np.arange(4.0), "when": dates[:, 0].astype("datetime64[ns]")}),
)
fit(
    "dates in a frame of dates",
    "its column 'when' holds dates",
    pd.DataFrame({"when": dates[:, 0].astype("datetime64[ns]")}),
)
for title, frame in {
    "pandas": pd.DataFrame({"v": [1, 2, 3, 4], "name": list("wxyz")}),
    "polars": pl.DataFrame({"v": [1, 2, 3, 4], "name": list("wxyz")}),
    "pyarrow": pa.table({"v": [1, 2, 3, 4], "name": list("wxyz")}),
    "objects": pd.DataFrame({"v": [1, None, 3, 4], "name": [1, "x", 2, 3]}, dtype=object),
}.items():
    fit(f"a text column of {title}", r"its column 'name' holds text: leave it out, or make", frame)
add("X", "too large for float32", lambda: KMeans(3, dtype="float32").fit(X * 1e300), "finite")

# X: text and other things that are not numbers ----------------------------------------------------
for title, data in {
    "array": np.array([["a", "b"]] * 4),
    "bytes": np.array([[b"a", b"b"]] * 4),
    "digits": np.array([["1", "2"]] * 4),
    "objects": np.array([["a", "b"]] * 4, dtype=object),
    "list of texts": ["some", "words", "to", "cluster"],
    "nested list": [["a", "b"]] * 4,
    "one string": "some words",
    "pandas": pd.DataFrame({"a": list("wxyz")}),
    "polars": pl.DataFrame({"a": list("wxyz")}),
    "blocks": open_blocks([np.array([["a", "b"]] * 4)]),
}.items():
    fit(f"text in {title}", "must (hold|be).* numbers", data)
fit("documents", r"exactmeans\.text\.tfidf makes rows of documents", ["some words", "to cluster"])
fit("a file that is not there", "there is no file 'rows'", "rows")
fit("ragged list", "must ", [[1, 2], [3], [4, 5]])
fit("ragged objects", "must ", np.array([[1, 2], [3], [4, 5]], dtype=object))
fit("dict", "must ", {"a": [1, 2, 3]})
fit("set", "must ", {1, 2, 3})
fit("None", "must ", None)
fit("structured", "must ", np.zeros((4, 2), dtype="f8,f8"))
fit("int beyond float64", "must ", [[10**400, 1]] * 4)
fit("complex list", "must |Complex data not supported", [[1j, 2]] * 4)

# X: shape -----------------------------------------------------------------------------------------
for title, data in {
    "1-D": X[0],
    "1-D list": [1.0, 2.0, 3.0],
    "3-D": np.ones((3, 3, 3)),
    "3-D list": [[[1.0]]],
    "a list of sparse matrices": [sp.csr_array(X), sp.csr_array(X)],
    "0-D": np.array(3.0),
    "a number": 3,
    "no rows, list": [],
}.items():
    fit(title, "two-dimensional", data)
fit("3-D, what to do", r"shape \(3, 3, 3\): X\.reshape\(len\(X\), -1\)", np.ones((3, 3, 3)))
fit("list of blocks", r"list of 2: exactmeans\.open_blocks\(X\)", [X, X])
fit("tuple of blocks", r"tuple of 2: exactmeans\.open_blocks\(X\)", (X[:5], X[5:]))
for title, data in {
    "0 rows": np.empty((0, 3)),
    "0 columns": np.empty((3, 0)),
    "0 rows, csr": sp.csr_array((0, 3)),
    "0 columns, csr": sp.csr_array((3, 0)),
}.items():
    add(
        "X",
        title,
        partial(KMeans(3).fit, data),
        r"Found array with 0 (sample|feature)\(s\) \(shape=.* minimum of 1 is required by KMeans",
        theirs=True,
    )
for title, data in {"array": X * 1j, "csr": sp.csr_array(X * 1j)}.items():
    add(
        "X",
        f"complex {title}",
        partial(KMeans(3).fit, data),
        "Complex data not supported",
        theirs=True,
    )

# n_clusters ---------------------------------------------------------------------------------------
fit("more than rows", "n_samples=40 should be >= n_clusters=41", n_clusters=41)
for value in (0, -1, True, False, 2.0, np.float64(3), "3", None, [3]):
    fit(repr(value), "must be an int of at least 1, but it is", n_clusters=value)

# sample_weight ------------------------------------------------------------------------------------
fit("negative", r"must not be negative.* row 5", weight=put(-1, 5, ONES))
fit("negative scalar", "must not be negative", weight=-2)
fit("all zero", "zero", weight=np.zeros(40))
fit("zero", "zero", weight=0)
fit("NaN", "must be finite", weight=put(np.nan, 5, ONES))
fit("inf", "must be finite", weight=put(np.inf, 5, ONES))
fit("NaN scalar", "must be finite", weight=float("nan"))
fit("too short", r"\(39,\).*\(40,\)", weight=ONES[:39])
fit("too long", r"\(41,\).*\(40,\)", weight=np.ones(41))
fit("empty", r"\(0,\).*\(40,\)", weight=[])
fit("2-D", "1D", weight=np.ones((40, 1)))
fit("text", "must hold numbers", weight=["a"] * 40)
fit("a word", "must hold numbers", weight="balanced")
fit("dict", "must hold numbers", weight={0: 1.0})
fit("complex", "must ", weight=ONES * 1j)
fit("ragged", "must hold numbers", weight=[[1], [2, 3]] * 20)
fit("too large", "float64", data=X * 1e300, weight=ONES * 1e300)
add(
    "sample_weight",
    "fewer positive ones than random seeds",
    lambda: KMeans(3, init="random").fit(X, sample_weight=ONES * (np.arange(40) < 2)),
    "positive for at least n_clusters=3 rows",
)

# init ---------------------------------------------------------------------------------------------
for value in ("kmeans", "K-MEANS++", "", "auto"):
    fit(
        repr(value),
        r"must be 'k-means\+\+', 'k-means\|\|', 'random', 'furthest', \('d', alpha\), a callable",
        init=value,
    )
fit("None", "must be an array of numbers", init=None)
fit("number", "must ", init=3)
fit("NaN", "must be finite", init=put(np.nan)[2:5])
fit("inf", "must be finite", init=put(np.inf)[2:5])
fit("too few", r"\(2, 3\).* (n_clusters=|number of clusters )3", init=X[:2])
fit("too many", r"\(4, 3\).* (n_clusters=|number of clusters )3", init=X[:4])
fit("too narrow", r"\(3, 2\).* 3", init=X[:3, :2])
fit("1-D", r"\(3,\)", init=X[0])
fit("3-D", r"\(1, 3, 3\)", init=X[np.newaxis, :3])
fit("text", "must be an array of numbers", init=[["a"] * 3] * 3)
fit("ragged", "must be an array of numbers", init=[[1, 2, 3], [1], [2]])
fit("complex", "must ", init=X[:3] * 1j)
fit("sparse NaN", "must be finite", init=sp.csr_array(put(np.nan)[2:5]))
fit("returns NaN", "what init returned must be finite", init=returns(put(np.nan)[2:5]))
fit("returns too few", r"\(2, 3\)", init=returns(X[:2]))
fit("returns too narrow", r"\(3, 2\)", init=returns(X[:3, :2]))
fit("returns None", "must ", init=returns(None))
fit("returns a tuple", "a tuple of 2: return the centres alone", init=kmeans_plusplus)
for title, value in {
    "no random_state": lambda X, n_clusters: X[:3],
    "one argument": lambda X: X[:3],
    "more arguments": lambda X, n_clusters, more, random_state: X[:3],
}.items():
    fit(title, r"must be callable as init\(X, n_clusters, random_state=\.\.\.\), but", init=value)
fit("returns text", "must be an array of numbers", init=returns("abc"))
add(
    "init",
    "callable with blocks",
    lambda: KMeans(3, init=returns(X[:3])).fit(open_blocks([X])),
    "must not be a callable when X comes in blocks",
)

# other parameters ---------------------------------------------------------------------------------
for value in ("yes", "", None, -1, 1.5, [1]):
    fit(repr(value), "must be True, False or an int of at least 0", verbose=value)
for value in (-1, 2**32, 1.5, "seed", [1.5]):
    fit(repr(value), r"must be None, an int in \[0, 2\*\*32\) or a RandomState", random_state=value)
for value in (np.random.default_rng(0), np.random.PCG64(0)):
    fit(type(value).__name__, r"a (Generator|PCG64): pass a seed from it, such", random_state=value)
    seeded: dict[str, Callable[[], Any]] = {
        "batches": partial(MiniBatchKMeans(3, random_state=value).fit, X),
        "++": partial(kmeans_plusplus, X, 3, random_state=value),
    }
    for title, start in seeded.items():
        add("random_state", f"{type(value).__name__}, {title}", start, "seed from it")
for value in ("many", "", "AUTO"):
    fit(repr(value), "must be 'auto' or an int of at least 1", n_init=value)
for value in (0, -1, 1.0, True, None):
    fit(repr(value), "must be .*int of at least 1", n_init=value)
for value in (0, -5, 1.5, True, "300", None):
    fit(repr(value), "must be an int of at least 1", max_iter=value)
for value in (-1e-9, float("nan"), float("inf"), "1", None, True, 1j):
    fit(repr(value), "must be a finite number of at least 0", tol=value)
for value in ("elkann", "full", "LLOYD", "", None, 3, ["lloyd"]):
    fit(repr(value), "must be one of 'auto', 'lloyd', 'elkan', 'hamerly'", algorithm=value)
for value in ("cos", "l2", "", None, 2):
    fit(repr(value), "must be .*'euclidean'", metric=value)
for value in ("float16", "int64", "floaty", "", 3.5, complex, int, np.longdouble, ">f8", "f8,f8"):
    fit(repr(value), "must be None, 'float32' or 'float64'", dtype=value)
for value in (0, 1.0, True, False, "all", [2]):
    fit(repr(value), "must be None or an int other than 0", n_jobs=value)
NO_LIMIT = r"must be None, a number of bytes, a string like '2GB' or a fraction"
for value in (
    "lots",
    "",
    "GB",
    "-2GB",
    "2",
    "2 IB",
    "2 PB",
    "1e3GB",
    "0GB",
    "0.0MB",
    "2GB2GB",
    "2I",
):
    fit(repr(value), NO_LIMIT, memory_limit=value)
for value in (-1, 0, 0.0, -0.5, 1.5, True, False, float("nan"), float("inf"), b"2GB", [1], 1j):
    fit(repr(value), NO_LIMIT, memory_limit=value)
fit("absurdly many digits", "must be", memory_limit="9" * 400 + "GB")
fit("too little", r"must be at least [\d,]+ bytes", memory_limit="10B")
for value in (3, [3], "print", [print, None], True, {"a": 1}):
    fit(repr(value), "must be None, a callable or a sequence of callables", callbacks=value)

# a fitted model -----------------------------------------------------------------------------------
model = KMeans(3, random_state=0).fit(X)
makers: dict[str, Any] = {"dense": np.ones, "csr": sp.csr_array}
for name in ("predict", "transform", "score"):
    method = getattr(model, name)
    for width in (1, 2, 4):
        for layout, make in makers.items():
            add(
                "X",
                f"{name} of width {width}, {layout}",
                partial(method, make((5, width))),
                f"X has {width} features, but KMeans is expecting 3 features as input",
                theirs=True,
            )
    add("X", f"{name} of NaN", partial(method, put(np.nan)), "must be finite")
    add("X", f"{name} of one row", partial(method, X[0]), "two-dimensional")
    add(
        "X",
        f"{name} of no row",
        partial(method, X[:0]),
        "minimum of 1 is required",
        theirs=True,
    )
    add("X", f"{name} of text", partial(method, [["a", "b", "c"]]), "numbers")
    add(
        "X",
        f"{name} of narrow blocks",
        partial(method, open_blocks([X[:, :2]])),
        "X has 2 features",
        theirs=True,
    )
add(
    "X",
    "too large for a float32 model",
    lambda: KMeans(3).fit(X.astype(np.float32)).predict(X * 1e300),
    "must be finite",
)
add(
    "sample_weight",
    "of another length than the rows to score",
    lambda: model.score(X, sample_weight=ONES[:5]),
    r"\(5,\).*\(40,\)",
)
for name in ("predict", "transform", "score"):
    add(
        "fit",
        f"must come before {name}",
        partial(call, name, X),
        "not fitted yet",
        NotFittedError,
        theirs=True,
    )
for name in ("explain", "get_feature_names_out"):
    add(
        "fit",
        f"must come before {name}",
        partial(call, name),
        "not fitted yet",
        NotFittedError,
        theirs=True,
    )

# files and texts ----------------------------------------------------------------------------------
add("path", "load of a folder", partial(exactmeans.load, PACKAGE), "is a folder: name the file")
add("path", "save as a folder", partial(model.save, PACKAGE), "must name a file")
add(
    "path",
    "save into a folder that is not there",
    partial(model.save, PACKAGE / "nowhere" / "model.safetensors"),
    "must lie in a folder that exists.*make it first",
    FileNotFoundError,
)
value = None
add("source", "no documents", partial(tfidf, value), "must be strings.* it is of type 'NoneType'")

# functions that take a model ----------------------------------------------------------------------
tree = exactmeans.KMeansTree(3, random_state=0).fit(X)
takes_model: dict[str, Callable[[Any], Any]] = {
    "silhouette": lambda m: exactmeans.silhouette(X, m),
    "report": lambda m: exactmeans.report(m, X, "no.html"),
    "representatives": lambda m: text.representatives(X, m),
    "misfits": lambda m: text.misfits(X, m),
    "convergence": plot.convergence,
    "distances_avoided": plot.distances_avoided,
    "sizes": plot.sizes,
    "map2d": lambda m: plot.map2d(m, X),
    "centers_to_sql": lambda m: sql.centers_to_sql(m, "sqlite:///no", "t"),
    "predict_table": lambda m: sql.predict_table("sqlite:///no", "", m, into="t", key="id"),
    "predict_function": lambda m: sql.predict_function(m, "f"),
    "register": lambda m: sql.register("", m, "f"),
}
for title, function in takes_model.items():
    for value in (tree, X):
        kind = type(value).__name__
        says = f"must be a fitted KMeans or MiniBatchKMeans, but it is of type '{kind}'"
        add("model", f"{kind} for {title}", partial(function, value), says)
    add(
        "fit",
        f"must come before {title}",
        partial(function, KMeans()),
        "not fitted yet",
        NotFittedError,
        theirs=True,
    )
says = r"must be a fitted KMeansTree or BisectingKMeans, but it is of type 'KMeans'"
add("model", "KMeans for a plot of a tree", lambda: plot.tree(model), says)

# reports, plots and the choice of k ---------------------------------------------------------------
report = partial(exactmeans.report, model, X)
for value in (None, 3, b"page.html"):
    add("path", f"{value!r} for a report", partial(report, value), "must be the path of a file")
    add("path", f"save to {value!r}", partial(model.save, value), "must be the path of a file")
    add("path", f"load of {value!r}", partial(exactmeans.load, value), "must be the path of a file")
for argument, value, says in [
    (
        "selection",
        3,
        r"must be None or what exactmeans\.select_k returned, but it is of type 'int'",
    ),
    ("title", 3, "must be a string"),
    ("texts", 3, "must be None or a sequence with an entry for each row"),
    ("ids", iter([]), "must be None or a sequence with an entry for each row"),
    ("units", 3, r"must be None or \(offsets, factors\), two arrays of numbers"),
    (
        "units",
        ([0, 0, 0], None),
        r"must be offsets and factors of 3 features each, but one has .*\(\)",
    ),
]:
    add(
        argument,
        f"{type(value).__name__}, report",
        partial(report, "a.html", **{argument: value}),
        says,
    )
add("selection", "a model", lambda: plot.k_selection(model), "must be what exactmeans.select_k")
says = "must be None or matplotlib Axes, but it is of type"
add("ax", "units", partial(plot.sizes, model, X, value), says)
value = "seed"
add("random_state", "seed, map", partial(plot.map2d, model, X, random_state=value), "an int of at")
add(
    "progress",
    "a number",
    lambda: exactmeans.select_k(X, [2], progress=3),  # type: ignore[arg-type]
    "must be None or a callable",
)

# MiniBatchKMeans, texts and labels ----------------------------------------------------------------
add(
    "compute_labels",
    "'no'",
    lambda: MiniBatchKMeans(3, compute_labels="no").fit(X),  # type: ignore[arg-type]
    "must be True or False",
)
add(
    "compute_labels",
    "False for labels",
    lambda: MiniBatchKMeans(3, compute_labels=False).fit_predict(X),
    "must be True for fit_predict, which returns labels_",
)
add("source", "an empty list of documents", partial(tfidf, []), "must hold documents, but it holds")
add("X", "one document", lambda: text.without_terms(X[0]), "must be a matrix with a row for each")
for argument, arguments in {"Y": (3, X), "Z": (X, [["a"]] * 40)}.items():
    add(
        argument,
        "no matrix, representations",
        partial(labels.representations, *arguments),
        "must be a two-dimensional matrix of numbers",
    )
for argument, value in {"path": 3, "n_features": "x", "n_labels": 0}.items():
    add(
        argument,
        f"{value!r}, svmlight",
        partial(labels.load_svmlight, **{"path": __file__, argument: value}),
        "must be (the path of a file|an int of at least 1), but it is",
    )
value = X  # its repr has many lines
says = r"but it is array\(.*\.\.\.\.$"
add("init", "an array, for a tree", partial(exactmeans.KMeansTree(init=value).fit, X), says)
value = "mysql"
says = "must be 'postgresql', but it is 'mysql'"
add("dialect", value, partial(sql.predict_function, model, "f", dialect=value), says)

# kmeans_plusplus ----------------------------------------------------------------------------------
add("n_clusters", "++ more than rows", lambda: kmeans_plusplus(X, 41), "n_samples=40")
for value in (0, -1, True, 2.0, "2", None):
    add(
        "n_clusters",
        f"++ {value!r}",
        partial(kmeans_plusplus, X, value),
        "must be an int of at least 1",
    )
for value in (0, -1, 1.5, True, "auto"):
    add(
        "n_local_trials",
        repr(value),
        partial(kmeans_plusplus, X, 3, n_local_trials=value),
        "must be .*int of at least 1",
    )
add("X", "++ NaN", lambda: kmeans_plusplus(put(np.nan), 3), "must be finite")
add("X", "++ 1-D", lambda: kmeans_plusplus(X[0], 3), "two-dimensional")
add("X", "++ text", lambda: kmeans_plusplus([["a"]] * 4, 3), "numbers")
add(
    "sample_weight",
    "++ negative",
    lambda: kmeans_plusplus(X, 3, sample_weight=-ONES),
    "must not be negative",
)
add("sample_weight", "++ zero", lambda: kmeans_plusplus(X, 3, sample_weight=0 * ONES), "zero")
add(
    "x_squared_norms",
    "too short",
    lambda: kmeans_plusplus(X, 3, x_squared_norms=ONES[:5]),
    r"\(5,\).* 40",
)

# open_blocks --------------------------------------------------------------------------------------
for title, value in {
    "bytes": b"rows",
    "a number": 3,
    "None": None,
}.items():
    add(
        "source",
        title,
        partial(open_blocks, value),
        "must be a path, a list of arrays, or something",
        TypeError,
    )
for title, blocks, says in [
    ("nothing", [], "at least one block"),
    ("rows", [X[0], X[1]], "two-dimensional blocks, but block 0 is not"),
    ("a 3-D block", [X, X[np.newaxis]], "two-dimensional blocks, but block 1 is not"),
    ("ragged", [X[:, :2], [[1, 2], [3]]], "must hold"),
    ("two widths", [X, X, X[:, :2]], "block 0 has 3 columns and block 2 has 2"),
    ("dense and sparse", [X, sp.csr_array(X)], "dense or sparse blocks, not both"),
]:
    add("source", title, partial(open_blocks, blocks), says)


def test_titles_are_distinct() -> None:
    titles = [case.title for case in table.cases]
    assert len(titles) == len(set(titles))


@pytest.mark.parametrize("case", table.cases, ids=lambda case: case.title)
def test_mistake(case: Case) -> None:
    with pytest.raises(case.error) as info:
        case.call()
    message = str(info.value)
    assert re.search(case.says, message), message
    if case.theirs:
        return
    assert Path(info.traceback[-1].path).is_relative_to(PACKAGE), "not refused by our own code"
    assert "\n" not in message
    # `init` is not named by "initial", nor `X` by "max".
    assert re.search(rf"(?<!\w){case.argument}(?!\w)", message), message
    assert message[0] != " "
    assert message.endswith((".", "!")), message  # a sentence
    assert len(message) < 300


@pytest.mark.parametrize(
    ("params", "length"), [({"algorithm": "x" * 10_000}, 300), ({"tol": "9" * 10_000}, 300)]
)
def test_long_values_are_cut_short(params: dict[str, Any], length: int) -> None:
    with pytest.raises(ValueError, match="must be") as info:
        KMeans(3, **params).fit(X)
    assert len(str(info.value)) < length
