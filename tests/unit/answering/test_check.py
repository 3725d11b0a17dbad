from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from pipetune.answering import check
from pipetune.answering.check import CONTROL_EVERY, Bench, in_turn
from pipetune.answering.targets import Target
from pipetune.explaining.run import ExplainObserver
from pipetune.measure.conditions import Conditions
from pipetune.records.prediction import Question
from pipetune.records.sweep import Outcome
from tests.unit.answering.bases import base
from tests.unit.samples import outcome


class Folder:
    def __init__(self) -> None:
        self.kept: list[Outcome] = []

    def append_outcome(self, outcome: Outcome) -> None:
        self.kept.append(outcome)


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[frozenset[int]]:
    """The cores of each measurement, none of which is made."""
    seen: list[frozenset[int]] = []

    def measure(candidate: Any, role: str, conditions: Conditions, **_: Any) -> tuple[Outcome, Any]:
        seen.append(frozenset(os.sched_getaffinity(0)))
        assert conditions.cores == seen[-1]
        return replace(outcome(), candidate=candidate), SimpleNamespace(resident_frac=None, stopped=None)

    monkeypatch.setattr(check.harness, "measure", measure)
    return seen


def target(cores: int | None) -> Target:
    one = base()
    return Target(
        question=Question(cores=cores), text=f"{cores} cores", candidate=one.candidate, cores=cores, images=None,
        workload=replace(one.workload, cache="warm"),
    )  # fmt: skip


def test_fewer_cores_are_those_whose_threads_are_next_to_each_other(
    monkeypatch: pytest.MonkeyPatch, used: list[frozenset[int]]
) -> None:
    allowed = os.sched_getaffinity(0)
    if len(allowed) < 2:
        pytest.skip("one core cannot be made fewer")
    # As on a machine whose last thread comes first once threads of a core are next to each other.
    monkeypatch.setattr(check, "side_by_side", lambda cores: sorted(cores, reverse=True))
    folder = Folder()
    bench = Bench(folder, ExplainObserver())  # type: ignore[arg-type]
    bench.measure_all([target(1)], 2, 0)
    assert used == [{max(allowed)}] * 2
    assert os.sched_getaffinity(0) == allowed, "they are given back"
    assert [(one.part, one.block) for one in folder.kept] == [("1 cores", 1), ("1 cores", 2)]


def test_all_cores_are_left_as_they_are(used: list[frozenset[int]]) -> None:
    Bench(Folder(), ExplainObserver()).measure_all([target(None)], 1, 0)  # type: ignore[arg-type]
    assert used == [os.sched_getaffinity(0)]


def names(order: Iterable[tuple[int, Target]], block: int) -> list[str]:
    return [one.text for number, one in order if number == block]


def test_the_runs_own_loader_is_measured_before_each_few_questions() -> None:
    control = replace(target(None), text="control")
    order = list(in_turn([target(number) for number in range(1, 13)], 2, 0, control))
    for block in (1, 2):
        found = names(order, block)
        assert [number for number, name in enumerate(found) if name == "control"] == [0, 6, 12]
        assert sorted(set(found) - {"control"}) == sorted(f"{number} cores" for number in range(1, 13))
    assert CONTROL_EVERY == 5
    assert names(order, 1) != names(order, 2), "in another order"
    assert order == list(in_turn([target(number) for number in range(1, 13)], 2, 0, control)), "the same each time"


def test_a_question_that_is_the_runs_own_loader_is_measured_once_in_a_block() -> None:
    control = replace(target(None), text="control")
    assert names(in_turn([control], 2, 0, control), 2) == ["control"]
    assert names(in_turn([control, target(1)], 1, 0, control), 1) == ["control", "1 cores"]


def test_without_it_the_questions_take_turns() -> None:
    assert sorted(names(in_turn([target(1), target(2)], 1, 0), 1)) == ["1 cores", "2 cores"]
