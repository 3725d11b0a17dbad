from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from pipetune.measure.recording import Recording
from pipetune.measure.summary import TooShort, summarise
from pipetune.sampler.other_processes import Other
from pipetune.stats.noise import device_noise
from tests.fakes import measurement
from tests.unit.measure.recordings import recording, summary


def test_rate_and_shares_come_from_the_timed_phase_alone() -> None:
    m = summary(recording())
    assert m.samples_per_s == pytest.approx(100.0)
    assert m.goodput == pytest.approx(0.8)
    half = math.hypot((m.ci95[1] - 100.0) / 100.0, 0.03)  # both are uncertain
    assert m.goodput_ci95 == pytest.approx((0.8 / math.exp(half), 0.8 * math.exp(half)))
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


def test_the_loaders_noise_counts_as_far_as_the_loader_decides_the_rate() -> None:
    def half(idle_s: float) -> float:
        record = recording()
        record.timed = [replace(s, idle_s=idle_s) for s in record.timed]
        m = summarise(record, accelerator_kind="emulated", ceiling=None, run_noise=0.05)
        return (m.ci95[1] - m.ci95[0]) / 2 / m.samples_per_s

    assert half(0.0) == pytest.approx(1.96 * device_noise([], "emulated"))
    assert half(0.05) == pytest.approx(1.96 * 0.05, rel=0.02)
    assert half(0.0) < half(0.002) < half(0.05)


def half_width(record: Recording, **given: Any) -> float:
    m = summarise(record, **{"accelerator_kind": "cuda", "ceiling": None, "run_noise": 0.05, **given})
    return (m.ci95[1] - m.ci95[0]) / 2 / m.samples_per_s


def test_a_loader_that_slows_the_steps_decides_the_rate_too() -> None:
    """The accelerator is never idle: the loader's threads hold the interpreter while it waits for kernels."""
    record = recording()
    record.timed = [replace(s, idle_s=0.0, compute_s=0.1) for s in record.timed]
    alone = measurement(samples_per_s=100.0, ci95=(100.0, 100.0))
    faster_alone = measurement(samples_per_s=108.0, ci95=(108.0, 108.0))
    assert half_width(record, ceiling=faster_alone) > 1.96 * 0.05
    assert half_width(record, ceiling=alone) < 1.96 * 0.03
    # An emulated accelerator is slowed where launching is emulated; by a hair where it normalises bytes.
    assert half_width(record, ceiling=faster_alone, accelerator_kind="emulated") > 1.96 * 0.05
    by_a_hair = measurement(samples_per_s=100.4, ci95=(100.4, 100.4))
    assert half_width(record, ceiling=by_a_hair, accelerator_kind="emulated") < 1.96 * 0.01


def test_a_real_device_scatters_more_than_an_emulated_one() -> None:
    record = recording()
    record.timed = [replace(s, idle_s=0.0) for s in record.timed]
    assert half_width(record) > 1.96 * 0.015
    assert half_width(record, accelerator_kind="emulated") < 1.96 * 0.006


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


def test_what_ended_early_has_a_wider_interval_within_the_run() -> None:
    """Two windows of 0.45 s and one of 0.6 s, again and again."""
    record = recording()
    end = record.warmup[-1].t_end_ns
    timed = []
    for number, old in enumerate(record.timed):
        end += round((0.12 if number // 5 % 3 == 2 else 0.09) * 1e9)
        timed.append(replace(old, t_end_ns=end))
    record.timed = timed
    whole, early = summary(record), summary(replace(record, result={**record.result, "ended_early": True}))
    assert (whole.ended_early, early.ended_early) == (False, True)
    half = [(m.ci95[1] - m.samples_per_s) / m.samples_per_s for m in (whole, early)]
    between = 1.96 * device_noise([], "emulated")
    within = [math.sqrt(one**2 - between**2) for one in half]
    assert within[1] == pytest.approx(1.2 * within[0], rel=0.01)  # so little is the scatter between runs
    assert whole.within_error_frac == early.within_error_frac == pytest.approx(0.0426, abs=0.0002)


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


def test_a_rate_that_still_changes_is_said_to() -> None:
    """Each batch of the timed phase takes half a per cent longer than the one before."""
    record = recording()
    end = record.warmup[-1].t_end_ns
    slower, faster = [], []
    for number, old in enumerate(record.timed):
        end += round(0.1 * 1.005**number * 1e9)
        slower.append(replace(old, t_end_ns=end))
    end = record.warmup[-1].t_end_ns
    for number, old in enumerate(record.timed):
        end += round(0.1 / 1.005**number * 1e9)
        faster.append(replace(old, t_end_ns=end))
    record.timed = slower
    assert [text for text in summary(record).warnings if "still changing" in text] == [
        "still changing: the last third is 18 % slower than the first; measure longer with --seconds"
    ]
    record.timed = faster
    assert any("the last third is 22 % faster than the first" in text for text in summary(record).warnings)


def test_loader_workers_that_slow_the_step_are_seen_and_other_processes_named() -> None:
    # 0.07 s for 10 samples, where the accelerator alone takes 1/175 s for one.
    assert summary(recording(), "cpu", ceiling=175.0).step_slower_frac == pytest.approx(0.225)
    assert summary(recording(), "emulated", ceiling=175.0).step_slower_frac == pytest.approx(0.225)
    assert summary(recording(), "cpu", ceiling=None).step_slower_frac is None
    record = recording()
    assert summary(record).other_process is None
    record.others = [Other(pid=7, name="stress", cores=1.25), Other(pid=8, name="cat", cores=0.25)]
    assert summary(record).other_cores == 1.5
    assert summary(record).other_process == "stress (7)"


def test_what_the_step_itself_takes_is_not_the_loaders() -> None:
    m = summary(recording(), kind="cuda", step_cpu_s=6.0)  # 1.5 cores at 100/s, of which the step launches with 0.6
    assert m.step_cores == pytest.approx(0.6)
    assert m.cores_used == pytest.approx(0.9)
    assert m.cpu_s_per_1000_samples == pytest.approx(9.0)
    assert summary(recording(), step_cpu_s=99.0).cores_used == 0.0


def test_a_step_is_compared_with_one_that_copies_nothing() -> None:
    record = recording()
    record.timed = [replace(one, h2d_s=0.02, compute_s=one.compute_s - 0.02) for one in record.timed]
    m = summary(record, kind="cuda", ceiling=200.0)  # 10 samples in 50 ms
    assert m.h2d_frac == pytest.approx(0.2)
    assert m.step_slower_frac == pytest.approx(0.0)


def test_what_the_ceiling_says_of_the_device_is_kept() -> None:
    m = summary(recording(copy_bytes_per_s=12e9, batch_shape=[8, 3, 64, 64]), ceiling=None)
    assert (m.copy_bytes_per_s, m.batch_shape) == (12e9, (8, 3, 64, 64))
