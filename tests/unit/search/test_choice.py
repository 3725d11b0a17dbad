from __future__ import annotations

from dataclasses import replace

from pipetune import search
from tests.fakes import outcome
from tests.unit.search.chosen import FRUGAL, GOAL, SMALL, SPACE, TRUE, chosen, recommend


def test_the_memory_limit_is_kept() -> None:
    goal = replace(GOAL, most_memory_bytes=500)
    assert chosen(FRUGAL, SMALL, TRUE, goal=goal) == "opencv-w2-p2-b64"
    assert recommend([FRUGAL], goal, SPACE) is None


def test_what_the_options_leave_out_now_is_recommended_by_nothing() -> None:
    one = replace(SPACE, workers=(0, 1))
    assert recommend([TRUE], GOAL, one) is None
    default = outcome(search.baseline(one).backend, 0, rate=100.0, role="baseline")
    choice = recommend([TRUE, default], GOAL, replace(one, workers=(1,)))
    assert choice is not None
    assert choice.candidate == search.baseline(one)


def test_what_the_user_has_stays_where_nothing_is_sufficient_and_only_memory_would_be_saved() -> None:
    own = outcome("opencv", 4, rate=806, cores_used=1.9, pss_bytes=900)
    fewer = outcome("opencv", 1, rate=806, cores_used=1.9, pss_bytes=300)
    space = replace(SPACE, untuned=own.candidate, workers=(1, 2, 4))
    assert chosen(own, fewer, space=space) == own.candidate.key
    assert chosen(own, fewer, space=replace(space, untuned=None)) == fewer.candidate.key
    faster = outcome("opencv", 1, rate=840, cores_used=1.9, pss_bytes=300)
    assert chosen(own, faster, space=space) == faster.candidate.key
    leaner = outcome("opencv", 1, rate=806, cores_used=1.0, pss_bytes=300)
    assert chosen(own, leaner, space=space) == leaner.candidate.key


def test_what_the_user_has_stays_where_the_best_one_turned_out_slower_beside_it() -> None:
    own = outcome("opencv", 4, rate=508, cores_used=1.9)
    lucky = outcome("opencv", 2, rate=666, cores_used=1.9)
    space = replace(SPACE, untuned=own.candidate, workers=(1, 2, 4))
    choice = search.choose([own, lucky], GOAL, space)
    assert choice is not None
    assert choice.outcome.candidate == lucky.candidate
    beside = [replace(one, block=1) for one in (own, outcome("opencv", 2, rate=383, cores_used=1.9))]
    choice = search.choose([own, lucky, *beside], GOAL, space)
    assert choice is not None
    assert choice.outcome.candidate == own.candidate
    limit = replace(GOAL, most_memory_bytes=800)
    taken = {own.candidate.key: 900, lucky.candidate.key: 300}
    large = [
        replace(one, measurement=replace(one.measurement, pss_bytes=taken[one.candidate.key]))
        for one in (own, lucky, *beside)
        if one.measurement is not None
    ]
    choice = search.choose(large, limit, space)
    assert choice is not None
    assert choice.outcome.candidate == lucky.candidate, "what the user has takes more memory than is allowed"


def test_nothing_measured() -> None:
    assert search.choose([], GOAL, SPACE) is None


def test_of_the_same_cost_the_surely_sufficient_one_is_chosen() -> None:
    may_miss = outcome("opencv", 1, rate=1140, cores_used=1.2, pss_bytes=500)
    sure = outcome("opencv", 2, rate=1250, cores_used=1.3, pss_bytes=500)
    assert chosen(may_miss, sure) == sure.candidate.key
    dearer = outcome("opencv", 2, rate=1250, cores_used=1.9, pss_bytes=500)
    assert chosen(may_miss, dearer) == may_miss.candidate.key


def test_where_none_is_sufficient_an_inconclusive_one_may_be_chosen() -> None:
    nearly = outcome("opencv", 1, rate=1120, cores_used=1.0, pss_bytes=500)
    less = outcome("opencv", 2, rate=1099, cores_used=1.1, pss_bytes=500)
    assert chosen(nearly, less) == nearly.candidate.key
