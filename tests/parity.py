"""Is a fit the same as scikit-learn's? If not, prove that only a rounding tie made the difference.

Both libraries are run in float64 from the same random_state. Equal seeds, labels, n_iter_ and
inertia need no proof. Otherwise both are replayed from one array of centres with max_iter = 1, 2, …
until their labels part, and there every label that differs must be a tie of the same centres.

Not for magnitudes whose squares overflow or vanish (`magnitude_*` of datasets.py): scikit-learn
has no answer.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

import oracle
from exactmeans.engine.local.engine import LocalEngine
from exactmeans.fit.loop import first_centroids
from exactmeans.fit.problem import analyse
from oracle import FloatArray, Rows, U, is_sparse


@dataclass(frozen=True)
class ParityRow:
    """One line of the parity table; tried == equal + ties_proved + repaired."""

    name: str
    tried: int
    equal: int
    ties_proved: int
    details: tuple[str, ...] = ()
    repaired: int = 0  # empty clusters were given other rows, as the contract says they should


@dataclass(frozen=True)
class Verdict:
    kind: str  # "equal", "tie" or "repair"
    detail: str = ""


EQUAL = Verdict("equal")


@dataclass(frozen=True)
class Case:
    """Everything the two libraries are given alike."""

    X: Rows
    k: int
    sample_weight: FloatArray | None
    options: Mapping[str, Any]  # for both estimators
    ours: Mapping[str, Any]  # for exactmeans alone: algorithm, n_jobs, …

    @property
    def weight(self) -> FloatArray:
        n = self.X.shape[0]
        return np.ones(n) if self.sample_weight is None else self.sample_weight

    @property
    def middle(self) -> Any:
        """What scikit-learn subtracts from dense rows before it does anything else."""
        return 0.0 if is_sparse(self.X) else self.X.mean(axis=0)

    @property
    def centred(self) -> Rows:
        return self.X if is_sparse(self.X) else self.X - self.middle

    @property
    def radius(self) -> float:
        """Largest norm of a row as scikit-learn holds it: the scale of its rounding errors."""
        X = self.centred
        square = X.multiply(X).sum(axis=1) if is_sparse(X) else np.square(X).sum(axis=1)
        return float(np.sqrt(np.max(square)))

    def theirs_fit(self, **changes: Any) -> Any:
        options = {"algorithm": "lloyd", **self.options, **changes}
        return self._fit(import_module("sklearn.cluster").KMeans, options)

    def ours_fit(self, **changes: Any) -> Any:
        options = {**self.options, **self.ours, **changes}
        return self._fit(import_module("exactmeans").KMeans, options)

    def _fit(self, estimator: Any, options: dict[str, Any]) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # both warn of duplicates and of max_iter = 1
            model = estimator(n_clusters=self.k, n_init=1, **options)
            return model.fit(self.X, sample_weight=self.sample_weight)


def gamma(m: int) -> float:
    return m * U / (1 - m * U)


def compare(
    X: Rows,
    k: int,
    seeds: Iterable[int],
    *,
    sample_weight: ArrayLike | None = None,
    init: Any = "k-means++",
    name: str = "",
    ours: Mapping[str, Any] | None = None,
    allow_repair: bool = False,
    **kw: Any,
) -> ParityRow:
    """Fit both for every seed; raise AssertionError on a difference that is not a proved tie.

    `ours` holds options for exactmeans alone. With `allow_repair` a fit may also differ because
    scikit-learn filled empty clusters with rows the contract skips (weight 0, duplicates, the last
    of a cluster) or in the unspecified order of its partial sort; see _explain_repair.
    """
    w = None if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    rows = X.astype(np.float64) if is_sparse(X) else np.array(X, dtype=np.float64, order="C")
    case = Case(rows, k, w, kw, ours or {})
    verdicts: list[Verdict] = []
    details: list[str] = []
    for seed in seeds:
        try:
            verdict = _compare_one(case, init, seed)
            assert allow_repair or verdict.kind != "repair", verdict.detail
        except AssertionError as error:
            raise AssertionError(f"{name or 'data'}, seed {seed}: {error}") from error
        verdicts.append(verdict)
        details += [f"seed {seed}: {verdict.detail}"] if verdict.detail else []
    kinds = [verdict.kind for verdict in verdicts]
    count = [kinds.count(kind) for kind in ("equal", "tie", "repair")]
    return ParityRow(name, len(kinds), count[0], count[1], tuple(details), count[2])


def _compare_one(case: Case, init: Any, seed: int) -> Verdict:
    start, tie = _common_start(case, init, seed)
    if tie:
        return Verdict("tie", tie)
    theirs = case.theirs_fit(init=init, random_state=seed)
    mine = case.ours_fit(init=init, random_state=seed)
    same = np.array_equal(theirs.labels_, mine.labels_) and theirs.n_iter_ == mine.n_iter_
    if same and _same_inertia(case, theirs, mine):
        return EQUAL
    verdict = _explain(case, start, max(theirs.n_iter_, mine.n_iter_))
    assert verdict, (
        "the two agree step by step, yet the fits differ: "
        f"{np.sum(theirs.labels_ != mine.labels_)} labels, n_iter_ {mine.n_iter_} for "
        f"{theirs.n_iter_}, inertia {mine.inertia_!r} for {theirs.inertia_!r}"
    )
    return verdict


def _same_inertia(case: Case, theirs: Any, mine: Any) -> bool:
    """1e-9 relative; below that only what scikit-learn's own cancellation leaves of a zero."""
    d = case.X.shape[1] if is_sparse(case.X) else 1
    noise = 16 * (d * U if is_sparse(case.X) else U * U) * case.radius**2 * case.weight.sum()
    gap = abs(theirs.inertia_ - mine.inertia_)
    return bool(gap <= 1e-9 * abs(theirs.inertia_) + noise)


# Seeds --------------------------------------------------------------------------------------------


def _common_start(case: Case, init: Any, seed: int) -> tuple[FloatArray, str]:
    """The centres scikit-learn starts from, and a proof if ours differ by a tie of seeding."""
    if not isinstance(init, str):
        return np.array(init, dtype=np.float64), ""
    picks = _their_picks(case, init, seed)
    start = _rows_at(case.X, picks)
    by_name = case.ours_fit(init=init, random_state=seed, max_iter=1)
    by_array = case.ours_fit(init=start, max_iter=1)
    if np.array_equal(by_name.cluster_centers_, by_array.cluster_centers_):
        return start, ""
    assert init == "k-means++", "random seeds differ from scikit-learn's"
    return start, _prove_seed_tie(case, picks, seed)


def _rows_at(X: Rows, picks: NDArray[Any]) -> FloatArray:
    rows = X[picks]
    return np.asarray(rows.toarray() if is_sparse(rows) else rows, dtype=np.float64)


def _their_picks(case: Case, init: str, seed: int) -> NDArray[Any]:
    """Row numbers of scikit-learn's seeds; its fit seeds on centred rows, so we hand it those."""
    if init == "random":
        p = case.weight / case.weight.sum()
        state = np.random.RandomState(seed)
        return np.asarray(state.choice(case.X.shape[0], size=case.k, replace=False, p=p))
    seeding = import_module("sklearn.cluster").kmeans_plusplus
    return np.asarray(_picks(case, seeding, case.centred, seed))


def _picks(case: Case, seeding: Any, X: Rows, seed: int) -> Any:
    return seeding(X, case.k, sample_weight=case.sample_weight, random_state=seed)[1]


def same_seeds(
    X: Rows, k: int, seed: int, *, sample_weight: ArrayLike | None = None
) -> tuple[bool, NDArray[Any], NDArray[Any]]:
    """Do the two public kmeans_plusplus pick equal rows (by value)? Also both lists of picks."""
    w = None if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    case = Case(X, k, w, {}, {})
    libraries = ("sklearn.cluster", "exactmeans")
    theirs, mine = (
        np.asarray(_picks(case, import_module(lib).kmeans_plusplus, X, seed)) for lib in libraries
    )
    return np.array_equal(_rows_at(X, theirs), _rows_at(X, mine)), theirs, mine


def _prove_seed_tie(case: Case, theirs: NDArray[Any], seed: int) -> str:
    """Greedy k-means++ parts only where two candidates leave the same potential up to rounding.

    scikit-learn's squared distance ‖x‖² − 2x·c + ‖c‖² is off by at most 4g(2R)², g = gamma(d+5),
    R the largest norm; a potential adds n of them: W·16gR² plus gamma(n+2) of the potential. Both
    potentials may be off by that, and ours by no more, so four times it bounds the difference.
    """
    seeding = import_module("exactmeans").kmeans_plusplus
    mine = np.asarray(_picks(case, seeding, case.X, seed))
    assert np.array_equal(
        case.ours_fit(init=_rows_at(case.X, mine), max_iter=1).cluster_centers_,
        case.ours_fit(init="k-means++", random_state=seed, max_iter=1).cluster_centers_,
    ), "seeds of fit differ from scikit-learn's and from our own kmeans_plusplus"
    differ = np.any(_rows_at(case.X, theirs) != _rows_at(case.X, mine), axis=1)
    step = int(np.argmax(differ))
    assert differ[step], "kmeans_plusplus picks scikit-learn's rows, fit does not"
    assert step > 0, "the first seed differs from scikit-learn's"
    near2, drawn = _replay(case, theirs[:step], seed)
    potentials = []
    for pick in (int(theirs[step]), int(mine[step])):
        assert pick in drawn, f"seed {step}: row {pick} was not among the candidates {drawn}"
        potentials.append(float(np.minimum(near2, _dist2_to(case, pick)) @ case.weight))
    n, d = case.X.shape
    allowed = 16 * gamma(d + 5) * case.radius**2 * case.weight.sum() + gamma(n + 2) * potentials[0]
    gap = abs(potentials[0] - potentials[1])
    assert gap <= 4 * allowed, f"seed {step} differs: potentials {potentials} are no tie"
    return f"seed {step} is a tie of potentials ({gap:.3g} apart, rounding {4 * allowed:.3g})"


def _dist2_to(case: Case, pick: int) -> FloatArray:
    centre = _rows_at(case.X, np.array([pick]))
    own = np.zeros(case.X.shape[0], dtype=np.int64)
    return oracle.own_dist2(case.X, centre, own)


def _replay(case: Case, picks: NDArray[Any], seed: int) -> tuple[FloatArray, list[int]]:
    """Distances to the seeds both chose, and the candidates the random stream draws next."""
    state = np.random.RandomState(seed)
    w = case.weight
    state.choice(case.X.shape[0], p=w / w.sum())
    near2 = np.full(case.X.shape[0], np.inf)
    draws = np.empty(0)
    for pick in picks.tolist():
        near2 = np.minimum(near2, _dist2_to(case, pick))
        draws = state.uniform(size=2 + int(np.log(case.k)))
    steps = np.cumsum(w * near2)
    drawn = np.searchsorted(steps, draws * (near2 @ w))
    return near2, np.minimum(drawn, len(steps) - 1).tolist()


# Labels -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """Centres after t updates and the labels of the assignment that uses them, of both sides."""

    t: int
    their_centres: FloatArray
    my_centres: FloatArray
    theirs: NDArray[Any]
    mine: NDArray[Any]


def _explain(case: Case, start: FloatArray, n_iter: int) -> Verdict | None:
    """Find the first step where the libraries part and prove why; None if they never do.

    Until the labels part both average the same rows, so the centres may differ by rounding only,
    except for the rows given to empty clusters; that is checked at every step.
    """
    before = Step(0, start, start, *_first_labels(case, start))
    if not np.array_equal(before.theirs, before.mine):
        return _prove_rows(case, before, np.zeros(case.k))
    for t in range(1, n_iter + 1):
        a, b = (fit(init=start, max_iter=t) for fit in (case.theirs_fit, case.ours_fit))
        now = Step(t, a.cluster_centers_, b.cluster_centers_, a.labels_, b.labels_)
        gap, allowed = _centre_gaps(case, now)
        if np.any(gap > allowed):
            return _explain_repair(case, before, now)
        if not np.array_equal(now.theirs, now.mine):
            return _prove_rows(case, now, _drift(now, gap))
        before = now
    return None


def _first_labels(case: Case, start: FloatArray) -> tuple[NDArray[Any], NDArray[Any]]:
    """Labels of the very first assignment, which no fit returns.

    scikit-learn's predict is the assignment of its fit, given rows and centres shifted as fit does.
    Ours shows in the centres after one update: they are the exact means of those labels. (Predict
    alone would not do, for a fit rounds the norms of its initial centres differently.)
    """
    model = case.theirs_fit(init=start, max_iter=1)
    model.cluster_centers_ = start - case.middle
    theirs = np.asarray(model.predict(case.centred))
    fitted = case.ours_fit(init=start, max_iter=1)
    after = np.array(fitted.cluster_centers_)
    fitted.cluster_centers_ = start
    for mine in (theirs, _first_pass(case, start), np.asarray(fitted.predict(case.X))):
        if np.array_equal(oracle.update(case.X, start, mine, case.sample_weight), after):
            return theirs, mine
    raise AssertionError("the centres after one iteration are the means of no first labels")


def _first_pass(case: Case, start: FloatArray) -> NDArray[Any]:
    """The labels that the loop of exactmeans itself gives rows at its initial centres."""
    weights = None if case.sample_weight is None else np.asarray(case.sample_weight, dtype=float)
    engine = LocalEngine([case.X], weights, 1)
    engine.start("lloyd", len(start))
    engine.assign(first_centroids(analyse(engine, 0.0), np.array(start)))
    return engine.labels()


def _centre_gaps(case: Case, now: Step) -> tuple[FloatArray, FloatArray]:
    """Distance between the two libraries' centres, and how much of it rounding may explain.

    scikit-learn adds up to n rows of norm ≤ R and their weights one by one and multiplies by the
    reciprocal: gamma(2n+8)·R. On dense data the rows were rounded when shifted (uR) and the centre
    when shifted back (u‖c‖); ours is rounded once (u‖c‖).
    """
    gap = np.linalg.norm(now.their_centres - now.my_centres, axis=1) * (1 + 1e-9)
    norm = np.linalg.norm(now.my_centres, axis=1)
    allowed = (gamma(2 * case.X.shape[0] + 8) + 2 * U) * case.radius + 3 * U * norm
    return np.asarray(gap), np.asarray(allowed)


def _drift(now: Step, gap: FloatArray) -> FloatArray:
    """The centre scikit-learn works with is the one before shifting back: u‖c‖ on top."""
    return np.asarray(gap + 1.1 * U * np.linalg.norm(now.my_centres, axis=1))


def _prove_rows(case: Case, now: Step, drift: FloatArray) -> Verdict:
    """Both labels are rounding ties of our centres, so the two libraries differ by rounding.

    Ours by the contract's slack. Theirs with the drift of their centres, always shifted when dense,
    and with chains as long as there are features, for they add ‖c‖² in the working precision.
    At step 0 there is no drift: rounding the shifted start is part of the slack for shifting.
    """
    C, d, dense = now.my_centres, case.X.shape[1], not is_sparse(case.X)
    oracle.near_ties(case.X, C, now.mine)
    oracle.near_ties(case.X, C, now.theirs, shifted=dense, terms=d, drift=drift)
    rows = np.flatnonzero(now.theirs != now.mine).tolist()
    own2 = [[_own2(case, C, labels, i) for i in rows] for labels in (now.theirs, now.mine)]
    gap = max(abs(float(a - b)) for a, b in zip(*own2, strict=True))
    text = f"assignment {now.t}: {len(rows)} tied rows, squared distances at most {gap:.3g} apart"
    return Verdict("tie", text)


def _own2(case: Case, centres: FloatArray, labels: NDArray[Any], i: int) -> Fraction:
    return oracle.dist2(_rows_at(case.X, np.array([i]))[0], centres[labels[i]])


# Empty clusters -----------------------------------------------------------------------------------


def _explain_repair(case: Case, before: Step, now: Step) -> Verdict:
    """The centres part although the labels did not: only rows given to empty clusters may.

    Ours must be the contract's rows, or rows as far from their centres up to rounding. If theirs
    are so too, it was a tie; otherwise the rules themselves differ.
    """
    labels, C = before.mine, before.my_centres
    sums, weights = oracle.exact_sums(case.X, labels, case.k, case.sample_weight)
    moves = oracle.repair(case.X, C, labels, sums, weights, case.sample_weight)
    assert moves, f"after {now.t} updates the centres differ, and no empty cluster explains it"
    due, clusters = [i for i, _ in moves], [j for _, j in moves]
    mine = _rows_found(case, now.my_centres[clusters])
    obeyed = np.array_equal(oracle.mean(sums, weights, np.float64), now.my_centres)
    assert obeyed or _as_far(case, before, due, mine), (
        f"update {now.t}: empty clusters {clusters} got rows {mine}, the contract says {due}"
    )
    theirs = _rows_found(case, now.their_centres[clusters])
    tied = _as_far(case, before, due, theirs)
    text = f"update {now.t}: empty clusters {clusters} got rows {mine}, scikit-learn's {theirs}"
    return Verdict("tie" if tied else "repair", text + (", equally far" if tied else ""))


def _rows_found(case: Case, centres: FloatArray) -> list[int]:
    """The row each refilled centre was put on."""
    every = [oracle.own_dist2(case.X, c[None], np.zeros(case.X.shape[0], int)) for c in centres]
    return [int(np.argmin(d2)) for d2 in every]


def _as_far(case: Case, before: Step, due: list[int], got: list[int]) -> bool:
    """Is every row as far from its centre as the row due in its place, up to rounding?

    Differences, or Σ(x−c)² − c² over nonzeros plus ‖c‖², cost at most gamma(d+12)(δ² + 2‖c‖²),
    which is within the slack of a score; the drift is that of the centres before this update.
    """
    gap, _ = _centre_gaps(case, before)
    h = Fraction(float(_drift(before, gap).max()))
    u, d, zero = oracle.UNIT["float64"], case.X.shape[1], np.zeros(case.X.shape[1])
    for i, j in zip(due, got, strict=True):
        a, b = (_own2(case, before.my_centres, before.mine, r) for r in (i, j))
        norm = oracle.sqrt_down(oracle.dist2(_rows_at(case.X, np.array([i]))[0], zero))
        reach = oracle.sqrt_down(max(a, b))
        if abs(a - b) > oracle.slack_of(d, u, norm, reach, h, shifted=False):
            return False
    return True
