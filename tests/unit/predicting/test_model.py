from __future__ import annotations

import math

import pytest

from pipetune.predicting.model import (
    CORES,
    OVERSUBSCRIBED,
    WORKERS,
    Costs,
    Setting,
    binding,
    limits_of,
    rate_of,
    smooth_minimum,
    supply_of,
    throughput,
    without,
)
from pipetune.records.explanation import ACCELERATOR, HAND_OVER, STORAGE

#: 2 ms of CPU time per sample, an accelerator that takes 5,000 a second.
COSTS = Costs(load_s=0.002, worker_s=0.002, demand_per_s=5000.0)


def test_workers_add_up_until_the_cores_are_busy() -> None:
    rates = [rate_of(COSTS, Setting(cores=4, workers=count)) for count in (1, 2, 4, 8)]
    assert rates[0] == pytest.approx(500, rel=0.01)
    assert rates[1] == pytest.approx(1000, rel=0.01)
    assert 1850 < rates[2] <= 2000
    assert 0.95 * rates[2] < rates[3] < rates[2], "they take turns"


def test_the_accelerator_is_the_limit_of_a_fast_loader() -> None:
    setting = Setting(cores=64, workers=64)
    assert rate_of(COSTS, setting) == pytest.approx(5000, rel=0.01)
    assert binding(COSTS, setting)[0] == ACCELERATOR


def test_busy_cores_slow_each_other_down() -> None:
    shared = Costs(load_s=0.002, worker_s=0.002, demand_per_s=1e9, contention=0.1)
    one, four = (supply_of(shared, Setting(cores=8, workers=count)) for count in (1, 4))
    assert four == pytest.approx(4 * one / 1.2, rel=0.01)  # twice as many, twice


def test_workers_beyond_the_cores_slow_each_other_down() -> None:
    same, twice, four_times = (supply_of(COSTS, Setting(cores=64, workers=64 * count)) for count in (1, 2, 4))
    more = limits_of(COSTS, Setting(cores=64, workers=64))[CORES]
    assert twice == pytest.approx(more / (1 + OVERSUBSCRIBED), rel=0.001)
    assert four_times == pytest.approx(more / (1 + 2 * OVERSUBSCRIBED), rel=0.001)
    assert same < more


def test_with_as_many_workers_as_cores_it_is_the_cores_that_are_short() -> None:
    assert binding(COSTS, Setting(cores=4, workers=4)) == (CORES, ACCELERATOR)
    assert binding(COSTS, Setting(cores=4, workers=8)) == (CORES, ACCELERATOR)
    assert binding(COSTS, Setting(cores=4, workers=2)) == (WORKERS, CORES)


def test_without_workers_loading_and_steps_take_turns() -> None:
    costs = Costs(load_s=0.002, worker_s=0.002, step_s=0.001, demand_per_s=500.0)
    assert limits_of(costs, Setting(cores=4, workers=0))[WORKERS] == pytest.approx(1 / 0.003)
    # A step on the CPU keeps the process for as long as the accelerator takes.
    blocking = Setting(cores=4, workers=0, blocking=True)
    assert limits_of(costs, blocking)[WORKERS] == pytest.approx(1 / 0.004)


def test_ranks_share_cores_and_have_an_accelerator_each() -> None:
    limits = limits_of(COSTS, Setting(cores=4, workers=2, ranks=3))
    assert limits[ACCELERATOR] == 15_000
    turns = 1 + OVERSUBSCRIBED * math.log2(6 / 4)
    assert limits[WORKERS] == pytest.approx(3000 / turns)
    assert limits[CORES] == pytest.approx(2000 / turns)


def test_handing_over_is_a_limit_of_each_rank_with_workers() -> None:
    costs = Costs(load_s=1e-5, worker_s=1e-5, demand_per_s=1e9, hand_over_per_s=700.0)
    assert limits_of(costs, Setting(cores=8, workers=8, ranks=2))[HAND_OVER] == 1400
    assert HAND_OVER not in limits_of(costs, Setting(cores=8, workers=0))


def test_a_slow_disk_sets_the_pace_and_one_reader_waits_for_it() -> None:
    slow = Setting(cores=4, workers=4, storage_per_s=100.0)
    assert supply_of(COSTS, slow) == pytest.approx(100, rel=0.02)
    assert binding(COSTS, slow)[0] == STORAGE
    # One worker reads for 2 ms and decodes for 2 ms, in turn.
    assert supply_of(COSTS, Setting(cores=4, workers=1, storage_per_s=500.0)) == pytest.approx(250, rel=0.01)


def test_a_rate_that_is_granted_keeps_no_worker_waiting() -> None:
    granted = Setting(cores=4, workers=1, storage_per_s=500.0, queueing=False)
    assert 475 < supply_of(COSTS, granted) < 500
    assert supply_of(COSTS, Setting(cores=4, workers=4, storage_per_s=100.0, queueing=False)) == pytest.approx(100)


def test_without_workers_nothing_is_handed_over() -> None:
    costs = Costs(load_s=0.002, worker_s=0.002, process_s=0.0005, demand_per_s=1e9)
    assert supply_of(costs, Setting(cores=4, workers=1)) == pytest.approx(500, rel=0.01)
    assert supply_of(costs, Setting(cores=4, workers=0)) == pytest.approx(1 / 0.0015, rel=0.01)
    assert costs.faster(2).process_s == 0.00025


def test_a_long_step_on_the_cpu_sets_the_pace_of_a_process_that_loads_for_itself() -> None:
    costs = Costs(load_s=0.0001, worker_s=0.0001, demand_per_s=10.0)
    setting = Setting(cores=2, workers=0, blocking=True)
    assert rate_of(costs, setting) == pytest.approx(10, rel=0.002)
    assert binding(costs, setting)[0] == ACCELERATOR


def test_readers_of_one_disk_are_served_one_after_the_other() -> None:
    assert throughput(1, delay_s=0.002, service_s=0.001) == pytest.approx(1 / 0.003)
    # Exact: two customers, think time Z, one queue of service S: 2 / (Z + S (1 + S / (Z + S))).
    assert throughput(2, delay_s=0.002, service_s=0.001) == pytest.approx(2 / (0.002 + 0.001 * (1 + 1 / 3)))
    assert throughput(100, delay_s=0.002, service_s=0.001) == pytest.approx(1000, rel=1e-3)


def test_the_smooth_minimum_is_below_the_smallest_and_near_it() -> None:
    assert smooth_minimum(100.0, 1000.0) == pytest.approx(100.0)
    assert 95 < smooth_minimum(100.0, 100.0) < 97
    assert smooth_minimum(100.0, math.inf) == 100.0
    assert smooth_minimum(math.inf, math.inf) == math.inf


def test_what_a_limit_hides_is_found_again() -> None:
    assert without(smooth_minimum(90.0, 100.0), 100.0) == pytest.approx(90.0)
    assert without(100.0, 100.0) == math.inf
    assert without(100.0, math.inf) == pytest.approx(100.0)
