"""A worker's listener with real connections: of this process, and of another one."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from multiprocessing import AuthenticationError, connection

import pytest

from pipetune.loaders import worker_listener
from pipetune.loaders.worker_listener import WorkerListener, listen_only_to

KEY = b"the key"
#: Prints what it reads from an abstract address, which is nothing where it is refused.
SAYS_NOTHING = """
import socket, sys
with socket.socket(socket.AF_UNIX) as link:
    link.connect("\\0" + sys.argv[1])
    print(link.recv(100))
"""


@pytest.fixture
def listener(monkeypatch: pytest.MonkeyPatch) -> Iterator[WorkerListener]:
    monkeypatch.setattr(connection, "Listener", connection.Listener)
    monkeypatch.setattr(WorkerListener, "main_pid", 0)
    listen_only_to(os.getppid())
    made = connection.Listener(authkey=KEY, backlog=8)
    assert isinstance(made, WorkerListener)
    with made:
        yield made


def serve(listener: WorkerListener) -> tuple[threading.Thread, list[object]]:
    """Accept one connection beside the test, and send what it sends back."""
    got: list[object] = []

    def accept() -> None:
        with listener.accept() as link:
            got.append(link.recv())
            link.send("received")

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    return thread, got


def test_a_default_limit_for_sockets_does_no_harm(listener: WorkerListener) -> None:
    socket.setdefaulttimeout(30)  # as some training scripts do
    try:
        thread, got = serve(listener)
        with connection.Client(listener.address, authkey=KEY) as link:
            link.send("a batch")
            assert link.recv() == "received"
        thread.join(30)
    finally:
        socket.setdefaulttimeout(None)
    assert got == ["a batch"]


def test_another_process_is_refused_though_it_is_the_same_users(listener: WorkerListener) -> None:
    thread, got = serve(listener)
    command = [sys.executable, "-S", "-c", SAYS_NOTHING, listener.address[1:].decode()]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "b''\n"
    with connection.Client(listener.address, authkey=KEY) as link:
        link.send("a batch")
        assert link.recv() == "received"
    thread.join(30)
    assert got == ["a batch"]


def test_the_training_process_may_take_as_long_as_it_wants(
    listener: WorkerListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    listen_only_to(os.getpid())
    monkeypatch.setattr(worker_listener, "_limit_waiting", None)  # would fail if it were called
    thread, got = serve(listener)
    with connection.Client(listener.address, authkey=KEY) as link:
        link.send("a batch")
        assert link.recv() == "received"
    thread.join(30)
    assert got == ["a batch"]


def test_where_the_kernel_reports_the_worker_itself_the_key_has_a_time_limit(
    listener: WorkerListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_listener, "_KEY_LIMIT_S", 2.0)
    thread, got = serve(listener)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.connect(listener.address)
        with connection.Client(listener.address, authkey=KEY) as link:
            link.send("a batch")
            assert link.recv() == "received"
    thread.join(30)
    assert got == ["a batch"]


def test_who_has_another_key_or_leaves_ends_nothing(listener: WorkerListener) -> None:
    thread, got = serve(listener)
    with socket.socket(socket.AF_UNIX) as leaves:
        leaves.connect(listener.address)
    with pytest.raises(AuthenticationError):
        connection.Client(listener.address, authkey=b"another one")
    with connection.Client(listener.address, authkey=KEY) as link:
        link.send("a batch")
        assert link.recv() == "received"
    thread.join(30)
    assert got == ["a batch"]


def test_a_listener_leaves_no_file(listener: WorkerListener) -> None:
    assert listener.address.startswith(b"\0pipetune-%d-" % os.getpid())
    assert listener.address != connection.Listener(authkey=KEY).address
