"""One fork server with children that run a few lines of Python."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pipetune.measure import fork_server
from pipetune.measure.fork_server import ForkServer, ServerEndedError
from tests.forks import descriptors, folder_of, fork_of, never, running
from tests.integration.commands import wait_until

Start = Callable[..., ForkServer]

ABOUT_ITSELF = """
import json, os, sys
print("on its output")
pipes = [int(os.environ[name]) for name in ("PIPETUNE_WIRE_FD", "PIPETUNE_WORKERS_FD")]
fds = [int(name) for name in os.listdir("/proc/self/fd")]
send(json.dumps([
    os.getpid(), os.getppid(), os.environ["FROM_THE_PARENT"], fds, pipes, len(sys.argv),
    len(os.listdir("/proc/self/task")),
]))
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[ForkServer] = []

    def start_server(*first: str, **modules: str) -> ForkServer:
        """One that imports these modules after the children's program."""
        started.append(ForkServer(folder_of(tmp_path, **modules), None, ("lines", *first, *modules)))
        return started[-1]

    yield start_server
    for server in started:
        server.close()


def test_a_child_is_as_a_new_process_would_be(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FROM_THE_PARENT", "1")
    server = start()
    with fork_of(server) as forked:
        pid = forked.child.pid
        assert os.getsid(pid) == os.getpgid(pid) == pid  # at once: the parent may end the group at any time
        assert forked.child.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            forked.child.wait(0.01)
        own, parent, variable, fds, pipes, arguments, threads = json.loads(forked.said(ABOUT_ITSELF))
        assert (own, parent) == (pid, server.pid)
        assert variable == "1"
        assert set(fds) >= {0, 1, 2, *pipes}
        assert len(fds) == 6  # and the one by which they were listed: nothing of the server's
        assert (arguments, threads) == (2, 1)
        assert forked.child.stdout.read() == b"on its output\n"
    with fork_of(server) as another:
        assert another.child.pid != pid
        assert another.said("send('x')") == "x"


@pytest.mark.parametrize(
    ("lines", "returncode"),
    [
        ("status = 3", 3),
        ("raise SystemExit(4)", 4),
        ("raise SystemExit", 0),
        ("import sys; sys.stdout.close(); sys.stderr = None; raise SystemExit(1 << 40 | 7)", 7),
        ("raise SystemExit('why')", 1),
        ("import os; os._exit(5)", 5),
        ("import os; os.kill(os.getpid(), 9)", -9),
        ("import os; os.abort()", -6),
        ("1 / 0", 1),
    ],
)
def test_how_a_child_ended(start: Start, lines: str, returncode: int) -> None:
    server = start()
    with fork_of(server) as forked:
        forked.tell(lines)
        assert forked.child.wait(20.0) == returncode
        assert forked.child.poll() == forked.child.returncode == returncode
        assert (b"ZeroDivisionError" in forked.child.stdout.read()) == (lines == "1 / 0")
    assert not server.ended


def test_the_number_of_a_child_that_has_ended_is_nobody_elses_until_the_next_one(start: Start) -> None:
    """Its process group is ended by this number, after it has been waited for."""
    server = start()
    with fork_of(server) as forked:
        forked.said("send(1)")
        assert Path(f"/proc/{forked.child.pid}").exists()
        os.killpg(forked.child.pid, signal.SIGKILL)
        with fork_of(server) as another:
            assert not Path(f"/proc/{forked.child.pid}").exists()
            another.said("send(2)")


def test_a_server_that_is_killed_while_it_waits(start: Start) -> None:
    server = start()
    with fork_of(server) as forked:
        forked.said("send(1)")
    os.kill(server.pid, signal.SIGKILL)
    with pytest.raises(ServerEndedError), fork_of(server):
        pass
    wait_until(lambda: server.ended)


def test_a_child_ends_with_its_server_and_counts_as_killed(start: Start) -> None:
    server = start()
    with fork_of(server) as forked:
        forked.tell("import time; send('x'); time.sleep(1000)")
        assert os.read(forked.wire, 1) == b"x"
        os.kill(server.pid, signal.SIGKILL)
        assert forked.child.wait(20.0) == -signal.SIGKILL
        assert not running(forked.child.pid)  # not only soon: the next candidate is measured now
    assert server.ended


def test_a_child_that_does_not_end_with_its_server_is_told_from_one_that_has(start: Start) -> None:
    server = start()
    with fork_of(server) as forked:
        forked.tell(
            "import ctypes, time; ctypes.CDLL(None).prctl(1, 0); send('x'); time.sleep(1000)"  # no PR_SET_PDEATHSIG
        )
        assert os.read(forked.wire, 1) == b"x"
        server.close()
        with pytest.raises(subprocess.TimeoutExpired):
            forked.child.wait(0.05)
        os.killpg(forked.child.pid, signal.SIGKILL)
        assert forked.child.wait(20.0) == -signal.SIGKILL


GRANDCHILD = "import os, time\npid = os.fork()\nif pid == 0: time.sleep(1000)\nsend(f'{pid} ')\ntime.sleep(1000)"


def test_who_is_left_in_a_childs_group_is_ended_also_after_its_server(start: Start) -> None:
    server = start()
    with fork_of(server) as forked:
        forked.tell(GRANDCHILD)
        left = int(os.read(forked.wire, 16))
        os.kill(server.pid, signal.SIGKILL)
        assert forked.child.wait(20.0) == -signal.SIGKILL
        assert running(left)
        forked.child.end_group()
        wait_until(lambda: not running(left))


def test_a_group_that_has_a_childs_number_later_is_left_alone(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    server = start()
    with fork_of(server) as forked:
        forked.said("send(1)")
        ended: list[int] = []
        monkeypatch.setattr(os, "killpg", lambda pid, number: ended.append(pid))
        forked.child.end_group()
        assert ended == [forked.child.pid]  # the server keeps it
        server.close()
        monkeypatch.setattr(fork_server, "_start_time", lambda pid: "later")  # a new process has been given it
        forked.child.end_group()
        assert ended == [forked.child.pid]


def test_nobody_is_left_when_it_is_closed(start: Start) -> None:
    server = start()
    with fork_of(server) as forked:
        forked.tell("import time; time.sleep(1000)")
        server.close()
        server.close()
        assert not Path(f"/proc/{server.pid}").exists()
        wait_until(lambda: not running(forked.child.pid))


@pytest.mark.parametrize(
    "text",
    ["raise ImportError('libGL.so.1')", "import os; os._exit(3)", "import os; os.kill(os.getpid(), 11)"],
    ids=["raises", "exits", "crashes"],
)
def test_an_import_that_fails(start: Start, text: str) -> None:
    before = descriptors()
    server = start(broken=text)
    with pytest.raises(ServerEndedError), fork_of(server):
        pass
    assert not server.has_forked
    server.close()
    assert descriptors() == before


def test_an_import_that_hangs_is_not_waited_for_forever(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """A time-out is an ``OSError``, too, but no refusal of the system."""
    monkeypatch.setattr(fork_server, "_FORK_LIMIT_S", 0.05)
    server = start(hangs="import time; time.sleep(1000)")
    with pytest.raises(ServerEndedError), fork_of(server):
        pass


def test_nor_after_the_user_asked_to_stop(start: Start) -> None:
    server = start(hangs="import time; time.sleep(1000)")
    with pytest.raises(ServerEndedError):
        server.fork(0, 0, lambda: True)


@pytest.mark.thorough
def test_it_dies_with_its_parent(tmp_path: Path) -> None:
    variables = folder_of(tmp_path)
    program = f"""
import os, time
from pipetune.measure.fork_server import ForkServer
server = ForkServer({variables!r}, None, ("lines",))
pipe = os.pipe()
child = server.fork(pipe[1], pipe[1], lambda: False)
child.stdin.write(b"import time; time.sleep(1000)")
child.stdin.close()
print(server.pid, child.pid, flush=True)
time.sleep(1000)
"""
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    with parent.stdout:
        pids = [int(word) for word in parent.stdout.readline().split()]
        assert len(pids) == 2
        parent.kill()
        parent.wait()
    wait_until(lambda: not any(running(pid) for pid in pids))


@pytest.mark.thorough
def test_descriptors_and_zombies_do_not_become_more(start: Start) -> None:
    server = start()
    with fork_of(server) as forked:
        forked.said("send(1)")
    before = descriptors(), descriptors(server.pid)
    for number in range(200):
        with fork_of(server) as forked:
            assert forked.said(f"send({number})") == str(number)
    assert (descriptors(), descriptors(server.pid)) == before
    assert len(Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()) == 1


def test_the_system_refuses_a_process(start: Start) -> None:
    """EAGAIN from ``fork``, as with ``ulimit -u``, which does not hold for root."""
    server = start(full="import errno, os\ndef refuse(): raise OSError(errno.EAGAIN, 'no more')\nos.fork = refuse")
    for _ in range(2):  # the server goes on
        before = descriptors(), descriptors(server.pid)
        with pytest.raises(OSError, match="no more") as caught, fork_of(server):
            pass
        assert caught.value.errno == errno.EAGAIN
        assert descriptors() == before[0]
    assert descriptors(server.pid) == before[1]
    assert not server.ended


FEW_FILES = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (12, 12))
held = []
try:
    while True:
        held.append(open("/dev/null"))
except OSError:
    held.pop().close()
"""


def test_the_system_refuses_the_server_files(start: Start) -> None:
    server = start(few=FEW_FILES)
    with pytest.raises(OSError, match="open files") as caught, fork_of(server):
        pass
    assert caught.value.errno == errno.EMFILE
    assert not server.ended


@pytest.fixture
def only_files() -> Iterator[Callable[[int], None]]:
    """Leaves this process so many files that it may still open."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    held: list[int] = []

    def only(left: int) -> None:
        held.append(os.open(os.devnull, os.O_RDONLY))
        resource.setrlimit(resource.RLIMIT_NOFILE, (held[0] + 10, limit[1]))
        with contextlib.suppress(OSError):
            while True:
                held.append(os.open(os.devnull, os.O_RDONLY))
        for _ in range(left):
            os.close(held.pop())

    yield only
    resource.setrlimit(resource.RLIMIT_NOFILE, limit)
    for fd in held:
        os.close(fd)


def test_the_system_refuses_this_process_files(start: Start, only_files: Callable[[int], None]) -> None:
    server = start()
    with fork_of(server) as forked:
        forked.said("send(1)")
    pipe = os.pipe()
    only_files(2)  # room for one pipe, and not for two
    for _ in range(2):
        with pytest.raises(OSError, match="open files") as caught:
            server.fork(pipe[1], pipe[1], never)
        assert caught.value.errno == errno.EMFILE
        for fd in os.pipe():  # there still is
            os.close(fd)
    for fd in pipe:
        os.close(fd)


def test_a_child_is_asked_about_where_no_file_can_be_opened(start: Start, only_files: Callable[[int], None]) -> None:
    server = start()
    with fork_of(server) as forked:
        only_files(0)
        assert forked.child.poll() is None
        forked.tell("send(1)")
        assert forked.child.wait(20.0) == 0


def test_a_child_that_has_not_ended_keeps_its_server(start: Start) -> None:
    server = start()
    with fork_of(server) as forked:
        assert server.ended  # it can fork no more
        forked.said("send(1)")
        assert not server.ended
