"""Opens DATA: a file, standard input, texts or a database."""

from __future__ import annotations

import dataclasses
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from glob import glob
from pathlib import Path

from exactmeans.cli.groups import Features, Reading
from exactmeans.cli.models import Model
from exactmeans.cli.numbers import numbers
from exactmeans.cli.queries import check_query, query_numbers
from exactmeans.cli.table import Table
from exactmeans.cli.texts import counts, texts
from exactmeans.database.connect import is_uri
from exactmeans.preparation import Preparation

_DELIMITERS = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "space": " "}
_PLAIN = Features()


@contextmanager
def opened(
    reading: Reading, features: Features = _PLAIN, model: Model | None = None
) -> Iterator[Table]:
    """DATA as rows; as the model's own were made, if there is a model."""
    reading = _checked(reading, features)
    preparation = Preparation() if model is None else Preparation.of(model)
    is_text = features.text or preparation.kind == "text"
    with _place(reading, is_text=is_text) as place:
        if is_text:
            yield texts(place, reading, features, preparation)
        elif is_uri(place):
            yield query_numbers(reading, features, preparation, model)
        elif features.tfidf or preparation.kind == "counts":
            yield counts(place, reading, features, preparation)
        else:
            yield numbers(place, reading, features, preparation, model)


def _checked(reading: Reading, features: Features) -> Reading:
    if reading.na not in ("error", "drop", None):
        raise ValueError(f"--na must be error or drop, not {reading.na!r}.")
    if features.stop_words not in ("english", "none"):
        raise ValueError(f"--stop-words must be english or none, not {features.stop_words!r}.")
    for option, given in (
        ("--min-df", features.min_df is not None),
        ("--stop-words", features.stop_words != "english"),
    ):
        if given and not features.text:
            raise ValueError(f"{option} must be given with --text only.")
    if features.text and features.tfidf:
        raise ValueError("--tfidf must not be given with --text, whose terms are weighed anyway.")
    check_query(reading, features)
    if reading.delimiter is not None:
        delimiter = _DELIMITERS.get(reading.delimiter, reading.delimiter)
        if len(delimiter) != 1:
            raise ValueError(f"--delimiter must be one character, not {reading.delimiter!r}.")
        reading = dataclasses.replace(reading, delimiter=delimiter)
    return reading


@contextmanager
def _place(reading: Reading, *, is_text: bool) -> Iterator[str]:
    """The path or URI of DATA; standard input is copied to a file, to be read more than once."""
    if is_uri(reading.data):
        yield reading.data
        return
    if reading.data != "-":
        yield existing(reading.data)
        return
    with tempfile.TemporaryDirectory(prefix="exactmeans-") as folder:
        path = Path(folder) / ("input.txt" if is_text else "input.csv")
        with path.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        if not path.stat().st_size:
            raise ValueError("standard input is empty: pipe a CSV file into the command.")
        try:
            yield str(path)
        except ValueError as error:
            raise ValueError(str(error).replace(str(path), "standard input")) from None


def existing(data: str) -> str:
    """The name of a file, folder or pattern; one sentence if it is not there or empty."""
    path = Path(data)
    if not path.exists():
        if not glob(data, recursive=True):
            raise ValueError(f"there is no file {data!r}.")
        return data
    if path.suffix == ".safetensors":
        raise ValueError(f"{data} is a model, not data: exactmeans info {data} describes it.")
    if path.is_file() and not path.stat().st_size:
        raise ValueError(f"{data} is empty.")
    return data
