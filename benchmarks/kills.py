"""Fits on Dask while workers are killed at random times; every fit must have the local bits.

    python -m benchmarks.kills 100

A thread kills a random worker after a random pause, again and again, whatever the fits are doing
then. Nannies start new workers. A fit of more than 90 s ends the program, and shows where it was.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import os
import signal
import threading
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

K = 12
WORKERS = 3
OPTIONS: dict[str, Any] = {"max_iter": 12, "tol": 0, "random_state": 5, "init": "k-means||"}
STALLED = 12.0  # seconds without a worker to kill, after which a new cluster is started
LONGEST = 90.0  # seconds of a fit, after which it counts as hanging: shows where, and ends


@dataclass
class Outcome:
    """Of fits during which workers were killed."""

    kills: int = 0
    during_fits: int = 0  # kills while a fit ran
    fits: int = 0
    wrong: int = 0  # fits with other bits than the local one
    failed: int = 0  # fits that raised an exception


class Killer(threading.Thread):
    """Kills workers of a cluster on this machine until `most` are dead, or nannies give up."""

    def __init__(self, cluster: Any, most: int, rng: np.random.Generator) -> None:
        super().__init__(daemon=True)
        self._cluster, self._most, self._rng = cluster, most, rng
        self.kills = self.during_fits = 0
        self.fitting = False

    def run(self) -> None:
        killed = time.monotonic()
        while self.kills < self._most and time.monotonic() < killed + STALLED:
            time.sleep(self._rng.uniform(0.2, 1.8))
            alive = set(self._cluster.scheduler.workers)
            nannies = list(self._cluster.workers.values())
            pids = [nanny.pid for nanny in nannies if nanny.pid and nanny.worker_address in alive]
            # One worker is left, and one that is still starting is no target: otherwise none might
            # ever be there where starting takes longer than the pauses.
            if len(pids) < 2:
                continue
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(self._rng.choice(pids)), signal.SIGKILL)
                self.kills += 1
                self.during_fits += self.fitting
                killed = time.monotonic()


def run(kills: int, seed: int = 0) -> Outcome:
    """Fit until so many workers were killed, on one cluster after the other.

    A nanny whose new worker starts too slowly gives up, so a cluster runs out of workers.
    """
    import dask
    import distributed

    import exactmeans

    X = np.random.default_rng(seed).normal(size=(24_000, 10))
    X += 3 * np.random.default_rng(seed + 1).integers(0, 3, size=(len(X), 1))
    local = exactmeans.KMeans(K, **OPTIONS).fit(X)
    outcome, rng = Outcome(), np.random.default_rng(seed)
    settings = {"distributed.scheduler.allowed-failures": 1000}  # kills of one task's worker
    while outcome.kills < kills:
        with (
            dask.config.set(settings),
            distributed.LocalCluster(
                n_workers=WORKERS, threads_per_worker=1, host="127.0.0.1", dashboard_address=":0"
            ) as cluster,
            distributed.Client(cluster),
        ):
            killer = Killer(cluster, kills - outcome.kills, rng)
            killer.start()
            while killer.is_alive():
                _fit(X, local, killer, outcome)
            outcome.kills += killer.kills
            outcome.during_fits += killer.during_fits
        print(outcome, flush=True)
    return outcome


def _fit(X: Any, local: Any, killer: Killer, outcome: Outcome) -> None:
    import dask.array as da

    from exactmeans.dask import KMeans

    chunks = da.from_array(X, chunks=(2_000, X.shape[1]))
    faulthandler.dump_traceback_later(LONGEST, exit=True)
    killer.fitting = True
    try:
        model = KMeans(K, **OPTIONS, callbacks=lambda record: time.sleep(0.1)).fit(chunks)
        killer.fitting = False
        same = (
            np.array_equal(model.cluster_centers_, local.cluster_centers_)
            and np.array_equal(model.labels_.compute(), local.labels_)
            and (model.inertia_, model.n_iter_) == (local.inertia_, local.n_iter_)
        )
        outcome.wrong += not same
    except Exception as error:
        outcome.failed += 1
        print(f"fit {outcome.fits}: {type(error).__name__}: {error}", flush=True)
    killer.fitting = False
    faulthandler.cancel_dump_traceback_later()
    outcome.fits += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kills", type=int, nargs="?", default=100)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    began = time.perf_counter()
    print(run(given.kills, given.seed), f"{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
