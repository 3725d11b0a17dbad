"""``pipetune explain``: where the time of a loader goes, what sets its pace, what would lift it."""

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
    from pipetune.records.explanation import Explanation


def explain_command(
    run: Annotated[
        Path | None, typer.Argument(help="The run folder of a sweep, whose loader and accelerator are taken.")
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(help="Instead of a run: images, named as for pipetune sweep --dataset.")
    ] = None,
    loader: Annotated[
        str | None,
        typer.Option(
            metavar="PKG.MOD:NAME", help="Instead of a run: a loader of your own, named as for pipetune sweep."
        ),
    ] = None,
    candidate: Annotated[
        str | None,
        typer.Option(
            metavar="KEY",
            help="Which loader, e.g. opencv-w2-p4-b64; of a run also recommended or default. [default: recommended; of "
            "a data set Pillow in a plain DataLoader, with a worker per core]",
        ),
    ] = None,
    stages: Annotated[
        str, typer.Option(help="all, or warm: storage is left out, and no file is dropped from the page cache.")
    ] = "all",
    seconds: Annotated[float, typer.Option(help="Steady measurement of each part, in seconds.")] = 2.0,
    blocks: Annotated[int, typer.Option(help="How often each part is measured, in turn with the others.")] = 3,
    cache: Annotated[
        str,
        typer.Option(help="Without a run: state of the page cache in which the whole loader is judged: warm or cold."),
    ] = "warm",
    model: Annotated[str, typer.Option(help="Without a run: as for pipetune sweep.")] = "resnet50",
    device: Annotated[str, typer.Option(help="Without a run: as for pipetune sweep.")] = "auto",
    image_size: Annotated[int, typer.Option(help="Without a run: edge of the training crop, in pixels.")] = 224,
    augment: Annotated[str, typer.Option(help="Without a run: as for pipetune sweep.")] = "basic",
    precision: Annotated[str, typer.Option(help="Without a run: as for pipetune sweep.")] = "auto",
    compile: Annotated[bool, typer.Option("--compile", help="Without a run: as for pipetune sweep.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder for this run. [default: pipetune-runs/TIME-explain-DATASET]")
    ] = None,
    json_file: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="Write the result as JSON; - for standard output.")
    ] = None,
    html: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write one self-contained HTML page; - for standard output.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the images that stages are measured on, and of the order.")] = 0,
) -> None:
    """Measure each stage of a loader by itself: where its time goes, what sets its pace, and what would lift it.

    A stage's cost is the difference between the loader with it and without it, both measured as fast as they can run.
    """
    from pipetune.cli.output import check_figures, check_target, echo, result_console, say, write_json, write_text
    from pipetune.explaining.options import ExplainOptions, check_values
    from pipetune.explaining.run import start

    stop_on_sigterm()
    check_target("--json", json_file, "explanation.json")
    check_target("--html", html, "explanation.html")
    check_figures("--html", html)
    if json_file == "-" and html == "-":
        raise UsageError("--json and --html cannot share standard output", hint="name a FILE for one of them")
    if stages not in ("all", "warm"):
        raise UsageError(f"--stages {stages!r} is unknown", hint="choose from all, warm")
    chosen = ExplainOptions(
        run=run, dataset=dataset, loader=loader, candidate=candidate, seconds=seconds, blocks=blocks,
        cold=stages == "all", cache=cache, model=model, device=device, image_size=image_size, augment=augment,
        precision=precision, compile=compile, seed=seed,
    )  # fmt: skip
    check_values(chosen)
    console = result_console(stderr="-" in (json_file, html))
    try:
        ended = start(chosen, out, _display())
    except KeyboardInterrupt as stop:  # before anything was measured
        echo("pipetune: interrupted", err=True)
        raise typer.Exit(exit_code_of(stop)) from None
    if ended.stopped is not None:
        say(console, f"! {ended.stopped.upper()}: {ended.message}", style="yellow")
    if ended.explanation is None:
        echo("pipetune: too little was measured to explain anything", err=True)
    else:
        print_explanation(console, ended.explanation)
    say(console, f"run folder: {ended.path}")
    if json_file is not None:
        write_json(json_file, ended.result)
    if ended.not_written is not None:
        raise ended.not_written
    if html is not None and ended.explanation is not None:
        from pipetune.report.html.build import html_page
        from pipetune.runs.load import load

        write_text(html, [html_page(load(ended.path))])
    raise typer.Exit(ended.exit_code)


def print_explanation(console: Console, found: Explanation) -> None:
    """The table of stages, what to know, and the answer last."""
    from pipetune.cli.output import say
    from pipetune.report.explain_text import LEGEND, closing_line, explanation_lines, loader_of, stage_table
    from pipetune.report.line import Kind
    from pipetune.report.terminal.signs import draws

    say(console, loader_of(found))
    console.print()
    console.print(stage_table(found, console.width, ascii=not draws(console.encoding)))
    say(console, LEGEND, style="dim")
    console.print()
    if (closing := closing_line(found)) is not None:
        say(console, closing)
    for text in found.notes:
        say(console, f"! {text}", style="yellow")
    styles = {Kind.HEADLINE: "bold", Kind.WARNING: "yellow"}
    for line in explanation_lines(found):
        say(console, line.text, style=styles.get(line.kind))


def _display() -> ExplainObserver:
    from rich.console import Console

    from pipetune.cli.streams import Lossy
    from pipetune.report.terminal.explain_live import Display

    return Display(Console(file=cast(TextIO, Lossy(sys.stderr))))
