"""What a fit tells the outside while it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["Callback", "Iteration"]


class Iteration(NamedTuple):
    """One iteration of a fit, as found in `history_` and handed to callbacks."""

    run: int  # which of the n_init runs, from 0
    iteration: int  # from 1
    inertia: float  # of the new labels at the centres they were found with
    shift: float  # sum of the squared distances that the centres moved
    changed: int  # rows that got another label
    distances: int  # row-centre distances computed
    skipped: int  # rows whose label was certain without any distance
    algorithm: str  # that labelled the rows
    seconds: float  # since the run began


#: Called with each `Iteration`; returning True stops the fit after that iteration.
Callback = Callable[[Iteration], Any]


def show(record: Iteration) -> None:
    """What `verbose=1` prints."""
    print(
        f"run {record.run} iteration {record.iteration}: inertia {record.inertia:.6g}, "
        f"{record.changed} rows changed, {record.seconds:.2f} s",
        flush=True,
    )
