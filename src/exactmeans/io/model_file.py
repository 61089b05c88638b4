"""Models in files: `save` and `load`, through safetensors, never pickle.

A file holds arrays and JSON and nothing that could run. It is replaced at once or not at all
(`files.py`). A digest detects a file that was cut short or altered.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from exactmeans.callbacks import Iteration
from exactmeans.data.arrays import refuse_malformed
from exactmeans.engine.frame import Frame
from exactmeans.engine.limits import BorderRows, LimitedResult, Limits
from exactmeans.fit.policy import Choice
from exactmeans.io.files import replace_file
from exactmeans.parameters import check_path

if TYPE_CHECKING:
    from exactmeans.kmeans import KMeans

__all__ = ["load"]

SCHEMA = 2
CONTENT = "content.json"  # the tensor with all that is not an array; readers cap headers at 100 MB
Tensors: TypeAlias = dict[str, NDArray[Any]]
Estimator = TypeVar("Estimator")

# The only types that a file can bring back, besides arrays, numbers, text and containers of those.
_RECORDS: dict[str, type[Any]] = {
    kind.__name__: kind for kind in (Frame, Choice, Iteration, Limits, LimitedResult, BorderRows)
}
# Estimators that `load` can make, by the name in the file. They register with `loadable`, because
# this module may not import them.
_ESTIMATORS: dict[str, type[Any]] = {}
# These belong to the process, not to the model.
_NOT_KEPT = (
    "_centroids_cache",
    "_router_cache",
    "_metadata_request",
    "_skl_callbacks",
    "_parent_callback_ctx",
)


class Storable(Protocol):
    """A model that files can hold."""

    def get_params(self, deep: bool = True) -> dict[str, Any]: ...

    def _check_file(self) -> None:
        """Refuse attributes that cannot predict; users may have set them, or altered the file."""


def record(kind: type[Estimator]) -> type[Estimator]:
    """Class decorator: files may hold this dataclass of plain values."""
    _RECORDS[kind.__name__] = kind
    return kind


def loadable(estimator: type[Estimator]) -> type[Estimator]:
    """Class decorator: `load` makes this estimator for files that name its class."""
    _ESTIMATORS[estimator.__name__] = estimator
    return estimator


def load(path: str | os.PathLike[str]) -> KMeans:
    """Read a model that `save` wrote.

    Nothing in the file is executed. Parameters that were callables, which files cannot hold, have
    their defaults again.

    Parameters
    ----------
    path : str or path
        The file.

    Returns
    -------
    KMeans, MiniBatchKMeans, KMeansTree or BisectingKMeans
        What was saved; `predict` gives the labels that the saved model gave.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> import exactmeans
    >>> X = np.array([[1., 2], [1, 4], [1, 0], [10, 2], [10, 4], [10, 0]])
    >>> path = tempfile.mkdtemp() + "/model.safetensors"
    >>> exactmeans.KMeans(n_clusters=2, random_state=0).fit(X).save(path)
    >>> exactmeans.load(path).predict(X)
    array([1, 1, 1, 0, 0, 0], dtype=int32)
    """
    return model_of(*read(path, "model"), os.fspath(path))


def model_of(content: Any, tensors: Tensors, where: str) -> KMeans:
    """The model from the result of `content_of`; `where`: its file or table, for errors."""
    try:
        kind = _ESTIMATORS[content["class"]]
        params = {name: decode(value, tensors) for name, value in content["params"].items()}
        model: KMeans = kind(**params)
        fitted = {name: decode(value, tensors) for name, value in content["fitted"].items()}
        model.__dict__.update(fitted)
        model._check_file()
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{where} is not a model that can be read: {error!r}.") from None
    return model


def save(model: Storable, path: str | os.PathLike[str], *, without: Sequence[str] = ()) -> None:
    """Write a fitted model, `without` some of its attributes; `load` reads it."""
    write(path, "model", *content_of(model, without))


def content_of(model: Storable, without: Sequence[str] = ()) -> tuple[dict[str, Any], Tensors]:
    """A fitted model as JSON and tensors."""
    kind = vars(type(model)).get("_saved_as")  # its own: subclasses do not inherit it
    if kind is None:
        raise TypeError(
            f"save must be called on an estimator of exactmeans, but {type(model).__name__} is a "
            "subclass, whose code a file cannot hold: use pickle or joblib."
        )
    model._check_file()
    tensors: Tensors = {}
    params = model.get_params(deep=False)
    content = {
        "class": kind,
        "params": {
            name: encode(value, tensors, name)
            for name, value in params.items()
            if not _callable(value)
        },
        "fitted": {
            name: encode(value, tensors, name)
            for name, value in vars(model).items()
            if name not in params and name not in (*_NOT_KEPT, *without)
        },
    }
    return content, tensors


def _callable(value: Any) -> bool:
    """A callable or a list of some; files hold none. Types such as np.float32 are values."""
    several = isinstance(value, (list, tuple))
    return any(callable(v) and not isinstance(v, type) for v in (value if several else (value,)))


# Values as JSON and tensors -----------------------------------------------------------------------


def encode(value: Any, tensors: Tensors, name: str) -> Any:
    """The JSON form of a value; its arrays go to `tensors`, under names that begin with `name`."""
    if isinstance(value, (np.bool_, np.integer, np.floating)):
        return value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if type(value).__name__ in _RECORDS:
        return {type(value).__name__: encode(_fields(value), tensors, name)["dict"]}
    if isinstance(value, list):
        return [encode(v, tensors, f"{name}.{i}") for i, v in enumerate(value)]
    if isinstance(value, tuple):
        return {"tuple": encode(list(value), tensors, name)}
    if isinstance(value, Mapping):
        return {"dict": {key: encode(v, tensors, f"{name}.{key}") for key, v in value.items()}}
    if isinstance(value, np.ndarray) and value.dtype.kind in "OU":
        return {"strings": [str(v) for v in value.ravel()]}
    if isinstance(value, np.ndarray):
        tensors[name] = np.ascontiguousarray(value)
        return {"array": name}
    if sp.issparse(value):
        anything: Any = value  # SciPy's stubs need the dtype
        csr = sp.csr_matrix(anything)
        parts = [csr.data, csr.indices, csr.indptr, np.array(csr.shape)]
        kind = "csr_array" if isinstance(value, sp.sparray) else "csr_matrix"
        return {kind: encode(parts, tensors, name)}
    if isinstance(value, np.random.RandomState):
        return {"random_state": encode(value.get_state(legacy=False), tensors, name)}
    if isinstance(value, (np.dtype, type)):
        return {"dtype": np.dtype(value).name}
    raise TypeError(f"{name} cannot be saved: it is a {type(value).__name__}.")


def decode(value: Any, tensors: Tensors) -> Any:
    """The value whose JSON form this is."""
    if isinstance(value, list):
        return [decode(v, tensors) for v in value]
    if not isinstance(value, dict):
        return value
    ((kind, inner),) = value.items()
    if kind == "array":
        return tensors[inner]
    if kind == "dict":
        return {key: decode(v, tensors) for key, v in inner.items()}
    if kind == "tuple":
        return tuple(decode(inner, tensors))
    if kind == "strings":
        return np.array(inner, dtype=object)
    if kind == "dtype":
        return np.dtype(inner)
    if kind in ("csr_array", "csr_matrix"):
        data, indices, indptr, shape = decode(inner, tensors)
        make = sp.csr_array if kind == "csr_array" else sp.csr_matrix
        matrix = make((data, indices, indptr), shape=tuple(shape))
        refuse_malformed(matrix, "what is stored as sparse")
        return matrix
    if kind == "random_state":
        state = np.random.RandomState()
        state.set_state(decode(inner, tensors))
        return state
    return _RECORDS[kind](**{key: decode(v, tensors) for key, v in inner.items()})


def _fields(value: Any) -> dict[str, Any]:
    """Of a NamedTuple or a dataclass."""
    if isinstance(value, tuple):
        return dict(zip(_RECORDS[type(value).__name__]._fields, value, strict=True))
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


# Files --------------------------------------------------------------------------------------------


def _safetensors() -> Any:
    try:
        import safetensors.numpy
    except ImportError:
        raise ImportError(
            "Saving and loading need the safetensors package: pip install exactmeans[io]."
        ) from None
    return safetensors


def write(path: str | os.PathLike[str], kind: str, content: Any, tensors: Tensors) -> None:
    """Replace the file at `path` at once, or not at all."""
    library = _safetensors()
    text = np.frombuffer(json.dumps(content).encode(), dtype=np.uint8)
    stored = {**tensors, CONTENT: text}
    about = {
        "format": "exactmeans",
        "schema": str(SCHEMA),
        "kind": kind,
        "digest": _digest(stored),
    }
    replace_file(path, library.numpy.save(stored, about))


def read(path: str | os.PathLike[str], kind: str) -> tuple[Any, Tensors]:
    """What `write` put there; one sentence for anything else."""
    library = _safetensors()
    shown = str(check_path("path", path))
    if os.path.isdir(shown):
        raise ValueError(f"path must name a file, but {shown!r} is a folder: name the file in it.")
    try:
        with library.safe_open(shown, framework="numpy") as file:
            about = file.metadata() or {}
            if about.get("format") != "exactmeans":
                raise ValueError(f"{shown} was not written by exactmeans.")
            if about.get("schema") != str(SCHEMA):
                raise ValueError(
                    f"{shown} has schema {about.get('schema')}, but this version of exactmeans "
                    f"reads schema {SCHEMA}."
                )
            if about.get("kind") != kind:
                raise ValueError(f"{shown} holds a {about.get('kind')}, not a {kind}.")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise FileNotFoundError(f"path must name a file, but there is no {shown}.") from None
    except (library.SafetensorError, OSError) as error:
        raise ValueError(
            f"{shown} is not a whole safetensors file: it is something else or was cut short "
            f"({error})."
        ) from None
    if about.get("digest") != _digest(tensors) or CONTENT not in tensors:
        raise ValueError(f"{shown} is damaged: its content does not match its digest.")
    try:
        return json.loads(tensors.pop(CONTENT).tobytes()), tensors
    except ValueError as error:
        raise ValueError(f"{shown} is damaged: {error}.") from None


def _digest(tensors: Tensors) -> str:
    seen = hashlib.blake2b(digest_size=16)
    for name in sorted(tensors):
        seen.update(f"{name} {tensors[name].dtype} {tensors[name].shape}".encode())
        seen.update(np.ascontiguousarray(tensors[name]).data)
    return seen.hexdigest()
