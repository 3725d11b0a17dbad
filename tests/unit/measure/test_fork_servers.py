"""Which fork servers there are, and what happens when one cannot be had."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pipetune.accelerator.named import emulated_spec
from pipetune.measure import fork_server, fork_servers
from pipetune.measure.fork_servers import ForkServers, modules_for
from tests.forks import descriptors, folder_of, fork_of, never, running
from tests.integration.commands import wait_until


@dataclass(slots=True)
class Kept:
    """Servers and the variables with which their children's program is found."""

    servers: ForkServers
    variables: dict[str, str]
    seen: set[int] = field(default_factory=set)

    def child(self, **variables: str) -> str:
        """Its process's number and its server's, from a fork that must succeed."""
        with fork_of(self.servers, {**self.variables, **variables}) as forked:
            self.seen |= {*self.servers.pids, forked.child.pid}
            return forked.said("import os; send(f'{os.getpid()} {os.getppid()}')")

    def server(self, **variables: str) -> int:
        """The number of the server of such a child."""
        return int(self.child(**variables).split()[1])

    def fork(self) -> object:
        """A fork that may fail."""
        pipe = os.pipe()
        try:
            return self.servers.fork(self.variables, None, pipe[1], pipe[1], never)
        finally:
            for fd in pipe:
                os.close(fd)


@pytest.fixture
def keep(tmp_path: Path) -> Iterator[Callable[..., Kept]]:
    kept: list[Kept] = []

    def make(**modules: str) -> Kept:
        kept.append(Kept(ForkServers(("lines", *modules)), folder_of(tmp_path, **modules)))
        return kept[-1]

    gc.collect()  # files that an earlier test left open would be closed at any time
    before = descriptors()
    yield make
    for one in kept:
        one.servers.close()
        assert one.servers.pids == ()
        wait_until(lambda one=one: not any(running(pid) for pid in one.seen))  # type: ignore[misc]
    assert descriptors() == before


def test_candidates_of_a_kind_have_one_server_and_the_oldest_kind_is_given_up(keep: Callable[..., Kept]) -> None:
    kept = keep()
    first = kept.server()
    assert kept.server() == first
    second = kept.server(MALLOC="other")
    assert second != first
    assert kept.server() == first  # and so it is the newest
    third = kept.server(MALLOC="third")
    assert kept.servers.pids == (first, third)
    assert not running(second)
    assert kept.server(MALLOC="other") not in (first, second, third)
    assert len(kept.servers.pids) == 2


def test_the_variables_and_the_folder_are_the_childs(keep: Callable[..., Kept], tmp_path: Path) -> None:
    (tmp_path / "side").mkdir()
    kept = keep()
    with fork_of(kept.servers, {**kept.variables, "MALLOC": "other"}) as forked:
        assert forked.said("import os; send(os.environ['MALLOC'])") == "other"
    pipe = os.pipe()
    child = kept.servers.fork(kept.variables, str(tmp_path / "side"), pipe[1], pipe[1], never)
    assert child is not None
    os.close(pipe[1])
    child.stdin.write(b"import sys; send(sys.path[0])")
    child.stdin.close()
    assert os.read(pipe[0], 1000).decode() == str(tmp_path / "side")
    assert child.wait(20.0) == 0
    os.close(pipe[0])
    child.stdout.close()
    assert len(kept.servers.pids) == 2


def test_one_that_was_killed_while_it_waited_is_replaced(keep: Callable[..., Kept]) -> None:
    kept = keep()
    first = kept.server()
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: not running(first))
    assert kept.server() != first


def test_one_that_was_killed_with_its_child_is_replaced(keep: Callable[..., Kept]) -> None:
    kept = keep()
    with fork_of(kept.servers, kept.variables) as forked:
        (server,) = kept.servers.pids
        forked.tell("import os; os.kill(os.getppid(), 9); import time; time.sleep(1000)")
        assert forked.child.wait(20.0) == -signal.SIGKILL
    assert kept.server() != server


def test_one_whose_child_does_not_end_is_replaced(keep: Callable[..., Kept]) -> None:
    kept = keep()
    with fork_of(kept.servers, kept.variables) as forked:
        (server,) = kept.servers.pids
        assert kept.server() != server
        wait_until(lambda: not running(forked.child.pid))


def test_one_that_dies_as_it_is_asked_leaves_the_candidate_to_a_new_process(keep: Callable[..., Kept]) -> None:
    kept = keep(dies="import os\nos.fork = lambda: os._exit(3)")
    assert kept.fork() is None
    assert kept.servers.pids == ()


def test_what_cannot_be_imported_is_tried_twice_and_no_more(keep: Callable[..., Kept], tmp_path: Path) -> None:
    """A candidate would otherwise wait for the import of a server first, and then for its own."""
    kept = keep(broken=f"open({str(tmp_path / 'tries')!r}, 'a').write('x'); raise ImportError('libGL.so.1')")
    assert [kept.fork() for _ in range(4)] == [None] * 4
    assert (tmp_path / "tries").read_text() == "xx"
    assert kept.servers.pids == ()


def test_neither_is_one_counted_that_the_user_did_not_wait_for(keep: Callable[..., Kept]) -> None:
    kept = keep(slow="import time; time.sleep(0.3)")
    for _ in range(3):
        assert kept.servers.fork(kept.variables, None, 0, 0, lambda: True) is None
    assert kept.child()


def test_a_system_that_refuses_is_an_error_as_for_a_new_process(
    keep: Callable[..., Kept], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    kept = keep()
    monkeypatch.setattr(fork_server.subprocess, "Popen", refuse)
    with pytest.raises(OSError, match="temporarily unavailable"):
        kept.fork()
    assert kept.servers.pids == ()


def test_the_first_begins_early_and_all_are_waited_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Importing beside a measurement would take its CPU time."""
    for name, value in folder_of(tmp_path, slow="import time; time.sleep(0.3); open('imported', 'w')").items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(fork_servers, "modules_for", lambda kind: {"emulated": ("lines", "slow")}[kind])
    with ForkServers() as servers:
        servers.settle(never)
        servers.begin(emulated_spec("500"))
        (first,) = servers.pids
        assert not (tmp_path / "imported").exists()
        servers.settle(never)
        assert (tmp_path / "imported").exists()
        with fork_of(servers) as forked:  # the default environment's is the one that was begun
            assert forked.said("import os; send(os.getppid())") == str(first)
        os.unlink("imported")
        servers.begin(emulated_spec("500"))
        assert servers.pids == (first,)
    assert not running(first)


def test_one_that_still_imports_is_waited_for_when_another_forks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = "import os, time; os.environ.get('MALLOC') or (time.sleep(0.5), open('imported', 'w'))"
    for name, value in folder_of(tmp_path, slow=text).items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(fork_servers, "modules_for", lambda kind: ("lines", "slow"))
    with ForkServers() as servers:
        servers.begin(emulated_spec("500"))
        with fork_of(servers, {"MALLOC": "other"}) as forked:
            assert (tmp_path / "imported").exists()
            forked.said("send(1)")


def test_one_that_cannot_begin_early_is_left_to_the_first_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(fork_server.subprocess, "Popen", refuse)
    with ForkServers() as servers:
        servers.begin(emulated_spec("500"))
        assert servers.pids == ()


def test_one_that_ended_while_it_was_waited_for_is_none(keep: Callable[..., Kept]) -> None:
    kept = keep(slow="import os; os.environ.get('DIES') and os._exit(3)")
    kept.server()
    assert kept.servers.fork({**kept.variables, "DIES": "1"}, None, 0, 0, never) is None
    assert len(kept.servers.pids) == 1


def test_what_trains_for_real_is_imported_where_it_is_used() -> None:
    assert set(modules_for("cpu")) - set(modules_for("emulated")) == {"pipetune.accelerator.train_step"}
    assert modules_for("cuda") == modules_for("cpu")


def test_a_signal_while_they_end_leaves_none_that_is_killed_and_not_waited_for(
    keep: Callable[..., Kept], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = keep()
    pids = {one.server(), one.server(A="1")}
    close = fork_server.ForkServer.close

    def interrupted(server: fork_server.ForkServer) -> None:
        signal.raise_signal(signal.SIGINT)
        close(server)

    monkeypatch.setattr(fork_server.ForkServer, "close", interrupted)
    with pytest.raises(KeyboardInterrupt):
        one.servers.close()
    monkeypatch.undo()
    assert one.servers.pids == ()
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()], "not even a zombie"
