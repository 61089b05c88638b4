"""KMeans on Dask: the rows stay with the workers that hold them, the bits do not change."""

from __future__ import annotations

import contextlib
import numbers
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Self

import dask
import dask.array as da
import distributed
import numpy as np

from exactmeans import kmeans
from exactmeans.callbacks import Progress
from exactmeans.dask.lazy import LazyKMeans, joined, predict_block
from exactmeans.data.dask_blocks import DaskBlocks, DaskSource, client_of, is_lazy
from exactmeans.data.rows import refuse_few_rows
from exactmeans.data.stream import Stream
from exactmeans.data.weights import check_weights
from exactmeans.engine.cluster.engine import ClusterEngine, Labelling, RowOptions
from exactmeans.engine.dask.placement import Placement
from exactmeans.engine.dask.transport import DaskTransport
from exactmeans.engine.labels import FinalLabels
from exactmeans.engine.local.engine import LocalEngine
from exactmeans.engine.protocol import Engine
from exactmeans.estimators.base import FitParameters, with_defaults
from exactmeans.estimators.limits import refuse_limits
from exactmeans.parameters import check_n_jobs
from exactmeans.seeding.init import check_without_rows

__all__ = ["KMeans"]


class KMeans(LazyKMeans, kmeans.KMeans):
    """`exactmeans.KMeans` for Dask collections, on a cluster or on the threads of this process.

    Parameters, attributes and methods are those of `exactmeans.KMeans`. From the same initial
    centres, and for the same `random_state`, so are the bits of labels, centres and `n_iter_`, for
    any chunks and any number of workers. What differs:

    - `init` is 'k-means||' by default, which needs a few passes over the rows; 'k-means++' needs
      two per cluster. A callable is not possible.
    - `n_jobs` counts threads of each worker; None means as many as Dask gave it.
    - `memory_limit` is that of each worker.
    - `labels_` is a Dask array, with a chunk for each block of X. `predict` and `transform` of
      Dask collections are lazy, `score` computes.

    X may be a Dask array (its chunks dense or SciPy CSR, their lengths known or not), a Dask
    dataframe, or a list of delayed objects or futures, one per block of rows. Weights come in
    blocks, too, or as one array.

    Examples
    --------
    >>> import dask.array as da
    >>> from exactmeans.dask import KMeans
    >>> X = da.from_array([[1., 2], [1, 4], [1, 0], [10, 2], [10, 4], [10, 0]], chunks=(2, 2))
    >>> kmeans = KMeans(n_clusters=2, random_state=0).fit(X)
    >>> kmeans.labels_.compute()
    array([1, 1, 1, 0, 0, 0], dtype=int32)
    """

    if not TYPE_CHECKING:  # type checkers see the same parameters without it
        __init__ = with_defaults(kmeans.KMeans.__init__, init="k-means||")

    _saved_as = "KMeans"  # the class that exactmeans.load makes

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Cluster the rows of X.

        Parameters
        ----------
        X : Dask array or dataframe, or list of delayed objects or futures
            One block of rows per chunk, partition or item. Blocks are computed once, on the
            workers, and stay there during the fit.
        y : Ignored
        sample_weight : Dask array or series, list of delayed, array-like or float, default=None
            How much each row counts; not used by a given `init`.

        Returns
        -------
        self
        """
        super().fit(X, sample_weight=sample_weight)
        return self

    # -- parts of fit --------------------------------------------------------------------------

    def _fit(self, X: Any, y: Any, sample_weight: Any, progress: Progress) -> None:
        with _aside() if is_lazy(X) else contextlib.nullcontext():
            super()._fit(X, y, sample_weight, progress)

    def _open_engine(self, X: Any, sample_weight: Any, parameters: FitParameters) -> Engine:
        if not is_lazy(X):
            return super()._open_engine(X, sample_weight, parameters)
        refuse_limits(self, "Dask collections", "exactmeans.KMeans keeps limits, on files too")
        parameters.metric.refuse_blocks()
        check_without_rows(self, in_blocks=True)
        if self.checkpoint is not None:
            raise ValueError("checkpoint must be None for Dask collections.")
        blocks = DaskBlocks.of(self, X, reset=True)
        check_n_jobs(self.n_jobs)
        client = client_of(X)
        engine: LocalEngine | ClusterEngine
        if client is None:
            engine = self._engine_in_process(blocks, sample_weight, parameters)
        else:
            engine = self._engine_on_cluster(client, blocks, sample_weight, parameters)
        with contextlib.ExitStack() as on_error:
            on_error.callback(engine.close)
            refuse_few_rows(engine.n, parameters.k)
            on_error.pop_all()
        self.n_features_in_ = engine.d
        return engine

    def _engine_on_cluster(
        self, client: Any, blocks: DaskBlocks, sample_weight: Any, parameters: FitParameters
    ) -> _EngineOnCluster:
        """Blocks stay on the workers of a cluster."""
        weights = blocks.weights(sample_weight)
        # Arrays are sent to the engines with their first request.
        sent = weights is not None and isinstance(weights[0], np.ndarray)
        own = None if sent else weights
        placement = Placement(client, blocks.pieces, own, parameters.dtype)
        options = RowOptions(
            parameters.metric,
            self.zero_rows,
            weighted=weights is not None,
            scratch_limit=parameters.scratch_limit,
            feature_names=getattr(self, "feature_names_in_", None),
        )
        transport = DaskTransport(client, placement, self.n_jobs)
        return _EngineOnCluster(client, transport, options, weights if sent else None)

    def _engine_in_process(
        self, blocks: DaskBlocks, sample_weight: Any, parameters: FitParameters
    ) -> _EngineInProcess:
        """Without a cluster, blocks are computed when they are needed, and kept while they fit."""
        source = DaskSource(blocks)
        # Names were checked with the collection: its blocks are arrays, which have none.
        nameless = kmeans.KMeans()
        stream = Stream(nameless, source, reset=True, dtype=parameters.dtype)
        weights = blocks.weights(sample_weight)
        if weights is not None and not isinstance(sample_weight, numbers.Real):
            sample_weight = np.concatenate(dask.compute(*weights))
        return _EngineInProcess(
            source.lengths,
            stream,
            check_weights(sample_weight, stream.n),
            check_n_jobs(self.n_jobs),
            parameters.metric,
            self.zero_rows,
            scratch_limit=parameters.scratch_limit,
            feature_names=getattr(self, "feature_names_in_", None),
        )

    def _labels_for_users(self, labels: FinalLabels, engine: Engine) -> Any:
        """A Dask array with a chunk for each block of X."""
        if isinstance(labels, Labelling):
            assert isinstance(engine, _EngineOnCluster)
            return engine.labels(self.bare())
        if isinstance(engine, _EngineInProcess):
            return da.from_array(labels, chunks=(tuple(engine.lengths),))
        return labels


class _EngineInProcess(LocalEngine):
    """Blocks of a Dask collection in this process; `lengths` are those of all its blocks."""

    def __init__(self, lengths: list[int], *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.lengths = lengths


class _EngineOnCluster(ClusterEngine):
    """Blocks of a Dask collection on the workers of a cluster."""

    def __init__(
        self, client: Any, transport: DaskTransport, options: RowOptions, weights: Any
    ) -> None:
        self._client, self._placement = client, transport.placement
        places = self._placement.places
        super().__init__(transport, self._placement.layout, places, options, weights)

    def labels(self, model: Any) -> Any:
        """The labels of all rows by a fitted model, computed where the rows are."""
        shared = self._client.submit(_identity, model, pure=False)
        pieces: list[Any] = [np.empty(0, np.int32)] * len(self.layout.infos)
        for b, block in self._placement.blocks.items():
            pieces[b] = self._client.submit(predict_block, block, shared, pure=False)
        return joined(pieces, self.layout.lengths, (), np.int32)


def _identity(thing: Any) -> Any:
    """As a task's result, workers share the object and the scheduler can recompute it."""
    return thing


@contextlib.contextmanager
def _aside() -> Iterator[None]:
    """A task that waits for other tasks leaves its thread to them meanwhile."""
    try:
        distributed.get_worker()
    except ValueError:  # not in a task
        yield
        return
    with contextlib.ExitStack() as aside:
        with contextlib.suppress(KeyError):  # it left its thread before: distributed < 2025.5
            aside.enter_context(distributed.worker_client())
        yield
