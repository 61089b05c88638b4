"""The centres of a fitted model, and rows that are compared with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted

from exactmeans import _core
from exactmeans.data.arrays import Double, Matrix
from exactmeans.data.centres import as_directions, check_centres
from exactmeans.data.stream import Stream, as_blocks, count_rows
from exactmeans.data.weights import check_weights
from exactmeans.engine.frame import Frame
from exactmeans.engine.limits import LimitedResult
from exactmeans.engine.local.engine import LocalEngine
from exactmeans.fit.centres_cache import CentroidsCache
from exactmeans.memory import check_memory_limit
from exactmeans.metrics import METRICS, ZeroRows
from exactmeans.parameters import REALS, check_n_jobs


class ModelCentres:
    """`cluster_centers_`, which users may have replaced, in the frame of the fit."""

    n_jobs: int | None
    memory_limit: int | float | str | None
    zero_rows: ZeroRows

    cluster_centers_: Any
    n_features_in_: int
    _frame: Frame
    # Only after a fit with size limits.
    prices_: Double
    _limited: LimitedResult

    def _given_centres(self) -> Matrix:
        given: Matrix = self.cluster_centers_
        return given if sp.issparse(given) else np.asarray(given)

    def _centres(self) -> Matrix:
        """`cluster_centers_`, which users may have replaced."""
        given = self._given_centres()
        centres = check_centres(
            given,
            given.shape[0] if given.ndim else 0,
            self.n_features_in_,
            _real(given.dtype),
            "cluster_centers_",
            sparse=bool(sp.issparse(given)),
        )
        return as_directions(centres, METRICS[self._frame.metric], "cluster_centers_")

    def _check_file(self) -> None:
        """Refuse centres or a shift that cannot predict; a file with them may have been altered."""
        self._centres()  # checks their shape, indices and values
        shift, d = self._frame.shift, self.n_features_in_
        if shift is not None and (shift.shape != (d,) or not np.isfinite(shift).all()):
            raise ValueError(f"the shift must be {d} finite numbers.")

    def _centroids(self, engine: LocalEngine) -> _core.Centroids:
        """The centres that rows of this engine are compared with, from the cache."""
        # A new attribute only for models that were loaded or unpickled.
        cache: CentroidsCache = self.__dict__.setdefault("_centroids_cache", CentroidsCache())
        return cache.get(self._given_centres(), self._frame, engine, self._centres)

    def _engine(
        self, X: Any, sample_weight: Any = None, *, part: bool = False, labelled: bool = False
    ) -> LocalEngine:
        """The engine of X; checks that values are finite, unless labelling checks it next."""
        dtype = _real(self._given_centres().dtype)
        blocks = as_blocks(self, X, reset=False, dtype=dtype)
        n = count_rows(blocks)
        weights = check_weights(sample_weight, n, part=part)
        reading = blocks.reading_bytes if isinstance(blocks, Stream) else 0
        what = f"the labels of {n:,} rows{' and the blocks they are read in' if reading else ''}"
        self._refuse_over_limit(8 * n + reading, what, "take fewer rows at a time")
        metric = METRICS[self._frame.metric]  # that of fit, whatever was set since
        n_jobs = check_n_jobs(self.n_jobs)
        zero_rows = self.zero_rows if metric.directed else "error"
        names = getattr(self, "feature_names_in_", None)
        engine = LocalEngine(blocks, weights, n_jobs, metric, zero_rows, feature_names=names)
        if metric.directed or metric.l1:
            engine.examine(to_fit=False)
        elif engine.sparse or engine.streamed or not labelled:
            engine.refuse_nonfinite()
        return engine

    def _refuse_over_limit(self, needed: int, what: str, instead: str) -> None:
        limit = check_memory_limit(self.memory_limit)
        if limit is not None and needed > limit:
            raise ValueError(
                f"memory_limit must be at least {needed:,} bytes for {what}, but it is {limit:,}: "
                f"{instead}."
            )

    def _assigned(self, X: Any, sample_weight: Any = None, *, part: bool = False) -> LocalEngine:
        """X, all of it or a part, with every row labelled."""
        check_is_fitted(self)
        priced = self._has_prices()
        engine = self._engine(X, sample_weight, part=part, labelled=not priced)
        engine.start("lloyd", self._given_centres().shape[0])
        if priced:
            self._label_by_prices(engine)
            return engine
        engine.assign(self._centroids(engine))
        engine.refuse_unscored()
        return engine

    # -- prices of a fit with size limits ------------------------------------------------------

    def _keep_limited(self, limited: LimitedResult | None) -> None:
        """Keep the result of size limits, or remove that of an earlier fit."""
        if limited is None:
            self.__dict__.pop("prices_", None)
            self.__dict__.pop("_limited", None)
            return
        self._limited = limited
        # In units of the objective, of which a euclidean score is half.
        double = 1 if self._frame.metric == "cosine" else 2
        scaled = np.ldexp(double * limited.prices, -2 * self._frame.cost_exponent)
        self.prices_ = np.asarray(scaled)

    def _has_prices(self) -> bool:
        return "prices_" in self.__dict__

    def _label_by_prices(self, engine: LocalEngine) -> None:
        prices = np.asarray(self.prices_, dtype=np.float64)
        if prices.shape != self._given_centres().shape[:1]:
            raise ValueError("prices_ must have one price for each centre in cluster_centers_.")
        half = 1.0 if self._frame.metric == "cosine" else 0.5
        own = np.ascontiguousarray(np.ldexp(half * prices, 2 * self._frame.cost_exponent))
        engine.assign_by_prices(self._centroids(engine), own, self._limited.border)


def _real(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype in which centres of this dtype are compared."""
    return dtype if dtype in REALS else np.dtype(np.float64)
