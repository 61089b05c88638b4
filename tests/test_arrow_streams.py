"""Anything with `__arrow_c_stream__` in `open_blocks` and `fit`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import exactmeans.data.arrow_stream
import exactmeans.data.spool
from exactmeans import KMeans, MiniBatchKMeans, open_blocks

X = np.random.default_rng(5).normal(size=(900, 3))
NAMES = ["a", "b", "c"]


def _table(rows: Any = X) -> Any:
    return pa.table({name: rows[:, f] for f, name in enumerate(NAMES)})


def _lists(rows: Any, chunks: int = 3) -> Any:
    kind = pa.list_(pa.from_numpy_dtype(rows.dtype), rows.shape[1])
    parts = [
        pa.FixedSizeListArray.from_arrays(pa.array(part.reshape(-1)), type=kind)
        for part in np.array_split(rows, chunks)
    ]
    return pa.table({"v": pa.chunked_array(parts)})


class Opaque:
    """A stream of which nothing else is known."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._table.__arrow_c_stream__(requested_schema)


DUCK = duckdb.connect()  # older relations do not keep their connection
STREAMS: dict[str, Callable[[], Any]] = {
    "reader": lambda: _table().to_reader(100),
    "opaque": lambda: Opaque(_table()),
    "duckdb": lambda: DUCK.from_arrow(_table()),
    "lists": lambda: _lists(X),
    "variable lists": lambda: pa.table({"v": pa.array(list(X))}),
    "polars arrays": lambda: pl.DataFrame({"v": X}, schema={"v": pl.Array(pl.Float64, 3)}),
    "large lists": lambda: pa.table({"v": pa.array(list(X), pa.large_list(pa.float64()))}),
    "list and column": lambda: pa.table({"v": pa.array(list(X[:, :2])), "c": X[:, 2]}),
}


@pytest.mark.parametrize("name", STREAMS)
def test_streams_give_the_bits_of_the_array(name: str) -> None:
    expected = KMeans(6, random_state=1).fit(X)
    model = KMeans(6, random_state=1).fit(STREAMS[name]())
    assert np.array_equal(model.labels_, expected.labels_)
    assert np.array_equal(model.cluster_centers_, expected.cluster_centers_)
    assert np.array_equal(model.predict(STREAMS[name]()), expected.labels_)
    source = open_blocks(STREAMS[name]())
    assert source.shape == X.shape
    assert np.array_equal(np.concatenate([source.read(b) for b in range(len(source))]), X)


def test_names_of_a_stream_are_the_names_of_the_features() -> None:
    model = KMeans(3, random_state=0).fit(STREAMS["duckdb"]())
    assert model.feature_names_in_.tolist() == NAMES
    with pytest.raises(ValueError, match="it lacks 'a'"):
        model.predict(_table().rename_columns(["z", "b", "c"]).to_reader())


def test_columns_of_a_stream_can_be_chosen() -> None:
    source = open_blocks(
        _table().append_column("s", pa.array(["x"] * 900)).to_reader(), columns=["c", "a"]
    )
    assert np.array_equal(source.read(0), X[:, [2, 0]])
    with pytest.raises(ValueError, match="column 's' holds string, not numbers"):
        open_blocks(_table().append_column("s", pa.array(["x"] * 900)).to_reader())


def test_lists_of_a_table_are_not_copied() -> None:
    table = _lists(X.astype(np.float32), chunks=2)
    source: Any = open_blocks(table)
    assert len(source) == 2
    for b, chunk in enumerate(table.column("v").chunks):
        there = chunk.values.to_numpy(zero_copy_only=True)
        assert np.shares_memory(source.read(b), there)


def test_float32_stays_and_whole_numbers_become_float64() -> None:
    assert open_blocks(_lists(X.astype(np.float32))).read(0).dtype == np.float32
    mixed = pa.table({"a": pa.array([1, 2], pa.int32()), "b": pa.array([0.5, 1.5], pa.float32())})
    assert open_blocks(mixed.to_reader()).read(0).dtype == np.float64


def test_a_large_stream_goes_to_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exactmeans.data.arrow_stream, "memory_of_machine", lambda: 4 * 8192)
    monkeypatch.setattr(exactmeans.data.spool, "_LEAST_RUN", 1024)
    source: Any = open_blocks(_table().to_reader(50))
    assert not source.in_memory
    assert np.array_equal(np.concatenate([source.read(b) for b in range(len(source))]), X)
    expected = KMeans(6, random_state=1).fit(X)
    assert np.array_equal(KMeans(6, random_state=1).fit(source).labels_, expected.labels_)


def test_minibatch_takes_streams() -> None:
    expected = MiniBatchKMeans(4, random_state=1).fit(open_blocks([X]))
    model = MiniBatchKMeans(4, random_state=1).fit(_table().to_reader(100))
    assert np.array_equal(model.labels_, expected.labels_)


@pytest.mark.parametrize(
    ("stream", "message"),
    [
        (lambda: _table(X[:0]).to_reader(), "must have rows"),
        (lambda: pa.table({"v": pa.array([[1.0], [1.0, 2.0]])}), "lists of different lengths"),
        (lambda: pa.table({"v": pa.array([[1.0], None])}), "missing lists"),
        (lambda: pa.table({"v": pa.array([["x"], ["y"]])}), "arrays of string"),
        (lambda: pa.table({"a": pa.array([1.0, None])}).to_reader(), "NaN"),
    ],
)
def test_bad_streams_are_refused(stream: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        KMeans(1).fit(stream())


def test_a_stream_that_was_read_is_refused() -> None:
    reader = _table().to_reader()
    KMeans(2).fit(reader)
    with pytest.raises(ValueError, match="was read before"):
        KMeans(2).fit(reader)
