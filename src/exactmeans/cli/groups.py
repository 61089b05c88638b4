"""Options in groups, which commands share as a whole."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, get_type_hints

from exactmeans.cli import options


@dataclass(frozen=True)
class Reading:
    """How DATA is read."""

    data: options.Data
    columns: options.Columns = field(default_factory=list)
    id: options.Id = None
    header: options.Header = None
    delimiter: options.Delimiter = None
    na: options.Na = None
    zero_based: options.ZeroBased = None
    query: options.Query = None
    key: options.Key = None
    layout: options.Layout = "columns"


@dataclass(frozen=True)
class Features:
    """How columns or texts of DATA become features; a fitted model stores this."""

    exclude: options.Exclude = field(default_factory=list)
    weights: options.Weights = None
    standardize: options.Standardize = False
    feature_names: options.FeatureNames = None
    text: options.IsText = False
    tfidf: options.Tfidf = False
    stop_words: options.StopWords = "english"
    min_df: options.MinDf = None


@dataclass(frozen=True)
class Clustering:
    """Parameters of the estimator that every fit takes."""

    metric: options.Metric = None
    init: options.Init = "k-means++"
    algorithm: options.Algorithm = "auto"
    seed: options.Seed = 0
    jobs: options.Jobs = None
    memory_limit: options.MemoryLimit = None


_GROUPS = (Reading, Features, Clustering)


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """A command that takes groups of options as objects, as typer requires them: one by one."""
    hints = get_type_hints(command, include_extras=True)
    own: list[inspect.Parameter] = []
    members: dict[str, tuple[Any, list[str]]] = {}
    for name, parameter in inspect.signature(command).parameters.items():
        group = hints[name]
        if group not in _GROUPS:
            own.append(parameter.replace(annotation=group))
            continue
        kinds = get_type_hints(group, include_extras=True)
        fields = dataclasses.fields(group)
        members[name] = group, [f.name for f in fields]
        own += [_parameter(f, kinds[f.name]) for f in fields]

    @functools.wraps(command)
    def call(**given: Any) -> None:
        groups = {
            name: group(**{member: given.pop(member) for member in names})
            for name, (group, names) in members.items()
        }
        command(**groups, **given)

    named = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own]
    call.__signature__ = inspect.Signature(named)  # type: ignore[attr-defined]
    call.__annotations__ = {p.name: p.annotation for p in named}
    return call


def _parameter(own: dataclasses.Field[Any], annotation: Any) -> inspect.Parameter:
    default = own.default
    if own.default_factory is not dataclasses.MISSING:
        default = own.default_factory()
    elif default is dataclasses.MISSING:
        default = inspect.Parameter.empty
    return inspect.Parameter(
        own.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )
