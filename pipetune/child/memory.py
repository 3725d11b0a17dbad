"""How much memory the child and its loader workers take."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

#: Size of the block whose place in ``/proc/self/smaps`` tells whether the kernel counts page-locked memory (bytes).
_PROBE_BYTES = 1 << 20


def tree_bytes(server_pid: int | None) -> int | None:
    """Memory of this process and its descendants, each shared page divided by the number of its users (PSS).

    Args:
        server_pid: the process that this one is a fork of. What is shared with it would be this process's alone if it
            had imported that itself, so the server's part of such pages is added.
    """
    import psutil

    me = psutil.Process()
    sizes: list[int] = []
    for process in (me, *me.children(recursive=True)):
        with contextlib.suppress(psutil.Error, AttributeError):  # it has ended; this kernel does not count shared pages
            sizes.append(process.memory_full_info().pss)
    if not sizes:
        return None
    if server_pid is not None:
        with contextlib.suppress(psutil.Error, AttributeError):
            server = psutil.Process(server_pid).memory_full_info()
            sizes.append(server.pss - server.uss)
    return sum(sizes) + uncounted_bytes()


def uncounted_bytes() -> int:
    """torch's page-locked memory, if it is missing from PSS; that depends on how the driver maps it."""
    if "torch" not in sys.modules:
        return 0
    import torch

    stats: dict[str, Any] = getattr(torch.cuda, "host_memory_stats", dict)()  # empty unless CUDA was used
    taken = int(stats.get("allocated_bytes.current", 0))
    if not taken:
        return 0
    probe = torch.zeros(_PROBE_BYTES, dtype=torch.uint8).pin_memory()
    with open("/proc/self/smaps", encoding="utf-8", errors="replace") as file:
        return 0 if resident_at(probe.data_ptr(), file.read()) else taken


def resident_at(address: int, smaps: str) -> int:
    """What the kernel counts as resident of the mapping with this address (bytes); 0 where there is none.

    Args:
        smaps: the text of ``/proc/PID/smaps``, see proc_pid_smaps(5).
    """
    inside = False
    for line in smaps.splitlines():
        name, *rest = line.split()
        if not name.endswith(":"):
            first, _, end = name.partition("-")
            inside = int(first, 16) <= address < int(end, 16)
        elif inside and name == "Rss:":
            return int(rest[0]) << 10
    return 0
