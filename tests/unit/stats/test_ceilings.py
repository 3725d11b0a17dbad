from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pipetune.records.shares import HostShare, RankShare
from pipetune.records.sweep import Outcome
from pipetune.stats.ceilings import count_repeats, find_refuting, is_refuted, limit_goodput, restate
from tests.fakes import measurement, outcome
from tests.unit.samples import sample


def ceiling(rate: float, **changes: Any) -> Outcome:
    return outcome(rate=rate, role="ceiling", goodput=None, goodput_ci95=None, **changes)


def shares(*rates: float, of: float | None = None) -> tuple[RankShare, ...]:
    return tuple(
        sample(RankShare, rank=rank, samples_per_s=rate, goodput=None if of is None else rate / of)
        for rank, rate in enumerate(rates)
    )


def goodputs(outcomes: list[Outcome]) -> list[float | None]:
    return [one.measurement and one.measurement.goodput for one in outcomes if one.role != "ceiling"]


def test_a_rate_refutes_its_ceiling_where_its_interval_lies_above() -> None:
    low = measurement(samples_per_s=1000.0)
    assert is_refuted(low, measurement(samples_per_s=1100.0, ci95=(1050.0, 1150.0)))
    assert not is_refuted(low, measurement(samples_per_s=1100.0, ci95=(950.0, 1250.0)))
    assert not is_refuted(low, measurement(samples_per_s=900.0, ci95=(890.0, 910.0)))


def test_a_rank_refutes_its_own_part() -> None:
    of_ranks = measurement(samples_per_s=1000.0, ranks=shares(400.0, 600.0))
    both = measurement(samples_per_s=950.0, ci95=(931.0, 969.0), ranks=shares(350.0, 600.0))
    assert not is_refuted(of_ranks, both)
    assert is_refuted(of_ranks, replace(both, ranks=shares(450.0, 500.0)))


def test_within_epochs_the_steady_rate_counts() -> None:
    slowed = measurement(samples_per_s=900.0, ci95=(891.0, 909.0), steady_samples_per_s=1200.0)
    assert is_refuted(measurement(samples_per_s=1000.0), slowed)


def test_after_a_higher_ceiling_all_is_stated_against_it() -> None:
    fast, slow = outcome(rate=1350.0, ceiling=1000.0), outcome(workers=1, rate=500.0, ceiling=1000.0)
    measured = [ceiling(1000.0), slow, fast]
    assert find_refuting(measured) is fast
    repeated = [*measured, ceiling(1500.0), outcome(workers=3, rate=1200.0, ceiling=1500.0)]
    assert find_refuting(repeated) is None
    assert count_repeats(repeated) == 1
    restated = restate(repeated)
    assert goodputs(restated) == pytest.approx([500 / 1500, 0.9, 0.8])
    assert [one.measurement.samples_per_s for one in restated if one.is_ceiling and one.measurement] == [1500.0]
    second = restated[2].measurement
    assert second is not None
    assert second.goodput_ci95 is not None
    assert second.goodput_ci95[0] < 0.9 < second.goodput_ci95[1] <= 1.0
    assert restate(restated) == restated


def test_a_repeat_that_is_no_higher_confirms_the_ceiling() -> None:
    fast = outcome(rate=1350.0, ceiling=1000.0)
    measured = [ceiling(1000.0), fast, ceiling(900.0)]
    assert find_refuting(measured) is None
    assert restate(measured) == measured[:2]
    again = [*measured, outcome(workers=3, rate=1400.0, ceiling=1000.0)]
    assert find_refuting(again) is again[-1]
    assert count_repeats([*again, ceiling(1600.0)]) == 2
    assert goodputs(restate([*again, ceiling(1600.0)])) == pytest.approx([1.0, 0.875])


def test_a_ceiling_that_nothing_has_refuted_leaves_what_was_stated_before() -> None:
    cold = [ceiling(1250.0), outcome(rate=1000.0, ceiling=1250.0), ceiling(1000.0), outcome(rate=900.0, ceiling=1000.0)]
    assert restate(cold) == cold
    assert count_repeats(cold) == 0


def test_ranks_are_stated_against_their_own_parts() -> None:
    before = [
        ceiling(1000.0, ranks=shares(500.0, 500.0)),
        outcome(rate=1300.0, ceiling=1000.0, goodput=1.2, ranks=shares(600.0, 700.0, of=500.0)),
    ]
    found = restate([*before, ceiling(1600.0, ranks=shares(800.0, 800.0))])[1].measurement
    assert found is not None
    assert [share.goodput for share in found.ranks] == pytest.approx([0.75, 0.875])
    assert found.goodput == pytest.approx(0.75)


def test_no_share_is_above_all() -> None:
    hosts = (sample(HostShare, goodput=1.3), sample(HostShare, goodput=0.5))
    found = limit_goodput(measurement(goodput=1.2, goodput_ci95=(1.1, 1.3), ranks=shares(600.0, of=500.0), hosts=hosts))
    assert (found.goodput, found.goodput_ci95) == (1.0, (1.0, 1.0))
    assert [share.goodput for share in (*found.ranks, *found.hosts)] == [1.0, 1.0, 0.5]
    ceilings = limit_goodput(measurement(goodput=None, goodput_ci95=None))
    assert ceilings.goodput is None
