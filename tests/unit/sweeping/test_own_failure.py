from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pipetune.errors import FailsAgainError
from pipetune.records.sweep import Failure, Outcome
from pipetune.sweeping.own_failure import check_script, explain_no_ceiling
from pipetune.sweeping.sweep_plan import Plan
from tests.fakes import outcome
from tests.unit.sweeping.bench import PLAN, Bench

SCRIPT = replace(PLAN, in_script=True)


def failed(role: str, kind: str) -> Outcome:
    failure = Failure(kind=kind, phase="timed", message="ValueError: no data (train.py:12)", hint="try this")
    return replace(outcome(role=role), measurement=None, failure=failure)


@pytest.mark.parametrize(
    "kind", ["crashed", "killed", "out_of_shared_memory", "out_of_files", "cannot_pickle", "error"]
)
def test_a_script_that_fails_as_it_is_ends_the_sweep_and_is_told_that_it_is_its_own(kind: str) -> None:
    with pytest.raises(FailsAgainError) as caught:
        check_script(SCRIPT, [failed("baseline", kind)])
    assert caught.value.message.startswith("your script fails as it is")
    assert "ValueError: no data (train.py:12)" in caught.value.message
    assert caught.value.hint == "try this"


@pytest.mark.parametrize(
    ("plan", "role", "kind"),
    [
        (SCRIPT, "candidate", "crashed"),
        (PLAN, "baseline", "crashed"),
        (SCRIPT, "baseline", "checkpoint"),
        (SCRIPT, "baseline", "hung"),
        (SCRIPT, "baseline", "script_ended"),
    ],
)
def test_other_failures_are_the_candidates(plan: Plan, role: str, kind: str) -> None:
    check_script(plan, [failed(role, kind)])
    check_script(plan, [failed("baseline", "crashed"), outcome()])
    check_script(plan, [])


@pytest.mark.parametrize(
    ("plan", "kind", "begins"),
    [
        (SCRIPT, "crashed", "your script fails as it is, with its own settings: ValueError"),
        (SCRIPT, "script_ended", "cannot measure what"),
        (SCRIPT, "out_of_gpu_memory", "cannot measure what"),  # of the batches that are kept, maybe
        (PLAN, "crashed", "cannot measure what"),
    ],
)
def test_a_ceiling_that_cannot_be_measured_because_the_script_crashes_is_told_so(
    plan: Plan, kind: str, begins: str
) -> None:
    failure = failed("ceiling", kind).failure
    assert failure is not None
    error = explain_no_ceiling(plan, failure)
    assert isinstance(error, FailsAgainError)
    assert error.message.startswith(begins)
    assert error.hint == "try this"


def test_a_script_without_a_guard_can_have_no_workers_unless_another_way_to_start_them_is_tried() -> None:
    def plan(*methods: str) -> Plan:
        return replace(SCRIPT, space=replace(SCRIPT.space, settings=(("start_method", methods),)))

    with pytest.raises(FailsAgainError, match="no data"):
        check_script(plan("spawn"), [failed("candidate", "no_main_guard")])
    check_script(plan("fork", "spawn"), [failed("candidate", "no_main_guard")])


def test_what_was_measured_before_is_kept_and_nothing_else_is_measured() -> None:
    """Candidates that go well say nothing, where the script itself does not."""
    saved: list[Outcome] = []
    bench: Any = Bench()
    bench.measure_before = bench.measure

    def measure(candidate: Any, role: str, *args: Any, **options: Any) -> Any:
        found, recording = bench.measure_before(candidate, role, *args, **options)
        return (replace(failed(role, "crashed"), candidate=candidate) if role == "baseline" else found), recording

    bench.measure = measure
    with pytest.raises(FailsAgainError, match="your script fails as it is"):
        list(bench.sweep(SCRIPT, lambda out, _: saved.append(out)))
    assert saved[-1].role == "baseline"
