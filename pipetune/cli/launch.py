"""``pipetune launch``: one command for many configurations or hosts of a cluster, and what came of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipetune.errors import UsageError, exit_code_of
from pipetune.processes.signals import stop_on_sigterm


def launch_command(
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- COMMAND", help="What each task does, after --: sweep --dataset /shared/train."),
    ] = None,
    cluster: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The cluster: a TOML file with its partition, hosts and limits.")
    ] = None,
    array: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=V1,V2,…",
            help="An option of the command with the values that tasks have, e.g. ranks=1,2,4,8; "
            "of several, all combinations.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of all tasks, which every host can reach. [default: pipetune-runs/TIME-array]"),
    ] = None,
    show: Annotated[bool, typer.Option("--print", help="Print the scripts, and do nothing. The default.")] = False,
    submit: Annotated[bool, typer.Option("--submit", help="Hand the array to SLURM.")] = False,
    local: Annotated[bool, typer.Option("--local", help="Run the tasks on this host, one after the other.")] = False,
    collect: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Show what has come of the array in this folder so far.")
    ] = None,
    json_file: Annotated[
        str | None,
        typer.Option("--json", metavar="FILE", help="With --collect: write it as JSON; - for standard output."),
    ] = None,
) -> None:
    """Measure many configurations as a job array of a cluster: SLURM, or files for Kubernetes and SkyPilot.

    Each task is a sweep on a host of its own, and goes on where it was when it is requeued.
    """
    from pipetune.cli.output import check_target

    stop_on_sigterm(hangup=True)  # the tasks of --local are in sessions of their own
    check_target("--json", json_file, "array.json")
    if collect is not None:
        if command or cluster or array or out or show or submit or local:
            raise UsageError(f"--collect {collect} shows an array that was launched", hint="omit the other options")
        raise typer.Exit(_collect(collect, json_file))
    if json_file is not None:
        raise UsageError("--json is for --collect", hint="pipetune launch --collect DIR --json FILE")
    if show + submit + local > 1:
        raise UsageError("--print, --submit and --local cannot be combined", hint="name one of them")
    if cluster is None:
        raise UsageError("no cluster was named", hint="write --cluster cluster.toml; guides/cluster has an example")
    raise typer.Exit(_launch(cluster, command or [], array or [], out, submit=submit, local=local))


def _launch(
    cluster_file: Path, command: list[str], array: list[str], out: Path | None, *, submit: bool, local: bool
) -> int:
    from datetime import datetime

    from pipetune.cli.output import echo
    from pipetune.cli.sweep import sweep_command
    from pipetune.cli.with_run_file import options_of
    from pipetune.scaling import launch as launching
    from pipetune.scaling.cluster import read_cluster
    from pipetune.scaling.tasks import require_one_host, tasks_of

    cluster = read_cluster(cluster_file)
    options = {name: one.kind for name, one in options_of(sweep_command).items() if not one.argument}
    tasks = tasks_of(command, array, options)
    folder, cwd = launching.new_folder(out, datetime.now()), Path.cwd()
    if (submit or local) and cluster.scheduler != "slurm":
        raise UsageError(f"a file for {cluster.scheduler} is printed only", hint="omit --submit and --local")
    if local:
        require_one_host(tasks, "on this host alone")
    if not submit and not local:
        for name, text in launching.scripts(cluster, tasks, folder, cwd).items():
            echo(f"# {name}\n{text}")
        return 0
    if launching.is_begun(cluster, tasks, folder, cwd) and local:
        launch = launching.read_launch(folder)
    else:
        launch = launching.lay_out(cluster, tasks, folder, cwd)
    if submit:
        launch = launching.submit(launch)
        collects = "" if launch.collect_job is None else f"; job {launch.collect_job} collects their results"
        echo(f"job {launch.job}: {len(tasks)} tasks{collects}")
        if launch.collect_refused is not None:
            echo(f"pipetune: no job will collect their results: {launch.collect_refused}", err=True)
        echo(f"pipetune launch --collect {folder} shows what has come of them so far")
        return 0
    try:
        code = launching.run_here(
            launch, lambda task: echo(f"task {task.number}, {task.number + 1} of {len(tasks)}: {task.label}", err=True)
        )
    except KeyboardInterrupt as stop:
        echo("pipetune: interrupted", err=True)
        code = exit_code_of(stop)
    _collect(folder, None)
    return code


def _collect(folder: Path, json_file: str | None) -> int:
    """Show what came of an array; 1 where a task has failed."""
    from rich.console import Console

    from pipetune.cli.output import say, write_json
    from pipetune.report.array_text import array_lines
    from pipetune.report.line import Kind
    from pipetune.scaling.launch import as_json, collect, write_collected

    launch, found = collect(folder)
    if json_file is not None:
        write_json(json_file, as_json(launch, found))
    if json_file != "-":
        console = Console(width=None if Console().is_terminal else 200)
        for line in array_lines(found):
            say(console, line.text, style={Kind.HEADLINE: "bold", Kind.WARNING: "yellow"}.get(line.kind))
    write_collected(folder, launch, found)  # last: a disk that is full may be why tasks have failed
    return 1 if any(one.status == "failed" for one in found) else 0
