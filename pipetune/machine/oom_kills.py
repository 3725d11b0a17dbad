"""How many processes the kernel has ended because memory ran out.

The count is that of the whole machine, a container's limit included, and containers see it, too: where it has not
grown, something else has sent a SIGKILL. ``/proc/vmstat`` has it since Linux 4.13::

    nr_free_pages 1204
    oom_kill 6

Source: ``__oom_kill_process`` in the kernel's mm/oom_kill.c, which counts kills for a group's limit and the machine's.
"""

from __future__ import annotations

from pathlib import Path


def parse_oom_kills(text: str) -> int | None:
    """The count in ``/proc/vmstat``; ``None``: the kernel keeps none."""
    for line in text.splitlines():
        name, _, count = line.partition(" ")
        if name == "oom_kill" and count.isdigit():
            return int(count)
    return None


def count_oom_kills() -> int | None:
    """Processes that the kernel has ended for want of memory since the machine started; ``None``: not known."""
    try:
        return parse_oom_kills(Path("/proc/vmstat").read_text(encoding="ascii", errors="replace"))
    except OSError:
        return None


class OomKills:
    """Counts from its making on."""

    def __init__(self) -> None:
        self._before = count_oom_kills()

    def count_new(self) -> int | None:
        """Processes of the whole machine that the kernel has ended meanwhile; ``None``: not known."""
        now = count_oom_kills()
        return None if now is None or self._before is None else max(0, now - self._before)
