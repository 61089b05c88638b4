"""Sparse data at sizes where k x d does not fit: peak memory and seconds per iteration of ours."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from . import data
from .probes import _resident
from .race import Row
from .worker import Child, ContenderError

WIKI = (500_000, 2_400_000)  # the size of Wiki-500K
THIN = (100_500, 10**8)  # rows of up to four features, for a hundred thousand clusters
GB = 10**9


def zipf_text(n: int, d: int, seed: int = 0, dtype: str = "float32") -> Any:
    """Unit rows of 100 features or more, Zipf-distributed, half of them peculiar to a topic."""
    rng = np.random.default_rng(seed)
    spread = rng.integers(1, d, 1000) | 1  # a topic's own order of the features
    blocks = []
    for begin in range(0, n, 20_000):
        count = min(20_000, n - begin)
        rank = np.exp(rng.uniform(0, np.log(d), (count, 160))).astype(np.int64) % d
        topic = rng.integers(0, 1000, (count, 1))
        rank[:, 80:] = (rank[:, 80:] * spread[topic] + topic) % d
        rank.sort(axis=1)
        fresh = np.ones(rank.shape, dtype=bool)
        fresh[:, 1:] = rank[:, 1:] != rank[:, :-1]
        values = (rng.uniform(0.5, 1, rank.shape) * np.log(rank + 2)).astype(dtype)
        values[~fresh] = 0
        values /= np.sqrt(np.einsum("ij,ij->i", values, values))[:, np.newaxis]
        offsets = np.concatenate([[0], np.cumsum(fresh.sum(axis=1))])
        blocks.append(
            sp.csr_matrix((values[fresh], rank[fresh].astype(np.int32), offsets), shape=(count, d))
        )
    return sp.vstack(blocks, format="csr", dtype=dtype)


def thin_rows(n: int, d: int, seed: int = 0, dtype: str = "float32") -> Any:
    """Rows of up to four features, some of them empty, with 64-bit indices."""
    rng = np.random.default_rng(seed)
    offsets = np.concatenate([[0], np.cumsum(rng.integers(0, 5, n))])
    features = rng.integers(0, d, offsets[-1])
    X = sp.csr_matrix((rng.random(len(features)).astype(dtype), features, offsets), shape=(n, d))
    X.sum_duplicates()
    X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    return X


def scale(threads: int, quick: bool) -> Iterator[list[Row]]:
    """A thousand centres of a real set, a set of Wiki-500K's size, a hundred thousand centres."""
    yield [_row("20news_bigram", 1000, "float64", 4, 1.5 * GB, threads, quick)]
    yield [_row("wiki", 500, "float32", 3, 24 * GB, threads, quick)]
    yield [_row("thin", 100_000, "float32", 2, 24 * GB, threads, quick)]


GROWTH = (500, 1000, 2000, 4000, 8000, 16_000)
GROWTH_ALLOWED = 2.2  # times the seconds with half as many clusters, from 4,000 on


def growth(threads: int, quick: bool) -> Iterator[list[Row]]:
    """Seconds per early iteration of text by k, the first pass included."""
    before = None
    for k in GROWTH[:2] if quick else GROWTH:
        case = f"acl k={k} float32"
        if reason := data.missing("acl"):
            yield [Row(case, "-", None, "", note=f"skipped: {reason}")]
            continue
        child = Child(threads, _early, threads, k, quick)
        try:
            first, others = child.receive()
        except ContenderError as failure:
            yield [Row(case, "exactmeans", None, "", note=str(failure))]
            continue
        finally:
            child.close()
        mean = (first + sum(others)) / (1 + len(others))
        row = Row(case, "exactmeans", mean, "s per iteration")
        row.note = f"first {first:.2f} s, then " + ", ".join(f"{own:.2f}" for own in others)
        if before is not None and k > 2000:
            row.target = f"<= {GROWTH_ALLOWED}x"
            row.note += f"; {mean / before:.2f} times the one before"
            row.met = None if quick else mean <= GROWTH_ALLOWED * before
        before = mean
        yield [row]


def _early(pipe: Connection, threads: int, k: int, quick: bool) -> None:
    try:
        from exactmeans import KMeans

        X = data.load("acl", "float32", 3000 if quick else None)
        init = X[data.shuffled(X.shape[0], 42)[:k]]
        fit = KMeans(k, init=init, n_init=1, tol=0, max_iter=4, n_jobs=threads).fit(X)
        ends = [record.seconds for record in fit.history_]
        pipe.send((ends[0], [late - early for early, late in pairwise(ends)]))
    except Exception as error:
        pipe.send(ContenderError(f"{type(error).__name__}: {error}"))


def _row(
    name: str, k: int, dtype: str, iterations: int, allowed: float, threads: int, quick: bool
) -> Row:
    case = f"{name} k={k} {dtype}"
    if reason := data.missing(name):
        return Row(case, "-", None, "", note=f"skipped: {reason}")
    child = Child(threads, _fit, threads, name, k, dtype, iterations, quick)
    try:
        peak, seconds, shape = child.receive()
    except ContenderError as failure:
        return Row(case, "exactmeans", None, "", note=str(failure))
    finally:
        child.close()
    row = Row(case, "exactmeans", seconds, "s per iteration")
    row.target = f"<= {allowed / GB:g} GB in all"
    row.met = None if quick else peak <= allowed
    row.note = f"{shape[0]} x {shape[1]}, {shape[2]} nonzeros; peak {peak / GB:.2f} GB"
    return row


def _fit(
    pipe: Connection, threads: int, name: str, k: int, dtype: str, iterations: int, quick: bool
) -> None:
    try:
        from exactmeans import KMeans

        if name == "wiki":
            n, d = (5000, 100_000) if quick else WIKI
            X = zipf_text(n, d, dtype=dtype)
        elif name == "thin":
            n, d = (5000, 10**6) if quick else THIN
            k = min(k, n)
            X = thin_rows(n, d, dtype=dtype)
        else:
            X = data.load(name, dtype, 2000 if quick else None)
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak of making the data
        began = time.perf_counter()
        model = KMeans(
            k, init="random", n_init=1, tol=0, max_iter=iterations, random_state=0, n_jobs=threads
        ).fit(X)
        seconds = (time.perf_counter() - began) / model.n_iter_
        pipe.send((_resident("VmHWM"), seconds, (*X.shape, X.nnz)))
    except Exception as error:
        pipe.send(ContenderError(f"{type(error).__name__}: {error}"))
