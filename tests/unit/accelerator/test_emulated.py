from __future__ import annotations

import statistics
import time
from typing import Any, NamedTuple

import numpy as np
import pytest

from pipetune.accelerator.contract import MAX_IN_FLIGHT
from pipetune.accelerator.emulated import EmulatedAccelerator, rate_of_process
from tests.fakes import Batch, Clock


class Images(NamedTuple):
    images: Any
    labels: Any


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


def test_a_copy_comes_before_the_step_and_is_a_part_of_its_own() -> None:
    clock = Clock()
    accelerator = EmulatedAccelerator(100, clock=clock, sleep=clock.sleep, copy_bytes_per_s=1e6)
    images = np.zeros((10, 3, 10, 10), np.float32)
    accelerator.submit(Images(images, np.zeros(10)))
    accelerator.submit(Images(images.astype(np.uint8), np.zeros(10)))
    floats, bytes_ = accelerator.drain()
    assert (floats.h2d_s, bytes_.h2d_s) == (pytest.approx(0.012), pytest.approx(0.003))
    assert (floats.t_end_ns - floats.t_start_ns) / 1e9 == pytest.approx(0.112)
    assert accelerator.copy_rate(None) == 1e6
    accelerator.submit(accelerator.place(Images(images, np.zeros(10))))
    (resident,) = accelerator.drain()
    assert resident.h2d_s == 0
    assert (resident.t_end_ns - resident.t_start_ns) / 1e9 == pytest.approx(0.1)


def test_launching_runs_beside_the_step_and_sets_the_pace_where_it_takes_longer() -> None:
    clock = Clock()
    accelerator = EmulatedAccelerator(100, clock=clock, sleep=clock.sleep, launch_s=0.03, launch=clock.sleep)
    accelerator.submit(Batch(10))
    (step,) = accelerator.drain()
    assert (step.t_end_ns - step.t_start_ns) / 1e9 == pytest.approx(0.1)
    contended = EmulatedAccelerator(
        100, clock=clock, sleep=clock.sleep, launch_s=0.03, launch=lambda _: clock.sleep(0.4)
    )
    contended.submit(Batch(10))
    (step,) = contended.drain()
    assert (step.t_end_ns - step.t_start_ns) / 1e9 == pytest.approx(0.4)


def test_launching_is_cpu_time_of_this_thread() -> None:
    accelerator = EmulatedAccelerator(1e6, launch_s=0.05)
    began = time.thread_time()
    accelerator.submit(Batch(1))
    assert time.thread_time() - began >= 0.05


def test_the_rate_of_a_process_is_drawn_only_where_it_scatters() -> None:
    assert {rate_of_process(0.0) for _ in range(3)} == {1.0}
    drawn = [rate_of_process(0.02) for _ in range(2000)]
    assert statistics.mean(drawn) == pytest.approx(1.0, abs=0.005)
    assert statistics.stdev(drawn) == pytest.approx(0.02, rel=0.2)


def test_images_that_it_augments_take_their_time() -> None:
    clock = Clock()
    accelerator = EmulatedAccelerator(50, clock=clock, sleep=clock.sleep, augment_samples_per_s=200)
    accelerator.submit(Batch(10))
    (step,) = accelerator.drain()
    assert step.t_end_ns - step.t_start_ns == 250_000_000
