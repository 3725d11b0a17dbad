"""Lines of several ranks reach the parent whole, whatever becomes of a rank."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator

import pytest

from pipetune.child.rank_pipes import RankPipes
from pipetune.measure import wire


@pytest.fixture(autouse=True)
def signals_as_before() -> Iterator[None]:
    before, fd = signal.getsignal(signal.SIGCHLD), signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(fd)
    yield
    signal.set_wakeup_fd(fd)
    signal.signal(signal.SIGCHLD, before)


@pytest.fixture
def parent() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    os.set_blocking(ends[0], False)
    yield ends
    for end in ends:
        os.close(end)


def fork(pipes: RankPipes, rank: int, work: Callable[[int], None]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            work(pipes.of_rank(rank))
        finally:
            os._exit(0)
    return pid


def received(ends: tuple[int, int]) -> list[bytes]:
    try:
        return os.read(ends[0], 1 << 16).splitlines()
    except BlockingIOError:
        return []


def test_whole_lines_are_passed_on_and_a_cut_one_is_not(parent: tuple[int, int]) -> None:
    pipes, sender = RankPipes(2), wire.Sender(parent[1])
    pids = [
        fork(pipes, 0, lambda fd: os.write(fd, b"one\ntwo\nthr") and None),
        fork(pipes, 1, lambda fd: os.write(fd, b"four\n") and None),
    ]
    pipes.open()
    for pid in pids:
        os.waitpid(pid, 0)
    pipes.pass_rest_on(sender)
    assert sorted(received(parent)) == [b"four", b"one", b"two"]


def test_a_line_that_comes_in_parts_is_passed_on_when_it_is_whole(parent: tuple[int, int]) -> None:
    def work(fd: int) -> None:
        os.write(fd, b"be")
        os.read(go[0], 1)
        os.write(fd, b"gun\n")

    go = os.pipe()
    pipes, sender = RankPipes(1), wire.Sender(parent[1])
    pid = fork(pipes, 0, work)
    pipes.open()
    pipes.pass_on(sender, 10.0)
    assert received(parent) == []
    os.write(go[1], b"!")
    os.waitpid(pid, 0)
    pipes.pass_rest_on(sender)
    assert received(parent) == [b"begun"]
    for end in go:
        os.close(end)


def test_a_rank_that_is_stopped_does_not_stop_the_others(parent: tuple[int, int]) -> None:
    def stopped(fd: int) -> None:
        os.write(fd, b"half of a li")
        os.kill(os.getpid(), signal.SIGSTOP)

    pipes, sender = RankPipes(2), wire.Sender(parent[1])
    pids = [fork(pipes, 0, stopped), fork(pipes, 1, lambda fd: os.write(fd, b"whole\n") and None)]
    pipes.open()
    os.waitpid(pids[1], 0)
    pipes.pass_rest_on(sender)
    assert received(parent) == [b"whole"]
    os.kill(pids[0], signal.SIGKILL)
    os.waitpid(pids[0], 0)


def test_the_end_of_a_rank_ends_the_wait(parent: tuple[int, int]) -> None:
    def leaves_a_worker(fd: int) -> None:
        worker = os.fork()
        if worker == 0:  # it keeps the rank's end of the pipe open
            time.sleep(20)
            os._exit(0)
        os.write(fd, b"%d\n" % worker)
        time.sleep(0.3)

    pipes, sender = RankPipes(1), wire.Sender(parent[1])
    pid = fork(pipes, 0, leaves_a_worker)
    pipes.open()
    pipes.pass_on(sender, 10.0)
    worker = int(received(parent)[0])
    began = time.monotonic()
    pipes.pass_on(sender, 10.0)
    waited_s = time.monotonic() - began
    os.kill(worker, signal.SIGKILL)
    assert waited_s < 8
    assert os.waitpid(pid, 0)[0] == pid
