"""Several ranks as one measurement."""

from __future__ import annotations

import random
from dataclasses import replace
from statistics import fmean

import pytest

from pipetune.measure.machine_speed import Speed
from pipetune.measure.ranks import common_time, summarise_ranks
from pipetune.measure.recording import Recording
from pipetune.measure.summary import TooShort, summarise
from pipetune.records.observation import GpuReading
from pipetune.records.set_up import SetUp
from pipetune.records.sweep import Measurement, RankShare, StepTime, slowest_of
from tests.fakes import measurement
from tests.unit.measure.recordings import reading

RATE = 100.0
"""Of one rank (samples/s), with 10 samples in each of its steps."""


def steps(count: int, *, began_s: float = 0.0, period_s: float = 0.1, wait_s: float = 0.02, others_s: float = 0.01,
          draw: random.Random | None = None, noise: float = 0.0) -> list[StepTime]:  # fmt: skip
    found, end = [], began_s
    for _ in range(count):
        start, end = end, end + period_s * (1 + (draw.gauss(0, noise) if draw else 0.0))
        found.append(StepTime(
            t_start_ns=round(1e9 * start), data_wait_s=wait_s, h2d_s=None, compute_s=period_s - wait_s - others_s,
            idle_s=wait_s, t_end_ns=round(1e9 * end), samples=10, others_s=others_s,
        ))  # fmt: skip
    return found


def rank(timed: list[StepTime], began_s: float = 0.0, **result: object) -> Recording:
    values = {
        "warmup_batches": 10, "steady": True, "window_batches": 5, "pss_bytes": 100, "gpu_mem_bytes": None,
        "speed_before": [200.0, 100.0],
    }  # fmt: skip
    warmup = steps(1, began_s=began_s - 0.1) if began_s else []
    return Recording(
        warmup=warmup, timed=timed, result={**values, **result}, speed_after=Speed(200.0, 100.0),
        first_batch={"open_s": 0.2, "time_to_first_batch_s": 0.9}, hello={"versions": {"torch": "2"}},
    )  # fmt: skip


def together(*ranks: Recording) -> Recording:
    return replace(ranks[0], other_ranks=dict(enumerate(ranks[1:], start=1)))


def summary(recording: Recording, ceiling: Measurement | None = None) -> Measurement:
    return summarise_ranks(recording, accelerator_kind="emulated", ceiling=ceiling, run_noise=0.0)


def ceiling(*rates: float) -> Measurement:
    shares = tuple(
        RankShare(rank=number, samples_per_s=rate, goodput=None, data_wait_frac=0.0, accelerator_idle_frac=0.0,
                  others_wait_frac=0.0)
        for number, rate in enumerate(rates)
    )  # fmt: skip
    whole = sum(rates)
    return measurement(samples_per_s=whole, ci95=(whole, whole), ranks=shares)


def test_one_rank_is_a_measurement_as_ever() -> None:
    one = rank(steps(60))
    assert summary(one) == summarise(one, accelerator_kind="emulated", ceiling=None, run_noise=0.0)
    assert summary(one).ranks == ()


def test_rates_are_those_of_all_and_goodput_is_the_slowest_ranks() -> None:
    found = summary(together(rank(steps(60)), rank(steps(60))), ceiling(125.0, 200.0))
    assert found.samples_per_s == pytest.approx(2 * RATE)
    assert [share.samples_per_s for share in found.ranks] == pytest.approx([RATE, RATE])
    assert [share.goodput for share in found.ranks] == pytest.approx([0.8, 0.5])
    assert found.goodput == pytest.approx(0.5)
    assert found.goodput_ci95 is not None
    assert found.goodput_ci95[0] <= 0.5 <= found.goodput_ci95[1]
    slowest = slowest_of(found)
    assert slowest is not None
    assert slowest.rank == 1


def test_steps_that_lie_partly_in_the_common_time_count_by_that_part() -> None:
    """Ranks that are jobs of their own end their steps at other times."""
    own = rank(steps(60), window_batches=5)
    other = rank([*steps(30, began_s=0.05, period_s=0.2)], began_s=0.05, window_batches=5)
    found = summary(together(own, other), ceiling(100.0, 100.0))
    assert [share.samples_per_s for share in found.ranks] == pytest.approx([100.0, 50.0])
    assert found.goodput == pytest.approx(0.5)
    assert found.goodput_ci95 is not None
    assert found.goodput_ci95[0] <= 0.5 <= found.goodput_ci95[1]
    assert found.full_samples_per_s == pytest.approx(200.0)


def test_shares_of_the_time_are_means_over_the_ranks() -> None:
    found = summary(together(rank(steps(60, wait_s=0.02)), rank(steps(60, wait_s=0.04, others_s=0.03))))
    assert found.data_wait_frac == pytest.approx(0.3)
    assert found.accelerator_idle_frac == pytest.approx(0.3)
    assert found.others_wait_frac == pytest.approx(0.2)
    assert [share.data_wait_frac for share in found.ranks] == pytest.approx([0.2, 0.4])
    assert [share.others_wait_frac for share in found.ranks] == pytest.approx([0.1, 0.3])


def test_only_the_time_in_which_all_were_timed_counts() -> None:
    early = rank(steps(100, began_s=1.0), began_s=1.0)
    # Begins later, and is slower before the other one has begun and after it has ended.
    late = rank([*steps(60, began_s=3.0), *steps(5, began_s=9.0, period_s=5.0)], began_s=3.0)
    assert common_time([early, late]) == (3_000_000_000, 11_000_000_000)
    found = summary(together(early, late))
    assert found.ranks[0].samples_per_s == pytest.approx(RATE)
    assert found.ranks[1].samples_per_s == pytest.approx((60 * 10 + 10 * 2 / 5) / 8)  # two of the last step's 5 s
    assert (found.warmup_batches, found.steps) == (1, 60), "of the slowest rank, whose steps are kept"


def test_ranks_that_were_not_timed_together_have_no_rate() -> None:
    with pytest.raises(TooShort, match="at the same time"):
        summary(together(rank(steps(30), 0.0), rank(steps(30, began_s=10.0), 10.0)))


def test_memory_is_that_of_all_and_what_began_last_has_begun() -> None:
    second = rank(steps(60), pss_bytes=50, steady=False)
    second.first_batch["time_to_first_batch_s"] = 2.5
    found = summary(together(rank(steps(60)), second))
    assert (found.pss_bytes, found.steady) == (150, False)
    assert found.time_to_first_batch_s == 2.5


def interval_widths(*, in_common: bool) -> list[float]:
    """Of 60 measurements with eight ranks, whose steps scatter by 30 %; 54 at least contain the rate."""
    inside, widths = 0, []
    for seed in range(60):
        draws = [random.Random(seed if in_common else 8 * seed + number) for number in range(8)]
        found = summary(together(*(rank(steps(120, draw=draw, noise=0.3)) for draw in draws)))
        low, high = found.ci95
        inside += low <= 8 * RATE <= high
        widths.append((high - low) / found.samples_per_s)
    assert inside >= 54
    return widths


def test_the_interval_holds_whether_ranks_scatter_together_or_apart() -> None:
    """Ranks that end their steps together scatter as one does; those that do not average out."""
    assert fmean(interval_widths(in_common=True)) > 1.5 * fmean(interval_widths(in_common=False))


def on_gpu(uuid: str, watts: float, rx: int | None = 500) -> Recording:
    """A rank whose GPU takes so much power."""
    one = rank(steps(60))
    one.readings = [
        replace(reading(5 * n), gpu=GpuReading(energy_j=watts * n / 2, pcie_rx_bytes=rx, power_w=watts))
        for n in range(13)
    ]
    one.hello["gpu_uuid"] = uuid
    return one


def summary_of_gpus(*ranks: Recording) -> Measurement:
    return summarise_ranks(together(*ranks), accelerator_kind="cuda", ceiling=None, run_noise=0.0)


def test_energy_and_traffic_add_up_over_the_gpus_and_power_is_their_mean() -> None:
    found = summary_of_gpus(on_gpu("GPU-0", 300.0), on_gpu("GPU-1", 100.0))
    assert found.energy_j_per_1000_samples == pytest.approx(1000 * 400.0 / (2 * RATE))
    assert found.gpu_power_w == pytest.approx(200.0)
    assert found.pcie_rx_bytes_per_s == pytest.approx(2000.0)
    assert found.energy_ci95 is not None
    assert found.energy_ci95[0] < found.energy_j_per_1000_samples < found.energy_ci95[1]


def test_a_gpu_that_two_ranks_share_counts_once_and_one_that_tells_nothing_leaves_no_sum() -> None:
    assert summary_of_gpus(on_gpu("GPU-0", 300.0), on_gpu("GPU-0", 300.0)).energy_j_per_1000_samples == pytest.approx(
        1000 * 300.0 / (2 * RATE)
    )
    silent = summary_of_gpus(on_gpu("GPU-0", 300.0), rank(steps(60)))
    assert (silent.energy_j_per_1000_samples, silent.pcie_rx_bytes_per_s, silent.energy_ci95) == (None, None, None)


def test_each_stage_of_the_set_up_is_the_slowest_ranks() -> None:
    one, other = rank(steps(60)), rank(steps(60))
    assert summary(together(one, other)).set_up is None
    one.hello["set_up"] = {"start_s": 1.0, "context_s": 2.0}
    other.hello["set_up"] = {"start_s": 0.5, "context_s": 3.0}
    assert summary(together(one, other)).set_up == SetUp(start_s=1.0, context_s=3.0)
