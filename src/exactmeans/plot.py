"""Figures of a fit with matplotlib: each takes axes, or makes some, and returns them.

Needs `pip install exactmeans[report]`; matplotlib is imported when a figure is drawn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from exactmeans.callbacks import Iteration
from exactmeans.estimators.base import BaseKMeans
from exactmeans.metrics import METRICS
from exactmeans.parameters import check_choice, check_int, check_model
from exactmeans.quality import Silhouette, cluster_stats
from exactmeans.reporting.projection import (
    between_axes,
    is_sparse,
    means_of_unit_rows,
    principal_axes,
    sample_rows,
    unit_rows,
)
from exactmeans.select import KSelection
from exactmeans.tree.fitted import FittedTree

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "convergence",
    "distances_avoided",
    "k_selection",
    "map2d",
    "silhouette",
    "sizes",
    "tree",
]

_CRITERIA = {
    "inertia": "Inertia",
    "silhouette": "Simplified silhouette",
    "davies_bouldin": "Davies–Bouldin (lower is better)",
    "calinski_harabasz": "Calinski–Harabasz",
    "stability": "Stability (adjusted Rand)",
}


def convergence(model: BaseKMeans, ax: Axes | None = None) -> Axes:
    """Inertia by iteration.

    Parameters
    ----------
    model : KMeans or MiniBatchKMeans
        A fitted model.
    ax : matplotlib Axes or None, default=None
        Where to draw; None makes a new figure.

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> from exactmeans import KMeans, plot
    >>> from sklearn.datasets import load_iris
    >>> model = KMeans(3, random_state=0).fit(load_iris().data)
    >>> plot.convergence(model).get_ylabel()
    'Inertia'
    """
    history = _history(model)
    ax = _axes(ax)
    ax.plot([r.iteration for r in history], [r.inertia for r in history], marker=_marker(history))
    ax.set(xlabel="Iteration", ylabel="Inertia")
    _whole_numbers(ax)
    return ax


def distances_avoided(model: BaseKMeans, ax: Axes | None = None) -> Axes:
    """The share of row-centre distances that bounds and filters avoided, by iteration.

    Parameters
    ----------
    model : KMeans or MiniBatchKMeans
        A fitted model.
    ax : matplotlib Axes or None, default=None

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> from exactmeans import KMeans, plot
    >>> from sklearn.datasets import load_iris
    >>> X = load_iris().data
    >>> model = KMeans(3, random_state=0).fit(X)
    >>> plot.distances_avoided(model).get_ylabel()
    'Distances avoided'
    """
    history = _history(model)
    plain = model._n_rows * model.cluster_centers_.shape[0]
    avoided = [1 - r.distances / plain for r in history]
    ax = _axes(ax)
    ax.plot([r.iteration for r in history], avoided, marker=_marker(history))
    ax.set(xlabel="Iteration", ylabel="Distances avoided", ylim=(min(0, *avoided) - 0.02, 1.02))
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    _whole_numbers(ax)
    return ax


def sizes(model: BaseKMeans, X: Any = None, ax: Axes | None = None) -> Axes:
    """Rows in each cluster, the largest first.

    Parameters
    ----------
    model : KMeans or MiniBatchKMeans
        A fitted model.
    X : data of any kind that `predict` takes, or None
        The rows to count; None takes those of fit.
    ax : matplotlib Axes or None, default=None

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> from exactmeans import KMeans, plot
    >>> from sklearn.datasets import load_iris
    >>> X = load_iris().data
    >>> model = KMeans(3, random_state=0).fit(X)
    >>> plot.sizes(model).get_ylabel()
    'Rows'
    """
    check_model(model)
    if X is None and getattr(model, "labels_", None) is None:
        raise ValueError("X must be given for a model without labels_.")
    labels = np.asarray(model.labels_ if X is None else model.predict(X))  # lazy on Dask
    k = model.cluster_centers_.shape[0]
    size = np.bincount(labels[labels >= 0], minlength=k)
    order = np.argsort(-size, kind="stable")
    ax = _axes(ax)
    ax.bar(np.arange(k), size[order], color=[_colour(j, k) for j in order])
    if k <= 40:
        ax.set_xticks(np.arange(k), [str(j) for j in order])
    ax.set(xlabel="Cluster" if k <= 40 else "Clusters, largest first", ylabel="Rows")
    return ax


def silhouette(found: Silhouette, ax: Axes | None = None) -> Axes:
    """Silhouettes of the rows, cluster by cluster, with the mean as a line.

    Parameters
    ----------
    found : Silhouette
        What `exactmeans.silhouette(X, model)` returned.
    ax : matplotlib Axes or None, default=None

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> import exactmeans
    >>> from sklearn.datasets import load_iris
    >>> X = load_iris().data
    >>> model = exactmeans.KMeans(3, random_state=0).fit(X)
    >>> ax = exactmeans.plot.silhouette(exactmeans.silhouette(X, model))
    >>> ax.get_xlabel()
    'Simplified silhouette'
    """
    if not isinstance(found, Silhouette):
        raise ValueError(
            "found must be what exactmeans.silhouette(X, model) returned, but it is of type "
            f"{type(found).__name__!r}."
        )
    ax = _axes(ax)
    k, begin, middles = len(found.clusters), 0, []
    for j in range(k):
        own = np.sort(found.samples[found.labels == j])
        at = np.arange(begin, begin + len(own))
        ax.fill_betweenx(at, 0, own, color=_colour(j, k), linewidth=0)
        middles.append(begin + len(own) / 2)
        begin += len(own) + max(1, len(found.samples) // 100)
    ax.axvline(found.mean, linestyle="--", color="black", linewidth=1)
    if k <= 40:
        ax.set_yticks(middles, [str(j) for j in range(k)])
    else:
        ax.set_yticks([])
    ax.invert_yaxis()
    ax.set(xlabel=f"{found.kind.capitalize()} silhouette", ylabel="Cluster")
    return ax


def map2d(
    model: BaseKMeans,
    X: Any,
    ax: Axes | None = None,
    *,
    axes: str = "auto",
    max_points: int = 5000,
    random_state: int = 0,
) -> Axes:
    """Rows and centres in two dimensions.

    Parameters
    ----------
    model : KMeans or MiniBatchKMeans
        A fitted model.
    X : data of any kind that `predict` takes
    ax : matplotlib Axes or None, default=None
    axes : {'auto', 'rows', 'centres'}, default='auto'
        The principal axes of a sample of the rows (PCA; for sparse rows the truncated SVD of the
        centred rows), or those of the centres, weighted by size. 'auto' takes 'rows' for dense X
        and 'centres' for sparse X, whose variance lies along thousands of axes.
    max_points : int, default=5000
        How many rows to draw at most, chosen at random.
    random_state : int, default=0

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> from exactmeans import KMeans, plot
    >>> from sklearn.datasets import load_iris
    >>> X = load_iris().data
    >>> model = KMeans(3, random_state=0).fit(X)
    >>> len(plot.map2d(model, X).collections) > 0
    True
    """
    check_choice("axes", axes, ("auto", "rows", "centres"))
    most = check_int("max_points", max_points, 1)
    random_state = check_int("random_state", random_state, 0)
    check_model(model)
    labels, centres = model.predict(X), model.cluster_centers_
    k = centres.shape[0]
    chosen = sample_rows(len(labels), most, random_state)
    rows = model._engine(X, labelled=True).pick(chosen)
    rows = unit_rows(rows) if METRICS[model._frame.metric].directed else rows
    if model._frame.metric == "cosine":  # centres have length 1, far outside of their rows
        apart = np.nan_to_num(cluster_stats(X, model)["mean_distance"])
        centres = means_of_unit_rows(centres, apart)
    if axes == "centres" or (axes == "auto" and is_sparse(rows) and k > 2):
        size = np.maximum(np.bincount(labels[labels >= 0], minlength=k), 0.5)
        projection = between_axes(rows, centres, size, random_state)
    else:
        projection = principal_axes(rows, random_state)
    at, middles = projection(rows), projection(centres)
    ax = _axes(ax)
    colours = [_colour(int(j), k) for j in labels[chosen]]
    ax.scatter(at[:, 0], at[:, 1], s=8, c=colours, linewidths=0, alpha=0.7)
    own = [_colour(j, k) for j in range(k)]
    ax.scatter(middles[:, 0], middles[:, 1], s=90, c=own, edgecolors="white", linewidths=1.5)
    if k <= 40:
        for j, (x, y) in enumerate(middles):
            ax.annotate(str(j), (x, y), ha="center", va="center", fontsize=7, color="white")
    for name, share in zip(("x", "y"), projection.explained, strict=True):
        getattr(ax, f"set_{name}label")(f"{share:.0%} of the variance")
    ax.set_aspect("equal", adjustable="datalim")
    return ax


def k_selection(
    selection: KSelection, ax: Axes | None = None, *, criterion: str | None = None
) -> Axes:
    """A criterion by the number of clusters, with the suggested number as a line.

    Parameters
    ----------
    selection : KSelection
        What `exactmeans.select_k` returned.
    ax : matplotlib Axes or None, default=None
    criterion : {'silhouette', 'inertia', 'davies_bouldin', 'calinski_harabasz', 'stability'} or \
            None, default=None
        What to draw; None takes what the suggestion is based on, or the silhouette.

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> from exactmeans import plot, select_k
    >>> from sklearn.datasets import load_iris
    >>> found = select_k(load_iris().data, range(2, 5), random_state=0)
    >>> plot.k_selection(found, criterion="inertia").get_ylabel()
    'Inertia'
    """
    if not isinstance(selection, KSelection):
        raise ValueError(
            "selection must be what exactmeans.select_k returned, but it is of type "
            f"{type(selection).__name__!r}."
        )
    if criterion is None:
        criterion = {"elbow": "inertia"}.get(selection.criterion, selection.criterion)
        criterion = criterion if criterion in _CRITERIA else "silhouette"
    check_choice("criterion", criterion, tuple(_CRITERIA))
    ks = [int(record.k) for record in selection.table]
    ax = _axes(ax)
    ax.plot(ks, [getattr(record, criterion) for record in selection.table], marker="o")
    ax.axvline(selection.best_k, linestyle="--", color="black", linewidth=1)
    ax.set(xlabel="Number of clusters", ylabel=_CRITERIA[criterion])
    _whole_numbers(ax)
    return ax


def tree(model: FittedTree, ax: Axes | None = None, *, max_depth: int | None = None) -> Axes:
    """A tree as an icicle: one band per level, each node as wide as its share of the rows.

    Parameters
    ----------
    model : KMeansTree or BisectingKMeans
        A fitted model.
    ax : matplotlib Axes or None, default=None
    max_depth : int or None, default=None
        The last level to draw; None draws all.

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> from exactmeans import KMeansTree, plot
    >>> from sklearn.datasets import load_iris
    >>> model = KMeansTree(3, max_leaf_size=20, random_state=0).fit(load_iris().data)
    >>> plot.tree(model).get_xlabel()
    'Rows'
    """
    if not isinstance(model, FittedTree):
        raise ValueError(
            "model must be a fitted KMeansTree or BisectingKMeans, but it is of type "
            f"{type(model).__name__!r}."
        )
    check_is_fitted(model)
    depth = int(model.depth_.max())
    if max_depth is not None:
        depth = min(depth, check_int("max_depth", max_depth, 0))
    parent, children, size = model.parent_, model.children_, model.size_
    before = np.cumsum(size) - size
    begin = np.zeros(len(parent), dtype=np.int64)
    ax = _axes(ax)
    top = children[1] - children[0]
    branch = np.zeros(len(parent), dtype=np.int64)  # which child of the root a node is below
    for level in range(depth + 1):
        here = np.flatnonzero(model.depth_ == level)
        if level > 0:
            begin[here] = begin[parent[here]] + before[here] - before[children[parent[here]]]
            branch[here] = here - 1 if level == 1 else branch[parent[here]]
        colours = [(0.8, 0.8, 0.8) if level == 0 else _colour(j, int(top)) for j in branch[here]]
        ax.bar(
            begin[here],
            np.full(len(here), 0.9),
            width=size[here],
            bottom=level - 0.45,
            align="edge",
            color=colours,
            edgecolor="white",
            linewidth=0.3,
        )
    ax.set(xlabel="Rows", ylabel="Depth", ylim=(depth + 0.5, -0.5), xlim=(0, int(size[0])))
    ax.locator_params(axis="y", integer=True)
    return ax


def _axes(ax: Axes | None) -> Axes:
    if ax is not None:
        if not hasattr(ax, "set_xlabel"):
            raise ValueError(
                f"ax must be None or matplotlib Axes, but it is of type {type(ax).__name__!r}."
            )
        return ax
    try:
        from matplotlib import pyplot
    except ImportError:
        raise ImportError(
            "Plots need the matplotlib package: pip install exactmeans[report]."
        ) from None
    _, made = pyplot.subplots(layout="constrained")
    return made


def _history(model: BaseKMeans) -> list[Iteration]:
    check_model(model)
    check_is_fitted(model, "history_", msg="model must have a history_: call fit first.")
    return list(model.history_)


def _marker(history: list[Iteration]) -> str:
    return "o" if len(history) <= 40 else ""


def _whole_numbers(ax: Axes) -> None:
    ax.locator_params(axis="x", integer=True)


def _colour(j: int, k: int) -> Any:
    """Of cluster j: ten by hand, more around the circle by the golden angle; grey for none."""
    from matplotlib.colors import hsv_to_rgb

    if j < 0:
        return (0.6, 0.6, 0.6)
    if k <= 10:
        return f"C{j}"
    return tuple(hsv_to_rgb([(j * 0.381966) % 1, 0.65, (0.8, 0.65, 0.9)[j % 3]]))
