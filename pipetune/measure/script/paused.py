"""A script whose loop waits in ``next()``: its memory, and the moment at which its workers have come to rest."""

from __future__ import annotations

import contextlib
import math
import time
from typing import TYPE_CHECKING

from pipetune.machine.host import usable_cores
from pipetune.measure import machine_speed

if TYPE_CHECKING:
    import psutil

#: The loop has stopped and its workers fill their queues: they are waited for this long (s), until they use less than
#: this share of a core, as it is looked at this often (s).
_SETTLE_S, _SETTLED_CORES, _SETTLE_CHECK_S = 3.0, 0.25, 0.1
#: Length of a reading of the machine's speed (s), and its threads at most, as in ``pipetune.child.program``.
_SPEED_S, _SPEED_THREADS = 0.25, 4


def _tree(pid: int) -> list[psutil.Process]:
    import psutil

    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.Error:
        return []


def tree_pss(pid: int) -> int | None:
    """Memory of a process and its descendants, shared pages counted once (PSS, bytes); ``None``: not known."""
    import psutil

    sizes = []
    for process in _tree(pid):
        with contextlib.suppress(psutil.Error, AttributeError):
            sizes.append(process.memory_full_info().pss)
    return sum(sizes) or None


def _tree_cpu_s(pid: int) -> float:
    import psutil

    total = 0.0
    for process in _tree(pid):
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            total += times.user + times.system
    return total


def settle(pid: int) -> None:
    """Wait until the workers of a loop that has stopped have filled their queues."""
    deadline = time.monotonic() + _SETTLE_S
    before, at = _tree_cpu_s(pid), time.monotonic()
    while time.monotonic() < deadline:
        time.sleep(_SETTLE_CHECK_S)
        now, then = _tree_cpu_s(pid), time.monotonic()
        if now - before <= _SETTLED_CORES * (then - at):
            return
        before, at = now, then


def present_speed() -> machine_speed.Speed:
    """The machine's speed now, while the script rests."""
    threads = max(1, min(_SPEED_THREADS, math.ceil(usable_cores())))
    return machine_speed.read_speed(_SPEED_S, threads)
