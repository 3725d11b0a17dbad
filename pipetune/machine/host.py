"""What this machine has: the cores that may really be used, memory, shared memory, limits and versions.

Nothing here imports torch, OpenCV or DALI: versions come from the packages' metadata. GPUs are in ``machine.nvml``.

Why psutil for memory and cores and not for the rest: it knows neither CPU quotas nor the limits of control groups (both
in ``cgroup``), nor the processor's name.
"""

from __future__ import annotations

import contextlib
import fnmatch
import importlib.metadata
import math
import os
import platform
import resource
import shutil
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypedDict

from pipetune.machine import cgroup

#: Distributions whose version can change a measurement.
_VERSIONED = ("torch", "torchvision", "opencv*", "nvidia-dali-*", "pillow", "pillow-simd", "numpy", "nvidia-ml-py",
              "pipetune")  # fmt: skip
#: Up to this many cores, worker counts above the core count are tried, too (see default_worker_counts).
_FEW_CORES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The machine as one process sees it. ``None``: not known here."""

    hostname: str
    """Name of the machine."""
    kernel: str
    """Release of the running kernel."""
    cpu_model: str
    """Name of the processor."""
    cores_present: int
    """Logical cores online in the whole machine."""
    cores_affinity: tuple[int, ...]
    """Numbers of the logical cores that this process may run on (taskset, cpuset), ascending."""
    cpu_quota_cores: float | None
    """Cores' worth of time that the control groups allow; ``None`` without a quota."""
    cores_usable: float
    """The smaller of the two above, from which worker counts are chosen."""
    memory_total_bytes: int | None
    """Memory of the whole machine."""
    memory_limit_bytes: int | None
    """The control groups' limit; ``None`` without one."""
    memory_available_bytes: int | None
    """What can be allocated now without swapping or being killed, under the limit if there is one."""
    shm_total_bytes: int | None
    """Size of /dev/shm, through which torch's loader workers pass their batches; ``None`` where there is none."""
    shm_free_bytes: int | None
    """What of /dev/shm is free."""
    open_files_limit: int | None
    """Soft limit of open files; ``None`` when unlimited."""
    python: str
    """Version of Python."""
    versions: dict[str, str] = field(default_factory=dict)
    """Installed version of each distribution that can change a measurement."""


def describe_host(
    *,
    proc: str | Path = "/proc",
    root: str | Path = "/",
    shm: str | Path = "/dev/shm",
    affinity: Collection[int] | None = None,
    packages: Sequence[str] | None = None,
) -> Host:
    """Read what describes the machine. Never fails: what cannot be read is ``None``, or ``'unknown'`` for a name.

    Args:
        proc: where the proc file system is, for all but memory (see ``psutil.PROCFS_PATH``).
        root: what to put before the mount points of the control groups.
        shm: the shared memory file system.
        affinity: core numbers to take in place of ``sched_getaffinity``.
        packages: folders that are searched for installed distributions; default: ``sys.path``.
    """
    cores = os.sched_getaffinity(0) if affinity is None else affinity
    quota = cgroup.quota_cores(proc=proc, root=root)
    memory = _read_memory(proc, root, shm)
    open_files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return Host(
        hostname=_read(Path(proc, "sys/kernel/hostname")).strip() or "unknown",
        kernel=_read(Path(proc, "sys/kernel/osrelease")).strip() or "unknown",
        cpu_model=parse_cpu_model(_read(Path(proc, "cpuinfo"))) or "unknown",
        cores_present=_cores_present(),
        cores_affinity=tuple(sorted(cores)),
        cpu_quota_cores=quota,
        cores_usable=within_quota(len(cores), quota),
        **memory,
        open_files_limit=None if open_files == resource.RLIM_INFINITY else open_files,
        python=platform.python_version(),
        versions=relevant_versions(packages),
    )


def refresh_memory(
    host: Host, *, proc: str | Path = "/proc", root: str | Path = "/", shm: str | Path = "/dev/shm"
) -> Host:
    """The host with the memory and the shared memory that it has now; takes well under a millisecond.

    A virtual machine may be given memory while it runs, and /dev/shm may be mounted anew with another size.
    """
    return replace(host, **_read_memory(proc, root, shm))


class _Memory(TypedDict):
    """The fields of :class:`Host` about memory and shared memory."""

    memory_total_bytes: int | None
    memory_limit_bytes: int | None
    memory_available_bytes: int | None
    shm_total_bytes: int | None
    shm_free_bytes: int | None


def _read_memory(proc: str | Path, root: str | Path, shm: str | Path) -> _Memory:
    total, available = machine_memory()
    left = (available, cgroup.memory_available_bytes(proc=proc, root=root))
    shm_total, shm_free = _space(shm)
    return {
        "memory_total_bytes": total,
        "memory_limit_bytes": cgroup.memory_limit_bytes(proc=proc, root=root),
        "memory_available_bytes": min((count for count in left if count is not None), default=None),
        "shm_total_bytes": shm_total,
        "shm_free_bytes": shm_free,
    }


def usable_cores(
    *, proc: str | Path = "/proc", root: str | Path = "/", affinity: Collection[int] | None = None
) -> float:
    """Cores that this process can keep busy: the smaller of its affinity and its CPU quota (0.5: half a core)."""
    cores = os.sched_getaffinity(0) if affinity is None else affinity
    return within_quota(len(cores), cgroup.quota_cores(proc=proc, root=root))


def default_worker_counts(cores: float) -> tuple[int, ...]:
    """Loader worker counts worth trying on that many usable cores, ascending: 0, then doubling up to the cores.

    The core count itself is always included; a fraction of a core counts as one. With up to 4 cores the list goes up to
    twice as many: the training process mostly waits for the accelerator or for a batch, and loader workers wait for
    storage, so cores are left over, and with so few of them one more worker is a large step. On larger machines that
    headroom is a small share of the cores, while every worker costs memory and start-up time.

    Raises:
        ValueError: ``cores`` is not a finite number above zero.
    """
    if not 0 < cores < math.inf:
        raise ValueError(f"need a number of cores above zero, got {cores}")
    whole = math.ceil(cores)
    top = 2 * whole if cores <= _FEW_CORES else whole
    doubling = {2**power for power in range(top.bit_length())}
    return tuple(sorted({0, whole, top} | doubling))


def relevant_versions(packages: Sequence[str] | None = None) -> dict[str, str]:
    """Versions of the installed distributions that can change a measurement, by name; nothing is imported."""
    found: dict[str, str] = {}
    for distribution in importlib.metadata.distributions(path=list(sys.path if packages is None else packages)):
        metadata = distribution.metadata
        # An interrupted installation leaves a folder whose metadata has no name.
        name = metadata["Name"].lower().replace("_", "-") if "Name" in metadata else ""
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in _VERSIONED):
            # Python imports the first one on the path: a later one of the same name is shadowed.
            found.setdefault(name, distribution.version)
    return dict(sorted(found.items()))


def parse_cpu_model(cpuinfo: str) -> str | None:
    """The processor's name from ``/proc/cpuinfo``; for Arm kernels, which have no name there, the numbers."""
    values: dict[str, str] = {}
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        values.setdefault(key.strip(), value.strip())
    if values.get("model name"):
        return values["model name"]
    if "CPU part" in values:
        return f"Arm implementer {values.get('CPU implementer', '?')} part {values['CPU part']}"
    return None


def _cores_present() -> int:
    import psutil

    return int(psutil.cpu_count() or 1)


def machine_memory() -> tuple[int | None, int | None]:
    """Memory of the machine, and what can be allocated without swapping (bytes); ``None`` twice where it is unknown."""
    import psutil

    with contextlib.suppress(OSError, KeyError):  # /proc/meminfo is absent or lacks a line
        memory = psutil.virtual_memory()
        return memory.total, memory.available
    return None, None


def within_quota(cores: int, quota: float | None) -> float:
    """Cores that a process can keep busy, of those that it may run on, under a CPU quota (cores; ``None``: none)."""
    return float(cores) if quota is None else min(float(cores), quota)


def _space(folder: str | Path) -> tuple[int | None, int | None]:
    """Size and free space (bytes) of the file system at ``folder``; ``None`` twice where it is absent."""
    try:
        usage = shutil.disk_usage(folder)
    except OSError:
        return None, None
    return usage.total, usage.free


def _read(path: Path) -> str:
    """A small kernel file; empty where it is absent or forbidden."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
