"""Files that commands write: checked before the work begins, replaced at once when it is done."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exactmeans.cli import screen
from exactmeans.cli.table import Table
from exactmeans.io.files import replace_file
from exactmeans.kmeans import KMeans

TABLES = (".csv", ".parquet", ".npy")


class Outputs:
    """The output files of a command, by option."""

    def __init__(self, *, force: bool) -> None:
        self._force = force
        self._paths: dict[str, Path] = {}
        self._tables: dict[str, str] = {}

    def add(self, option: str, given: str | None, suffixes: tuple[str, ...]) -> Path | None:
        """Refuse what could not be written later."""
        if given is None:
            return None
        path = Path(given)
        if suffixes and path.suffix.lower() not in suffixes:
            raise ValueError(f"{option} must end in {' or '.join(suffixes)}, not {given!r}.")
        if path.is_dir():
            raise ValueError(f"{option} must name a file, but {given} is a folder.")
        if not path.parent.is_dir():
            raise ValueError(f"{option}: there is no folder {str(path.parent)!r}.")
        if path.exists() and not self._force:
            raise ValueError(f"{option}: {given} exists; --force replaces it.")
        if path in self._paths.values():
            raise ValueError(f"{option} must not name {given} a second time.")
        self._paths[option] = path
        return path

    def wrote(self, what: str, table: str) -> None:
        """A table of a database, beside the files."""
        self._tables[what] = table

    def show(self) -> None:
        for name, where in self.as_dict().items():
            screen.say(f"{name}: {where}")

    def as_dict(self) -> dict[str, str]:
        files = {option.removeprefix("--"): str(path) for option, path in self._paths.items()}
        return {**self._tables, **files}


def labels_of_all(table: Table, labels: NDArray[Any]) -> NDArray[np.int32]:
    """A label for each row of DATA; -1 for rows that were left out."""
    if table.kept is None:
        return labels
    found = np.full(table.total, -1, dtype=np.int32)
    found[table.kept] = labels
    return found


def write_labels(
    path: Path | None, table: Table, labels: NDArray[Any], distance: NDArray[Any] | None
) -> None:
    """The cluster of each row of DATA and its distance; CSV to standard output without a path."""
    every = labels_of_all(table, labels)
    if path is not None and path.suffix.lower() == ".npy":
        replace_file(path, _npy(every))
        return
    names: Any = range(table.total) if table.ids is None else table.ids
    columns = {table.id_name: names, "cluster": every.tolist()}
    if distance is not None:
        far = np.full(table.total, np.nan)
        far[slice(None) if table.kept is None else table.kept] = distance
        far[every < 0] = np.nan
        columns["distance"] = far.tolist()
    _write_table(path, columns)


def write_centers(path: Path, model: KMeans, table: Table) -> None:
    """The centres, a row each, in the units of DATA."""
    centres = model.cluster_centers_
    centres = np.asarray(centres.toarray() if hasattr(centres, "toarray") else centres)
    if table.units is not None:
        centres = centres * table.units[1] + table.units[0]
    if path.suffix.lower() == ".npy":
        replace_file(path, _npy(centres))
        return
    names = table.feature_names
    names = [str(f) for f in range(centres.shape[1])] if names is None else list(map(str, names))
    _write_table(path, {name: centres[:, f].tolist() for f, name in enumerate(names)})


def _npy(array: NDArray[Any]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def _write_table(path: Path | None, columns: dict[str, Any]) -> None:
    if path is not None and path.suffix.lower() == ".parquet":
        try:
            import pyarrow
            import pyarrow.parquet
        except ImportError:
            raise ImportError("Parquet files need pyarrow: pip install 'exactmeans[io]'.") from None
        data = pyarrow.table({name: list(values) for name, values in columns.items()})
        buffer = pyarrow.BufferOutputStream()
        pyarrow.parquet.write_table(data, buffer)
        replace_file(path, buffer.getvalue().to_pybytes())
        return
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for row in zip(*columns.values(), strict=True):
        writer.writerow("" if value != value else value for value in row)  # NaN is an empty cell
    if path is None:
        import sys

        sys.stdout.write(text.getvalue())
    else:
        replace_file(path, text.getvalue().encode())
