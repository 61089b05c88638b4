"""Parquet files and folders, and Arrow IPC (Feather) files, through pyarrow."""

from __future__ import annotations

import os
import threading
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exactmeans.data.source import Allocator, CutRows, choose_columns, even_edges


def pyarrow_or_refuse() -> Any:
    try:
        import pyarrow
        import pyarrow.dataset
        import pyarrow.ipc
        import pyarrow.parquet
    except ImportError:
        raise ImportError(
            "Arrow data and Parquet files need the pyarrow package: pip install exactmeans[io]."
        ) from None
    return pyarrow


def _width(pa: Any, kind: Any, where: str, name: str) -> tuple[int, bool]:
    """How many columns of numbers a field stands for, and whether they are float32 at most."""
    if pa.types.is_fixed_size_list(kind):  # embeddings
        width, single = _width(pa, kind.value_type, where, name)
        return width * int(kind.list_size), single
    if pa.types.is_floating(kind):
        return 1, kind.bit_width <= 32
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return 1, False
    raise ValueError(
        f"{where}: column {name!r} holds {kind}, not numbers; name the columns to use with "
        "columns=."
    )


class _ArrowRows(CutRows):
    """Batches of one schema; each block is a run of rows within one piece of one file."""

    def __init__(
        self,
        name: str,
        schema: Any,
        pieces: list[tuple[Path, int, int]],  # file, number within it, rows
        columns: Any,
        block_rows: int | None,
    ) -> None:
        pa = pyarrow_or_refuse()
        chosen = choose_columns(columns, schema.names, len(schema.names), name)
        picked = range(len(schema.names)) if chosen is None else chosen.tolist()
        self._fields = [schema.field(f) for f in picked]
        kinds = [_width(pa, field.type, name, field.name) for field in self._fields]
        dtype = np.float32 if all(single for _, single in kinds) else np.float64
        d = sum(width for width, _ in kinds)
        edges, self._runs = [0], []
        for path, piece, rows in pieces:
            cut = even_edges(rows, d * np.dtype(dtype).itemsize, block_rows)
            for begin, end in zip(cut[:-1].tolist(), cut[1:].tolist(), strict=True):
                if end > begin:
                    self._runs.append((path, piece, begin))
                    edges.append(edges[-1] + end - begin)
        super().__init__(name, np.array(edges, dtype=np.int64), d, dtype, sparse=False)
        if d == len(self._fields):  # the columns of a list have no names of their own
            self.names = [field.name for field in self._fields]
        self._reset()

    _footer_bytes = 0  # of an open file, outside of the pool
    #: Values of columns that a file's folders have, such as year=2024.
    _partition: Mapping[Path, Mapping[str, Any]] = MappingProxyType({})

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._place: tuple[Path, int, int] | None = None  # where the open batches stand
        self._batches: Iterator[Any] = iter(())
        self._rest: Any = None  # rows of the last batch that are still to come
        # All reading is done by one thread. The pool of pyarrow keeps freed memory per thread, and
        # passes begin with new threads: 200 MB instead of 26 after 17 passes over 50 MB.
        self._thread: tuple[int, ThreadPoolExecutor] | None = None

    @abstractmethod
    def _open(self, path: Path, piece: int) -> Iterator[Any]:
        """Batches of a piece, from its beginning."""

    def _rows(self, block: int, begin: int, end: int, allocator: Allocator) -> Any:
        out = allocator.empty((end - begin, self._d), self.dtype)
        with self._lock:
            pid = os.getpid()
            if self._thread is None or self._thread[0] != pid:  # a fork has no threads
                self._thread = pid, ThreadPoolExecutor(1, "exactmeans-arrow")
            self._thread[1].submit(self._fill, out, block).result()
        return out

    def _fill(self, out: NDArray[Any], block: int) -> None:
        """Blocks come in order, as a rule, so the batches are kept open from one to the next."""
        pool = pyarrow_or_refuse().default_memory_pool()
        path, piece, first = self._runs[block]
        if self._place != (path, piece, first):
            self._close()
            pool.release_unused()
            self._before = pool.bytes_allocated()
            self._batches = self._open(path, piece)
            self._advance(path, first, None)
        done = self._advance(path, len(out), out)
        # Dictionaries and pages of all columns, whose sizes are known only now.
        held = pool.bytes_allocated() - self._before + self._footer_bytes
        self.held_bytes = max(self.held_bytes, held)
        self._place = (path, piece, first + len(out))
        if self._runs[block + 1 : block + 2] != [self._place]:
            self._close()  # the piece ends here
        if done < len(out):
            raise ValueError(f"{path} has fewer rows than when it was opened.")

    def _close(self) -> None:
        self._batches, self._rest, self._place = iter(()), None, None

    def _advance(self, path: Path, count: int, out: NDArray[Any] | None) -> int:
        """Put the next `count` rows into `out`, or skip them; gives how many there were."""
        done = 0
        while done < count:
            if self._rest is None or not self._rest.num_rows:
                self._rest = None
                self._rest = next(self._batches, None)
                if self._rest is None:
                    break
            taken = min(count - done, self._rest.num_rows)
            if out is not None:
                self._convert(self._rest.slice(0, taken), path, out[done : done + taken])
            self._rest = self._rest.slice(taken)
            done += taken
        return done

    def _convert(self, batch: Any, path: Path, out: NDArray[Any]) -> None:
        pa, partition, at = pyarrow_or_refuse(), self._partition.get(path, {}), 0
        for field in self._fields:
            if field.name in partition:
                value = partition[field.name]
                out[:, at] = np.nan if value is None else value
                at += 1
                continue
            values = batch.column(field.name)
            width = 1
            while pa.types.is_fixed_size_list(values.type):
                if values.null_count:
                    raise ValueError(f"{self.name}: column {field.name!r} has missing lists.")
                width *= values.type.list_size
                values = values.flatten()
            numbers = values.to_numpy(zero_copy_only=False)
            out[:, at : at + width] = numbers.reshape(batch.num_rows, width)
            at += width

    def __getstate__(self) -> dict[str, Any]:
        fresh = ("_lock", "_place", "_batches", "_rest", "_before", "_thread")
        return {name: value for name, value in vars(self).items() if name not in fresh}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._reset()


_UNPACKED = 10  # bytes in memory for a byte of a footer (measured, 320 and 1000 columns)


class ParquetRows(_ArrowRows):
    """Files, and all .parquet files of folders, in the order of their names.

    Folders named key=value, below what the files have in common, are columns beside those of the
    files, as in a dataset of pyarrow.
    """

    def __init__(self, paths: Sequence[Path], columns: Any, block_rows: int | None) -> None:
        pa = pyarrow_or_refuse()
        files = [file for path in paths for file in _parquet_files(path)]
        pieces, schema = [], None
        for file in files:
            try:
                about = pa.parquet.ParquetFile(file)
            except (pa.ArrowInvalid, OSError) as error:
                said = str(error).rstrip(".")
                raise ValueError(f"{file} is not a whole Parquet file: {said}.") from None
            with about:
                own = about.schema_arrow
                size = about.metadata.serialized_size * _UNPACKED
                self._footer_bytes = max(self._footer_bytes, size)
                groups = [about.metadata.row_group(g).num_rows for g in range(about.num_row_groups)]
            schema = own if schema is None else schema
            _refuse_other(schema, own, files[0], file)
            pieces += [(file, g, rows) for g, rows in enumerate(groups)]
        name = str(paths[0]) if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"
        schema = self._with_folders(name, schema, files, paths)
        super().__init__(name, schema, pieces, columns, block_rows)

    def _with_folders(
        self, name: str, schema: Any, files: list[Path], paths: Sequence[Path]
    ) -> Any:
        """The schema with a column for each key of the folders, whose values are kept by file."""
        pa = pyarrow_or_refuse()
        single = len(paths) == 1 and paths[0].is_dir()
        base = paths[0] if single else Path(os.path.commonpath([file.parent for file in files]))
        folders = {part for file in files for part in file.relative_to(base).parts[:-1]}
        keys = {part.partition("=")[0] for part in folders if "=" in part}
        if not keys:
            return schema
        if both := sorted(keys & set(schema.names)):
            raise ValueError(
                f"{name} has a column {both[0]!r} both in its files and in the names of its "
                "folders."
            )
        dataset = pa.dataset.dataset(
            [str(file) for file in files],
            format="parquet",
            partitioning="hive",
            partition_base_dir=str(base),
        )
        for field in dataset.partitioning.schema:
            schema = schema.append(field)
        values = pa.dataset.get_partition_keys
        self._partition = {
            file: dict.fromkeys(dataset.partitioning.schema.names)
            | values(fragment.partition_expression)
            for file, fragment in zip(files, dataset.get_fragments(), strict=True)
        }
        return schema

    def _open(self, path: Path, piece: int) -> Iterator[Any]:
        pa = pyarrow_or_refuse()
        own = self._partition.get(path, {})
        names = [field.name for field in self._fields if field.name not in own]
        rows = int(np.diff(self.edges).max())
        # A stream of pages: without it, the whole row group would be in memory.
        with pa.parquet.ParquetFile(path, buffer_size=2**16, pre_buffer=False) as file:
            try:
                yield from file.iter_batches(
                    batch_size=rows, row_groups=[piece], columns=names, use_threads=False
                )
            except (pa.ArrowInvalid, OSError) as error:
                raise ValueError(f"{path} is damaged: {error}.") from None


def _parquet_files(path: Path) -> list[Path]:
    """The file, or those of a folder but for what is hidden or temporary."""
    if not path.is_dir():
        return [path]
    files = [
        file
        for file in sorted(path.rglob("*.parquet"))
        if not any(part[0] in "._" for part in file.relative_to(path).parts)
    ]
    if not files:
        raise ValueError(f"{path} holds no .parquet files.")
    return files


def _refuse_other(schema: Any, own: Any, first: Path, file: Path) -> None:
    if own.names != schema.names:
        odd = sorted(set(own.names) ^ set(schema.names)) or own.names
        raise ValueError(f"{file} must have the columns of {first}, but they differ in {odd[0]!r}.")
    for name in schema.names:
        if own.field(name).type != schema.field(name).type:
            raise ValueError(
                f"{file} must have the columns of {first}, but {name!r} is "
                f"{own.field(name).type}, not {schema.field(name).type}."
            )


class IpcRows(_ArrowRows):
    """An Arrow IPC file, which is what Feather files are."""

    def __init__(self, path: Path, columns: Any, block_rows: int | None) -> None:
        pa = pyarrow_or_refuse()
        try:
            with pa.OSFile(str(path)) as raw, pa.ipc.open_file(raw) as file:
                schema = file.schema
                count = file.num_record_batches
                pieces = [(path, b, file.get_batch(b).num_rows) for b in range(count)]
        except (pa.ArrowInvalid, OSError) as error:
            if isinstance(error, FileNotFoundError):
                raise
            said = str(error).rstrip(".")
            raise ValueError(f"{path} is not a whole Arrow IPC file: {said}.") from None
        super().__init__(str(path), schema, pieces, columns, block_rows)

    def _open(self, path: Path, piece: int) -> Iterator[Any]:
        pa = pyarrow_or_refuse()
        with pa.OSFile(str(path)) as raw, pa.ipc.open_file(raw) as file:
            yield file.get_batch(piece)
