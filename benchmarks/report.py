"""Results as JSON for machines and Markdown for people."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import os
import platform
from pathlib import Path
from typing import Any

from .race import Row

PACKAGES = (
    *("exactmeans", "numpy", "scipy", "scikit-learn", "sparsekmeans", "python-graphblas"),
    *("faiss-cpu", "scikit-learn-intelex", "superkmeans"),
)


def machine(threads: int) -> dict[str, Any]:
    cpu = platform.processor()
    info = Path("/proc/cpuinfo")
    if info.exists():
        models = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        cpu = models[0].partition(":")[2].strip() if models else cpu
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "missing"
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "threads": threads,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        # Above zero at the start means that others were at work and timings are noisy.
        "load_at_start": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "versions": versions,
    }


def table(rows: list[Row]) -> str:
    lines = [
        "| case | contender | figure (min..max) | theirs / ours (min..max) | target | | note |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        figure = "-" if row.value is None else f"{row.value:.4g} {row.unit}"
        if row.low is not None and row.high is not None:
            figure += f" ({row.low:.4g}..{row.high:.4g})"
        ratio = "" if row.ratio is None else "{:.2f} ({:.2f}..{:.2f})".format(*row.ratio)
        met = {True: "met", False: "MISSED", None: "not judged" if row.target else ""}[row.met]
        note = row.note.replace("|", "/").replace("\n", " ")
        cells = (row.case, row.contender, figure, ratio, row.target or "", met, note)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def write(folder: Path, about: dict[str, Any], suites: dict[str, list[Row]]) -> None:
    """Rewritten after every suite, so that an interrupted run keeps what it has."""
    folder.mkdir(parents=True, exist_ok=True)
    results = {name: [dataclasses.asdict(row) for row in rows] for name, rows in suites.items()}
    text = json.dumps({"machine": about, "suites": results}, indent=1)
    (folder / "results.json").write_text(text + "\n", encoding="utf8")
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    head = (
        f"# Benchmark results\n\n{about['cpu']}, {about['cores']} cores, {about['threads']} used, "
        f"{about['rounds']} rounds, "
        f"load {about['load_at_start']} at the start; Python {about['python']}; {versions}.\n"
    )
    if about["quick"]:
        head += "\nQuick run on few rows: it checks the harness, its ratios mean nothing.\n"
    parts = [f"\n## {name}\n\n{table(rows)}\n" for name, rows in suites.items()]
    (folder / "results.md").write_text(head + "".join(parts), encoding="utf8")
