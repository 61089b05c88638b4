"""`exactmeans report`: an HTML page about the clusters."""

from __future__ import annotations

from typing import Annotated

import typer

from exactmeans.cli import options, screen
from exactmeans.cli.fit import for_report
from exactmeans.cli.groups import Reading, grouped
from exactmeans.cli.models import load_model
from exactmeans.cli.opening import opened
from exactmeans.cli.output import Outputs
from exactmeans.reporting import report as write_report


@grouped
def report(
    model: options.Model,
    reading: Reading,
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "--report",
            "-o",
            metavar="OUT",
            rich_help_panel="Output",
            help="Where to write it: .html.",
        ),
    ] = "report.html",
    title: Annotated[
        str | None, typer.Option("--title", help="The title of the page.", rich_help_panel="Output")
    ] = None,
    force: options.Force = False,
    quiet: options.Quiet = False,
) -> None:
    """Write a report about the clusters of DATA under MODEL: one HTML file that needs no network.

    \b
    exactmeans report m.safetensors data.csv --output groups.html
    """
    screen.be_quiet(quiet)
    outputs = Outputs(force=force)
    path = outputs.add("--output", output, (".html", ".htm"))
    assert path is not None
    fitted = load_model(model)
    with opened(reading, model=fitted) as table:
        about = for_report(table)
        write_report(fitted, table.X, path, **{**about, "title": title or about["title"]})
    screen.say(f"report: {path}")
