"""The frame in which scores see rows and centres."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray

from exactmeans import _core
from exactmeans.data.arrays import Matrix
from exactmeans.data.centres import for_core, like_rows
from exactmeans.engine.protocol import Engine


@dataclass(frozen=True)
class Frame:
    """How scores see rows and centres; part of the model (docs/numerics.md)."""

    exponent: int
    shift: NDArray[Any] | None
    metric: str = "euclidean"
    packing: int = 0  # exponent of the products with unit vectors

    def shift_of(self, engine: Engine) -> NDArray[Any] | None:
        """The shift of this engine's rows, in their dtype: CSR rows are never shifted."""
        if self.shift is None or engine.sparse:
            return None
        return self.shift.astype(engine.dtype, copy=False)

    def centroids(self, centres: Matrix, engine: Engine) -> _core.Centroids:
        """The centres in the frame and layout that rows of this engine are compared in."""
        shift = self.shift_of(engine)
        columns = engine.packed_columns() if engine.sparse else None
        own = for_core(like_rows(centres, sparse=engine.sparse and engine.metric.summed))
        centroids = _core.Centroids.make(
            own, shift, self.exponent, columns, engine.n_jobs, self.metric, self.packing
        )
        if engine.scratch_limit is not None:
            centroids.set_scratch_limit(engine.scratch_limit)
        return centroids

    def scaled(self, exponent: int) -> Frame:
        """The frame on another scale."""
        if self.metric == "euclidean":
            return replace(self, exponent=exponent)
        return replace(self, packing=exponent)

    @property
    def cost_exponent(self) -> int:
        """The objective is computed on a scale of 4**cost_exponent times the data's own units."""
        return self.exponent if self.metric == "euclidean" else 0
