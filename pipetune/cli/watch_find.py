"""Asks the person at the terminal which of several running jobs to watch."""

from __future__ import annotations

import sys

import typer

from pipetune.cli.output import echo
from pipetune.sampler.job.find_jobs import JobGuess
from pipetune.watching.find import refuse


def ask(jobs: list[JobGuess]) -> JobGuess:
    """The job that the person chooses.

    Raises:
        UsageError: standard input or error is not a terminal.
        KeyboardInterrupt: the person gives up.
    """
    if not sys.stdin.isatty() or not sys.stderr.isatty():
        refuse(jobs)
    echo("Several jobs are running:", err=True)
    for number, job in enumerate(jobs, start=1):
        echo(f"  {number}  {job.pid}  {job.title}  ({job.why})", err=True)
    try:
        while not 1 <= (choice := typer.prompt("Which one", type=int, default=1, err=True)) <= len(jobs):
            echo(f"choose from 1 to {len(jobs)}", err=True)
    except typer.Abort:
        raise KeyboardInterrupt from None
    return jobs[int(choice) - 1]
