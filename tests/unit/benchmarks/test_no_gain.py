"""What counts as an edit, and that the scripts are programs."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from benchmarks.scripts.generated import Script
from benchmarks.scripts.no_gain import EDITS_HARM, NOTHING_HELPS, QUICK, judge
from benchmarks.scripts.stated_gain import SCRIPTS

ALL = (*NOTHING_HELPS, *EDITS_HARM, *SCRIPTS)


@pytest.mark.parametrize("script", ALL, ids=lambda script: script.name)
def test_a_script_is_a_program(script: Script) -> None:
    calls = [node for node in ast.walk(ast.parse(script.source)) if isinstance(node, ast.Call)]
    loaders = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "DataLoader"]
    assert len(loaders) == 1


def test_there_are_as_many_scripts_as_are_promised() -> None:
    assert (len(NOTHING_HELPS), len(EDITS_HARM)) == (20, 5)
    names = [script.name for script in (*NOTHING_HELPS, *EDITS_HARM)]
    assert len(set(names)) == 25
    assert set(QUICK) <= set(names)


def test_workers_that_start_for_long_are_given_to_the_loader() -> None:
    for script in ALL:
        assert (script.start == "pass") == ("worker_init_fn" not in script.source.split("DataLoader(dataset")[1])


EDIT = {"key": "script-w2-p2-b16", "verdict": "faster", "gain": 1.2, "gain_ci95": [1.1, 1.3]}


@pytest.mark.parametrize(
    ("recommended", "error", "wrong"),
    [
        ({"key": "script-w1-p2-b16", "role": "baseline"}, "", ""),
        ({"key": "script-w2-p2-b16", "role": "candidate"}, "", "an edit is recommended"),
        (None, "it crashed", "the sweep has no result: it crashed"),
        ({"key": "script-w1-p2-b16", "role": "baseline"}, "it crashed", "the sweep has no result"),
    ],
)
def test_an_edit_and_a_failed_sweep_break_the_promise(recommended: Any, error: str, wrong: str) -> None:
    found = judge({"recommended": recommended, "edit": EDIT, "script": {"setup_s": 2.0}}, 30.0, error)
    assert found["wrong"].startswith(wrong)
    assert bool(found["wrong"]) is bool(wrong)
