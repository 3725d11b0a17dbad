"""``pipetune whatif``: what other cores, disks, accelerators or images would bring, and how sure that is."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO, cast

import typer

from pipetune.errors import UsageError, exit_code_of
from pipetune.processes.signals import stop_on_sigterm

if TYPE_CHECKING:
    from rich.console import Console

    from pipetune.explaining.run import ExplainObserver
    from pipetune.records.prediction import WhatIf


def whatif_command(
    run: Annotated[Path, typer.Argument(help="The run folder of pipetune explain, or of a sweep.")],
    cores: Annotated[
        str | None, typer.Option(metavar="LIST", help="CPU cores; with as many workers per core, unless --workers.")
    ] = None,
    workers: Annotated[str | None, typer.Option(metavar="LIST", help="Loader workers of each rank.")] = None,
    disk: Annotated[
        str | None,
        typer.Option(
            metavar="LIST", help="Files come from storage: 500MB/s; 500MB/s,8000iops; hdd, sata, nvme, gp3 or efs."
        ),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="Memory of the machine, which holds files that were read before: 64GB."),
    ] = None,
    device: Annotated[
        str | None, typer.Option(metavar="LIST", help="Another accelerator: a published one, e.g. a100, or its rate.")
    ] = None,
    ranks: Annotated[str | None, typer.Option(metavar="LIST", help="Training processes on this host.")] = None,
    image_size: Annotated[
        str | None, typer.Option(metavar="LIST", help="Edge of the training crop, in pixels.")
    ] = None,
    shorter_edge: Annotated[
        str | None, typer.Option(metavar="LIST", help="Images stored with a shorter edge of so many pixels.")
    ] = None,
    transforms: Annotated[
        str | None, typer.Option(metavar="LIST", help="Where images are augmented: worker, device (the accelerator).")
    ] = None,
    candidate: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="Of a sweep: which loader, or recommended or default. [default: recommended]"),
    ] = None,
    target: Annotated[
        float | None, typer.Option(help="Share of the accelerator's rate to reach. [default: the sweep's, or 0.9]")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Measure what this machine can be put to, and say how wrong it was.")
    ] = False,
    seconds: Annotated[float, typer.Option(help="With --check: steady measurement of each, in seconds.")] = 3.0,
    blocks: Annotated[int, typer.Option(help="With --check: how often each is measured, in turn.")] = 2,
    seed: Annotated[int, typer.Option(help="With --check: seed of the order.")] = 0,
    out: Annotated[
        Path | None,
        typer.Option(help="With --check: folder for what is measured. [default: pipetune-runs/TIME-whatif-DATASET]"),
    ] = None,
    json_file: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="Write the result as JSON; - for standard output.")
    ] = None,
    html: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write one self-contained HTML page; - for standard output.")
    ] = None,
) -> None:
    """Predict the rate with other cores, workers, storage, memory, accelerators, ranks or images.

    Each option takes one value or several with commas between, and every combination is answered. Without any, it says
    what sets the pace and what would reach the target.
    """
    from pipetune.answering.questions import Asked
    from pipetune.answering.run import WhatIfOptions, start
    from pipetune.cli.output import check_figures, check_target, echo, result_console, say, write_json, write_text

    stop_on_sigterm()
    check_target("--json", json_file, "whatif.json")
    check_target("--html", html, "whatif.html")
    check_figures("--html", html)
    if json_file == "-" and html == "-":
        raise UsageError("--json and --html cannot share standard output", hint="name a FILE for one of them")
    asked = Asked(
        cores=cores, workers=workers, disk=disk, memory=memory, device=device, ranks=ranks, image_size=image_size,
        shorter_edge=shorter_edge, transforms=transforms,
    )  # fmt: skip
    chosen = WhatIfOptions(
        run=run, candidate=candidate, asked=asked, target=target, check=check, seconds=seconds, blocks=blocks, seed=seed
    )
    console = result_console(stderr="-" in (json_file, html))
    display = _display()
    try:
        with display:
            ended = start(chosen, out, display)
    except KeyboardInterrupt as stop:  # before anything was measured
        echo("pipetune: interrupted", err=True)
        raise typer.Exit(exit_code_of(stop)) from None
    if ended.stopped is not None:
        why = f"{ended.result['message']}; " if ended.stopped == "failed" else ""
        say(console, f"! {ended.stopped.upper()}: {why}what was measured until then is shown", style="yellow")
    print_answers(console, ended.found)
    if ended.path is not None:
        say(console, f"run folder: {ended.path}")
    if json_file is not None:
        write_json(json_file, ended.result)
    if ended.not_written is not None:
        raise ended.not_written
    if html is not None:
        from pipetune.report.html.build import answers_page

        name = (ended.path or run).resolve().name
        write_text(html, [answers_page(ended.found, run_name=name, about=ended.about, result=ended.result)])
    raise typer.Exit(ended.exit_code)


def print_answers(console: Console, found: WhatIf) -> None:
    """The table, what to know, how wrong it was, and what would reach the target last."""
    from pipetune.cli.output import say
    from pipetune.report.line import Kind
    from pipetune.report.whatif_text import (
        LEGEND,
        answer_table,
        check_lines,
        machine_line,
        own_error_line,
        reach_lines,
        remarks_of,
    )

    say(console, found.candidate)
    console.print()
    console.print(answer_table(found, console.width))
    say(console, LEGEND, style="dim")
    for text in remarks_of(found):
        say(console, f"! {text}", style="yellow")
    checks = check_lines(found)
    if checks:
        say(console, "Measured:", style="bold")
    for text in checks:
        say(console, f"  {text}")
    for line in filter(None, (machine_line(found), own_error_line(found))):
        say(console, line)
    styles = {Kind.HEADLINE: "bold", Kind.WARNING: "yellow"}
    for reach in reach_lines(found):
        say(console, reach.text, style=styles.get(reach.kind))


def _display() -> ExplainObserver:
    from rich.console import Console

    from pipetune.cli.streams import Lossy
    from pipetune.report.terminal.explain_live import Display

    return Display(Console(file=cast(TextIO, Lossy(sys.stderr))))
