from __future__ import annotations

from dataclasses import replace

import pytest

from pipetune.measure.script.epoch_start import with_epoch_start
from pipetune.records.script import ScriptLoader
from pipetune.records.sweep import Candidate
from tests.fakes import measurement


def loader(**settings: object) -> ScriptLoader:
    return ScriptLoader(identity=None, where=None, settings=settings, batches=32, batch_size=16, ranks=2)


def candidate(workers: int) -> Candidate:
    return Candidate(backend="script", num_workers=workers, prefetch_depth=2, batch_size=16, loader="user")


STEADY = measurement(
    samples_per_s=1024.0, ci95=(1000.0, 1048.0), goodput=0.8, goodput_ci95=(0.78, 0.82), time_to_first_batch_s=0.1
)


def test_a_short_epoch_is_longer_by_the_start_of_its_workers() -> None:
    found = with_epoch_start(STEADY, loader(), candidate(2))  # 1,024 samples of both ranks: a second
    assert found.samples_per_s == pytest.approx(1024 / 1.1)
    assert found.ci95 == pytest.approx((1000 / 1.1, 1048 / 1.1))
    assert found.goodput == pytest.approx(0.8 / 1.1)
    assert found.goodput_ci95 == pytest.approx((0.78 / 1.1, 0.82 / 1.1))
    assert found.steady_samples_per_s == 1024
    assert found.data_wait_frac == pytest.approx(1 - 0.8 / 1.1)
    assert found.full_samples_per_s == pytest.approx(STEADY.full_samples_per_s)


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
