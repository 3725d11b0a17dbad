"""What processes show each other on a board, and how they wait."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import pytest

from pipetune.processes.board import Board

MEMBERS = 3


def forked(board: Board, member: int, work: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            signal.alarm(20)
            board.join(member)
            work()
            status = 0
        finally:
            os._exit(status)
    return pid


def statuses(pids: list[int]) -> list[int]:
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]


def test_each_member_writes_to_its_own_row_and_reads_all() -> None:
    board = Board(MEMBERS, 9)
    assert board.all_seen(8) == [0, 0, 0]

    def show(member: int) -> None:
        board.show((0, member + 1), (8, -member))

    assert statuses([forked(board, member, lambda member=member: show(member)) for member in range(MEMBERS)]) == [0] * 3
    assert board.all_seen(0) == [1, 2, 3]
    assert [board.seen(member, 8) for member in range(MEMBERS)] == [0, -1, -2]
    assert board.all_seen(1) == [0, 0, 0]


def test_nobody_goes_on_before_the_last_has_come() -> None:
    board = Board(MEMBERS, 2)
    rounds = 50

    def meet(member: int) -> None:
        for number in range(1, rounds + 1):
            time.sleep(0.0005 * member)
            board.show((0, number))
            board.wait(lambda number=number: min(board.all_seen(0)) >= number)
            assert max(board.all_seen(0)) <= number + 1
        assert not board.waits(member)

    pids = [forked(board, member, lambda member=member: meet(member)) for member in range(MEMBERS)]
    assert statuses(pids) == [0] * MEMBERS
    assert board.all_seen(0) == [rounds] * MEMBERS


def test_it_is_seen_who_waits_and_who_is_waited_for() -> None:
    board = Board(2, 1)
    waiting = forked(board, 0, lambda: board.wait(lambda: board.seen(1, 0) == 1))
    board.join(1)
    deadline = time.monotonic() + 10
    while not board.waits(0):
        assert time.monotonic() < deadline
        time.sleep(0.001)
    assert not board.waits(1)
    board.show((0, 1))
    assert statuses([waiting]) == [0]
    assert not board.waits(0)


def test_a_member_that_was_killed_does_not_hold_what_the_others_need() -> None:
    board = Board(2, 1)
    dying = forked(board, 0, lambda: board.wait(lambda: False))
    board.join(1)
    deadline = time.monotonic() + 10
    while not board.waits(0):
        assert time.monotonic() < deadline
        time.sleep(0.001)
    os.kill(dying, signal.SIGKILL)
    assert statuses([dying]) == [-signal.SIGKILL]
    for number in range(100_000):  # its pipe is full of calls, which nobody reads
        board.show((0, number))
    assert board.seen(1, 0) == number


@pytest.mark.parametrize("words", [1, 7, 8, 63])
def test_rows_do_not_overlap(words: int) -> None:
    board = Board(2, words)
    board.join(0)
    board.show(*((word, word + 1) for word in range(words)))
    assert [board.seen(1, word) for word in range(words)] == [0] * words
    assert [board.seen(0, word) for word in range(words)] == list(range(1, words + 1))
