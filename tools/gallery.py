"""Runs an example as the gallery shows it: its code, what it prints, what it draws.

Examples call `plt.show()` as any script does; here every figure is saved instead.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
CACHE = ROOT / "build" / "gallery"

_RUN = """
import os, runpy, sys
try:
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
except ImportError:
    plt = None
script, folder = sys.argv[1:]
sys.argv = [script]
sys.path.insert(0, os.path.dirname(script))  # as for any script
count = 0
def show(*_, **__):
    global count
    for number in plt.get_fignums():
        count += 1
        plt.figure(number).savefig(f"{folder}/{count}.png", dpi=110, bbox_inches="tight")
    plt.close("all")
if plt is not None:
    plt.show = show
runpy.run_path(script, run_name="__main__")
"""


@dataclass(frozen=True)
class Shown:
    """An example and what running it gave."""

    name: str
    title: str
    text: str  # the rest of the docstring
    code: str  # without the docstring
    printed: str
    pictures: tuple[Path, ...]


def examples() -> list[str]:
    return sorted(path.stem for path in EXAMPLES.glob("*.py"))


def show(name: str) -> Shown:
    """Runs the example unless its result is at hand."""
    source = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    folder = CACHE / f"{name}-{hashlib.sha256(source.encode()).hexdigest()[:12]}"
    if not (folder / "printed.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        environment = {name: text for name, text in os.environ.items() if name != "EXACTMEANS_DATA"}
        done = subprocess.run(
            [sys.executable, "-c", _RUN, str(EXAMPLES / f"{name}.py"), str(folder)],
            capture_output=True,
            text=True,
            env=environment,
            cwd=folder,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"examples/{name}.py failed:\n{done.stderr}")
        (folder / "printed.json").write_text(json.dumps(done.stdout))
    module = ast.parse(source)
    title, _, text = (ast.get_docstring(module) or name).partition("\n")
    code = "\n".join(source.splitlines()[module.body[0].end_lineno :]).strip()
    code = code.removeprefix("from __future__ import annotations").strip()
    return Shown(
        name,
        title.partition(":")[0].rstrip("."),
        text.strip(),
        code,
        json.loads((folder / "printed.json").read_text()).rstrip(),
        tuple(sorted(folder.glob("*.png"))),
    )
