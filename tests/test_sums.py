"""Sums are exact: equal to sums of Fractions for values of any exponent, in any order.

Means are correctly rounded, but for one documented exception: an exact mean within 2^-100
(relative) of the boundary between two floats may go either way.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

import oracle
from exactmeans import _core
from exactmeans.engine.local.engine import LocalEngine

pytestmark = pytest.mark.core

HAIR = Fraction(1, 2**98)


def floats(dtype: str, **limits: Any) -> st.SearchStrategy[float]:
    """Every magnitude, and small whole numbers so that sums cancel and tie."""
    width: Literal[32, 64] = 32 if dtype == "float32" else 64
    wild = st.floats(allow_nan=False, allow_infinity=False, width=width, **limits)
    powers = st.integers(-120, 120).map(lambda e: math.ldexp(1.0, e))
    near_one = st.integers(-3, 3).map(lambda i: 1 + i * float(np.finfo(dtype).eps))
    return wild | st.integers(-4, 4).map(float) | powers | powers.map(lambda v: -v) | near_one


VALUES = {
    "float32": floats("float32"),
    "float64": floats("float64", min_value=-(2.0**300), max_value=2.0**300),
}
WEIGHTS = st.floats(1e-30, 1e30) | st.sampled_from([0.0, 1.0, 2.0, 0.1, 1 / 3])


@st.composite
def problems(draw: st.DrawFn) -> tuple[Any, NDArray[np.float64] | None, NDArray[np.int32], int]:
    """Rows (dense or CSR), weights or none, labels, and a number of clusters."""
    dtype = draw(st.sampled_from(["float32", "float64"]))
    n, d, k = draw(st.integers(1, 12)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    X: Any = draw(arrays(dtype, (n, d), elements=VALUES[dtype]))
    if dtype == "float64" and draw(st.booleans()):
        # Beyond these ends squares of the values overflow or vanish, and all work is scaled.
        X = np.ldexp(X, 600) if draw(st.booleans()) else np.ldexp(X, -900)
    if draw(st.booleans()):
        X = sp.csr_matrix(X)
    weights = draw(arrays(np.float64, n, elements=WEIGHTS)) if draw(st.booleans()) else None
    if weights is not None and not weights.any():
        weights[0] = 1.0
    labels = draw(arrays(np.int32, n, elements=st.integers(0, k - 1)))
    return X, weights, labels, k


class Summed:
    """The sums of one block, made the way a fit makes them."""

    def __init__(self, X: Any, weights: NDArray[np.float64] | None, k: int) -> None:
        engine = LocalEngine([X], weights, 2)
        self.X, self.weights, self.k = X, weights, k
        self.rows = engine._blocks[0].rows
        grid = _core.Grid(engine.survey(weighted=True).bounds, engine.n)
        self.exponent = grid.exponent
        grid.bins = engine.bins_needed(grid, weighted=True)
        counts = _core.Grid(np.ones(1), engine.n)
        if weights is not None:
            counts = _core.Grid(weights.max(keepdims=True), engine.n)
            counts.bins = _core.Rows.dense(weights[:, None], None).bins_needed(counts, 1)
        self.sums = _core.Sums(k, engine.d, grid, counts)
        self.other = _core.Sums(k, engine.d, grid, counts)
        self.summed = np.full(engine.n, -1, dtype=np.int32)

    def relabel(self, labels: NDArray[np.int32]) -> None:
        self.sums.relabel(self.rows, labels, self.summed, 2)

    def exact(self) -> list[list[Fraction]]:
        """What the words stand for, in the data's own units."""
        back = Fraction(2) ** -self.exponent
        words = self.sums.bins
        assert words.shape[0] == self.k
        return [
            [sum(map(Fraction, column.tolist()), Fraction(0)) * back for column in centre.T]
            for centre in words
        ]

    def check(self, labels: NDArray[np.int32]) -> None:
        sums, weights = oracle.exact_sums(self.X, labels, self.k, self.weights)
        assert self.exact() == sums
        for got, weight in zip(self.sums.weights.tolist(), weights, strict=True):
            check_value(got, weight)
        heavy = labels if self.weights is None else labels[self.weights > 0]
        assert self.sums.members.tolist() == np.bincount(heavy, minlength=self.k).tolist()

    def check_means(self, labels: NDArray[np.int32]) -> None:
        sums, weights = oracle.exact_sums(self.X, labels, self.k, self.weights)
        centres = np.full((self.k, self.X.shape[1]), np.nan, dtype=self.X.dtype)
        self.sums.average(centres)
        expected = oracle.mean(sums, weights, self.X.dtype)
        for j, f in zip(*np.nonzero(centres != expected), strict=True):
            assert weights[j], "an empty cluster takes the place of the heaviest one"
            mean = sums[j][f] / weights[j]
            assert on_a_boundary(mean, self.X.dtype), (mean, centres[j, f], expected[j, f])


def on_a_boundary(exact: Fraction, dtype: Any) -> bool:
    """Would the 98 leading bits of the number not tell which float it is nearest to?"""
    return oracle.round_to(exact * (1 - HAIR), dtype) != oracle.round_to(exact * (1 + HAIR), dtype)


@given(problems())
def test_sums_are_those_of_fractions(problem: Any) -> None:
    X, weights, labels, k = problem
    summed = Summed(X, weights, k)
    summed.relabel(labels)
    summed.check(labels)


@given(problems())
def test_means_are_correctly_rounded(problem: Any) -> None:
    X, weights, labels, k = problem
    summed = Summed(X, weights, k)
    summed.relabel(labels)
    summed.check_means(labels)


@given(problems(), st.lists(st.randoms(use_true_random=False), min_size=1, max_size=4))
def test_rows_come_and_go_without_a_trace(problem: Any, randoms: list[Any]) -> None:
    X, weights, labels, k = problem
    summed = Summed(X, weights, k)
    summed.relabel(labels)
    for random in randoms:
        changed = labels.copy()
        random.shuffle(changed)
        summed.relabel(changed)
        summed.check(changed)
    summed.relabel(labels)
    direct = Summed(X, weights, k)
    direct.relabel(labels)
    assert summed.exact() == direct.exact()
    summed.check_means(labels)
    summed.sums.reset()
    assert not summed.sums.bins.any()
    assert not summed.sums.members.any()
    summed.summed.fill(-1)
    summed.relabel(labels)
    summed.check(labels)


@given(problems(), st.data())
def test_single_rows_move_there_and_back(problem: Any, data: st.DataObject) -> None:
    X, weights, labels, k = problem
    summed = Summed(X, weights, k)
    summed.relabel(labels)
    before = summed.exact()
    rows = data.draw(st.permutations(range(X.shape[0])))
    elsewhere = labels.copy()
    for i in rows:
        elsewhere[i] = data.draw(st.integers(0, k - 1))
        summed.sums.move(summed.rows, i, int(labels[i]), False)
        summed.sums.move(summed.rows, i, int(elsewhere[i]), True)
    summed.check(elsewhere)
    summed.check_means(elsewhere)
    for i in rows[::-1]:
        summed.sums.move(summed.rows, i, int(elsewhere[i]), False)
        summed.sums.move(summed.rows, i, int(labels[i]), True)
    assert summed.exact() == before


@given(problems())
def test_sums_of_parts_add_up(problem: Any) -> None:
    X, weights, labels, k = problem
    summed = Summed(X, weights, k)
    for i, label in enumerate(labels.tolist()):
        (summed.sums if i % 2 else summed.other).move(summed.rows, i, label, True)
    summed.sums.add(summed.other)
    summed.check(labels)
    summed.check_means(labels)


def test_the_mean_in_float32_is_rounded_once() -> None:
    """A hair above the middle of two floats: through float64 it would land on the middle."""
    X = np.array([[1.0], [1.0 + 2.0**-23], [2.0**-60], [0.0]], dtype=np.float32)
    labels = np.zeros(4, dtype=np.int32)
    summed = Summed(X, None, 1)
    summed.relabel(labels)
    centres = np.empty((1, 1), dtype=np.float32)
    summed.sums.average(centres)
    assert centres[0, 0] == np.float32(0.5 + 2.0**-24)


@pytest.mark.parametrize(("dtype", "exponent"), [("float64", -1074), ("float32", -149)])
def test_means_among_the_subnormals_are_rounded_once(dtype: str, exponent: int) -> None:
    for total, n in [(1, 2), (3, 2), (5, 3), (7, 4), (5, 8), (11, 8), (13, 9)]:
        values = np.zeros((n, 1))
        values[: total % n] = 1
        values += total // n
        X = np.ldexp(values, exponent).astype(dtype)
        summed = Summed(X, None, 1)
        summed.relabel(np.zeros(n, dtype=np.int32))
        summed.check(np.zeros(n, dtype=np.int32))
        summed.check_means(np.zeros(n, dtype=np.int32))


def test_small_columns_beside_huge_ones_lose_nothing() -> None:
    """Scaling the huge column must not push the small one below the smallest float."""
    X = np.array([[1e250, 3e-250], [2e250, 1e-250], [4e250, 1e-250 / 3]])
    labels = np.zeros(3, dtype=np.int32)
    summed = Summed(X, None, 1)
    summed.relabel(labels)
    summed.check(labels)
    summed.check_means(labels)


def test_large_values_that_cancel_leave_the_small_ones() -> None:
    column = [1e200, 3.0, -1e200, 2.0**-60, 1e100, -1e100, 0.1]
    X = np.array(column)[:, None]
    labels = np.zeros(len(X), dtype=np.int32)
    summed = Summed(X, None, 1)
    summed.relabel(labels)
    summed.check(labels)
    summed.check_means(labels)


# ExactSum -----------------------------------------------------------------------------------------

ANY = st.floats(allow_nan=False, allow_infinity=False) | floats("float64")


def total_of(values: list[float]) -> Fraction:
    return sum(map(Fraction, values), Fraction(0))


def rounded(total: Fraction) -> float:
    try:
        return float(total)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


def check_value(got: float, total: Fraction) -> None:
    if got != rounded(total):
        assert math.isfinite(got), (got, rounded(total))
        assert on_a_boundary(total, np.float64), (got, rounded(total))


def exact_sum(values: list[float]) -> _core.ExactSum:
    sum_ = _core.ExactSum()
    for value in values:
        sum_.add(value)
    return sum_


@given(st.lists(ANY, max_size=40))
def test_exact_sums_are_those_of_fractions(values: list[float]) -> None:
    check_value(exact_sum(values).value, total_of(values))


@given(st.lists(st.lists(ANY, max_size=10), max_size=5))
def test_exact_sums_merge(parts: list[list[float]]) -> None:
    merged = _core.ExactSum()
    for part in parts:
        merged.add(exact_sum(part))
    values = [value for part in parts for value in part]
    check_value(merged.value, total_of(values))
    assert merged.value == exact_sum(values[::-1]).value


@given(st.lists(st.integers(-(2**60), 2**60).map(lambda i: math.ldexp(i, -1074)), max_size=20))
def test_exact_sums_of_subnormals(values: list[float]) -> None:
    check_value(exact_sum(values).value, total_of(values))


@given(st.lists(ANY, min_size=1, max_size=10))
def test_what_is_added_and_removed_leaves_nothing(values: list[float]) -> None:
    assert exact_sum([*values, *(-v for v in values[::-1])]).value == 0


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_sums_beyond_float64_are_infinite_but_come_back(sign: float) -> None:
    sum_ = exact_sum([sign * 1.7e308] * 3)
    assert sum_.value == sign * math.inf
    sum_.add(-sign * 1.7e308)
    sum_.add(-sign * 1.7e308)
    assert sum_.value == sign * 1.7e308
