"""The command line, `exactmeans`: fit, predict, select-k, tree, report, info and version."""

from __future__ import annotations

import importlib.util
import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line; needs `pip install exactmeans[cli]`."""
    for package in ("typer", "rich"):
        if importlib.util.find_spec(package) is None:
            print(
                f"exactmeans: the command line needs the {package} package: "
                "pip install 'exactmeans[cli]'.",
                file=sys.stderr,
            )
            sys.exit(1)
    from exactmeans.cli.app import run

    sys.exit(run(sys.argv[1:]))
