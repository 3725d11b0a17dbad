from __future__ import annotations

from dataclasses import replace

from pipetune import search
from pipetune.records.sweep import AcceleratorSpec, Outcome
from pipetune.sweeping.result import conclude
from tests.fakes import outcome
from tests.unit.search.chosen import GOAL, SMALL, SPACE, chosen


def test_other_processes() -> None:
    fed = outcome("opencv", 2, rate=1250, other_cores=0.05, other_process="cat (3)")
    slow = outcome("opencv", 1, rate=600, other_cores=1.25, other_process="stress (7)")
    choice = search.choose([fed, slow], GOAL, SPACE)
    assert choice is not None
    assert choice.doubts == (
        "during 1 of 2 measurements other processes used 0.3 cores or more, up to 1.2 (stress (7))",
    )


def test_a_target_inside_the_interval_and_a_cheaper_candidate() -> None:
    narrow = outcome("opencv", 2, rate=1137, cores_used=2.0, pss_bytes=100)  # 0.91, between 0.89 and 0.93
    cheaper = outcome("opencv", 1, rate=1115, cores_used=1.0)  # 0.892
    choice = search.choose([narrow, cheaper], GOAL, SPACE)
    assert choice is not None
    assert choice.doubts == (
        "its goodput lies between 0.89 and 0.93: it may miss the target of 0.9",
        "opencv, 1 worker, prefetch 2 is cheaper and may reach the target, too",
    )


def test_a_missed_target_that_may_be_reached() -> None:
    choice = search.choose([outcome("opencv", 2, rate=1110)], GOAL, SPACE)  # 0.888, between 0.87 and 0.91
    assert choice is not None
    assert choice.doubts == ("its goodput lies between 0.87 and 0.91: it may yet reach the target of 0.9",)
    wide = search.choose([outcome("opencv", 2, rate=600, goodput_ci95=(0.1, 2.6))], GOAL, SPACE)
    assert wide is not None
    assert wide.doubts == ("its goodput lies between 0.10 and 1.00: it may yet reach the target of 0.9",)


def test_sufficient_at_the_present_speed_only() -> None:
    def at(speed: float, *args: object, **changes: object) -> Outcome:
        return outcome(*args, machine_speed_before=speed, machine_speed_after=speed, **changes)  # type: ignore[arg-type]

    idle = {"accelerator_idle_frac": 0.2}
    outcomes = [
        at(170, "pillow", 0, rate=500, role="baseline", **idle),
        at(170, "opencv", 1, rate=1000, cores_used=1.0, **idle),
        at(200, "opencv", 2, rate=1200, cores_used=2.0),
        at(200, "dali", 1, rate=600, **idle),
        at(200, "dali", 2, rate=900, **idle),
    ]  # fmt: skip
    assert chosen(*outcomes) == "opencv-w1-p2-b64"  # 0.8 x 200 / 170
    choice = search.choose(outcomes, GOAL, SPACE)
    assert choice is not None
    assert choice.outcome.candidate.key == "opencv-w2-p2-b64"
    assert choice.doubts == ("at the machine's present speed opencv, 1 worker, prefetch 2 may be the better choice",)
    result = conclude(
        outcomes, goal=GOAL, space=SPACE, accelerator=AcceleratorSpec(kind="emulated", name="E"), dataset={},
        workload={}, host={}, usable_cores=2.0, seconds=1.0,
    )  # fmt: skip
    assert result.status == "target_met"


def test_a_rate_that_changed_since_the_first_measurement() -> None:
    def doubts(*in_blocks: float) -> tuple[str, ...]:
        blocks = [replace(outcome(rate=rate), block=number) for number, rate in enumerate(in_blocks, start=1)]
        choice = search.choose([outcome(rate=1000), *blocks], GOAL, SPACE)
        assert choice is not None
        return choice.doubts

    (found,) = doubts(700, 710)
    assert found.startswith("it delivered 1000/s when first measured and 705/s side by side with others")
    assert not any("first measured" in doubt for doubt in (*doubts(900, 910), *doubts()))


def test_memory_that_could_not_be_read() -> None:
    unknown = outcome("dali", 2, rate=1250, cores_used=1.0, pss_bytes=None)
    assert chosen(unknown, SMALL, goal=replace(GOAL, cheapest=("memory",))) == SMALL.candidate.key
    assert chosen(unknown, goal=replace(GOAL, cheapest=("memory",))) == unknown.candidate.key
    choice = search.choose([unknown], replace(GOAL, most_memory_bytes=10**9), SPACE)
    assert choice is not None
    assert "its memory could not be read, so --max-ram is not checked" in choice.doubts
