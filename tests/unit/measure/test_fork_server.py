from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from pipetune.measure import wire
from pipetune.measure.fork_server import ForkedChild, ForkServer, ForkServers, ServerEndedError, modules_for
from pipetune.processes import shm_files

#: Runs code instead of measuring.
MODULES = ("tests.unit.measure.fake_candidate",)
ENOUGH_S = 60.0


@pytest.fixture
def server() -> Iterator[ForkServer]:
    server = ForkServer({"PIPETUNE_TEST": "of the server"}, None, MODULES)
    yield server
    server.close()


@pytest.fixture
def servers() -> Iterator[ForkServers]:
    servers = ForkServers(MODULES)
    yield servers
    servers.close()


class Child:
    """A child that has been sent its code."""

    def __init__(
        self, forking: ForkServer | ForkServers, code: str, variables: Mapping[str, str] | None = None
    ) -> None:
        self.wire, wire_fd = os.pipe()
        self.workers, workers_fd = os.pipe()
        try:
            self.process: ForkedChild | None
            if isinstance(forking, ForkServer):
                self.process = forking.fork(wire_fd, workers_fd, lambda: False)
            else:
                self.process = forking.fork(variables or {}, None, wire_fd, workers_fd, lambda: False)
        finally:
            os.close(wire_fd)
            os.close(workers_fd)
        if self.process is not None:
            self.process.stdin.write(code.encode())
            self.process.stdin.close()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.wire)
        os.close(self.workers)
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(ENOUGH_S)
            self.process.stdout.close()

    @property
    def running(self) -> ForkedChild:
        assert self.process is not None
        return self.process

    def end(self) -> tuple[int, str]:
        """Its exit status and what it printed."""
        printed = b""
        while data := self.running.stdout.read(1 << 16):
            printed += data
        return self.running.wait(ENOUGH_S), printed.decode()

    def told(self) -> Any:
        """What it printed, as JSON."""
        status, printed = self.end()
        assert status == 0, printed
        return json.loads(printed)


def gone(pid: int) -> bool:
    for _ in range(200):
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.05)
    return False


def test_a_child_is_a_process_with_a_session_of_its_own(server: ForkServer) -> None:
    with Child(server, "import json, os; print(json.dumps([forked, os.getpid(), os.getsid(0)]))") as child:
        assert child.told() == [True, child.running.pid, child.running.pid]
        assert child.running.pid != os.getpid()
        assert child.running.poll() == 0


def test_a_child_has_its_ends_of_the_pipes_and_the_servers_environment(server: ForkServer) -> None:
    code = f"""
import json, os
for name in {[wire.FD_VARIABLE, shm_files.FD_VARIABLE]!r}:
    os.write(int(os.environ[name]), name.encode())
print(json.dumps(os.environ["PIPETUNE_TEST"]))
"""
    with Child(server, code) as child:
        assert child.told() == "of the server"
        assert os.read(child.wire, 1 << 10).decode() == wire.FD_VARIABLE
        assert os.read(child.workers, 1 << 10).decode() == shm_files.FD_VARIABLE


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("status = 7", 7),
        ("import os; os._exit(3)", 3),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", -signal.SIGSEGV),
        ("raise SystemExit(5)", 1),
        ("1 / 0", 1),
    ],
)
def test_the_exit_status_is_that_of_a_process(server: ForkServer, code: str, status: int) -> None:
    with Child(server, code) as child:
        got, printed = child.end()
        assert got == status
        assert ("ZeroDivisionError" in printed) == (code == "1 / 0")


def test_a_child_that_does_not_end_is_waited_for_no_longer_than_asked(server: ForkServer) -> None:
    with Child(server, "import time; time.sleep(1000)") as child:
        assert child.running.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            child.running.wait(0.05)
        assert server.ended  # it waits for this child
        os.killpg(child.running.pid, signal.SIGKILL)
        assert child.running.wait(ENOUGH_S) == -signal.SIGKILL
        assert not server.ended


def test_a_child_changes_nothing_for_the_next_one(server: ForkServer) -> None:
    change = """
import os, random, resource, signal, sys, threading, time, multiprocessing
os.environ["PIPETUNE_TEST"] = "changed"
os.chdir("/")
os.umask(0o777)
sys.path.clear()
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
multiprocessing.set_start_method("spawn")
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
sys.modules["pipetune.child.program"].measure_request = None
threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
"""
    look = """
import json, os, resource, signal, sys, threading, multiprocessing
mask = os.umask(0)
print(json.dumps([
    os.environ["PIPETUNE_TEST"], os.getcwd(), mask, bool(sys.path), signal.getsignal(signal.SIGTERM) == signal.SIG_DFL,
    [int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, [])],
    multiprocessing.get_start_method(allow_none=True), resource.getrlimit(resource.RLIMIT_NOFILE),
    len(os.listdir("/proc/self/task")),
]))
"""
    with Child(server, look) as child:
        before = child.told()
    with Child(server, change) as child:
        assert child.end()[0] == 0
    with Child(server, look) as child:
        assert child.told() == before


def test_memory_that_a_child_takes_is_not_the_next_ones(server: ForkServer) -> None:
    look = "import json, psutil; print(json.dumps(psutil.Process().memory_full_info().uss))"
    with Child(server, look) as child:
        before = child.told()
    with Child(server, "held = bytearray(b'x') * (300 << 20)") as child:
        assert child.end()[0] == 0
    with Child(server, look) as child:
        assert child.told() < before + (50 << 20)


def test_nothing_stays_open_over_many_children(server: ForkServer) -> None:
    def files() -> tuple[int, int]:
        return len(os.listdir("/proc/self/fd")), len(os.listdir(f"/proc/{server.pid}/fd"))

    seen = []
    for number in range(60):
        with Child(server, "") as child:
            child.end()
        if number in (5, 59):
            seen.append(files())
    assert seen[0] == seen[1]


@pytest.mark.parametrize("first", [True, False])
def test_a_server_that_was_killed_is_replaced(servers: ForkServers, first: bool) -> None:
    if not first:
        with Child(servers, "") as child:
            child.end()
    else:
        servers.start({})
    (server,) = servers._servers.values()
    os.kill(server.pid, signal.SIGKILL)
    assert gone(server.pid)
    with Child(servers, "import json; print(json.dumps(1))") as child:
        assert child.told() == 1
    (again,) = servers._servers.values()
    assert again.pid != server.pid


def test_a_child_ends_with_its_server(servers: ForkServers) -> None:
    with Child(servers, "import time; print('here', flush=True); time.sleep(1000)") as child:
        assert child.running.stdout.read(4) == b"here"
        (server,) = servers._servers.values()
        os.kill(server.pid, signal.SIGKILL)
        assert child.running.wait(ENOUGH_S) == -signal.SIGKILL
        assert gone(child.running.pid)


def test_a_server_that_cannot_import_leaves_the_candidate_to_a_new_process() -> None:
    servers = ForkServers(("there_is_no_such_module",))
    with Child(servers, "") as child:
        assert child.process is None
    assert not servers._servers


def test_each_environment_has_a_server_and_two_are_kept(servers: ForkServers) -> None:
    pids = []
    for value in ("1", "2", "1", "3"):
        with Child(servers, "import json, os; print(json.dumps(os.environ['X']))", {"X": value}) as child:
            assert child.told() == value
        pids.append(next(reversed(servers._servers.values())).pid)
    assert pids[0] == pids[2]
    assert len(set(pids)) == 3
    assert [dict(key[:-1])["X"] for key in servers._servers] == ["1", "3"]
    assert gone(pids[1])


def test_nothing_is_left_when_they_are_closed(servers: ForkServers) -> None:
    with Child(servers, "") as child:
        child.end()
    (server,) = servers._servers.values()
    servers.close()
    assert gone(server.pid)
    assert not servers._servers


def test_a_side_library_comes_first_on_the_import_path(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("dumps = lambda value: 'mine'")
    server = ForkServer({}, str(tmp_path), MODULES)
    try:
        with Child(server, "import sys; print(sys.path[0])") as child:
            assert child.end() == (0, f"{tmp_path}\n")
    finally:
        server.close()


def test_asked_to_stop_the_server_is_given_up(server: ForkServer) -> None:
    read, write = os.pipe()
    try:
        with pytest.raises(ServerEndedError):
            server.fork(write, write, lambda: True)
    finally:
        os.close(read)
        os.close(write)
    assert server.ended


def test_a_system_that_refuses_a_fork_is_an_error_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    theirs.sendall(json.dumps({"refused": [11, "Resource temporarily unavailable"]}).encode() + b"\n")
    server = ForkServer.__new__(ForkServer)
    server._control, server._text, server._has_child = ours, b"", False
    with ours, theirs, pytest.raises(BlockingIOError, match="Resource temporarily unavailable"):
        server.fork(theirs.fileno(), theirs.fileno(), lambda: False)


@pytest.mark.thorough
def test_what_a_server_imports_starts_no_thread() -> None:
    pytest.importorskip("torch", reason="what is imported is torch")
    server = ForkServer({}, None, (*modules_for("cuda"), *MODULES))
    try:
        with Child(server, "") as child:
            assert child.end()[0] == 0
        assert len(os.listdir(f"/proc/{server.pid}/task")) == 1
    finally:
        server.close()
