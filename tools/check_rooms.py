"""Fails where an include of the core points against the order of the rooms.

A header may include headers of its own room and of rooms listed before it. The order is the one
that ARCHITECTURE.md describes.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEADERS = ROOT / "core" / "include" / "exactmeans"

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
)
INCLUDE = re.compile(r'^\s*#include "exactmeans/([^"]+)"', re.MULTILINE)


def violations() -> Iterator[str]:
    for header in sorted(HEADERS.rglob("*.hpp")):
        name = header.relative_to(HEADERS)
        room = name.parts[0]
        if room not in ROOMS:
            yield f"{name}: a header must lie in one of the rooms {', '.join(ROOMS)}."
            continue
        for included in INCLUDE.findall(header.read_text(encoding="utf-8")):
            other = included.split("/")[0]
            if other not in ROOMS or not (HEADERS / included).exists():
                yield f"{name}: there is no header {included}."
            elif ROOMS.index(other) > ROOMS.index(room):
                yield f"{name}: {room}/ must not include {included}, whose room comes later."


def main() -> int:
    found = list(violations())
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
