"""Blocks of a Dask collection: computed, checked, and brought to the workers that serve them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import dask
import distributed
import numpy as np
from dask.delayed import Delayed
from dask.utils import parse_timedelta
from sklearn.base import BaseEstimator

from exactmeans.data.arrays import Matrix, as_matrix
from exactmeans.engine.cluster.layout import BlockInfo, Layout

#: Setting of Dask: how long a fit waits for a scheduler or for workers that are gone. TCP takes
#: 30 s to notice that a machine vanished, so by default a fit ends within a minute.
TIMEOUT_SETTING = "exactmeans.recovery-timeout"
_TIMEOUT = "25s"


class _Checked(NamedTuple):
    info: BlockInfo
    usable: bool  # as it is, without a copy


def _check(chunk: Any, dtype: np.dtype[Any] | None) -> _Checked:
    """Refuse what is no block of rows."""
    if getattr(chunk, "shape", (1,))[0] == 0:
        columns = chunk.shape[1] if len(chunk.shape) > 1 else 0
        return _Checked(BlockInfo(0, columns, None, False, 0), True)
    block = as_matrix(BaseEstimator(), chunk, reset=True, dtype=dtype)
    return _Checked(BlockInfo.of(block), block is chunk)


def _convert(chunk: Any, dtype: np.dtype[Any]) -> Matrix:
    return as_matrix(BaseEstimator(), chunk, reset=True, dtype=dtype)


def _same(chunk: Any) -> Any:
    return chunk


class BoundedWait:
    """Waits for futures and workers; raises RuntimeError if the cluster is gone for good."""

    def __init__(self, client: Any) -> None:
        self._client, self._had_workers = client, False

    def wait(self, futures: Sequence[Any]) -> None:
        """Wait until all are done; raises what a task raised."""
        while futures:
            with noticing_loss(self._client):
                done, futures = _waited(futures)
                for future in done:
                    if future.status == "error":
                        future.result()
            if futures:
                self.wait_for_workers()

    def wait_for_workers(self) -> None:
        """Wait until there is a worker; if there was one before, only for a while."""
        end = time.monotonic() + recovery_timeout()
        while True:
            refuse_gone(self._client)
            with noticing_loss(self._client):
                if self._client.nthreads():
                    self._had_workers = True
                    return
            if self._had_workers and time.monotonic() > end:
                raise RuntimeError(
                    "The Dask cluster has lost all its workers, and no other came within "
                    f"{recovery_timeout():.0f} seconds."
                )
            time.sleep(0.2)

    def results(self, items: list[Any]) -> list[Any]:
        """Compute delayed objects and futures, and fetch the results to this process."""
        if not self._had_workers:
            self.wait_for_workers()
        futures = self._client.compute(items)
        self.wait(futures)
        with noticing_loss(self._client):
            return list(self._client.gather(futures))


class Placement(BoundedWait):
    """The blocks of a fit as futures, and which worker holds which of them."""

    def __init__(
        self, client: Any, pieces: list[Any], weights: list[Any] | None, dtype: np.dtype[Any] | None
    ):
        """`pieces`: delayed objects or futures of the blocks of rows; `weights`: the same."""
        super().__init__(client)
        self._pieces, self._weight_pieces = pieces, weights
        self._made: list[Any] = []  # futures to release; not those of the user
        #: futures of the blocks as engines read them, and of their weights
        self.blocks: dict[int, Any] = {}
        self.weights: dict[int, Any] = {}
        try:
            self._place(dtype)
        except BaseException:  # Ctrl-C too
            self.close()
            raise

    def _place(self, dtype: np.dtype[Any] | None) -> None:
        client = self._client
        self._chunks = self._futures(self._pieces)
        checks = client.map(_check, self._chunks, dtype=dtype, pure=False)
        self._made += checks
        self.wait(checks)
        with noticing_loss(client):
            checked: list[_Checked] = client.gather(checks)
        self.layout = Layout([one.info for one in checked])
        self.layout.check()
        self._dtype = self.layout.dtype
        self._usable = [
            one.usable and (not one.info.rows or one.info.dtype == self._dtype) for one in checked
        ]
        self.places = self._assign_workers()
        for number in self.places:
            self.bring(number)
        self._chunks = []
        self._release(keep={future.key for future in self.blocks.values()})

    def _assign_workers(self) -> dict[int, list[int]]:
        full = [b for b, info in enumerate(self.layout.infos) if info.rows]
        groups = self._grouped([self._chunks[b] for b in full])
        self.workers = {number: worker for number, (worker, _) in enumerate(groups)}
        return {number: [full[at] for at in own] for number, (_, own) in enumerate(groups)}

    def _grouped(self, chunks: list[Any]) -> list[tuple[str, list[int]]]:
        while True:
            self.wait_for_workers()
            with noticing_loss(self._client):
                groups = by_worker(self._client, chunks)
            if groups:
                return groups

    def bring(self, number: int) -> None:
        """Bring the blocks of an engine to its worker, unless they are there."""
        own, worker = self.places[number], self.workers[number]
        chunks = [self.blocks.get(b) or self._chunks[b] for b in own]
        holders = self._client.who_has(chunks)
        for b, chunk in zip(own, chunks, strict=True):
            if b in self.blocks or self._usable[b]:
                here = worker in holders.get(chunk.key, ())
                self.blocks[b] = chunk if here else self._submit(_same, worker, chunk)
            else:
                self.blocks[b] = self._submit(_convert, worker, chunk, self._dtype)
        if self._weight_pieces is not None:
            pieces = self._futures([self._weight_pieces[b] for b in own])
            for b, piece in zip(own, pieces, strict=True):
                self.weights[b] = self._submit(_same, worker, piece)
        self.wait([self.blocks[b] for b in own])
        self.wait([self.weights[b] for b in own if b in self.weights])

    def _submit(self, work: Any, worker: str, *arguments: Any) -> Any:
        future = self._client.submit(
            work, *arguments, workers=[worker], allow_other_workers=True, pure=False
        )
        self._made.append(future)
        return future

    def rescue(self, number: int) -> None:
        """Find a worker for the blocks of an engine that was lost, and bring them there."""
        self.wait_for_workers()
        own = self.places[number]
        self.wait([self.blocks[b] for b in own])  # Dask computes again what it can
        missing = [b for b in own if self.blocks[b].status == "cancelled"]
        chunks = self._futures([self._pieces[b] for b in missing])
        if any(chunk.status == "cancelled" for chunk in chunks):
            raise RuntimeError(
                "X has blocks that died with their worker, and no task makes them again."
            )
        for b, chunk in zip(missing, chunks, strict=True):
            self.blocks[b] = self._client.submit(_convert, chunk, self._dtype, pure=False)
            self._made.append(self.blocks[b])
        self.wait([self.blocks[b] for b in own])
        groups = self._grouped([self.blocks[b] for b in own])
        self.workers[number] = max(groups, key=lambda group: len(group[1]))[0]
        self.bring(number)

    def _futures(self, pieces: Sequence[Any]) -> list[Any]:
        """Compute delayed pieces; futures are returned as they are."""
        computed = self._client.compute([p for p in pieces if isinstance(p, Delayed)])
        self._made += computed
        lazy = iter(computed)
        return [next(lazy) if isinstance(piece, Delayed) else piece for piece in pieces]

    def _release(self, keep: set[Any]) -> None:
        """Release futures, at once even if somebody holds on to them (a traceback may)."""
        keep |= {future.key for future in self.weights.values()}
        for future in self._made:
            if future.key not in keep:
                future.release()
        self._made = [future for future in self._made if future.key in keep]

    def close(self) -> None:
        """Release the blocks; futures of the user stay."""
        self.weights.clear()
        self._release(keep=set())
        self.blocks.clear()


def _waited(futures: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Futures that are done within a second, and the others."""
    with contextlib.suppress(TimeoutError, distributed.CancelledError):
        distributed.wait(futures, timeout=1.0)
    done = [future for future in futures if future.done()]
    return done, [future for future in futures if not future.done()]


def recovery_timeout() -> float:
    return float(parse_timedelta(dask.config.get(TIMEOUT_SETTING, _TIMEOUT)))


def refuse_gone(client: Any) -> None:
    """Raise RuntimeError if the client has lost the scheduler for good."""
    end = time.monotonic() + recovery_timeout()
    while client.status != "running":
        if client.status in ("closed", "closing") or time.monotonic() > end:
            raise RuntimeError("The Dask scheduler is gone, and with it the fit.")
        time.sleep(0.2)


@contextlib.contextmanager
def noticing_loss(client: Any) -> Iterator[None]:
    """Turn what Dask raises without a scheduler into one sentence."""
    try:
        yield
    except (OSError, RuntimeError, distributed.CancelledError):
        refuse_gone(client)
        raise


def by_worker(client: Any, chunks: list[Any]) -> list[tuple[str, list[int]]]:
    """Assign blocks to the workers that hold them, unless one has far more than its share."""
    threads: dict[str, int] = client.nthreads()
    holders: dict[Any, Any] = client.who_has(chunks)
    if not threads:  # all workers died
        return []
    share = len(chunks) / sum(threads.values())
    groups: dict[str, list[int]] = {}
    for place, chunk in enumerate(chunks):

        def load(worker: str) -> tuple[float, str]:
            return len(groups.get(worker, ())) / threads[worker], worker

        here = [worker for worker in holders.get(chunk.key, ()) if worker in threads]
        best = min(here or threads, key=load)
        if load(best)[0] >= 1.25 * share + 1 / threads[best]:
            best = min(threads, key=load)
        groups.setdefault(best, []).append(place)
    return sorted(groups.items())
