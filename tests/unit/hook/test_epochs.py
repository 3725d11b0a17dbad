from __future__ import annotations

import pytest

from pipetune.hook.epochs import Epochs
from pipetune.records.sweep import StepTime

MS = 1_000_000


def step(began_ms: int, ended_ms: int) -> StepTime:
    return StepTime(
        t_start_ns=began_ms * MS, data_wait_s=0.0, h2d_s=None, compute_s=0.0, idle_s=0.0, t_end_ns=ended_ms * MS,
        samples=1,
    )  # fmt: skip


def test_what_lies_between_an_epochs_end_and_the_next_is_left_out() -> None:
    epochs = Epochs()
    assert epochs.within_one
    epochs.end(100 * MS, 110 * MS, batches=5)
    assert not epochs.within_one
    epochs.begin(510 * MS, 100 * MS, 5)
    assert epochs.within_one
    assert epochs.spans == [(110 * MS, 510 * MS)]
    moved = epochs.without_gaps(step(600, 700))
    assert (moved.t_start_ns, moved.t_end_ns) == (200 * MS, 300 * MS)
    assert epochs.batches == 5


def test_a_step_after_the_end_was_told_is_the_epochs() -> None:
    epochs = Epochs()
    epochs.end(100 * MS, 100 * MS, batches=5)
    epochs.step(140 * MS)
    epochs.begin(500 * MS, 100 * MS, 5)
    assert epochs.spans == [(140 * MS, 500 * MS)]
    epochs.step(600 * MS)  # within one: of no matter
    epochs.end(700 * MS, 700 * MS, batches=5)
    epochs.begin(800 * MS, 700 * MS, 5)
    assert epochs.spans[1] == (700 * MS, 800 * MS)


@pytest.mark.parametrize("ended", [True, False], ids=["after an epoch's end", "in the middle of one"])
def test_a_loop_that_iterates_anew_twice_before_a_batch_has_one_gap(ended: bool) -> None:
    epochs = Epochs()
    if ended:
        epochs.end(100 * MS, 100 * MS, batches=5)
    for now_ms in (300, 350):
        epochs.begin(now_ms * MS, 100 * MS, 5)
    assert epochs.skipped_ns == 250 * MS
    assert epochs.spans == [(100 * MS, 300 * MS), (300 * MS, 350 * MS)]


def test_an_epoch_that_was_left_early_ends_with_its_last_step_that_is_known() -> None:
    epochs = Epochs()
    epochs.begin(500 * MS, 80 * MS, batches=3)
    assert epochs.spans == [(80 * MS, 500 * MS)]
    assert epochs.batches == 3


def test_of_whole_epochs_the_first_batch_is_waited_for_from_the_end_of_the_workers_on() -> None:
    epochs = Epochs()
    epochs.end(100 * MS, 130 * MS, batches=5)
    epochs.begin(500 * MS, 100 * MS, 5)
    asked = epochs.asked_for_first(505 * MS, 600 * MS, 2, whole=True)
    assert asked == 470 * MS
    assert epochs.starts == [(0.1, 0.03)]
    assert epochs.skipped_ns == 370 * MS
    assert epochs.asked_for_first(700 * MS, 701 * MS, 2, whole=True) == 700 * MS, "only the first"


@pytest.mark.parametrize("usual_ms", [0, 20, 200])
def test_of_a_part_of_an_epoch_its_start_is_left_out_beyond_the_usual_waits(usual_ms: int) -> None:
    epochs, workers = Epochs(), 2
    for _ in range(4):
        epochs.waited(usual_ms / 1000 / workers)
    epochs.end(100 * MS, 130 * MS, batches=5)
    epochs.begin(500 * MS, 100 * MS, 5)
    asked = epochs.asked_for_first(500 * MS, 600 * MS, workers, whole=False)
    beyond_ms = max(0, 130 - usual_ms)
    assert epochs.skipped_ns == (370 + beyond_ms) * MS
    assert (600 * MS - asked) / MS == pytest.approx(max(0, 100 - beyond_ms) if beyond_ms else 100)


def test_another_measurement_knows_the_length_and_nothing_else_of_the_one_before() -> None:
    epochs = Epochs()
    epochs.end(100 * MS, 110 * MS, batches=5)
    epochs.begin(510 * MS, 100 * MS, 5)
    epochs.asked_for_first(510 * MS, 600 * MS, 2, whole=True)
    epochs.restart(keep_length=True)
    assert (epochs.batches, epochs.skipped_ns, epochs.spans, epochs.starts) == (5, 0, [], [])
    epochs.restart(keep_length=False)
    assert epochs.batches is None


def test_one_that_begins_between_two_epochs_goes_on_from_there() -> None:
    epochs = Epochs()
    epochs.end(100 * MS, 110 * MS, batches=5)
    epochs.restart(keep_length=True)
    assert not epochs.within_one
    epochs.begin(510 * MS, None, 5)
    assert epochs.spans == [(110 * MS, 510 * MS)]
