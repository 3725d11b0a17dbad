from __future__ import annotations

import pytest

from pipetune.accelerator.contract import MAX_IN_FLIGHT
from pipetune.accelerator.emulated import EmulatedAccelerator
from tests.fakes import Batch, Clock


def device(rate: float = 100.0) -> tuple[EmulatedAccelerator, Clock]:
    clock = Clock()
    return EmulatedAccelerator(rate, clock=clock, sleep=clock.sleep), clock


def test_a_step_takes_samples_over_rate_and_starts_at_once_on_an_idle_device() -> None:
    accelerator, clock = device(rate=50)
    began = clock()
    accelerator.submit(Batch(10))
    (step,) = accelerator.drain()
    assert (step.t_start_ns - began, step.t_end_ns - step.t_start_ns) == (0, 200_000_000)


def test_work_queues_up_behind_the_running_step() -> None:
    accelerator, _ = device()
    accelerator.submit(Batch(10))
    accelerator.submit(Batch(10))
    first, second = accelerator.drain()
    assert second.t_start_ns == first.t_end_ns


def test_submit_returns_at_once_until_enough_is_in_flight() -> None:
    accelerator, clock = device()
    for _ in range(MAX_IN_FLIGHT):
        began = clock()
        accelerator.submit(Batch(10))
        assert clock() == began
    accelerator.submit(Batch(10))
    assert (clock() - began) / 1e9 == pytest.approx(0.1)


def test_finished_returns_each_step_once_and_after_its_end() -> None:
    accelerator, clock = device()
    accelerator.submit(Batch(10))
    assert accelerator.finished() == []
    clock.sleep(0.1)
    assert len(accelerator.finished()) == 1
    assert accelerator.finished() == []
    assert accelerator.drain() == []


def test_a_late_wake_up_shifts_nothing_while_a_step_is_queued() -> None:
    clock = Clock()
    accelerator = EmulatedAccelerator(100, clock=clock, sleep=lambda seconds: clock.sleep(seconds + 0.03))
    for _ in range(10):
        accelerator.submit(Batch(10))
    steps = accelerator.drain()
    assert (steps[-1].t_end_ns - steps[0].t_start_ns) / 1e9 == pytest.approx(1.0)
