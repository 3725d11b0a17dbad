"""Steps that are pushed, as somebody else's training loop has them; ``test_phases`` has the lengths of phases."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pytest

from pipetune.measure.phases import PhaseProgress, Phases, Question, plan_phases, run_phases
from pipetune.records.sweep import StepTime


def steps(duration_s: float) -> Iterator[StepTime]:
    now = 10**9
    while True:
        end = now + round(duration_s * 1e9)
        yield StepTime(
            t_start_ns=now, data_wait_s=0.0, h2d_s=None, compute_s=duration_s, idle_s=0.0, t_end_ns=end, samples=8
        )
        now = end


def pushed(duration_s: float, question: Question | None = None, workers: int = 2) -> tuple[list[str], PhaseProgress]:
    progress = PhaseProgress()
    phases = Phases(plan_phases(workers, 2, 1.0, 5.0), progress, question)
    labels = []
    for step in islice(steps(duration_s), 10_000):
        labels.append(phases.push(step))
        if phases.complete:
            return labels, progress
    raise AssertionError("the phases did not end")


QUESTION = Question(levels=(1e6,), run_noise=0.02)


@pytest.mark.parametrize("question", [None, QUESTION], ids=["for its length", "with a question"])
@pytest.mark.parametrize("duration_s", [0.001, 0.05, 0.7])
def test_steps_that_are_pushed_are_labelled_as_those_that_are_pulled(
    duration_s: float, question: Question | None
) -> None:
    labels, progress = pushed(duration_s, question)
    other = PhaseProgress()
    pulled = [label for label, _ in run_phases(steps(duration_s), plan_phases(2, 2, 1.0, 5.0), other, question)]
    assert labels == pulled
    assert progress == other
    assert labels == ["warmup"] * labels.count("warmup") + ["timed"] * labels.count("timed")


def test_the_step_that_completes_the_timed_phase_belongs_to_it() -> None:
    labels, progress = pushed(0.05)
    assert labels[-1] == "timed"
    assert labels.count("timed") % 2 == 0  # whole rounds of two workers
    assert labels.count("warmup") == progress.warmup_batches


def test_the_first_step_is_warm_up_even_where_the_limit_is_none() -> None:
    phases = Phases(plan_phases(0, 0, 1.0, 0.0), PhaseProgress())
    labels = [phases.push(step) for step in islice(steps(0.1), 2)]
    assert labels == ["warmup", "timed"]


def test_without_a_question_no_answer_is_looked_for() -> None:
    _, progress = pushed(0.05)
    assert not progress.answered
    _, progress = pushed(0.05, QUESTION)
    assert progress.answered


def test_until_then_it_is_not_complete() -> None:
    phases = Phases(plan_phases(1, 2, 100.0, 5.0), PhaseProgress())
    for step in islice(steps(0.05), 500):
        phases.push(step)
        assert not phases.complete
