"""The table of stages, the calls that they fall into, and which one comes next."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.gpu.leasing.needs import GPU_DECODERS, PY_SPY, expand_needs, find_missing
from benchmarks.gpu.leasing.plan import format_plan
from benchmarks.gpu.leasing.stages import MAX_CALL_S, MAX_TOTAL_S, STAGES, find_stages, pick_next, split_calls
from pipetune.registry import BACKENDS


def test_caps_fit_into_what_a_lease_has() -> None:
    assert sum(stage.cap_s for stage in STAGES) <= MAX_TOTAL_S == 800
    calls = split_calls(STAGES)
    assert len(calls) <= 3
    assert all(sum(stage.cap_s for stage in call) <= MAX_CALL_S <= 400 for call in calls)
    assert [stage.name for stage in calls[0]] == ["facts", "doctor", "probe", "tests", "sweep"]


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.name)
def test_every_stage_can_be_loaded_and_says_what_it_proves(stage) -> None:  # type: ignore[no-untyped-def]
    assert callable(stage.load())
    assert 0 < stage.least_s < stage.cap_s
    assert stage.proves
    assert set(stage.needs) <= {GPU_DECODERS, PY_SPY, *BACKENDS}


def test_stages_are_found_in_the_tables_order() -> None:
    assert [stage.name for stage in find_stages("sweep, facts")] == ["facts", "sweep"]
    assert find_stages(None) == list(STAGES)


@pytest.mark.parametrize("names", ["sweeps", "", "facts,none"])
def test_unknown_stages_are_refused(names: str) -> None:
    with pytest.raises(ValueError, match="--only must name stages"):
        find_stages(names)


def test_a_stage_that_the_time_is_too_short_for_is_passed_over() -> None:
    sweep, doctor = find_stages("sweep")[0], find_stages("doctor")[0]

    assert pick_next([sweep, doctor], 1000) is sweep
    assert pick_next([sweep, doctor], sweep.least_s - 1) is doctor
    assert pick_next([sweep, doctor], 1) is None
    assert pick_next([sweep, doctor], sweep.least_s / 2, shorten=0.5) is sweep


def test_decoders_on_the_gpu_are_those_of_the_registry() -> None:
    names = [backend.name for backend in BACKENDS.values() if backend.decodes_on_cuda]
    assert expand_needs([GPU_DECODERS, PY_SPY]) == (*names, PY_SPY)


def test_what_is_missing_has_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.gpu.leasing.needs.installed_version", lambda backend: None)
    monkeypatch.setattr("benchmarks.gpu.leasing.needs.find_py_spy", lambda: None)
    missing = find_missing(["dali", PY_SPY])
    assert [item.need for item in missing] == ["dali", PY_SPY]
    assert missing[0].command == BACKENDS["dali"].install
    assert "not installed" in missing[0].reason


def test_plan_shows_sums_calls_and_results(tmp_path: Path) -> None:
    folder = tmp_path / "some-gpu"
    folder.mkdir()
    content = {"stage": "facts", "numbers": {"a": 1}, "date": "2026-11-28T01:02:03+00:00"}
    (folder / "facts.json").write_text(json.dumps(content))

    lines = format_plan(STAGES, tmp_path, None).splitlines()

    rows = {line.split()[1]: line.split() for line in lines[2 : 2 + len(STAGES)]}
    assert list(rows) == [stage.name for stage in STAGES]
    assert "some-gpu: proven 2026-11-28" in lines[2]
    assert rows["sweep"][:4] == ["1", "sweep", "150", "330"]
    assert int(rows["nvml"][3]) == sum(stage.cap_s for stage in STAGES)
    assert lines[-1].startswith("call 1: 330 s, call 2: ")
