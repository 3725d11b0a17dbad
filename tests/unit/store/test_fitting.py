from __future__ import annotations

from typing import Any

import pytest

from pipetune.records.stored import StoredInfo, StoredResult
from pipetune.records.sweep import Goal, Outcome, to_dict
from pipetune.store.fitting import checked, fitting
from tests.unit.samples import measured, outcome


@pytest.mark.parametrize(
    ("part", "value", "kept", "problem"),
    [
        ("host", {"versions": True, "kernel": "6"}, {"kernel": "6"},
         "host.versions was left out: expected object, got bool"),
        ("host", {"versions": {"torch": 2, "numpy": "2"}}, {"versions": {"numpy": "2"}},
         "host.versions.torch was left out: expected str, got int"),
        ("host", {"cores_usable": "two"}, {}, "host.cores_usable was left out: expected float, got str"),
        ("host", [1], None, "host was left out: expected object, got array"),
        ("notes", ["a", None, "b"], ["a", "b"], "notes[1] was left out: expected str, got null"),
        ("notes", "text", None, "notes was left out: expected array, got str"),
        ("goal", {"target": 0.9}, None, "goal was left out: metric is missing"),
        ("goal", {"target": 2, "metric": "goodput"}, None, "goal was left out: target is 2.0"),
        ("goal", None, None, "goal was left out: expected object, got null"),
        ("workload", {"image_size": "224)\nimport os", "seed": 1}, {"seed": 1},
         "workload.image_size was left out: expected int, got str"),
        ("monotonic_ns", 2**70, None, "monotonic_ns was left out: monotonic_ns is 11805916207174113034"),
        ("pid", True, None, "pid was left out: expected int, got bool"),
        ("gpus", ["A100", {"name": "H100"}, 3], ["A100", {"name": "H100"}], "gpus[2] was left out: expected str"),
        ("does_not_fit", [{"candidate": {}, "failure": 1}], [],
         "does_not_fit[0].candidate was left out: backend is missing"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_left_out_and_named(part: str, value: Any, kept: Any, problem: str) -> None:
    content = {"schema": 1, "kind": "sweep", "of a newer version": [1], part: value}
    found, problems = fitting(StoredInfo, content, "run.json")
    assert found.pop(part, None) == kept
    assert found == {"schema": 1, "kind": "sweep", "of a newer version": [1]}
    assert problems[0].startswith(f"run.json: {problem}")


def test_what_fits_is_kept_as_it_is() -> None:
    content = {
        "goal": to_dict(Goal(target=1, metric="nvml")), "host": {"cores_usable": 2, "cpu_quota_cores": None},
        "recommended": {"key": "a", "rest": 1}, "seconds": 4, "message": None, "verdicts": [{"anything": 1}],
    }  # fmt: skip
    assert fitting(StoredResult, content, "result.json") == (content, [])


def test_of_many_problems_the_first_are_named() -> None:
    kept, problems = fitting(StoredInfo, {"notes": [None] * 5000}, "run.json")
    assert kept == {"notes": []}
    assert len(problems) == 21
    assert problems[-1] == "run.json: 4980 more values were left out"


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"samples_per_s": 0.0}, "samples_per_s is 0.0"),
        ({"samples_per_s": 1e300}, "samples_per_s is 1e\\+300, more than anybody has measured"),
        ({"ci95": (9.0, 8.0)}, "ci95 begins behind its end"),
        ({"timed_s": -1.0}, "timed_s is -1.0"),
        ({"batch_shape": ()}, r"batch_shape is \[\]"),
        ({"batch_shape": (8, 0)}, r"batch_shape is \[8, 0\]"),
        ({"pss_bytes": 2**64}, "pss_bytes is 18446744073709551616, more"),
        ({"goodput": -0.5}, "goodput is -0.5"),
    ],
)
def test_a_measurement_that_nobody_has_made_is_refused(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(TypeError, match=problem):
        checked(Outcome, to_dict(measured(**changes)))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"num_workers": -1}, "num_workers is -1"), ({"batch_size": 0}, "batch_size is 0"),
        ({"prefetch_depth": 10**9}, "prefetch_depth is 1000000000"),
        ({"persistent_workers": "True)\nimport os  # "}, "candidate.persistent_workers: expected bool, got str"),
    ],
)  # fmt: skip
def test_a_candidate_that_nobody_has_asked_for_is_refused(changes: dict[str, Any], problem: str) -> None:
    data = to_dict(outcome(1))
    data["candidate"] = {**data["candidate"], **changes}
    with pytest.raises(TypeError, match=problem):
        checked(Outcome, data)
