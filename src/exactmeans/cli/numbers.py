"""Rows of numbers from files; notes say what was guessed."""

from __future__ import annotations

import gzip
from dataclasses import replace
from glob import glob
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exactmeans.cli import columns as cols
from exactmeans.cli import screen
from exactmeans.cli.groups import Features, Reading
from exactmeans.cli.models import Model
from exactmeans.cli.table import Table, name_of
from exactmeans.data.open import open_blocks
from exactmeans.data.svmlight import SvmlightRows
from exactmeans.preparation import Preparation, open_for

_SCALES = 20.0  # how far standard deviations may be apart before a note says so


def numbers(
    path: str, reading: Reading, features: Features, preparation: Preparation, model: Model | None
) -> Table:
    """The rows of a file; as the model's own were made, if there is a model."""
    new = model is None
    chosen = _chosen_columns(path, reading, features, preparation, new=new)
    na = reading.na or preparation.na
    preparation = replace(preparation, columns=chosen, na=na)
    given = {name: getattr(reading, name) for name in ("header", "delimiter", "zero_based")}
    options = {name: value for name, value in given.items() if value is not None}
    if new:
        X: Any = open_blocks(path, columns=chosen, na=na, **options)
        X, preparation = standardised(X, features, preparation)
    else:
        X = _opened_for(model, preparation, path, reading, options)
    for guess in X.guesses:
        screen.note(f"{guess.replace(path, name_of(reading))}{_how_to_say(guess)}.")
    kept, total = _kept(X)
    ids = None if reading.id is None else _cells(path, reading, reading.id)
    if ids is not None and len(ids) != total:
        raise ValueError(f"--id must have a cell for each of the {total} rows of {path}.")
    names, preparation = named(X, features, preparation, new=new)
    if names is None and isinstance(X, SvmlightRows):  # by the indices that the file has
        names = [f"index {f + (not X.zero_based)}" for f in range(X.shape[1])]
    return Table(
        name=name_of(reading),
        X=X,
        preparation=preparation,
        kept=kept,
        total=total,
        ids=None if ids is None else [str(cell) for cell in ids],
        id_name=reading.id or "row",
        weights=_weights(path, reading, features, kept),
        feature_names=X.feature_names if names is None else names,
    )


def _opened_for(
    model: Any, preparation: Preparation, path: str, reading: Reading, options: dict[str, Any]
) -> Any:
    try:
        return open_for(model, preparation, path, **options)
    except ValueError as error:
        if reading.columns:
            raise
        whose = "the columns of the fit must be in"  # nobody said --columns
        raise ValueError(str(error).replace("columns must be in", whose, 1)) from None


def standardised(X: Any, features: Features, preparation: Preparation) -> tuple[Any, Preparation]:
    """The rows of a new model, standardised with --standardize."""
    if features.standardize:
        preparation = preparation.standardised(X)
        X = preparation.scale(X)
    return X, preparation


def named(
    X: Any, features: Features, preparation: Preparation, *, new: bool
) -> tuple[Any, Preparation]:
    """Names of the features beside those of X; notes if one of them outweighs another."""
    if not new:
        return preparation.feature_names, preparation
    names = feature_names(features, X)
    if names is not None and X.names is None:
        preparation = replace(preparation, feature_names=np.asarray(names, dtype=object))
    if not features.standardize:
        _note_scales(X, names)
    return names, preparation


def feature_names(features: Features, X: Any) -> list[str] | None:
    """The names of --feature-names."""
    if features.feature_names is None:
        return None
    path = Path(features.feature_names)
    if not path.is_file():
        raise ValueError(f"there is no file {features.feature_names!r} (--feature-names).")
    read = gzip.open if path.suffix == ".gz" else open
    with read(path, "rt", encoding="utf-8") as file:
        names = [line.rstrip("\r\n") for line in file]
    while names and not names[-1]:
        names.pop()
    if len(names) != X.shape[1]:
        raise ValueError(
            f"--feature-names must have a line for each of the {X.shape[1]} columns, but "
            f"{path.name} has {len(names)}."
        )
    return names


def _kept(X: Any) -> tuple[NDArray[np.intp] | None, int]:
    """Which rows of the file X has, if some lack a value, and how many rows the file has."""
    source = X if hasattr(X, "kept") else getattr(X, "_source", X)  # below ScaledRows
    kept = getattr(source, "kept", None)
    if kept is None or len(kept) == source.total:
        return None, int(X.edges[-1])
    screen.note(
        f"{source.total - len(kept):,} of {source.total:,} rows lack a value and are left out; "
        "their label is -1."
    )
    return kept, int(source.total)


def _how_to_say(guess: str) -> str:
    if "indices" in guess:
        return "; --zero-based or --one-based sets it"
    return "; --no-header if it is data" if guess.endswith("names") else "; --header if it is names"


def _chosen_columns(
    path: str, reading: Reading, features: Features, preparation: Preparation, *, new: bool
) -> list[str] | list[int] | None:
    """Names, or numbers where there are none; None for all."""
    if not new and not reading.columns:
        return preparation.columns
    without = [*features.exclude, *(name for name in (reading.id, features.weights) if name)]
    if cols.is_csv(path):
        file = cols.Csv.open(_first_file(path), reading.header, reading.delimiter)
        names, width = file.names, file.width
        chosen = cols.choose(reading.columns, without, names, width, path)
        if new:
            _check_columns(file, chosen, reading)
    elif reading.columns or without:
        names, width = _names_and_width(path)
        chosen = cols.choose(reading.columns, without, names, width, path)
    else:
        return None
    if names is not None:
        return [names[f] for f in chosen]
    return None if chosen == list(range(width)) else chosen


def _names_and_width(path: str) -> tuple[list[str] | None, int]:
    if not cols.is_arrow(path):
        source: Any = open_blocks(path)
        return source.feature_names, source.shape[1]
    names = cols.arrow_dataset(_first_file(path)).schema.names
    return names, len(names)


def _first_file(path: str) -> Path:
    found = Path(path)
    return found if found.exists() else Path(sorted(glob(path, recursive=True))[0])


def _check_columns(file: cols.Csv, chosen: list[int], reading: Reading) -> None:
    """Refuse text, by the name of its column; note columns that number the rows."""
    described, _ = file.describe()
    name = name_of(reading)
    texts = [described[f] for f in chosen if described[f].kind == "text"]
    lacking = [described[f] for f in chosen if described[f].missing and described[f] not in texts]
    if reading.na == "drop":
        lacking = []
    if texts:
        row, cell = texts[0].example or (0, "")
        leave = ",".join(_quoted(column.name) for column in texts)
        too = f"; {_and_more(lacking)} lacks values, so add --na drop" if lacking else ""
        raise ValueError(
            f"{_and_more(texts)} of {name} holds text, {cell!r} in row {row}: leave it out with "
            f"--exclude {leave}, or name the columns to use with --columns{too}."
        )
    if lacking:
        raise ValueError(
            f"{_and_more(lacking)} of {name} lacks {lacking[0].missing} values, the first in row "
            f"{lacking[0].first_missing}: --na drop leaves such rows out, --exclude the column."
        )
    for f in chosen:
        if described[f].counts_up and reading.id is None and not reading.columns:
            screen.note(
                f"column {described[f].name!r} of {name} counts up by one; if it numbers the rows, "
                f"say --id {_quoted(described[f].name)}."
            )


def _and_more(columns: list[cols.Column]) -> str:
    """The first of some columns, and how many there are beside it."""
    others = f" (and {len(columns) - 1} more)" if len(columns) > 1 else ""
    return f"column {columns[0].name!r}{others}"


def _quoted(name: str) -> str:
    """For a shell."""
    return name if name.replace("_", "").isalnum() else f"'{name}'"


def _cells(path: str, reading: Reading, name: str) -> list[Any]:
    return cols.cells(path, name, reading.header, reading.delimiter)


def _weights(
    path: str, reading: Reading, features: Features, kept: Any
) -> NDArray[np.float64] | None:
    if features.weights is None:
        return None
    cells = _cells(path, reading, features.weights)
    for row in range(len(cells)) if kept is None else kept:
        try:
            float(cells[row])
        except (TypeError, ValueError):
            raise ValueError(
                f"--weights must be numbers, but row {row}, column {features.weights!r} of {path} "
                f"is {cells[row]!r}."
            ) from None
    chosen = cells if kept is None else [cells[row] for row in kept]
    return np.array(chosen, dtype=np.float64)


def _note_scales(X: Any, names: Any) -> None:
    """Columns of far larger numbers decide the clusters alone."""
    if X.sparse or X.shape[1] < 2:
        return
    spread = np.nanstd(np.asarray(X.read(0), dtype=np.float64), axis=0)
    used = spread[spread > 0]
    if len(used) > 1 and used.max() > _SCALES * used.min():
        own = X.feature_names or names
        f = int(spread.argmax())
        called = f"column {own[f]!r}" if own is not None else f"column {f}"
        screen.note(
            f"{called} varies {used.max() / used.min():.0f} times as much as another and so "
            "outweighs it; --standardize gives all columns the same weight."
        )
