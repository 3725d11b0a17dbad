from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from pipetune.measure.machine_speed import Speed
from pipetune.measure.recording import Recording
from pipetune.measure.summary import TooShort, summarise
from pipetune.records.observation import BusySpan, GpuReading, Reading, TreeReading
from pipetune.records.sweep import Measurement, StepTime
from pipetune.sampler.other_processes import Other
from pipetune.stats.noise import device_noise
from tests.fakes import measurement

S = 10**9


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


def summary(
    record: Recording, kind: str = "emulated", ceiling: float | None = 125.0, step_cpu_s: float | None = None
) -> Measurement:
    whole = None
    if ceiling is not None:
        interval = (0.97 * ceiling, 1.03 * ceiling)
        whole = measurement(samples_per_s=ceiling, ci95=interval, cpu_s_per_1000_samples=step_cpu_s)
    return summarise(record, accelerator_kind=kind, ceiling=whole, run_noise=0.0)


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


def keep_utilisation(record: Recording, *percent: float) -> None:
    """What NVML says at each reading, about the time since the reading before."""
    for number, r in enumerate(record.readings):
        value = percent[number % len(percent)]
        record.readings[number] = replace(r, gpu=GpuReading(util_pct=value, sm_active_pct=33.0))
        record.busy_spans += (span(r.t_ns / 1e9, value / 100, r.interval_s),)


def test_a_gpus_utilisation_is_what_nvml_says() -> None:
    record = recording()
    keep_utilisation(record, 55.0)
    m = summary(record, kind="cuda")
    assert (m.gpu_util_pct, m.sm_active_pct) == (pytest.approx(55.0), pytest.approx(33.0))
    assert summary(recording(), kind="cpu").gpu_util_pct is None


def test_utilisation_has_an_interval_from_the_scatter_of_its_readings() -> None:
    def of(*utilisation: float, **given: Any) -> tuple[float, float] | None:
        record = recording()
        record.timed = [replace(s, idle_s=0.0) for s in record.timed]
        keep_utilisation(record, *utilisation)
        m = summarise(record, **{"accelerator_kind": "cuda", "ceiling": None, "run_noise": 0.0, **given})
        return m.gpu_util_ci95

    steady, restless = of(90.0), of(*[80.0] * 7, *[100.0] * 7)
    assert steady == (pytest.approx(90.0), pytest.approx(90.0))
    assert restless is not None
    assert restless[1] - restless[0] > 5
    full = of(100.0)
    assert full == (pytest.approx(100.0), pytest.approx(100.0))
    assert full[1] <= 100.0  # type: ignore[index]
    assert of(90.0, accelerator_kind="cpu") is None


def test_utilisation_scatters_between_runs_as_far_as_the_loader_decides_it() -> None:
    record = recording()  # the accelerator idles for 30 % of the time
    keep_utilisation(record, 70.0)
    m = summarise(record, accelerator_kind="cuda", ceiling=None, run_noise=0.05)
    assert m.gpu_util_ci95 == pytest.approx((70 * (1 - 1.96 * 0.05), 70 * (1 + 1.96 * 0.05)))
    emulated = summarise(record, accelerator_kind="emulated", ceiling=None, run_noise=0.05)
    assert emulated.gpu_util_ci95 == pytest.approx((70 * (1 - 1.96 * 0.05), 70 * (1 + 1.96 * 0.05)))


def test_few_values_of_the_utilisation_have_no_interval() -> None:
    record = recording(timed=15)
    record.busy_spans = (span(1.9, 0.7, 0.8),)
    m = summary(record, kind="cuda")
    assert (m.gpu_util_pct, m.gpu_util_ci95) == (pytest.approx(70.0), (0.0, 100.0))
    record.busy_spans = ()
    assert summary(record, kind="cuda").gpu_util_ci95 is None


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


def test_values_that_are_of_the_warm_up_as_well_leave_the_utilisation_unknown_and_say_so() -> None:
    record = recording(timed=15)  # from 1 to 2.5 s
    record.readings = [replace(r, gpu=GpuReading(util_pct=55.0)) for r in record.readings]
    record.busy_spans = (span(1.4, 0.9, 1.0), span(2.0, 0.5, 0.6), span(9.0, 0.1))
    m = summary(record, kind="cuda")
    assert (m.gpu_util_pct, m.gpu_util_ci95) == (None, None)
    (warning,) = [warning for warning in m.warnings if warning.startswith("no GPU utilisation: ")]
    assert "cover 0.6 of its 1.5 s" in warning


def test_a_gpu_that_tells_no_utilisation_is_no_warning() -> None:
    record = recording()
    record.readings = [replace(r, gpu=GpuReading(sm_active_pct=33.0)) for r in record.readings]
    assert not [warning for warning in summary(record, kind="cuda").warnings if "utilisation" in warning]


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


def gpu_readings(**values: float) -> Recording:
    record = recording()
    record.readings = [replace(r, gpu=GpuReading(**values)) for r in record.readings]  # type: ignore[arg-type]
    return record


def test_a_gpu_at_another_clock_than_the_ceilings_is_warned_of() -> None:
    beside = measurement(samples_per_s=125.0, gpu_clock_mhz=1980.0)

    def of(record: Recording) -> Measurement:
        return summarise(record, accelerator_kind="cuda", ceiling=beside, run_noise=0.0)

    slower = of(gpu_readings(sm_clock_mhz=1740, power_w=70.0, power_capped_pct=90.0, slowed_pct=0.0))
    assert (slower.gpu_clock_mhz, slower.gpu_power_w) == (pytest.approx(1740), pytest.approx(70.0))
    assert slower.gpu_power_capped_pct == pytest.approx(90.0)
    assert any("-12 % off that of the ceiling's measurement (1740 instead of 1980 MHz)" in w for w in slower.warnings)
    assert of(gpu_readings(sm_clock_mhz=1965)).warnings == ()
    hot = of(gpu_readings(sm_clock_mhz=1980, slowed_pct=30.0))
    assert [w for w in hot.warnings if w.startswith("heat or the hardware itself lowered the GPU's clocks during 30 %")]


def gpu_phases(before: GpuReading, after: GpuReading) -> Recording:
    """A GPU that is read twice a second, in the warm-up (until 1 s) and in the timed phase (until 7 s)."""
    record = recording()
    record.readings = [
        replace(r, gpu=replace(before if r.t_ns < S + S // 2 else after, pcie_rx_bytes=None, pcie_tx_bytes=None))
        for r in record.readings
    ]
    for number in range(0, len(record.readings), 5):
        r = record.readings[number]
        given = before if r.t_ns <= S else after
        assert r.gpu is not None
        amounts = {"pcie_rx_bytes": given.pcie_rx_bytes, "pcie_tx_bytes": given.pcie_tx_bytes}
        energy_j = 300.0 * r.t_ns / S if r.t_ns <= S else 300.0 + 100.0 * (r.t_ns - S) / S
        record.readings[number] = replace(r, gpu=replace(r.gpu, energy_j=energy_j, **amounts))
    return record


def test_what_the_gpu_took_is_that_of_the_timed_phase_alone() -> None:
    """In the warm-up it takes 300 W, decodes JPEGs on its engines and gets ten times the bytes."""
    before = GpuReading(jpeg_util_pct=90.0, sm_active_pct=90.0, power_w=300.0, pcie_rx_bytes=5000, pcie_tx_bytes=50)
    after = GpuReading(jpeg_util_pct=20.0, sm_active_pct=40.0, power_w=100.0, pcie_rx_bytes=500, pcie_tx_bytes=5)
    m = summary(gpu_phases(before, after), "cuda")
    assert (m.jpeg_util_pct, m.sm_active_pct, m.gpu_power_w) == pytest.approx((20.0, 40.0, 100.0))
    assert (m.pcie_rx_bytes_per_s, m.pcie_tx_bytes_per_s) == pytest.approx((1000.0, 10.0))
    assert m.energy_j_per_1000_samples == pytest.approx(1000.0)  # 100 W at 100 samples/s
    assert m.energy_ci95 is not None
    low, high = m.energy_ci95
    half = math.hypot(0.5 / 6.0, (m.ci95[1] - m.ci95[0]) / 2 / m.samples_per_s)
    assert (low, high) == pytest.approx((1000.0 * (1 - half), 1000.0 * (1 + half)), rel=0.01)


def test_a_gpu_without_counters_has_the_drivers_power_and_no_energy() -> None:
    m = summary(gpu_readings(power_w=70.0), "cuda")
    assert m.gpu_power_w == pytest.approx(70.0)
    assert (m.energy_j_per_1000_samples, m.energy_ci95, m.pcie_rx_bytes_per_s, m.jpeg_util_pct) == (None,) * 4
