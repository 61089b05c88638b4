"""Small random problems with every kind of trouble: duplicates, ties, empty clusters, k up to n."""

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
from sklearn.exceptions import ConvergenceWarning

import oracle
from cases import DTYPES, able, bits, cut
from exactmeans import KMeans

pytestmark = pytest.mark.core

# Few values make duplicates and ties; thirds do not add up; the pairs of scales are far apart.
PALETTES = [
    [0.0, 1.0],
    [-1.0, 0.0, 1.0, 2.0],
    [0.1, 0.2, 0.3, 1 / 3],
    [1000.0, 1000.5, 1001.0],
    [0.0, 1e-8, 1.0, 1e8],
    [-0.0, 0.0, 5e-30, -7e25],
]


@st.composite
def problems(draw: st.DrawFn) -> tuple[Any, NDArray[np.float64] | None, dict[str, Any]]:
    dtype = draw(st.sampled_from(DTYPES))
    n, d = draw(st.integers(1, 16)), draw(st.integers(1, 3))
    values = st.sampled_from(draw(st.sampled_from(PALETTES)))
    X: Any = draw(arrays(np.float64, (n, d), elements=values)).astype(dtype)
    k = draw(st.integers(1, n))
    weights = None
    if draw(st.booleans()):
        weights = draw(arrays(np.float64, n, elements=st.sampled_from([0.0, 0.1, 1.0, 2.0, 1e6])))
        if not weights.any():
            weights[-1] = 0.5
    init: Any = draw(st.sampled_from(["k-means++", "random", "rows", "elsewhere"]))
    if init == "random" and weights is not None and np.count_nonzero(weights) < k:
        init = "k-means++"  # refused: there are not enough rows to draw
    if init == "rows":
        init = X[draw(arrays(np.int64, k, elements=st.integers(0, n - 1)))]
    elif init == "elsewhere":
        init = draw(arrays(np.float64, (k, d), elements=st.sampled_from([0.0, 0.5, 3.0, -1e3])))
    options = {
        "n_clusters": k,
        "init": init,
        "n_init": 1,
        "random_state": draw(st.integers(0, 3)),
        "max_iter": draw(st.sampled_from([1, 2, 300])),
        "tol": draw(st.sampled_from([0.0, 1e-4])),
    }
    return (sp.csr_matrix(X) if draw(st.booleans()) else X), weights, options


def fit(X: Any, weights: Any, options: dict[str, Any], **more: Any) -> tuple[KMeans, int]:
    """The model and how often it warned of too few clusters; any other warning is an error."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", "algorithm='elkan' doesn't make sense", RuntimeWarning)
        model = KMeans(**options, **more).fit(X, sample_weight=weights)
    assert all(issubclass(w.category, ConvergenceWarning) for w in caught), caught
    return model, len(caught)


@given(problems())
def test_every_fit_ends_well(problem: Any) -> None:
    X, weights, options = problem
    model, warned = fit(X, weights, options)
    n, k = X.shape[0], options["n_clusters"]
    assert model.cluster_centers_.shape == (k, X.shape[1])
    assert model.cluster_centers_.dtype == X.dtype
    assert np.isfinite(model.cluster_centers_).all()
    assert model.labels_.shape == (n,)
    assert model.labels_.dtype == np.int32
    assert 1 <= model.n_iter_ == len(model.history_) <= options["max_iter"]
    assert warned == (len(np.unique(model.labels_)) < k)
    oracle.assert_labels_valid(X, model.cluster_centers_, model.labels_)
    assert np.array_equal(model.predict(X), model.labels_)
    assert np.isfinite(model.inertia_)
    assert model.inertia_ >= 0
    assert model.score(X, sample_weight=weights) == -model.inertia_


@given(problems())
def test_every_algorithm_gives_lloyds_bits(problem: Any) -> None:
    X, weights, options = problem
    expected = bits(fit(X, weights, options, algorithm="lloyd", n_jobs=1)[0])
    for algorithm in able(X):
        assert bits(fit(X, weights, options, algorithm=algorithm, n_jobs=2)[0]) == expected
        half = X.shape[0] // 2
        if half:
            blocks = cut(X, [half])
            assert bits(fit(blocks, weights, options, algorithm=algorithm)[0]) == expected


@given(problems())
def test_the_objective_never_rises(problem: Any) -> None:
    X, weights, options = problem
    model, _ = fit(X, weights, options)
    history = [record.inertia for record in model.history_]
    assert all(np.isfinite(history))
    # Initial centres may lie far outside the data and set the scale of the first record.
    values = X.data if oracle.is_sparse(X) else X
    far = max(1e-300, float(np.abs(values).max(initial=0.0)))
    if not isinstance(options["init"], str):
        far = max(far, float(np.abs(options["init"]).max()))
    total = float(X.shape[0] if weights is None else weights.sum())
    room = 1e3 * float(np.finfo(X.dtype).eps) * far * far * total * X.shape[1]
    assert all(after <= before + room for before, after in pairwise([*history, model.inertia_]))


@given(problems())
def test_as_many_clusters_as_distinct_rows(problem: Any) -> None:
    """With k-means++ and every weight positive, k distinct rows always make k clusters."""
    X, _, options = problem
    rows = X.toarray() if oracle.is_sparse(X) else X
    distinct = len(np.unique(rows + 0.0, axis=0))
    options = {**options, "init": "k-means++", "n_clusters": distinct, "tol": 0.0, "max_iter": 300}
    model, warned = fit(X, None, options)
    assert warned == (len(np.unique(model.labels_)) < distinct)
    sizes = np.abs(rows[rows != 0])
    # Values too far apart are the same point to a score, so clusters may well be missing.
    if not sizes.size or sizes.max() <= 1e4 * sizes.min():
        assert not warned
        assert model.inertia_ <= 1e-12 * float(np.square(rows.astype(np.float64)).sum())
