"""What `algorithm="auto"` decides, and what it says about it."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray

import cases
import datasets
from cases import bits, fit
from exactmeans import KMeans
from exactmeans.engine.local.far_rows import farthest_first
from exactmeans.engine.protocol import AssignStats
from exactmeans.fit import policy as policies
from exactmeans.fit.cost_model import AVERAGE_LOSS, Workload
from exactmeans.fit.policy import Choice, Policy, choose_algorithm, may_deduplicate

WIDE = Workload(n=100_000, d=50, k=100, sparse=False, itemsize=4, width=50.0)
SPARSE = Workload(n=100_000, d=9_000, k=100, sparse=True, itemsize=4, width=30.0)

FEWER = replace(SPARSE, k=30)


def auto(work: Workload, memory_limit: int | None = None) -> Choice:
    return choose_algorithm("auto", work, memory_limit)


@pytest.mark.parametrize(
    ("work", "expected"),
    [
        (WIDE, "yinyang"),
        (SPARSE, "moving"),
        (FEWER, "yinyang"),
        (Workload(100_000, 2, 1000, False, 8, 2.0), "kdtree"),
        (Workload(100_000, 2, 1000, False, 8, 2.0, reading=10**6), "yinyang"),
        (Workload(150, 4, 8, False, 8, 4.0), "lloyd"),
        (Workload(10**6, 100, 2, False, 4, 100.0), "lloyd"),
        (Workload(10**6, 2, 20, False, 4, 2.0), "lloyd"),
    ],
)
def test_auto_goes_by_the_shape_of_the_work(work: Workload, expected: str) -> None:
    choice = auto(work)
    assert choice.algorithm == expected
    assert choice.why.startswith("auto: ")
    assert choice.bytes_needed == work.bytes_needed(expected)


def test_auto_uses_what_fits() -> None:
    needs = {name: WIDE.bytes_needed(name) for name in ("yinyang", "hamerly", "lloyd")}
    assert needs["lloyd"] < needs["hamerly"] < needs["yinyang"] < WIDE.bytes_needed("elkan")
    for name, needed in needs.items():
        assert auto(WIDE, needed).algorithm == name
    with pytest.raises(ValueError, match=f"at least {needs['lloyd']:,} bytes"):
        auto(WIDE, needs["lloyd"] - 1)


@pytest.mark.parametrize("name", [name for name in cases.ABLE["dense"] if name != "lloyd"])
def test_an_explicit_algorithm_that_does_not_fit_is_refused(name: str) -> None:
    needed = WIDE.bytes_needed(name)
    assert choose_algorithm(name, WIDE, needed).algorithm == name
    message = f"memory_limit must be at least {needed:,} bytes for algorithm='{name}'"
    with pytest.raises(ValueError, match=message):
        choose_algorithm(name, WIDE, needed - 1)


def test_an_algorithm_for_dense_rows_refuses_sparse_ones() -> None:
    X = sp.csr_matrix(np.eye(5))
    with pytest.raises(ValueError, match=r"algorithm must be one of 'auto', .* for sparse X"):
        KMeans(2, algorithm="kdtree").fit(X)


def test_a_tree_is_built_only_if_the_expected_passes_win_its_cost_back() -> None:
    def first(n: int, d: int, k: int, passes: int) -> str:
        return auto(Workload(n, d, k, False, 4, d, passes=passes)).algorithm

    assert first(100_000, 2, 100, 30) == "lloyd"
    assert first(100_000, 2, 300, 5) == "yinyang"
    assert first(100_000, 2, 300, 30) == first(100_000, 2, 1000, 5) == "kdtree"
    # boxes of more features prune less, and more rows take more levels
    assert first(100_000, 3, 300, 30) == "kdtree"
    assert first(100_000, 4, 300, 30) == "yinyang"
    assert first(1_000_000, 3, 300, 30) == "yinyang"


def test_auto_looks_at_max_iter_before_it_builds_a_tree() -> None:
    X = np.random.default_rng(0).random((20_000, 2), np.float32)
    short, long = (
        KMeans(300, init=X[:300], n_init=1, tol=0, max_iter=i).fit(X).algorithm_ for i in (2, 30)
    )
    assert (short, long) == ("lloyd", "kdtree")


def test_few_passes_over_text_are_plain() -> None:
    text = Workload(100_000, 30_000, 1000, True, 4, 40.0)
    first = {passes: auto(replace(text, passes=passes)).algorithm for passes in (1, 7, 8, 30)}
    assert first == {1: "lloyd", 7: "lloyd", 8: "moving", 30: "moving"}


def test_sums_of_absolute_differences_count_without_the_filter() -> None:
    """The 8-bit filter for CSR rows bounds products only, so such passes cost as much as others."""
    text = replace(SPARSE, n=1700, metric="manhattan")  # 1,700 x 100 x (30 + 6) = 6,120,000
    assert text.plain_cost() == text.plain_cost(filtered=False)
    assert auto(text).why == "auto: bounds do not hold for manhattan distances"
    assert may_deduplicate("auto", text, None)
    for metric in ("euclidean", "cosine", "angular"):
        products = replace(text, metric=metric)
        assert products.plain_cost() < text.plain_cost()
        assert auto(products).why == "auto: too few distances for bounds to pay"
        assert not may_deduplicate("auto", products, None)


@pytest.mark.parametrize("max_iter", [30, 300])
@pytest.mark.parametrize(
    ("share", "first"), [(0.01, "yinyang"), (0.03, "yinyang"), (0.08, "lloyd")]
)
def test_bounds_begin_at_once_only_if_they_are_expected_to_pay(
    share: float, first: str, max_iter: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Short rows: a distance with bounds costs six plain ones, and many passes may never come."""
    monkeypatch.setattr(policies, "cost_with_filter", lambda *_: 1.0)
    monkeypatch.setattr(policies, "share_near", lambda *_: share)
    work = Workload(20_000, 16, 1000, False, 4, 16.0)
    policy = Policy(auto(work), work, max_iter)
    policy.begin(None, None)  # type: ignore[arg-type]
    assert policy.algorithm == first


def course(
    work: Workload, all_stats: list[AssignStats], max_iter: int = 300, *, filtered: bool = True
) -> list[str]:
    """The algorithm of each iteration, and of the one after the last."""
    policy = Policy(auto(work), work, max_iter)
    seen = [policy.algorithm]
    for iteration, stats in enumerate(all_stats, 1):
        policy.after(iteration, stats, filtered=filtered)
        seen.append(policy.algorithm)
    return seen


ALL = AssignStats(changed=50_000, distances=10_000_000, skipped=0)
FEW = AssignStats(changed=500, distances=100_000, skipped=95_000)
LONGER = replace(WIDE, d=500, width=500.0)  # whose first pass with bounds costs little more


def test_bounds_that_hold_are_kept() -> None:
    assert course(LONGER, [ALL, FEW, FEW, FEW]) == ["yinyang"] * 5


def test_bounds_that_do_not_hold_are_given_up_and_tried_once_more() -> None:
    # The first pass computes everything in any case; what bad ones after it lose is added up.
    assert course(LONGER, [ALL] * 4) == ["yinyang"] * 3 + ["lloyd"] * 2
    # When far fewer labels change, and passes enough were made, they get another chance.
    calm = ALL._replace(changed=500)
    again = course(LONGER, [ALL] * 4 + [calm] * 40)
    back = again.index("yinyang", 5)
    assert 8 < back < 30
    assert again[back : back + 4] == ["yinyang"] * 3 + ["lloyd"]
    # What good passes save makes up for bad ones.
    assert course(LONGER, [ALL, ALL, FEW, ALL, FEW]) == ["yinyang"] * 6


def test_bounds_wait_until_their_first_pass_costs_little_beside_those_before() -> None:
    seen = course(WIDE, [FEW] * 60)
    begun = seen.index("yinyang")
    first = WIDE.first_cost("yinyang", WIDE.n * WIDE.k) / WIDE.plain_cost()
    assert 5 < begun == math.ceil((first - 1) / AVERAGE_LOSS)
    assert seen == ["lloyd"] * begun + ["yinyang"] * (61 - begun)
    # Not while many labels change, nor where too few passes are left.
    assert set(course(WIDE, [ALL] * 60)) == {"lloyd"}
    assert set(course(WIDE, [FEW] * 60, max_iter=begun + 5)) == {"lloyd"}


def test_whatever_bounds_cost_auto_loses_little() -> None:
    # By its own model, over any number of passes; the first few cannot make up for a first pass.
    rng = np.random.default_rng(0)
    for work in (WIDE, LONGER, FEWER, replace(WIDE, d=16, width=16.0), replace(WIDE, k=1000)):
        plain = work.plain_cost()
        for _ in range(20):
            policy, lost = Policy(auto(work), work, 300), 0.0
            for iteration in range(1, 201):
                calm = rng.random() < 0.5
                stats = ALL._replace(
                    changed=int(rng.integers(100_000) * (0.01 if calm else 1)),
                    distances=int(work.n * work.k * rng.random()),
                )
                fresh = policy.stages[-1][0] == iteration
                if policy.algorithm != "lloyd":
                    cost = work.cost(policy.algorithm, stats)
                    if fresh:
                        cost = work.first_cost(policy.algorithm, stats.distances)
                    lost += cost / plain - 1
                policy.after(iteration, stats)
                assert lost <= 0.1 * iteration + 4


PROJECTABLE = [replace(WIDE, n=n, d=d, width=float(d)) for n, d in ((20_000, 384), (60_000, 784))]


@pytest.mark.parametrize("max_iter", [1, 2, 3, 5, 10, 20, 40])
@pytest.mark.parametrize(
    "work", [LONGER, replace(WIDE, d=16, width=16.0), replace(WIDE, k=1000), *PROJECTABLE]
)
def test_bounds_that_never_hold_cost_short_fits_a_tenth(work: Workload, max_iter: int) -> None:
    # By its own model. One more pass labels the rows in the end; and a pass that loses too much is
    # known to do so only when it is done.
    useless = AssignStats(work.n, work.n * work.k, 0)
    policy, plain = Policy(auto(work), work, max_iter), work.plain_cost()
    cost = excess = 0.0
    for iteration in range(1, max_iter + 1):
        own = plain
        if policy.algorithm != "lloyd" and policy.stages[-1][0] == iteration:
            own = work.first_cost(policy.algorithm, useless.distances)
        elif policy.algorithm != "lloyd":
            own = work.cost(policy.algorithm, useless)
            excess = own / plain - 1
        cost += own / plain
        policy.after(iteration, useless)
    assert cost + 1 <= 1.1 * (max_iter + 1) + excess


@pytest.fixture
def without_dot_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """Choose algorithms as on CPUs where dense rows have no 8-bit filter."""
    monkeypatch.setattr(policies, "cost_with_filter", lambda *_: 1.0)


@pytest.mark.usefixtures("without_dot_products")
@pytest.mark.parametrize("work", [*PROJECTABLE, replace(WIDE, n=10**6, d=128, width=128.0)])
def test_few_passes_are_not_worth_a_probe(work: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    probed: set[int] = set()

    def share_left_by_pca(*_: Any) -> float:
        probed.add(max_iter)
        return 0.1

    monkeypatch.setattr(policies, "share_left_by_pca", share_left_by_pca)
    monkeypatch.setattr(policies, "share_near", lambda *_: 1.0)
    for max_iter in (1, 2, 5, 10, 50, 300):
        policy = Policy(auto(work), work, max_iter)
        policy.begin(None, None)  # type: ignore[arg-type]
        assert (policy.algorithm == "pca") == (max_iter in probed)
    assert 300 in probed
    assert not {1, 2} & probed
    for passes in probed:
        assert work.probe_cost() <= 0.02 * passes * work.plain_cost()


@pytest.mark.parametrize(
    ("d", "filter_cost", "begins_with"),
    [(128, 1.0, "pca"), (128, 0.34, "lloyd"), (784, 0.27, "pca")],
)
def test_pca_must_beat_the_filter(
    d: int, filter_cost: float, begins_with: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Comparing projections costs the same for any d, so the filter beats it for fewer features."""
    monkeypatch.setattr(policies, "cost_with_filter", lambda *_: filter_cost)
    monkeypatch.setattr(policies, "share_left_by_pca", lambda *_: 0.1)
    monkeypatch.setattr(policies, "share_near", lambda *_: 1.0)
    work = Workload(100_000, d, 1000, False, 4, float(d))
    policy = Policy(auto(work), work, 300)
    policy.begin(None, None)  # type: ignore[arg-type]
    assert policy.algorithm == begins_with


@pytest.mark.usefixtures("without_dot_products")
def test_rows_near_their_centres_begin_with_bounds() -> None:
    rng = np.random.default_rng(9)
    spots = 100 * rng.normal(size=(200, 20))
    tight = spots[np.arange(8000) % 200] + rng.normal(size=(8000, 20))
    for X, expected in ((tight, "yinyang"), (rng.normal(size=(8000, 20)), "lloyd")):
        model = KMeans(200, init=X[:200], n_init=1, max_iter=100).fit(X)
        assert model.history_[0].algorithm == expected
        short = KMeans(200, init=X[:200], n_init=1, max_iter=5).fit(X)  # too few to win it back
        assert short.history_[0].algorithm == "lloyd"


@pytest.mark.parametrize("work", [FEWER, replace(WIDE, d=20, width=20.0)])
def test_where_bounds_are_dear_lloyd_begins(work: Workload) -> None:
    last = FEW._replace(changed=100)
    seen = course(work, [ALL] * 60 + [last] * 3)
    assert seen == ["lloyd"] * 61 + ["yinyang"] * 3


def test_products_take_over_when_few_labels_change() -> None:
    work = replace(FEWER, overlap=1_000_000.0)
    few, last = FEW._replace(changed=1), FEW._replace(changed=100)
    assert course(work, [ALL, few, few]) == ["lloyd"] * 2 + ["products"] * 2
    # from bounds, too, unless these do better
    begun = [ALL] * 60 + [last] * 2
    poor = few._replace(distances=3_000_000)
    assert course(work, [*begun, poor])[60:] == ["lloyd"] + ["yinyang"] * 2 + ["products"]
    good = FEW._replace(changed=100, distances=1000, skipped=99_990)
    assert course(work, [*begun, good])[-1] == "yinyang"
    # not where their use is not known, nor where they do not fit
    assert course(FEWER, [*begun, few])[-1] == "yinyang"
    assert auto(work, work.bytes_needed("products")).late
    assert not auto(work, work.bytes_needed("products") - 1).late


def test_products_take_over_only_where_the_filter_is_not_used() -> None:
    work = replace(SPARSE, overlap=1_000_000.0)
    few = AssignStats(changed=5, distances=100_000 * 100, skipped=0)
    assert course(work, [ALL, few, few]) == ["moving"] * 4
    assert course(work, [ALL, few, few], filtered=False) == ["moving"] * 2 + ["products"] * 2
    pruned = few._replace(distances=70_000 * 100)
    assert course(work, [ALL, pruned], filtered=False) == ["moving"] * 2 + ["products"]


def test_products_take_over_sooner_where_a_pass_has_no_filter() -> None:
    work = replace(SPARSE, overlap=1_000_000.0)
    plain = work.plain_cost(filtered=False)
    assert 1.4 * work.plain_cost() < plain < work.plain_cost() / 0.6
    changed = next(c for c in range(10_000) if work.products_cost(c) > 0.5 * plain)
    few = AssignStats(changed, distances=100_000 * 100, skipped=0)
    assert course(work, [few], filtered=False) == ["moving", "products"]
    assert course(work, [few], filtered=True) == ["moving", "moving"]


def test_products_are_changed_with_the_centres() -> None:
    X, k = work_for("sparse", "float64")
    plain, kept = (fit(X, start(X, k), algorithm=name) for name in ("lloyd", "products"))
    assert bits(plain) == bits(kept)
    assert kept.history_[0].distances == X.shape[0] * k
    assert kept.history_[-1].skipped > 0.9 * X.shape[0]


def short_texts(kind: str, n: int, d: int, signs: bool) -> NDArray[np.float64]:
    rng = np.random.default_rng(11)
    rows = (rng.random((n, d)) < 0.03) * rng.random((n, d))
    if kind == "ties":
        rows = np.ceil(2 * rows)
    if kind == "topics":
        topics = (rng.random((100, d)) < 0.05) * rng.random((100, d))
        rows = topics[rng.integers(100, size=n)] * (rng.random((n, d)) < 0.6)
    if signs:
        rows *= np.where(rng.random(d) < 0.5, -1, 1)
    rows[:, 0] = 0.5  # none is empty
    return rows


KINDS = ("topics", "noise", "ties")


@pytest.mark.parametrize(
    ("kind", "scale", "signs", "metric", "dtype"),
    cases.sampled(
        product(
            KINDS,
            (1.0, 1e-9, 1e6),
            (False, True),
            ("euclidean", "cosine", "angular"),
            cases.DTYPES,
        )
    ),
)
def test_centres_that_did_not_move_are_not_looked_at(
    kind: str, dtype: str, metric: str, signs: bool, scale: float
) -> None:
    n, k = 4000, 160
    X = sp.csr_matrix((short_texts(kind, n, 500, signs) * scale).astype(dtype))
    options: dict[str, Any] = {"init": start(X, k), "n_init": 1, "tol": 0.0, "metric": metric}
    plain, pruned = (KMeans(k, algorithm=name, **options).fit(X) for name in ("lloyd", "moving"))
    assert bits(plain) == bits(pruned)
    assert plain.history_[0].distances == pruned.history_[0].distances == n * k
    if metric != "angular":  # where all centres go on approaching their means
        assert pruned.n_distances_ < 0.9 * plain.n_distances_
        assert pruned.history_[-1].distances < 0.3 * plain.history_[-1].distances


@pytest.mark.parametrize(
    ("lists", "kind", "signs", "metric", "dtype"),
    cases.sampled(
        product((False, True), KINDS, (False, True), ("euclidean", "cosine"), cases.DTYPES)
    ),
)
def test_centres_that_hardly_moved_need_no_filter(
    lists: bool, kind: str, signs: bool, metric: str, dtype: str
) -> None:
    index = {"float32": "int32", "float64": "int64"}[dtype]
    n, k = 20_000, 160 if lists else 24
    X = sp.csr_matrix(short_texts(kind, n, 500 if lists else 100, signs).astype(dtype))
    X.indptr, X.indices = X.indptr.astype(index), X.indices.astype(index)
    if lists:  # so many features that most of them have no place in panels
        far = np.sort(np.random.default_rng(3).choice(600_000, X.shape[1], replace=False))
        X = sp.csr_matrix((X.data, far[X.indices].astype(index), X.indptr), shape=(n, 600_000))
    options: dict[str, Any] = {"init": "random", "n_init": 1, "tol": 0.0, "metric": metric}
    plain, pruned = (
        KMeans(k, algorithm=name, random_state=2, max_iter=40, **options).fit(X)
        for name in ("lloyd", "moving")
    )
    assert bits(plain) == bits(pruned)
    late = pruned.history_[-1]
    assert late.skipped > 0.3 * n
    assert late.distances < 0.5 * n * k


LONG = Workload(n=60_000, d=784, k=1000, sparse=False, itemsize=4, width=784.0)


def test_shadows_are_tried_where_rows_are_long_and_memory_allows() -> None:
    needed = LONG.bytes_needed("pca")
    assert auto(LONG) == auto(LONG, needed)
    assert (auto(LONG).algorithm, auto(LONG).probe, auto(LONG).bytes_needed) == (
        "yinyang",
        True,
        needed,
    )
    assert needed == LONG.bytes_needed("yinyang") + 60_000 * 4 * (48 + 4)
    assert not auto(LONG, needed - 1).probe
    assert auto(LONG, needed - 1).bytes_needed == LONG.bytes_needed("yinyang")
    for other in ({"d": 100, "width": 100.0}, {"k": 40}, {"reading": 10**6}, {"metric": "cosine"}):
        assert not auto(replace(LONG, **other)).probe


@pytest.mark.usefixtures("without_dot_products")
@pytest.mark.parametrize("dtype", cases.DTYPES)
def test_a_probe_decides_about_shadows(dtype: str) -> None:
    rng = np.random.default_rng(8)
    flat = rng.normal(size=(8000, 200))
    thin = flat[:, :6] @ rng.normal(size=(6, 200)) + 0.01 * flat
    for rows, expected in ((thin, "pca"), (flat, "yinyang")):
        X = rows.astype(dtype)
        plain, chosen = (fit(X, start(X, 128), algorithm=name) for name in ("lloyd", "auto"))
        assert bits(plain) == bits(chosen)
        assert chosen.history_[0].algorithm == expected
        explained = "auto: principal coordinates prune" in chosen.explain()
        assert explained == (expected == "pca")
        if expected == "pca":
            assert chosen.history_[0].distances < 0.35 * 8000 * 128
            assert chosen.n_distances_ < fit(X, start(X, 128), algorithm="yinyang").n_distances_


@pytest.mark.parametrize("dtype", cases.DTYPES)
def test_gaps_between_centres_leave_their_bounds_behind(dtype: str) -> None:
    # When they cost more than they save they are no longer found, and rows must not notice.
    X = datasets.blobs(8000, 6, 100, seed=5).astype(dtype)
    plain, bounded = (fit(X, X[:400], algorithm=name) for name in ("lloyd", "yinyang"))
    assert bits(plain) == bits(bounded)
    distances = [record.distances for record in bounded.history_]
    assert distances[-1] < 400 * 400 / 4
    assert all(after < 2 * before for before, after in pairwise(distances))


def test_a_given_algorithm_stays() -> None:
    policy = Policy(choose_algorithm("yinyang", WIDE, None), WIDE, 300)
    for iteration in range(1, 9):
        policy.after(iteration, ALL)
    assert policy.algorithm == "yinyang"


@pytest.mark.usefixtures("without_dot_products")
@pytest.mark.parametrize("dtype", cases.DTYPES)
@pytest.mark.parametrize("kind", ["blobs", "noise", "thin", "sparse"])
def test_auto_gives_lloyds_bits_whatever_it_does(kind: str, dtype: str) -> None:
    X, k = work_for(kind, dtype)
    plain, chosen = (fit(X, start(X, k), algorithm=name) for name in ("lloyd", "auto"))
    assert bits(plain) == bits(chosen)
    used = [record.algorithm for record in chosen.history_]
    assert set(used) != {"lloyd"}
    assert used[-1] == chosen.algorithm_
    text = chosen.explain()
    for name in set(used):
        if len(set(used)) > 1:
            assert f"algorithm: {name} from iteration {used.index(name) + 1} (" in text
    assert all(len(line) <= 100 for line in text.splitlines())
    assert chosen.n_distances_ < X.shape[0] * k * (chosen.n_iter_ + 1)


COPIED = {"duplicates", "few_distinct", "lattice"}


@pytest.mark.parametrize("case", cases.params(c for c in cases.cases() if c.data in COPIED))
def test_one_row_is_compared_for_all_its_copies(
    case: cases.Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policies, "SHORT_PASS", 0)  # or it would not be worth a look
    plain = case.fit()
    n, distinct = case.X.shape[0], len(np.unique(cases.dense(case.X), axis=0))
    merged = case.family == "dense" and 4 * distinct <= 3 * n
    for layout in cases.LAYOUTS[case.family]:
        model = case.fit(layout, algorithm="auto")
        assert bits(model) == bits(plain)
        if layout != "blocks":  # copies in other blocks do not count
            assert (f"distinct rows: {distinct};" in model.explain()) == merged
        if merged and layout != "blocks":
            assert all(record.skipped >= n - distinct for record in model.history_)
            assert model.n_distances_ <= distinct * case.k * (model.n_iter_ + 1)
        changed = [record.changed for record in model.history_]
        assert changed == [record.changed for record in plain.history_]


def test_a_memory_limit_may_not_leave_room_for_merging_copies() -> None:
    needed = WIDE.bytes_needed("lloyd")
    assert may_deduplicate("auto", WIDE, None)
    assert may_deduplicate("auto", WIDE, needed + 24 * WIDE.n)
    assert not may_deduplicate("auto", WIDE, needed + 24 * WIDE.n - 1)
    assert not may_deduplicate("lloyd", WIDE, None)
    for name in cases.ALGORITHMS:
        merged = replace(WIDE, distinct_rows=WIDE.n // 2)
        assert merged.bytes_needed(name) <= max(WIDE.bytes_needed(name), needed + 24 * WIDE.n)


def test_far_rows_come_in_order_of_distance_and_number() -> None:
    rng = np.random.default_rng(7)
    for n in (1, 5, 255, 256, 257, 3000, 20_000):
        distances = rng.integers(0, 40, n) / 4.0
        expected = [i for i in np.argsort(-distances, kind="stable").tolist() if distances[i] > 0]
        assert list(farthest_first(distances)) == expected


def work_for(kind: str, dtype: str) -> tuple[Any, int]:
    if kind == "sparse":
        rng = np.random.default_rng(3)
        topics = rng.random((60, 400)) < 0.04
        rows = topics[rng.integers(60, size=6000)] * (rng.random((6000, 400)) < 0.5)
        return sp.csr_matrix((rows * rng.random(rows.shape)).astype(dtype)), 80
    if kind == "noise":  # bounds do not hold
        return np.random.default_rng(4).random((3000, 300)).astype(dtype), 64
    d, n = (2, 20_000) if kind == "thin" else (60, 6000)
    k = 300 if kind == "thin" else 60
    return datasets.blobs(n, d, 40, seed=5).astype(dtype), k


def start(X: Any, k: int) -> Any:
    return cases.dense(X[np.random.default_rng(6).choice(X.shape[0], k, replace=False)])


def loops_of_the_paper(X: Any, C: Any, iterations: int) -> list[int]:
    """Rows that go through all centres, by Hamerly's (2010) listing in plain NumPy."""
    k, rows = len(C), np.arange(len(X))
    upper, lower, labels = np.full(len(X), np.inf), np.zeros(len(X)), np.zeros(len(X), dtype=int)
    counts: list[int] = []
    for _ in range(iterations):
        between = np.linalg.norm(C[:, None] - C, axis=2) + np.diag(np.full(k, np.inf))
        limit = np.maximum(lower, between.min(axis=1)[labels] / 2)
        open_ = rows[upper > limit]
        if counts:  # the upper bound is made tight first
            upper[open_] = np.linalg.norm(X[open_] - C[labels[open_]], axis=1)
            open_ = open_[upper[open_] > limit[open_]]
        counts.append(len(open_))
        distances = np.linalg.norm(X[open_, None] - C, axis=2)
        labels[open_] = distances.argmin(axis=1)
        upper[open_], lower[open_] = np.sort(distances, axis=1)[:, :2].T
        means = np.array([X[labels == j].mean(axis=0) for j in range(k)])
        went, C = np.linalg.norm(means - C, axis=1), means
        upper += went[labels]
        lower -= np.array([np.delete(went, j).max() for j in range(k)])[labels]
    return counts


def test_hamerly_skips_as_many_loops_as_in_the_paper() -> None:
    X, k = datasets.blobs(3000, 6, 30, spread=6.0), 15
    model = KMeans(k, init=X[:k], algorithm="hamerly", tol=0, max_iter=25).fit(X)
    tight = [0, *(len(X) - record.skipped for record in model.history_[1:])]
    loops = [(r.distances - t) // k for r, t in zip(model.history_, tight, strict=True)]
    # Bounds are kept in float32, rounded to the safe side, which costs a row now and then.
    plain = np.array(loops_of_the_paper(X, X[:k], len(loops)))
    assert np.abs(loops - plain).max() <= 0.001 * len(X)
    assert 0 < sum(loops[1:]) < 0.8 * len(X) * (len(loops) - 1)
