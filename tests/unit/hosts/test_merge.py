"""What several hosts measured, as one outcome."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipetune.hosts.merge import join_hosts, lost_by_waiting, together
from pipetune.hosts.tasks import Answer
from pipetune.records.sweep import Failure
from tests import fakes


def answer(rate: float, *, span: tuple[float, float] = (1.0, 5.0), **changes: object) -> Answer:
    return Answer(outcome=fakes.outcome(rate=rate, **changes), timed_from_s=span[0], timed_until_s=span[1])  # type: ignore[arg-type]


def name(host: int) -> str:
    return f"n{host + 1}"


def test_the_slowest_host_decides_and_all_stand_beside() -> None:
    joined = join_hosts([answer(1000), answer(800), answer(900)], name)
    m = joined.measurement
    assert m is not None
    assert m.samples_per_s == 800
    assert [share.samples_per_s for share in m.hosts] == [1000, 800, 900]
    assert [share.name for share in m.hosts] == ["n1", "n2", "n3"]
    assert [share.host for share in m.hosts] == [0, 1, 2]
    assert m.warnings == ()


def test_goodput_decides_and_not_the_rate() -> None:
    """A host with a slower accelerator that is fed is not the slowest."""
    joined = join_hosts([answer(1000, ceiling=2000.0), answer(800, ceiling=850.0)], name)
    assert joined.measurement is not None
    assert joined.measurement.samples_per_s == 1000


def test_another_machine_is_no_drift_of_this_one() -> None:
    first = answer(1000, machine_speed_before=200.0, machine_speed_after=201.0, machine_cpu_speed=210.0)
    other = answer(800, machine_speed_before=90.0, machine_speed_after=91.0, machine_cpu_speed=95.0)
    m = join_hosts([first, other], name).measurement
    assert m is not None
    assert m.samples_per_s == 800
    assert (m.machine_speed_before, m.machine_speed_after, m.machine_cpu_speed) == (200.0, 201.0, 210.0)


def test_other_hosts_than_those_of_the_ceiling_are_a_reason_for_doubt() -> None:
    both = [answer(1000), answer(800)]
    ceiling = join_hosts(both, name).measurement
    same, moved = join_hosts(both, name, ceiling), join_hosts(both, lambda host: f"m{host + 1}", ceiling)
    assert same.measurement is not None
    assert same.measurement.warnings == ()
    assert moved.measurement is not None
    assert moved.measurement.warnings == ("the max ingestion rate was measured on n1, n2, this on m1, m2",)


def test_one_that_is_not_steady_makes_all_so() -> None:
    unsteady = answer(1000)
    assert unsteady.outcome.measurement is not None
    unsteady = replace(
        unsteady, outcome=replace(unsteady.outcome, measurement=replace(unsteady.outcome.measurement, steady=False))
    )
    joined = join_hosts([answer(800), unsteady], name)
    assert joined.measurement is not None
    assert not joined.measurement.steady


def test_a_failure_is_the_failure_of_all_and_names_its_host() -> None:
    failure = Failure(kind="out_of_memory", phase="timed", message="the kernel ended it", hint="less workers")
    failed = Answer(outcome=fakes.outcome(failure=failure), timed_from_s=None, timed_until_s=None)
    joined = join_hosts([answer(800), failed], name)
    assert joined.measurement is None
    assert joined.failure is not None
    assert joined.failure.message == "n2: the kernel ended it"
    assert (joined.failure.kind, joined.failure.hint) == ("out_of_memory", "less workers")


def test_hosts_that_were_timed_at_other_times_are_a_reason_for_doubt() -> None:
    joined = join_hosts([answer(1000, span=(1.0, 5.0)), answer(800, span=(3.0, 7.0))], name)
    assert joined.measurement is not None
    assert [share.together_frac for share in joined.measurement.hosts] == [0.5, 0.5]
    assert "n1 was timed together with all others for 50 % of its time" in joined.measurement.warnings[0]


@pytest.mark.parametrize(
    ("own", "other", "share"),
    [
        ((0, 4), (0, 4), 1.0),
        ((0, 4), (1, 9), 0.75),
        ((0, 4), (4, 8), 0.0),
        ((0, 4), (5, 8), 0.0),
        ((2, 2), (0, 4), 0.0),
    ],
)
def test_share_of_the_time_together(own: tuple[float, float], other: tuple[float, float], share: float) -> None:
    one, two = answer(1, span=own), answer(1, span=other)
    assert together(one, [one, two]) == pytest.approx(share)


def test_a_host_without_a_timed_phase_was_not_together() -> None:
    one = answer(1)
    assert together(one, [one, replace(one, timed_from_s=None)]) == 0.0


def test_replayed_batches_share_nothing() -> None:
    joined = join_hosts([answer(9, role="ceiling"), answer(9, span=(6.0, 7.0), role="ceiling")], name)
    assert joined.measurement is not None
    assert joined.measurement.warnings == ()


def stepping(*steps_s: float, begin_s: float = 1.0, rate: float = 1000.0) -> Answer:
    return replace(answer(rate), steps_s=steps_s, steps_from_s=begin_s)


#: A second of a host that is slow, and one of a host that is fast.
SLOW, FAST = (0.1,) * 10, (0.025,) * 40


def test_hosts_that_are_slow_at_different_times_lose_by_waiting_for_each_other() -> None:
    both = [stepping(*SLOW, *FAST, *FAST), stepping(*FAST, *FAST, *SLOW)]
    # 90 steps alone; ten, forty and ten where each waits for the other.
    assert lost_by_waiting(both) == pytest.approx(1 - 60 / 90, abs=0.02)
    m = join_hosts(both, name).measurement
    assert m is not None
    assert "where each step waits for all of them" in m.warnings[0]
    assert "% lower" in m.warnings[0]
    assert lost_by_waiting([both[0], both[0]]) == pytest.approx(0)


def test_hosts_that_wait_for_the_same_storage_do_not_wait_for_each_other() -> None:
    """Their timed phases begin a second apart, and all stop at the same moment for a second."""
    early = stepping(*FAST, *FAST, 1.025, *FAST[1:], *FAST)
    late = stepping(*FAST, 1.025, *FAST[1:], *FAST, *FAST, begin_s=2.0)
    assert lost_by_waiting([early, late]) == pytest.approx(0, abs=1e-6)


def test_hosts_of_which_one_is_always_slower_lose_nothing_more() -> None:
    assert lost_by_waiting([stepping(*FAST, *FAST), stepping(*SLOW, *SLOW)]) == pytest.approx(0, abs=1e-6)


def test_a_host_that_is_late_for_less_than_is_fetched_ahead_catches_up() -> None:
    candidate = fakes.outcome().candidate
    ahead = candidate.num_workers * candidate.prefetch_depth
    assert ahead > 1
    early, late = [0.1] * ahead, [0.1] * ahead
    early[0] = late[-1] = 0.15
    assert lost_by_waiting([stepping(*early * 3), stepping(*late * 3)]) == pytest.approx(0, abs=1e-6)


def test_of_too_few_steps_nothing_is_said() -> None:
    assert lost_by_waiting([stepping(0.1, 0.1), stepping(0.2, 0.1)]) is None
    assert lost_by_waiting([answer(1000), answer(800)]) is None
    assert lost_by_waiting([stepping(*FAST), stepping(*FAST, begin_s=5.0)]) is None  # never at the same time
