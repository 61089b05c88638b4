"""Checkpoints: the state of a running fit in a file, from which a killed fit resumes.

Labels, sums and bounds are not stored. An iteration depends, to the last bit, only on the centres
it begins with, and within size limits on their prices. So the file holds those and the records so
far, and a resumed fit repeats the last recorded iteration.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from exactmeans.callbacks import Iteration
from exactmeans.data.arrays import Double, Matrix, as_csr
from exactmeans.data.centres import check_centres
from exactmeans.engine.frame import Frame
from exactmeans.fit.loop import Run
from exactmeans.fit.policy import Choice
from exactmeans.io import model_file

INTERVAL = 5.0  # seconds between two files, at least
SHARE = 0.02  # of its time that a resumed fit may spend on its first file, before INTERVAL is over

# Parameters that do not change the result.
_FREE = {"algorithm", "callbacks", "checkpoint", "copy_x", "memory_limit", "n_jobs"}
_FREE |= {"sparse_centers", "verbose"}


@dataclass
class Resume:
    """The state from which a fit resumes."""

    run: int  # which of the n_init runs
    centres: Matrix  # that the last recorded iteration began with, or the seeds
    history: list[Iteration]  # of this run
    rng: dict[str, Any]  # state of the generator after seeding this run
    best: dict[str, Any] | None  # the best run before this one, without its labels
    stop: bool = False  # a callback stopped this run after its last record
    limited: Double | None = (
        None  # the state of the assignment within size limits, if there are any
    )


@dataclass
class Completed:
    """The result of a fit that had ended."""

    best: Run
    frame: Frame
    choice: Choice
    rng: dict[str, Any]


@dataclass
class Checkpoint:
    """The file of one fit."""

    path: Path
    params: dict[str, str]
    data: str
    found: Resume | Completed | None = None
    _resume: Resume = field(init=False)
    _written: float = -np.inf
    _opened: float = 0.0  # when, on the clock of time.monotonic
    _first_due: float = np.inf  # when a resumed fit writes its first file, at the latest

    @classmethod
    def open(cls, path: Any, params: Mapping[str, Any], data: str) -> Checkpoint:
        """The checkpoint at this path, which need not exist; refuses that of another fit."""
        if not isinstance(path, (str, os.PathLike)):
            raise ValueError(f"checkpoint must be None or a path, but it is {path!r}.")
        here = cls(Path(path), describe(params), data)
        if not here.path.parent.is_dir():
            raise ValueError(f"checkpoint must lie in a folder that exists, not {here.path}.")
        here._opened = time.monotonic()
        if here.path.exists():
            here.found = here._read()
        return here

    def _read(self) -> Resume | Completed:
        try:
            content, tensors = model_file.read(self.path, "checkpoint")
            content = {name: model_file.decode(v, tensors) for name, v in content.items()}
            params, data = content.pop("params"), content.pop("data")
            finished = content.pop("finished")
            found: Resume | Completed
            if finished:
                content["best"] = Run(**content["best"])
                found = Completed(**content)
            else:
                found = Resume(**content)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"checkpoint cannot be resumed: {error}") from None
        self._refuse_other(params, data)
        return found

    def check_centres(self, k: int, d: int, dtype: np.dtype[Any]) -> None:
        """Refuse centres that such a fit cannot have: the file may have been altered."""
        if isinstance(self.found, Completed):
            given = [self.found.best.centres]
        elif self.found is not None:
            best = self.found.best
            given = [self.found.centres, *([] if best is None else [best["centres"]])]
        else:
            given = []
        for centres in given:
            if getattr(centres, "dtype", None) != dtype:
                raise ValueError(f"checkpoint {self.path} must have centres of {dtype}.")
            sparse = bool(sp.issparse(centres))
            check_centres(centres, k, d, dtype, f"centres of checkpoint {self.path}", sparse=sparse)

    def _refuse_other(self, params: dict[str, str], data: str) -> None:
        for name in sorted(params.keys() | self.params.keys()):
            theirs, ours = params.get(name), self.params.get(name)
            if theirs != ours:
                raise ValueError(
                    f"checkpoint {self.path} is of a fit with {name}={theirs}, not {name}={ours}: "
                    "name another file, or remove it."
                )
        if data != self.data:
            raise ValueError(
                f"checkpoint {self.path} is of a fit of other data or sample_weight: name another "
                "file, or remove it."
            )

    def seeded(self, run: int, centres: Matrix, rng: dict[str, Any], best: Run | None) -> None:
        """A run has its initial centres."""
        known = None
        if best is not None:
            known = {name: value for name, value in vars(best).items() if name != "labels"}
        self._resume = Resume(run, centres, [], rng, known)
        self._write(finished=False, **vars(self._resume))

    def resume(self, state: Resume) -> None:
        """Resume. The first file is due early: a fit must progress however often it is killed."""
        self._resume = state
        self._written = time.monotonic()
        cost = self._written - self._opened  # reading takes about as long as writing
        self._first_due = self._opened + cost / SHARE

    @property
    def due(self) -> bool:
        return time.monotonic() >= min(self._written + INTERVAL, self._first_due)

    def keep(
        self,
        centres: Matrix,
        history: list[Iteration],
        *,
        stop: bool,
        limited: Double | None = None,
    ) -> None:
        """Write an iteration that began with these centres; `stop`: a callback stopped the run.

        `limited`: the state of the assignment within size limits that it began with.
        """
        self._resume.centres, self._resume.history, self._resume.stop = centres, history, stop
        self._resume.limited = limited
        self._write(finished=False, **vars(self._resume))

    def finish(self, best: Run, frame: Frame, choice: Choice, rng: dict[str, Any]) -> None:
        """Write the result, unless labels are on a cluster: then a fit repeats its last steps."""
        if not isinstance(best.labels, np.ndarray):
            return
        self._write(finished=True, best=vars(best), frame=frame, choice=choice, rng=rng)

    def _write(self, **content: Any) -> None:
        tensors: model_file.Tensors = {}
        content |= {"params": self.params, "data": self.data}
        encoded = {name: model_file.encode(v, tensors, name) for name, v in content.items()}
        model_file.write(self.path, "checkpoint", encoded, tensors)
        self._written, self._first_due = time.monotonic(), np.inf


def describe(params: Mapping[str, Any]) -> dict[str, str]:
    """Parameters that the result depends on, each as a short text."""
    return {name: _text(value) for name, value in params.items() if name not in _FREE}


def _text(value: Any) -> str:
    if sp.issparse(value):
        anything: Any = value
        csr = as_csr(anything, anything.dtype, "init")
        csr.eliminate_zeros()
        seen = hashlib.blake2b(csr.data.data, digest_size=8)
        seen.update(csr.indices.astype(np.int64).data)
        seen.update(csr.indptr.astype(np.int64).data)
        return f"<sparse {csr.shape} {seen.hexdigest()}>"
    if isinstance(value, (list, np.ndarray)):
        array = np.ascontiguousarray(value)
        return f"<array {array.shape} {hashlib.blake2b(array.data, digest_size=8).hexdigest()}>"
    if isinstance(value, np.random.RandomState):
        state: Any = value.get_state(legacy=False)
        seen = hashlib.blake2b(repr(state["state"]["key"].tolist()).encode(), digest_size=8)
        return f"<RandomState {seen.hexdigest()} at {state['state']['pos']}>"
    if isinstance(value, (np.dtype, type)):
        return repr(np.dtype(value).name)
    if callable(value):
        return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', value)}"
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return repr(value)
