"""What the numerics contract says the answer is, computed slowly and without trusting rounding.

Floating point is used only where an error bound decides the question; the rest is decided in exact
rational arithmetic. Nothing here imports the library, so the two cannot share a mistake.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cmp_to_key
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, DTypeLike, NDArray

FloatArray: TypeAlias = NDArray[np.float64]
Labels: TypeAlias = NDArray[np.int64]
Rows: TypeAlias = Any  # an array or any scipy sparse container
Sums: TypeAlias = list[list[Fraction]]

ZERO = Fraction(0)
U = 2.0**-53  # unit roundoff of the oracle's own float64 work
UNIT = {"float32": Fraction(1, 2**24), "float64": Fraction(1, 2**53)}
SMALLEST = {"float32": Fraction(1, 2**149), "float64": Fraction(1, 2**1074)}


@dataclass(frozen=True)
class OracleResult:
    labels: Labels
    centres: NDArray[Any]
    n_iter: int
    inertia: float
    history: list[Labels]  # labels of every iteration, before its centres were averaged


def compute_dtype(X: Rows) -> str:
    return "float32" if getattr(X, "dtype", None) == np.float32 else "float64"


def is_sparse(X: Rows) -> bool:
    """sp.issparse, without narrowing the type to a base class that has no attributes."""
    return bool(sp.issparse(X))


def _as_rows(X: Rows) -> Any:
    """float64 copy of the values (exact for every input the library takes); CSR stays CSR."""
    return sp.csr_array(X, dtype=np.float64) if is_sparse(X) else np.asarray(X, np.float64)


def _row(X: Any, i: int) -> FloatArray:
    row = X[[i]].toarray()[0] if is_sparse(X) else X[i]
    return np.asarray(row, dtype=np.float64)


def _values(X: Any) -> FloatArray:
    return np.asarray(X.data if is_sparse(X) else X, dtype=np.float64).ravel()


def _exponent(*parts: FloatArray) -> int:
    """Power of two that brings every magnitude to at most 1, so that squares cannot overflow."""
    top = max((float(np.abs(p).max()) for p in parts if p.size), default=0.0)
    return math.frexp(top)[1]


def _scaled(X: Any, e: int) -> Any:
    if not is_sparse(X):
        return np.ldexp(X, -e)
    return sp.csr_array((np.ldexp(X.data, -e), X.indices, X.indptr), shape=X.shape)


def _on_grid(values: FloatArray) -> tuple[list[int], int]:
    """Integers v_i and s with values[i] == v_i / 2**s, exactly."""
    ratios = [v.as_integer_ratio() for v in values.tolist()]
    bits = [den.bit_length() - 1 for _, den in ratios]
    s = max(bits, default=0)
    return [num << (s - b) for (num, _), b in zip(ratios, bits, strict=True)], s


def dist2(x: FloatArray, c: FloatArray) -> Fraction:
    """Exact squared Euclidean distance between two vectors of floats."""
    used = (x != 0) | (c != 0)
    ints, s = _on_grid(np.concatenate([x[used], c[used]]))
    half = len(ints) // 2
    return Fraction(sum((a - b) ** 2 for a, b in zip(ints[:half], ints[half:], strict=True)), 4**s)


def _dense_bounds(X: FloatArray, centres: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Certain lower and upper bounds of every squared distance (differences: relative error)."""
    d = X.shape[1]
    d2 = np.stack([np.square(X - c).sum(axis=1) for c in centres], axis=1)
    rel, tiny = (d + 6) * U, (d + 1) * 2.0**-1060  # tiny covers underflow after scaling
    return d2 * (1 - rel) - tiny, d2 * (1 + rel) + tiny


def _sparse_bounds(X: Any, centres: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The same for ‖c‖² − 2x·c, whose error is relative to (‖x‖ + ‖c‖)², not to the distance."""
    c2 = np.array([math.fsum((c * c).tolist()) for c in centres])
    x2 = np.asarray(X.multiply(X).sum(axis=1), dtype=np.float64).ravel()
    nnz = np.diff(X.indptr)[:, None]
    score = c2 - 2 * np.asarray(X @ centres.T)
    reach = np.sqrt(x2)[:, None] + np.sqrt(c2)
    error = (nnz + 10) * 1.1 * U * reach**2 + (X.shape[1] + 1) * 2.0**-1060
    return score - error, score + error


def nearest(X: Rows, centres: ArrayLike) -> Labels:
    """Index of the truly nearest centre of every row; exact ties go to the lowest index."""
    rows, C = _as_rows(X), np.asarray(centres, dtype=np.float64)
    e = _exponent(_values(rows), C)
    bounds = _sparse_bounds if is_sparse(rows) else _dense_bounds
    low, high = bounds(_scaled(rows, e), np.ldexp(C, -e))
    # A copy of an earlier centre never wins; without this duplicates would all go to Fractions.
    first = np.unique(C, axis=0, return_index=True)[1]
    low[:, np.setdiff1d(np.arange(len(C)), first)] = np.inf
    possible = low <= high.min(axis=1, keepdims=True)
    labels: Labels = possible.argmax(axis=1).astype(np.int64)
    for i in np.flatnonzero(possible.sum(axis=1) > 1).tolist():
        x = _row(rows, i)
        rivals = np.flatnonzero(possible[i]).tolist()
        labels[i] = min((dist2(x, C[j]), j) for j in rivals)[1]
    return labels


def sqrt_down(q: Fraction) -> Fraction:
    """A rational just below the root (relative error under 2**-63), for any magnitude."""
    root = math.isqrt((q.numerator * q.denominator) << 128)
    return Fraction(root, q.denominator << 64)


def _column_mean(rows: Any) -> FloatArray:
    return np.array([math.fsum((col / len(rows)).tolist()) for col in rows.T])


def _is_shifted(rows: Any, mean: FloatArray) -> bool:
    """The contract's rule; a hair of room keeps borderline data on the generous side."""
    e = _exponent(_values(rows), mean)
    near, far = np.ldexp(rows, -e).var(axis=0).sum(), np.square(np.ldexp(mean, -e)).sum()
    return bool(far > near * (1 + 1e-6))


def near_ties(
    X: Rows,
    centres: ArrayLike,
    labels: ArrayLike,
    *,
    dtype: DTypeLike | None = None,
    slack_factor: float = 1.0,
    shifted: bool | None = None,
    terms: int | None = None,
    drift: FloatArray | None = None,
) -> tuple[int, list[int]]:
    """Prove that every label is the nearest centre up to the rounding the contract allows.

    Returns how many labels are exactly right and the rows whose label is only a proved tie;
    raises AssertionError with the first row for which neither holds.

    With u the unit roundoff, m the length of the chain of additions (features; stored nonzeros
    for CSR; or `terms`), g = (m+12)u / (1−(m+12)u), A = ‖x‖ and δ_j = ‖x − c_j‖, the score
    ½‖c‖² − x·c is computed with an error of at most g(½‖c‖² + ‖x‖‖c‖). Twice that, with
    ‖c‖ ≤ A + δ, makes the error of the squared distance E_j ≤ 3g(A+δ_j)².
    If a was chosen, D_a − E_a ≤ D_j + E_j for every j. A nearer j has δ_j < δ_a, so E_j ≤ E_a
    and D_a − D_j ≤ 2E_a. Both sides of that are compared as Fractions.

    Shift (dense). Scores then use x' = fl(x−μ) and c' = fl(c−μ), and A = ‖x−μ‖. Each feature has
    a relative error u, so ‖x' − (x−μ)‖ ≤ uA and ‖c' − (c−μ)‖ ≤ u‖c−μ‖ ≤ u(A+δ). The distance
    moves by at most t = u(2A+δ), the squared distance by 2δt + t² ≤ 2u(A+δ)² + 4u²(A+δ)², that
    is 2.01u(A+δ)²; and A'+δ' ≤ (1+3u)(A+δ) turns 3g into less than 3.01g. Hence
    E ≤ (3.01g + 2.01u)(A+δ)². `shifted` overrides the contract's rule for when this happens;
    unshifted dense rows get the larger of the two A, in case the rule itself was borderline.

    Drift. If the labels were made with other centres, ‖c°_j − c_j‖ ≤ drift[j], then with
    h = max(drift[a], drift[j]) each true squared distance differs by at most 2δh + h², so the
    slack becomes 2E(A+δ+h) + 4δh + 2h².

    Underflow: m+2 roundings of half the smallest number each side, on data scaled by a power of
    two so that its largest magnitude M lies near 1: the term 4(m+2)·smallest·M².
    """
    rows, C = _as_rows(X), np.asarray(centres, dtype=np.float64)
    given = np.asarray(labels, dtype=np.int64)
    name = np.dtype(dtype or compute_dtype(X)).name
    mean = np.zeros(C.shape[1]) if is_sparse(rows) else _column_mean(rows)
    if shifted is None:
        shifted = not is_sparse(rows) and _is_shifted(rows, mean)
    floor = 4 * SMALLEST[name] * Fraction(2) ** (2 * _exponent(_values(rows), C))
    moves = np.zeros(len(C)) if drift is None else drift
    truth = nearest(rows, C)
    ties = np.flatnonzero(truth != given).tolist()
    for i in ties:
        a, j, x = int(given[i]), int(truth[i]), _row(rows, i)
        own2, best2 = dist2(x, C[a]), dist2(x, C[j])
        m = terms or (int(np.diff(rows.indptr)[i]) if is_sparse(rows) else C.shape[1])
        A2 = dist2(x, mean) if shifted else max(dist2(x, mean), dist2(x, np.zeros_like(x)))
        h = Fraction(max(moves[a], moves[j]))
        slack = slack_of(m, UNIT[name], sqrt_down(A2), sqrt_down(own2), h, shifted=shifted)
        if own2 - best2 > Fraction(slack_factor) * slack + (m + 2) * floor:
            raise AssertionError(
                f"row {i}: label {a} is at squared distance {_show(own2)}, but centre {j} is "
                f"nearer by {_show(own2 - best2)}; rounding explains only {_show(slack)}"
            )
    return len(given) - len(ties), ties


def slack_of(
    m: int, u: Fraction, A: Fraction, delta: Fraction, h: Fraction, *, shifted: bool
) -> Fraction:
    """Derived in near_ties: what rounding may do to the difference of two squared distances."""
    g = (m + 12) * u / (1 - (m + 12) * u)
    each = Fraction(301, 100) * g + Fraction(201, 100) * u if shifted else 3 * g
    return 2 * each * (A + delta + h) ** 2 + 4 * delta * h + 2 * h * h


def _show(q: Fraction) -> str:
    """Scientific notation that survives magnitudes beyond float."""
    if not q:
        return "0"
    e = math.floor((q.numerator.bit_length() - q.denominator.bit_length()) * math.log10(2))
    return f"{float(q / Fraction(10) ** e):.4g}e{e:+d}"


def assert_labels_valid(
    X: Rows, centres: ArrayLike, labels: ArrayLike, dtype: DTypeLike | None = None
) -> None:
    """One label in range per row, each the nearest centre or a proved rounding tie."""
    given, k = np.asarray(labels), len(np.asarray(centres))
    assert given.shape == (X.shape[0],), f"labels have shape {given.shape}, X {X.shape}"
    assert np.issubdtype(given.dtype, np.integer), f"labels are {given.dtype}"
    assert not given.size or (given.min() >= 0 and given.max() < k), "a label is out of range"
    near_ties(X, centres, given, dtype=dtype)


def _weights(X: Any, sample_weight: ArrayLike | None) -> FloatArray:
    n = X.shape[0]
    return np.ones(n) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)


def exact_sums(
    X: Rows, labels: ArrayLike, k: int, sample_weight: ArrayLike | None = None
) -> tuple[Sums, list[Fraction]]:
    """Σ fl(w·x) and Σ w per cluster, exactly; the product alone is rounded, once, to float64."""
    rows, of, w = _as_rows(X), np.asarray(labels), _weights(X, sample_weight)
    entries = sp.coo_array(rows)
    with np.errstate(over="raise", under="ignore"):
        ints, s = _on_grid(entries.data * w[entries.coords[0]])
    totals = [[0] * rows.shape[1] for _ in range(k)]
    cells = zip(of[entries.coords[0]].tolist(), entries.coords[1].tolist(), ints, strict=True)
    for j, f, v in cells:
        totals[j][f] += v
    weights = [0] * k
    w_ints, w_s = _on_grid(w)
    for j, v in zip(of.tolist(), w_ints, strict=True):
        weights[j] += v
    sums = [[Fraction(t, 2**s) if t else ZERO for t in row] for row in totals]
    return sums, [Fraction(t, 2**w_s) for t in weights]


def round_to(q: Fraction, dtype: DTypeLike) -> float:
    """q rounded once, half to even, to float32 or float64; gradual underflow included."""
    if np.dtype(dtype) == np.float64 or not q:
        return float(q)  # int / int is correctly rounded in Python
    num, den = abs(q.numerator), q.denominator
    e = num.bit_length() - den.bit_length()
    if Fraction(num, den) < Fraction(2) ** e:
        e -= 1  # now 2**e <= |q| < 2**(e+1)
    sign = 1.0 if q > 0 else -1.0
    if e > 127:
        return sign * math.inf
    grid = max(e - 23, -149)
    value = math.ldexp(round(abs(q) / Fraction(2) ** grid), grid)
    return sign * (value if value < 2.0**128 else math.inf)


def mean(sums: Sums, weights: list[Fraction], dtype: DTypeLike) -> NDArray[Any]:
    """Correctly rounded Σ/weight; a cluster without weight takes the heaviest one's place."""
    heaviest = max(range(len(weights)), key=lambda j: (weights[j], -j))
    source = [j if w else heaviest for j, w in enumerate(weights)]
    table = [[round_to(t / weights[j], dtype) if t else 0.0 for t in sums[j]] for j in source]
    return np.array(table, dtype=dtype)


def own_dist2(rows: Rows, C: FloatArray, labels: NDArray[Any]) -> FloatArray:
    """‖x − c_label‖² of every row by differences, a block at a time so sparse rows may be dense."""
    out = np.empty(rows.shape[0])
    for start in range(0, len(out), 256):
        block = rows[start : start + 256]
        block = block.toarray() if is_sparse(block) else block
        out[start : start + 256] = np.square(block - C[labels[start : start + 256]]).sum(axis=1)
    return out


def inertia(
    X: Rows, centres: ArrayLike, labels: ArrayLike, sample_weight: ArrayLike | None = None
) -> float:
    """Σ w‖x − c_label‖², good to about (d+6) roundings; inf when it is beyond float64."""
    rows, C = _as_rows(X), np.asarray(centres, dtype=np.float64)
    e = _exponent(_values(rows), C)
    d2 = own_dist2(_scaled(rows, e), np.ldexp(C, -e), np.asarray(labels))
    with np.errstate(over="ignore"):
        return float(np.ldexp(math.fsum((d2 * _weights(rows, sample_weight)).tolist()), 2 * e))


def farthest_first(X: Rows, centres: ArrayLike, labels: ArrayLike) -> list[int]:
    """Rows by decreasing distance to their own centre, ties by index, decided exactly."""
    rows, C, of = _as_rows(X), np.asarray(centres, dtype=np.float64), np.asarray(labels)
    e = _exponent(_values(rows), C)
    rough = own_dist2(_scaled(rows, e), np.ldexp(C, -e), of).tolist()
    rel, tiny = 4 * (rows.shape[1] + 6) * U, (rows.shape[1] + 1) * 2.0**-1059

    @cache
    def exact(i: int) -> Fraction:
        return dist2(_row(rows, i), C[of[i]])

    def order(i: int, j: int) -> int:
        gap = rough[j] - rough[i]
        if abs(gap) > rel * max(rough[i], rough[j]) + tiny:
            return 1 if gap > 0 else -1
        return (exact(j) > exact(i)) - (exact(j) < exact(i)) or i - j

    return sorted(range(len(rough)), key=cmp_to_key(order))


def repair(
    X: Rows,
    centres: ArrayLike,
    labels: ArrayLike,
    sums: Sums,
    weights: list[Fraction],
    sample_weight: ArrayLike | None = None,
) -> list[tuple[int, int]]:
    """Give every empty cluster a far row, in the sums only; returns the moves (row, cluster)."""
    empty = [j for j, weight in enumerate(weights) if not weight]
    if not empty:
        return []
    rows, C, of = _as_rows(X), np.asarray(centres, dtype=np.float64), np.asarray(labels)
    w = _weights(rows, sample_weight)
    left = np.bincount(of[w > 0], minlength=len(weights))  # rows that keep a cluster alive
    taken: set[bytes] = set()
    moves: list[tuple[int, int]] = []
    ranked = farthest_first(rows, C, of)
    if dist2(_row(rows, ranked[0]), C[of[ranked[0]]]) == 0:
        return []  # every row sits on its centre: fewer distinct rows than clusters
    for i in ranked:
        if len(moves) == len(empty):
            break
        x, a = _row(rows, i) + 0.0, int(of[i])  # + 0.0 makes −0 and 0 the same point
        if w[i] == 0 or left[a] == 1 or x.tobytes() in taken:
            continue
        taken.add(x.tobytes())
        j = empty[len(moves)]
        moves.append((i, j))
        sums[j] = [Fraction(v) for v in (x * w[i]).tolist()]
        sums[a] = [s - t for s, t in zip(sums[a], sums[j], strict=True)]
        weights[j] = Fraction(float(w[i]))
        weights[a] -= weights[j]
        left[a] -= 1
    return moves


def update(
    X: Rows, centres: NDArray[Any], labels: ArrayLike, sample_weight: ArrayLike | None = None
) -> NDArray[Any]:
    """New centres for these labels: exact sums, empty clusters repaired, one rounding."""
    sums, weights = exact_sums(X, labels, len(centres), sample_weight)
    repair(X, centres, labels, sums, weights, sample_weight)
    return mean(sums, weights, compute_dtype(X))


def _mean_variance(rows: Any) -> float:
    """Unweighted variance, averaged over columns; zeros of CSR count though not stored."""
    if not is_sparse(rows):
        return float(rows.var(axis=0).mean())
    n, d = rows.shape
    cols, stored = rows.indices, np.bincount(rows.indices, minlength=d)
    centre = np.bincount(cols, rows.data, minlength=d) / n
    squares = np.bincount(cols, (rows.data - centre[cols]) ** 2, minlength=d)
    return float(((squares + (n - stored) * centre**2) / n).mean())


def lloyd(
    X: Rows,
    init: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
    max_iter: int = 300,
    tol: float = 1e-4,
) -> OracleResult:
    """Plain Lloyd; stops and counts iterations as scikit-learn does."""
    rows, centres = _as_rows(X), np.asarray(init, dtype=compute_dtype(X))
    e = _exponent(_values(rows))  # both sides of the stopping rule are scaled alike
    limit = tol * _mean_variance(_scaled(rows, e))
    labels = np.full(rows.shape[0], -1, dtype=np.int64)
    history: list[Labels] = []
    converged, n_iter = False, 0
    while n_iter < max_iter and not converged:
        n_iter += 1
        before, labels = labels, nearest(rows, centres)
        history.append(labels)
        old, centres = centres, update(X, centres, labels, sample_weight)
        converged = np.array_equal(labels, before)
        step = np.ldexp(centres.astype(np.float64), -e) - np.ldexp(old.astype(np.float64), -e)
        if not converged and np.square(step).sum() <= limit:
            break
    if not converged:
        labels = nearest(rows, centres)
    return OracleResult(
        labels, centres, n_iter, inertia(rows, centres, labels, sample_weight), history
    )
