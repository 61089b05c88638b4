"""`report`: one HTML file about a clustering, which needs no network and no server."""

from __future__ import annotations

import datetime
import html
import os
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exactmeans.estimators.base import BaseKMeans
from exactmeans.fit.explanation import explanation
from exactmeans.io.files import check_writable, replace_file
from exactmeans.parameters import check_int, check_model, refuse
from exactmeans.quality.labelled import refuse_lazy
from exactmeans.reporting import words
from exactmeans.reporting.markup import filled, number, numbers, script_json, template
from exactmeans.reporting.projection import is_sparse
from exactmeans.reporting.summary import Reals, Summary, summarise
from exactmeans.select import KSelection

_SCRIPTS = ("dom.js", "charts.js", "map.js", "clusters.js", "page.js")
_TEXT = 400  # characters of a text or name that are shown
_VALUES = 6  # values shown of a row
_PROFILE = (60, 40)  # clusters and features, at most, of the heat map
_QUANTILES = 48  # points of the silhouette curve of a cluster


def report(
    model: BaseKMeans,
    X: Any,
    path: str | os.PathLike[str],
    *,
    feature_names: Sequence[str] | NDArray[Any] | None = None,
    texts: Sequence[str] | NDArray[Any] | None = None,
    ids: Sequence[Any] | NDArray[Any] | None = None,
    selection: KSelection | None = None,
    title: str = "Clusters",
    examples: int = 5,
    max_points: int = 3000,
    units: tuple[Any, Any] | None = None,
) -> None:
    """Write an HTML report about the clusters of X: one file that needs no network.

    It shows what ran and why, a map of the rows, sizes and separation of the clusters, and for
    each cluster what sets it apart, its nearest and farthest rows and its neighbours; then the
    rows that fit nowhere and, if given, how the number of clusters was chosen.

    Parameters
    ----------
    model : KMeans or MiniBatchKMeans
        A fitted model.
    X : array-like, sparse matrix, BlockSource or path of shape (n_samples, n_features)
        The rows to report on, those of fit or others.
    path : str or path
        The file to write, replaced at once or not at all.
    feature_names : sequence of str or None, default=None
        Names of the features: terms of a text, columns of a table. None takes the column names
        of fit, or numbers.
    texts : sequence of str or None, default=None
        What to show of each row in place of its values, such as the document.
    ids : sequence or None, default=None
        What to call each row; None numbers them from 0.
    selection : KSelection or None, default=None
        What `select_k` returned, shown if given.
    title : str, default='Clusters'
    examples : int, default=5
        How many of the nearest and of the farthest rows of each cluster to show.
    max_points : int, default=3000
        Rows on the map, drawn at random if there are more. Means and standard deviations of
        features are those of these rows.
    units : (offsets, factors) or None, default=None
        Shows values as `value * factors + offsets`, in the units that features had before X was
        standardised: `mean_` and `scale_` of a StandardScaler.

    Examples
    --------
    >>> import tempfile
    >>> from exactmeans import KMeans, report
    >>> from sklearn.datasets import load_iris
    >>> iris = load_iris()
    >>> model = KMeans(3, random_state=0).fit(iris.data)
    >>> path = tempfile.mkdtemp() + "/iris.html"
    >>> report(model, iris.data, path, feature_names=iris.feature_names, title="Iris")
    """
    check_model(model)
    refuse_lazy(X)
    check_int("examples", examples, 0)
    check_int("max_points", max_points, 1)
    check_writable(path)
    if selection is not None and not isinstance(selection, KSelection):
        raise ValueError(
            "selection must be None or what exactmeans.select_k returned, but it is of type "
            f"{type(selection).__name__!r}."
        )
    if not isinstance(title, str):
        refuse("title", title, "a string")
    summary = summarise(model, X, points=max_points, examples=examples)
    about: dict[str, Any] = {"feature_names": feature_names, "texts": texts, "ids": ids}
    write_page(model, summary, path, selection=selection, title=title, units=units, **about)


def write_page(
    model: BaseKMeans,
    summary: Summary,
    path: str | os.PathLike[str],
    *,
    feature_names: Sequence[str] | NDArray[Any] | None,
    texts: Any,
    ids: Any,
    selection: KSelection | None,
    title: str,
    units: tuple[Any, Any] | None,
) -> None:
    """`report` for rows that are summarised already."""
    names = _Names(feature_names, model)
    n = len(summary.labels)
    for what, given in (("texts", texts), ("ids", ids)):
        if given is None:
            continue
        if not (hasattr(given, "__len__") and hasattr(given, "__getitem__")):
            refuse(what, given, "None or a sequence with an entry for each row")
        if len(given) != n:
            raise ValueError(
                f"{what} must have one entry for each of the {n} rows, but it has {len(given)}."
            )
    page = _Page(summary, names, texts, ids, _Units(units, model.n_features_in_))
    replace_file(path, page.render(model, selection, title).encode())


class _Names:
    """Names of features, those that are shown in the order in which they are first needed."""

    def __init__(self, given: Sequence[str] | NDArray[Any] | None, model: BaseKMeans) -> None:
        d = int(model.n_features_in_)
        own = getattr(model, "feature_names_in_", None) if given is None else given
        if own is not None and len(own) != d:
            raise ValueError(
                f"feature_names must have one name for each of the {d} features, but it has "
                f"{len(own)}."
            )
        self._all, self._place = own, dict[int, int]()
        self.shown: list[str] = []

    def __call__(self, f: int) -> str:
        return f"feature {f}" if self._all is None else str(self._all[f])

    def place(self, f: int) -> int:
        """Where the page has the name of feature f."""
        if f not in self._place:
            self._place[f] = len(self.shown)
            self.shown.append(self(f))
        return self._place[f]


class _Units:
    """Values in the units that they had before they were standardised."""

    def __init__(self, given: tuple[Any, Any] | None, d: int) -> None:
        self.given = given is not None
        self._offsets, self._factors = np.zeros(d), np.ones(d)
        if given is None:
            return
        try:
            self._offsets, self._factors = (np.asarray(part, dtype=float) for part in given)
        except (TypeError, ValueError):
            refuse("units", given, "None or (offsets, factors), two arrays of numbers")
        for part in (self._offsets, self._factors):
            if part.shape != (d,):
                raise ValueError(
                    f"units must be offsets and factors of {d} features each, but one has shape "
                    f"{part.shape}."
                )

    def __call__(self, f: Any, value: Any) -> Any:
        return value * self._factors[f] + self._offsets[f]


class _Page:
    def __init__(
        self,
        summary: Summary,
        names: _Names,
        texts: Sequence[str] | None,
        ids: Sequence[Any] | None,
        units: _Units,
    ) -> None:
        self._summary, self._names, self._units = summary, names, units
        self._texts, self._ids = texts, ids
        self._dense = not is_sparse(summary.picked.values)
        self._place: dict[int, int] = {}
        self._rows: list[list[Any]] = []

    def render(self, model: BaseKMeans, selection: KSelection | None, title: str) -> str:
        summary, dense = self._summary, self._dense
        explained = explanation(model) if getattr(model, "history_", None) else None
        notes = words.notes(summary, dense=dense, standardised=self._units.given)
        sentences = words.story(summary, explained, dense=dense, max_iter=model.max_iter)
        data = self._data(model, selection)
        parameters = {
            name: value
            for name, value in model.get_params(deep=False).items()
            if isinstance(value, (bool, int, float, str, type(None)))
        }
        package = version("exactmeans")
        today = datetime.date.today().isoformat()
        safe: Callable[[str], str] = html.escape
        return filled(
            template("report.html"),
            {
                "title": safe(title),
                "subtitle": safe(words.subtitle(summary, int(model.n_features_in_))),
                "version": safe(package),
                "css": template("report.css"),
                "script": "(() => {\n" + "".join(map(template, _SCRIPTS)) + "})();",
                "story": "".join(f"<p>{safe(said)}</p>" for said in sentences),
                "tiles": "".join(
                    f"<div><dt>{safe(label)}</dt><dd>{safe(value)}<small>{safe(remark)}</small>"
                    "</dd></div>"
                    for label, value, remark in words.tiles(summary, model)
                ),
                "facts": "".join(
                    f"<dt>{safe(name)}</dt><dd>{safe(str(value))}</dd>"
                    for name, value in words.facts(explained)
                ),
                "parameters": safe(
                    f"{type(model).__name__}(\n"
                    + "".join(f"    {name}={value!r},\n" for name, value in parameters.items())
                    + ")"
                ),
                "footer": safe(f"Made by exactmeans {package} on {today}. Rows count from 0."),
                "data": script_json(data),
                "run_note": safe(_run_note(explained)),
                "selection_note": safe(getattr(selection, "reason", "") or ""),
                **{f"{name}_note": safe(said) for name, said in notes.items()},
            },
        )

    def _data(self, model: BaseKMeans, selection: KSelection | None) -> dict[str, Any]:
        s = self._summary
        many = len(s.size) > words.CURVES
        data = {
            "dense": self._dense,
            "has_texts": self._texts is not None,
            "clusters": self._clusters(),
            "map": {
                "x": numbers(s.sample_xy[:, 0]),
                "y": numbers(s.sample_xy[:, 1]),
                "cx": numbers(s.centre_xy[:, 0]),
                "cy": numbers(s.centre_xy[:, 1]),
                "label": s.labels[s.sample].tolist(),
                "row": [self._row(i) for i in s.sample.tolist()],
            },
            "odd": [
                [self._row(i), round(float(o), 2)]
                for i, o in zip(s.odd.tolist(), s.oddness, strict=True)
            ],
            "history": _history(model),
            "profile": self._profile(model) if self._dense and len(s.size) > 1 else None,
            "silhouettes": None if many or s.silhouette is None else self._curves(s.silhouette),
            "mean_silhouette": (
                None if s.silhouette is None else number(s.silhouette[s.labels >= 0].mean())
            ),
            "selection": None if selection is None else _selection(selection),
        }
        return {**data, "features": self._names.shown, "rows": self._rows}

    def _clusters(self) -> dict[str, Any]:
        s, own = self._summary, self._names
        return {
            "size": s.size.tolist(),
            "total": len(s.labels),
            "mean": numbers(s.mean_distance),
            "radius": numbers(s.radius),
            "silhouette": None if s.cluster_silhouette is None else numbers(s.cluster_silhouette),
            "name": [words.cluster_name(top, own, dense=self._dense) for top in s.contrast],
            "top": [
                [
                    [
                        own.place(t.feature),
                        number(self._units(t.feature, t.value)),
                        number(t.contrast),
                    ]
                    for t in top
                ]
                for top in s.contrast
            ],
            "near": [[self._row(i) for i in rows.tolist()] for rows in s.nearest],
            "far": [[self._row(i) for i in rows.tolist()] for rows in s.farthest],
            "neighbours": [
                [[int(j), number(d)] for j, d in zip(*pair, strict=True)]
                for pair in zip(s.neighbours, s.neighbour_distance, strict=True)
            ],
        }

    def _row(self, i: int) -> int:
        """Where the page has row i of X."""
        if i not in self._place:
            self._place[i] = len(self._rows)
            s = self._summary
            j = int(s.labels[i])
            text: str | None = None
            features: list[int] = []
            values: list[float | None] = []
            if self._texts is not None:
                text = _shortened(str(self._texts[i]))
            else:
                features, values = self._values(i, j)
            called = None if self._ids is None else _shortened(str(self._ids[i]))
            distance = number(s.distance[i]) if j >= 0 else None
            self._rows.append([i, called, j, distance, text, features, values])
        return self._place[i]

    def _values(self, i: int, j: int) -> tuple[list[int], list[float | None]]:
        """The features of a row that are shown, and their values."""
        row: Any = self._summary.picked.row(i)
        if self._dense:
            if row.shape[1] <= _VALUES:
                chosen = list(range(row.shape[1]))
            else:
                chosen = [t.feature for t in self._summary.contrast[max(j, 0)][:_VALUES]]
            found = [self._units(f, float(row[0, f])) for f in chosen]
        else:
            top = np.argsort(-row.data, kind="stable")[: _VALUES + 2]
            chosen, found = row.indices[top].tolist(), row.data[top].tolist()
        return [self._names.place(f) for f in chosen], [number(value) for value in found]

    def _profile(self, model: BaseKMeans) -> dict[str, Any]:
        """The largest clusters by the features that differ most between clusters."""
        s = self._summary
        most_clusters, most_features = _PROFILE
        clusters = np.argsort(-s.size, kind="stable")[:most_clusters]
        centres: Any = model.cluster_centers_
        centres = centres[clusters]
        centres = np.asarray(centres.toarray() if is_sparse(centres) else centres, dtype=float)
        spread = np.where(s.spread > 0, s.spread, 1.0)
        z = np.where(s.spread > 0, (centres - s.mean) / spread, 0.0)
        strength = np.abs(z).max(axis=0)
        features = np.sort(np.argsort(-strength, kind="stable")[:most_features])
        value = self._units(features, centres[:, features])
        return {
            "clusters": clusters.tolist(),
            "features": [self._names.place(int(f)) for f in features],
            "z": [numbers(line) for line in z[:, features]],
            "value": [numbers(line) for line in value],
            "mean": numbers(self._units(features, s.mean[features])),
        }

    def _curves(self, silhouette: Reals) -> list[list[float | None]]:
        """Quantiles of the silhouettes of each cluster, ascending."""
        at = np.linspace(0, 1, _QUANTILES)
        labels = self._summary.labels
        return [
            numbers(np.quantile(own, at)) if len(own := silhouette[labels == j]) else []
            for j in range(len(self._summary.size))
        ]


def _run_note(explained: dict[str, Any] | None) -> str:
    if explained is None:
        return "The model has no record of its fit."
    share = explained["distances_share"]
    saved = (
        f" It computed {share:.1%} of the distances that plain Lloyd computes, for the same result."
        if share is not None and share < 0.995
        else ""
    )
    took = words.time_of(explained["seconds"])
    return (
        f"{explained['iterations']} iterations in {took}; the fit stopped "
        f"because {explained['stopped']}.{saved}"
    )


def _history(model: BaseKMeans) -> dict[str, Any]:
    records = getattr(model, "history_", None) or []
    n = getattr(model, "_n_rows", 0) or 1
    k = model.cluster_centers_.shape[0]
    return {
        "iteration": [r.iteration for r in records],
        "inertia": [number(r.inertia) for r in records],
        "changed": [r.changed for r in records],
        "moved": [number(r.changed / n) for r in records],
        "share": [number(r.distances / (n * k)) for r in records],
        "seconds": [number(r.seconds) for r in records],
        "algorithm": [r.algorithm for r in records],
    }


_CRITERIA = (
    ("silhouette", "Silhouette", "higher is better"),
    ("inertia", "Inertia", "look for the bend"),
    ("davies_bouldin", "Davies–Bouldin", "lower is better"),
    ("calinski_harabasz", "Calinski–Harabasz", "higher is better"),
    ("stability", "Stability", "agreement of seeds, higher is better"),
)


def _selection(selection: KSelection) -> dict[str, Any]:
    """The table of `select_k` by criteria; those that were not computed are left out."""
    found = []
    for name, title, note in _CRITERIA:
        values = [number(getattr(record, name)) for record in selection.table]
        if any(value is not None for value in values):
            found.append([title, note, values])
    return {
        "k": [record.k for record in selection.table],
        "best": selection.best_k,
        "criteria": found,
    }


def _shortened(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _TEXT else text[: _TEXT - 1].rstrip() + "…"
