from __future__ import annotations

import math
from dataclasses import replace

import pytest

from pipetune.predicting.candidates import own_errors, predict_candidate
from pipetune.predicting.model import CORES, WORKERS
from pipetune.predicting.observed import Seen
from pipetune.records.explanation import ACCELERATOR
from pipetune.records.prediction import EXTRAPOLATED, INTERPOLATED, ONE_FACTOR
from pipetune.records.sweep import Outcome
from tests.fakes import outcome

#: A loader that takes 2 ms per sample, one worker's worth of which is 500 a second.
MS = 2.0


def loaded(workers: int, rate: float, *, ceiling: float = 20_000.0, backend: str = "opencv") -> Outcome:
    return outcome(backend, workers, rate=rate, ceiling=ceiling, cpu_s_per_1000_samples=MS, cores_used=MS * rate / 1000)


def wanted(workers: int, backend: str = "opencv") -> Outcome:
    return outcome(backend, workers)


def test_twice_the_workers_are_twice_as_fast_on_free_cores() -> None:
    found = predict_candidate(wanted(2).candidate, [loaded(1, 500.0)], cores=8)
    assert found is not None
    assert found.samples_per_s == pytest.approx(1000, rel=0.06)
    assert found.kind == ONE_FACTOR
    assert (found.bound_by, found.next_bound_by) == (WORKERS, CORES)
    low, high = found.interval90
    assert low < found.samples_per_s < high


def test_cores_end_what_more_workers_bring() -> None:
    found = predict_candidate(wanted(8).candidate, [loaded(1, 500.0), loaded(2, 980.0)], cores=2)
    assert found is not None
    assert 850 < found.samples_per_s < 980, "they take turns on two cores"
    assert found.bound_by == CORES
    assert found.kind == EXTRAPOLATED


def test_no_prediction_exceeds_what_the_accelerator_takes() -> None:
    found = predict_candidate(wanted(4).candidate, [loaded(1, 500.0, ceiling=900.0)], cores=8)
    assert found is not None
    assert found.samples_per_s <= 900
    assert found.interval90[1] <= 900 * 1.05
    assert found.bound_by == ACCELERATOR


def test_a_candidate_between_two_measured_ones_is_interpolated() -> None:
    found = predict_candidate(wanted(2).candidate, [loaded(1, 500.0), loaded(4, 1900.0)], cores=8)
    assert found is not None
    assert found.kind == INTERPOLATED


def test_another_decoder_costs_what_it_usually_does() -> None:
    found = predict_candidate(wanted(1, "jpeg-roi").candidate, [loaded(1, 500.0, backend="pillow")], cores=8)
    assert found is not None
    assert found.kind == EXTRAPOLATED
    assert found.samples_per_s > 600


def test_slower_with_two_workers_is_learned_as_contention() -> None:
    slow = replace(loaded(2, 800.0), measurement=replace(
        loaded(2, 800.0).measurement or pytest.fail("none"), cpu_s_per_1000_samples=2.5
    ))  # fmt: skip
    free = predict_candidate(wanted(4).candidate, [loaded(1, 500.0), loaded(2, 1000.0)], cores=8)
    shared = predict_candidate(wanted(4).candidate, [loaded(1, 500.0), slow], cores=8)
    assert free is not None
    assert shared is not None
    assert shared.samples_per_s < 0.9 * free.samples_per_s


def test_nothing_is_predicted_of_what_was_measured_or_without_a_measurement() -> None:
    assert predict_candidate(wanted(1).candidate, [loaded(1, 500.0)], cores=8) is None
    assert predict_candidate(wanted(1).candidate, [], cores=8) is None
    assert predict_candidate(wanted(2).candidate, [loaded(1, 500.0)], cores=None) is None
    unknown = outcome("opencv", 1, cpu_s_per_1000_samples=None)
    assert predict_candidate(wanted(2).candidate, [unknown], cores=8) is None


def test_several_ranks_share_the_cores() -> None:
    one = loaded(1, 1000.0, ceiling=40_000.0)  # two ranks with a worker each
    found = predict_candidate(wanted(2).candidate, [one], cores=2, ranks=2)
    assert found is not None
    assert found.samples_per_s == pytest.approx(1000, rel=0.08)
    assert found.demand_samples_per_s == pytest.approx(40_000)


def test_errors_are_those_of_candidates_that_the_loader_limits() -> None:
    prediction = predict_candidate(wanted(2).candidate, [loaded(1, 500.0)], cores=8)
    assert prediction is not None
    slow = replace(loaded(2, 900.0), predicted=prediction)
    fed = replace(loaded(2, 1000.0, ceiling=1000.0), predicted=prediction)
    assert own_errors([slow, fed, loaded(4, 2000.0)]) == [math.log(prediction.samples_per_s / 900)]
    assert own_errors([slow], INTERPOLATED) == []
    assert own_errors([replace(slow, predicted=replace(prediction, model_version=0))]) == []


def test_candidates_that_augment_elsewhere_are_not_mixed_up() -> None:
    on_device = replace(loaded(2, 2100.0), candidate=replace(wanted(2).candidate, transforms_on="device"))
    assert predict_candidate(replace(wanted(4).candidate, transforms_on="device"), [loaded(1, 500.0)], cores=8) is None
    assert predict_candidate(wanted(4).candidate, [on_device], cores=8) is None
    alone = predict_candidate(wanted(4).candidate, [loaded(1, 500.0)], cores=8)
    assert predict_candidate(wanted(4).candidate, [loaded(1, 500.0), on_device], cores=8) == alone


def test_an_accelerator_that_augments_first_takes_less() -> None:
    plain = outcome("opencv", 1, rate=85.0, ceiling=150.0, cpu_s_per_1000_samples=MS, step_slower_frac=0.75)
    assert plain.measurement is not None
    there = replace(plain.candidate, transforms_on="device")
    augmenting = Seen(candidate=there, measurement=plain.measurement)
    full = plain.measurement.full_samples_per_s
    assert full is not None
    assert augmenting.demand_per_s == pytest.approx(full / 1.75)
    assert not augmenting.loader_limited
    # Where the loader alone makes steps longer, what the accelerator could take is not less.
    assert Seen(candidate=plain.candidate, measurement=plain.measurement).demand_per_s == full
