from __future__ import annotations

from dataclasses import replace

import pytest

from pipetune.diagnosis.context import Context
from pipetune.records.observation import GpuReading, MachineReading, RankReading
from pipetune.sampler.stacks import activity as act
from tests.unit.diagnosis import scenes
from tests.unit.diagnosis.scenes import scene, team, with_stacks
from tests.watch_fakes import machine_reading, machine_readings, main_reading, workers


def _context(readings: list[RankReading], machine: list[MachineReading] | None = None) -> Context:
    return Context.of(readings, machine_readings(len(readings)) if machine is None else machine, {})


def test_the_machine_is_averaged_and_its_limits_are_the_newest() -> None:
    machine = [
        machine_reading(cpu_busy_pct=20.0, cores=8.0),
        machine_reading(cpu_busy_pct=60.0, cores=4.0, quota_cores=4.0),
    ]

    context = _context(scene(0.5, 2), machine)

    assert context.cpu_busy_pct == 40.0
    assert (context.cores, context.quota_cores) == (4.0, 4.0)


def test_without_readings_at_the_machine_nothing_is_known_of_it() -> None:
    context = _context(scene(0.5, 2), [])

    assert context.cpu_busy_pct is None
    assert context.received_per_s is None
    assert context.cores == 1.0


def test_workers_are_averaged_over_all_readings() -> None:
    readings = [*scene(0.5, 10, workers=workers(4)), *scene(0.5, 10, workers=team(scenes.IDLE_WORKER))]

    context = _context(readings)

    assert context.worker_count == 4
    assert context.worker_cpu_frac == pytest.approx((0.95 + 0.02) / 2)
    assert context.worker_busy_frac == pytest.approx((0.97 + 0.02) / 2)


def test_waiting_for_data_is_work() -> None:
    assert _context(scenes.READS_DISK).worker_busy_frac == pytest.approx(1.0)
    assert _context(scenes.FETCHES).worker_busy_frac == pytest.approx(1.0)


def test_workers_between_two_epochs_are_not_forgotten() -> None:
    readings = [*scene(0.5, 5, workers=workers(6)), *scene(0.5, 1, workers=(), worker_kind=None)]

    context = _context(readings)

    assert (context.worker_count, context.worker_kind) == (6, "process")


def test_cores_of_worker_threads_are_counted_once() -> None:
    processes = _context(scene(workers=workers(4), process_cpu_frac=0.2))
    threads = _context(scene(workers=workers(4), worker_kind="thread", process_cpu_frac=4.0))

    assert processes.job_cores == pytest.approx(0.2 + 4 * 0.95)
    assert threads.job_cores == pytest.approx(4.0)


def test_bytes_are_rates() -> None:
    readings = scene(0.5, 10, workers=workers(2, read_bytes=1_000_000))

    context = _context(readings, machine_readings(10, net_rx_bytes=500_000))

    assert context.read_per_s == pytest.approx(4e6)
    assert context.received_per_s == pytest.approx(1e6)
    assert _context(scene(workers=workers(2, read_bytes=None))).read_per_s is None


def test_without_workers_the_main_threads_bytes_count() -> None:
    readings = scene(0.5, 10, workers=(), worker_kind=None, main=main_reading(read_bytes=2_000_000))

    assert _context(readings).read_per_s == pytest.approx(4e6)


def test_held_clocks_are_a_share_of_the_readings_at_the_gpu() -> None:
    readings = [*scene(0.9, 1, gpu=GpuReading(slowed_pct=30.0)), *scene(0.9, 1, gpu=GpuReading()), *scene(0.9, 1)]

    assert _context(readings).gpu.slowed_frac == pytest.approx(0.3)
    assert _context(scene(0.9)).gpu.slowed_frac is None


def test_python_is_placed_where_most_stacks_saw_it() -> None:
    readings = with_stacks(scene(0.5, 3), act.PYTHON)
    readings = [*readings, replace(readings[0], stack=scenes.stack(act.PYTHON, "log (train.py:30)"))]

    assert _context(readings).python_where == "step (train.py:7)"
    assert _context(with_stacks(scene(0.5, 3), act.COPY)).python_where is None
