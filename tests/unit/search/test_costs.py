from __future__ import annotations

from dataclasses import replace

import pytest

from pipetune.records.sweep import Goal
from pipetune.search.costs import CRITERIA, loses_before_cores
from tests.unit.search.chosen import FRUGAL, GOAL, SMALL, SPACE, TRUE, chosen


@pytest.mark.parametrize(
    ("order", "key"),
    [
        (("cores",), "dali-w2-p2-b64"),
        (("memory",), "opencv-w2-p2-b64"),
        (("pixels", "memory"), "dali-w2-p2-b64"),  # 52 dB and 55 dB are the same; it comes first by cores? by workers
        (("accelerator", "memory"), "opencv-w2-p2-b64"),
        (("accelerator", "pixels"), "jpeg-roi-w2-p2-b64"),
    ],
)
def test_criteria_count_in_the_order_of_the_goal(order: tuple[str, ...], key: str) -> None:
    on_gpu = replace(SPACE, accelerator_decodes=("dali",))
    space = on_gpu if "accelerator" in order else SPACE
    assert chosen(FRUGAL, SMALL, TRUE, goal=replace(GOAL, cheapest=order), space=space) == key


def test_each_criterion_says_what_it_is() -> None:
    assert set(GOAL.cheapest) == set(CRITERIA)
    assert all(criterion.about for criterion in CRITERIA.values())


def test_what_is_compared_before_cores_may_decide_already() -> None:
    space = replace(SPACE, backends=("opencv", "dali"), accelerator_decodes=("dali",))
    goal = Goal(target=0.9, metric="goodput")
    assert loses_before_cores("dali", "opencv", goal, space)
    assert not loses_before_cores("opencv", "dali", goal, space)
    assert not loses_before_cores("opencv", "opencv", goal, space)
    assert not loses_before_cores("dali", "opencv", replace(goal, cheapest=("cores", "accelerator")), space)
    assert loses_before_cores("jpeg-roi-fast", "pillow", replace(goal, cheapest=("pixels", "cores")), space)
