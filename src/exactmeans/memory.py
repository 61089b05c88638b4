"""Memory limits that users set, and the memory of the machine."""

from __future__ import annotations

import ctypes
import math
import numbers
import os
import re
from functools import cache
from typing import Any

from exactmeans.parameters import refuse

__all__ = ["check_memory_limit", "known_memory", "memory_of_machine"]

_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(?:([KMGT])(I?)B?|B)\s*")


def check_memory_limit(limit: Any) -> int | None:
    """Bytes: from an int, a string such as "2GB", or a float fraction of the machine's memory.

    Units are those of 1000 (MB, M, m) or of 1024 (MiB, Mi), in upper or lower case.
    """
    if limit is None:
        return None
    allowed = "None, a number of bytes, a string like '2GB' or a fraction of memory such as 0.5"
    bytes_: float = -1
    if isinstance(limit, str):
        match = _SIZE.fullmatch(limit.upper())
        if match:
            bytes_ = float(match[1]) * (1024 if match[3] else 1000) ** _POWERS[match[2] or ""]
    elif isinstance(limit, bool):
        pass
    elif isinstance(limit, numbers.Integral):
        bytes_ = int(limit)
    elif isinstance(limit, numbers.Real) and 0 < float(limit) <= 1:
        known = known_memory()
        if known is None:
            allowed = "a number of bytes, because the system does not report its memory"
        else:
            bytes_ = float(limit) * known
    if not 1 <= bytes_ < math.inf:
        refuse("memory_limit", limit, allowed)
    return int(bytes_)


_ASSUMED_MEMORY = 4 * 2**30  # bytes, where the system does not report it


def memory_of_machine() -> int:
    """Bytes of memory of the machine, or of its container."""
    return known_memory() or _ASSUMED_MEMORY


@cache
def known_memory() -> int | None:
    """The same; None where the system does not report it."""
    try:
        installed = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # Windows has no sysconf, some have no such name
        installed = _memory_of_windows()
    try:
        with open("/sys/fs/cgroup/memory.max") as file:
            limit = int(file.read())
    except (OSError, ValueError):  # no such file, or "max"
        return installed if installed > 0 else None
    return min(installed, limit) if installed > 0 else limit


class _MemoryStatus(ctypes.Structure):
    """MEMORYSTATUSEX of the Windows API."""

    _fields_ = (
        ("length", ctypes.c_uint32),
        ("load", ctypes.c_uint32),
        ("installed", ctypes.c_uint64),
        ("others", ctypes.c_uint64 * 6),
    )


def _memory_of_windows() -> int:
    """0 if this is not Windows."""
    windows: Any = getattr(ctypes, "windll", None)
    status = _MemoryStatus(length=ctypes.sizeof(_MemoryStatus))
    if windows is None or not windows.kernel32.GlobalMemoryStatusEx(ctypes.byref(status)):
        return 0
    return int(status.installed)
