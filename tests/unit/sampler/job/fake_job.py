"""Training jobs: as folders of plain files, and as small real processes that call themselves what torch calls its own.

A real job ends when it is asked to, or when the test that started it is gone.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from tests.unit.machine.fake_proc import FakeProc

T = TypeVar("T")

TRAIN = ("/usr/bin/python3", "train.py", "--epochs", "3")
SPAWNED = (
    "/usr/bin/python3", "-c", "from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=5, pipe_handle=7)",
    "--multiprocessing-fork",
)  # fmt: skip
FORK_SERVER = ("/usr/bin/python3", "-c", "from multiprocessing.forkserver import main; main(8, 9, ['__main__'], **{})")
TRACKER = ("/usr/bin/python3", "-c", "from multiprocessing.resource_tracker import main;main(4)")
COMPILE_WORKER = ("/usr/bin/python3", "/site-packages/torch/_inductor/compile_worker/__main__.py", "--workers=8")
WORKER = "pt_data_worker"


class FakeJob(FakeProc):
    """A proc folder with what shows the roles of processes, and what they wait for."""

    def job(
        self, pid: int, parent: int = 1, *, command: Sequence[str] = TRAIN, comm: str = "python",
        environ: Mapping[str, object] | None = None, state: str = "S", ticks: int = 0, start: int = 100,
        delay_ns: int | None = 0, wchan: str = "0", io: tuple[int, int, int] | None = (0, 0, 0),
    ) -> None:  # fmt: skip
        """Write or rewrite a process and its main thread."""
        self.process(pid, parent, name=comm, state=state, ticks=ticks, start=start, delay_ns=delay_ns, read_bytes=None)
        self.write(f"{pid}/cmdline", "".join(f"{word}\0" for word in command))
        self.write(f"{pid}/environ", "".join(f"{name}={value}\0" for name, value in (environ or {}).items()))
        for folder in (f"{pid}", f"{pid}/task/{pid}"):
            self._details(folder, comm, wchan, io)

    def named_thread(
        self, pid: int, tid: int, comm: str, *, state: str = "S", ticks: int = 0, start: int = 100, wchan: str = "0",
    ) -> None:  # fmt: skip
        """A thread beside the main one."""
        self.write(
            f"{pid}/task/{tid}/stat",
            f"{tid} ({comm}) {state} 1 1 1 0 -1 4194304 0 0 0 0 {ticks} 0 0 0 20 0 1 0 {start} 200000000 10\n",
        )
        self.write(f"{pid}/task/{tid}/schedstat", "1 0 0\n")
        self._details(f"{pid}/task/{tid}", comm, wchan, (0, 0, 0))

    def end_thread(self, pid: int, tid: int) -> None:
        """Who has its files open finds them empty."""
        for name in ("stat", "schedstat", "io"):
            if (self.folder / f"{pid}/task/{tid}/{name}").exists():
                self.write(f"{pid}/task/{tid}/{name}", "")
        super().end_thread(pid, tid)

    def opens(self, pid: int, fd: int, target: str) -> None:
        """An open file, as a link."""
        folder = self.folder / str(pid) / "fd"
        folder.mkdir(exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            (folder / str(fd)).unlink()
        (folder / str(fd)).symlink_to(target)

    def _details(self, folder: str, comm: str, wchan: str, io: tuple[int, int, int] | None) -> None:
        self.write(f"{folder}/comm", f"{comm}\n")
        self.write(f"{folder}/wchan", wchan)
        if io is not None:
            read_chars, write_chars, read_bytes = io
            self.write(
                f"{folder}/io",
                f"rchar: {read_chars}\nwchar: {write_chars}\nsyscr: 3\nsyscw: 4\nread_bytes: {read_bytes}\n"
                "write_bytes: 7\ncancelled_write_bytes: 0\n",
            )


#: Starts workers as ``argv[1]`` says, and threads; says "ready" when all have their names.
REAL_JOB = """\
import ctypes, multiprocessing, sys, threading, time

def call_me(name):
    ctypes.CDLL(None).prctl(15, name, 0, 0, 0)

def work(ready):
    call_me(b"pt_data_worker")
    ready.set()
    time.sleep(120)

def thread(name, ready):
    call_me(name)
    ready.set()
    time.sleep(120)

if __name__ == "__main__":
    way, count = sys.argv[1], int(sys.argv[2])
    made = multiprocessing.get_context(None if way == "thread" else way)
    signs = [made.Event() for _ in range(count)]
    for number, sign in enumerate(signs):
        if way == "thread":
            threading.Thread(target=thread, args=(b"pt_thread_data_%d" % number, sign), daemon=True).start()
        else:
            made.Process(target=work, args=(sign,), daemon=True).start()
    pinned = threading.Event()
    threading.Thread(target=thread, args=(b"pt_data_pin", pinned), daemon=True).start()
    for sign in (*signs, pinned):
        sign.wait()
    print("ready", flush=True)
    sys.stdin.read()  # until the test closes it
"""


@contextlib.contextmanager
def real_job(folder: Path, way: str, count: int, *, environ: Mapping[str, str] | None = None) -> Iterator[int]:
    """The PID of a real training process with ``count`` workers: ``fork``, ``spawn``, ``forkserver`` or ``thread``."""
    path = folder / "train.py"
    path.write_text(REAL_JOB)
    process = subprocess.Popen(
        [sys.executable, str(path), way, str(count)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env=None if environ is None else dict(environ),
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process.pid
    finally:
        process.communicate()


def until(answer: Callable[[], T], right: Callable[[T], bool], limit_s: float = 60.0) -> T:
    """Ask again and again, until the answer is right or the time is over; the last answer."""
    deadline_s = time.monotonic() + limit_s
    while not right(found := answer()) and time.monotonic() < deadline_s:
        time.sleep(0.01)
    return found
