from __future__ import annotations

import os
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from pipetune.answering import check
from pipetune.answering.check import Bench
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
