"""Data as an ordered sequence of row blocks.

An array in memory is one block; `open_blocks` makes a source of several, in memory or in files.
However the rows are cut, the result is the same to the last bit.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from glob import glob
from pathlib import Path
from typing import Any

from exactmeans.data.arrow import IpcRows, ParquetRows
from exactmeans.data.arrow_stream import is_arrow_stream, open_stream
from exactmeans.data.binary import NpyRows, NpzRows
from exactmeans.data.derived import CompleteRows
from exactmeans.data.memory import ArrayBlocks, SlicedRows
from exactmeans.data.source import BlockSource, CutRows, JoinedRows, check_block_rows
from exactmeans.data.svmlight import SvmlightRows
from exactmeans.data.text import CsvRows, MtxRows
from exactmeans.parameters import check_choice

__all__ = ["BlockSource", "open_blocks"]

_FILES: dict[str, Any] = {
    ".npy": NpyRows,
    ".npz": NpzRows,
    ".svm": SvmlightRows,
    ".svmlight": SvmlightRows,
    ".libsvm": SvmlightRows,
    ".mtx": MtxRows,
    ".csv": CsvRows,
    ".tsv": CsvRows,
    ".parquet": ParquetRows,
    ".feather": IpcRows,
    ".arrow": IpcRows,
}
_TEXT = (SvmlightRows, MtxRows, CsvRows)  # also compressed, as .csv.gz


def open_blocks(
    source: Any,
    *,
    columns: Any = None,
    block_rows: int | None = None,
    header: bool | str = "auto",
    zero_based: bool | str = "auto",
    delimiter: str = "auto",
    na: str = "error",
) -> BlockSource:
    """Make a source of row blocks from a file, a folder, arrays, or what can be sliced by rows.

    Parameters
    ----------
    source : path, list of paths or arrays, object with `shape` and row slicing, or Arrow stream
        A file: .npy; .npz of a CSR matrix (scipy.sparse.save_npz); svmlight (.svm, .svmlight,
        .libsvm); Matrix Market (.mtx) listed by rows; .csv or .tsv; .parquet; Arrow IPC (.arrow,
        .feather); text files also compressed (.csv.gz). A folder of .parquet files, whose hive
        partitions (year=2024/...) are columns. A list of files of one kind, or a pattern such as
        "part-*.csv", whose files come in the order of their names. A list of arrays or sparse
        matrices of one width, which are the blocks. Or an object such as an array, a memory map,
        an h5py or zarr dataset, or AnnData, also backed. Or what offers an Arrow stream, such as a
        DuckDB relation, a pyarrow reader or a table with a column of lists, which is read once.
    columns : names or numbers, default=None
        The columns to use, in this order; None means all.
    block_rows : int, default=None
        Rows per block; None means as many as take about 8 MB in memory.
    header : True, False or 'auto', default='auto'
        Whether the first row of a .csv or .tsv file has the names of the columns. 'auto' takes a
        row of text alone for names and a row of numbers alone for data, and refuses a file whose
        first row could be either: text beside numbers, empty cells, or numbers that look like
        names (see the guide "Larger than memory").
    zero_based : True, False or 'auto', default='auto'
        Whether indices of an svmlight file begin at 0. 'auto' takes them to begin at 1 unless the
        file has an index 0 or the header of the extreme classification data sets. Where `columns`
        are chosen from a file without either, it must be True or False. A model that was fitted on
        such a file remembers where its indices begin.
    delimiter : str, default='auto'
        The character between the cells of a .csv or .tsv file. 'auto' takes the most frequent of
        comma, semicolon and tab in the first row.
    na : {'error', 'drop'}, default='error'
        What to do with rows of a dense file that have a missing value: refuse the file, or leave
        those rows out, with one more pass over the file. `kept` of the source has the numbers of
        the rows that stay. Missing are NaN, and in .csv and .tsv files empty cells, NA, null and ?.

    Returns
    -------
    BlockSource
        What `KMeans.fit`, `predict`, `transform` and `score`, and seeding take in place of an
        array. What is not in memory is read block by block whenever it is needed.

    Examples
    --------
    >>> import numpy as np
    >>> from exactmeans import KMeans, open_blocks
    >>> X = np.arange(24.0).reshape(12, 2)
    >>> blocks = open_blocks([X[:5], X[5:]])
    >>> blocks
    <2 blocks, 12 rows x 2 columns>
    >>> KMeans(2, random_state=0).fit(blocks).labels_
    array([1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0], dtype=int32)
    """
    check_block_rows(block_rows)
    options = {"header": header, "zero_based": zero_based}
    _check_options(options)
    if not isinstance(delimiter, str) or (delimiter != "auto" and len(delimiter) != 1):
        raise ValueError(f"delimiter must be 'auto' or one character, not {delimiter!r}.")
    check_choice("na", na, ("error", "drop"))
    options |= {"delimiter": delimiter}
    if isinstance(source, (str, os.PathLike)):
        source = [source]
    if isinstance(source, (list, tuple)) and source and all(map(_is_path, source)):
        opened = _open_files(_files(source), columns, block_rows, options, na)
        return CompleteRows(opened) if na == "drop" else opened
    if na == "drop":
        raise ValueError("na must be 'error', not 'drop': source is no file.")
    _refuse_options(options, (), "source is no file")
    if is_arrow_stream(source):
        return open_stream(source, columns, block_rows)
    if hasattr(source, "shape") and hasattr(source, "__getitem__"):
        return SlicedRows(source, columns, block_rows)
    if isinstance(source, BlockSource):
        if columns is not None or block_rows is not None:
            raise ValueError("columns and block_rows must be None for what comes in blocks.")
        return source
    if isinstance(source, bytes) or not isinstance(source, Iterable):
        raise TypeError(
            "source must be a path, a list of arrays, or something with a shape that can be "
            f"sliced, not {type(source).__name__}."
        )
    if block_rows is not None:
        raise ValueError("block_rows must be None for a list of arrays, which are the blocks.")
    return ArrayBlocks(source, columns)


#: Options that only some kinds of files have.
_OPTIONS: dict[Any, tuple[str, ...]] = {
    CsvRows: ("header", "delimiter"),
    SvmlightRows: ("zero_based",),
}


def _check_options(options: dict[str, Any]) -> None:
    for name, value in options.items():
        if not isinstance(value, bool) and not (isinstance(value, str) and value == "auto"):
            raise ValueError(f"{name} must be True, False or 'auto', not {value!r}.")


def _refuse_options(options: dict[str, Any], taken: tuple[str, ...], why: str) -> None:
    for name, value in options.items():
        if name not in taken and value != "auto":
            raise ValueError(f"{name} must be 'auto', not {value!r}: {why}.")


def _is_path(thing: Any) -> bool:
    return isinstance(thing, (str, os.PathLike)) and isinstance(os.fspath(thing), str)


def names_files(X: Any) -> bool:
    """Whether X is a path, a pattern or a list of them.

    A string is one if its suffix is known or a file has this name.
    """
    if isinstance(X, (list, tuple)):
        return bool(X) and all(_is_path(x) and names_files(x) for x in X)
    if not _is_path(X):
        return False
    return not isinstance(X, str) or _kind_of(Path(X)) is not None or os.path.exists(X)


def _files(source: Sequence[Any]) -> list[Path]:
    """Files and folders by their names, and those that patterns stand for."""
    found: list[Path] = []
    for given in source:
        path = Path(os.fspath(given))
        if path.exists():
            found.append(path)
        elif matches := sorted(glob(str(path), recursive=True)):
            found += map(Path, matches)
        else:
            raise FileNotFoundError(f"source must exist, but there is no {path}.")
    return found


def _kind_of(path: Path) -> Any:
    if os.path.isdir(path):  # False for texts too long for a name, where Path.is_dir raises
        return ParquetRows
    compressed = path.suffix.lower() == ".gz"
    kind = _FILES.get((path.with_suffix("") if compressed else path).suffix.lower())
    return None if compressed and kind not in _TEXT else kind


def _open_files(
    paths: list[Path], columns: Any, block_rows: int | None, options: dict[str, Any], na: str
) -> CutRows:
    for path in paths:
        if _kind_of(path) is None:
            raise ValueError(
                f"source must be a folder of .parquet files or end in {', '.join(_FILES)}, but it "
                f"is {path}."
            )
        if _kind_of(path) is not _kind_of(paths[0]):
            raise ValueError(
                f"source must name files of one kind, but {paths[0].name} and {path.name} are not."
            )
    kind = _kind_of(paths[0])
    taken = _OPTIONS.get(kind, ())
    _refuse_options(options, taken, f"{paths[0]} has no such choice")
    own = {name: options[name] for name in taken}
    if kind is CsvRows:
        own["na"] = na
    if kind in (ParquetRows, SvmlightRows):  # they read all files before the first row
        opened: CutRows = kind(paths, columns, block_rows, **own)
        return opened
    parts = [kind(path, columns, block_rows, **own) for path in paths]
    return parts[0] if len(parts) == 1 else JoinedRows(parts)
