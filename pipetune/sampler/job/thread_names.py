"""The names of a process's threads, for a program that asks every few seconds.

A name is read when its thread is first seen and once more at the next listing, because a thread is named some time
after its start; listing and reading those of 3,000 threads takes 14 ms, listing them 2 ms, counting them 5 us.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from pipetune.machine.proc import PROC, read_once
from pipetune.sampler.job.roles import PIN_THREAD_NAME, is_loader_thread

#: While a process of many threads has as many as before, they are the same, and so many listings are left out. Not all
#: of them: one may have ended and another begun. Of few threads a listing costs next to nothing.
_MAX_SKIPS, _MANY = 9, 64
#: Processes whose threads are remembered.
_MAX_PROCESSES = 256


class ThreadNames:
    """Remembers which threads have which names.

    Args:
        proc: where proc is mounted.
    """

    def __init__(self, proc: str = PROC) -> None:
        self._proc = proc
        self._known: dict[int, _Known] = {}

    def of(self, pid: int) -> Mapping[int, str]:
        """Thread -> its name, of all threads of a process; empty where there is none."""
        return self._up_to_date(pid).names

    def of_loader(self, pid: int) -> Mapping[int, str]:
        """The same of the threads that load data or copy it to page-locked memory, by their names."""
        return self._up_to_date(pid).loader

    def expect_change(self, pid: int) -> None:
        """One of its threads has ended: list them the next time, whatever their number."""
        if pid in self._known:
            self._known[pid].skips = _MAX_SKIPS

    def _up_to_date(self, pid: int) -> _Known:
        folder = f"{self._proc}/{pid}/task"
        known = self._known.get(pid) or _Known()
        try:
            links = os.stat(folder).st_nlink  # of a folder of proc: 2 and its threads
            if known.is_current(links):
                known.skips += 1
                return known
            known.update(folder, os.listdir(folder), links)
        except OSError:
            self._known.pop(pid, None)
            return _Known()
        if len(self._known) >= _MAX_PROCESSES:
            self._known.clear()
        self._known[pid] = known
        return known


class _Known:
    """What is known of one process."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self.loader: dict[int, str] = {}
        self.skips = 0
        self._young: set[int] = set()
        self._links = 0

    def is_current(self, links: int) -> bool:
        """Whether the threads can be taken to be those of before."""
        return links > _MANY and links == self._links and not self._young and self.skips < _MAX_SKIPS

    def update(self, folder: str, listed: list[str], links: int) -> None:
        """Take over the threads that there are now."""
        tids = set(map(int, listed))
        for gone in self.names.keys() - tids:
            del self.names[gone]
            self.loader.pop(gone, None)
        new = tids - self.names.keys()
        for tid in new | (self._young & tids):
            name = (read_once(f"{folder}/{tid}/comm") or b"").strip().decode("utf-8", "replace")
            self.names[tid] = name
            if is_loader_thread(name) or name == PIN_THREAD_NAME:
                self.loader[tid] = name
        self._young, self._links, self.skips = new, links, 0
