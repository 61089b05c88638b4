"""`select_k`: fits of several numbers of clusters, and what it found."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from exactmeans.callbacks import show_line
from exactmeans.data.open import names_files, open_blocks
from exactmeans.kmeans import KMeans
from exactmeans.parameters import (
    check_choice,
    check_int,
    check_random_state,
    check_verbose,
    refuse,
)
from exactmeans.quality.indices import calinski_harabasz_of, davies_bouldin_of
from exactmeans.quality.labelled import labelled
from exactmeans.quality.silhouettes import silhouette
from exactmeans.select.criteria import CRITERIA, Criterion, choose
from exactmeans.select.measures import Measures, stability
from exactmeans.select.reference import Reference


@dataclass(frozen=True)
class KSelection:
    """What `select_k` found.

    Attributes
    ----------
    best_k : int
    reason : str
        Why, in a sentence.
    clear : bool
        False if criterion='auto' found no clear clusters; `best_k` is then 1 if that was tried.
    criterion : str
    table : list of Measures
        One record for each k, ascending.
    models : dict of int to KMeans
        Fitted models by k: of `best_k`, of all, or of none, as `keep_models` says.

    Examples
    --------
    >>> from exactmeans import select_k
    >>> X = [[0.0], [1.0], [0.5], [9.0], [10.0], [9.5]]
    >>> found = select_k(X, [2, 3], criterion="silhouette", random_state=0)
    >>> found.best_k, [record.k for record in found.table]
    (2, [2, 3])
    """

    best_k: int
    reason: str
    clear: bool
    criterion: str
    table: list[Measures]
    models: dict[int, KMeans]

    @property
    def model(self) -> KMeans:
        """The model of `best_k`.

        Examples
        --------
        >>> from exactmeans import select_k
        >>> X = [[0.0], [1.0], [0.5], [9.0], [10.0], [9.5]]
        >>> found = select_k(X, [2, 3], criterion="silhouette", random_state=0)
        >>> found.model.n_clusters
        2
        """
        if self.best_k not in self.models:
            raise AttributeError("model is missing, because keep_models='none' kept no model.")
        return self.models[self.best_k]

    def to_pandas(self) -> Any:
        """The table as a pandas frame with k as its index.

        Examples
        --------
        >>> from exactmeans import select_k
        >>> X = [[0.0], [1.0], [0.5], [9.0], [10.0], [9.5]]
        >>> found = select_k(X, [2, 3], criterion="silhouette", random_state=0)
        >>> found.to_pandas().index.tolist()
        [2, 3]
        """
        import pandas as pd

        return pd.DataFrame(self.table).set_index("k")

    def __str__(self) -> str:
        head = f"{'k':>6} {'inertia':>12} {'silhouette':>10} {'Davies-B.':>10} {'Calinski-H.':>12}"
        lines = [head + f" {'stability':>9} {'sizes':>17} {'seconds':>8}"]
        for row in self.table:
            sizes = f"{row.smallest:,}-{row.largest:,}"
            lines.append(
                f"{row.k:>6} {row.inertia:>12.6g} {row.silhouette:>10.3f} "
                f"{row.davies_bouldin:>10.3f} {row.calinski_harabasz:>12.5g} "
                f"{row.stability:>9.3f} {sizes:>17} {row.seconds:>8.2f}"
            )
        return "\n".join([*lines, f"best k: {self.best_k}. {self.reason}"])


def select_k(
    X: Any,
    k_range: Iterable[int],
    *,
    criterion: Criterion = "auto",
    n_seeds: int = 3,
    keep_models: Literal["best", "all", "none"] = "best",
    random_state: Any = None,
    sample_weight: Any = None,
    verbose: int = 0,
    progress: Callable[[Measures], Any] | None = None,
    **kmeans_params: Any,
) -> KSelection:
    """Fit several numbers of clusters, measure them, and suggest one.

    Each k is fitted `n_seeds` times from seeds of its own, and the run with the lowest inertia is
    measured: a row of the table is what `KMeans(k, random_state=row.random_state)` gives. Seeds are
    neither nested nor taken from another k, because greedy k-means++ tries more candidates for more
    clusters, and because stability compares independent runs.

    Parameters
    ----------
    X : array-like, sparse matrix, BlockSource or path of shape (n_samples, n_features)
    k_range : iterable of int
        The numbers of clusters to try, such as `range(2, 11)`.
    criterion : {'auto', 'silhouette', 'elbow', 'davies_bouldin', 'calinski_harabasz', \
            'stability'}, default='auto'
        How to choose k. 'silhouette', 'davies_bouldin' and 'calinski_harabasz' take the best value,
        'stability' the largest k whose runs agree as well as those of any k, 'elbow' the k at which
        the logarithm of inertia lies deepest below the line from the first k to the last. 'auto'
        takes the k whose silhouette exceeds that of a reference without clusters by most, and says
        if none does. The reference has normal rows with the covariance of a sample of X; if most
        values of X are zeros, it is a sample in which the values of each column are permuted.
    n_seeds : int, default=3
        Runs for each k; stability needs two.
    keep_models : {'best', 'all', 'none'}, default='best'
        Which fitted models the result has.
    random_state : int, RandomState instance or None, default=None
    sample_weight : array-like of shape (n_samples,), default=None
        For the fits; silhouette, indices and sizes count every row once.
    verbose : int or bool, default=0
        1 shows a line for each k.
    progress : callable or None, default=None
        Called with the `Measures` of each k as soon as they are known.
    **kmeans_params
        Parameters of `KMeans`: `metric`, `n_jobs`, `max_iter`, `memory_limit` ...

    Returns
    -------
    KSelection
        `best_k`, `reason`, `clear`, `table`, `models`, `model` and `to_pandas()`.

    References
    ----------
    R. Tibshirani, G. Walther & T. Hastie, Estimating the number of clusters in a data set via the
    gap statistic, J. R. Stat. Soc. B 63, 2001 (the reference). V. Satopää et al., Finding a
    "kneedle" in a haystack, ICDCSW 2011 (the elbow). L. Hubert & P. Arabie, Comparing partitions,
    J. Classif. 2, 1985 (the adjusted Rand index).

    Examples
    --------
    >>> import numpy as np
    >>> from exactmeans import select_k
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(at, 0.2, (40, 2)) for at in (0, 2, 5)])
    >>> found = select_k(X, range(2, 7), random_state=0)
    >>> found.best_k, found.clear
    (3, True)
    >>> np.bincount(found.model.labels_).tolist()
    [40, 40, 40]
    """
    ks = _check_range(k_range, X)
    check_choice("criterion", criterion, CRITERIA)
    check_choice("keep_models", keep_models, ("best", "all", "none"))
    shown = check_verbose(verbose)
    least = 2 if criterion == "stability" else 1
    rng, n_seeds = check_random_state(random_state), check_int("n_seeds", n_seeds, least)
    _check_params(kmeans_params, ks, criterion)
    if progress is not None and not callable(progress):
        refuse("progress", progress, "None or a callable")
    if names_files(X):
        X = open_blocks(X)
    seeds: list[int] = rng.randint(2**31 - 1, size=n_seeds).tolist()
    reference = Reference(X, ks[-1], kmeans_params, seeds[0]) if criterion == "auto" else None
    table, models = [], {}
    for k in ks:
        row, model = _measure(X, k, seeds, reference, sample_weight, kmeans_params)
        table.append(row)
        if keep_models == "all":
            models[k] = model
        if shown:
            show_line(_line(row, len(table), len(ks)))
        if progress is not None:
            progress(row)
    choice = choose(table, criterion)
    if not choice.clear and ks[0] == 1:
        choice = choice._replace(k=1)
    if keep_models == "best":
        # Another fit takes less memory than keeping all models, and gives the same bits.
        seed = next(row.random_state for row in table if row.k == choice.k)
        models[choice.k] = _fit(X, choice.k, seed, sample_weight, kmeans_params)
    return KSelection(choice.k, choice.reason, choice.clear, criterion, table, models)


# Parameters ---------------------------------------------------------------------------------------


def _check_range(k_range: Any, X: Any) -> list[int]:
    try:
        given = list(k_range)
    except TypeError:
        given = []
    if not given or isinstance(k_range, (str, bytes)):
        refuse("k_range", k_range, "numbers of clusters, such as range(2, 11)")
    ks = sorted({check_int("every k of k_range", k, 1) for k in given})
    shape = getattr(X, "shape", None)
    if isinstance(shape, tuple) and shape and isinstance(shape[0], int) and shape[0] < ks[-1]:
        raise ValueError(
            f"k_range must not exceed the number of rows, {shape[0]:,}, but it goes to {ks[-1]:,}."
        )
    return ks


def _check_params(params: dict[str, Any], ks: Sequence[int], criterion: str) -> None:
    for name in ("n_clusters", "checkpoint"):
        if name in params:
            raise ValueError(f"{name} must not be given, because select_k fits several models.")
    init = params.get("init", "k-means++")
    if not isinstance(init, (str, tuple)) and not callable(init):
        raise ValueError("init must be a name or a callable for select_k, which fits several k.")
    if criterion == "elbow" and len(ks) < 3:
        raise ValueError("k_range must have at least 3 values for criterion='elbow'.")
    if criterion != "elbow" and ks[-1] < 2:
        raise ValueError(f"k_range must have a k of at least 2 for criterion={criterion!r}.")
    KMeans(**params)  # an unknown name fails here, before any fit


# Measures -----------------------------------------------------------------------------------------


def _fit(X: Any, k: int, seed: int, sample_weight: Any, params: dict[str, Any]) -> KMeans:
    return KMeans(k, random_state=seed, **params).fit(X, sample_weight=sample_weight)


def _measure(
    X: Any,
    k: int,
    seeds: Sequence[int],
    reference: Reference | None,
    sample_weight: Any,
    params: dict[str, Any],
) -> tuple[Measures, KMeans]:
    began = time.perf_counter()
    best, labels = None, []
    for seed in seeds:
        model = _fit(X, k, seed, sample_weight, params)
        labels.append(model.labels_)
        if best is None or model.inertia_ < best.inertia_:
            best = model
    assert best is not None
    own = labelled(X, best)
    counts = own.counts[own.filled]
    several = 2 <= len(counts) < counts.sum()
    row = Measures(
        k=k,
        inertia=best.inertia_,
        silhouette=silhouette(X, best).mean if several else math.nan,
        davies_bouldin=davies_bouldin_of(own) if several else math.nan,
        calinski_harabasz=calinski_harabasz_of(own) if several else math.nan,
        stability=stability(labels),
        reference=reference.silhouette(k, best) if reference is not None and k > 1 else math.nan,
        smallest=int(own.counts.min()),
        largest=int(own.counts.max()),
        random_state=int(best.random_state),
        seconds=time.perf_counter() - began,
    )
    return row, best


def _line(row: Measures, done: int, total: int) -> str:
    return (
        f"k {row.k} ({done} of {total}): inertia {row.inertia:.6g}, silhouette "
        f"{row.silhouette:.3f}, stability {row.stability:.3f}, {row.seconds:.2f} s"
    )
