"""NumPy's own files: .npy, and .npz as scipy.sparse.save_npz writes it."""

from __future__ import annotations

import struct
import threading
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from exactmeans.data.source import (
    Allocator,
    CutRows,
    choose_columns,
    computed_bytes,
    edges_by_entries,
    even_edges,
    refuse_kind,
)


@dataclass
class Header:
    """The header of an .npy file."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran: bool
    offset: int  # where the data begins

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize


def read_header(file: IO[bytes], where: str) -> Header:
    try:
        version = np.lib.format.read_magic(file)
        if version == (1, 0):
            shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
        else:
            shape, fortran, dtype = np.lib.format.read_array_header_2_0(file)
    except (ValueError, EOFError, zlib.error) as error:
        raise ValueError(f"{where} is not a whole .npy file: {error}.") from None
    return Header(shape, dtype, fortran, file.tell())


def fill(file: IO[bytes], out: NDArray[Any], where: str) -> NDArray[Any]:
    """Read as many bytes as `out` takes."""
    view = out.reshape(-1).view(np.uint8).data
    done = 0
    while done < len(view):
        got = file.readinto(view[done:])  # type: ignore[attr-defined]
        if not got:
            raise ValueError(f"{where} is cut short: {len(view) - done} bytes are missing.")
        done += got
    return out


class NpyRows(CutRows):
    """Rows of an .npy file in C or Fortran order.

    The file is read, not mapped: pages of a map would count as memory of this process.
    """

    def __init__(self, path: Path, columns: Any, block_rows: int | None) -> None:
        self._path = path
        with open(path, "rb") as file:
            self._header = header = read_header(file, str(path))
        refuse_kind(header.dtype, str(path))
        if len(header.shape) != 2:
            raise ValueError(f"{path} must be two-dimensional, but its shape is {header.shape}.")
        missing = header.offset + header.size - path.stat().st_size
        if missing > 0:
            raise ValueError(f"{path} is cut short: {missing} bytes are missing.")
        n, d = header.shape
        edges = even_edges(n, d * computed_bytes(header.dtype), block_rows)
        super().__init__(str(path), edges, d, header.dtype.newbyteorder("="), sparse=False)
        self.select(choose_columns(columns, None, d, str(path)))

    def _rows(self, block: int, begin: int, end: int, allocator: Allocator) -> Any:
        header, size = self._header, self._header.dtype.itemsize
        n, d = header.shape
        with open(self._path, "rb", buffering=0) as file:
            if not header.fortran:
                file.seek(header.offset + begin * d * size)
                rows = fill(file, allocator.empty((end - begin, d), header.dtype), self.name)
            else:
                columns = allocator.empty((d, end - begin), header.dtype)
                for f, column in enumerate(columns):
                    file.seek(header.offset + (f * n + begin) * size)
                    fill(file, column, self.name)
                rows = columns.T
        return rows.astype(self.dtype, copy=False)


class _Member:
    """An .npy array inside a zip file: by offset if it is stored, else by inflating onwards."""

    def __init__(self, path: Path, archive: zipfile.ZipFile, name: str) -> None:
        self._path, self._name = path, f"{name}.npy"
        self.where = f"{path} ({name})"
        info = archive.getinfo(self._name)
        with archive.open(info) as file:
            self.header = read_header(file, self.where)
        if len(self.header.shape) != 1:
            raise ValueError(f"{self.where} must be one-dimensional.")
        self._begin: int | None = None
        if info.compress_type == zipfile.ZIP_STORED:
            with open(path, "rb") as file:
                file.seek(info.header_offset)
                local = file.read(30)
            name_length, extra_length = struct.unpack("<HH", local[26:30])
            self._begin = info.header_offset + 30 + name_length + extra_length + self.header.offset
        self._stream: Any = None
        self._at = 0

    def read(self, begin: int, end: int, allocator: Allocator) -> NDArray[Any]:
        dtype = self.header.dtype
        out = allocator.empty((end - begin,), dtype)
        if self._begin is not None:
            with open(self._path, "rb", buffering=0) as file:
                file.seek(self._begin + begin * dtype.itemsize)
                fill(file, out, self.where)
        else:
            self._inflate(out, begin * dtype.itemsize)
        return out.astype(dtype.newbyteorder("="), copy=False)

    def _inflate(self, out: NDArray[Any], begin: int) -> None:
        if self._stream is None or begin < self._at:
            archive = zipfile.ZipFile(self._path)
            self._stream = archive.open(self._name)
            self._stream.read(self.header.offset)
            self._at = 0
        try:
            while self._at < begin:
                skipped = len(self._stream.read(min(2**20, begin - self._at)))
                if not skipped:
                    missing = begin - self._at + out.nbytes
                    raise ValueError(f"{self.where} is cut short: {missing} bytes are missing.")
                self._at += skipped
            fill(self._stream, out, self.where)
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
            raise ValueError(f"{self.where} is damaged: {error}.") from None
        self._at += out.nbytes

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_stream": None, "_at": 0}


class NpzRows(CutRows):
    """CSR rows of an .npz file. Row offsets are kept, entries are read by block."""

    def __init__(self, path: Path, columns: Any, block_rows: int | None) -> None:
        try:
            archive = zipfile.ZipFile(path)
        except zipfile.BadZipFile as error:
            raise ValueError(f"{path} is not a whole .npz file: {error}.") from None
        with archive:
            n, d = _csr_shape(path, archive)
            self._indptr = self._offsets(path, archive, n)
            self._data = _Member(path, archive, "data")
            self._indices = _Member(path, archive, "indices")
        self._lock = threading.Lock()
        entries = int(self._indptr[-1])
        for member in (self._data, self._indices):
            if member.header.shape[0] < entries:
                raise ValueError(
                    f"{member.where} has {member.header.shape[0]} entries, but indptr promises "
                    f"{entries}."
                )
        refuse_kind(self._data.header.dtype, self._data.where)
        dtype = self._data.header.dtype.newbyteorder("=")
        size = computed_bytes(dtype) + self._indices.header.dtype.itemsize
        edges = edges_by_entries(self._indptr, size, block_rows)
        super().__init__(str(path), edges, d, dtype, sparse=True)
        self.select(choose_columns(columns, None, d, str(path)))

    @staticmethod
    def _offsets(path: Path, archive: zipfile.ZipFile, n: int) -> NDArray[np.int64]:
        indptr = _small(path, archive, "indptr").astype(np.int64)
        if len(indptr) != n + 1 or indptr[0] != 0:
            raise ValueError(f"{path} (indptr) must have {n + 1} entries, the first of them 0.")
        if (falls := np.flatnonzero(np.diff(indptr) < 0)).size:
            raise ValueError(f"{path} (indptr) must not decrease, but it does at row {falls[0]}.")
        return indptr

    def _rows(self, block: int, begin: int, end: int, allocator: Allocator) -> Any:
        first, last = int(self._indptr[begin]), int(self._indptr[end])
        with self._lock:
            data = self._data.read(first, last, allocator)
            indices = self._indices.read(first, last, allocator)
        if indices.size and not (indices.min() >= 0 and indices.max() < self._d):
            wrong = int(np.flatnonzero((indices < 0) | (indices >= self._d))[0])
            row = int(np.searchsorted(self._indptr, first + wrong, side="right")) - 1
            raise ValueError(
                f"{self.name} has {self._d} columns, but row {row} has column {indices[wrong]}."
            )
        indptr = self._indptr[begin : end + 1] - first
        return sp.csr_matrix((data, indices, indptr), shape=(end - begin, self._d))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._lock = threading.Lock()


def _csr_shape(path: Path, archive: zipfile.ZipFile) -> tuple[int, int]:
    members = {name.removesuffix(".npy") for name in archive.namelist()}
    if not {"format", "shape", "data"} <= members:
        raise ValueError(
            f"{path} must be written by scipy.sparse.save_npz, but it holds "
            f"{', '.join(sorted(members)) or 'nothing'}; dense rows go into an .npy file."
        )
    kind = _small(path, archive, "format").item()
    kind = kind.decode() if isinstance(kind, bytes) else str(kind)
    if kind != "csr":
        raise ValueError(f"{path} must hold a CSR matrix, but it holds {kind}: save X.tocsr().")
    if missing := {"indices", "indptr"} - members:
        raise ValueError(f"{path} lacks {', '.join(sorted(missing))}.")
    n, d = _small(path, archive, "shape").tolist()
    return int(n), int(d)


def _small(path: Path, archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
    try:
        with archive.open(f"{name}.npy") as file:
            return np.asarray(np.lib.format.read_array(file, allow_pickle=False))
    except (ValueError, EOFError, OSError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path} ({name}) is damaged: {error}.") from None
