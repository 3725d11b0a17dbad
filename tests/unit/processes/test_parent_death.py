from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from pipetune.processes import parent_death
from tests.integration.commands import alive, wait_until

CHILD = (
    "import sys, time; from pipetune.processes.parent_death import die_with_parent; die_with_parent(int(sys.argv[1])); "
)
CHILD += "print('up', flush=True); time.sleep(100)"


@pytest.mark.thorough
def test_a_process_dies_with_its_parent() -> None:
    parent = "import os, subprocess, sys, time\n"
    parent += "p = subprocess.Popen([sys.executable, '-c', sys.argv[1], str(os.getpid())])\n"
    parent += "print(p.pid, flush=True); time.sleep(100)"
    process = subprocess.Popen([sys.executable, "-c", parent, CHILD], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    said = {process.stdout.readline().strip(), process.stdout.readline().strip()}
    (pid,) = said - {"up"}
    process.kill()
    process.wait()
    process.stdout.close()
    wait_until(lambda: not psutil.pid_exists(int(pid)), 20)


def test_one_whose_parent_is_gone_already_does_not_take_its_adopter_for_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(os.getpid() + 1)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert done.stdout == ""


WORKER = """
import ctypes, os, sys, time
from pipetune.processes.parent_death import end_with_parent
parent = os.getpid()
if os.fork() == 0:
    end_with_parent(parent)
    print(os.getpid(), flush=True)
    {busy}
os.wait()
"""


@pytest.mark.parametrize(
    "busy", ["time.sleep(1000)", "ctypes.CDLL(None).sleep(1000)"], ids=["between two steps", "inside of a library"]
)
def test_a_worker_ends_when_its_parent_is_killed(busy: str) -> None:
    parent = subprocess.Popen([sys.executable, "-c", WORKER.format(busy=busy)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    worker = psutil.Process(int(parent.stdout.readline()))
    parent.kill()
    parent.wait()
    parent.stdout.close()
    wait_until(lambda: not alive([worker]), 20)


#: Lives on and answers, also when the thread has ended that started it.
ANSWERING = """
import os, signal, sys, threading, time
from pipetune.processes.parent_death import end_with_parent
signal.signal(signal.SIGUSR1, lambda number, frame: os._exit(3))  # a script's own, which the worker inherits
parent, (ready, begun) = os.getpid(), os.pipe()
def start():
    if os.fork() == 0:
        end_with_parent(parent)
        os.write(begun, b"x")
        os.write(1, f"{os.getpid()}\\n".encode())  # at once: print writes the end of the line by itself
        for line in sys.stdin:
            os.write(1, line.encode())
        os._exit(0)
    os.read(ready, 1)
thread = threading.Thread(target=start)
thread.start()
thread.join()
while len(os.listdir("/proc/self/task")) > 1:
    time.sleep(0.01)
os.write(1, b"ended\\n")
signal.pause()
"""


def test_a_worker_survives_the_thread_that_started_it_and_a_schedulers_signal() -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", ANSWERING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    assert parent.stdin is not None
    assert parent.stdout is not None
    (pid,) = {parent.stdout.readline().strip(), parent.stdout.readline().strip()} - {"ended"}
    worker = psutil.Process(int(pid))
    for word in ("thread", "signal"):
        parent.stdin.write(f"{word}\n")
        assert parent.stdout.readline().strip() == word
        worker.send_signal(signal.SIGUSR1)
    time.sleep(0.1)
    assert alive([worker])
    parent.kill()
    parent.wait()
    wait_until(lambda: not alive([worker]), 20)
    parent.stdin.close()
    parent.stdout.close()


SERVED = """
import os, sys, time
from pipetune.processes.parent_death import end_after
end_after(int(sys.argv[1]))
print(os.getpid(), flush=True)
while True:  # short, for a signal may come just before it begins to sleep
    time.sleep(0.05)
"""


#: Refuses pidfd_open(2) with the error ``{number}``, as a container's rules for system calls (seccomp(2)) may do.
REFUSED = """
import ctypes, struct
libc = ctypes.CDLL(None)
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in (
    (0x20, 0, 0, 0), (0x15, 0, 1, 434), (0x06, 0, 0, 0x50000 | {number}), (0x06, 0, 0, 0x7FFF0000),
)))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", 4, ctypes.addressof(code)))
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, program):
    raise SystemExit(77)
"""
#: Python built where there is none, or a container without /proc as well.
MISSING = "import os; del os.pidfd_open\n"
NO_PROC = MISSING + "import pathlib; pathlib.Path.read_text = lambda path: open('/nowhere')\n"
WAYS = {
    "pidfd": "", "not permitted": REFUSED.format(number=errno.EPERM), "not there": REFUSED.format(number=errno.ENOSYS),
    "no function": MISSING, "no /proc": NO_PROC,
}  # fmt: skip
ALL_WAYS = pytest.mark.parametrize("before", WAYS.values(), ids=list(WAYS))


@ALL_WAYS
def test_a_worker_of_a_fork_server_ends_with_its_main_process(before: str) -> None:
    main = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    worker = subprocess.Popen([sys.executable, "-c", before + SERVED, str(main.pid)], stdout=subprocess.PIPE, text=True)
    try:
        assert worker.stdout is not None
        output = worker.stdout.readline()
        if not output and worker.wait(timeout=20) == 77:
            pytest.skip("this machine has no seccomp filters")
        assert int(output) == worker.pid
        worker.send_signal(signal.SIGUSR1)  # of a scheduler, while the main process lives
        time.sleep(0.2)
        assert worker.poll() is None
        main.kill()
        if before != NO_PROC:  # where nothing says that it is a zombie, its number has to be free
            assert worker.wait(timeout=20) == 1
        main.wait()
        assert worker.wait(timeout=20) == 1
    finally:
        worker.kill()
        worker.wait()
        main.kill()
        main.wait()
        assert worker.stdout is not None
        worker.stdout.close()


@ALL_WAYS
def test_or_at_once_where_that_one_is_dead_already(before: str) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    command = [sys.executable, "-c", before + SERVED, str(gone.pid)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 77:
        pytest.skip("this machine has no seccomp filters")
    assert (done.returncode, done.stdout) == (1, "")


def test_one_that_has_the_number_later_is_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    began = parent_death._began(os.getpid())
    assert began
    readings = [began, "", began, began + "1"]
    monkeypatch.setattr(parent_death, "_began", lambda pid: readings.pop(0))
    monkeypatch.setattr(parent_death, "_CHECK_S", 0.0)
    parent_death._poll_until_ended(os.getpid(), began)  # nor does it end where /proc cannot be read for once
    assert readings == []
