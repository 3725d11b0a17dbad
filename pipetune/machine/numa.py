"""The machine's NUMA nodes: which cores have their memory near."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

_NODE = re.compile(r"node([0-9]+)")


def numa_nodes(folder: str | Path = "/sys/devices/system/node") -> list[frozenset[int]]:
    """The cores of each node, in the order of their numbers; nodes without cores are left out. Empty: not known."""
    found: list[tuple[int, frozenset[int]]] = []
    try:
        for entry in Path(folder).iterdir():
            named = _NODE.fullmatch(entry.name)
            if named is not None:
                found.append((int(named[1]), parse_cpu_list((entry / "cpulist").read_text())))
    except (OSError, ValueError):
        return []
    return [cores for _, cores in sorted(found, key=lambda pair: pair[0]) if cores]


def cores_near_pci(address: str, folder: str | Path = "/sys/bus/pci/devices") -> frozenset[int]:
    """Cores of the NUMA node that a PCI device is attached to; empty: not known.

    Args:
        address: ``0000:3b:00.0``.
    """
    try:
        return parse_cpu_list((Path(folder) / address / "local_cpulist").read_text())
    except (OSError, ValueError):
        return frozenset()


def side_by_side(cores: Collection[int], folder: str | Path = "/sys/devices/system/cpu") -> list[int]:
    """Cores in an order in which the hardware threads of one core are next to each other, as far as that is known."""

    def place(core: int) -> tuple[int, int]:
        try:
            siblings = parse_cpu_list((Path(folder) / f"cpu{core}/topology/thread_siblings_list").read_text())
        except (OSError, ValueError):
            return core, core
        return min(siblings, default=core), core

    return sorted(cores, key=place)


def parse_cpu_list(text: str) -> frozenset[int]:
    """``0-3,8`` -> {0, 1, 2, 3, 8}, as the kernel lists cores.

    Raises:
        ValueError: it is no such list.
    """
    cores: set[int] = set()
    for part in text.strip().split(","):
        if part:
            first, _, last = part.partition("-")
            cores.update(range(int(first), int(last or first) + 1))
    return frozenset(cores)
