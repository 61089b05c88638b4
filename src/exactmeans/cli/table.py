"""DATA as rows: files, standard input and texts, with what was guessed said in notes."""

from __future__ import annotations

import gzip
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from glob import glob
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exactmeans.cli import columns as cols
from exactmeans.cli import screen
from exactmeans.cli.options import Reading
from exactmeans.data.open import open_blocks
from exactmeans.data.svmlight import SvmlightRows
from exactmeans.preparation import Preparation, open_for, whole
from exactmeans.text import without_terms

_CSV = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
_ARROW = (".parquet", ".arrow", ".feather")
_FEW = 50  # documents; below that, terms of single documents are kept
_SCALES = 20.0  # how far standard deviations may be apart before a note says so


@dataclass(frozen=True)
class Table:
    """Rows and what is known about them."""

    name: str
    X: Any
    preparation: Preparation
    kept: NDArray[np.intp] | None = None  # numbers of rows in DATA, if some were left out
    total: int = 0  # rows in DATA
    ids: list[str] | None = None  # of the rows in DATA
    id_name: str = "row"
    weights: NDArray[np.float64] | None = None  # of the rows that are kept
    texts: list[str] | None = None  # of the rows that are kept
    feature_names: Any = None

    @property
    def kept_ids(self) -> list[str] | None:
        if self.ids is None or self.kept is None:
            return self.ids
        return [self.ids[i] for i in self.kept]

    @property
    def units(self) -> tuple[Any, Any] | None:
        """Offsets and factors of standardised columns."""
        own = self.preparation
        return None if own.offsets is None else (own.offsets, own.factors)


@contextmanager
def opened(reading: Reading, model: Any = None) -> Iterator[Table]:
    """DATA as rows; as the model's own were made, if there is a model."""
    reading = _checked(reading)
    with _named_file(reading) as path:
        preparation = Preparation() if model is None else Preparation.of(model)
        if reading.text or preparation.kind == "text":
            yield _text(path, reading, preparation)
        elif reading.tfidf or preparation.kind == "counts":
            yield _counts(path, reading, preparation)
        else:
            yield _numbers(path, reading, preparation, model)


def _checked(reading: Reading) -> Reading:
    if reading.na not in ("error", "drop", None):
        raise ValueError(f"--na must be error or drop, not {reading.na!r}.")
    if reading.stop_words not in ("english", "none"):
        raise ValueError(f"--stop-words must be english or none, not {reading.stop_words!r}.")
    if reading.text and reading.tfidf:
        raise ValueError("--tfidf must not be given with --text, whose terms are weighed anyway.")
    if reading.delimiter is not None:
        named = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "space": " "}
        delimiter = named.get(reading.delimiter, reading.delimiter)
        if len(delimiter) != 1:
            raise ValueError(f"--delimiter must be one character, not {reading.delimiter!r}.")
        reading = reading._replace(delimiter=delimiter)
    return reading


@contextmanager
def _named_file(reading: Reading) -> Iterator[str]:
    """The path of DATA; standard input is copied to a file that is read as often as needed."""
    if reading.data != "-":
        yield _existing(reading.data)
        return
    with tempfile.TemporaryDirectory(prefix="exactmeans-") as folder:
        path = Path(folder) / ("input.txt" if reading.text else "input.csv")
        with path.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        if not path.stat().st_size:
            raise ValueError("standard input is empty: pipe a CSV file into the command.")
        yield str(path)


def _existing(data: str) -> str:
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


def name_of(reading: Reading) -> str:
    return "standard input" if reading.data == "-" else Path(reading.data).name


# Numbers ------------------------------------------------------------------------------------------


def _numbers(path: str, reading: Reading, preparation: Preparation, model: Any) -> Table:
    new = model is None
    chosen = _chosen_columns(path, reading, preparation, new=new)
    na = reading.na or preparation.na
    preparation = replace(preparation, columns=chosen, na=na)
    options: dict[str, Any] = {}
    if reading.header is not None:
        options["header"] = reading.header
    if reading.delimiter is not None:
        options["delimiter"] = reading.delimiter
    if reading.zero_based is not None:
        options["zero_based"] = reading.zero_based
    if new:
        X: Any = open_blocks(path, columns=chosen, na=na, **options)
        if reading.standardize:
            preparation = preparation.standardised(X)
            X = preparation.scale(X)
    else:
        X = open_for(model, preparation, path, **options)
    for guess in X.guesses:
        screen.note(f"{_shown(guess, path, reading)}{_how_to_say(guess)}.")
    kept = getattr(X, "kept", getattr(getattr(X, "_source", None), "kept", None))
    total = int(X.edges[-1]) if kept is None else int(_total(X))
    if kept is not None and len(kept) < total:
        screen.note(
            f"{total - len(kept):,} of {total:,} rows lack a value and are left out; their label "
            "is -1."
        )
    ids = None if reading.id is None else _cells(path, reading, reading.id)
    weights = None if reading.weights is None else _weights(path, reading, kept)
    for what, cells in (("--id", ids),):
        if cells is not None and len(cells) != total:
            raise ValueError(f"{what} must have a cell for each of the {total} rows of {path}.")
    names = _feature_names(reading, X) if new else preparation.feature_names
    if names is None and isinstance(X, SvmlightRows):  # by the indices that the file has
        names = [f"index {f + (not X.zero_based)}" for f in range(X.shape[1])]
    if reading.feature_names is not None and X.names is None and new:
        preparation = replace(preparation, feature_names=np.asarray(names, dtype=object))
    if new and not reading.standardize:
        _note_scales(X, names)
    return Table(
        name=name_of(reading),
        X=X,
        preparation=preparation,
        kept=kept if kept is not None and len(kept) < total else None,
        total=total,
        ids=None if ids is None else [str(cell) for cell in ids],
        id_name=reading.id or "row",
        weights=weights,
        feature_names=X.feature_names if names is None else names,
    )


def _total(X: Any) -> int:
    return int(getattr(X, "total", None) or X._source.total)


def _shown(guess: str, path: str, reading: Reading) -> str:
    return guess.replace(path, name_of(reading))


def _how_to_say(guess: str) -> str:
    if "indices" in guess:
        return "; --zero-based or --one-based says it"
    return "; --no-header if it is data" if guess.endswith("names") else "; --header if it is names"


def _is(path: str, suffixes: tuple[str, ...]) -> bool:
    return path.lower().endswith(suffixes)


def _first_file(path: str) -> Path:
    found = Path(path)
    return found if found.exists() else Path(sorted(glob(path, recursive=True))[0])


def _chosen_columns(
    path: str, reading: Reading, preparation: Preparation, *, new: bool
) -> list[str] | list[int] | None:
    """Names, or numbers where there are none; None for all."""
    without = [*reading.exclude, *([reading.id] if reading.id else [])]
    without += [reading.weights] if reading.weights else []
    if not new and not reading.columns:
        return preparation.columns
    if _is(path, _CSV):
        file = cols.Csv.open(_first_file(path), reading.header, reading.delimiter)
        names, width = file.names, file.width
        chosen = cols.choose(reading.columns, without, names, width, path)
        if new:
            _check_columns(file, chosen, reading)
    elif reading.columns or without:
        names = None
        if _is(path, _ARROW) or Path(path).is_dir():
            import pyarrow.dataset

            kind = "ipc" if _is(path, (".arrow", ".feather")) else "parquet"
            data = pyarrow.dataset.dataset(str(_first_file(path)), format=kind, partitioning="hive")
            names = data.schema.names
            width = len(names)
        else:
            plain: Any = open_blocks(path)
            width = plain.shape[1]
        chosen = cols.choose(reading.columns, without, names, width, path)
    else:
        return None
    if len(chosen) == width and chosen == list(range(width)):
        return [names[f] for f in chosen] if names is not None else None
    return chosen if names is None else [names[f] for f in chosen]


def _check_columns(file: cols.Csv, chosen: list[int], reading: Reading) -> None:
    """Refuse text, by the name of its column; tell of numbers that count the rows."""
    described, _ = file.describe()
    name = name_of(reading)
    texts = [described[f] for f in chosen if described[f].kind == "text"]
    if texts:
        row, cell = texts[0].example or (0, "")
        others = f" (and {len(texts) - 1} more)" if len(texts) > 1 else ""
        leave = ",".join(_quoted(column.name) for column in texts)
        raise ValueError(
            f"column {texts[0].name!r}{others} of {name} holds text, {cell!r} in row {row}: leave "
            f"it out with --exclude {leave}, or name the columns to use with --columns."
        )
    if reading.na != "drop":
        for f in chosen:
            if described[f].missing:
                raise ValueError(
                    f"column {described[f].name!r} of {name} lacks {described[f].missing} values, "
                    f"the first in row {described[f].first_missing}: --na drop leaves such rows "
                    "out, --exclude the column."
                )
    for f in chosen:
        if described[f].counts_up and reading.id is None and not reading.columns:
            screen.note(
                f"column {described[f].name!r} of {name} counts up by one; if it numbers the rows, "
                f"say --id {_quoted(described[f].name)}."
            )


def _quoted(name: str) -> str:
    """For a shell."""
    return name if name.replace("_", "").isalnum() else f"'{name}'"


def _cells(path: str, reading: Reading, name: str) -> list[Any]:
    if _is(path, _CSV):
        files = [Path(path)] if Path(path).exists() else sorted(map(Path, glob(path)))
        return [
            cell
            for file in files
            for cell in cols.Csv.open(file, reading.header, reading.delimiter).column(name)
        ]
    if _is(path, _ARROW) or Path(path).is_dir():
        return cols.parquet_column(Path(path), name)
    raise ValueError(f"{name!r} must be a column of a CSV, Parquet or Arrow file, not of {path}.")


def _weights(path: str, reading: Reading, kept: Any) -> NDArray[np.float64]:
    assert reading.weights is not None
    cells = _cells(path, reading, reading.weights)
    for row in range(len(cells)) if kept is None else kept:
        try:
            float(cells[row])
        except (TypeError, ValueError):
            raise ValueError(
                f"--weights must be numbers, but row {row}, column {reading.weights!r} of {path} "
                f"is {cells[row]!r}."
            ) from None
    chosen = cells if kept is None else [cells[row] for row in kept]
    return np.array(chosen, dtype=np.float64)


def _feature_names(reading: Reading, X: Any) -> list[str] | None:
    if reading.feature_names is None:
        return None
    path = Path(reading.feature_names)
    if not path.is_file():
        raise ValueError(f"there is no file {reading.feature_names!r} (--feature-names).")
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


# Text ---------------------------------------------------------------------------------------------


def _text(path: str, reading: Reading, preparation: Preparation) -> Table:
    texts, names, columns = _documents(path, reading, preparation)
    if not texts:
        raise ValueError(f"{name_of(reading)} has no documents.")
    preparation = replace(preparation, columns=columns)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # rows of zeros are counted below
        if preparation.kind == "text":
            X = preparation.weigh(texts)
        else:
            least = reading.min_df or (1 if len(texts) < _FEW else 2)
            stop = None if reading.stop_words == "none" else reading.stop_words
            try:
                preparation, X = preparation.learn_terms(texts, min_df=least, stop_words=stop)
            except ValueError as error:
                raise ValueError(
                    f"no term is left of the documents of {name_of(reading)}: lower --min-df or "
                    f"say --stop-words none ({str(error).rstrip('.')})."
                ) from None
            screen.note(
                f"{len(texts):,} documents, {X.shape[1]:,} terms that {least} or more of them have"
                + (", without English stop words" if stop else "")
                + "; --min-df and --stop-words change that."
            )
    _note_empty(X)
    ids = None if reading.id is None else [str(c) for c in _cells(path, reading, reading.id)]
    return Table(
        name=name_of(reading),
        X=X,
        preparation=preparation,
        total=len(texts),
        ids=ids or names,
        id_name=reading.id or ("file" if names else "row"),
        texts=texts,
        feature_names=preparation.terms,
    )


def _documents(
    path: str, reading: Reading, preparation: Preparation
) -> tuple[list[str], list[str] | None, list[str] | None]:
    """The documents, their names if they are files, and the columns that they were in."""
    found = Path(path)
    if found.is_dir() and not list(found.glob("*.parquet")):
        files = sorted(file for file in found.rglob("*") if file.is_file())
        texts = [file.read_text(encoding="utf-8", errors="replace") for file in files]
        return texts, [str(file.relative_to(found)) for file in files], None
    if not found.exists():
        raise ValueError(f"--text takes one file or folder, not the pattern {path!r}.")
    if _is(path, _CSV) or _is(path, _ARROW):
        names = cols.split(reading.columns) or [str(c) for c in preparation.columns or []]
        if not names:
            names = [_only_text_column(path, reading)]
        parts = [_cells(path, reading, name) for name in names]
        return (
            [" ".join(str(c or "") for c in row) for row in zip(*parts, strict=True)],
            None,
            names,
        )
    read = gzip.open if found.suffix == ".gz" else open
    with read(found, "rt", encoding="utf-8", errors="replace") as file:
        return [line.rstrip("\r\n") for line in file], None, None


def _only_text_column(path: str, reading: Reading) -> str:
    if not _is(path, _CSV):
        raise ValueError(f"--columns must name the column of {path} that holds the text.")
    file = cols.Csv.open(Path(path), reading.header, reading.delimiter)
    texts = [column.name for column in file.describe()[0] if column.kind == "text"]
    if len(texts) != 1:
        raise ValueError(
            f"--columns must name the column that holds the text: {name_of(reading)} has "
            f"{len(texts)} columns of text"
            + (f", {', '.join(map(repr, texts[:8]))}." if texts else ".")
        )
    screen.note(f"the documents are in column {texts[0]!r}, the only one of text.")
    return texts[0]


def _counts(path: str, reading: Reading, preparation: Preparation) -> Table:
    source: Any = open_blocks(path)
    counts = whole(source)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        if preparation.kind == "counts":
            names: Any = preparation.feature_names
            X = preparation.weigh(counts)
        else:
            preparation, X = preparation.learn_weights(counts)
            names = _feature_names(reading, X)
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
