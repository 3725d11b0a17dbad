"""``pipetune batch-size``: the largest batch that fits a GPU, and the smallest that is as fast."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipetune.errors import UsageError, exit_code_of
from pipetune.processes.signals import stop_on_sigterm

if TYPE_CHECKING:
    from rich.console import Console

    from pipetune.records.batch_size import BatchPoint, BatchSizes

#: Of a script that takes long to start (s).
_TELL_EVERY_S = 15
#: Options that say what a script has itself.
_OF_MODELS = ("model", "image_size", "precision", "device", "dataset", "seed", "checkpointing", "compile")
#: Those, and options that are for scripts only.
_OF_ONE_KIND = (*_OF_MODELS, "allow_writes")


def batch_size_command(
    context: typer.Context,
    command: Annotated[
        list[str] | None,
        typer.Argument(
            help="Your own training script, after --, e.g. -- python train.py --data /data/x: its own training loop is "
            "given batches of other sizes. {scratch} in it stands for a temporary folder.",
            metavar="-- COMMAND",
        ),
    ] = None,
    model: Annotated[str, typer.Option(help="A torchvision classifier.")] = "resnet50",
    image_size: Annotated[int, typer.Option(help="Edge of the training crop, in pixels.")] = 224,
    precision: Annotated[
        str, typer.Option(help="fp32, amp (float16) or bf16. auto: bf16 where the GPU has it, else amp.")
    ] = "auto",
    device: Annotated[str, typer.Option(help="cuda:N; auto: the first.")] = "auto",
    memory: Annotated[float, typer.Option(help="Share of the GPU's free memory that a step may take.")] = 0.92,
    dataset: Annotated[str, typer.Option(help="Images that the batches are made of.")] = "synthetic:caltech256?n=64",
    seconds: Annotated[float, typer.Option(help="Steady measurement of each batch size, in seconds.")] = 1.5,
    seed: Annotated[int, typer.Option(help="Seed of the crops.")] = 0,
    checkpointing: Annotated[
        bool,
        typer.Option(
            "--checkpointing",
            help="Also with activation checkpointing, which saves memory and computes more: say whether it pays.",
        ),
    ] = False,
    compile: Annotated[
        bool,
        typer.Option("--compile", help="Train the model compiled by torch.compile, as for pipetune sweep."),
    ] = False,
    allow_writes: Annotated[
        bool,
        typer.Option(
            "--allow-writes",
            help="With -- COMMAND: let it change and remove files that exist; without, they stay as they are.",
        ),
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder for this run. [default: pipetune-runs/TIME-batch-size-MODEL]")
    ] = None,
    json_file: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="Write the result as JSON; - for standard output.")
    ] = None,
) -> None:
    """Find the batch size to train with: the smallest that is as fast as any, and the largest that fits.

    Fake tensors predict the memory of a torchvision model, and at most six batch sizes are measured, each in a process
    of its own. Those of a script are measured in its own training loop.
    """
    from pipetune.cli.output import check_target, echo, result_console, say, tell_interruption, write_json
    from pipetune.cli.with_run_file import was_given
    from pipetune.scaling.batch_folder import open_batch_folder
    from pipetune.scaling.batch_run import BatchOptions, find_batch_size
    from pipetune.scaling.batch_script import ScriptOptions, find_script_batch_size
    from pipetune.scaling.scale_json import batch_size_json
    from pipetune.units import format_bytes, format_rate

    def measured(point: BatchPoint) -> None:
        found = f"{format_rate(point.samples_per_s or 0.0)}, {format_bytes(point.peak_bytes or 0)}"
        kind = " with checkpointing" if point.checkpointing else ""
        echo(f"batches of {point.batch_size}{kind}: {point.failure or found}", err=True)

    begun: set[int] = set()

    def following(size: int) -> None:
        again = " once more, in another start" if command and size in begun else ""
        begun.add(size)
        echo(f"measuring batches of {size}{again} …", err=True)

    def stage(text: str, done: int, total: int | None) -> None:
        if done and done % _TELL_EVERY_S == 0:
            echo(f"{text}, for {done} s now …", err=True)

    stop_on_sigterm()
    check_target("--json", json_file, "batch-size.json")
    stops: list[KeyboardInterrupt] = []
    _refuse_together(is_script=bool(command), given=[name for name in _OF_ONE_KIND if was_given(context, name)])
    chosen = BatchOptions(
        model=model,
        image_size=image_size,
        precision=precision,
        device=device,
        memory=memory,
        dataset=dataset,
        seconds=seconds,
        seed=seed,
        checkpointing=checkpointing,
        compile=compile,
    )
    script = ScriptOptions(command=tuple(command or ()), memory=memory, seconds=seconds, allow_writes=allow_writes)
    try:
        with open_batch_folder(out, script if command else chosen) as folder:
            if command:
                echo("starting the script …", err=True)
                with folder.protect_files(script) as files:
                    found = find_script_batch_size(script, measured, following, stops.append, stage, folder.keep, files)
            else:
                found = find_batch_size(chosen, measured, following, stops.append, folder.keep)
    except KeyboardInterrupt as stop:  # before anything was measured
        raise typer.Exit(tell_interruption(stop)) from None
    console = result_console(stderr=json_file == "-")
    print_batch_sizes(console, found)
    if folder.path is not None:
        say(console, f"run folder: {folder.path}")
    if json_file is not None:
        write_json(json_file, batch_size_json(found))
    if folder.not_written is not None:
        raise folder.not_written
    raise typer.Exit(
        exit_code_of(stops[0]) if stops else 1 if found.stopped or not (found.knee or found.checkpointed_largest) else 0
    )


def _refuse_together(*, is_script: bool, given: list[str]) -> None:
    """Refuse options of models for a script, and the other way round.

    Args:
        given: names of options that were given and are for one of them.
    """
    for name in given:
        option = f"--{name.replace('_', '-')}"
        if is_script and name in _OF_MODELS:
            raise UsageError(f"{option} cannot be combined with a script, which has its own", hint=f"omit {option}")
        if not is_script and name not in _OF_MODELS:
            raise UsageError(f"{option} is for a script", hint=f"omit {option}, or write -- python train.py")


def print_batch_sizes(console: Console, found: BatchSizes) -> None:
    """What was measured, the table, and the answer last."""
    from pipetune.cli.output import say
    from pipetune.machine.host import usable_cores
    from pipetune.report.batch_size_text import batch_lines, batch_table, heading
    from pipetune.report.line import Kind

    say(console, heading(found))
    console.print()
    console.print(batch_table(found))
    console.print()
    styles = {Kind.HEADLINE: "bold", Kind.WARNING: "yellow"}
    for line in batch_lines(found, round(usable_cores())):
        say(console, line.text, style=styles.get(line.kind))
