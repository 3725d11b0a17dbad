"""``pipetune compare``: what changed between two runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipetune.cli.output import echo, say
from pipetune.report.line import Kind

_STYLES = {Kind.HEADLINE: "bold", Kind.WARNING: "yellow"}


def compare_command(
    before: Annotated[Path, typer.Argument(help="A run folder.")],
    after: Annotated[Path, typer.Argument(help="Another one of the same kind.")],
    json_file: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="Write it as JSON; - for standard output.")
    ] = None,
    fail_if_worse: Annotated[
        bool,
        typer.Option(
            "--fail-if-worse",
            help="Exit with 1 if a rate is worse beyond the intervals, if a candidate that was measured before fails "
            "now, or if nothing can be compared.",
        ),
    ] = False,
) -> None:
    """Say what changed between two runs: configuration, machine, and the rates that differ beyond their intervals."""
    from rich.console import Console

    from pipetune.cli.output import check_target, write_json
    from pipetune.records.sweep import SCHEMA, to_dict
    from pipetune.report.comparison_text import comparison_lines
    from pipetune.runs.comparison import compare
    from pipetune.runs.load import load

    check_target("--json", json_file, "comparison.json")
    runs = load(before), load(after)
    found = compare(*runs)
    if json_file is not None:
        problems = [list(stored.problems) for stored in runs]
        write_json(json_file, {"schema": SCHEMA, "kind": "comparison", **to_dict(found), "problems": problems})
    if json_file != "-":
        console = Console()
        for line in comparison_lines(found, *runs):
            say(console, line.text, style=_STYLES.get(line.kind))
    if fail_if_worse and found.worse:
        echo(f"pipetune: {'; '.join(found.worse)}", err=True)
        raise typer.Exit(1)
