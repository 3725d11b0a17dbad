"""Phases of several ranks: all warm up until the last is warm, and go on until the last is done."""

from __future__ import annotations

from collections.abc import Iterator

from pipetune.measure.phases import PhaseProgress, Phases, Question, plan_phases
from pipetune.records.sweep import StepTime

PERIOD_S = 0.05


def steps(began_s: float = 0.0) -> Iterator[StepTime]:
    now = round(1e9 * (1.0 + began_s))
    while True:
        now += round(1e9 * PERIOD_S)
        yield StepTime(
            t_start_ns=now - 1, data_wait_s=0.0, h2d_s=None, compute_s=PERIOD_S, idle_s=PERIOD_S / 2, t_end_ns=now,
            samples=8,
        )  # fmt: skip


class Others:
    """Other ranks, which are warm and done when a test says so."""

    def __init__(self) -> None:
        self.warm = self.done = False
        self.asked_warm = self.asked_done = 0

    def all_warm(self) -> bool:
        self.asked_warm += 1
        return self.warm

    def all_done(self) -> bool:
        self.asked_done += 1
        return self.done


def pushed(phases: Phases, source: Iterator[StepTime], count: int) -> list[str]:
    return [phases.push(next(source)) for _ in range(count)]


def test_a_rank_that_is_warm_waits_for_the_others_in_its_warm_up() -> None:
    others, progress = Others(), PhaseProgress()
    phases, source = Phases(plan_phases(1, 2, 1.0, 60.0), progress, None, others), steps()
    while not others.asked_warm:  # it is not asked before this rank is warm itself
        assert phases.push(next(source)) == "warmup"
    own = progress.warmup_batches
    assert pushed(phases, source, 30) == ["warmup"] * 30
    assert progress.warmup_batches == own + 30
    assert progress.steady
    others.warm = True
    assert pushed(phases, source, 2) == ["warmup", "timed"]


def test_a_rank_that_is_done_goes_on_until_the_others_are() -> None:
    others, progress = Others(), PhaseProgress()
    others.warm = True
    phases, source = Phases(plan_phases(1, 2, 1.0, 60.0), progress, None, others), steps()
    while not others.asked_done:  # it is not asked before this rank is done itself
        phases.push(next(source))
    assert pushed(phases, source, 50) == ["timed"] * 50
    assert not phases.complete
    others.done = True
    phases.push(next(source))
    assert phases.complete


def test_an_answer_holds_while_the_others_are_waited_for() -> None:
    others, progress = Others(), PhaseProgress()
    others.warm = True
    question = Question(levels=(1.0,), run_noise=0.01)
    phases, source = Phases(plan_phases(1, 2, 4.0, 60.0), progress, question, others), steps()
    while not others.asked_done:
        phases.push(next(source))
    assert progress.answered
    pushed(phases, source, 200)
    assert progress.answered
    assert not phases.complete
