"""Which process to watch: the one that the user named, or those that look like training.

Why psutil for who runs, as whom and which program, and not for roles: :func:`pipetune.sampler.job.roles.read_info` is
called for every new process while watching, and psutil takes four times as long for the same (0.24 and 0.06 ms).
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipetune.accelerator.timeline import find_timeline
from pipetune.errors import UsageError
from pipetune.machine.nvml.processes import gpus_of_process
from pipetune.machine.nvml.visible import GpuUse
from pipetune.machine.proc import PROC, read_once
from pipetune.sampler.job.find_ranks import has_gpu_file
from pipetune.sampler.job.roles import ProcessInfo, is_helper_process, is_named_worker, read_info

if TYPE_CHECKING:
    import psutil

_LIST_THEM = "see the jobs that can be watched: pipetune watch"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobGuess:
    """A process that looks like training."""

    pid: int
    title: str
    """What a person calls it, e.g. ``train.py``."""
    why: str
    """What it was recognised by, e.g. ``computes on GPU 0``."""
    gpus: tuple[int, ...]
    """NVML's numbers of the GPUs that it uses; empty where that is unknown."""


def named_process(pid: int) -> tuple[ProcessInfo, str | None]:
    """The process to watch when the user names ``pid``, and a remark where it is another one.

    Raises:
        UsageError: there is none, it has ended, or it belongs to another user.
    """
    import psutil

    leader = _leader_of(pid)
    if leader is None:
        raise UsageError(f"there is no process {pid}", hint=_LIST_THEM)
    info = read_info(leader)
    if info is None:
        raise UsageError(f"process {pid} has ended", hint=_LIST_THEM)
    if leader == os.getpid():
        raise UsageError(f"process {pid} is this pipetune itself", hint="name the training process")
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(leader)
        if not _is_own(process):
            raise UsageError(
                f"process {pid} belongs to {process.username()}", hint="watch it as that user, or with sudo"
            )
    if not info.command:
        raise UsageError(f"process {pid} ({info.name}) is a kernel thread", hint="name the training process")
    trainer = _trainer_of(info)
    if trainer.pid != leader:
        return trainer, f"{pid} is a loader worker of process {trainer.pid}, which is watched"
    return info, None if leader == pid else f"{pid} is a thread of process {leader}, which is watched"


def list_jobs(uses: tuple[GpuUse, ...]) -> list[JobGuess]:
    """Jobs of this user that look like training, those on a GPU first.

    Args:
        uses: what NVML reports about the GPUs; empty without NVML.
    """
    import psutil

    infos: dict[int, ProcessInfo] = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.pid != os.getpid() and _is_own(process) and (info := read_info(process.pid)):
                infos[process.pid] = info
    named = [info for info in infos.values() if is_named_worker(info.name)]
    workers = {owner.pid for info in named if (owner := _owner(info)) is not None}
    found: dict[int, JobGuess] = {}
    for pid, info in infos.items():
        if is_helper_process(info) or is_named_worker(info.name) or not info.command:
            continue
        match = gpus_of_process(pid, uses) if uses else None
        if match is not None and match.indices:
            why = f"computes on GPU {(' or ' if match.uncertain else ', ').join(map(str, match.indices))}"
        elif pid in workers:
            why = "has torch loader workers"
        elif find_timeline(pid) is not None:
            why = "feeds an emulated accelerator"
        elif not uses and has_gpu_file(pid):
            why = "has a GPU's device file open"
        else:
            continue
        found[pid] = JobGuess(pid=pid, title=info.title, why=why, gpus=match.indices if match else ())
    # Of a launcher and its ranks, and of a process and its forks, only the topmost is listed.
    topmost = [guess for guess in found.values() if not _has_ancestor(infos[guess.pid], infos, set(found))]
    return sorted(topmost, key=lambda guess: (not guess.gpus, guess.gpus, guess.pid))


def _same_program(pid: int, other: int) -> bool:
    """Whether two processes run the same executable, as a worker and its trainer do (and an orphan and init do not)."""
    import psutil

    with contextlib.suppress(psutil.Error):
        return bool(psutil.Process(pid).exe() == psutil.Process(other).exe())
    return True  # unknown


def _has_ancestor(info: ProcessInfo, infos: dict[int, ProcessInfo], pids: set[int]) -> bool:
    seen = {info.pid}
    parent = infos.get(info.parent)
    while parent is not None and parent.pid not in seen:
        if parent.pid in pids:
            return True
        seen.add(parent.pid)
        parent = infos.get(parent.parent)
    return False


def _trainer_of(info: ProcessInfo) -> ProcessInfo:
    """The process that a loader worker works for; any other process itself.

    Raises:
        UsageError: the worker's training process has ended.
    """
    if not is_named_worker(info.name):
        return info
    owner = _owner(info)
    if owner is None:
        raise UsageError(f"process {info.pid} is a loader worker whose training process has ended", hint=_LIST_THEM)
    return owner


def _owner(worker: ProcessInfo) -> ProcessInfo | None:
    """The process that a loader worker works for, above a fork server, say; ``None``: it has ended."""
    parent = read_info(worker.parent)
    while parent is not None and is_helper_process(parent):
        parent = read_info(parent.parent)
    return parent if parent is not None and parent.pid > 1 and _same_program(worker.pid, parent.pid) else None


def _leader_of(pid: int) -> int | None:
    """The process that a thread belongs to, a process itself; ``None``: there is neither. psutil knows no threads."""
    status = read_once(f"{PROC}/{pid}/status")
    if status is None:
        return None
    return next((int(line.split()[1]) for line in status.splitlines() if line.startswith(b"Tgid:")), pid)


def _is_own(process: psutil.Process) -> bool:
    """Whether this user may watch the process; root may watch all."""
    return os.geteuid() in (0, process.uids().effective)
