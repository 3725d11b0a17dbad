"""Builds a proc folder out of plain files, so that the readers can be shown anything."""

from __future__ import annotations

import shutil
from pathlib import Path


class FakeProc:
    """A folder that looks like /proc. A process that ended has empty files until it is removed."""

    def __init__(self, folder: Path, *, children_files: bool = True) -> None:
        self.folder, self._children_files = folder, children_files
        self._children: dict[int, list[int]] = {}

    @property
    def path(self) -> str:
        return str(self.folder)

    def process(
        self, pid: int, parent: int = 1, *, name: str = "python", state: str = "S", ticks: int = 0, faults: int = 0,
        threads: int = 1, start: int = 100, rss_pages: int = 10, delay_ns: int | None = 0, switches: int = 0,
        read_bytes: int | None = 0, waited: int = 0,
    ) -> None:  # fmt: skip
        """Write or rewrite a process; ``None`` leaves the file out. ``waited``: ticks of children it waited for."""
        task = self.folder / str(pid) / "task" / str(pid)
        task.mkdir(parents=True, exist_ok=True)
        stat = (
            f"{pid} ({name}) {state} {parent} 1 1 0 -1 4194304 {faults} 0 3 0 {ticks} 0 {waited} 0 20 0 "
            f"{threads} 0 {start} 200000000 {rss_pages} 18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0\n"
        )
        self.write(f"{pid}/stat", stat)
        self.write(f"{pid}/task/{pid}/stat", stat)
        if delay_ns is not None:
            for file in (f"{pid}/schedstat", f"{pid}/task/{pid}/schedstat"):
                self.write(file, f"1000 {delay_ns} {switches}\n")
        if read_bytes is not None:
            self.write(f"{pid}/io", f"rchar: 9\nwchar: 9\nread_bytes: {read_bytes}\nwrite_bytes: 9\n")
        if self._children_files:
            siblings = self._children.setdefault(parent, [])
            if pid not in siblings:
                siblings.append(pid)
            for folder, children in ((pid, self._children.get(pid, [])), (parent, siblings)):
                if (self.folder / str(folder)).exists():
                    self.write(f"{folder}/task/{folder}/children", " ".join(map(str, children)))

    def thread(self, pid: int, tid: int, *, delay_ns: int, switches: int) -> None:
        (self.folder / str(pid) / "task" / str(tid)).mkdir(exist_ok=True)
        self.write(f"{pid}/task/{tid}/schedstat", f"5 {delay_ns} {switches}\n")

    def end_thread(self, pid: int, tid: int) -> None:
        shutil.rmtree(self.folder / str(pid) / "task" / str(tid))

    def end(self, pid: int) -> None:
        """The process ends, and its parent forgets it."""
        for file in ("stat", "schedstat", "io"):
            if (self.folder / str(pid) / file).exists():
                self.write(f"{pid}/{file}", "")
        shutil.rmtree(self.folder / str(pid))
        for parent, children in self._children.items():
            if pid in children:
                children.remove(pid)
                if (self.folder / str(parent)).exists():
                    self.write(f"{parent}/task/{parent}/children", " ".join(map(str, children)))

    def machine(self, *lines: str, newest_pid: int | None = None) -> None:
        """``/proc/stat``, and the PID at the end of ``/proc/loadavg``."""
        self.write("stat", "\n".join([*lines, "intr 12 3 4", "ctxt 5", ""]))
        if newest_pid is not None:
            self.write("loadavg", f"0.10 0.20 0.30 1/99 {newest_pid}\n")

    def pressure(self, name: str, total_us: int) -> None:
        self.write(
            f"pressure/{name}",
            f"some avg10=0.53 avg60=0.44 avg300=0.14 total={total_us}\n"
            "full avg10=0.00 avg60=0.00 avg300=0.00 total=77\n",
        )

    def write(self, name: str, text: str) -> None:
        """In place: who has the file open sees the new content."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
