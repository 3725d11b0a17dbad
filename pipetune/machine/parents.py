"""Who is whose child, for a program that asks again and again.

``/proc/PID/task/TID/children`` lists what one *thread* has started, so a process of 3,000 threads has 3,000 of them to
read. The numbers in ``/proc`` are listed in a fifth of a millisecond, and whose child a process is has to be read once.
"""

from __future__ import annotations

from pipetune.machine.proc import PROC, listed_pids, read_process_stat


class Parents:
    """The parents of all processes that this one can see, each read when it is first seen.

    A number that is given to another process between two calls keeps the parent of the first one: the kernel hands out
    all other numbers before it does so.

    Args:
        proc: where proc is mounted.
    """

    def __init__(self, proc: str = PROC) -> None:
        self._proc = proc
        self._parents: dict[int, int] = {}

    def children(self) -> dict[int, list[int]]:
        """Parent -> children, as it is now."""
        listed = listed_pids(self._proc)
        known: dict[int, int] = {}
        found: dict[int, list[int]] = {}
        for pid in sorted(listed):
            parent = self._parents.get(pid)
            if parent is None or (parent not in listed and parent != 0):  # new, or its parent has ended
                stat = read_process_stat(pid, self._proc)
                if stat is None:
                    continue
                parent = stat.parent
            known[pid] = parent
            found.setdefault(parent, []).append(pid)
        self._parents = known
        return found
