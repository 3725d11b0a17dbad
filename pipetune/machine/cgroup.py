"""Control groups: how much CPU time and memory they allow a process. Version 1, version 2 and both at once.

Affinity says which cores may be used, a quota says how much of them: a container with ``--cpus 2`` on a machine of 64
cores sees all 64 and is stopped for most of every period when it uses them. Every level up to the root can set its own
limit and the tightest one holds, so each function takes the minimum over this group and its ancestors.

Why by hand: psutil reads no control groups.

Sources: cgroups(7); the kernel's admin-guide/cgroup-v2 (``cpu.max``, ``memory.max``), scheduler/sched-bwc
(``cpu.cfs_quota_us``) and cgroup-v1/memory; proc(5) for ``mountinfo``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

#: Version 1 writes "no limit" as the largest page-aligned long, which depends on the page size; no real limit is near.
_NO_LIMIT_BYTES = 2**62
#: The controller name that stands for version 2, whose line in ``/proc/PID/cgroup`` names none.
V2 = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CgroupMount:
    """A mounted cgroup hierarchy."""

    controllers: frozenset[str]
    """``{"cpu", "cpuacct"}``; ``{""}`` for version 2."""
    root: str
    """Path inside the hierarchy that the mount point shows: not ``/`` in a container without its own namespace."""
    point: str


def parse_mountinfo(text: str) -> tuple[CgroupMount, ...]:
    """The cgroup mounts of ``/proc/self/mountinfo``, in its order; lines in another form are skipped."""
    mounts = []
    for line in text.splitlines():
        place, _, source = line.partition(" - ")
        fields, kind = place.split(), source.split()
        if len(fields) < 5 or len(kind) < 3 or kind[0] not in ("cgroup", "cgroup2"):
            continue
        controllers = frozenset({V2} if kind[0] == "cgroup2" else kind[2].split(","))
        mounts.append(CgroupMount(controllers=controllers, root=_unescape(fields[3]), point=_unescape(fields[4])))
    return tuple(mounts)


def parse_membership(text: str) -> dict[str, str]:
    """``/proc/self/cgroup`` -> controller -> path; version 2 under ``""``."""
    paths = {}
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        controllers, colon, path = rest.partition(":")
        if number.isdigit() and colon:
            paths.update(dict.fromkeys(controllers.split(","), path))
    return paths


def parse_cpu_max(text: str) -> float | None:
    """``cpu.max``, e.g. ``'150000 100000'`` -> 1.5 cores; ``None`` for ``'max 100000'`` or an unknown form."""
    quota, _, period = text.strip().partition(" ")
    return parse_cfs_quota(quota, period or "100000")


def parse_cfs_quota(quota_us: str, period_us: str) -> float | None:
    """Quota and period (µs) -> cores; ``None`` for -1, which means no limit, or an unknown form."""
    quota, period = _whole(quota_us), _whole(period_us)
    return quota / period if quota and period else None


def parse_memory_limit(text: str) -> int | None:
    """``memory.max`` or ``memory.limit_in_bytes`` -> bytes; ``None`` for ``'max'`` and version 1's huge default."""
    limit = _whole(text)
    return limit if limit is not None and limit < _NO_LIMIT_BYTES else None


def parse_memory_stat(text: str) -> dict[str, int]:
    """``memory.stat`` -> name -> bytes or count."""
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}


def quota_cores(*, proc: str | Path = "/proc", root: str | Path = "/", pid: int | None = None) -> float | None:
    """Cores that the CPU quotas allow a process (2.0: two cores' worth of time); ``None`` without a quota.

    Args:
        proc: where the proc file system is.
        root: what to put before the mount points named there.
        pid: the process; ``None``: this one.
    """
    levels = [*_levels(V2, proc, root, pid), *_levels("cpu", proc, root, pid)]
    return min((quota for quota in map(quota_of, levels) if quota is not None), default=None)


def group_folders(
    controller: str, *, proc: str | Path = "/proc", root: str | Path = "/", pid: int | None = None
) -> tuple[Path, ...]:
    """Folders of a process's group and its ancestors in one hierarchy (:data:`V2` or a controller of version 1)."""
    return _levels(controller, proc, root, pid)


def quota_of(folder: Path) -> float | None:
    """The CPU quota of this group alone (cores), without its ancestors; ``None``: it has none."""
    version_2 = parse_cpu_max(_read(folder / "cpu.max"))
    if version_2 is not None:
        return version_2
    return parse_cfs_quota(_read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us"))


def memory_limit_bytes(*, proc: str | Path = "/proc", root: str | Path = "/") -> int | None:
    """Memory that this process's groups may use before the kernel kills in them (bytes); ``None`` without a limit."""
    return min((limit for limit, _ in _memory_levels(proc, root)), default=None)


def memory_available_bytes(*, proc: str | Path = "/proc", root: str | Path = "/") -> int | None:
    """Memory that is left below the limits (bytes, never negative); ``None`` without a limit.

    Page cache counts as used by a group, although the kernel reclaims it before it kills: its inactive part is taken as
    free, as the kubelet does for the working set by which it evicts.
    """
    return min((max(0, limit - used) for limit, used in _memory_levels(proc, root)), default=None)


def _memory_levels(proc: str | Path, root: str | Path) -> list[tuple[int, int]]:
    """Limit and working set (bytes) of each group that has a limit."""
    found = []
    for controller, limit_file, usage_file, reclaimable in (
        (V2, "memory.max", "memory.current", "inactive_file"),
        ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        for level in _levels(controller, proc, root):
            limit = parse_memory_limit(_read(level / limit_file))
            if limit is not None:
                usage = _whole(_read(level / usage_file)) or 0
                found.append((limit, usage - parse_memory_stat(_read(level / "memory.stat")).get(reclaimable, 0)))
    return found


def _levels(controller: str, proc: str | Path, root: str | Path, pid: int | None = None) -> tuple[Path, ...]:
    """The folders of a process's group in one hierarchy and of its ancestors as far as they are mounted."""
    path = parse_membership(_read(Path(proc, f"{pid or 'self'}/cgroup"))).get(controller)
    mounts = [m for m in parse_mountinfo(_read(Path(proc, "self/mountinfo"))) if controller in m.controllers]
    if path is None or not mounts:
        return ()
    for mount in mounts:
        point = Path(root, mount.point.lstrip("/"))
        below = _below(path, mount.root)
        if below is not None and (point / below).is_dir():
            return tuple(point / step for step in (below, *below.parents))
    own = path if pid is None else parse_membership(_read(Path(proc, "self/cgroup"))).get(controller)
    if own is not None and (path == own or _below(path, own) is not None):
        # In a container the path can be the host's name for the group; its folder is then the mount point itself.
        return (Path(root, mounts[0].point.lstrip("/")),)
    return _levels_elsewhere(controller, proc, pid)


def _levels_elsewhere(controller: str, proc: str | Path, pid: int | None) -> tuple[Path, ...]:
    """The group of a process in another container, of which its own mounts show the top; ``()``: they are not readable.

    Its path is of no use: it is relative to this process's namespace (``/../NAME``), or below no mount of ours.
    """
    mounts = parse_mountinfo(_read(Path(proc, f"{pid}/mountinfo")))
    point = next((Path(proc, f"{pid}/root", m.point.lstrip("/")) for m in mounts if controller in m.controllers), None)
    try:
        return (point,) if point is not None and point.is_dir() else ()
    except OSError:  # another user's process
        return ()


def _below(path: str, top: str) -> PurePosixPath | None:
    """``path`` relative to ``top``; ``None`` when it lies elsewhere, such as outside this namespace (``/..``)."""
    inner = PurePosixPath(path)
    if ".." in inner.parts or not inner.is_relative_to(top):
        return None
    return inner.relative_to(top)


def _unescape(field: str) -> str:
    """mountinfo writes space, tab, newline and backslash as three octal digits."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), field)


def _whole(text: str) -> int | None:
    """A count; ``None`` for anything else, ``-1`` and ``max`` among them."""
    return int(text) if text.strip().isdecimal() else None


def _read(path: Path) -> str:
    """A small kernel file; empty where it is absent or forbidden: no limit is known then."""
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""
