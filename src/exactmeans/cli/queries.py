"""DATA in a database: rows and texts of a query, and the table that labels go into."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exactmeans.cli import columns as cols
from exactmeans.cli import screen
from exactmeans.cli.groups import Features, Reading
from exactmeans.cli.models import Model
from exactmeans.cli.numbers import named, standardised
from exactmeans.cli.table import Table, name_of
from exactmeans.data.arrow import pyarrow_or_refuse
from exactmeans.data.record_batches import key_array
from exactmeans.data.sql import LAYOUT_NAMES, Keys, open_sql
from exactmeans.data.sql_layouts import ascending, refuse_repeats, refuse_unknown
from exactmeans.database.connect import connect, is_uri
from exactmeans.preparation import Preparation
from exactmeans.sql.labels import check_key, write_labels
from exactmeans.sql.write import check_target, table_exists


def check_query(reading: Reading, features: Features) -> None:
    """Refuse options of databases for files, and those of files for databases."""
    of_database = {"--query": reading.query, "--key": reading.key}
    if not is_uri(reading.data):
        for option, given in of_database.items():
            if given is not None:
                raise ValueError(
                    f"{option} must go with a database, but DATA is a file: give a URI such as "
                    "postgresql://host/name, duckdb:///file or sqlite:///file."
                )
        return
    for option, given in of_database.items():
        if given is None:
            raise ValueError(f"{option} must be given for a database: {_WHY[option]}.")
    if reading.layout not in LAYOUT_NAMES:
        raise ValueError(
            f"--layout must be one of {', '.join(LAYOUT_NAMES)}, not {reading.layout!r}."
        )
    of_files: dict[str, tuple[Any, str]] = {
        "--id": (reading.id, "say --key"),
        "--exclude": (
            features.exclude,
            "leave columns out in --query, or name others by --columns",
        ),
        "--tfidf": (features.tfidf, "weigh counts in --query"),
    }
    for option, (wrong, instead) in of_files.items():
        if wrong:
            raise ValueError(f"{option} must not be given for a database: {instead}.")


_WHY = {
    "--query": 'such as --query "SELECT id, x, y FROM t"',
    "--key": "it names the column that identifies the rows, such as --key id",
}


def query_numbers(
    reading: Reading, features: Features, preparation: Preparation, model: Model | None
) -> Table:
    """The rows of a query, ordered by key; as the model's own were made, if there is a model."""
    if preparation.kind == "counts":
        raise ValueError("MODEL must be of numbers or of text: --tfidf takes files only.")
    new = model is None
    chosen: Any = cols.split(reading.columns) or None
    if chosen is None and reading.layout == "columns":
        chosen = preparation.columns
    na: Any = reading.na or preparation.na
    assert reading.query is not None
    assert reading.key is not None
    layout: Any = reading.layout
    source = open_sql(
        reading.query,
        reading.data,
        key=reading.key,
        features=chosen,
        layout=layout,
        weight=features.weights,
        nulls=na,
        n_features=None if model is None or layout != "coo" else model.n_features_in_,
    )
    if source.n_dropped:
        screen.note(f"rows left out because they lack a value: {source.n_dropped:,}.")
    own: Any = source.names if layout == "columns" else None
    preparation = replace(preparation, columns=own, na=na)
    X: Any = source
    if new:
        X, preparation = standardised(X, features, preparation)
    else:
        X = preparation.scale(X)
    names, preparation = named(X, features, preparation, new=new)
    keys = Keys(source.keys, source.key, source.key_type)
    return Table(
        name=name_of(reading),
        X=X,
        preparation=preparation,
        total=X.shape[0],
        ids=shown(keys),
        id_name=keys.name,
        weights=source.sample_weight,
        feature_names=X.feature_names if names is None else names,
        keys=keys,
    )


def query_texts(reading: Reading, columns: list[str]) -> tuple[list[str], Keys, list[str]]:
    """The documents of a query, ordered by key, their keys and the columns that they were in."""
    assert reading.query is not None
    assert reading.key is not None
    pa = pyarrow_or_refuse()
    with connect(reading.data) as database, closing(database.batches(reading.query)) as batches:
        found = pa.Table.from_batches(list(batches))
    refuse_unknown(found.schema.names, reading.key, "key")
    columns = columns or [name for name in found.schema.names if name != reading.key]
    for name in columns:
        refuse_unknown(found.schema.names, name, "features")
    keys = key_array(found.column(reading.key))
    if keys.null_count:
        raise ValueError(f"key must not be NULL, but column {reading.key!r} is NULL in a row.")
    order = ascending(keys)
    if order is not None:
        keys, found = keys.take(order), found.take(order)
    refuse_repeats(keys, reading.key)
    parts = [found.column(name).to_pylist() for name in columns]
    texts = [
        " ".join("" if cell is None else str(cell) for cell in row)
        for row in zip(*parts, strict=True)
    ]
    return texts, Keys(keys, reading.key, found.schema.field(reading.key).type), columns


def shown(keys: Keys) -> list[str]:
    """Keys as people read them."""
    return [str(key) for key in keys.column().to_pylist()]


class Into(NamedTuple):
    """The table that --into names: checked before the work begins, written when it is done."""

    uri: str
    table: str
    schema: str | None
    force: bool

    @classmethod
    def checked(
        cls, reading: Reading, table: str | None, schema: str | None, *, force: bool
    ) -> Into | None:
        """Refuse what could not be written later."""
        if table is None:
            if schema is not None:
                raise ValueError("--schema must go with --into, whose table lies in it.")
            return None
        if not is_uri(reading.data):
            raise ValueError("--into must go with a database, but DATA is a file: say --labels.")
        check_target(table, "fail", schema, "--into")
        check_key(reading.key)
        if not force:
            with connect(reading.data) as database:
                if table_exists(database, table, schema):
                    raise ValueError(f"--into: there is a table {table!r}; --force replaces it.")
        return cls(reading.data, table, schema, force)

    def write(self, table: Table, labels: NDArray[Any], distance: NDArray[Any]) -> None:
        assert table.keys is not None
        far = np.where(labels < 0, np.nan, distance).astype(np.float64)
        write_labels(
            self.uri,
            self.table,
            table.keys,
            labels.astype(np.int32),
            far,
            if_exists="replace" if self.force else "fail",
            schema=self.schema,
        )
