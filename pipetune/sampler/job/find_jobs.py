"""Which process to watch: the one that was named, or those that look like training."""

from __future__ import annotations

import contextlib
import os
import pwd
from dataclasses import dataclass

from pipetune.accelerator.timeline import find_timeline
from pipetune.errors import UsageError
from pipetune.machine.nvml.processes import gpus_of_process
from pipetune.machine.nvml.visible import GpuUse
from pipetune.machine.proc import PROC, listed_pids, read_once
from pipetune.sampler.job.find_ranks import has_gpu_file
from pipetune.sampler.job.roles import ProcessInfo, is_named_worker, is_servant, read_info


@dataclass(frozen=True, slots=True, kw_only=True)
class JobGuess:
    """A job that could be meant."""

    pid: int
    title: str
    why: str
    """What it was known by, e.g. ``computes on GPU 0``."""
    gpus: tuple[int, ...]


def named_process(pid: int, proc: str = PROC) -> tuple[ProcessInfo, str | None]:
    """The process to watch when the user names ``pid``, and a remark where it is another one.

    Raises:
        UsageError: there is none, it has ended, or it belongs to somebody else.
    """
    status = read_once(f"{proc}/{pid}/status")
    if status is None:
        raise UsageError(f"there is no process {pid}", hint="see the jobs that can be watched: pipetune watch")
    leader = next((int(line.split()[1]) for line in status.splitlines() if line.startswith(b"Tgid:")), pid)
    remark = None if leader == pid else f"{pid} is a thread of process {leader}, which is watched"
    info = read_info(leader, proc)
    if info is None:
        raise UsageError(f"process {pid} has ended", hint="see the jobs that can be watched: pipetune watch")
    if proc == PROC and leader == os.getpid():
        raise UsageError(f"process {pid} is this pipetune itself", hint="name the training process")
    _refuse_strangers(leader, proc)
    if not info.command:
        raise UsageError(f"process {pid} ({info.name}) is a kernel thread", hint="name the training process")
    climbed = _trainer_of(info, proc)
    if climbed.pid != info.pid:
        remark = f"{pid} is a loader worker of process {climbed.pid}, which is watched"
    return climbed, remark


def list_jobs(uses: tuple[GpuUse, ...], proc: str = PROC) -> list[JobGuess]:
    """Jobs of this user that look like training, those on a GPU first.

    Args:
        uses: what NVML says of the GPUs; empty without NVML.
    """
    infos = {pid: info for pid in listed_pids(proc) if _is_ours(pid, proc) and (info := read_info(pid, proc))}
    infos.pop(os.getpid(), None)
    named = [info for info in infos.values() if is_named_worker(info.name)]
    workers = {info.parent for info in named if _same_program(info.pid, info.parent, proc)}
    found: dict[int, JobGuess] = {}
    for pid, info in infos.items():
        if is_servant(info) or is_named_worker(info.name) or not info.command:
            continue
        match = gpus_of_process(pid, uses, proc=proc) if uses else None
        if match is not None and match.indices:
            why = f"computes on GPU {', '.join(map(str, match.indices))}"
        elif pid in workers:
            why = "has torch loader workers"
        elif find_timeline(pid, proc) is not None:
            why = "feeds an emulated accelerator"
        elif not uses and has_gpu_file(pid, proc):
            why = "has a GPU's device file open"
        else:
            continue
        found[pid] = JobGuess(pid=pid, title=info.title, why=why, gpus=match.indices if match else ())
    # Of a launcher and its ranks, and of a process and its forks, the topmost stands for all.
    topmost = [guess for guess in found.values() if not _has_ancestor(infos[guess.pid], infos, set(found))]
    return sorted(topmost, key=lambda guess: (not guess.gpus, guess.gpus, guess.pid))


def _same_program(pid: int, other: int, proc: str) -> bool:
    """They run the same executable, as a loader worker and its trainer do; an orphan has init for a parent."""
    try:
        return os.readlink(f"{proc}/{pid}/exe") == os.readlink(f"{proc}/{other}/exe")
    except OSError:
        return True


def _has_ancestor(info: ProcessInfo, infos: dict[int, ProcessInfo], pids: set[int]) -> bool:
    seen = {info.pid}
    parent = infos.get(info.parent)
    while parent is not None and parent.pid not in seen:
        if parent.pid in pids:
            return True
        seen.add(parent.pid)
        parent = infos.get(parent.parent)
    return False


def _trainer_of(info: ProcessInfo, proc: str) -> ProcessInfo:
    """The process that a loader worker works for; any other process itself."""
    if not is_named_worker(info.name):
        return info
    parent = read_info(info.parent, proc)
    while parent is not None and is_servant(parent):
        parent = read_info(parent.parent, proc)
    return parent or info


def _refuse_strangers(pid: int, proc: str) -> None:
    user = os.geteuid()
    if user == 0:
        return
    with contextlib.suppress(OSError):
        owner = os.stat(f"{proc}/{pid}").st_uid
        if owner != user:
            try:
                name = pwd.getpwuid(owner).pw_name
            except KeyError:
                name = f"user number {owner}"
            raise UsageError(f"process {pid} belongs to {name}", hint="watch it as that user, or with sudo")


def _is_ours(pid: int, proc: str) -> bool:
    try:
        return os.geteuid() == 0 or os.stat(f"{proc}/{pid}").st_uid == os.geteuid()
    except OSError:
        return False
