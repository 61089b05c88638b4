"""Fails where an include or an import points against the order of the rooms.

A C++ file may include headers of its own room and of rooms listed before it; a Python module may
import from its own room and from rooms listed before it. Imports for type checkers alone do not
count. The order is the one that ARCHITECTURE.md describes. Every room, and every folder in it that
has headers, has a README.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEADERS = ROOT / "core" / "include" / "exactmeans"
SOURCES = ROOT / "core" / "src"
PACKAGE = ROOT / "src" / "exactmeans"

ROOMS = (
    "base",
    "data",
    "kernels",
    "numerics",
    "centres",
    "filter",
    "scan",
    "project",
    "assign",
    "update",
    "seed",
    "evaluate",
    "limits",
    "tree",
)
#: Packages and modules of src/exactmeans; those of one line may import each other.
PYTHON_ROOMS = (
    ("_core",),
    ("parameters", "memory", "metrics", "versions"),
    ("database",),
    ("data",),
    ("callbacks",),
    ("engine",),
    ("fit",),
    ("seeding",),
    ("io",),
    ("sql",),
    ("estimators",),
    ("tree",),
    ("kmeans", "kmeans_tree", "bisecting", "minibatch", "dask", "spark"),
    ("quality",),
    ("select",),
    ("text", "labels"),
    ("preparation",),
    ("reporting", "plot"),
    ("cli",),
    ("__main__",),
)
LEVEL = {room: level for level, rooms in enumerate(PYTHON_ROOMS) for room in rooms}
INCLUDE = re.compile(r'^\s*#include "exactmeans/([^"]+)"', re.MULTILINE)


def violations() -> Iterator[str]:
    sources = [*HEADERS.rglob("*.hpp"), *SOURCES.rglob("*.hpp"), *SOURCES.rglob("*.cpp")]
    for source in sorted(sources):
        name = source.relative_to(HEADERS if HEADERS in source.parents else SOURCES)
        room = name.parts[0]
        if room not in ROOMS:
            yield f"{name}: a file must lie in one of the rooms {', '.join(ROOMS)}."
            continue
        for included in INCLUDE.findall(source.read_text(encoding="utf-8")):
            other = included.split("/")[0]
            if other not in ROOMS or not (HEADERS / included).exists():
                yield f"{name}: there is no header {included}."
            elif ROOMS.index(other) > ROOMS.index(room):
                yield f"{name}: {room}/ must not include {included}, whose room comes later."


def imported(tree: ast.AST) -> Iterator[str]:
    """Modules of this package that a module imports, at any depth, as `room.module`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from (a.name.partition(".")[2] for a in node.names if _is_ours(a.name))
        elif isinstance(node, ast.ImportFrom) and node.level:
            yield "." * node.level + (node.module or "")
        elif isinstance(node, ast.ImportFrom) and node.module == "exactmeans":
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and _is_ours(node.module):
            yield node.module.partition(".")[2]
        else:
            yield from imported(node)


def _is_ours(module: str) -> bool:
    return module.split(".")[0] == "exactmeans"


def python_violations() -> Iterator[str]:
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE)
        room = name.parts[0].removesuffix(".py")
        if room == "__init__":
            continue
        if room not in LEVEL:
            yield f"{name}: a module must lie in one of the rooms {', '.join(LEVEL)}."
            continue
        for module in imported(ast.parse(path.read_text(encoding="utf-8"))):
            other = module.split(".")[0]
            if other not in LEVEL:
                yield f"{name}: there is no room for exactmeans.{module}."
            elif LEVEL[other] > LEVEL[room]:
                yield f"{name}: {room} must not import exactmeans.{module}, whose room comes later."


def missing_readmes() -> Iterator[str]:
    packages = {path.parent for path in PACKAGE.rglob("__init__.py")} - {PACKAGE}
    rooms = {HEADERS / room for room in ROOMS} | {ROOT / "core" / "bindings"}
    headers = {path.parent for folder in (HEADERS, SOURCES) for path in folder.rglob("*.hpp")}
    for folder in sorted(rooms | headers | packages):
        if not (folder / "README.md").exists():
            yield f"{folder.relative_to(ROOT)}: a room must have a README.md."


def main() -> int:
    found = [*violations(), *python_violations(), *missing_readmes()]
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
