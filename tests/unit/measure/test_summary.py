from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from pipetune.measure.machine_speed import Speed
from pipetune.measure.recording import Recording
from pipetune.measure.summary import TooShort, summarise
from pipetune.records.observation import BusySpan, GpuReading, Reading, TreeReading
from pipetune.records.sweep import StepTime
from pipetune.sampler.other_processes import Other
from tests.fakes import measurement


def step(number: int, batch_s: float = 0.1, wait_s: float = 0.04) -> StepTime:
    end = round((number + 1) * batch_s * 1e9)
    return StepTime(
        t_start_ns=end - 10**7, data_wait_s=wait_s, h2d_s=None, compute_s=batch_s - 0.03, idle_s=0.03, t_end_ns=end,
        samples=10,
    )  # fmt: skip


def reading(number: int, **changes: Any) -> Reading:
    tree = TreeReading(
        processes=3, cpu_s=0.15 * number, run_delay_s=0.01 * number, minor_faults=100 * number,
        context_switches=20 * number, read_bytes=1000 * number, rss_bytes=1, in_disk_sleep=0,
    )  # fmt: skip
    base = Reading(
        t_ns=number * 10**8, interval_s=0.1, cpu_busy_pct=70.0, cpu_idle_pct=29.0, cpu_iowait_pct=1.0,
        psi_cpu_some_pct=5.0, psi_io_some_pct=0.0, psi_memory_some_pct=0.0, tree=tree, gpu=None, tick_cost_s=0.0005,
    )  # fmt: skip
    return replace(base, **changes)


def recording(timed: int = 60, speed_after: float | None = 201.0, **result: Any) -> Recording:
    after = None if speed_after is None else Speed(per_second=speed_after, per_cpu_second=102.0)
    values = {
        "warmup_batches": 10, "steady": True, "window_batches": 5, "pss_bytes": 123, "gpu_mem_bytes": None,
        "speed_before": [200.0, 100.0],
    }  # fmt: skip
    return Recording(
        warmup=[step(n) for n in range(10)], timed=[step(n) for n in range(10, 10 + timed)],
        readings=[reading(n) for n in range(200)], result={**values, **result},
        speed_after=after, first_batch={"open_s": 0.2, "time_to_first_batch_s": 0.9},
        hello={"versions": {"torch": "2"}},
    )  # fmt: skip


def summary(record: Recording, kind: str = "emulated", ceiling: float | None = 125.0):
    whole = None if ceiling is None else measurement(samples_per_s=ceiling, ci95=(0.97 * ceiling, 1.03 * ceiling))
    return summarise(record, accelerator_kind=kind, ceiling=whole, run_noise=0.0)


def test_rate_and_shares_come_from_the_timed_phase_alone() -> None:
    m = summary(recording())
    assert m.samples_per_s == pytest.approx(100.0)
    assert m.goodput == pytest.approx(0.8)
    half = math.hypot((m.ci95[1] - 100.0) / 100.0, 0.03)  # both are uncertain
    assert m.goodput_ci95 == pytest.approx((0.8 * (1 - half), 0.8 * (1 + half)))
    assert m.timed_s == pytest.approx(6.0)
    assert (m.steps, m.samples, m.windows) == (60, 600, 12)
    assert (m.machine_speed_before, m.machine_speed_after, m.machine_cpu_speed) == (200.0, 201.0, 101.0)
    assert m.data_wait_frac == pytest.approx(0.4)
    assert m.accelerator_idle_frac == pytest.approx(0.3)
    assert m.gpu_util_pct == pytest.approx(70.0)
    assert m.time_to_first_batch_s == 0.9


def test_counters_of_the_process_tree_become_rates() -> None:
    m = summary(recording())
    assert m.cores_used == pytest.approx(1.5)
    assert m.cpu_s_per_1000_samples == pytest.approx(15.0)
    assert m.minor_faults_per_sample == pytest.approx(10.0)
    assert m.context_switches_per_sample == pytest.approx(2.0)
    assert m.read_bytes_per_sample == pytest.approx(100.0)
    assert m.run_delay_frac == pytest.approx(0.1)
    assert m.sampler_core_frac == pytest.approx(0.005)


def test_an_incomplete_last_window_counts_nowhere() -> None:
    assert summary(recording(timed=63)) == summary(recording(timed=60))


def test_readings_outside_the_timed_phase_count_nowhere() -> None:
    record = recording()
    record.readings = [replace(r, cpu_busy_pct=0.0) if r.t_ns < 10**9 else r for r in record.readings]
    assert summary(record).cpu_busy_pct == pytest.approx(70.0)


def test_what_was_not_measured_is_none_not_zero() -> None:
    record = recording()
    record.readings = [replace(r, tree=None, cpu_busy_pct=None) for r in record.readings]
    m = summary(record, kind="cuda")
    assert (m.cores_used, m.cpu_s_per_1000_samples, m.cpu_busy_pct, m.gpu_util_pct) == (None, None, None, None)


def test_a_gpus_utilisation_is_what_nvml_says() -> None:
    record = recording()
    record.readings = [replace(r, gpu=GpuReading(util_pct=55.0, sm_active_pct=33.0)) for r in record.readings]
    m = summary(record, kind="cuda")
    assert (m.gpu_util_pct, m.sm_active_pct) == (pytest.approx(55.0), pytest.approx(33.0))
    assert summary(recording(), kind="cpu").gpu_util_pct is None


def span(end_s: float, busy_frac: float, seconds: float = 0.2) -> BusySpan:
    end_ns = round(end_s * 1e9)
    return BusySpan(t_start_ns=end_ns - round(seconds * 1e9), t_end_ns=end_ns, busy_frac=busy_frac)


def test_a_gpus_utilisation_is_that_of_the_timed_phase_however_late_nvml_tells_it() -> None:
    # Timed from 1 to 2.5 s, busy half of it; the warm-up kept the device full. Each sample is read 0.8 s late.
    record = recording(timed=15)
    truth = [span(0.2 * n, 1.0 if 0.2 * n <= 1.0 else 0.5) for n in range(1, 30)]
    lagging = [replace(r, gpu=GpuReading(util_pct=100.0 if r.t_ns <= 1.8e9 else 50.0)) for r in record.readings]
    record.readings, record.busy_spans = lagging, tuple(truth)
    assert summary(record, kind="cuda").gpu_util_pct == pytest.approx(50.0)


def test_too_few_samples_with_times_leave_the_readings() -> None:
    record = recording()
    record.readings = [replace(r, gpu=GpuReading(util_pct=55.0)) for r in record.readings]
    record.busy_spans = (span(1.2, 0.1), span(9.0, 0.1))
    assert summary(record, kind="cuda").gpu_util_pct == pytest.approx(55.0)


def test_the_loaders_noise_counts_as_far_as_the_loader_decides_the_rate() -> None:
    def half(idle_s: float) -> float:
        record = recording()
        record.timed = [replace(s, idle_s=idle_s) for s in record.timed]
        m = summarise(record, accelerator_kind="emulated", ceiling=None, run_noise=0.05)
        return (m.ci95[1] - m.ci95[0]) / 2 / m.samples_per_s

    assert half(0.0) == pytest.approx(1.96 * 0.005)
    assert half(0.05) == pytest.approx(1.96 * 0.05, rel=0.02)
    assert half(0.0) < half(0.002) < half(0.05)


def test_the_cpu_as_accelerator_is_as_restless_as_the_loader() -> None:
    record = recording()
    record.timed = [replace(s, idle_s=0.0) for s in record.timed]
    m = summarise(record, accelerator_kind="cpu", ceiling=None, run_noise=0.05)
    assert (m.ci95[1] - m.ci95[0]) / 2 / m.samples_per_s == pytest.approx(1.96 * 0.05)


def test_a_child_that_died_while_closing_was_measured_all_the_same() -> None:
    m = summary(recording(speed_after=None))
    assert m.machine_speed_after == m.machine_speed_before == 200.0
    assert m.machine_cpu_speed == 100.0
    assert m.warnings == ()


def test_too_few_windows_are_no_measurement() -> None:
    with pytest.raises(TooShort):
        summary(recording(timed=14))
    with pytest.raises(TooShort):
        summary(recording(timed=0, window_batches=0))


def test_warnings_name_the_number() -> None:
    unsteady = summary(recording(steady=False)).warnings
    assert any("not steady after 10 warm-up batches" in text for text in unsteady)
    slowed = summary(recording(speed_after=120.0)).warnings
    assert any("-40 %" in text for text in slowed)
    assert summary(recording()).warnings == ()


def test_loader_workers_that_slow_the_step_are_seen_and_other_processes_named() -> None:
    # 0.07 s for 10 samples, where the accelerator alone takes 1/175 s for one.
    assert summary(recording(), "cpu", ceiling=175.0).step_slower_frac == pytest.approx(0.225)
    assert summary(recording(), "emulated", ceiling=175.0).step_slower_frac is None
    assert summary(recording(), "cpu", ceiling=None).step_slower_frac is None
    record = recording()
    assert summary(record).other_process is None
    record.others = [Other(pid=7, name="stress", cores=1.25), Other(pid=8, name="cat", cores=0.25)]
    assert summary(record).other_cores == 1.5
    assert summary(record).other_process == "stress (7)"
