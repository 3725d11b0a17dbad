"""Mounted file systems whose files are no files: the kernel makes them when they are looked at. See proc(5)."""

from __future__ import annotations

import os
from pathlib import Path

from pipetune.machine.proc import PROC

_KERNEL_TYPES = frozenset({
    "proc", "sysfs", "devtmpfs", "devpts", "cgroup", "cgroup2", "debugfs", "tracefs", "securityfs", "configfs", "bpf",
    "binfmt_misc", "efivarfs", "fusectl", "mqueue", "pstore", "selinuxfs", "nsfs", "rpc_pipefs",
})  # fmt: skip


def parse_kernel_devices(mountinfo: bytes) -> frozenset[int]:
    """``/proc/self/mountinfo`` -> ``st_dev`` of what the kernel makes; lines in another form are left out."""
    found = set()
    for line in mountinfo.splitlines():
        # 22 28 0:21 / /proc rw,nosuid shared:12 - proc proc rw
        before, _, after = line.partition(b" - ")
        fields, kind = before.split(), after.split()
        major, _, minor = fields[2].partition(b":") if len(fields) > 2 else (b"", b"", b"")
        if kind and kind[0].decode("ascii", "replace") in _KERNEL_TYPES and major.isdigit() and minor.isdigit():
            found.add(os.makedev(int(major), int(minor)))
    return frozenset(found)


def kernel_devices(proc: str = PROC) -> frozenset[int]:
    """``st_dev`` of every mounted file system that the kernel makes; empty where that cannot be read."""
    try:
        # Whole, where read_once would cut it off: a host of many containers has thousands of mounts.
        return parse_kernel_devices(Path(proc, "self/mountinfo").read_bytes())
    except OSError:
        return frozenset()
