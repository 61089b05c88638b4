"""Columns of a data frame, checked before Spark runs anything."""

from __future__ import annotations

from typing import Any, NoReturn

from pyspark.ml.linalg import VectorUDT
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, NumericType


def check_frame(dataset: Any) -> None:
    if not hasattr(dataset, "sparkSession"):
        raise TypeError(
            f"dataset must be a Spark data frame, but it is a {type(dataset).__name__}: "
            "spark.createDataFrame makes one of a pandas frame."
        )


def check_features(dataset: Any, names: str | list[str]) -> None:
    """Refuse names that the data frame does not have, letter for letter, as batches have them."""
    for name in [names] if isinstance(names, str) else names:
        if name not in dataset.columns:
            _refuse("featuresCol", name, dataset)


def check_prediction(dataset: Any, name: str) -> None:
    if name in dataset.columns:
        raise ValueError(f"predictionCol must be a new column, but {name!r} exists already.")


def width_of(dataset: Any, names: str | list[str]) -> int | None:
    """The number of features if the schema has it, as feature transformers write it there."""
    check_features(dataset, names)
    if isinstance(names, list):
        return len(names)
    width = dataset.schema[names].metadata.get("ml_attr", {}).get("num_attrs")
    return None if width is None else int(width)


def ids(dataset: Any, name: str) -> Any:
    """The column of ids."""
    _check_column("idCol", name, dataset)
    return _column(dataset, name)


def features(dataset: Any, names: str | list[str]) -> Any:
    """The column of features as structs or as arrays of floats."""
    check_features(dataset, names)
    if isinstance(names, list):
        for name in names:
            if not isinstance(dataset.schema[name].dataType, NumericType):
                raise ValueError(f"featuresCol must name numeric columns, but {name!r} is not one.")
        return F.array(*(_column(dataset, name).cast("double") for name in names))
    kind = dataset.schema[names].dataType
    if isinstance(kind, VectorUDT):
        return F.unwrap_udt(_column(dataset, names))
    if isinstance(kind, ArrayType) and isinstance(kind.elementType, NumericType):
        single = kind.elementType.typeName() == "float"
        return _column(dataset, names).cast("array<float>" if single else "array<double>")
    raise ValueError(
        f"featuresCol must be a column of vectors or of arrays of numbers, or a list of numeric "
        f"columns, but {names!r} is {kind.simpleString()}."
    )


def weights(dataset: Any, name: str) -> Any:
    """The column of weights as floats."""
    _check_column("weightCol", name, dataset)
    column = _column(dataset, name)
    kind = dataset.select(column).schema[0].dataType
    if not isinstance(kind, NumericType):
        raise ValueError(
            f"weightCol must be a column of numbers, but {name!r} is {kind.simpleString()}."
        )
    return column.cast("double")


def _column(dataset: Any, name: str) -> Any:
    """Spark takes a name with dots for a field of a struct, unless backticks quote it."""
    quoted = name.replace("`", "``")
    return F.col(f"`{quoted}`" if name in dataset.columns else name)


def _check_column(parameter: str, name: str, dataset: Any) -> None:
    """Spark ignores case; names with dots or backticks may be fields of structs."""
    there = {column.lower() for column in dataset.columns}
    if name.lower() not in there and not set(name) & set(".`"):
        _refuse(parameter, name, dataset)


def _refuse(parameter: str, name: str, dataset: Any) -> NoReturn:
    raise ValueError(
        f"{parameter} must name a column of the data frame, but {name!r} is none: it has "
        f"{', '.join(dataset.columns)}."
    )
