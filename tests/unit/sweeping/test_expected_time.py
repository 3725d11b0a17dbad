"""What the next measurement is expected to take: set-up is a part of it, whatever it was."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipetune.records.set_up import SetUp
from pipetune.records.sweep import Outcome
from pipetune.sweeping.expected_time import USUAL_S, USUAL_START_S, expected_times_s
from tests.fakes import outcome


def took(wall_s: float, *, forked: bool, set_up: SetUp | None = None, role: str = "candidate") -> Outcome:
    one = outcome(rate=500.0)
    assert one.measurement is not None
    measurement = replace(one.measurement, set_up=set_up)
    return replace(one, wall_s=wall_s, forked=forked, role=role, measurement=measurement)


def test_before_anything_was_measured_it_is_what_is_usual() -> None:
    for forked in (True, False):
        assert expected_times_s([], forked=forked) == [USUAL_S + USUAL_START_S[forked]]
    assert expected_times_s([], forked=False, new_start_s=60.0) == [USUAL_S + 60.0]


def test_candidates_of_its_kind_count_alone() -> None:
    seen = [
        took(4.0, forked=True),
        took(5.0, forked=True),
        took(30.0, forked=False),
        took(2.0, forked=True, role="ceiling"),
    ]
    assert expected_times_s(seen, forked=True) == [4.0, 5.0]
    assert expected_times_s(seen, forked=False) == [30.0]


def test_a_ceiling_is_set_up_as_a_candidate_is() -> None:
    slow = took(20.0, forked=True, role="ceiling", set_up=SetUp(start_s=0.1, context_s=9.0, model_s=2.0, warm_up_s=5.0))
    assert expected_times_s([slow], forked=True) == [pytest.approx(20.0)]
    assert expected_times_s([slow], forked=False) == [pytest.approx(19.9 + USUAL_START_S[False])]


def test_a_new_process_pays_for_its_start_alone_and_not_for_another_context() -> None:
    fork = took(15.0, forked=True, set_up=SetUp(start_s=0.2, import_s=0.1, context_s=8.0))
    new_ceiling = took(25.0, forked=False, role="ceiling", set_up=SetUp(start_s=1.0, import_s=6.0, context_s=8.0))
    assert expected_times_s([fork], forked=False) == [pytest.approx(14.7 + USUAL_START_S[False])]
    assert expected_times_s([fork, new_ceiling], forked=False) == [pytest.approx(14.7 + 7.0)]
    assert expected_times_s([fork], forked=False, new_start_s=60.0) == [pytest.approx(74.7)]
    new = took(22.0, forked=False, set_up=SetUp(start_s=1.0, import_s=6.0, context_s=8.0))
    assert expected_times_s([new], forked=True) == [pytest.approx(15.0 + USUAL_START_S[True])]


def test_the_first_fork_waits_for_its_server_and_the_next_one_does_not() -> None:
    ceiling = took(10.0, forked=True, role="ceiling", set_up=SetUp(start_s=3.0, context_s=4.0))
    assert expected_times_s([ceiling], forked=True) == [pytest.approx(7.0 + USUAL_START_S[True])]


def test_where_no_start_was_measured_the_usual_part_of_the_whole_is_taken_for_it() -> None:
    (fork_s,) = expected_times_s([took(5.0, forked=False)], forked=True)
    assert 2.0 < fork_s < 3.0
    (fork_s,) = expected_times_s([took(60.0, forked=False)], forked=True)
    assert fork_s == pytest.approx(55.0)


def test_a_failed_candidate_says_nothing_of_how_long_one_takes() -> None:
    at_once = [replace(took(0.5, forked=True), measurement=None) for _ in range(5)]
    assert expected_times_s([*at_once, took(12.0, forked=True)], forked=True) == [12.0]
    ceiling = took(9.0, forked=True, role="ceiling", set_up=SetUp(start_s=0.1, context_s=6.0))
    assert expected_times_s([ceiling, *at_once], forked=True) == [pytest.approx(9.0)]
    assert expected_times_s(at_once, forked=True) == [USUAL_S + USUAL_START_S[True]]
