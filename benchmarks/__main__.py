"""python -m benchmarks [suite ...] [--quick] [--out DIR] [--threads 2] [--list]"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from . import (
    databases,
    larger,
    limits,
    minibatch,
    operations,
    predict_latency,
    probes,
    report,
    seeding,
    sources,
    sparse_scale,
)
from .peers import PEERS
from .race import Row, race
from .suites import RACES, Case, published
from .worker import limit_affinity

SUITES = (
    "roofline",
    *RACES,
    "seeding_quality",
    "databases",
    "memory",
    "larger_than_memory",
    "minibatch",
    "operations",
    "predict_latency",
    "sparse_scale",
    "sparse_growth",
    "size_limits",
)
#: What the README and the site show: cases of other suites, a few minutes of them.
PUBLISHED = "published"


def rows_of(suite: str, options: argparse.Namespace) -> Iterator[list[Row]]:
    """A suite's rows, case by case."""
    if suite == "roofline":
        yield probes.roofline(options.threads, options.quick)
    elif suite == "memory":
        yield probes.memory(options.ours or "exactmeans", options.threads, options.quick)
    elif suite == "databases":
        yield from databases.databases(options.threads, options.quick, options.only or "")
    elif suite == "larger_than_memory":
        yield larger.larger_than_memory(options.threads, options.quick)
    elif suite == "minibatch":
        yield from minibatch.minibatch(options.threads, options.quick, options.only or "")
    elif suite == "seeding_quality":
        yield from seeding.quality(options.threads, options.quick)
    elif suite == "operations":
        yield from operations.operations(options.threads, options.quick)
    elif suite == "predict_latency":
        only = options.only or ""
        yield from predict_latency.latency(options.threads, options.rounds, options.quick, only)
    elif suite == "sparse_scale":
        yield from sparse_scale.scale(options.threads, options.quick)
    elif suite == "sparse_growth":
        yield from sparse_scale.growth(options.threads, options.quick)
    elif suite == "size_limits":
        yield from limits.limits(options.threads, options.quick, options.only or "")
    if suite == "small":
        yield probes.imports(options.rounds)
    yield from _measured(RACES.get(suite, []), options)


def _measured(cases: list[Case], options: argparse.Namespace) -> Iterator[list[Row]]:
    cases = [case for case in cases if (options.only or "") in case.name]
    if options.quick:  # cut down, some coincide, and a few show whether the harness works
        cases = list({case.quick().name: case.quick() for case in cases}.values())[:4]
    for case in cases:
        yield race(_stand_in(case, options.ours), options.rounds, options.threads)


def _stand_in(case: Case, ours: str | None) -> Case:
    if ours is None:
        return case
    base = ours.partition("@")[0]
    names = tuple(name.replace(case.ours, base) for name in case.contenders)
    return replace(case, ours=ours, contenders=names, targets={})  # the targets are our own


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    names = (*SUITES, PUBLISHED)
    parser.add_argument("suites", nargs="*", metavar="suite", help=", ".join(names))
    parser.add_argument("--quick", action="store_true", help="few rows (also QUICK=1)")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--threads", type=int, default=2)
    rounds = "how often each library runs; default 3, or 1 for published alone"
    parser.add_argument("--rounds", type=int, default=None, help=rounds)
    parser.add_argument("--only", help="cases whose name contains this text")
    parser.add_argument(
        *("--data", "-d"),
        action="append",
        default=[],
        metavar="NAME=PATH",
        help="your own file in place of a data set: X as .npz or .npy, or CSR counts",
    )
    parser.add_argument("--ours", help="another library in place of exactmeans, as name@threads")
    parser.add_argument("--list", action="store_true", help="name suites and cases, then stop")
    options = parser.parse_args()
    options.quick = options.quick or os.environ.get("QUICK", "0") not in ("", "0")
    if options.rounds is None:
        options.rounds = 1 if options.suites == [PUBLISHED] else 3
    options.rounds = max(1, options.rounds)
    if options.ours and options.ours.partition("@")[0] not in PEERS:
        parser.error(f"--ours must be one of {', '.join(PEERS)}")
    if wrong := sources.name_files(options.data):
        parser.error(wrong)
    if unknown := set(options.suites) - set(names):
        parser.error(f"unknown suite {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    chosen = options.suites or list(SUITES)
    if options.list:
        for suite in (*chosen, *(() if options.suites else (PUBLISHED,))):
            cases = [c for _, c in published()] if suite == PUBLISHED else RACES.get(suite, ())
            print(suite, *(f"\n    {case.name}" for case in cases), sep="")
        return
    limit_affinity(options.threads)
    about = report.machine(options.threads) | {"quick": options.quick, "rounds": options.rounds}
    results: dict[str, list[Row]] = {}
    begin = time.monotonic()
    for heading in chosen:
        print(f"\n## {heading}", flush=True)
        head = 0  # lines to leave out: the header appears only once
        for suite, rows in _groups(heading, options):
            print("\n".join(report.table(rows).splitlines()[head:]), flush=True)
            head = 2
            results.setdefault(suite, []).extend(rows)
            report.write(options.out, about, results)
        print(f"\n{time.monotonic() - begin:.0f} s since the start", flush=True)


def _groups(heading: str, options: argparse.Namespace) -> Iterator[tuple[str, list[Row]]]:
    """Rows and the suite that they belong to."""
    if heading == PUBLISHED:
        for suite, case in published():
            yield from ((suite, rows) for rows in _measured([case], options))
    else:
        yield from ((heading, rows) for rows in rows_of(heading, options))


if __name__ == "__main__":
    main()
