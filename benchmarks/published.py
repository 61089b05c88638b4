"""The run that the site and the README show: its tables, and its speed-ups as a chart.

python -m benchmarks published                                      # some minutes
python -m benchmarks.published benchmarks/results/results.json      # stores the run

The second command also draws the chart and writes the table of the README. `make published` runs
both.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

from .race import Row

STORED = Path(__file__).parent / "published.json"
ROOT = Path(__file__).resolve().parents[1]
CHART = ROOT / "docs" / "assets" / "speedups.svg"
README = ROOT / "README.md"
BEGIN, END = "<!-- speed: written by python -m benchmarks.published -->", "<!-- end of speed -->"

# suite, case, and what the chart calls it
SHOWN = (
    ("sparse_fit", "acl k=100 float32", "text, 110,486 × 32,103, k=100"),
    ("sparse_fit", "acl k=1000 float32", "text, 110,486 × 32,103, k=1000"),
    ("dense_fit", "covtype k=100 float32", "table, 150,000 × 54, k=100"),
    ("dense_fit", "covtype k=1000 float32", "table, 150,000 × 54, k=1000"),
    ("dense_fit", "mnist k=100 float32", "images, 60,000 × 784, k=100"),
    ("dense_fit", "birch1 k=1000 float32", "points, 100,000 × 2, k=1000"),
    ("dense_fit", "glove k=1000 float32", "word vectors, 100,000 × 100, k=1000"),
    ("seeding", "acl k=100 float32", "k-means++ seeding, text, k=100"),
)
LIBRARIES = {
    "scikit-learn": "scikit-learn",
    "sparsekmeans": "sparsekmeans",
    "faiss": "FAISS",
    "superkmeans": "superkmeans",
    "intelex": "intelex",
}
COLOURS = {"scikit-learn": "#c8571b", "sparsekmeans": "#2f8f6b", "FAISS": "#7a5fa8"}


def rows_of(run: dict[str, Any], suite: str) -> list[Row]:
    rows = [Row(**fields) for fields in run["suites"].get(suite, ())]
    for row in rows:
        row.ratio = tuple(row.ratio) if row.ratio else None  # type: ignore[assignment]
    return rows


def read(path: Path = STORED) -> dict[str, Any]:
    run: dict[str, Any] = json.loads(path.read_text(encoding="utf8"))
    return run


def tables(path: Path = STORED) -> str:
    """The whole run as Markdown."""
    run = read(path)
    about = run["machine"]
    versions = ", ".join(f"{name} {v}" for name, v in about["versions"].items() if v != "missing")
    head = f"{about['cpu']}, {about['threads']} cores used, {about['system']}, Python "
    head += f"{about['python']}. Rounds: {about['rounds']}."
    parts = [f"{head} Versions: {versions}." if versions else f"{head} Ratios only."]
    for suite in run["suites"]:
        parts.append(f"### {suite}\n\n{_table(rows_of(run, suite))}")
    return "\n\n".join(parts)


def _table(rows: list[Row]) -> str:
    lines = ["| case | library | time | times as long as exactmeans | note |", "| --- " * 5 + "|"]
    before = ""
    for row in rows:
        figure = "–" if row.value is None else f"{row.value:,.4g} {row.unit}"
        ratio = "" if row.ratio is None else f"{row.ratio[0]:.3g}"
        note = row.note.replace("|", "/").replace("\n", " ")
        case = "" if row.case == before else row.case
        before = row.case
        lines.append(f"| {case} | {row.contender} | {figure} | {ratio} | {note} |")
    return "\n".join(lines)


def speedups(run: dict[str, Any]) -> Iterator[tuple[str, dict[str, float]]]:
    """What the chart shows: the faster algorithm of each library beside ours, case by case."""
    for suite, case, name in SHOWN:
        if found := {library: x for library, x in _ratios(run, suite, case) if library in COLOURS}:
            yield name, found


def _ratios(run: dict[str, Any], suite: str, case: str) -> list[tuple[str, float]]:
    """The least ratio of each library, in the order of LIBRARIES."""
    found: dict[str, float] = {}
    for row in rows_of(run, suite):
        library = _library(row.contender)
        if row.case == case and row.ratio is not None and library:
            found[library] = min(found.get(library, row.ratio[0]), row.ratio[0])
    return [(library, found[library]) for library in LIBRARIES.values() if library in found]


def _library(contender: str) -> str | None:
    return next((name for key, name in LIBRARIES.items() if contender.startswith(key)), None)


def readme_table(run: dict[str, Any]) -> str:
    """The speed-ups of the chart and of further libraries, with the commands that measure them."""
    lines = ["| data | scikit-learn | other libraries | `python -m benchmarks` ... |"]
    lines.append("| --- " * 4 + "|")
    for suite, case, name in SHOWN:
        ratios = dict(_ratios(run, suite, case))
        if not ratios:
            continue
        first = f"{ratios.pop('scikit-learn'):.2g}" if "scikit-learn" in ratios else ""
        others = ", ".join(f"{library} {ratio:.2g}" for library, ratio in ratios.items())
        lines.append(f'| {name} | {first} | {others} | `{suite} --only "{case}"` |')
    return "\n".join(lines)


def write_readme(run: dict[str, Any]) -> None:
    text = README.read_text(encoding="utf8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    README.write_text(f"{before}{BEGIN}\n\n{readme_table(run)}\n\n{END}{after}", encoding="utf8")


def chart(run: dict[str, Any]) -> str:
    """Bars on a logarithmic scale, as SVG that needs nothing else."""
    rows = list(speedups(run))
    left, width, bar, gap = 270, 330, 11, 10
    top = 58
    height = top + sum(len(found) * bar + gap for _, found in rows) + 30
    most = max(value for _, found in rows for value in found.values())
    decades = next(m for m in (10, 20, 50, 100, 200, 500, 1000, 10**9) if m >= most)

    def x(value: float) -> float:
        return left + width * math.log(max(value, 1.0)) / math.log(decades)

    about = run["machine"]
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 660 {height}" '
        'font-family="system-ui, sans-serif" font-size="11" role="img">',
        "<title>Time of other libraries divided by that of exactmeans</title>",
        f'<rect width="660" height="{height}" fill="#fff"/>',
        '<text x="10" y="20" font-size="14" font-weight="600" fill="#222">'
        "Time of other libraries ÷ time of exactmeans</text>",
    ]
    place = 10
    for library, colour in COLOURS.items():
        if any(library in found for _, found in rows):
            out.append(f'<rect x="{place}" y="32" width="10" height="10" fill="{colour}"/>')
            out.append(f'<text x="{place + 15}" y="41" fill="#444">{library}</text>')
            place += 40 + 7 * len(library)
    for mark in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000):
        if mark <= decades:
            out.append(
                f'<path d="M{x(mark):.1f} {top - 6}V{height - 24}" stroke="#ddd"/>'
                f'<text x="{x(mark):.1f}" y="{height - 10}" text-anchor="middle" fill="#666">'
                f"{mark}×</text>"
            )
    y = float(top)
    for name, found in rows:
        middle = y + len(found) * bar / 2 + 4
        out.append(
            f'<text x="{left - 8}" y="{middle:.1f}" text-anchor="end" fill="#222">'
            f"{escape(name)}</text>"
        )
        for library, value in found.items():
            out.append(
                f'<rect x="{left}" y="{y:.1f}" width="{max(1.0, x(value) - left):.1f}" '
                f'height="{bar - 2}" fill="{COLOURS[library]}"/>'
                f'<text x="{x(value) + 4:.1f}" y="{y + bar - 3:.1f}" font-size="10" fill="#222">'
                f"{value:.2g}</text>"
            )
            y += bar
        y += gap
    out.append(
        f'<text x="10" y="{height - 10}" font-size="9" fill="#888">'
        f"{escape(about['cpu'])}, {about['threads']} cores</text>"
    )
    return "\n".join([*out, "</svg>", ""])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.published", description=__doc__)
    parser.add_argument("results", nargs="*", type=Path, help="results.json of runs, merged")
    options = parser.parse_args()
    if options.results:
        runs = [read(path) for path in options.results]
        suites: dict[str, list[Row]] = {}
        for run in runs:
            for suite in run["suites"]:
                known = suites.setdefault(suite, [])
                fresh = rows_of(run, suite)
                cases = {row.case for row in fresh}
                known[:] = [row for row in known if row.case not in cases] + fresh
        results = {name: [dataclasses.asdict(row) for row in rows] for name, rows in suites.items()}
        stored = {"machine": runs[0]["machine"], "suites": results}
        STORED.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf8")
    CHART.write_text(chart(read()), encoding="utf8")
    write_readme(read())


if __name__ == "__main__":
    main()
