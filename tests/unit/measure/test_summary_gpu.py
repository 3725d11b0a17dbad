"""What a summary says of the GPU: utilisation, clock, energy, all of the timed phase alone."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from pipetune.measure.recording import Recording
from pipetune.measure.summary import summarise
from pipetune.records.observation import BusySpan, GpuReading
from pipetune.records.sweep import Measurement
from tests.fakes import measurement
from tests.unit.measure.recordings import S, recording, summary


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
