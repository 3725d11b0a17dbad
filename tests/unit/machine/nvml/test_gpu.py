"""The real binding on a fake driver; see ``tests/fake_nvml``. What a real GPU answers is for ``tests/gpu``."""

from __future__ import annotations

import pytest

from pipetune.machine.nvml.signals import JPEG_CALL, JPEG_ENGINES
from tests.fake_nvml import HEALTHY
from tests.unit.machine.nvml.fake_gpus import AT_FULL_CLOCK, NOTHING, Gpus


def test_a_healthy_gpu_has_every_value(gpus: Gpus) -> None:
    seen = gpus.read("driver 550.54\nname Fake H100\nuuid GPU-a\n" + HEALTHY, count=2)

    first, second = seen["readings"]
    clocks = {"sm_clock_mhz": 1980, "max_sm_clock_mhz": 1980, "power_limit_w": 300.0}
    at_once = {"util_pct": 90.0, "mem_used_bytes": 1_000_000, "jpeg_util_pct": 25.0, "energy_j": 1.0}
    assert first == NOTHING | clocks | at_once
    assert second == AT_FULL_CLOCK | {
        "util_pct": 90.0, "mem_used_bytes": 1_000_000, "sm_active_pct": 55.5, "jpeg_util_pct": 25.0,
        "pcie_rx_bytes": 3_000_000, "pcie_tx_bytes": 200, "power_w": 100.0, "energy_j": 51.0,
    }  # fmt: skip
    assert (seen["lost"], seen["unsupported"]) == (None, [])
    assert (seen["name"], seen["uuid"], seen["driver_version"]) == ("Fake H100", "GPU-a", "550.54")


def test_nvml_is_started_and_ended_once_and_the_costly_calls_are_never_made(gpus: Gpus) -> None:
    seen = gpus.read(HEALTHY, count=20, every_s=0.1)

    calls = gpus.calls()
    assert (calls[0], calls[-1]) == ("nvmlInit", "nvmlShutdown")
    assert (calls.count("nvmlInit"), calls.count("nvmlShutdown")) == (1, 1)
    assert calls.count("nvmlGpmSampleAlloc") == calls.count("nvmlGpmSampleFree") == 2
    assert not any("Throughput" in call or "Process" in call for call in calls)
    assert seen["after_close"] == NOTHING


def test_only_the_utilisation_is_asked_for_at_each_tick(gpus: Gpus) -> None:
    cost_s = gpus.read(HEALTHY, count=11, every_s=0.1)["cost_s"]

    assert cost_s["nvmlDeviceGetSamples"][0] == 11
    for name in ("MemoryInfo", "FieldValues", "JpgUtilization", "TotalEnergyConsumption"):
        assert cost_s[f"nvmlDeviceGet{name}"][0] == 3
    assert cost_s["nvmlGpmSampleGet"][0] == 3
    assert all(seconds > 0 for _, seconds in cost_s.values())


def test_values_are_carried_in_between_and_bytes_are_not(gpus: Gpus) -> None:
    readings = gpus.read(HEALTHY, count=8, every_s=0.1)["readings"]

    assert [reading["pcie_rx_bytes"] for reading in readings] == [None] * 5 + [3_000_000, None, None]
    assert [reading["sm_active_pct"] for reading in readings] == [None] * 5 + [55.5] * 3
    assert [reading["power_w"] for reading in readings] == [None] * 5 + [100.0] * 3
    assert [reading["throttled_pct"] for reading in readings] == [None] * 5 + [0.0] * 3


def test_utilisation_is_the_mean_of_all_samples_since_the_last_reading(gpus: Gpus) -> None:
    scenario = "nvmlDeviceGetSamples 10=0,20=0,30=40 10=0,20=0,30=40,40=100,50=50 50=50,60=0 -"

    # What was buffered before the first reading is history, and an empty answer means nothing new.
    assert gpus.column("util_pct", scenario, count=5, every_s=0.1) == [40.0, 75.0, 0.0, 0.0, 0.0]


def test_samples_are_placed_on_the_monotonic_clock(gpus: Gpus) -> None:
    # 1500 s after 1970 it is 1000 s on the other clock. A sample is of the time since the one before it.
    samples = "1499700000=0,1499900000=100 1500200000=50,1503000000=10 -"

    spans = gpus.read(f"nvmlDeviceGetSamples {samples}", count=3, every_s=3.0)["spans"]

    assert spans == [
        [999_700_000_000, 999_900_000_000, 1.0], [999_900_000_000, 1_000_200_000_000, 0.5],
        [1_002_000_000_000, 1_003_000_000_000, 0.1],
    ]  # fmt: skip


@pytest.mark.parametrize("stamps", ["10=90 20=80", "1400000000=90 1400500000=80", "1600000000=90 1600500000=80"])
def test_samples_of_another_clock_have_no_time(gpus: Gpus, stamps: str) -> None:
    seen = gpus.read(f"nvmlDeviceGetSamples {stamps}", count=2)

    assert seen["spans"] == []
    assert [reading["util_pct"] for reading in seen["readings"]] == [90.0, 80.0]


def test_a_busy_and_idle_pattern_comes_through(gpus: Gpus) -> None:
    steps = " ".join(f"{step}1=100,{step}2=80" if step % 2 else f"{step}1=0,{step}2=20" for step in range(1, 7))

    seen = gpus.column("util_pct", f"nvmlDeviceGetSamples {steps}", count=6, every_s=0.1)

    assert seen == [80.0, 10.0, 90.0, 10.0, 90.0, 10.0]


def test_utilisation_above_one_hundred_is_cut(gpus: Gpus) -> None:
    assert gpus.column("util_pct", "nvmlDeviceGetUtilizationRates 140") == [100.0]


def test_a_sample_that_is_garbage_counts_no_more_than_any_other(gpus: Gpus) -> None:
    scenario = "nvmlDeviceGetSamples 10=0 20=0,30=0,40=4000000000,50=0"

    assert gpus.column("util_pct", scenario, count=2) == [0.0, 25.0]


@pytest.mark.parametrize("code", [3, 4, 13])
def test_without_samples_the_rates_are_taken_and_samples_not_asked_again(gpus: Gpus, code: int) -> None:
    scenario = f"nvmlDeviceGetSamples !{code}\nnvmlDeviceGetUtilizationRates 30 60"

    seen = gpus.read(scenario, count=3)

    assert [reading["util_pct"] for reading in seen["readings"]] == [30.0, 60.0, 60.0]
    assert "nvmlDeviceGetSamples" in seen["unsupported"]
    assert seen["lost"] is None
    assert gpus.calls().count("nvmlDeviceGetSamples") == 1


def test_samples_that_stopped_coming_are_not_reported_for_ever(gpus: Gpus) -> None:
    scenario = "nvmlDeviceGetSamples 10=90 -\nnvmlDeviceGetUtilizationRates 5"

    assert gpus.column("util_pct", scenario, count=6) == [90.0, 90.0, 90.0, 90.0, 90.0, 5.0]


def test_a_mig_slice_has_sm_activity_through_its_gpu_and_no_utilisation(gpus: Gpus) -> None:
    scenario = """
gpus 1
slices 1
uuid@0 GPU-whole
uuid@1 MIG-slice
nvmlDeviceGetGpuInstanceId@1 7
nvmlDeviceGetMemoryInfo@1 500
nvmlGpmQueryDeviceSupport@0 1
metric.2@0 33
nvmlDeviceGetTotalEnergyConsumption@1 1000 51000 101000
nvmlDeviceGetPowerUsage@1 70000
"""
    seen = gpus.read(scenario, count=2, uuid="slice")

    assert seen["uuid"] == "MIG-slice"
    assert seen["readings"][1] == NOTHING | {"mem_used_bytes": 500, "sm_active_pct": 33.0}
    assert "nvmlGpmMigSampleGet" in gpus.calls()
    assert "nvmlGpmSampleGet" not in gpus.calls()
    assert {"nvmlDeviceGetSamples", "nvmlDeviceGetUtilizationRates"} <= set(seen["unsupported"])


@pytest.mark.parametrize("code", [1, 15, 16, 999])
def test_a_gpu_lost_on_the_way_has_no_values_and_is_left_alone(gpus: Gpus, code: int) -> None:
    seen = gpus.read(HEALTHY + f"nvmlDeviceGetSamples 10=50 20=50 !{code}\n", count=6, every_s=0.1)

    assert [reading["util_pct"] for reading in seen["readings"]] == [50.0, 50.0, None, None, None, None]
    assert seen["readings"][2:] == [NOTHING] * 4
    assert seen["lost"].startswith("nvmlDeviceGetSamples: ")
    assert gpus.calls().count("nvmlDeviceGetMemoryInfo") == 1
    assert gpus.calls()[-1] == "nvmlShutdown"


def test_a_field_value_can_say_that_the_gpu_is_lost(gpus: Gpus) -> None:
    seen = gpus.read(HEALTHY + "field.198 1000 !15\n", count=2)

    assert seen["lost"] == "NVML_FI_DEV_PCIE_COUNT_RX_BYTES: GPU is lost"
    assert seen["readings"][1] == NOTHING


def test_a_call_that_never_worked_does_not_take_the_others_along(gpus: Gpus) -> None:
    seen = gpus.read(HEALTHY + "nvmlDeviceGetJpgUtilization !999\n", count=3)

    assert seen["lost"] is None
    assert set(seen["unsupported"]) == {JPEG_CALL, *JPEG_ENGINES}
    assert [reading["jpeg_util_pct"] for reading in seen["readings"]] == [None] * 3
    assert gpus.calls().count("nvmlDeviceGetJpgUtilization") == 1


def test_a_passing_shortage_leaves_one_gap(gpus: Gpus) -> None:
    scenario = HEALTHY + "nvmlDeviceGetMemoryInfo 5 !10 7\n"

    assert gpus.column("mem_used_bytes", scenario, count=3) == [5, None, 7]


def test_a_forbidden_signal_is_none_and_the_others_stay(gpus: Gpus) -> None:
    names = ("nvmlDeviceGetSamples", "nvmlDeviceGetUtilizationRates", "nvmlDeviceGetTotalEnergyConsumption",
             "nvmlDeviceGetPowerUsage", "nvmlGpmQueryDeviceSupport")  # fmt: skip
    seen = gpus.read(HEALTHY + "\n".join(f"{name} !4" for name in names), count=3)

    assert set(seen["unsupported"]) == {*names, "nvmlGpmSampleGet"}
    assert seen["readings"][2] == AT_FULL_CLOCK | {
        "util_pct": None, "mem_used_bytes": 1_000_000, "sm_active_pct": None, "jpeg_util_pct": 25.0,
        "pcie_rx_bytes": 3_000_000, "pcie_tx_bytes": 200, "power_w": None, "energy_j": None,
    }  # fmt: skip
    assert all(gpus.calls().count(name) == 1 for name in names)


FLAGS = "nvmlDeviceGetCurrentClocksEventReasons"


@pytest.mark.parametrize(
    ("refused", "changed"),
    [
        # What follows from the other calls: flags for what held the clocks (0x4: the power limit, 0x20: heat), the
        # driver's own figure for power.
        (("field.74",), {"power_capped_pct": 100.0}),
        (("field.75",), {"slowed_pct": 100.0, "throttled_pct": 100.0}),
        (("field.74", FLAGS), {"power_capped_pct": None}),
        (("field.75", FLAGS), {"slowed_pct": None}),
        (("field.197",), {"pcie_tx_bytes": None}),
        (("field.198",), {"pcie_rx_bytes": None}),
        (("nvmlDeviceGetTotalEnergyConsumption",), {"power_w": 120.0, "energy_j": None}),
        (
            ("nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetPowerUsage"),
            {"power_w": None, "energy_j": None},
        ),
    ],
    ids="+".join,
)
def test_a_counter_that_is_refused_costs_its_own_value_only(
    gpus: Gpus, refused: tuple[str, ...], changed: dict[str, float | None]
) -> None:
    flags = f"{FLAGS} {0x4 | 0x20}\n"
    whole = gpus.read(HEALTHY + flags, count=3)["readings"][2]
    before = gpus.calls()
    no_permission = "".join(f"{name} !4\n" for name in refused)
    seen = gpus.read(HEALTHY + flags + no_permission, count=3)

    found = seen["readings"][2]
    assert {name: found[name] for name in changed} == changed
    derived = {"throttled_pct"}  # of the two others
    assert {name: found[name] for name in found if name not in changed.keys() | derived} == {
        name: whole[name] for name in whole if name not in changed.keys() | derived
    }
    assert seen["lost"] is None
    assert all(gpus.calls().count(name) == before.count(name) + 1 for name in refused), "it is asked for once"


def test_an_old_driver_lacks_functions_and_their_values_only(old_gpus: Gpus) -> None:
    scenario = HEALTHY + "field.197 !3\nfield.198 !3\nnvmlDeviceGetCurrentClocksThrottleReasons 0\n"

    seen = old_gpus.read(scenario, count=3)

    assert seen["readings"][2] == AT_FULL_CLOCK | {
        "util_pct": 80.0, "mem_used_bytes": 1_000_000, "sm_active_pct": None, "jpeg_util_pct": None,
        "pcie_rx_bytes": None, "pcie_tx_bytes": None, "power_w": 100.0, "energy_j": 101.0,
    }  # fmt: skip
    assert set(seen["unsupported"]) == {
        "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetJpgUtilization", "nvmlGpmQueryDeviceSupport",
        "nvmlGpmSampleGet", "NVML_FI_DEV_PCIE_COUNT_RX_BYTES", "NVML_FI_DEV_PCIE_COUNT_TX_BYTES",
    }  # fmt: skip
    assert (old_gpus.calls().count("field.198"), old_gpus.calls().count("field.74")) == (1, 3)


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


def test_the_shares_of_processes(gpus: Gpus) -> None:
    seen = gpus.read("process_use 42=60,43=135,0=7 42=20 - - !3\n", count=5, processes=True, every_s=1.5)

    # What is not told anew holds for 2 s.
    assert seen["fracs"] == [{"42": 0.6, "43": 1.0}, {"42": 0.2}, {"42": 0.2}, None, None]
    assert "nvmlDeviceGetProcessUtilization" in seen["unsupported"]


def test_processes_are_not_gone_through_unasked(gpus: Gpus) -> None:
    gpus.read(HEALTHY + "process_use 42=60\n", count=3)

    assert "nvmlDeviceGetProcessUtilization" not in gpus.calls()


def test_samples_in_real_time_cycle(gpus: Gpus) -> None:
    assert gpus.column("util_pct", "nvmlDeviceGetSamples now=90 now=10 ...", count=4) == [90.0, 10.0, 90.0, 10.0]
