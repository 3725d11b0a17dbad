"""``pipetune watch``: parse, find or start the job, watch it, return an exit code."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipetune.errors import UsageError
from pipetune.processes.signals import stop_on_sigterm


def watch_command(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            help="A job to start and watch, after --, e.g. -- python train.py --epochs 3.", metavar="-- JOB"
        ),
    ] = None,
    pid: Annotated[
        int | None,
        typer.Option(
            help="Process to watch: the training process, or its launcher. [default: the only training job that runs]"
        ),
    ] = None,
    gpu: Annotated[
        int | None,
        typer.Option(
            help="Index of the GPU (as in nvidia-smi): watch the job that runs on it, and read its utilisation even "
            "where the job seems to use another."
        ),
    ] = None,
    interval: Annotated[str, typer.Option(help="Time between two readings, e.g. 500ms or 1s.")] = "500ms",
    window: Annotated[
        str | None, typer.Option(help="Time that one verdict covers. [default: 10s, with --once 20s]")
    ] = None,
    for_: Annotated[
        str | None, typer.Option("--for", help="End after this long, e.g. 60s. [default: when the job ends]")
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="One verdict after one window, then end; a job that was started goes on.")
    ] = False,
    json_lines: Annotated[
        bool,
        typer.Option(
            "--json",
            help="One JSON object per line on standard output: start, windows, stalls, end. "
            "Not beside a job that is started, whose output that is: see --log.",
        ),
    ] = False,
    log: Annotated[Path | None, typer.Option(help="Append the same JSON lines to this file, as they come.")] = None,
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
        typer.Option(
            help="Exit with 1 if less than this share (0 to 1) of a rank's accelerator time was used, that is not "
            "lost, or if nothing could be judged."
        ),
    ] = None,
    stacks: Annotated[
        bool, typer.Option("--stacks/--no-stacks", help="Sample Python stacks with py-spy while a stall is suspected.")
    ] = True,
) -> None:
    """Name the cause of a GPU's idle time in a running job, with no code change."""
    from pipetune.cli.parse import value
    from pipetune.cli.watch_find import ask
    from pipetune.cli.watch_print import WatchPrinter
    from pipetune.units import parse_duration
    from pipetune.watching.find import find_target, refuse
    from pipetune.watching.options import WatchOptions, check
    from pipetune.watching.run import start_and_watch, watch_process
    from pipetune.watching.setup import check_log

    options = WatchOptions(
        command=tuple(command or ()),
        pid=pid,
        gpu=gpu,
        interval_s=value("--interval", interval, parse_duration),
        window_s=value("--window", window or ("20s" if once else "10s"), parse_duration),
        for_s=value("--for", for_, parse_duration),
        once=once,
        log=log,
        out=out,
        save=save and (not once or out is not None),
        prometheus=prometheus,
        fail_under=fail_under,
        stacks=stacks,
    )
    if out is not None and not save:
        raise UsageError(f"--out {out} together with --no-save: nothing would be written there", hint="leave one out")
    check(options)
    if options.command and json_lines:
        raise UsageError(
            "--json together with a job to start: standard output belongs to the job",
            hint="write the lines to a file: --log FILE",
        )
    check_log(log)
    printer = WatchPrinter(json_lines=json_lines, once=once, beside=bool(options.command))
    if options.command:
        raise typer.Exit(start_and_watch(options, printer))
    stop_on_sigterm()
    target = find_target(pid, gpu, refuse if once or json_lines else ask)
    raise typer.Exit(watch_process(options, target, printer))
