"""What a fitted model does with its centres: labels, distances, scores, files."""

from __future__ import annotations

import os
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import NDArray
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    ClusterMixin,
    TransformerMixin,
)
from sklearn.utils.validation import check_is_fitted

from exactmeans.callbacks import Iteration
from exactmeans.data.weights import weights_of
from exactmeans.estimators.limits import SizeLimits
from exactmeans.estimators.model_centres import ModelCentres
from exactmeans.fit.explanation import as_text, explanation
from exactmeans.fit.policy import Choice
from exactmeans.fit.problem import unscaled
from exactmeans.io import model_file
from exactmeans.metrics import METRICS
from exactmeans.parameters import check_int
from exactmeans.sql import IfExists, centers_to_sql, labels_to_sql
from exactmeans.sql.labels import labelled


class FittedKMeans(
    ModelCentres,
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc, unused-ignore]
    TransformerMixin,  # type: ignore[misc, unused-ignore]
    ClusterMixin,  # type: ignore[misc, unused-ignore]
    BaseEstimator,  # type: ignore[misc, unused-ignore]
):
    """Labels, distances and scores of any rows, by the centres of a fit."""

    labels_: NDArray[np.int32]
    inertia_: float
    n_iter_: int
    algorithm_: str
    n_distances_: int
    history_: list[Iteration]
    # What explain() reads.
    _choice: Choice
    _stages: list[tuple[int, str, str]]  # first iteration, algorithm, why
    _stopped: str
    _n_rows: int
    _n_features_out: int
    _n_jobs_used: int
    _passes: float
    _unread: int

    def predict(self, X: Any, *, size_min: Any = None, size_max: Any = None) -> NDArray[np.int32]:
        """The nearest centre of each row; -1 for rows of zeros that `zero_rows='keep'` keeps.

        After a fit with size limits, the cluster whose squared distance (or 1 - cos) plus its price
        in `prices_` is lowest, and for the rows of the fit `labels_`.

        Parameters
        ----------
        X : array-like, sparse matrix, BlockSource or path of shape (n_samples, n_features)
        size_min, size_max : int, float or None, default=None
            Limits on the numbers of rows of X in each cluster, as in `fit`. The labels have the
            least inertia that the limits allow; prices of the fit are ignored.

        Returns
        -------
        labels : ndarray of shape (n_samples,)

        Examples
        --------
        >>> from exactmeans import KMeans
        >>> kmeans = KMeans(2, init=[[0.0], [9.0]]).fit([[0.0], [1.0], [9.0]])
        >>> kmeans.predict([[2.0], [8.0], [7.0]])
        array([0, 1, 1], dtype=int32)
        >>> kmeans.predict([[2.0], [8.0], [7.0], [1.0]], size_max=2)
        array([0, 1, 1, 0], dtype=int32)
        """
        if size_min is None and size_max is None:
            return self._assigned(X).final_labels()
        check_is_fitted(self)
        wanted = SizeLimits.check(size_min, size_max, METRICS[self._frame.metric])
        engine, k = self._engine(X), self._given_centres().shape[0]
        assert wanted is not None
        engine.limit(wanted.of(engine, k))
        engine.start("lloyd", k)
        engine.assign(self._centroids(engine))
        return engine.final_labels()

    def transform(self, X: Any) -> NDArray[Any]:
        """Distances of each row to each centre: 1 - cos for 'cosine', the angle for 'angular'.

        Parameters
        ----------
        X : array-like, sparse matrix, BlockSource or path of shape (n_samples, n_features)

        Returns
        -------
        distances : ndarray of shape (n_samples, n_clusters)

        Examples
        --------
        >>> from exactmeans import KMeans
        >>> kmeans = KMeans(2, init=[[0.0], [9.0]]).fit([[0.0], [9.0]])
        >>> kmeans.transform([[2.0], [8.0]])
        array([[2., 7.],
               [8., 1.]])
        """
        check_is_fitted(self)
        engine, centres = self._engine(X), self._centres()
        self._refuse_over_limit(
            engine.n * centres.shape[0] * engine.dtype.itemsize,
            f"the {engine.n:,} x {centres.shape[0]:,} distances that transform returns",
            "transform fewer rows at a time, or use predict",
        )
        return engine.transform(centres, self._frame.shift_of(engine), self._frame.cost_exponent)

    def nearest(self, X: Any, m: int = 1) -> tuple[NDArray[np.int32], NDArray[Any]]:
        """The m nearest centres of each row and their distances, nearest first.

        Takes memory for m centres per row, not for all.

        Parameters
        ----------
        X : array-like, sparse matrix, BlockSource or path of shape (n_samples, n_features)
        m : int, default=1
            How many centres; at most `n_clusters`.

        Returns
        -------
        labels : ndarray of shape (n_samples, m)
            The first column is what `predict` gives, except after a fit with size limits, which
            are ignored here. Of centres at the same distance, the lowest number comes first. -1
            for rows of zeros that `zero_rows='keep'` keeps.
        distances : ndarray of shape (n_samples, m)
            What `transform` gives for these centres.

        Examples
        --------
        >>> from exactmeans import KMeans
        >>> kmeans = KMeans(3, init=[[0.0], [4.0], [9.0]]).fit([[0.0], [4.0], [9.0]])
        >>> labels, distances = kmeans.nearest([[5.0]], m=2)
        >>> labels.tolist(), distances.tolist()
        ([[1, 2]], [[1.0, 4.0]])
        """
        check_is_fitted(self)
        k = self._given_centres().shape[0]
        m = check_int("m", m, 1)
        if m > k:
            raise ValueError(f"m must be at most {k}, the number of centres, but it is {m}.")
        engine = self._engine(X, labelled=True)
        self._refuse_over_limit(
            engine.n * m * (engine.dtype.itemsize + 4),
            f"the {engine.n:,} x {m:,} labels and distances that nearest returns",
            "take fewer rows at a time, or a smaller m",
        )
        exponent = self._frame.cost_exponent
        found = engine.nearest(self._centroids(engine), self._centres(), exponent, m)
        if not np.isfinite(found[1]).all():  # a row with a finite distance is finite
            engine.refuse_nonfinite()
        return found

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Minus the inertia of X at the fitted centres, by `metric`.

        Parameters
        ----------
        X : array-like, sparse matrix, BlockSource or path of shape (n_samples, n_features)
        y : Ignored
        sample_weight : array-like of shape (n_samples,), default=None

        Returns
        -------
        score : float

        Examples
        --------
        >>> from exactmeans import KMeans
        >>> kmeans = KMeans(2, init=[[0.0], [9.0]]).fit([[0.0], [9.0]])
        >>> kmeans.score([[2.0], [8.0]])
        -5.0
        """
        check_is_fitted(self)
        engine, centres = self._engine(X, weights_of(X, sample_weight)), self._centres()
        exponent = self._frame.cost_exponent
        if self._has_prices():
            engine.start("lloyd", centres.shape[0])
            self._label_by_prices(engine)
            return -unscaled(engine.scatter(centres, exponent, labelled=True)[0], exponent)
        engine.start("lloyd", centres.shape[0])
        _, inertia = engine.cost(self._frame.centroids(centres, engine), centres, exponent)
        return -unscaled(inertia, exponent)

    @overload
    def explain(self, *, as_dict: Literal[False] = False) -> str: ...
    @overload
    def explain(self, *, as_dict: Literal[True]) -> dict[str, Any]: ...
    def explain(self, *, as_dict: bool = False) -> str | dict[str, Any]:
        """What ran, why, how much work it saved and what memory it took, in a few lines.

        Parameters
        ----------
        as_dict : bool, default=False
            Return the facts as a dict of plain values, for programs.

        Returns
        -------
        str or dict

        Examples
        --------
        >>> import numpy as np
        >>> from exactmeans import KMeans
        >>> X = np.random.default_rng(0).normal(size=(1000, 4))
        >>> kmeans = KMeans(5, random_state=0).fit(X)
        >>> print(kmeans.explain().splitlines()[1])
        data: 1000 x 4, float64, not shifted
        >>> kmeans.explain(as_dict=True)["iterations"] == kmeans.n_iter_
        True
        """
        check_is_fitted(self)
        check_is_fitted(self, "history_", msg="explain() needs a fitted model: call fit first.")
        explained = explanation(self)
        return explained if as_dict else as_text(explained)

    def to_sql(
        self,
        connection: Any,
        table: str,
        source: Any,
        *,
        if_exists: IfExists = "fail",
        schema: str | None = None,
    ) -> int:
        """Write key, cluster and distance of the rows of `open_sql` to a table, or write nothing.

        See `exactmeans.sql.labels_to_sql`.

        Examples
        --------
        >>> import duckdb
        >>> from exactmeans import KMeans, open_sql
        >>> connection = duckdb.connect()
        >>> query = "SELECT i AS id, i * i AS x FROM range(4) r(i)"
        >>> rows = open_sql(query, connection, key="id")
        >>> KMeans(2, random_state=0).fit(rows).to_sql(connection, "clusters", rows)
        4
        >>> connection.sql("SELECT count(*) FROM clusters WHERE cluster = 1").fetchall()
        [(1,)]
        """
        return labels_to_sql(self, connection, table, source, if_exists=if_exists, schema=schema)

    def centers_to_sql(
        self,
        connection: Any,
        table: str,
        source: Any = None,
        *,
        if_exists: IfExists = "fail",
        schema: str | None = None,
    ) -> None:
        """Write the centres to a table that `exactmeans.from_sql` reads, or write nothing.

        See `exactmeans.sql.centers_to_sql`.

        Examples
        --------
        >>> import duckdb
        >>> from exactmeans import KMeans, from_sql
        >>> connection = duckdb.connect()
        >>> kmeans = KMeans(2, init=[[0.0], [9.0]]).fit([[0.0], [9.0]])
        >>> kmeans.centers_to_sql(connection, "centres")
        >>> from_sql(connection, "centres").predict([[8.0]])
        array([1], dtype=int32)
        """
        centers_to_sql(self, connection, table, source, if_exists=if_exists, schema=schema)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to a file for `exactmeans.load`.

        Callables (`init`, `callbacks`) are left out, and subclasses are refused: a file holds no
        code. Needs `pip install exactmeans[io]`.

        Parameters
        ----------
        path : str or path
            Replaced at once, or not at all.

        Examples
        --------
        >>> import exactmeans
        >>> from exactmeans import KMeans
        >>> kmeans = KMeans(2, init=[[0.0], [9.0]]).fit([[0.0], [9.0]])
        >>> kmeans.save("model.safetensors")
        >>> exactmeans.load("model.safetensors").predict([[8.0]])
        array([1], dtype=int32)
        """
        check_is_fitted(self)
        model_file.save(self, path)

    def _own_and_next(self, X: Any, m: int = 2) -> tuple[NDArray[np.int32], NDArray[Any]]:
        """The label of each row and the nearest other centre (for m=2), and their distances."""
        found, distances = self.nearest(X, min(m, self._given_centres().shape[0]))
        if not self._has_prices():
            return found, distances
        labels, own = labelled(self, X)
        near = found[:, 0] == labels
        both, apart = [labels], [np.where(near, distances[:, 0], own)]
        if found.shape[1] > 1:
            both.append(np.where(near, found[:, 1], found[:, 0]))
            apart.append(np.where(near, distances[:, 1], distances[:, 0]))
        return np.column_stack(both), np.column_stack(apart)

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_centroids_cache"}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
