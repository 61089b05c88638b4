"""What all kinds of clusters share: reductions, channels and operations of the engines."""

from __future__ import annotations

import pickle
import secrets
import socket
import struct
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray

from exactmeans import _core
from exactmeans.engine.cluster.channel import TOKEN_BYTES, Channel, Listener
from exactmeans.engine.cluster.reduce import reduced
from exactmeans.engine.cluster.requests import Centres, Response
from exactmeans.engine.cluster.seeding import ClusterSeeding
from exactmeans.engine.cluster.worker_engine import WorkerEngine, updated_centres
from exactmeans.engine.local.seeding import LocalSeeding
from exactmeans.engine.protocol import Seeding
from models import dense


def rows(n: int, d: int = 5) -> NDArray[np.float64]:
    return np.random.default_rng(n + d).normal(size=(n, d))


def texts(n: int = 900, d: int = 200) -> Any:
    return sp.random(n, d, 0.04, format="csr", random_state=1)


def test_channels_need_the_token() -> None:
    requests = []

    def answer(question: Any) -> bytes:
        requests.append(bytes(question))
        return bytes(question)[::-1]

    token = secrets.token_bytes(TOKEN_BYTES)
    listener = Listener("127.0.0.1", token)
    with ThreadPoolExecutor(1) as thread:
        served = thread.submit(listener.serve, answer)
        assert listener._server.gettimeout() is None  # the caller may be busy for hours
        stranger = Channel.to(listener.address, bytes(TOKEN_BYTES))
        with pytest.raises(ConnectionError):
            stranger.receive()
        stranger.close()
        channel = Channel.to(listener.address, token)
        for question in (b"abc", bytes(10**6)):
            channel.send(question)
            assert channel.receive() == question[::-1]
        channel.close()
        served.result(timeout=20)
    assert requests == [b"abc", bytes(10**6)]


def test_messages_do_not_wait_for_ever() -> None:
    """The other end stands still with an open connection, before or in the middle of a message."""
    asked: list[int] = []

    def check() -> None:
        asked.append(len(asked))
        if len(asked) == 3:
            raise ConnectionResetError("The worker is gone.")

    for call in (
        lambda channel: channel.send(bytes(10**8)),  # more than sockets hold
        lambda channel: channel.receive(),
    ):
        asked.clear()
        with socket.create_server(("127.0.0.1", 0)) as server:
            ours = socket.create_connection(server.getsockname())
            theirs, _ = server.accept()
        with ThreadPoolExecutor(1) as thread, theirs:
            theirs.sendall(struct.pack("<Q", 1000) + b"a few of them")
            channel = Channel(ours)
            channel.watch(0.01, check)
            with pytest.raises(ConnectionResetError, match="worker is gone"):
                thread.submit(call, channel).result(30)
            thread.submit(channel.close).result(30)
        assert len(asked) == 3


def test_a_wrong_length_takes_no_memory() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
    channel = Channel(ours)
    with theirs:
        theirs.sendall(struct.pack("<Q", 2**60) + b"a few of them")
    with pytest.raises(ConnectionResetError):
        channel.receive()
    channel.drop()


def test_both_seedings_offer_every_operation() -> None:
    """mypy checks that methods of seeding use no other."""
    assert Seeding.__abstractmethods__ >= {
        "draw",
        "greedy",
        "refresh",
        "add_deferred",
        "seed_weights",
    }
    for kind in (LocalSeeding, ClusterSeeding):
        assert issubclass(kind, Seeding)
        assert not kind.__abstractmethods__


def test_what_travels_arrives_as_it_was() -> None:
    grid = _core.Grid(np.array([1.0, 1e-200, 3e300]), 1000)
    grid.bins = 3
    again = pickle.loads(pickle.dumps(grid))
    assert (again.bins, again.exponent) == (grid.bins, grid.exponent)
    values = rows(300, 3) * np.array([0.1, 1e-201, 1e299])
    exported = []
    for own in (grid, again):
        sums = _core.Sums(1, 3, own, _core.Grid(np.ones(1), 300))
        labels = np.full(300, -1, np.int32)
        sums.relabel(_core.Rows.dense(values, None), None, labels, 1)
        exported.append(sums.bins)
    np.testing.assert_array_equal(exported[0], exported[1])

    total = _core.ExactSum()
    for value in (1e300, -1e-300, 3.0):
        total.add(value)
    twin = pickle.loads(pickle.dumps(total))
    twin.add(-1e300)
    assert twin.value == 3.0

    survey = _core.Rows.dense(np.array([[1.0, -4.0], [np.nan, 0.0]]), None).survey(1)
    again = pickle.loads(pickle.dumps(survey))
    assert (again.largest, again.first_bad_row, again.bad_is_nan) == (survey.largest, 1, True)
    np.testing.assert_array_equal(again.bounds, survey.bounds)


@pytest.mark.parametrize("sparse", [False, True])
def test_sums_of_many_workers_are_reduced_exactly(sparse: bool) -> None:
    X: Any = texts() if sparse else rows(900)
    k = 7
    labels = np.random.default_rng(0).integers(0, k - 1, 900).astype(np.int32)
    grid = _core.Grid(np.full(1 if sparse else X.shape[1], abs(X).max()), 900)
    grid.bins = 2
    blank = (k, X.shape[1], grid, _core.Grid(np.ones(1), 900), sparse)

    def summed(begin: int, end: int) -> Any:
        sums, part = _core.Sums(*blank), X[begin:end]
        block = (
            _core.Rows.csr(part.data, part.indices, part.indptr, X.shape[1], None)[0]
            if sparse
            else _core.Rows.dense(part, None)
        )
        sums.relabel(block, labels[begin:end], np.full(end - begin, -1, np.int32), 1)
        return blank, sums.export()

    whole = summed(0, 900)[1]
    responses = [Response(summed(b, b + 60)) for b in range(0, 900, 60)]
    what = WorkerEngine.add_all.__qualname__
    together = reduced(what, [reduced(what, responses[:7]), *responses[7:], Response(lost=(3,))])
    assert together.lost == (3,)
    for a, b in zip(together.value[1], whole, strict=True):
        np.testing.assert_array_equal(a, b)


def test_only_moved_centres_are_sent() -> None:
    old = rows(6, 4)
    new = old.copy()
    new[[1, 4]] += 1
    for form in (np.asarray, sp.csr_array):
        before, after = form(old), form(new)
        got = updated_centres(before, Centres(after[[1, 4]], np.array([1, 4])))
        np.testing.assert_array_equal(dense(got), new)
