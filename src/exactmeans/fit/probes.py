"""Samples of rows that predict what a pass of an algorithm will cost."""

from __future__ import annotations

import numpy as np

from exactmeans import _core
from exactmeans.data.arrays import Matrix, as_array
from exactmeans.data.centres import from_core
from exactmeans.data.rows import rows_of
from exactmeans.engine.protocol import Engine
from exactmeans.fit.cost_model import (
    FILTER_PROBE_ROWS,
    INTER_CENTRE_PROBE_ROWS,
    PCA_PROBE_ROWS,
    Workload,
)


def _some_rows(engine: Engine, most: int) -> Matrix:
    """Rows at even distances, as a sample."""
    return engine.pick(np.linspace(0, engine.n - 1, min(most, engine.n)).astype(np.intp))


def share_left_by_pca(engine: Engine, centroids: _core.Centroids, k: int) -> float:
    """The share of distances that `pca` computes for a sample of rows."""
    rows = _some_rows(engine, PCA_PROBE_ROWS)
    n = len(rows)
    labels = np.full(n, -1, dtype=np.int32)
    assigner = _core.Assigner("pca", engine.dtype == np.float32, n, k)
    _, distances, *_ = assigner.assign(rows_of(rows, None), centroids, labels, engine.n_jobs)
    return distances / (n * k)


def cost_with_filter(engine: Engine, centroids: _core.Centroids, work: Workload) -> float:
    """The cost of a plain pass with the 8-bit filter for dense rows, as a share of one without."""
    if not work.code_bytes:
        return 1.0
    rows = _some_rows(engine, FILTER_PROBE_ROWS)
    own = rows_of(rows, None)
    if engine.metric.directed:
        lengths = np.empty(len(rows))
        own.lengths(lengths, engine.n_jobs)
        own = own.with_metric(work.metric, None, lengths)
    return _core.filtered_cost(own, work.compared, centroids, engine.n_jobs)


def share_near(engine: Engine, centroids: _core.Centroids, k: int) -> float:
    """The share of centres that inter-centre distances do not prune, for a sample of rows."""
    centres = as_array(from_core(centroids.centres, (k, engine.d)))
    rows = _some_rows(engine, INTER_CENTRE_PROBE_ROWS)
    n = len(rows)
    away, between = np.empty((2, n, k), dtype=engine.dtype)
    rows_of(rows, None).transform(centres, None, 0, away, engine.n_jobs)
    nearest = away.argmin(axis=1)
    rows_of(centres[nearest], None).transform(centres, None, 0, between, engine.n_jobs)
    return float(np.mean(between <= 2 * away[np.arange(n), nearest][:, None]))
