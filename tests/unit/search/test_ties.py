from __future__ import annotations

from dataclasses import replace

from pipetune import search
from tests.fakes import outcome
from tests.unit.search.chosen import GOAL, SPACE


def test_ties_cost_the_same() -> None:
    one = outcome("opencv", 2, 2, rate=1250, cores_used=1.50, pss_bytes=100)
    other = outcome("jpeg-roi", 2, 2, rate=1240, cores_used=1.55, pss_bytes=300)
    dear = outcome("opencv", 4, 2, rate=1250, cores_used=2.5, pss_bytes=100)
    choice = search.choose([one, other, dear], GOAL, SPACE)
    assert choice is not None
    assert choice.outcome is one
    assert choice.ties == (other,)
    assert choice.doubts == ()


def test_the_scatter_of_repeats_is_no_difference_in_cores() -> None:
    def recommended(scatter: float) -> str:
        outcomes = [
            outcome(
                "opencv", count, prefetch, rate=1250, cores_used=cores, machine_speed_before=speed,
                machine_speed_after=speed, pss_bytes=memory,
            )
            for (count, prefetch, cores, memory), speed in zip(
                ((2, 2, 4.0, 200), (2, 4, 4.35, 100), (4, 2, 6.0, 100), (4, 4, 6.0, 100)),
                (1 - scatter, 1 + scatter) * 2, strict=True,
            )
        ]  # fmt: skip
        # So many more that the estimate is one of this machine.
        many = [replace(outcomes[n % 4], candidate=replace(outcomes[3].candidate, batch_size=n)) for n in range(1, 21)]
        choice = search.choose([*outcomes, *many], GOAL, SPACE)
        assert choice is not None
        return choice.outcome.candidate.key

    assert recommended(scatter=0.0) == "opencv-w2-p2-b64"
    assert recommended(scatter=0.04) == "opencv-w2-p4-b64"


def test_a_cost_within_chance_is_a_tie_until_measured_often() -> None:
    def ties(*cores: float, blocks: int) -> list[str]:
        found = []
        for block in range(blocks + 1):
            for count, used in zip((1, 2, 4), cores, strict=True):
                one = outcome("opencv", count, 2, rate=1250, cores_used=used)
                found.append(replace(one, block=block))
        choice = search.choose(found, GOAL, SPACE)
        assert choice is not None
        assert choice.outcome.candidate.key == "opencv-w1-p2-b64"
        return [tie.candidate.key for tie in choice.ties]

    assert ties(4.0, 4.7, 5.5, blocks=0) == ["opencv-w2-p2-b64"]
    assert ties(4.0, 4.7, 5.5, blocks=1) == ["opencv-w2-p2-b64"]
    assert ties(4.0, 4.7, 5.5, blocks=3) == []


def test_where_none_is_sufficient_equal_rates_tie() -> None:
    many = outcome("opencv", 4, rate=1000, cores_used=3.9)
    few = outcome("opencv", 2, rate=990, cores_used=2.0)
    slow = outcome("opencv", 1, rate=600, cores_used=1.0)
    choice = search.choose([many, few, slow], GOAL, SPACE)
    assert choice is not None
    assert choice.outcome is few
    assert choice.ties == (many,)
