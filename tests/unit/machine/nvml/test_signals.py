"""Signals of a GPU by the real binding on a fake driver: how often each is read, and what it is made of."""

from __future__ import annotations

import pytest

from tests.fake_nvml import HEALTHY
from tests.unit.machine.nvml.fake_gpus import Gpus


def test_where_the_driver_has_no_figure_for_its_jpeg_engines_gpm_has_their_mean(gpus: Gpus) -> None:
    engines = "metric.40 60\nmetric.41 20\nmetric.42 nan\n"
    seen = gpus.read(HEALTHY + f"nvmlDeviceGetJpgUtilization !3\n{engines}", count=3)
    assert [reading["jpeg_util_pct"] for reading in seen["readings"]] == [None, 40.0, 40.0]
    assert [reading["sm_active_pct"] for reading in seen["readings"]] == [None, 55.5, 55.5]
    assert {f"NVML_GPM_METRIC_NVJPG_{engine}_UTIL" for engine in range(3, 8)} <= set(seen["unsupported"])


def test_gpm_is_not_asked_for_jpeg_engines_that_the_driver_tells(gpus: Gpus) -> None:
    seen = gpus.read(HEALTHY + "metric.40 60\n", count=3)
    assert [reading["jpeg_util_pct"] for reading in seen["readings"]] == [25.0] * 3
    assert seen["unsupported"] == []


def test_the_energy_counter_is_told_in_the_ticks_that_read_it(gpus: Gpus) -> None:
    column = gpus.column("energy_j", HEALTHY, count=7, every_s=0.1)
    assert column == [1.0, None, None, None, None, 51.0, None]


def test_a_call_that_is_always_slow_is_made_less_often(gpus: Gpus) -> None:
    scenario = HEALTHY + "nvmlDeviceGetJpgUtilization 40~25\n"

    cost_s = gpus.read(scenario, count=20)["cost_s"]

    # 40 ms may be spent every 5 s at most: the first two readings (0 and 0.5 s) show it, then one at 5.5 s.
    assert cost_s["nvmlDeviceGetJpgUtilization"][0] == 3
    assert cost_s["nvmlDeviceGetJpgUtilization"][1] >= 0.12
    assert cost_s["nvmlDeviceGetMemoryInfo"][0] == 20


def test_one_slow_answer_changes_nothing(gpus: Gpus) -> None:
    cost_s = gpus.read(HEALTHY + "nvmlDeviceGetJpgUtilization 25 40~25 25\n", count=4)["cost_s"]

    assert cost_s["nvmlDeviceGetJpgUtilization"][0] == 4


def test_byte_counters_wrap_at_32_bits(gpus: Gpus) -> None:
    scenario = f"field.198:u32 {2**32 - 100} 900 1000\nfield.197 {2**64 - 50} 25 25"

    seen = gpus.read(scenario, count=3)["readings"]

    assert [reading["pcie_rx_bytes"] for reading in seen] == [None, 1000, 100]
    assert [reading["pcie_tx_bytes"] for reading in seen] == [None, 75, 0]


def test_gpm_off_is_not_asked_again(gpus: Gpus) -> None:
    seen = gpus.read(HEALTHY + "nvmlGpmQueryDeviceSupport 0\n", count=3)

    assert [reading["sm_active_pct"] for reading in seen["readings"]] == [None] * 3
    assert seen["unsupported"] == ["nvmlGpmSampleGet"]
    assert gpus.calls().count("nvmlGpmQueryDeviceSupport") == 1


def test_gpm_is_not_asked_over_less_than_100_ms(gpus: Gpus) -> None:
    gpus.read(HEALTHY, count=30, every_s=0.01)

    assert gpus.calls().count("nvmlGpmSampleGet") == 1
    assert "nvmlGpmMetricsGet" not in gpus.calls()


def test_gpm_compares_each_sample_with_the_one_before(gpus: Gpus) -> None:
    # The fake refuses two samples that are the same or in the wrong order.
    assert gpus.column("sm_active_pct", HEALTHY + "metric.2 10 20 101 nan 30\n", count=6) == [
        None, 10.0, 20.0, 100.0, None, 30.0,
    ]  # fmt: skip


def test_a_gpm_metric_that_is_refused_is_not_asked_again(gpus: Gpus) -> None:
    seen = gpus.read(HEALTHY + "metric.2 !3\n", count=5)

    assert "NVML_GPM_METRIC_SM_UTIL" in seen["unsupported"]
    assert gpus.calls().count("nvmlGpmMetricsGet") == 1
    assert gpus.calls().count("nvmlGpmSampleGet") == 2


def test_power_is_the_energy_over_the_time_since_it_last_moved(gpus: Gpus) -> None:
    scenario = "nvmlDeviceGetTotalEnergyConsumption 1000 1000 101000 101000 201000 500 100500"

    # Standing still, it gives no figure of its own; 100 J in 1 s; carried; 100 J in 1 s; set back; 100 J in 0.5 s.
    assert gpus.column("power_w", scenario, count=7) == [None, None, 100.0, 100.0, 100.0, None, 200.0]


def test_power_without_an_energy_counter(gpus: Gpus) -> None:
    seen = gpus.read("nvmlDeviceGetPowerUsage 120000 130000", count=2)

    assert [reading["power_w"] for reading in seen["readings"]] == [120.0, 130.0]
    assert "nvmlDeviceGetTotalEnergyConsumption" in seen["unsupported"]


def test_an_energy_counter_that_never_counts_is_given_up(gpus: Gpus) -> None:
    scenario = "nvmlDeviceGetTotalEnergyConsumption 0\nnvmlDeviceGetPowerUsage 90000"

    assert gpus.column("power_w", scenario, count=8) == [None] * 6 + [90.0] * 2


def test_a_power_limit_and_heat_are_told_apart(gpus: Gpus) -> None:
    # 0.5 s = 500 million ns between the looks.
    seen = gpus.read(HEALTHY + "field.74 0 +50000000 +0 +600000000\nfield.75 0 +200000000 +0 +0\n", count=4)

    assert [reading["power_capped_pct"] for reading in seen["readings"]] == [None, 10.0, 0.0, 100.0]
    assert [reading["slowed_pct"] for reading in seen["readings"]] == [None, 40.0, 0.0, 0.0]
    assert [reading["throttled_pct"] for reading in seen["readings"]] == [None, 40.0, 0.0, 100.0]


def test_a_slowdown_by_the_hardware_shows_as_a_flag(gpus: Gpus) -> None:
    # 0x4 (software power cap) is in the counters already, 0x40 (hardware thermal) and 0x80 (power brake) are not.
    scenario = HEALTHY + "nvmlDeviceGetCurrentClocksEventReasons 4 72 0 136 0\n"

    assert gpus.column("slowed_pct", scenario, count=5) == [None, 100.0, 0.0, 100.0, 0.0]
    assert gpus.column("power_capped_pct", scenario, count=5) == [None, 0.0, 0.0, 0.0, 0.0]


def test_a_change_of_clocks_is_no_slowdown(gpus: Gpus) -> None:
    # "HwSlowdown" alone "may be also reported during PState or clock change" (nvml.h): it has to last.
    scenario = HEALTHY + "nvmlDeviceGetCurrentClocksEventReasons 0 8 0 8 8 8 0\n"

    assert gpus.column("slowed_pct", scenario, count=7) == [None, 0.0, 0.0, 0.0, 100.0, 100.0, 0.0]


@pytest.mark.parametrize("name", ["CurrentClocksEventReasons", "CurrentClocksThrottleReasons"])
def test_without_counters_the_flags_decide(gpus: Gpus, name: str) -> None:
    # 0x1 is an idle GPU, which is no throttling; 0x20 is software thermal slowdown.
    seen = gpus.read(f"nvmlDeviceGet{name} 1 4 0 32 0", count=5)["readings"]

    assert [reading["power_capped_pct"] for reading in seen] == [0.0, 100.0, 0.0, 0.0, 0.0]
    assert [reading["slowed_pct"] for reading in seen] == [0.0, 0.0, 0.0, 100.0, 0.0]


def test_the_clock_and_what_limits_it(gpus: Gpus) -> None:
    scenario = """
nvmlDeviceGetClockInfo.1 1208 900
nvmlDeviceGetMaxClockInfo.1 1590
nvmlDeviceGetEnforcedPowerLimit 72000
"""
    seen = gpus.read(scenario, count=3)

    assert [reading["sm_clock_mhz"] for reading in seen["readings"]] == [1208, 900, 900]
    assert [reading["max_sm_clock_mhz"] for reading in seen["readings"]] == [1590] * 3
    assert [reading["power_limit_w"] for reading in seen["readings"]] == [72.0] * 3
