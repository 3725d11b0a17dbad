from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipetune.sampler.job.network import NetworkReader, has_connections, parse_connected, parse_received, socket_inodes
from tests.unit.sampler.job.fake_job import FakeJob

DEV = """\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo: 1000       10    0    0    0     0          0         0     1000      10    0    0    0     0       0          0
  eth0:{eth0}     100    0    0    0     0          0         0      777      50    0    0    0     0       0          0
"""  # noqa: E501
TCP = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 500 1 0000 100 0 0 10 0
   1: 0A00000A:8C2E 08080808:01BB 01 00000000:00000000 02:0000 00000000  1000        0 501 2 0000 20 4 30 10 -1
   2: 0A00000A:8C2F 08080808:01BB 06 00000000:00000000 03:0000 00000000     0        0 0 3 0000
"""


@pytest.fixture
def fake(tmp_path: Path) -> FakeJob:
    made = FakeJob(tmp_path)
    made.job(10)
    made.write("10/net/dev", DEV.format(eth0=5000))
    made.write("10/net/tcp", TCP)
    return made


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """A real connection of this process with itself."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
        yield near, far
        near.close()
        far.close()


def test_received_bytes_are_summed_over_interfaces() -> None:
    assert parse_received(DEV.format(eth0=5000).encode()) == 6000
    assert parse_received(DEV.format(eth0=" 5000").encode()) == 6000  # large numbers stick to the colon
    assert parse_received(b"") == 0


def test_what_comes_in_by_a_bond_counts_once() -> None:
    rows = {"lo": 10, "eth0": 500, "eth1": 300, "bond0": 800, "bond0.100": 700, "docker0": 50, "br-1a2b": 40}
    text = "Inter-|   Receive\n face |bytes\n" + "".join(f"{name}: {count} 0 0\n" for name, count in rows.items())
    assert parse_received(text.encode()) == 810
    assert parse_received(b"lo: 10 0\nveth1: 70 0\n") == 80, "there is nothing else"


def test_only_established_connections_count() -> None:
    assert parse_connected(TCP.encode()) == {501}
    assert parse_connected(b"") == set()
    assert parse_connected(b"header\n garbage\n") == set()


def test_sockets_among_other_open_files(fake: FakeJob) -> None:
    for fd, target in enumerate(("/dev/null", "socket:[501]", "pipe:[77]", "anon_inode:[eventpoll]", "socket:[9]")):
        fake.opens(10, fd, target)

    assert socket_inodes(10, fake.path) == {501, 9}
    assert socket_inodes(99, fake.path) is None


def test_a_process_with_an_established_connection_has_one(fake: FakeJob) -> None:
    fake.opens(10, 3, "socket:[501]")

    assert has_connections(10, proc=fake.path) is True


def test_a_listening_socket_is_no_connection(fake: FakeJob) -> None:
    fake.opens(10, 3, "socket:[500]")

    assert has_connections(10, proc=fake.path) is False


def test_a_connection_over_ipv6_is_one(fake: FakeJob) -> None:
    fake.opens(10, 3, "socket:[601]")
    fake.write("10/net/tcp6", TCP.replace(" 501 ", " 601 "))

    assert has_connections(10, proc=fake.path) is True


def test_connections_inherited_from_the_parent_do_not_count(fake: FakeJob) -> None:
    fake.job(11, 10)
    fake.write("11/net/tcp", TCP)
    for pid in (10, 11):
        fake.opens(pid, 3, "socket:[501]")

    assert has_connections(11, proc=fake.path) is True
    assert has_connections(11, apart_from=10, proc=fake.path) is False


def test_unreadable_files_mean_unknown_connections(fake: FakeJob) -> None:
    assert has_connections(99, proc=fake.path) is None


def test_no_network_files_are_no_connection(fake: FakeJob) -> None:
    (fake.folder / "10/net/tcp").unlink()
    fake.opens(10, 3, "socket:[501]")

    assert has_connections(10, proc=fake.path) is False


def test_received_bytes_are_those_since_the_reading_before(fake: FakeJob) -> None:
    reader = NetworkReader(10, fake.path)
    first = reader.read()
    fake.write("10/net/dev", DEV.format(eth0=9000))
    second = reader.read()
    fake.write("10/net/dev", DEV.format(eth0=100))  # an interface was set up anew

    assert (first, second, reader.read()) == (None, 4000, 0)
    reader.close()
    reader.close()


def test_a_network_that_cannot_be_read_is_not_measured(fake: FakeJob) -> None:
    (fake.folder / "10/net/dev").unlink()
    reader = NetworkReader(10, fake.path)

    assert [reader.read(), reader.read()] == [None, None]
    reader.close()


def test_garbage_is_not_measured(fake: FakeJob) -> None:
    reader = NetworkReader(10, fake.path)
    reader.read()
    fake.write("10/net/dev", "eth0: many\n")

    assert reader.read() is None
    reader.close()


def test_a_real_connection_is_found(pair: tuple[socket.socket, socket.socket]) -> None:
    assert has_connections(os.getpid()) is True


def test_a_real_forked_worker_inherits_its_parents_connections(pair: tuple[socket.socket, socket.socket]) -> None:
    near, _ = pair
    with subprocess.Popen(["sleep", "60"], pass_fds=[near.fileno()]) as worker:
        alone = has_connections(worker.pid)
        beside = has_connections(worker.pid, apart_from=os.getpid())
        worker.kill()

    assert (alone, beside) == (True, False)


def test_a_real_process_without_connections_has_none() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        found = has_connections(process.pid)
        process.communicate(b"\n")

    assert found is False


def test_real_bytes_over_the_loopback_are_received(pair: tuple[socket.socket, socket.socket]) -> None:
    near, far = pair
    reader = NetworkReader(os.getpid())
    reader.read()
    for _ in range(4):
        near.sendall(b"x" * 50_000)
        left = 50_000
        while left:
            left -= len(far.recv(left))

    received = reader.read()
    reader.close()
    assert received is not None
    assert received >= 200_000
