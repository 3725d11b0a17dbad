"""What a verdict makes of the GPU itself: its clocks, its power limit, who else uses it, how much of it works."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipetune.diagnosis import causes
from pipetune.records.evidence import Signal
from pipetune.records.observation import (
    GpuReading,
    GpuSharing,
)
from pipetune.sampler.stacks import activity as act
from tests.unit.diagnosis import scenes
from tests.unit.diagnosis.scenes import judged, scene, shares_of, team, with_stacks
from tests.watch_fakes import workers


def test_clocks_held_by_heat_are_named_where_nothing_else_is_lost() -> None:
    hot = scene(0.99, main=scenes.ON_CORE, gpu=GpuReading(slowed_pct=40.0, throttled_pct=40.0))

    verdict = judged(hot)

    assert verdict.cause == causes.THROTTLED
    assert "40 %" in verdict.sentence
    assert judged(scene(0.99, main=scenes.ON_CORE, gpu=GpuReading(slowed_pct=1.0))).cause == causes.HEALTHY
    assert judged(scene(0.99, main=scenes.ON_CORE, gpu=GpuReading())).cause == causes.HEALTHY


def test_held_clocks_do_not_hide_a_loss() -> None:
    assert judged(scene(workers=workers(4), gpu=GpuReading(slowed_pct=40.0))).cause == causes.CPU_DECODE


def test_a_gpu_at_its_power_limit_is_healthy_with_a_remark() -> None:
    # A T4 under full load: its boost is limited by its 70 W for most of a healthy run.
    gpu = GpuReading(
        slowed_pct=0.0, power_capped_pct=93.0, throttled_pct=93.0, sm_clock_mhz=1208, max_sm_clock_mhz=1590,
        power_limit_w=72.0,
    )  # fmt: skip
    verdict = judged(scene(0.99, main=scenes.ON_CORE, gpu=gpu))

    assert (verdict.cause, verdict.confidence) == (causes.HEALTHY, "high")
    assert "at 76 % of its highest clock: power limit 72 W" in verdict.sentence
    assert [signal.value for signal in verdict.signals if signal.signal == Signal.GPU_CLOCK] == [
        pytest.approx(0.76, abs=0.001)
    ]


@pytest.mark.parametrize(
    ("gpu", "remark"),
    [
        (GpuReading(power_capped_pct=93.0, power_limit_w=72.0), "held by its power limit of 72 W"),
        (
            GpuReading(power_capped_pct=93.0, sm_clock_mhz=800, max_sm_clock_mhz=1600),
            "at 50 % of its highest clock: power limit",
        ),
        (GpuReading(power_capped_pct=93.0), "held by its power limit"),
    ],
)
def test_the_remark_says_what_is_known(gpu: GpuReading, remark: str) -> None:
    assert judged(scene(0.99, main=scenes.ON_CORE, gpu=gpu)).sentence.endswith(remark)


def test_a_power_limit_that_is_hardly_reached_is_not_mentioned() -> None:
    gpu = GpuReading(power_capped_pct=1.0, sm_clock_mhz=1590, max_sm_clock_mhz=1590, power_limit_w=72.0)

    assert "limit 72" not in judged(scene(0.99, main=scenes.ON_CORE, gpu=gpu)).sentence


def test_a_starved_job_beside_another_process_is_starved() -> None:
    verdict = judged(scene(0.2, workers=workers(4), sharing=scenes.NOTEBOOK))

    assert verdict.cause == causes.CPU_DECODE
    assert verdict.sentence.endswith("; notebook (4711) computes on this GPU 60 % of the time")
    assert [signal.value for signal in verdict.signals if signal.signal == Signal.GPU_SHARING] == [pytest.approx(0.6)]


def test_a_job_that_waits_for_its_turn_is_told_who_has_it() -> None:
    spins = with_stacks(
        scene(0.4, main=scenes.ON_CORE, workers=team(scenes.IDLE_WORKER), sharing=scenes.NOTEBOOK), act.DEVICE_WAIT
    )

    verdict = judged(spins)

    assert verdict.cause == causes.SHARED
    assert verdict.advice is not None
    assert "notebook (4711)" in verdict.advice


def test_without_stacks_a_busy_main_thread_beside_another_process_may_wait_for_its_turn() -> None:
    verdict = judged(scene(0.4, main=scenes.ON_CORE, workers=team(scenes.IDLE_WORKER), sharing=scenes.NOTEBOOK))

    assert verdict.cause == causes.UNDETERMINED
    assert "notebook (4711)" in verdict.sentence


def test_a_process_that_only_holds_memory_is_not_mentioned() -> None:
    idle = replace(scenes.NOTEBOOK, others_frac=0.0)

    assert judged(scene(0.99, main=scenes.ON_CORE, sharing=idle)) == judged(scene(0.99, main=scenes.ON_CORE))


def test_shares_that_nobody_tells_make_a_busy_gpu_no_proof() -> None:
    unknown = GpuSharing(processes=("process 41", "process 42"), others_frac=None)

    verdict = judged(scene(0.99, main=scenes.ON_CORE, sharing=unknown))

    assert (verdict.cause, verdict.confidence) == (causes.HEALTHY, "low")
    assert "process 41 and 1 more may compute on this GPU as well" in verdict.sentence
    assert Signal.GPU_SHARING in verdict.missing_signals


def test_underfilling_is_no_cause_where_half_of_the_device_works() -> None:
    verdict = judged(scene(0.97, active_frac=0.6, main=scenes.ON_CORE, workers=team(scenes.IDLE_WORKER)))

    assert verdict.cause == causes.HEALTHY


def test_underfilling_and_idleness_share_the_loss() -> None:
    verdict = judged(scene(0.5, active_frac=0.1, workers=workers(4)))

    assert verdict.lost_frac == pytest.approx(0.9)
    assert verdict.util_frac == pytest.approx(0.5)
    shares = shares_of(verdict)
    assert shares[causes.SMALL_BATCH] == pytest.approx(0.4 / 0.9)
    assert shares[causes.CPU_DECODE] == pytest.approx(0.5 / 0.9, abs=0.02)
