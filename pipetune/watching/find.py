"""The process that a watch attaches to: named, started by pipetune, or found among the running ones."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from typing import NoReturn

from pipetune.errors import UsageError
from pipetune.processes.user_job import JobProcess
from pipetune.sampler.job.find_jobs import JobGuess, list_jobs, named_process
from pipetune.sampler.job.gpus import RankGpus
from pipetune.sampler.job.roles import ProcessInfo, read_info

_NAME_ONE = "name one with --pid PID, or start it: pipetune watch -- python train.py"
#: Takes the jobs that could be meant, two or more, and returns one of them.
Choose = Callable[[list[JobGuess]], JobGuess]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The process to watch, with what reads its GPUs."""

    info: ProcessInfo
    found: str
    """How it was found, e.g. ``named with --pid``."""
    remark: str | None = None
    """What the user should know about it; ``None``: it is the process that was named."""
    gpus: RankGpus
    """Finds and opens the GPUs of the job's ranks; the watch closes them."""
    notes: SimpleQueue[str]
    """Sentences for the user that came up meanwhile, e.g. how a GPU was found."""


def refuse(jobs: list[JobGuess]) -> NoReturn:
    """Choose none.

    Raises:
        UsageError: always; lists the jobs.
    """
    lines = [f"{job.pid}  {job.title}  ({job.why})" for job in jobs]
    raise UsageError(f"{len(jobs)} jobs could be meant: " + "; ".join(lines), hint=_NAME_ONE)


def find_target(pid: int | None, gpu: int | None, choose: Choose = refuse) -> Target:
    """The process to watch.

    Args:
        pid: the process that was named; ``None``: the only training job of this user that runs.
        gpu: GPU that it computes on, and that is read; ``None``: any.
        choose: called where several jobs could be meant.

    Raises:
        UsageError: there is no such process or GPU, no job was found, or ``choose`` refuses.
    """
    notes: SimpleQueue[str] = SimpleQueue()
    gpus = RankGpus(forced=gpu, note=notes.put)
    if pid is not None:
        info, remark = named_process(pid)
        return Target(info=info, found=remark or "named with --pid", remark=remark, gpus=gpus, notes=notes)
    job = _running_job(gpu, gpus, choose)
    found = read_info(job.pid)
    if found is None:
        raise UsageError(f"process {job.pid} ({job.title}) has just ended", hint=_NAME_ONE)
    return Target(info=found, found=f"found: it {job.why}", gpus=gpus, notes=notes)


def started_target(job: JobProcess, gpu: int | None, notes: SimpleQueue[str]) -> Target:
    """The job that pipetune has started; one without a name where it has ended already."""
    info = read_info(job.pid)
    if info is None:  # there is nothing to see, and nothing wrong
        info = ProcessInfo(
            pid=job.pid, parent=os.getpid(), start_ticks=0, name="?", command=(), rank=None, local_rank=None,
        )  # fmt: skip
    return Target(info=info, found="started by pipetune", gpus=RankGpus(forced=gpu, note=notes.put), notes=notes)


def _running_job(gpu: int | None, gpus: RankGpus, choose: Choose) -> JobGuess:
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
    return jobs[0] if len(jobs) == 1 else choose(jobs)
