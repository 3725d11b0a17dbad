"""``pipetune compare``: what changed between two runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipetune.cli.output import say

if TYPE_CHECKING:
    from rich.console import Console

    from pipetune.runs.comparison import Comparison, Difference
    from pipetune.runs.run import Run


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
            help="Exit with 1 if a rate is worse beyond the intervals, failed, or nothing can be compared.",
        ),
    ] = False,
) -> None:
    """Say what changed between two runs: configuration, machine, and the rates that differ beyond their intervals."""
    from rich.console import Console

    from pipetune.cli.output import check_target, write_json
    from pipetune.records.sweep import SCHEMA, to_dict
    from pipetune.runs.comparison import compare
    from pipetune.runs.run import load

    check_target("--json", json_file, "comparison.json")
    runs = load(before), load(after)
    found = compare(*runs)
    if json_file is not None:
        problems = [list(stored.problems) for stored in runs]
        write_json(json_file, {"schema": SCHEMA, "kind": "comparison", **to_dict(found), "problems": problems})
    if json_file != "-":
        _show_comparison(Console(), found, runs)
    if fail_if_worse and found.worse:
        print(f"pipetune: {'; '.join(found.worse)}", file=sys.stderr)  # noqa: T201
        raise typer.Exit(1)


def _show_comparison(console: Console, found: Comparison, runs: tuple[Run, Run]) -> None:
    for stored in runs:
        for problem in stored.problems:
            say(console, f"! {stored.path}: {problem}", style="yellow")
    for change in found.changes:
        say(console, f"{change.part}: {change.name} {_value(change.before)} -> {_value(change.after)}")
    if found.other_work and found.differences:
        work = ", ".join(found.other_work)
        say(console, f"! the two did not do the same work ({work}): the rates below differ for that, too", "yellow")
    if not found.changes:
        say(console, "configuration and machine are the same")
    for difference in found.differences:
        say(console, _line(difference, found.unit), style="bold" if difference.outside else None)
    for names, stored in ((found.only_before, runs[0]), (found.only_after, runs[1])):
        if names:
            say(console, f"only in {stored.path.name}: {', '.join(names)}")
    first, second = found.recommended
    if first != second:
        say(console, f"recommended: {first or 'nothing'} -> {second or 'nothing'}", style="bold")
    elif first is not None:
        say(console, f"recommended in both: {first}")
    if not found.differences:
        say(console, "they have no measured candidate in common")


def _line(found: Difference, unit: str) -> str:
    if unit == "samples/s":
        numbers = f"{_rate(found.before, found.before_ci95)} -> {_rate(found.after, found.after_ci95)}"
    else:
        numbers = f"{_share(found.before, found.before_ci95)} -> {_share(found.after, found.after_ci95)} lost"
    ratio = ""
    if found.ratio is not None and found.ratio_ci95 is not None:
        ratio = f", {found.ratio:.2f}x ({found.ratio_ci95[0]:.2f}..{found.ratio_ci95[1]:.2f})"
    word = "no difference beyond the intervals"
    if found.outside:
        word = ("better" if found.better else "worse") + ", outside both intervals"
    return f"{found.name}: {numbers}{ratio}: {word}"


def _rate(value: float, ci95: tuple[float, float]) -> str:
    return f"{value:,.0f}/s ({ci95[0]:,.0f}..{ci95[1]:,.0f})"


def _share(value: float, ci95: tuple[float, float]) -> str:
    return f"{100 * value:.0f} % ({100 * ci95[0]:.0f}..{100 * ci95[1]:.0f})"


def _value(value: Any) -> str:
    return "-" if value is None else str(value)
