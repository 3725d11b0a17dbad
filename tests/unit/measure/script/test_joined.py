from __future__ import annotations

from typing import Any

import pytest

from pipetune.measure.recording import Recording
from pipetune.measure.script.joined import (
    CHECKPOINT,
    LEAST_BATCHES,
    MAX_STARTS,
    SCRIPT_ENDED,
    join_starts,
    measure_over_starts,
    steps_of,
)
from pipetune.measure.summary import summarise
from pipetune.records.sweep import Failure, StepTime

MS = 1_000_000


def start(*durations_ms: float, began_ms: int = 0, compute_ms: float = 5.0, **result: Any) -> Recording:
    """A start of the script with steps of these lengths."""
    ends, steps = began_ms * MS, []
    for duration in durations_ms:
        began, ends = ends, ends + round(duration * MS)
        wait_s = max(0.0, (duration - compute_ms) / 1e3)
        steps.append(StepTime(
            t_start_ns=began, data_wait_s=wait_s, h2d_s=None, compute_s=compute_ms / 1e3, idle_s=wait_s, t_end_ns=ends,
            samples=8,
        ))  # fmt: skip
    return Recording(
        warmup=steps[:3], timed=steps[3:], first_batch={"open_s": 0.0, "time_to_first_batch_s": 0.1},
        result={"apart": [], "epoch_starts": [[0.1, 0.0]], "speed_before": (1.0, 1.0), "pss_bytes": 1,
                "gpu_mem_bytes": None, **result},
    )  # fmt: skip


def epoch(batches: int = 19, first_ms: float = 100.0, step_ms: float = 10.0, **more: Any) -> Recording:
    return start(first_ms, *[step_ms] * (batches - 1), **more)


ENDED = Failure(kind=SCRIPT_ENDED, phase="timed", message="ended")


def test_epochs_of_two_starts_follow_each_other_with_the_start_of_each_in_them() -> None:
    joined = join_starts([epoch(began_ms=5_000), epoch(began_ms=70_000)], "baseline", 19)
    assert joined is not None
    assert len(joined.timed) == 38
    assert (joined.result["window_batches"], joined.result["epoch_windows"]) == (19 / 4, 4)
    assert joined.result["epoch_starts"] == [[0.1, 0.0]] * 2
    found = summarise(joined, accelerator_kind="cpu", ceiling=None, run_noise=0.01)
    assert found.samples_per_s == pytest.approx(19 * 8 / 0.28)
    assert found.timed_s == pytest.approx(0.56)


def test_the_interval_is_that_of_the_epochs_scatter() -> None:
    same = join_starts([epoch(), epoch()], "baseline", 19)
    other = join_starts([epoch(), epoch(first_ms=200.0)], "baseline", 19)
    assert same is not None
    assert other is not None
    narrow, wide = (summarise(one, accelerator_kind="cpu", ceiling=None, run_noise=0.01) for one in (same, other))
    assert wide.ci95[1] / wide.samples_per_s > 1.2 > 1.05 > narrow.ci95[1] / narrow.samples_per_s


def test_the_first_steps_of_a_process_count_as_the_others_do() -> None:
    slow = start(*[10.0] * 19)
    first = slow.warmup[0]
    slow.warmup[:] = [
        StepTime(t_start_ns=first.t_start_ns, data_wait_s=first.data_wait_s, h2d_s=None, compute_s=3.005,
                 idle_s=first.idle_s, t_end_ns=first.t_end_ns + 3_000 * MS, samples=8),
        *(StepTime(t_start_ns=step.t_start_ns + 3_000 * MS, data_wait_s=step.data_wait_s, h2d_s=None,
                   compute_s=step.compute_s, idle_s=step.idle_s, t_end_ns=step.t_end_ns + 3_000 * MS, samples=8)
          for step in slow.warmup[1:]),
    ]  # fmt: skip
    slow.timed[:] = [
        StepTime(t_start_ns=step.t_start_ns + 3_000 * MS, data_wait_s=step.data_wait_s, h2d_s=None,
                 compute_s=step.compute_s, idle_s=step.idle_s, t_end_ns=step.t_end_ns + 3_000 * MS, samples=8)
        for step in slow.timed
    ]  # fmt: skip
    joined = join_starts([slow, slow], "baseline", 19)
    assert joined is not None
    assert joined.timed[-1].t_end_ns - joined.timed[0].t_start_ns == 2 * 190 * MS
    assert {round(step.compute_s, 6) for step in joined.timed} == {0.005}


def test_several_epochs_of_a_start_are_as_many_blocks() -> None:
    six = start(*([100.0, 10.0] * 3))
    joined = join_starts([six, six], "baseline", 2)
    assert joined is not None
    assert (joined.result["window_batches"], joined.result["epoch_windows"]) == (2, 1)
    assert len(joined.timed) == 12


@pytest.mark.parametrize(("epochs", "single"), [(1, True), (2, False)])
def test_whether_workers_start_anew_within_a_start_is_known_from_its_epochs(epochs: int, single: bool) -> None:
    one = start(*([100.0, 10.0] * epochs), epoch_starts=[[0.1, 0.0]] * epochs)
    joined = join_starts([one] * 3, "baseline", 2)
    assert joined is not None
    assert joined.result["single_epochs"] is single


def test_a_loop_that_leaves_its_epoch_early_has_epochs_of_what_it_took() -> None:
    joined = join_starts([epoch(12), epoch(13)], "baseline", 1000)
    assert joined is not None
    assert len(joined.timed) == 24


def test_the_ceiling_has_no_epochs() -> None:
    joined = join_starts([start(*[10.0] * 4), start(*[10.0] * 4)], "ceiling", 19)
    assert joined is not None
    assert (len(joined.timed), joined.result["window_batches"]) == (6, 1)
    assert join_starts([start(*[10.0] * 4)], "ceiling", 19) is None


def test_it_is_started_until_its_epochs_agree_or_often_enough() -> None:
    lengths = iter([100.0, 100.0])
    failure, found = measure_over_starts(lambda: (ENDED, epoch(first_ms=next(lengths))), "baseline", 19, 60.0)
    assert failure is None
    assert len(steps_of(found)) == 38
    noisy = iter([100.0, 900.0, 100.0, 1800.0, 7.0])
    failure, found = measure_over_starts(lambda: (ENDED, epoch(first_ms=next(noisy))), "baseline", 19, 60.0)
    assert failure is None
    assert len(steps_of(found)) == MAX_STARTS * 19


def test_a_start_that_comes_to_its_result_is_taken_as_it_is() -> None:
    whole = epoch()
    assert measure_over_starts(lambda: (None, whole), "baseline", 19, 4.0) == (None, whole)
    crashed = Failure(kind="crashed", phase="timed", message="no")
    assert measure_over_starts(lambda: (crashed, whole), "baseline", 19, 4.0) == (crashed, whole)


def test_too_few_batches_are_told_with_the_number_that_is_needed() -> None:
    failure, _ = measure_over_starts(lambda: (ENDED, start(*[10.0] * 1)), "ceiling", 2, 4.0)
    assert failure is not None
    assert failure.message == (
        f"the script ended after 1 batch; at least {LEAST_BATCHES} are needed: use more data or --epochs"
    )
    saves = Failure(kind=CHECKPOINT, phase="timed", message="about to write")
    assert measure_over_starts(lambda: (saves, start()), "baseline", 2, 4.0)[0] is saves


def test_as_many_as_are_asked_for_do() -> None:
    """Two of them are kept, and the others replayed."""
    failure, _ = measure_over_starts(lambda: (ENDED, start(*[10.0] * (LEAST_BATCHES - 2))), "ceiling", None, 60.0)
    assert failure is None
