from __future__ import annotations

import os
import subprocess
import sys

import psutil
import pytest

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


SERVED = """
import os, sys, time
from pipetune.processes.parent_death import end_after
end_after(int(sys.argv[1]))
print(os.getpid(), flush=True)
time.sleep(1000)
"""


def test_a_worker_of_a_fork_server_ends_with_its_main_process() -> None:
    main = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    worker = subprocess.Popen([sys.executable, "-c", SERVED, str(main.pid)], stdout=subprocess.PIPE, text=True)
    try:
        assert worker.stdout is not None
        assert int(worker.stdout.readline()) == worker.pid
        assert worker.poll() is None
        main.kill()
        main.wait()
        assert worker.wait(timeout=20) == 1
    finally:
        worker.kill()
        worker.wait()
        main.kill()
        assert worker.stdout is not None
        worker.stdout.close()


def test_or_at_once_where_that_one_is_dead_already() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    done = subprocess.run([sys.executable, "-c", SERVED, str(gone.pid)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
