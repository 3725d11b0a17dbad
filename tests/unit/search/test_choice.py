from __future__ import annotations

from dataclasses import replace

from pipetune import search
from tests.fakes import outcome
from tests.unit.search.chosen import FRUGAL, GOAL, SMALL, SPACE, TRUE, chosen, recommend


def test_the_memory_limit_is_kept() -> None:
    goal = replace(GOAL, most_memory_bytes=500)
    assert chosen(FRUGAL, SMALL, TRUE, goal=goal) == "opencv-w2-p2-b64"
    assert recommend([FRUGAL], goal, SPACE) is None


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
