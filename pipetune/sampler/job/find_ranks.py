"""Which processes of a job train: a single one, or the ranks that torchrun and similar launchers start.

The rules, in order; each is used only where those before it find nothing:

1. processes whose environment has a ``RANK``; of each rank the topmost, since its loader workers inherit it,
2. processes with something that only a training process has: loader workers or a loader thread, which torch and DALI
   name, or an emulated accelerator's timeline (the topmost of those that inherited it),
3. processes that have a GPU's device file open, the topmost ones,
4. the process below shells and launchers, found by following the only child of each.

Why not psutil: these rules run every few seconds while watching (see ``machine.proc`` for the costs).
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from pipetune.accelerator.timeline import find_timeline
from pipetune.machine.parents import Parents
from pipetune.machine.proc import PROC, tree_pids
from pipetune.sampler.job.roles import ProcessInfo, is_helper_process, is_loader_thread, is_named_worker, read_info
from pipetune.sampler.job.thread_names import ThreadNames

#: Programs that start the one that trains.
_LAUNCHERS = (
    "sh", "bash", "dash", "zsh", "fish", "env", "nice", "nohup", "time", "timeout", "sudo", "su", "tini", "dumb-init",
    "srun", "slurmstepd", "mpirun", "numactl", "taskset", "xargs", "make", "screen", "tmux", "torchrun", "accelerate",
    "accelerate-launch", "torch.distributed.run", "torch.distributed.launch", "deepspeed", "horovodrun", "uv", "uvx",
    "conda", "mamba", "micromamba", "pixi", "poetry", "pipenv", "hatch", "pdm", "docker-init", "strace",
)  # fmt: skip
#: Programs that a shell pipes a training process's output through.
_FILTERS = ("tee", "cat", "grep", "tail", "head", "sed", "awk", "ts", "logger", "rotatelogs", "sleep")


def find_ranks(
    root: int, proc: str = PROC, *, parents: Parents | None = None, names: ThreadNames | None = None
) -> list[ProcessInfo]:
    """The training processes at or below ``root``, in the order of rank, then of PID; empty when it has ended.

    Args:
        root: the process that the user named.
        proc: where proc is mounted.
        parents: remembers whose child each process is, for a caller that asks again and again.
        names: remembers the names of threads.
    """
    children = None if parents is None else parents.children()
    infos = [info for pid in tree_pids(root, proc, children=children) if (info := read_info(pid, proc)) is not None]
    by_pid = {info.pid: info for info in infos}
    candidates = [info for info in infos if not is_helper_process(info) and not is_named_worker(info.name)]
    if not candidates:
        return []
    found = _by_environment(candidates, by_pid)
    found = found or _by_possessions(candidates, infos, by_pid, names or ThreadNames(proc), proc)
    if not found:
        found = _topmost([info for info in candidates if has_gpu_file(info.pid, proc)], by_pid)
    return sorted(found or [_below_launchers(candidates)], key=lambda info: (info.rank or 0, info.pid))


def has_gpu_file(pid: int, proc: str = PROC) -> bool:
    """Whether a process has a GPU's device file open; ``False`` also where this user may not see its files."""
    folder = f"{proc}/{pid}/fd"
    try:
        return any(_is_gpu(os.readlink(f"{folder}/{name}")) for name in os.listdir(folder))
    except OSError:
        return False


def _is_gpu(target: str) -> bool:
    # In WSL2 one file stands for all GPUs.
    return target == "/dev/dxg" or (target.startswith("/dev/nvidia") and target[len("/dev/nvidia") :].isdigit())


def _by_environment(candidates: list[ProcessInfo], by_pid: dict[int, ProcessInfo]) -> list[ProcessInfo]:
    ranked = [info for info in candidates if info.rank is not None and not _is_launcher(info)]
    # A cluster may set RANK for each of its pods; ranks of torchrun and similar launchers have a LOCAL_RANK, too.
    local = [info for info in ranked if info.local_rank is not None]
    chosen = {info.pid: info for info in local or ranked}
    return [
        info
        for info in chosen.values()
        if not any(pid in chosen and chosen[pid].rank == info.rank for pid in _ancestors(info, by_pid))
    ]


def _by_possessions(
    candidates: list[ProcessInfo],
    infos: list[ProcessInfo],
    by_pid: dict[int, ProcessInfo],
    names: ThreadNames,
    proc: str,
) -> list[ProcessInfo]:
    parents = {info.parent for info in infos if is_named_worker(info.name)}
    owners = [
        info
        for info in candidates
        if info.pid in parents or any(is_loader_thread(name) for name in names.of_loader(info.pid).values())
    ]
    # A fork server stands between a rank and its workers.
    owners += [
        by_pid[info.parent]
        for info in infos
        if info.pid in parents
        and is_helper_process(info)
        and info.parent in by_pid
        and by_pid[info.parent] not in owners
    ]
    return owners or _topmost([info for info in candidates if find_timeline(info.pid, proc)], by_pid)


def _topmost(found: list[ProcessInfo], by_pid: dict[int, ProcessInfo]) -> list[ProcessInfo]:
    pids = {info.pid for info in found}
    return [info for info in found if not any(parent in pids for parent in _ancestors(info, by_pid))]


def _ancestors(info: ProcessInfo, by_pid: dict[int, ProcessInfo]) -> Iterable[int]:
    seen = {info.pid}
    parent = by_pid.get(info.parent)
    while parent is not None and parent.pid not in seen:
        seen.add(parent.pid)
        yield parent.pid
        parent = by_pid.get(parent.parent)


def _below_launchers(candidates: list[ProcessInfo]) -> ProcessInfo:
    info = candidates[0]
    while True:
        children = [child for child in candidates if child.parent == info.pid and child.pid != info.pid]
        if not children or not _is_launcher(info):
            return info
        works = [child for child in children if _program(child) not in _FILTERS]
        info = (works or children)[-1]


def _is_launcher(info: ProcessInfo) -> bool:
    return _program(info) in _LAUNCHERS or info.title in _LAUNCHERS


def _program(info: ProcessInfo) -> str:
    return os.path.basename(info.command[0]) if info.command else info.name
