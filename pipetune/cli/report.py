"""``pipetune report``: what a stored run says, on the screen or as a file."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipetune.cli.output import echo, say
from pipetune.errors import UsageError

if TYPE_CHECKING:
    from pipetune.runs.run import Run

#: The text of a watch is not set wider than this (characters), as at its end.
_WIDEST = 100


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
        bool,
        typer.Option(
            "--csv",
            help="Print one line per measurement as CSV, repeats and the ceiling included; of a watch, one per window "
            "and rank.",
        ),
    ] = False,
) -> None:
    """Show what a run measured: on the screen, or as an HTML page, Markdown, CSV or a trace."""
    wanted = [name for name, value in (("--html", html), ("--trace", trace), ("--markdown", markdown), ("--csv", csv))
              if value]  # fmt: skip
    if sum(name in ("--markdown", "--csv") for name in wanted) + [html, trace].count("-") > 1:
        raise UsageError(f"{' and '.join(wanted)} cannot share standard output", hint="name a FILE for one of them")
    if candidate is not None and trace is None:
        raise UsageError(f"--candidate {candidate} is for --trace", hint="add --trace FILE")
    from pipetune.cli.output import check_figures, check_target, write_text

    check_target("--html", html, "run.html")
    check_figures("--html", html)
    check_target("--trace", trace, "trace.json")
    from pipetune.report import exports
    from pipetune.runs.load import load
    from pipetune.runs.run import DamagedRunWarning

    stored = load(run)
    with warnings.catch_warnings(record=True) as damage:
        warnings.simplefilter("always")
        if html is not None:
            from pipetune.report.html.build import html_page

            write_text(html, [html_page(stored)])
        if trace is not None:
            write_text(trace, (f"{line}\n" for line in exports.trace(stored, candidate)))
        if markdown:
            echo(exports.markdown(stored).rstrip("\n"))
        if csv:
            echo(exports.csv(stored).rstrip("\n"))
        if not wanted:
            _show(stored)
    warned = [str(one.message) for one in damage if issubclass(one.category, DamagedRunWarning)]
    for text in dict.fromkeys([*(stored.problems if wanted else ()), *warned]):
        echo(f"pipetune: {text}", err=True)


def _show(run: Run) -> None:
    """As the command that made it did at its end; of a sweep without the line about its data set, and the code."""
    from pipetune.cli.output import result_console
    from pipetune.runs.run import BATCH_SIZE, EXPLAIN, SWEEP, WHATIF

    console = result_console()

    for problem in run.problems:
        say(console, f"! {problem}", style="yellow")
    if run.kind == SWEEP:
        from pipetune.cli.sweep_print import print_script, print_settings, print_summary
        from pipetune.report.terminal.progress_text import outcome_line
        from pipetune.sweeping.stored import sweep_result

        try:
            result = sweep_result(run)
        except UsageError as error:  # what was asked is lost, what was measured is not
            if not run.outcomes:
                raise
            say(console, f"! {error}", style="yellow")
            for outcome in run.outcomes:
                say(console, outcome_line(outcome))
            return
        print_summary(console, result, run.notes)
        print_settings(console, result, str(result.dataset.get("root") or ""))
        print_script(console, result, run.path)
        return
    if run.kind == EXPLAIN:
        from pipetune.cli.explain import print_explanation
        from pipetune.explaining.stored import explanation_of

        print_explanation(console, explanation_of(run))
        return
    if run.kind == BATCH_SIZE:
        from pipetune.cli.batch_size import print_batch_sizes
        from pipetune.scaling.batch_folder import read_batch_sizes

        print_batch_sizes(console, read_batch_sizes(run))
        return
    if run.kind == WHATIF:
        from pipetune.answering.stored import whatif_of
        from pipetune.cli.whatif import print_answers

        print_answers(console, whatif_of(run))
        return
    from pipetune.report import exports
    from pipetune.report.terminal.signs import draws

    width = min(_WIDEST, console.width) if sys.stdout.isatty() else _WIDEST
    say(console, exports.text(run, width=width, ascii=not draws(console.encoding)).rstrip())
