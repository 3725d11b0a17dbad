"""``pipetune watch``: parse, attach or start the job, watch, return an exit code."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipetune.errors import UsageError


def watch_command(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            help="A job to start and watch, after --, e.g. -- python train.py --epochs 3.", metavar="-- JOB"
        ),
    ] = None,
    pid: Annotated[
        int | None,
        typer.Option(help="Process to watch: the training process, or its launcher. [default: found by itself]"),
    ] = None,
    gpu: Annotated[
        int | None, typer.Option(help="Watch the job on this GPU, and read this one whatever the job seems to use.")
    ] = None,
    interval: Annotated[str, typer.Option(help="Time between two looks, e.g. 500ms or 1s.")] = "500ms",
    window: Annotated[str | None, typer.Option(help="Length of one verdict. [default: 10s, with --once 20s]")] = None,
    for_: Annotated[
        str | None, typer.Option("--for", help="End after this long, e.g. 60s. [default: when the job ends]")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="One verdict after one window, then end.")] = False,
    json_lines: Annotated[
        bool, typer.Option("--json", help="One JSON object per line on standard output: start, windows, stalls, end.")
    ] = False,
    log: Annotated[Path | None, typer.Option(help="Add the same JSON lines to this file, as they come.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for this run. [default: pipetune-runs/TIME-watch-JOB; with --once none]"),
    ] = None,
    save: Annotated[bool, typer.Option("--save/--no-save", help="Write a run folder.")] = True,
    prometheus: Annotated[
        str | None,
        typer.Option(
            metavar="[HOST]:PORT", help="Serve the newest window to Prometheus; on the loopback unless a host is named."
        ),
    ] = None,
    fail_under: Annotated[
        float | None,
        typer.Option(help="Exit with 1 if a rank's accelerator was busy for less than this share, 0 to 1."),
    ] = None,
    stacks: Annotated[
        bool, typer.Option("--stacks/--no-stacks", help="Look at Python stacks with py-spy while a stall is suspected.")
    ] = True,
) -> None:
    """Name the cause of a GPU's idle time beside a running job, with no code change."""
    from pipetune.cli.watch_run import run_watch
    from pipetune.units import parse_duration
    from pipetune.watching.options import WatchOptions
    from pipetune.watching.watcher import MOST_LOOKS

    options = WatchOptions(
        command=tuple(command or ()),
        pid=pid,
        gpu=gpu,
        interval_s=_duration("--interval", interval, 0.05, 60.0),
        window_s=_duration("--window", window or ("20s" if once else "10s"), 1.0, 3600.0),
        for_s=None if for_ is None else parse_duration(for_),
        once=once,
        json_lines=json_lines,
        log=log,
        out=out,
        save=save and (not once or out is not None),
        prometheus=prometheus,
        fail_under=fail_under,
        stacks=stacks,
    )
    if options.window_s > MOST_LOOKS * options.interval_s:
        raise UsageError(
            f"--window {window} has {options.window_s / options.interval_s:.0f} looks, more than {MOST_LOOKS}",
            hint=f"choose an --interval of at least {1000 * options.window_s / MOST_LOOKS:.0f}ms",
        )
    if options.command and pid is not None:
        raise UsageError(f"--pid {pid} beside a job to start", hint="name a process or a command, not both")
    if options.command and json_lines:
        raise UsageError(
            "--json beside a job to start: standard output belongs to the job", hint="write them to a file: --log FILE"
        )
    if fail_under is not None and not 0 < fail_under <= 1:
        raise UsageError(f"--fail-under {fail_under:g} is out of range", hint="write a share such as 0.8")
    if gpu is not None and gpu < 0:
        raise UsageError(f"--gpu {gpu} is out of range", hint="GPUs count from 0: pipetune doctor lists them")
    raise typer.Exit(run_watch(options))


def _duration(option: str, text: str, least_s: float, most_s: float) -> float:
    from pipetune.units import format_duration, parse_duration

    seconds = parse_duration(text)
    if not least_s <= seconds <= most_s:
        raise UsageError(
            f"{option} {text} is out of range",
            hint=f"choose from {format_duration(least_s)} to {format_duration(most_s)}",
        )
    return seconds
