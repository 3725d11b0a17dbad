"""What a fork server does between two children, and what they inherit from it."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pipetune.measure.fork_server import ForkServer
from pipetune.measure.fork_servers import modules_for
from tests.forks import folder_of, fork_of, never

Start = Callable[..., ForkServer]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[ForkServer] = []

    def start_server(*first: str, **modules: str) -> ForkServer:
        started.append(ForkServer(folder_of(tmp_path, **modules), None, (*first, "lines", *modules)))
        return started[-1]

    yield start_server
    for server in started:
        server.close()


def test_a_child_leads_its_group_before_anybody_knows_its_number(start: Start) -> None:
    """The parent may end the group at any time: a child that is not yet in one would live on."""
    server = start(slow="import os, time\nreal = os.setsid\nos.setsid = lambda: (time.sleep(0.3), real())")
    with fork_of(server) as forked:
        assert os.getpgid(forked.child.pid) == forked.child.pid
        os.killpg(forked.child.pid, signal.SIGKILL)
        assert forked.child.wait(20.0) == -signal.SIGKILL


def test_a_child_that_dies_before_it_leads_its_group_is_one_that_ended(start: Start) -> None:
    server = start(dies="import os\nos.setsid = lambda: os._exit(7)")
    with fork_of(server) as forked:
        assert forked.child.wait(20.0) == 7
    assert not server.ended


def test_what_an_import_printed_is_not_printed_by_every_child(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    server = start(loud="print('imported')")
    for _ in range(2):
        with fork_of(server) as forked:
            forked.said("print('measured')")
            assert forked.child.stdout.read() == b"measured\n"


CHANGES = """
import multiprocessing, os, resource, signal, sys, tempfile
os.environ["CHANGED"] = "1"
del os.environ["PATH"]
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
multiprocessing.set_start_method("spawn")
os.chdir("/")
os.umask(0)
resource.setrlimit(resource.RLIMIT_NOFILE, (50, 50))
sys.path.append("/changed")
sys.argv.append("changed")
sys.setrecursionlimit(12345)
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
import json
json.changed = True
print("left in the buffer", end="")
"""
#: What a child finds.
STATE = """
import json, multiprocessing, os, resource, signal, sys
old = os.umask(0)
os.umask(old)
send(json.dumps([
    sorted(set(os.environ.items()) - {("PIPETUNE_WIRE_FD", os.environ["PIPETUNE_WIRE_FD"]),
                                      ("PIPETUNE_WORKERS_FD", os.environ["PIPETUNE_WORKERS_FD"])}),
    str(signal.getsignal(signal.SIGTERM)), sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    multiprocessing.get_start_method(allow_none=True), os.getcwd(), old, resource.getrlimit(resource.RLIMIT_NOFILE),
    sys.path, len(sys.argv), sys.getrecursionlimit(), sorted(os.sched_getaffinity(0)), hasattr(json, "changed"),
    sorted(os.listdir("/proc/self/fd")),
]))
"""


def test_what_a_child_changes_is_its_own(start: Start) -> None:
    server = start()
    with fork_of(server) as forked:
        before = forked.said(STATE)
    with fork_of(server) as forked:
        forked.said(CHANGES)
    with fork_of(server) as forked:
        assert json.loads(forked.said(STATE)) == json.loads(before)
        assert forked.child.stdout.read() == b""


def test_what_a_child_leaves_running_is_not_waited_for_and_ends_with_its_group(start: Start) -> None:
    lines = "import os, threading, time\nthreading.Thread(target=time.sleep, args=(1000,)).start()\n"
    lines += "pid = os.fork() or (os.closerange(0, 20), time.sleep(1000))\nsend(pid)"
    server = start()
    with fork_of(server) as forked:
        left = int(forked.said(lines))
        assert os.getpgid(left) == forked.child.pid
        os.killpg(forked.child.pid, signal.SIGKILL)
    with fork_of(server) as forked:
        assert forked.said("import threading; send(threading.active_count())") == "1"


def test_random_numbers_are_not_the_same_in_each_child(start: Start) -> None:
    """They differ between new processes. torch's own are in the test of what is really imported."""
    pytest.importorskip("numpy", reason="its random numbers are what is tested")
    server = start("numpy.random", "random")
    drawn = []
    for _ in range(3):
        with fork_of(server) as forked:
            drawn.append(forked.said("import random, numpy; send(f'{random.random()} {numpy.random.random()}')"))
    assert len({text.split()[0] for text in drawn}) == len({text.split()[1] for text in drawn}) == 3


def test_it_ends_when_the_parent_closes_its_end(start: Start) -> None:
    server = start()
    server.wait_ready(never)
    server._control.close()
    assert server._process.wait(20.0) == 0


REAL = """
import os, torch
send(f"{len(os.listdir('/proc/self/task'))} {len(os.listdir(f'/proc/{os.getppid()}/task'))} ")
send(f"{torch.cuda.is_initialized()} {'libcuda.so' in open('/proc/self/maps').read()} {torch.rand(())}")
"""


@pytest.mark.thorough
def test_what_is_really_imported_leaves_no_thread_and_asks_no_device(start: Start) -> None:
    pytest.importorskip("torch", reason="it is what a sweep imports")
    server = start(*modules_for("cpu"))
    drawn = set()
    for _ in range(2):
        with fork_of(server) as forked:
            *found, number = forked.said(REAL).split()
        assert found == ["1", "1", "False", "False"]
        drawn.add(number)
    assert len(drawn) == 2  # as in new processes
