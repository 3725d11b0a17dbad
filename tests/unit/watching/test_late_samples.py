"""A GPU whose driver tells its utilisation late: what the main thread did is paired with what the GPU did then."""

from __future__ import annotations

from typing import Any, cast

import pytest

from pipetune.diagnosis import causes
from pipetune.records.observation import BusySpan, RankReading
from pipetune.records.watch import Verdict
from pipetune.sampler.stacks.sampling import StackSampler
from pipetune.watching.rank import FollowedRank
from tests.unit.diagnosis.scenes import ON_CORE, WAITS_FOR_LOADER
from tests.unit.watching.watch_scene import FakeStacks, Scene, make_scene
from tests.watch_fakes import INTERVAL_S, PID, machine_readings, rank_reading, workers

S = 10**9
#: How late a sample is, how long each is (s), and how often and how long the device waits for its loader.
LAG_S, SAMPLE_S, EPOCH_S, STALL_S = 0.8, 0.1, 2.5, 0.3


def stalled(t_s: float) -> bool:
    """Around the end of each epoch the loader delivers nothing."""
    return abs((t_s + EPOCH_S / 2) % EPOCH_S - EPOCH_S / 2 + 0.05) < STALL_S / 2 + 1e-9


def spans(from_s: float, to_s: float) -> tuple[BusySpan, ...]:
    """Samples of this time."""
    count = round((to_s - from_s) / SAMPLE_S)
    starts = [from_s + number * SAMPLE_S for number in range(count)]
    return tuple(
        BusySpan(
            t_start_ns=round(start * S), t_end_ns=round((start + SAMPLE_S) * S),
            busy_frac=0.0 if stalled(start + SAMPLE_S / 2) else 1.0,
        )
        for start in starts
    )  # fmt: skip


def reading(number: int, lag_s: float = LAG_S) -> RankReading:
    """What a watch reads at this moment: the main thread now, the device ``lag_s`` ago."""
    t_s = number * INTERVAL_S
    new = spans(t_s - INTERVAL_S - lag_s, t_s - lag_s)
    return rank_reading(
        t_ns=round(t_s * S), busy_frac=sum(span.busy_frac for span in new) / len(new), busy_spans=new,
        main=WAITS_FOR_LOADER if stalled(t_s) else ON_CORE, workers=workers(2),
    )  # fmt: skip


def followed(readings: list[RankReading]) -> FollowedRank:
    rank = FollowedRank(cast(StackSampler, FakeStacks(PID)), 0)
    for one in readings:
        rank.take(one)
    return rank


def verdict_of(rank: FollowedRank, count: int) -> Verdict:
    verdict = rank.judge(0, machine_readings(count))
    assert verdict is not None
    return verdict


@pytest.mark.parametrize("lag_s", [0.0, 0.3, LAG_S, 1.0])
def test_stalls_of_the_loader_are_not_blamed_on_what_the_main_thread_did_later(lag_s: float) -> None:
    readings = [reading(number, lag_s) for number in range(10, 90)]

    verdict = verdict_of(followed(readings), 80)

    assert verdict.lost_frac == pytest.approx(STALL_S / EPOCH_S, abs=0.03)
    assert verdict.cause == causes.CPU_DECODE


def test_a_reading_waits_for_its_samples_and_not_for_ever() -> None:
    rank = followed([reading(number) for number in range(10, 20)])
    assert rank.readings[-1].t_ns == round(8.5 * S)  # 9.0 s is known up to 8.7 s

    silent: dict[str, Any] = {"busy_frac": 0.3, "busy_spans": ()}
    for number in range(20, 30):
        rank.take(rank_reading(t_ns=round(number * INTERVAL_S * S), **silent))
    assert rank.readings[-1].t_ns >= round(12.5 * S)
    assert rank.readings[-1].busy_frac == 0.3


def test_without_times_a_reading_counts_at_once() -> None:
    rank = followed([rank_reading(t_ns=number * S // 2, busy_frac=0.5) for number in range(1, 9)])

    assert len(rank.readings) == 8


@pytest.fixture
def scene() -> Scene:
    return make_scene()


def test_every_reading_is_in_one_window(scene: Scene) -> None:
    windows = []
    for number in range(1, 81):
        one = reading(number + 10)
        scene.job.rank(busy_frac=one.busy_frac, busy_spans=shifted(one, -8), main=one.main, workers=one.workers)
        tick = scene.watcher.tick()
        windows += [] if tick.window is None else [tick.window]
    scene.watcher.end_stalls()
    last = scene.watcher.close_window()

    counts = [window.verdicts[0].looks for window in [*windows, *([last] if last else [])]]
    assert sum(counts) == 79  # the first reading opens the first window
    assert counts[1:-1] == [20] * len(counts[1:-1])
    assert counts[0] >= 17


def shifted(one: RankReading, readings: int) -> tuple[BusySpan, ...]:
    """Its samples, so many readings later."""
    by_ns = round(readings * INTERVAL_S * S)
    return tuple(
        BusySpan(t_start_ns=span.t_start_ns + by_ns, t_end_ns=span.t_end_ns + by_ns, busy_frac=span.busy_frac)
        for span in one.busy_spans
    )
