"""The fit that runs over an engine of a cluster: in task 0 of a barrier stage, or on the driver."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import scipy.sparse as sp

from exactmeans import kmeans
from exactmeans.callbacks import Iteration
from exactmeans.data.rows import refuse_few_rows
from exactmeans.engine.cluster.engine import ClusterEngine
from exactmeans.engine.labels import FinalLabels
from exactmeans.engine.protocol import Engine
from exactmeans.estimators.base import FitParameters
from exactmeans.fit.loop import CALLBACK_STOPPED
from exactmeans.io import model_file
from exactmeans.io.checkpoint import Checkpoint


class ClusterKMeans(kmeans.KMeans):
    """KMeans over an engine that exists already; its labels stay on the workers."""

    _saved_as = "KMeans"
    _not_saved = ("labels_", "_over", "_sizes")

    _over: ClusterEngine
    _sizes: Any

    def fit_over(self, engine: ClusterEngine) -> ClusterKMeans:
        self._over = engine
        self.fit(None)
        return self

    def _open_engine(self, X: Any, sample_weight: Any, parameters: FitParameters) -> Engine:
        parameters.metric.refuse_blocks()
        refuse_few_rows(self._over.n, parameters.k)
        self.n_features_in_ = self._over.d
        return self._over

    def _open_checkpoint(self, engine: Engine) -> Checkpoint | None:
        try:
            return super()._open_checkpoint(engine)
        except ValueError:  # of rows in another order, as Spark may give them after a failure
            Path(str(self.checkpoint)).unlink(missing_ok=True)
            return super()._open_checkpoint(engine)

    def _labels_for_users(self, labels: FinalLabels, engine: Engine) -> Any:
        self._sizes = self._over.sizes()
        return None


@dataclass(frozen=True)
class FitLoop:
    """Fits; gives back the bytes of a model file, sizes of clusters, and whether rows are CSR."""

    parameters: dict[str, Any]  # of exactmeans.KMeans; a given init may be CSR for any rows
    tol: float  # as MLlib has it: no centre moves farther
    name: str  # of this fit, the same if Spark runs it again
    folder: str | None = None  # for the checkpoint; None: that of temporary files
    resumes: bool = True  # whether Spark may run it again; otherwise it needs no checkpoint

    def check_folder(self) -> None:
        """On the machine that runs the loop."""
        if self.folder is not None and not os.path.isdir(self.folder):
            raise ValueError(
                f"checkpointDir must be a folder that exists, but {self.folder!r} is none."
            )

    def __call__(self, engine: ClusterEngine) -> tuple[Any, ...]:
        self.check_folder()
        where = Path(self.folder or tempfile.gettempdir()) / f"exactmeans-{self.name}.checkpoint"

        def moved_little(record: Iteration) -> bool:
            moved = engine.largest_movement()
            # Of unit vectors, 1 - cos is half the squared distance.
            return (moved * moved / 2 if engine.metric.directed else moved) <= self.tol

        parameters = dict(self.parameters)
        init = parameters["init"]
        if not engine.sparse and sp.issparse(init):
            given: Any = init
            parameters["init"] = given.toarray()
        model = ClusterKMeans(
            **parameters,
            n_init=1,
            tol=0.0,
            sparse_centers=engine.sparse,
            callbacks=moved_little,
            checkpoint=where if self.resumes else None,
        )
        model.fit_over(engine)
        if model._stopped == CALLBACK_STOPPED:  # by the only callback
            model._stopped = "no centre moved farther than tol"
        model.checkpoint = None
        where.unlink(missing_ok=True)
        return file_of(model), model._sizes, engine.sparse


def file_of(model: kmeans.KMeans) -> bytes:
    """A fitted model as the bytes of the file that `save` writes."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model")
        model_file.save(model, path, without=getattr(model, "_not_saved", ()))
        return Path(path).read_bytes()


def model_from(content: bytes) -> kmeans.KMeans:
    """The model of such bytes."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model")
        Path(path).write_bytes(content)
        return model_file.load(path)
