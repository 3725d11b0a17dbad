from __future__ import annotations

import pytest

from pipetune.hook.epoch_samples import EpochSamples


def after_an_epoch(
    batches: list[int], workers: int, own_workers: int, own_samples: int | None, *, drops_rest: bool = False
) -> EpochSamples:
    epochs = EpochSamples(drops_rest=drops_rest)
    epochs.begin(workers, own_workers, own_samples)
    epochs.begin_epoch()
    for samples in batches:
        epochs.take(samples, whole=True)
    epochs.end_epoch()
    return epochs


@pytest.mark.parametrize(
    ("batches", "workers", "own_workers", "own_samples", "fault"),
    [
        ([8, 2], 2, 0, 10, None),
        ([8, 8], 2, 0, 8, "does not divide"),
        ([8] * 4, 4, 1, 8, "does not divide"),
        ([8] * 3, 3, 0, 16, "does not divide"),
        ([8] * 11, 2, 1, 80, None),
        ([8], 1, 2, 16, "for no other number of workers"),
        ([8], 2, 2, 16, None),
        ([8, 8], 2, 0, None, None),
    ],
    ids=["divides", "an epoch of one batch", "four", "two of three repeat", "left out at random", "leaves half out",
         "the script's own", "not known"],
)  # fmt: skip
def test_an_epoch_has_the_samples_of_the_scripts_own(
    batches: list[int], workers: int, own_workers: int, own_samples: int | None, fault: str | None
) -> None:
    found = after_an_epoch(batches, workers, own_workers, own_samples).find_fault()
    assert (found is None) if fault is None else fault in (found or "")


def test_workers_may_each_leave_out_what_fills_no_batch() -> None:
    # 30 samples: one reader has 3 batches of 8; four readers of 7 or 8 samples have one or two batches in all.
    assert after_an_epoch([8, 8], 4, 0, 24, drops_rest=True).find_fault() is None
    assert after_an_epoch([8, 8, 8], 1, 4, 16, drops_rest=True).find_fault() is None
    assert after_an_epoch([8, 8], 4, 0, 24).find_fault() is not None
    assert after_an_epoch([8, 8, 8, 8], 2, 1, 16, drops_rest=True).find_fault() is not None


def test_an_epoch_that_is_longer_is_known_before_it_ends() -> None:
    epochs = EpochSamples()
    epochs.begin(2, 0, 20)
    epochs.begin_epoch()
    for _ in range(3):
        epochs.take(8, whole=True)
        assert not epochs.exceeds
        assert epochs.is_awaited
    epochs.take(8, whole=True)
    assert epochs.exceeds
    assert (epochs.find_fault() or "").startswith("an epoch has at least 32 samples with 2 workers, and 20 with")


def test_an_epoch_that_was_begun_with_other_workers_does_not_count() -> None:
    epochs = EpochSamples()
    epochs.begin(2, 0, 10)
    epochs.take(8, whole=True)  # whose beginning was not seen
    epochs.end_epoch()
    assert epochs.samples is None
    epochs.begin_epoch()
    epochs.take(30, whole=False)
    epochs.end_epoch()
    assert (epochs.samples, epochs.find_fault(), epochs.is_awaited) == (None, None, True)
    epochs.begin_epoch()
    epochs.take(10, whole=True)
    epochs.end_epoch()
    assert (epochs.samples, epochs.is_awaited) == (10, False)


def test_a_loop_that_leaves_an_epoch_early_is_not_waited_for() -> None:
    epochs = EpochSamples()
    epochs.begin(2, 0, 100)
    epochs.begin_epoch()
    epochs.take(10, whole=True)
    epochs.begin_epoch()
    assert not epochs.is_awaited
    epochs.begin(1, 0, 100)
    assert epochs.is_awaited
