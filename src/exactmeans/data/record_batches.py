"""Numbers from Arrow record batches: columns, lists, pgvector's vectors, text such as '[1, 2]'.

Missing values become NaN, which callers refuse or drop; nothing else changes but the dtype.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from exactmeans.data.arrow import pyarrow_or_refuse


class Cells(NamedTuple):
    """A column whose cells hold several numbers each, as CSR-like arrays."""

    values: NDArray[Any]
    lengths: NDArray[np.int64]  # -1 where the cell is NULL
    columns: NDArray[np.int64] | None = None  # of sparse vectors
    width: int | None = None  # of sparse vectors


def plain(column: Any) -> Any:
    """The storage of an extension column, the values of a dictionary."""
    pa = pyarrow_or_refuse()
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column


def type_name(kind: Any) -> str:
    """What a database calls a type that Arrow does not know; else Arrow's own name."""
    return str(getattr(kind, "type_name", None) or kind)


def is_numeric(kind: Any) -> bool:
    types = pyarrow_or_refuse().types
    if types.is_dictionary(kind):
        kind = kind.value_type
    known = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_null)
    return any(is_kind(kind) for is_kind in known) or type_name(kind) == "numeric"


def is_single(kind: Any) -> bool:
    """Whether float32 holds every value of a type."""
    types = pyarrow_or_refuse().types
    return bool(types.is_floating(kind) and kind.bit_width <= 32)


def holds_lists(kind: Any) -> bool:
    types = pyarrow_or_refuse().types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def numbers(column: Any) -> NDArray[Any]:
    """A numeric column; NaN where it is NULL."""
    pa = pyarrow_or_refuse()
    if pa.types.is_null(column.type):
        return np.full(len(column), np.nan)
    named = type_name(column.type) == "numeric"  # PostgreSQL's, as text
    column = plain(column)
    if named or pa.types.is_decimal(column.type):
        column = column.cast(pa.float64())
    values: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    if values.dtype == object:  # booleans with NULL
        values = column.cast(pa.int8()).to_numpy(zero_copy_only=False)
    return values


def cells(column: Any, name: str) -> Cells:
    """A column of lists, of vectors, or of text or bytes that stand for them."""
    pa = pyarrow_or_refuse()
    kind = type_name(column.type)
    values = plain(column)
    if kind == "sparsevec" and pa.types.is_binary(values.type):
        return _sparse_binary(values)
    if kind in ("vector", "halfvec") and pa.types.is_binary(values.type):
        return _binary(values, 4, ">f4" if kind == "vector" else ">f2", np.float32)
    if kind.startswith("unnamed<"):
        raise ValueError(
            f"features: the type of column {name!r} was created after the connection was opened: "
            "connect again."
        )
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        first = next((v.as_py() for v in values if v.is_valid), "")
        if first.startswith("{") and "/" in first:
            return _sparse_text(values, name)
        values = _lists_of_text(values, name)
    elif pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type):
        return _binary(values, 0, "<f4", np.float32)  # as sqlite-vec keeps them
    if not holds_lists(values.type):
        raise ValueError(
            f"features must name a column of arrays for layout='array', but column {name!r} holds "
            f"{kind}."
        )
    return _lists(values, name)


def _lists(values: Any, name: str) -> Cells:
    import pyarrow.compute as pc

    lengths = np.asarray(pc.fill_null(pc.list_value_length(values), -1), dtype=np.int64)
    inner = values.drop_null().flatten()
    if holds_lists(inner.type) or not is_numeric(inner.type):
        raise ValueError(
            f"features must hold numbers, but column {name!r} holds arrays of "
            f"{type_name(inner.type)}."
        )
    return Cells(numbers(inner), lengths)


def _lists_of_text(values: Any, name: str) -> Any:
    """'[1, 2]' and '{1,2}' as lists of numbers."""
    import pyarrow as pa
    import pyarrow.compute as pc

    inner = pc.split_pattern(pc.utf8_trim(values, "[]{}() "), ",")
    try:
        parsed = pc.utf8_trim_whitespace(inner.values).cast(pa.float64())
    except pa.ArrowInvalid as error:
        said = str(error).split("\n")[0].rstrip(".")
        raise ValueError(
            f"features must hold numbers, but column {name!r} does not: {said}."
        ) from None
    return pa.ListArray.from_arrays(inner.offsets, parsed, mask=inner.is_null())


def _binary(values: Any, header: int, stored: str, dtype: Any) -> Cells:
    """Cells of packed numbers behind a header."""
    import pyarrow.compute as pc

    size = np.dtype(stored).itemsize
    sizes = np.asarray(pc.fill_null(pc.binary_length(values), -1), dtype=np.int64)
    lengths = np.where(sizes < 0, -1, (sizes - header) // size)
    whole = b"".join(cell[header:] for cell in values.drop_null().to_pylist())
    return Cells(np.frombuffer(whole, stored).astype(dtype), lengths)


def _sparse_binary(values: Any) -> Cells:
    """pgvector's sparsevec: width, count and 0, then columns and values."""
    columns, found, lengths, width = [], [], [], None
    for cell in values.to_pylist():
        if cell is None:
            lengths.append(-1)
            continue
        width, count, _ = (int(x) for x in np.frombuffer(cell, ">i4", 3))
        columns.append(np.frombuffer(cell, ">i4", count, 12))
        found.append(np.frombuffer(cell, ">f4", count, 12 + 4 * count))
        lengths.append(count)
    return _sparse(columns, found, lengths, width)


def _sparse_text(values: Any, name: str) -> Cells:
    """pgvector's sparsevec as text: {column:value,…}/width, columns from 1."""
    columns, found, lengths, width = [], [], [], None
    for cell in values.to_pylist():
        if cell is None:
            lengths.append(-1)
            continue
        try:
            inside, width = cell[1:].split("}/")
            pairs = [pair.split(":") for pair in inside.split(",") if pair]
            columns.append(np.array([int(column) - 1 for column, _ in pairs], dtype=np.int64))
            found.append(np.array([float(value) for _, value in pairs], dtype=np.float32))
            width = int(width)
        except ValueError:
            raise ValueError(
                f"features must hold sparse vectors such as '{{1:0.5,3:2}}/5', but column {name!r} "
                f"holds {cell[:40]!r}."
            ) from None
        lengths.append(len(pairs))
    return _sparse(columns, found, lengths, width)


def _sparse(columns: Any, found: Any, lengths: list[int], width: int | None) -> Cells:
    none: list[Any] = [np.empty(0)]
    return Cells(
        np.concatenate(found or none).astype(np.float32),
        np.array(lengths, dtype=np.int64),
        np.concatenate(columns or none).astype(np.int64),
        width,
    )


def sparse_rows(found: Cells, width: int) -> Any:
    """Sparse cells as CSR; a NULL is a row with one NaN."""
    assert found.columns is not None
    counts = np.where(found.lengths < 0, 1, found.lengths)
    indptr = np.concatenate([[0], np.cumsum(counts)])
    missing = indptr[:-1][found.lengths < 0]
    kept = np.ones(indptr[-1], dtype=bool)
    kept[missing] = False
    values = np.full(len(kept), np.nan, dtype=np.float32)
    values[kept] = found.values
    indices = np.zeros(len(kept), dtype=np.int32)
    indices[kept] = found.columns
    return sp.csr_matrix((values, indices, indptr), shape=(len(counts), width))


def key_array(column: Any) -> Any:
    """Keys as Arrow sorts them: text by its bytes, whatever the database's collation."""
    pa = pyarrow_or_refuse()
    column = plain(column)
    if pa.types.is_string(column.type):
        return column.cast(pa.large_string())  # of more than 2 GB, too
    if pa.types.is_binary(column.type):
        return column.cast(pa.large_binary())
    return column
