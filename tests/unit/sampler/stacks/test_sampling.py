from __future__ import annotations

import os
from typing import Any

import pytest

from pipetune.diagnosis.main_thread import loses_time
from pipetune.records.observation import DISK, LOCK, NETWORK, OTHER, PIPE, RUNNING, SLEEP, RankReading
from pipetune.sampler.stacks import activity as act
from pipetune.sampler.stacks.activity import Frame
from pipetune.sampler.stacks.dump import StackDump
from pipetune.sampler.stacks.sampling import LONG_RUN_CORE_FRAC, StackSampler
from tests.unit.diagnosis.scenes import DISK_WORKER, IDLE_WORKER, team
from tests.watch_fakes import PID, rank_reading, workers

LOADER = (Frame("_try_get_data", "torch/utils/data/dataloader.py", 1, "/x/torch/utils/data/dataloader.py"),)
WORKER = (Frame("_worker_loop", "PIL/Image.py", 1, "/x/PIL/Image.py"),)
COST_S = 0.0125


class Spy:
    """A sampler with a clock that the test sets, and a py-spy that costs what it says."""

    def __init__(self, *, budget_s: float = 10.0, cost_s: float = COST_S, **answer: Any) -> None:
        self.now_s, self.spent_s, self.cost_s = 100.0, 3.0, cost_s
        self.asked: list[int] = []
        self.answer = answer
        self.sampler = StackSampler(
            PID, dump=self._dump, clock=lambda: self.now_s, spent=lambda: self.spent_s, budget_s=budget_s
        )

    def _dump(self, pid: int) -> StackDump:
        self.asked.append(pid)
        self.spent_s += self.cost_s
        if self.answer:
            return StackDump(**({"threads": {}} | self.answer))
        return StackDump(threads={pid: LOADER if pid == PID else WORKER})

    def watch(self, seconds: float, reading: RankReading | None = None, *, every_s: float = 0.1) -> None:
        for _ in range(round(seconds / every_s)):
            self.now_s += every_s
            reading = reading or rank_reading()
            self.sampler.sample(reading, loses_time=loses_time(reading))


def test_a_stack_shows_what_the_main_thread_does() -> None:
    spy = Spy()

    stack = spy.sampler.sample(rank_reading(), loses_time=True)

    assert stack is not None
    assert (stack.pid, stack.activity) == (PID, act.LOADER)
    assert stack.where == "_try_get_data (torch/utils/data/dataloader.py:1)"
    assert spy.sampler.taken == 1
    assert spy.sampler.problem is None


@pytest.mark.parametrize(
    ("active", "expected"), [({PID: True}, True), ({PID: False}, False), ({}, None), ({9: True}, None)]
)
def test_it_is_known_whether_the_main_thread_was_on_a_core(active: dict[int, bool], expected: bool | None) -> None:
    stack = Spy(threads={PID: LOADER}, active=active).sampler.sample(rank_reading(), loses_time=True)

    assert stack is not None
    assert stack.active is expected


def test_no_more_than_two_a_second_however_often_it_is_asked() -> None:
    spy = Spy()

    spy.watch(10, every_s=0.05)

    assert 10 <= len(spy.asked) <= 22


def test_no_stack_is_taken_while_no_time_is_lost() -> None:
    spy = Spy()

    assert spy.sampler.sample(rank_reading(), loses_time=False) is None
    assert not spy.asked


def test_the_budget_empties_and_fills_up_slowly() -> None:
    spy = Spy(budget_s=10 * COST_S)

    spy.watch(20)
    first = len(spy.asked)
    spy.watch(1000, every_s=0.5)

    assert 10 <= first <= 15
    per_s = (len(spy.asked) - first) / 1000
    assert per_s == pytest.approx(LONG_RUN_CORE_FRAC / COST_S, rel=0.1)


def test_the_budget_is_never_fuller_than_at_the_start() -> None:
    spy = Spy(budget_s=3 * COST_S)
    spy.watch(5)
    before = len(spy.asked)

    spy.watch(10**6, rank_reading(busy_frac=1.0), every_s=10**5)  # days without a stall
    spy.watch(5)

    assert len(spy.asked) - before <= 4


def test_a_costly_stack_is_paid_off_before_the_next() -> None:
    spy = Spy(budget_s=0.5, cost_s=3.0)

    spy.watch(100)

    assert len(spy.asked) == 1


def test_a_problem_that_passes_is_reported_and_tried_again() -> None:
    spy = Spy(problem="stacks: py-spy did not answer within 3 s")

    spy.watch(3)

    assert len(spy.asked) > 2
    assert not spy.sampler.given_up
    assert spy.sampler.problem == "stacks: py-spy did not answer within 3 s"
    spy.answer = {}
    spy.watch(3)
    assert spy.sampler.problem is None
    assert spy.sampler.taken > 0


def test_a_problem_that_stays_is_given_up() -> None:
    spy = Spy(problem="stacks: the kernel forbids it", permanent=True)

    spy.watch(30)

    assert len(spy.asked) == 1
    assert spy.sampler.given_up
    assert spy.sampler.problem == "stacks: the kernel forbids it"


def test_a_dump_without_the_main_thread_is_no_stack() -> None:
    spy = Spy(threads={PID + 77: LOADER})

    assert spy.sampler.sample(rank_reading(), loses_time=True) is None
    assert spy.sampler.taken == 0


def test_every_fourth_stack_is_a_workers() -> None:
    spy = Spy()

    spy.watch(10, rank_reading(workers=team(IDLE_WORKER, 3)), every_s=0.5)

    of_workers = [pid for pid in spy.asked if pid != PID]
    assert len(of_workers) == len(spy.asked) // 4
    assert set(of_workers) == {PID + 1, PID + 2, PID + 3}
    assert spy.sampler.worker_activities == {act.DECODE: len(of_workers)}
    assert spy.sampler.taken == len(spy.asked) - len(of_workers)


@pytest.mark.parametrize("wait", [PIPE, LOCK, SLEEP, OTHER, NETWORK])
def test_workers_whose_wait_is_unclear_are_sampled(wait: str) -> None:
    spy = Spy()
    vague = workers(4, state="S", wait=wait)[2]

    spy.watch(20, rank_reading(workers=(*team(DISK_WORKER, 2), vague, *workers(1))), every_s=0.5)

    assert {pid for pid in spy.asked if pid != PID} == {vague.pid}


@pytest.mark.parametrize("wait", [RUNNING, DISK])
def test_workers_whose_wait_is_clear_are_not_sampled(wait: str) -> None:
    # What a worker on a core does would be taken for what the sleeping ones sleep for.
    spy = Spy()

    spy.watch(20, rank_reading(workers=workers(4, wait=wait)), every_s=0.5)

    assert set(spy.asked) == {PID}


@pytest.mark.parametrize("reading", [rank_reading(workers=(), worker_kind=None), rank_reading(worker_kind="thread")])
def test_without_worker_processes_the_main_thread_has_every_turn(reading: RankReading) -> None:
    spy = Spy()

    spy.watch(10, reading, every_s=0.5)

    assert set(spy.asked) == {PID}


def test_a_worker_that_refuses_does_not_end_the_readings_at_the_main_thread() -> None:
    spy = Spy()
    spy.watch(1.5, rank_reading(workers=team(IDLE_WORKER)), every_s=0.5)
    spy.answer = {"problem": "stacks: gone", "permanent": True}
    spy.watch(0.5, rank_reading(workers=team(IDLE_WORKER)), every_s=0.5)

    assert spy.asked[-1] != PID
    assert not spy.sampler.given_up
    assert spy.sampler.problem is None


def test_the_real_budget_is_what_our_children_cost() -> None:
    sampler = StackSampler(os.getpid(), dump=lambda pid: StackDump(threads={pid: LOADER}))

    assert sampler.sample(rank_reading(), loses_time=True) is not None


@pytest.mark.parametrize(("holds", "file", "expected"), [
    (True, "train.py", True), (False, "train.py", False), (False, "numpy/core/fromnumeric.py", True),
])  # fmt: skip
def test_it_is_known_whether_the_main_thread_ran_python_or_native_code(holds: bool, file: str, expected: bool) -> None:
    frames = (Frame("step", file, 1, f"/x/{file}"),)

    stack = Spy(threads={PID: frames}, in_python={PID: holds}).sampler.sample(rank_reading(), loses_time=True)

    assert stack is not None
    assert stack.in_python is expected
