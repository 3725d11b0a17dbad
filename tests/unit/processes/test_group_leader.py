"""A child that leads a group of its own, as real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from pipetune.processes.group_leader import GroupLeader
from tests.forks import running, state_of
from tests.integration.commands import wait_until

Start = Callable[[str], GroupLeader]


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[GroupLeader] = []

    def run(code: str) -> GroupLeader:
        process = subprocess.Popen(
            [sys.executable, "-S", "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        started.append(GroupLeader(process))
        return started[-1]

    yield run
    for leader in started:
        leader.end_group()
        assert leader.stdout is not None
        leader.stdout.close()
        leader.wait(30)
        leader.reap()


@pytest.mark.parametrize(
    ("code", "returncode"), [("raise SystemExit(3)", 3), ("import os; os.kill(os.getpid(), 9)", -9)]
)
def test_its_number_is_nobody_elses_until_it_is_reaped(start: Start, code: str, returncode: int) -> None:
    leader = start(code)
    assert leader.wait(30) == leader.poll() == returncode
    assert state_of(leader.pid) == "Z"
    leader.end_group()
    leader.reap()
    assert state_of(leader.pid) is None
    assert leader.wait() == leader.poll() == returncode


def test_who_is_left_in_its_group_is_ended_after_it(start: Start) -> None:
    leader = start("import os, time\npid = os.fork()\nif pid == 0: time.sleep(1000)\nprint(pid)")
    assert leader.stdout is not None
    left = int(leader.stdout.readline())
    assert leader.wait(30) == 0
    assert running(left)
    leader.end_group()
    wait_until(lambda: not running(left))


def test_one_that_runs_is_waited_for_as_long_as_asked_and_is_ended(start: Start) -> None:
    leader = start("import time; time.sleep(1000)")
    assert leader.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        leader.wait(0.01)
    leader.end_group()
    assert leader.wait(30) == -signal.SIGKILL


def signals_nobody(pid: int, number: int) -> None:
    raise AssertionError("a signal was sent to a number that may be another group's")


def test_nobody_is_ended_once_it_is_reaped(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    leader = start("")
    leader.wait(30)
    leader.reap()
    monkeypatch.setattr(os, "killpg", signals_nobody)
    leader.end_group()


def test_nor_where_the_kernel_reaps_it(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        leader = start("")
        leader.wait(30)
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert state_of(leader.pid) is None
    monkeypatch.setattr(os, "killpg", signals_nobody)
    leader.end_group()
