"""The role of each process and thread of a training job. Pure parsers and thin readers.

Loader workers are recognised by the name that torch sets. Where there is none (older torch, other libraries), a child
that runs the same program as its parent counts as a worker, unless it is a helper process of Python or torch.

Why not psutil for :func:`read_info`: it takes 0.24 ms a process (0.06 ms here), and has the start as wall-clock time,
which cannot be compared exactly with the clock ticks of :class:`~pipetune.sampler.job.task.WatchedTask`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from pipetune.machine.proc import PROC, read_once, read_process_stat

#: Names that torch sets (``torch/utils/data/_utils/worker.py``); the kernel keeps 15 characters.
WORKER_NAMES = ("pt_data_worker", "pt_multiprocess")
#: Threads that load data: torch's worker threads, and DALI's.
LOADER_THREAD_NAMES = ("pt_thread_data_", "[DALI]")
PIN_THREAD_NAME = "pt_data_pin"
#: Helper processes, which load no data: parts of their module, script or code, and beginnings of their name.
_HELPER_MODULES = (
    "multiprocessing.resource_tracker", "multiprocessing.semaphore_tracker", "multiprocessing.forkserver",
    "_inductor/compile_worker", "torch._inductor",
)  # fmt: skip
_HELPER_PROGRAMS = ("tensorboard", "wandb", "py-spy", "torch_shm_manager", "nvidia-smi")
_SPAWNED = ("multiprocessing.spawn", "multiprocessing.forkserver", "--multiprocessing-fork")
#: Options of the interpreter that are followed by a value.
_VALUED = ("-W", "-X", "--check-hash-based-pycs")
_DISTRIBUTED = ("RANK", "LOCAL_RANK")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessInfo:
    """What identifies a process and stays the same while it runs one program."""

    pid: int
    parent: int
    start_ticks: int
    name: str
    """Its command name (``comm``)."""
    command: tuple[str, ...]
    """Arguments; empty for a kernel thread or one that hides them."""
    rank: int | None
    local_rank: int | None
    """``None``: not in a distributed job, or this user may not read its environment."""

    @property
    def title(self) -> str:
        """Its title for people: the script, not the interpreter."""
        return command_title(self.command) or self.name


def command_title(command: Sequence[str]) -> str:
    """``python -u train.py --x`` -> ``train.py``; empty for no command."""
    program, option, script = what_runs(command)
    return "python -c" if option == "-c" else script if option == "-m" else os.path.basename(script or program)


def what_runs(command: Sequence[str]) -> tuple[str, str, str]:
    """What a command line runs, without its arguments.

    Returns:
        The program; ``-m``, ``-c`` or ``""``; and an interpreter's module, code or script.
    """
    program, words = (command[0] if command else ""), list(command[1:])
    if not os.path.basename(program).startswith("python"):
        return program, "", ""
    while words and words[0].startswith("-"):
        option = words.pop(0)
        if option in ("-m", "-c") and words:
            return program, option, words[0]
        if option in _VALUED and words:
            words.pop(0)
    return program, "", words[0] if words else ""


def read_info(pid: int, proc: str = PROC) -> ProcessInfo | None:
    """Read what describes a process; ``None``: there is none."""
    stat = read_process_stat(pid, proc)
    if stat is None or stat.has_ended:
        return None
    folder = f"{proc}/{pid}"
    command = tuple(part.decode("utf-8", "replace") for part in (read_once(f"{folder}/cmdline") or b"").split(b"\0"))
    numbers = parse_ranks(read_once(f"{folder}/environ") or b"")
    return ProcessInfo(
        pid=pid,
        parent=stat.parent,
        start_ticks=stat.start_ticks,
        name=(read_once(f"{folder}/comm") or b"?").strip().decode("utf-8", "replace"),
        command=command[:-1] if command and not command[-1] else command,
        rank=numbers.get("RANK"),
        local_rank=numbers.get("LOCAL_RANK"),
    )


def parse_ranks(environ: bytes) -> dict[str, int]:
    """``/proc/PID/environ`` -> ``RANK`` and ``LOCAL_RANK``, which torchrun and similar launchers set."""
    found: dict[str, int] = {}
    for entry in environ.split(b"\0"):
        name, _, value = entry.partition(b"=")
        text = name.decode("ascii", "replace")
        if text in _DISTRIBUTED and value.isdigit():
            found[text] = int(value)
    return found


def is_helper_process(info: ProcessInfo) -> bool:
    """Whether a process belongs to the job and loads no data; never for a loader worker by name."""
    if is_named_worker(info.name):
        return False
    program, option, script = what_runs(info.command)
    if any(part in script for part in _HELPER_MODULES):
        return True
    names = (os.path.basename(program), "" if option == "-c" else os.path.basename(script))
    return any(name.startswith(_HELPER_PROGRAMS) for name in names)


def is_named_worker(name: str) -> bool:
    """Whether torch gave it the name of a loader worker."""
    return name.startswith(WORKER_NAMES)


def may_be_worker(info: ProcessInfo, trainer: ProcessInfo) -> bool:
    """Whether a process may be a loader worker: a copy of the training process (fork), or spawned by Python."""
    if is_helper_process(info):
        return False
    if is_named_worker(info.name):
        return True
    forked = info.command == trainer.command and bool(info.command)
    return forked or is_spawned(info)


def is_spawned(info: ProcessInfo) -> bool:
    """Whether it is a child of Python's multiprocessing that runs a new interpreter and imports everything anew."""
    line = " ".join(info.command)
    return any(part in line for part in _SPAWNED)


def is_loader_thread(name: str) -> bool:
    """Whether a thread of this name loads data."""
    return name.startswith(LOADER_THREAD_NAMES)
