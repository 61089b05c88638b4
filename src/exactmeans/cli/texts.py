"""Rows from texts: of files, of a column of a table, of a query; and from counts of terms."""

from __future__ import annotations

import gzip
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from exactmeans.cli import columns as cols
from exactmeans.cli import screen
from exactmeans.cli.groups import Features, Reading
from exactmeans.cli.numbers import feature_names
from exactmeans.cli.queries import query_texts, shown
from exactmeans.cli.table import Table, name_of
from exactmeans.data.open import open_blocks
from exactmeans.data.sql import Keys
from exactmeans.database.connect import is_uri
from exactmeans.preparation import Preparation, whole
from exactmeans.text import without_terms

_FEW = 50  # documents; below that, terms of single documents are kept


class _Documents(NamedTuple):
    texts: list[str]
    ids: list[str] | None = None
    id_name: str = "row"
    columns: list[str] | None = None  # where the texts were
    keys: Keys | None = None


def texts(place: str, reading: Reading, features: Features, preparation: Preparation) -> Table:
    """Documents as rows of TF-IDF weights, by the terms of the model if there is one."""
    found = _documents(place, reading, preparation)
    if not found.texts:
        raise ValueError(f"{name_of(reading)} has no documents.")
    preparation = replace(preparation, columns=found.columns)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # rows of zeros are counted below
        if preparation.kind == "text":
            X = preparation.weigh(found.texts)
        else:
            preparation, X = _learned(found.texts, reading, features, preparation)
    _note_empty(X)
    return Table(
        name=name_of(reading),
        X=X,
        preparation=preparation,
        total=len(found.texts),
        ids=found.ids,
        id_name=found.id_name,
        texts=found.texts,
        feature_names=preparation.terms,
        keys=found.keys,
    )


def _learned(
    documents: list[str], reading: Reading, features: Features, preparation: Preparation
) -> tuple[Preparation, Any]:
    least = features.min_df or (1 if len(documents) < _FEW else 2)
    stop = None if features.stop_words == "none" else features.stop_words
    try:
        preparation, X = preparation.learn_terms(documents, min_df=least, stop_words=stop)
    except ValueError as error:
        raise ValueError(
            f"no term is left of the documents of {name_of(reading)}: lower --min-df or "
            f"say --stop-words none ({str(error).rstrip('.')})."
        ) from None
    screen.note(
        f"{len(documents):,} documents, {X.shape[1]:,} terms that {least} or more of them have"
        + (", without English stop words" if stop else "")
        + "; --min-df and --stop-words change that."
    )
    return preparation, X


def _documents(place: str, reading: Reading, preparation: Preparation) -> _Documents:
    columns = cols.split(reading.columns) or [str(c) for c in preparation.columns or []]
    if is_uri(place):
        own, keys, columns = query_texts(reading, columns)
        return _Documents(own, shown(keys), keys.name, columns, keys)
    path = Path(place)
    if path.is_dir() and not list(path.glob("*.parquet")):
        files = sorted(file for file in path.rglob("*") if file.is_file())
        read_all = [file.read_text(encoding="utf-8", errors="replace") for file in files]
        return _Documents(read_all, [str(file.relative_to(path)) for file in files], "file")
    if not path.exists():
        raise ValueError(f"--text takes one file or folder, not the pattern {place!r}.")
    if cols.is_csv(place) or cols.is_arrow(place):
        columns = columns or [_only_text_column(place, reading)]
        parts = [_cells(place, reading, name) for name in columns]
        joined = [" ".join(str(c or "") for c in row) for row in zip(*parts, strict=True)]
        ids = None if reading.id is None else [str(c) for c in _cells(place, reading, reading.id)]
        return _Documents(joined, ids, reading.id or "row", columns)
    if reading.id is not None:
        raise ValueError(f"--id must name a column of a table, but {path.name} has none.")
    read = gzip.open if path.suffix == ".gz" else open
    with read(path, "rt", encoding="utf-8", errors="replace") as file:
        return _Documents([line.rstrip("\r\n") for line in file])


def _cells(path: str, reading: Reading, name: str) -> list[Any]:
    return cols.cells(path, name, reading.header, reading.delimiter)


def _only_text_column(path: str, reading: Reading) -> str:
    if not cols.is_csv(path):
        raise ValueError(f"--columns must name the column of {path} that holds the text.")
    file = cols.Csv.open(Path(path), reading.header, reading.delimiter)
    found = [column.name for column in file.describe()[0] if column.kind == "text"]
    found = [name for name in found if name != reading.id]
    if len(found) != 1:
        raise ValueError(
            f"--columns must name the column that holds the text: {name_of(reading)} has "
            f"{len(found)} columns of text"
            + (f", {', '.join(map(repr, found[:8]))}." if found else ".")
        )
    screen.note(f"the documents are in column {found[0]!r}, the only one of text.")
    return found[0]


def counts(path: str, reading: Reading, features: Features, preparation: Preparation) -> Table:
    """Counts of terms as rows of TF-IDF weights."""
    given = whole(open_blocks(path))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        if preparation.kind == "counts":
            names: Any = preparation.feature_names
            X = preparation.weigh(given)
        else:
            preparation, X = preparation.learn_weights(given)
            names = feature_names(features, X)
            if names is not None:
                preparation = replace(preparation, feature_names=np.asarray(names, dtype=object))
    _note_empty(X)
    return Table(
        name=name_of(reading),
        X=X,
        preparation=preparation,
        total=X.shape[0],
        feature_names=names,
    )


def _note_empty(X: Any) -> None:
    empty = len(without_terms(X))
    if empty:
        documents = "document has no known term" if empty == 1 else "documents have no known term"
        screen.note(f"{empty:,} {documents} and the label -1.")
