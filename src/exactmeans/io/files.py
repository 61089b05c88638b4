"""Files that are replaced at once or not at all."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from exactmeans.parameters import check_path


def replace_file(path: str | os.PathLike[str], content: bytes) -> None:
    """Put a whole file in place of `path`, or leave what is there as it is.

    It is written under a name of its own in the same folder and renamed, so that a kill leaves the
    old file or the new one, and writers of one path do not disturb each other.
    """
    target = check_writable(path)
    beside = target.with_name(f"{target.name}.{secrets.token_hex(8)}.tmp")
    # "x" makes a new file or fails: it follows no link and shares no file with other writers.
    file = open(beside, "xb")  # noqa: SIM115
    try:
        with file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, target)
    except BaseException:  # Ctrl-C too
        beside.unlink(missing_ok=True)
        raise
    if hasattr(os, "O_DIRECTORY"):  # so that the new name, too, outlives a power cut
        folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def check_writable(path: str | os.PathLike[str]) -> Path:
    """Refuse what cannot be a path to write to."""
    target = check_path("path", path)
    if not target.parent.is_dir():
        raise FileNotFoundError(
            f"path must lie in a folder that exists, but {str(target.parent)!r} does not: make it "
            "first."
        )
    if target.is_dir():
        raise ValueError(f"path must name a file, but {str(target)!r} is a folder.")
    return target
