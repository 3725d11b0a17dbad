"""Which job ``pipetune watch`` is to watch: named, started, found, or asked for."""

from __future__ import annotations

import sys

import typer

from pipetune.errors import UsageError
from pipetune.sampler.job.find_jobs import JobGuess, list_jobs, named_process
from pipetune.sampler.job.gpus import RankGpus
from pipetune.sampler.job.roles import ProcessInfo, read_info

_NAME_ONE = "name one with --pid PID, or start it: pipetune watch -- python train.py"


def find_process(pid: int | None, gpu: int | None, gpus: RankGpus, *, may_ask: bool) -> tuple[ProcessInfo, str]:
    """The process to watch, and how it was found.

    Raises:
        UsageError: there is no such process or GPU, no job was found, or there are several and nobody can be asked.
    """
    if pid is not None:
        named, remark = named_process(pid)
        return named, remark or "named with --pid"
    uses = gpus.uses
    if gpu is not None and gpu not in [use.index for use in uses]:
        there = ", ".join(str(use.index) for use in uses)
        raise UsageError(
            f"there is no GPU {gpu}" + (f": {gpus.problem}" if gpus.problem else ""),
            hint=f"choose from {there}" if there else "see what pipetune can use: pipetune doctor",
        )
    jobs = list_jobs(uses)
    if gpu is not None:
        jobs = [job for job in jobs if gpu in job.gpus] or [job for job in jobs if not job.gpus]
    if not jobs:
        where = "" if gpu is None else f" on GPU {gpu}"
        reason = f" ({gpus.problem})" if gpus.problem else ""
        raise UsageError(f"no training job of yours was found{where}{reason}", hint=_NAME_ONE)
    job = jobs[0] if len(jobs) == 1 else _ask(jobs, may_ask)
    info = read_info(job.pid)
    if info is None:
        raise UsageError(f"process {job.pid} ({job.title}) has just ended", hint=_NAME_ONE)
    return info, f"found: it {job.why}"


def _ask(jobs: list[JobGuess], may_ask: bool) -> JobGuess:
    lines = [f"{job.pid}  {job.title}  ({job.why})" for job in jobs]
    if not may_ask or not sys.stdin.isatty() or not sys.stderr.isatty():
        raise UsageError(f"{len(jobs)} jobs could be meant: " + "; ".join(lines), hint=_NAME_ONE)
    typer.echo("Several jobs are running:", err=True)
    for number, line in enumerate(lines, start=1):
        typer.echo(f"  {number}  {line}", err=True)
    try:
        while not 1 <= (choice := typer.prompt("Which one", type=int, default=1, err=True)) <= len(jobs):
            typer.echo(f"choose from 1 to {len(jobs)}", err=True)
    except typer.Abort:
        raise KeyboardInterrupt from None
    return jobs[int(choice) - 1]
