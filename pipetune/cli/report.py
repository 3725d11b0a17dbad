"""``pipetune report`` and ``pipetune compare``: what stored runs say, on the screen or as a file."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipetune.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from pipetune.runs.comparison import Comparison, Difference
    from pipetune.runs.run import Run


def report_command(
    run: Annotated[Path, typer.Argument(help="A run folder, or the file of pipetune watch --log.")],
    html: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write one self-contained HTML page; - for standard output.")
    ] = None,
    trace: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write Trace Event JSON for Perfetto or chrome://tracing.")
    ] = None,
    candidate: Annotated[
        str | None, typer.Option(help="With --trace: this timeline only, e.g. recommended. [default: all]")
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown, e.g. for an issue.")] = False,
    csv: Annotated[
        bool, typer.Option("--csv", help="Print one line per candidate (watch: per window) as CSV.")
    ] = False,
) -> None:
    """Show what a run measured: on the screen, or as an HTML page, Markdown, CSV or a trace."""
    wanted = [name for name, value in (("--html", html), ("--trace", trace), ("--markdown", markdown), ("--csv", csv))
              if value]  # fmt: skip
    if sum(name in ("--markdown", "--csv") for name in wanted) + [html, trace].count("-") > 1:
        raise UsageError(f"{' and '.join(wanted)} cannot share standard output", hint="name a FILE for one of them")
    if candidate is not None and trace is None:
        raise UsageError(f"--candidate {candidate} is for --trace", hint="add --trace FILE")
    from pipetune.cli.output import check_target, write_text

    check_target("--html", html, "run.html")
    check_target("--trace", trace, "run.json")
    from pipetune.report import exports
    from pipetune.runs.run import DamagedRunWarning, load

    stored = load(run)
    with warnings.catch_warnings(record=True) as damage:
        warnings.simplefilter("always")
        if html is not None:
            from pipetune.report.html.build import html_page

            write_text(html, [html_page(stored)])
        if trace is not None:
            write_text(trace, (f"{line}\n" for line in exports.trace(stored, candidate)))
        if markdown:
            sys.stdout.write(exports.markdown(stored))
        if csv:
            sys.stdout.write(exports.csv(stored))
        if not wanted:
            _show(stored)
    told = [str(one.message) for one in damage if issubclass(one.category, DamagedRunWarning)]
    for text in dict.fromkeys([*(stored.problems if wanted else ()), *told]):
        print(f"pipetune: {text}", file=sys.stderr)  # noqa: T201


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

    from pipetune.cli.output import check_target
    from pipetune.cli.sweep_write import write_json
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


def _show(run: Run) -> None:
    """As the command that made it did at its end."""
    from rich.console import Console

    console = Console()
    from pipetune.runs.run import SWEEP

    for problem in run.problems:
        _say(console, f"! {problem}", style="yellow")
    if run.kind == SWEEP:
        from pipetune.cli.sweep_print import print_summary
        from pipetune.report.terminal.progress import outcome_line
        from pipetune.sweeping.stored import sweep_result

        try:
            result = sweep_result(run)
        except UsageError as error:  # what was asked is lost, what was measured is not
            if not run.outcomes:
                raise
            _say(console, f"! {error}", style="yellow")
            for outcome in run.outcomes:
                _say(console, outcome_line(outcome))
            return
        print_summary(console, result, run.notes)
        return
    from pipetune.report import exports

    _say(console, exports.text(run).rstrip())


def _show_comparison(console: Console, found: Comparison, runs: tuple[Run, Run]) -> None:
    for stored in runs:
        for problem in stored.problems:
            _say(console, f"! {stored.path}: {problem}", style="yellow")
    for change in found.changes:
        _say(console, f"{change.part}: {change.name} {_value(change.before)} -> {_value(change.after)}")
    if found.other_work and found.differences:
        work = ", ".join(found.other_work)
        _say(console, f"! the two did not do the same work ({work}): the rates below differ for that, too", "yellow")
    if not found.changes:
        _say(console, "configuration and machine are the same")
    for difference in found.differences:
        _say(console, _line(difference, found.unit), style="bold" if difference.outside else None)
    for names, stored in ((found.only_before, runs[0]), (found.only_after, runs[1])):
        if names:
            _say(console, f"only in {stored.path.name}: {', '.join(names)}")
    first, second = found.recommended
    if first != second:
        _say(console, f"recommended: {first or 'nothing'} -> {second or 'nothing'}", style="bold")
    elif first is not None:
        _say(console, f"recommended in both: {first}")
    if not found.differences:
        _say(console, "they have no measured candidate in common")


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


def _say(console: Console, text: str, style: str | None = None) -> None:
    console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)
