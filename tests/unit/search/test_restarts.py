"""Remedies for workers that start anew with each epoch, and scripts that clearly suffice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pipetune import search
from pipetune.candidates.space import Space
from pipetune.records.sweep import Candidate, Failure, Goal, Outcome
from tests.fakes import measurement, outcome

GOAL = Goal(target=0.9, metric="goodput", effort="normal")
OWN = Candidate(backend="script", num_workers=2, prefetch_depth=2, batch_size=16, loader="user")
SPACE = Space(
    backends=("script",), workers=(1, 2, 4), prefetch=(2, 4), batch_size=16, pin_memory=False, default_backend="script",
    usable_cores=4.0, untuned=OWN, confirm_alone=True, alternates=True,
    restart_remedies=(("keep_workers", (False, True)),),
)  # fmt: skip
CEILING = 1000.0


def look(candidate: Candidate, goodput: float, restarting: float = 0.0, half: float = 0.01, **values: Any) -> Outcome:
    rate = goodput * CEILING
    measured = {
        "ci95": (rate * (1 - half), rate * (1 + half)), "goodput": goodput, "cores_used": 0.5,
        "goodput_ci95": (goodput * (1 - half), goodput * (1 + half)), "steady_samples_per_s": rate / (1 - restarting),
        "accelerator_idle_frac": 1 - goodput, **values,
    }  # fmt: skip
    m = measurement(samples_per_s=rate, **measured)
    role = "baseline" if candidate == OWN else "candidate"
    return replace(outcome("script", candidate.num_workers, 2), candidate=candidate, measurement=m, role=role)


def proposed(*outcomes: Outcome, goal: Goal = GOAL, space: Space = SPACE) -> Candidate | None:
    proposal = search.propose(space, outcomes, goal, 0)
    return None if proposal is None else proposal.candidate


def test_workers_that_live_on_are_tried_where_restarts_cost_a_noticeable_share() -> None:
    kept = replace(OWN, keep_workers=True)
    assert proposed(look(OWN, 0.6, restarting=0.3)) == kept
    assert proposed(look(OWN, 0.6, restarting=0.01)) != kept, "long epochs have nothing to gain"
    assert proposed(look(OWN, 0.6, restarting=0.3), space=replace(SPACE, restart_remedies=())) != kept
    assert proposed(look(OWN, 0.6, restarting=0.3), look(kept, 0.8)) != kept, "once is enough"


def test_a_remedy_that_was_refused_is_not_tried_with_another_candidate() -> None:
    kept, best = replace(OWN, keep_workers=True), replace(OWN, num_workers=4)
    refused = replace(look(kept, 0.6), measurement=None, failure=Failure(kind="error", phase="open", message="x"))
    known = [look(OWN, 0.3, restarting=0.3), refused, look(best, 0.6, restarting=0.3)]
    tried = []
    while (candidate := proposed(*known)) is not None and candidate not in tried:
        tried.append(candidate)
        known.append(look(candidate, 0.2, restarting=0.3))
    assert tried
    assert not any(candidate.keep_workers for candidate in tried)


def test_a_remedy_may_be_recommended() -> None:
    kept = replace(OWN, keep_workers=True)
    assert SPACE.has(kept)
    assert not replace(SPACE, restart_remedies=()).has(kept)
    choice = search.choose([look(OWN, 0.6, restarting=0.3), look(kept, 0.97)], GOAL, SPACE)
    assert choice is not None
    assert choice.outcome.candidate == kept


def test_other_worker_counts_are_tried_with_the_remedy_that_gained() -> None:
    kept, one = replace(OWN, keep_workers=True), replace(OWN, num_workers=1)
    outcomes = [look(OWN, 0.3, restarting=0.3), look(kept, 0.6), look(one, 0.2, restarting=0.01)]
    found = proposed(*outcomes)
    assert found is not None
    assert found.keep_workers


def test_spawned_workers_are_tried_forked() -> None:
    spawned = replace(OWN, start_method="spawn")
    space = replace(
        SPACE, untuned=spawned, settings=(("start_method", ("spawn",)),),
        restart_remedies=(("start_method", ("spawn", "fork")),),
    )  # fmt: skip
    first = replace(look(spawned, 0.5, restarting=0.4), role="baseline")
    assert proposed(first, space=space) == OWN
    assert space.has(OWN)


def test_a_script_whose_slow_steps_scatter_suffices_where_its_loop_does_not_wait() -> None:
    noisy = look(OWN, 0.95, half=0.22, accelerator_idle_frac=0.003)
    assert proposed(noisy) is None
    assert search.is_clearly_sufficient(noisy.measurement, GOAL, SPACE)  # type: ignore[arg-type]
    assert proposed(look(OWN, 0.95, half=0.22, accelerator_idle_frac=0.2)) is not None, "it waits"


def test_a_loader_over_a_data_set_has_to_reach_the_target_with_its_whole_interval() -> None:
    noisy = look(OWN, 0.95, half=0.22, accelerator_idle_frac=0.003).measurement
    assert noisy is not None
    assert not search.is_clearly_sufficient(noisy, GOAL, replace(SPACE, confirm_alone=False))
    assert not search.is_clearly_sufficient(noisy, replace(GOAL, metric="nvml"), SPACE)


def test_no_rival_is_measured_that_cannot_save_a_core_of_those_in_use() -> None:
    """Four workers of a script count nothing: what counts is the CPU time that they take."""
    many = replace(OWN, num_workers=4)
    space = replace(SPACE, untuned=many)
    assert proposed(replace(look(many, 0.99, cores_used=0.1), role="baseline"), space=space) is None
    unknown = replace(look(many, 0.99, cores_used=None, cpu_s_per_1000_samples=None), role="baseline")
    assert proposed(unknown, space=space) is None, "no saving could be proven"
