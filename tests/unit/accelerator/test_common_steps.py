"""Steps that ranks end together: by hand, against a recurrence, and with emulated devices on one clock."""

from __future__ import annotations

import random
from typing import Any

import pytest

from pipetune.accelerator.common_steps import WORDS, CommonSteps, InStep
from pipetune.accelerator.contract import DeviceStep
from pipetune.accelerator.emulated import EmulatedAccelerator
from pipetune.processes.board import Board
from tests.fakes import Batch, Clock


class Ranks:
    """All ranks in this process: the board's row is chosen before each call."""

    def __init__(self, count: int, first_word: int = 0) -> None:
        self.board = Board(count, first_word + WORDS)
        self.steps = [CommonSteps(self.board, rank, first_word) for rank in range(count)]

    def __call__(self, rank: int) -> CommonSteps:
        self.board.join(rank)
        return self.steps[rank]


def test_a_step_ends_when_the_slowest_rank_has_computed_it() -> None:
    ranks = Ranks(2)
    ranks(0).add(100, 10)
    assert not ranks(0).is_known()
    ranks(1).add(120, 30)
    assert ranks(0).is_known()
    assert ranks(0).read() == (100, 110, 150)
    assert ranks(1).read() == (120, 150, 150)


def test_a_step_begins_when_the_one_before_has_ended_everywhere() -> None:
    ranks = Ranks(2)
    for rank, length in ((0, 10), (1, 30)):
        ranks(rank).add(0, length)
        ranks(rank).add(0, length)
    assert [ranks(0).read(), ranks(0).read()] == [(0, 10, 30), (30, 40, 60)]


def test_a_step_cannot_end_before_it_was_launched() -> None:
    ranks = Ranks(2)
    ranks(0).add(0, 10, launched_ns=70)
    ranks(1).add(0, 10)
    assert ranks(1).read() == (0, 10, 70)


def test_a_rank_that_takes_no_more_steps_is_not_waited_for() -> None:
    ranks = Ranks(3)
    for rank in range(3):
        ranks(rank).add(0, 10 * (rank + 1))
    ranks(2).end()
    assert ranks(0).read().end_ns == 30  # its last step counts
    ranks(0).add(0, 10)
    assert not ranks(0).is_known()
    ranks(1).add(0, 20)
    assert ranks(0).read() == (30, 40, 50)


def test_all_ranks_work_out_the_same_times() -> None:
    draw, count = random.Random(3), 4
    ranks = Ranks(count, first_word=3)
    asked, lengths = [0] * count, [[draw.randrange(5, 50) for _ in range(200)] for _ in range(count)]
    before, expected = 0, []
    found: list[list[Any]] = [[] for _ in range(count)]
    for number in range(200):
        ends = []
        for rank in range(count):
            asked[rank] += draw.randrange(60)
            ranks(rank).add(asked[rank], lengths[rank][number])
            ends.append(max(asked[rank], before) + lengths[rank][number])
        before = max(ends)
        expected.append(before)
        for rank in range(count):
            if (number + rank) % 3 == 0:  # some read late, none later than its unfinished steps
                while len(found[rank]) <= number:
                    found[rank].append(ranks(rank).read())
    for rank in range(count):
        ends_seen = [times.end_ns for times in found[rank]]
        assert ends_seen == expected[: len(ends_seen)]
        assert len(ends_seen) > 190


def test_emulated_devices_of_one_clock_have_the_rate_of_the_slower_one() -> None:
    clock, ranks = Clock(), Ranks(2)
    devices = [
        EmulatedAccelerator(rate, clock=clock, sleep=clock.sleep, common=ranks.steps[rank])
        for rank, rate in enumerate((100.0, 50.0))
    ]
    ends: list[list[DeviceStep]] = [[], []]
    for number in range(9):
        for rank, device in enumerate(devices):
            ranks(rank)
            if number < 2:  # later ones would wait for the other, which has the same thread here
                device.submit(Batch(10))
    for rank, device in enumerate(devices):
        ranks(rank)
        ends[rank] += device.drain()
    first, second = ends
    assert [step.t_end_ns for step in first] == [step.t_end_ns for step in second]
    assert [step.others_s for step in first] == pytest.approx([0.1, 0.1])
    assert [step.others_s for step in second] == [0.0, 0.0]
    assert first[1].t_start_ns == first[0].t_end_ns
    assert (first[1].t_end_ns - first[0].t_end_ns) / 1e9 == pytest.approx(0.2)


class Instant:
    """A real accelerator whose steps take so long."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self.clock, self.seconds, self.steps = clock, seconds, []  # type: ignore[var-annotated]

    def submit(self, batch: Any) -> None:
        start = self.clock()
        self.clock.sleep(self.seconds)
        self.steps.append(DeviceStep(start, self.clock(), 0.001))

    def finished(self) -> list[DeviceStep]:
        return self.drain()

    def drain(self) -> list[DeviceStep]:
        steps, self.steps = self.steps, []
        return steps

    def warm_up(self, shape: tuple[int, ...]) -> None: ...

    def place(self, batch: Any) -> Any:
        return batch

    def copy_rate(self, batch: Any) -> float | None:
        return 1e9

    def memory_bytes(self) -> int | None:
        return 5


def test_a_real_device_begins_a_step_when_the_one_before_has_ended_everywhere() -> None:
    clock, ranks = Clock(), Ranks(2)
    device = InStep(Instant(clock, 0.1), ranks.steps[0], clock)  # type: ignore[arg-type]
    ranks(0)
    device.submit(Batch(1))
    assert device.finished() == []
    assert ranks.board.seen(0, 1) == 1, "the others see it as soon as it has ended here"
    end = clock()
    ranks(1).add(end - 10**7, 3 * 10**7)  # 20 ms later
    ranks(0)
    (step,) = device.drain()
    assert step.t_end_ns == end + 2 * 10**7
    assert step.others_s == pytest.approx(0.02)
    assert step.h2d_s == 0.001
    assert (device.copy_rate(None), device.memory_bytes(), device.place(3)) == (1e9, 5, 3)


class Slow(Instant):
    """Its steps are known to have ended when it is waited for, and not before."""

    def finished(self) -> list[DeviceStep]:
        return []


def test_what_another_rank_shows_late_is_waiting_for_it_and_no_idle_time() -> None:
    """The other's loop was blocked by its loader: that its device had ended long before is seen only now."""
    clock, ranks = Clock(), Ranks(2)
    device = InStep(Slow(clock, 0.1), ranks.steps[0], clock)  # type: ignore[arg-type]
    ranks(0)
    device.submit(Batch(1))
    end = clock()

    def show_late(until: Any) -> None:
        clock.sleep(0.3)
        ranks(1).add(end - 10**8, 10**8)
        ranks(0)
        assert until()

    ranks.board.wait = show_late  # type: ignore[method-assign]
    device.submit(Batch(1))
    (step,) = device.finished()
    assert step.others_s == pytest.approx(0.3)
    assert step.t_end_ns == end + 3 * 10**8
