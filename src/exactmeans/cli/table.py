"""DATA as rows, with what is known about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exactmeans.cli.groups import Reading
from exactmeans.data.sql import Keys
from exactmeans.database.connect import is_uri
from exactmeans.preparation import Preparation


@dataclass(frozen=True)
class Table:
    """Rows and what is known about them."""

    name: str
    X: Any
    preparation: Preparation
    kept: NDArray[np.intp] | None = None  # numbers of rows in DATA, if some were left out
    total: int = 0  # rows in DATA
    ids: list[str] | None = None  # of the rows in DATA
    id_name: str = "row"
    weights: NDArray[np.float64] | None = None  # of the rows that are kept
    texts: list[str] | None = None  # of the rows that are kept
    feature_names: Sequence[str] | NDArray[Any] | None = None
    keys: Keys | None = None  # of the rows of a query

    @property
    def kept_ids(self) -> list[str] | None:
        if self.ids is None or self.kept is None:
            return self.ids
        return [self.ids[i] for i in self.kept]

    @property
    def units(self) -> tuple[Any, Any] | None:
        """Offsets and factors of standardised columns."""
        own = self.preparation
        return None if own.offsets is None else (own.offsets, own.factors)


def name_of(reading: Reading) -> str:
    """What messages call DATA; a URI may hold a password."""
    if is_uri(reading.data):
        return "the query"
    return "standard input" if reading.data == "-" else Path(reading.data).name
