"""The mounts that this process can reach, from ``/proc/self/mountinfo`` (see proc(5)). Standard library only."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

#: File systems that hold no files of anybody's: the kernel makes them, or mounts others in them on demand.
_KERNEL_TYPES = frozenset(
    {
        "autofs",
        "binfmt_misc",
        "bpf",
        "cgroup",
        "cgroup2",
        "configfs",
        "debugfs",
        "devpts",
        "devtmpfs",
        "efivarfs",
        "fusectl",
        "hugetlbfs",
        "mqueue",
        "nsfs",
        "proc",
        "pstore",
        "rpc_pipefs",
        "securityfs",
        "selinuxfs",
        "sysfs",
        "tracefs",
    }
)
#: Folders whose file systems in memory hold devices, sockets and shared memory.
LIVE_FOLDERS = tuple(Path(name) for name in ("/dev", "/proc", "/sys", "/run"))
_ESCAPE = re.compile(rb"\\([0-7]{3})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """One mounted file system."""

    mount_id: int
    point: str
    """Its path."""
    kind: str
    """Type of the file system: ``ext4``, ``nfs4``, ``tmpfs``."""
    read_only: bool

    @property
    def is_live(self) -> bool:
        """Its files are devices, sockets, shared memory or the kernel's: a copy of them would not work."""
        return self.kind in _KERNEL_TYPES or (
            self.kind in ("tmpfs", "ramfs") and is_below(self.point, map(str, LIVE_FOLDERS))
        )


def parse_mounts(mountinfo: bytes) -> list[Mount]:
    """The lines of ``mountinfo``, in their order; lines in another form are left out."""
    mounts = []
    for line in mountinfo.splitlines():
        # 36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
        before, _, after = line.partition(b" - ")
        fields, last = before.split(b" "), after.split(b" ")
        if len(fields) < 6 or len(last) < 3 or not fields[0].isdigit():
            continue
        flags = {*fields[5].split(b","), *last[2].split(b",")}
        mounts.append(
            Mount(
                mount_id=int(fields[0]),
                point=os.fsdecode(_ESCAPE.sub(lambda match: bytes([int(match[1], 8)]), fields[4])),
                kind=last[0].decode("ascii", "replace"),
                read_only=b"ro" in flags,
            )
        )
    return mounts


def reachable_mounts() -> list[Mount]:
    """Mounts whose files this process can reach by their paths, each before those below it.

    A mount that another one covers, or that lies in a folder that this user may not enter, is left out.

    Raises:
        OSError: ``/proc`` is not there.
    """
    mounts = parse_mounts(Path("/proc/self/mountinfo").read_bytes())
    reachable = [mount for mount in mounts if _id_of_mount_at(mount.point) == mount.mount_id]
    return sorted(reachable, key=lambda mount: (mount.point.count("/") if mount.point != "/" else 0, mount.point))


def is_below(path: str, folders: Iterable[str]) -> bool:
    """Whether a path is one of these folders, or lies in one."""
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in folders)


def _id_of_mount_at(path: str) -> int | None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        with open(f"/proc/self/fdinfo/{descriptor}", "rb") as file:
            # pos: 0 / flags: 02100000 / mnt_id: 36 / ino: 2
            lines = dict(line.split(b":", 1) for line in file.read().splitlines() if b":" in line)
        return int(lines.get(b"mnt_id", b"-1"))
    finally:
        os.close(descriptor)
