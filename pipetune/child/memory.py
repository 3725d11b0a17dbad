"""How much memory the child and its loader workers take."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from typing import Any

#: Size of the block whose place in ``/proc/self/smaps`` tells whether the kernel counts page-locked memory (bytes).
_PROBE_BYTES = 1 << 20


def tree_bytes(servers: Sequence[int]) -> int | None:
    """Memory of this process and its descendants, each shared page divided by the number of its users (PSS).

    Args:
        servers: the fork servers that there are, whether or not this process is a fork of one. What they hold for it
            is added, so that the sum is that of a new process without them: see :func:`held_for_forks`.
    """
    import psutil

    me = psutil.Process()
    sizes: list[int] = []
    for process in (me, *me.children(recursive=True)):
        with contextlib.suppress(psutil.Error, AttributeError):  # it has ended; this kernel does not count shared pages
            sizes.append(process.memory_full_info().pss)
    if not sizes:
        return None
    for pid in servers:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/smaps_rollup", encoding="utf-8") as file:
            sizes.append(held_for_forks(file.read()))
    return sum(sizes) + uncounted_bytes()


def held_for_forks(smaps_rollup: str) -> int:
    """What a fork server has in memory that a new process would have itself (bytes).

    Its part of all shared pages: its forks have the rest of its heap, and whoever imports the same libraries has the
    rest of theirs. Also the pages of libraries that it alone has because importing has read them: a fork gets no page
    tables of files. Private pages that were written to are left out: they are an idle server's own, or a fork has a
    copy of its own.

    Args:
        smaps_rollup: the text of ``/proc/PID/smaps_rollup``.
    """
    sizes = {line.split(":")[0]: int(line.split()[1]) << 10 for line in smaps_rollup.splitlines() if " kB" in line}
    return sizes["Pss"] - sizes["Private_Dirty"]


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
