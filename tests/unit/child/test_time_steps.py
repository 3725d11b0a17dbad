from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from pipetune.accelerator.emulated import EmulatedAccelerator
from pipetune.child.time_steps import time_steps
from tests.fakes import Batch, Clock


@dataclass
class Loader:
    """Each batch takes so many seconds on the fake clock."""

    clock: Clock
    waits_s: list[float]
    asked: int = field(default=0)

    def __iter__(self) -> Iterator[Batch]:
        for wait in self.waits_s:
            self.asked += 1
            self.clock.sleep(wait)
            yield Batch(10)


def run(waits_s: list[float], rate: float):
    clock = Clock()
    device = EmulatedAccelerator(rate, clock=clock, sleep=clock.sleep)
    return list(time_steps(Loader(clock, waits_s), device, clock=clock)), clock


def test_a_slow_loader_starves_the_device() -> None:
    steps, _ = run([0.3] * 5, rate=100)  # a batch of 10 keeps the device busy for 0.1 s
    assert [step.data_wait_s for step in steps] == pytest.approx([0.3] * 5)
    assert [step.compute_s for step in steps] == pytest.approx([0.1] * 5)
    assert steps[0].idle_s == 0.0
    assert [step.idle_s for step in steps[1:]] == pytest.approx([0.2] * 4)


def test_a_fast_loader_never_lets_it_idle_and_is_held_back_by_the_device() -> None:
    steps, _clock = run([0.01] * 20, rate=100)
    assert sum(step.idle_s for step in steps) == pytest.approx(0.0)
    span = (steps[-1].t_end_ns - steps[0].t_end_ns) / 1e9
    assert span == pytest.approx(19 * 0.1)
    # The loop ran at the device's pace, not the loader's: it asked for the last batch near the end.
    assert steps[-1].t_start_ns / 1e9 > 1.5


def test_one_late_batch_costs_only_what_the_device_stood_idle() -> None:
    steps, _ = run([0.0, 0.0, 0.0, 0.0, 0.15, 0.0, 0.0], rate=100)
    # Two steps (0.2 s) are queued or running when the late one is asked for: the wait hides behind them.
    assert steps[4].data_wait_s == pytest.approx(0.15)
    assert sum(step.idle_s for step in steps) == pytest.approx(0.0)


def test_every_batch_becomes_one_step_in_order() -> None:
    steps, _ = run([0.01] * 7, rate=50)
    assert len(steps) == 7
    assert [step.samples for step in steps] == [10] * 7
    assert all(a.t_end_ns <= b.t_end_ns for a, b in itertools.pairwise(steps))


def test_batches_are_asked_for_only_when_the_consumer_goes_on() -> None:
    clock = Clock()
    loader = Loader(clock, [0.0] * 100)
    stream = time_steps(loader, EmulatedAccelerator(100, clock=clock, sleep=clock.sleep), clock=clock)
    next(stream)
    assert loader.asked <= 4
