from __future__ import annotations

import importlib.resources
import json
from dataclasses import replace
from typing import Any

import jsonschema
import pytest

from pipetune.candidates.space import Space
from pipetune.records.sweep import AcceleratorSpec, Failure, Goal, Outcome
from pipetune.sweeping.result import SweepResult, conclude
from pipetune.sweeping.result_json import to_json
from tests.fakes import outcome

FAILED = Failure(kind="killed", phase="timed", message="gone", hint="less")


def sweep_result(*outcomes: Outcome, target: float = 0.9, **changes: Any) -> SweepResult:
    values: dict[str, Any] = {
        "goal": Goal(target=target, metric="goodput"),
        "space": Space(
            backends=("pillow", "opencv", "torchvision", "dali"), workers=(0, 1, 2), prefetch=(2,), batch_size=64,
            pin_memory=False,
        ),
        "accelerator": AcceleratorSpec(kind="emulated", name="EMULATED v100", rate_samples_per_s=1250.0),
        "dataset": {
            "name": "<script>", "root": "/d", "images": 4, "found_images": 9, "classes": 2, "skipped": 0, "plain": True,
            "mean_bytes": 4e4, "median_width_px": 400, "median_height_px": 300, "fingerprint": "ab",
        },
        "workload": {"model": "resnet50", "batch_size": 64, "image_size_px": 224},
        "host": {"cpu_model": "x", "cores_usable": 2.0, "python": "3.11"},
        "usable_cores": 2.0,
        "seconds": 12.0,
        **changes,
    }  # fmt: skip
    return conclude(outcomes, **values)


CEILING = outcome("pillow", 0, rate=1250.0, role="ceiling", goodput=None)
DEFAULT = outcome("pillow", 0, rate=500.0, role="baseline")
TUNED = outcome("opencv", 2, rate=1200.0)
BROKEN = outcome("dali", 2, failure=FAILED)


def valid(result: SweepResult) -> dict[str, Any]:
    text = (importlib.resources.files("pipetune.report") / "sweep.schema.json").read_text()
    data = json.loads(json.dumps(to_json(result), allow_nan=False))
    jsonschema.Draft202012Validator(json.loads(text)).validate(data)
    return data


def test_a_sweep_that_was_interrupted_did_not_end_by_itself() -> None:
    """Though each candidate was tried, what confirms the best had not finished."""
    ended: dict[str, Any] = {"complete": True, "goal": Goal(target=0.9, metric="goodput", effort="normal")}
    assert sweep_result(CEILING, DEFAULT, TUNED, **ended).ended_because is not None
    assert sweep_result(CEILING, DEFAULT, TUNED, **ended, stopped="interrupted").ended_because is None


def test_a_sweep_that_met_its_target() -> None:
    data = valid(sweep_result(CEILING, DEFAULT, TUNED, BROKEN))
    assert data["status"] == "target_met"
    assert data["complete"] is False  # of twelve candidates three were tried
    assert data["ceiling_samples_per_s"] == 1250.0
    assert data["recommended"]["key"] == TUNED.candidate.key
    assert data["baseline"]["diagnosis"]["cause"]
    assert data["speedup"] == pytest.approx(2.4)
    low, high = data["speedup_ci95"]
    assert low < 2.4 < high
    assert [row["key"] for row in data["outcomes"]] == [o.candidate.key for o in (DEFAULT, TUNED, BROKEN)]
    assert data["outcomes"][2]["failure"] == {
        "kind": "killed", "phase": "timed", "message": "gone", "hint": "less", "stderr_tail": "",
        "needed": None, "available": None,
    }  # fmt: skip


def test_a_target_that_nobody_reaches() -> None:
    data = valid(sweep_result(CEILING, DEFAULT, outcome("opencv", 2, rate=900.0)))
    assert data["status"] == "target_missed"
    assert data["recommended"]["samples_per_s"] == 900.0


def test_nothing_but_failures() -> None:
    data = valid(sweep_result(CEILING, BROKEN))
    assert data["status"] == "failed"
    assert data["message"]
    assert data["recommended"] is data["speedup"] is None


def test_stopped_before_anything_was_measured() -> None:
    data = valid(sweep_result(stopped="interrupted", message="interrupted"))
    assert data["status"] == "interrupted"
    assert data["outcomes"] == []


def test_the_ranking_is_by_rate_with_failures_last_and_the_newest_attempt() -> None:
    again = outcome("opencv", 2, rate=1100.0, attempt=2)
    result = sweep_result(CEILING, BROKEN, DEFAULT, TUNED, again)
    assert result.ranking == (again, DEFAULT, BROKEN)
    assert len(result.outcomes) == 4


def test_when_the_default_is_the_best_there_is_no_gain() -> None:
    result = sweep_result(CEILING, outcome("pillow", 0, rate=1250.0, role="baseline"))
    assert (result.speedup, result.speedup_ci95) == (1.0, (1.0, 1.0))


def test_an_unknown_field_would_break_the_schema() -> None:
    data = to_json(sweep_result(CEILING, TUNED))
    data["outcomes"][0]["surprise"] = 1
    text = (importlib.resources.files("pipetune.report") / "sweep.schema.json").read_text()
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(json.loads(text)).validate(json.loads(json.dumps(data)))


@pytest.mark.parametrize(("rate", "told"), [(1240.0, False), (1100.0, True)])
def test_an_accelerator_that_did_not_keep_its_pace_is_a_doubt(rate: float, told: bool) -> None:
    later = replace(outcome("pillow", 0, rate=rate, role="ceiling", goodput=None), block=1)
    result = sweep_result(CEILING, DEFAULT, TUNED, later)
    assert result.ceiling == later
    words = "the accelerator itself became 12 % slower during the sweep (1,250/s -> 1,100/s)"
    assert any(doubt.startswith(words) for doubt in result.doubts) is told
