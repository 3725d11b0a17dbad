from __future__ import annotations

from dataclasses import replace

import pytest

from pipetune.measure.script.epoch_start import EpochLengths, expected_epoch, starts_to_time, with_epoch_start
from pipetune.records.script import ScriptLoader
from pipetune.records.sweep import Candidate
from tests.fakes import measurement


def loader(**settings: object) -> ScriptLoader:
    return ScriptLoader(identity=None, where=None, settings=settings, batches=32, batch_size=16, ranks=2)


def candidate(workers: int) -> Candidate:
    return Candidate(backend="script", num_workers=workers, prefetch_depth=2, batch_size=16, loader="user")


STEADY = measurement(
    samples_per_s=1024.0,
    ci95=(1000.0, 1048.0),
    goodput=0.8,
    goodput_ci95=(0.78, 0.82),
    time_to_first_batch_s=0.1,
    data_wait_frac=0.0,
)


def test_a_short_epoch_is_longer_by_the_start_of_its_workers() -> None:
    found = with_epoch_start(STEADY, loader(), candidate(2))  # 1,024 samples of both ranks: a second
    assert found.samples_per_s == pytest.approx(1024 / 1.1)
    assert found.ci95 == pytest.approx((1000 / 1.1, 1048 / 1.1))
    assert found.goodput == pytest.approx(0.8 / 1.1)
    assert found.goodput_ci95 == pytest.approx((0.78 / 1.1, 0.82 / 1.1))
    assert found.steady_samples_per_s == 1024
    assert found.data_wait_frac == pytest.approx(1 - 1 / 1.1)
    assert found.full_samples_per_s == pytest.approx(STEADY.full_samples_per_s)


def test_of_whole_epochs_the_rate_is_left_and_their_start_is_stated_apart() -> None:
    """Epochs of 1,024 samples in 1.1 s, 0.1 s of which the loop waits for workers that start."""
    whole = measurement(samples_per_s=1024 / 1.1, data_wait_frac=0.1 / 1.1, timed_s=4.4, steps=4 * 32, samples=4 * 1024)
    found = with_epoch_start(whole, loader(), candidate(2), [(0.09, 0.01)] * 4, whole=True)
    assert (found.samples_per_s, found.ci95, found.goodput) == (whole.samples_per_s, whole.ci95, whole.goodput)
    assert found.epoch_start_s == pytest.approx(0.1)
    assert found.steady_samples_per_s == pytest.approx(1024)


def test_of_epochs_that_are_hardly_more_than_a_start_some_is_left_for_the_steps() -> None:
    tiny = replace(loader(), batches=1)
    whole = measurement(samples_per_s=32 / 0.5, timed_s=5.0, steps=10, samples=320, data_wait_frac=0.99)
    found = with_epoch_start(whole, tiny, candidate(2), [(0.6, 0.0)] * 10, whole=True)
    assert found.epoch_start_s == pytest.approx(0.45)


def test_without_workers_or_with_persistent_ones_nothing_starts() -> None:
    assert with_epoch_start(STEADY, loader(), candidate(0)) is STEADY
    assert with_epoch_start(STEADY, loader(persistent_workers=True), candidate(2)) is STEADY


def test_how_long_an_epoch_is_may_not_be_known() -> None:
    iterable = replace(loader(), iterable=True)
    assert with_epoch_start(STEADY, iterable, candidate(2)) is STEADY, "its epochs begin within the timed phase"
    endless = ScriptLoader(identity=None, where=None, batches=None, batch_size=16)
    assert with_epoch_start(STEADY, endless, candidate(2)) is STEADY
    unknown = measurement(time_to_first_batch_s=0.0)
    assert with_epoch_start(unknown, loader(), candidate(2)) is unknown


def test_a_ceiling_has_no_goodput() -> None:
    found = with_epoch_start(measurement(goodput=None, goodput_ci95=None), loader(), candidate(1))
    assert found.goodput is None
    assert found.goodput_ci95 is None


def test_of_several_starts_the_median_counts_and_their_scatter_widens_the_interval() -> None:
    starts = [(0.05, 0.01), (0.20, 0.01), (0.06, 0.01)]
    found = with_epoch_start(STEADY, loader(), candidate(1), starts)
    assert found.epoch_start_s == pytest.approx(0.07)
    assert found.samples_per_s == pytest.approx(1024 / 1.07)
    even = with_epoch_start(STEADY, loader(), candidate(1), [(0.06, 0.01)] * 3)
    assert even.ci95 == pytest.approx((1000 / 1.07, 1048 / 1.07))
    assert found.ci95[0] < even.ci95[0]
    assert found.ci95[1] > even.ci95[1]
    assert found.goodput_ci95 is not None
    assert found.goodput_ci95[1] - found.goodput_ci95[0] > 0.04 / 1.07


def test_starts_are_timed_where_they_may_matter() -> None:
    assert starts_to_time(loader(), candidate(2), None) == 3
    assert starts_to_time(loader(), candidate(2), 100.0) == 3
    assert starts_to_time(loader(), candidate(2), 10.0) == 0, "an epoch of 102 s"
    assert starts_to_time(loader(), candidate(0), None) == 0
    assert starts_to_time(replace(loader(), iterable=True), candidate(2), None) == 0
    assert starts_to_time(None, candidate(2), None) == 0


def test_a_loop_that_waits_anyway_loses_less_to_a_start() -> None:
    waits = replace(STEADY, data_wait_frac=0.5, timed_s=4.0, steps=100)  # 20 ms of each step
    one = with_epoch_start(waits, loader(), candidate(1), [(0.05, 0.01)] * 3)
    assert one.epoch_start_s == pytest.approx(0.04)
    assert one.samples_per_s == pytest.approx(1024 / 1.04)
    many = with_epoch_start(waits, loader(), candidate(8), [(0.05, 0.01)] * 3)
    assert many.samples_per_s == 1024


def test_an_epoch_is_expected_to_be_as_long_as_those_of_other_counts_where_these_agree() -> None:
    assert expected_epoch({}, 2) is None
    assert expected_epoch({1: 64}, 1) == 64
    assert expected_epoch({1: 64}, 2) is None, "each worker may have an epoch of its own"
    assert expected_epoch({1: 64, 2: 66}, 4) == 65
    assert expected_epoch({1: 10, 2: 20}, 4) is None
    assert expected_epoch({0: 64, 1: 64}, 8) is None, "one reader each"
    assert expected_epoch({8: 80, 9: 90}, 16) is None, "too near each other to tell"


def test_the_samples_of_an_epoch_are_those_of_the_scripts_own_workers() -> None:
    lengths = EpochLengths()
    other, own = ({"role": "candidate", "num_workers": count, "own_workers": 1} for count in (2, 1))
    lengths.learn(other, {"epoch_samples": 320, "epoch_batches": 40})
    assert lengths.describe(2) == {"epoch_batches": 40, "own_epoch_samples": None}
    lengths.learn(own, {"epoch_samples": 160})
    lengths.learn(own | {"role": "ceiling"}, {"epoch_samples": 8, "epoch_batches": 1})
    lengths.learn(own, {"epoch_samples": None})
    lengths.learn(own, {"epoch_samples": 1 << 50, "epoch_batches": 1 << 50})
    assert lengths.describe(1) == {"epoch_batches": None, "own_epoch_samples": 160}
