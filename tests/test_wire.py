"""Messages of clusters: what is sent arrives as it was, and nothing else is accepted."""

from __future__ import annotations

import contextlib
import json
import math
import pickle
import struct
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from exactmeans import _core
from exactmeans.data.rows import Lengths
from exactmeans.engine.cluster import wire
from exactmeans.engine.cluster.reduce import OPERATIONS
from exactmeans.engine.cluster.requests import Centres, Failure, Opening, Request, Response
from exactmeans.engine.cluster.worker_engine import InMemory, WorkerEngine
from exactmeans.engine.frame import Frame
from exactmeans.engine.protocol import AssignStats, FarRow
from exactmeans.engine.seeding import BlockTotal, Found, Refreshed

pytestmark = pytest.mark.core


def again(value: Any) -> Any:
    return wire.decode(wire.encode(value))


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        2**62,
        0.1,
        -0.0,
        math.inf,
        5e-324,
        "ü",
        b"\0\xff",
        [],
        [1, (2.5, None)],
        {3: (1.0, 2.0), 4: (0.0, 0.0)},
        AssignStats(1, 2, 3),
        FarRow(0.5, 7, 1, b"abc"),
        [BlockTotal(3, (1.0, 1e-20)), Found(5, [1, 2]), Refreshed(BlockTotal(0, (1.0, 0.0)), 2, 1)],
        Lengths(1.0, 2, 3, 4),
        Frame(3, None, "cosine", 2),
        Failure("builtins", "ValueError", "no", "Traceback"),
        Response((1, 2), (3,)),
        Request("WorkerEngine.survey", (False,), 1, 2),
    ],
    ids=repr,
)
def test_values_arrive_as_they_were(value: Any) -> None:
    got = again(value)
    assert got == value
    assert type(got) is type(value)
    assert math.copysign(1, got) == math.copysign(1, value) if value == 0.0 else True


def test_nan_arrives() -> None:
    assert math.isnan(again(math.nan))


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "int32", "int64", "uint32", "float32", "float64"]
)
@pytest.mark.parametrize("shape", [(0,), (5,), (3, 4), (2, 0), (2, 3, 2), ()])
def test_arrays(dtype: str, shape: tuple[int, ...]) -> None:
    array = np.arange(math.prod(shape)).reshape(shape).astype(dtype)
    got = again(("x", array, "y"))[1]
    np.testing.assert_array_equal(got, array)
    assert (got.dtype, got.shape) == (array.dtype, array.shape)
    assert got.flags.writeable
    assert got.flags.aligned


def test_arrays_that_are_not_contiguous() -> None:
    array = np.arange(24.0).reshape(4, 6)[::2, 1::2]
    np.testing.assert_array_equal(again(array), array)
    np.testing.assert_array_equal(again(array.T), array.T)


def test_records_with_arrays() -> None:
    rows: Any = sp.random(5, 9, 0.3, format="csr", random_state=0)
    sent = again(Centres(rows, np.array([1, 4]), (np.arange(5.0), 3)))
    np.testing.assert_array_equal(sent.rows.toarray(), rows.toarray())
    np.testing.assert_array_equal(sent.moved, [1, 4])
    assert sent.norms2[1] == 3
    opening = Opening("float32", "cosine", [0, 2], np.array([0, 5, 5, 9]), [np.ones(5)], 10**9)
    got = again(opening)
    assert (got.dtype, got.metric, got.places, got.scratch_limit) == (
        "float32",
        "cosine",
        [0, 2],
        10**9,
    )
    np.testing.assert_array_equal(got.begins, opening.begins)


def test_objects_of_the_core() -> None:
    grid = _core.Grid(np.array([1.0, 1e-200, 3e300]), 1000)
    grid.bins = 3
    got = again(grid)
    assert (got.bins, got.exponent) == (grid.bins, grid.exponent)
    total = _core.ExactSum()
    for value in (1e300, -1e-300, 3.0):
        total.add(value)
    twin = again(total)
    twin.add(-1e300)
    assert twin.value == 3.0
    survey = _core.Rows.dense(np.array([[1.0, -4.0], [np.nan, 0.0]]), None).survey(1)
    got = again(survey)
    assert (got.largest, got.first_bad_row, got.bad_is_nan) == (survey.largest, 1, True)


class Harmful:
    def __reduce__(self) -> Any:
        return print, ("never",)


@pytest.mark.parametrize(
    "value", [object(), Harmful(), {1, 2}, np.array([Harmful()]), np.array(["a"]), 1j], ids=range(6)
)
def test_other_values_are_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="Messages cannot hold"):
        wire.encode(value)


def message(header: Any, body: bytes = b"", version: int = wire.VERSION) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<4sIQ", b"EXMW", version, len(text)) + text + body


@pytest.mark.parametrize(
    ("given", "error", "match"),
    [
        (b"", ValueError, "no message"),
        (pickle.dumps(1) + bytes(64), ValueError, "no message"),
        (message(1, version=wire.VERSION + 1), RuntimeError, "one version of exactmeans"),
        (message(["Harmful", 1]), ValueError, "cannot hold a 'Harmful'"),
        (message(["array", "|O", 1], bytes(16)), ValueError, "cannot hold arrays"),
        (message(["array", "<f8", 1000], bytes(16)), ValueError, "shorter"),
        (message(["array", "<f8", -1], bytes(16)), ValueError, "cannot hold arrays"),
        (message(["bytes", 99]), ValueError, "shorter"),
        (message([1, 2])[:20], ValueError, "shorter"),
    ],
    ids=range(9),
)
def test_other_messages_are_refused(given: bytes, error: Any, match: str) -> None:
    with pytest.raises(error, match=match):
        wire.decode(given)


@pytest.mark.parametrize(
    ("header", "body"),
    [
        ([], b""),
        ({"a": 1}, b""),
        (["bytes"], b""),
        (["bytes", -5], bytes(16)),
        (["array", ",i4", 0], b""),  # NumPy parses it as a Python literal: a SyntaxError
        (["array", "f8,f8", 0], b""),
        (["array", {"names": ["a"], "formats": ["f8"]}, 1], bytes(8)),
        (["array", "<f8", 2**62, 2**62], b""),
        (["array", "<f8", 0.5], b""),
        (["dict", ["list"], 1], b""),
        (["AssignStats", 1], b""),
        (["ExactSum", ["list", 1]], b""),
        (["Grid", ["tuple", ["list", 1.0], 7, 10**9]], b""),  # 8 GB of bins
        (["csr", 10**12, 3, ["array", "<f8", 0], ["array", "<i4", 0], ["array", "<i4", 1]], b""),
        (  # column 7 of 3
            ["csr", 1, 3, ["array", "<f8", 1], ["array", "<i8", 1], ["array", "<i8", 2]],
            np.array([0, 7, 0, 1]).tobytes(),
        ),
    ],
    ids=range(15),
)
def test_damaged_messages_are_refused(header: Any, body: bytes) -> None:
    with pytest.raises(ValueError, match="message of exactmeans is damaged"):
        wire.decode(message(header, body))


def test_deep_messages_are_refused() -> None:
    text = b"[" * 100_000
    with pytest.raises(ValueError, match="damaged"):
        wire.decode(struct.pack("<4sIQ", b"EXMW", wire.VERSION, len(text)) + text)


def test_random_damage_gives_one_kind_of_error() -> None:
    random = np.random.default_rng(0)
    rows: Any = sp.random(5, 9, 0.3, format="csr", random_state=0)
    grid, total = _core.Grid(np.array([1.0, 2.0, 3.0]), 100), _core.ExactSum()
    survey = _core.Rows.dense(np.ones((5, 3)), None).survey(1)
    sent = [
        wire.encode(value)
        for value in (
            (Request("WorkerEngine.survey", (False,), 1, 2), None),
            Centres(rows, np.array([1, 4]), (np.arange(5.0), 3)),
            Opening("float32", "cosine", [0, 2], np.array([0, 5, 9]), [np.ones(5)], 10**9),
            [grid, total, survey],
            Response((1, b"abc", np.ones((3, 4), np.float32)), (3,)),
        )
    ]
    for _ in range(3000):
        damaged = bytearray(sent[random.integers(len(sent))])
        for at in random.integers(8, len(damaged), size=random.integers(1, 4)):  # not the version
            damaged[at] ^= 1 << random.integers(8)
        whole = random.integers(4) > 0
        end = len(damaged) if whole else random.integers(len(damaged))
        with contextlib.suppress(ValueError):  # damage within an array is not noticed
            wire.decode(damaged[:end])


def test_surveys_of_other_columns_are_not_merged() -> None:
    with pytest.raises(ValueError, match="equal columns"):
        _core.Survey(5).merge(_core.Survey(2), 0)


def test_engines_do_what_is_listed_only() -> None:
    """A request names an operation; other methods cannot be called."""
    engine = WorkerEngine(0, InMemory([np.ones((3, 2))]), 1)
    for what in (
        "WorkerEngine.__init__",
        "WorkerEngine._execute",
        "SeedBlocks.distances",
        "os.system",
    ):
        assert what not in OPERATIONS
        reply = wire.decode(engine.respond_to(wire.encode((Request(what, (), -1, 0), None))))
        assert isinstance(reply, Failure)
        assert "have no operation" in reply.message


class _OddError(Exception):
    def __init__(self, a: int, b: int) -> None:
        super().__init__(f"{a} and {b}")


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (KeyError("x"), KeyError, "x"),
        (ValueError("k must be 1."), ValueError, "k must be 1."),
        (_OddError(1, 2), RuntimeError, "_OddError: 1 and 2"),
    ],
    ids=repr,
)
def test_errors_keep_their_type_and_their_traceback(error: Any, kind: Any, text: str) -> None:
    def fail() -> None:
        raise error

    try:
        fail()
    except Exception as raised:
        sent = again(wire.failure_of(raised))
    with pytest.raises(kind, match=text) as got:
        wire.raise_failure(sent, "worker 3")
    note = "".join(got.value.__notes__)
    assert "Raised by worker 3" in note
    assert "in fail" in note


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (lambda: np.empty(2**58, np.uint8), MemoryError),  # a subclass that takes shape and dtype
        (lambda: b"\xff".decode(), ValueError),  # UnicodeDecodeError takes five arguments
        (lambda: dict[int, int]()[3], KeyError),
        (lambda: (_ for _ in ()).throw(TwoPartsError(1, 2)), RuntimeError),
    ],
)
def test_types_that_are_not_made_from_a_message(raised: Any, kind: Any) -> None:
    """They arrive as the nearest base that is, which names them."""
    with pytest.raises(Exception, match=r"\w") as own:
        raised()
    with pytest.raises(kind) as got:
        wire.raise_failure(again(wire.failure_of(own.value)), "a worker")
    assert str(own.value).strip("'") in str(got.value)
    assert type(got.value) is own.type or own.type.__name__ in str(got.value)


class TwoPartsError(Exception):
    """Takes something else than a message."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def test_modules_are_not_imported_for_an_error() -> None:
    with pytest.raises(RuntimeError, match="Secret: no"):
        wire.raise_failure(Failure("not_imported_anywhere", "Secret", "no", ""), "a worker")
