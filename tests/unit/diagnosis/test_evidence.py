from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pipetune.diagnosis.attribution import attribute_loss
from pipetune.diagnosis.evidence import Context, evidence_of, missing_signals
from pipetune.records.sweep import GpuReading
from pipetune.records.watch import LOADER_WAIT, MachineReading, RankReading
from pipetune.sampler.stacks import activity as act
from tests.unit.diagnosis import scenes
from tests.unit.diagnosis.scenes import scene, team, with_stacks
from tests.watch_fakes import machine_reading, machine_readings, main_reading, rank_readings, task_reading, workers


def _context(readings: list[RankReading], machine: list[MachineReading] | None = None, **stacks: int) -> Context:
    return Context.of(readings, machine_readings(len(readings)) if machine is None else machine, stacks)


def _lines(readings: list[RankReading], machine: list[MachineReading] | None = None, **stacks: int) -> str:
    return "\n".join(evidence_of(attribute_loss(readings), readings, _context(readings, machine, **stacks)))


def _missing(readings: list[RankReading], problem: str | None = None, **machine: Any) -> str:
    context = _context(readings, machine_readings(len(readings), **machine))
    return "\n".join(missing_signals(attribute_loss(readings), readings, context, problem))


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
    readings = [*scene(0.9, 1, gpu=GpuReading(throttled_pct=30.0)), *scene(0.9, 1, gpu=GpuReading()), *scene(0.9, 1)]

    assert _context(readings).gpu_throttled_frac == pytest.approx(0.3)
    assert _context(scene(0.9)).gpu_throttled_frac is None


def test_python_is_placed_where_most_stacks_saw_it() -> None:
    readings = with_stacks(scene(0.5, 3), act.PYTHON)
    readings = [*readings, replace(readings[0], stack=scenes.stack(act.PYTHON, "log (train.py:30)"))]

    assert _context(readings).python_where == "step (train.py:7)"
    assert _context(with_stacks(scene(0.5, 3), act.COPY)).python_where is None


def test_the_main_thread_comes_first() -> None:
    first = _lines(scenes.DECODES).splitlines()[0]

    assert first == "main thread: waits for the loader 100 % (on a core 10 %)"


def test_the_stack_seen_most_often_is_told_and_device_waits_are_not() -> None:
    readings = with_stacks(scenes.PYTHON, act.COPY, act.DEVICE_WAIT, act.DEVICE_WAIT)

    assert "seen most often, 14 of 14 stacks: copies to the device: step (train.py:7)" in _lines(readings)


def test_workers_are_told_with_what_they_sleep_in() -> None:
    text = _lines(scenes.READS_DISK)

    assert "4 loader worker processes: 20 % on a core, 1 % waiting for one, each" in text
    assert "asleep in folio_wait_bit_common at 100 % of the readings" in text
    assert "4 loader worker threads" in _lines(scene(workers=workers(4), worker_kind="thread"))
    assert "no loader workers" in _lines(scenes.LOADS_INLINE)
    assert "asleep in" not in _lines(scenes.DECODES)


def test_stacks_of_workers_are_counted() -> None:
    assert "5 stacks of workers: reads files 3, waits for work 2" in _lines(
        scenes.DECODES, **{"waits for work": 2, "reads files": 3}
    )


def test_machine_pressure_and_quota_are_told_where_known() -> None:
    machine = machine_readings(4, psi_io_some_pct=31.0, psi_scope="cgroup", throttled_frac=0.25, quota_cores=3.0)
    text = _lines(scene(0.5, 4), machine)

    assert "CPU busy 96 %, idle 4 %, iowait 0 %" in text
    assert "pressure of the cgroup: io 31 %, cpu 12 % of the time" in text
    assert "CPU quota 3 cores: stopped 25 % of the time" in text
    nothing = _lines(scene(0.5, 4), machine_readings(4, psi_io_some_pct=None, cpu_busy_pct=None))
    assert "pressure" not in nothing
    assert "CPU busy" not in nothing


def test_bytes_are_told_where_there_are_some() -> None:
    readings = scene(0.5, 10, workers=workers(2, read_bytes=1_000_000))
    text = _lines(readings, machine_readings(10, net_rx_bytes=5_000_000))

    assert "/s read from disk by the loader" in text
    assert "/s received over the network" in text
    assert "read from disk" not in _lines(scenes.DECODES)


def test_nothing_is_missing_where_all_is_measured() -> None:
    assert _missing(scenes.DECODES) == ""


def test_missing_signals_are_named_with_what_would_give_them() -> None:
    unseen = rank_readings([None] * 10, source=LOADER_WAIT)

    assert "the accelerator" in _missing(unseen)
    assert "boot with psi=1" in _missing(scenes.DECODES, psi_io_some_pct=None)
    assert "CONFIG_SCHED_INFO" in _missing(scene(main=main_reading(run_delay_frac=None)))
    assert "py-spy" in _missing(scenes.DECODES, "stacks: py-spy is not installed")
    assert "py-spy" not in _missing(scenes.HEALTHY, "stacks: py-spy is not installed")


def test_hidden_names_of_sleep_are_missed_only_where_workers_sleep() -> None:
    hidden = task_reading(state="S", wait="other", wchan=None)

    assert "/proc/PID/wchan" in _missing(scene(workers=team(hidden)))
    assert "wchan" not in _missing(scene(workers=workers(4)))  # they run
    assert "wchan" not in _missing(scene(workers=(hidden, scenes.IDLE_WORKER)))
