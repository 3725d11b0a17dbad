"""What a stage's result says, which stages are tried again, and the exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu.leasing.outcome import (
    NOT_PROVEN,
    PROBLEM,
    PROVEN,
    StageResult,
    best_try,
    exit_code,
    has_measured,
    is_tried,
    is_worth_another_try,
    judge,
    judged_try,
    next_name,
    read_results,
)
from benchmarks.gpu.leasing.summary import describe_end

OPEN = {"what": "dali", "reason": "dali is not installed", "command": "pip install dali", "need": "dali"}


def result(
    status: str = PROVEN, *, has_numbers: bool = True, not_proven: tuple[Any, ...] = (), cap_s: float = 70
) -> StageResult:
    problems = ("broken",) if status == PROBLEM else ()
    return StageResult(
        stage="decode", number=1, status=status, cut=False, has_numbers=has_numbers, not_proven=not_proven,
        problems=problems,
        cap_s=cap_s,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("content", "status"),
    [
        ({}, PROVEN),
        ({"cut": True}, NOT_PROVEN),
        ({"not_proven": [OPEN]}, NOT_PROVEN),
        ({"not_proven": [OPEN], "problems": ["a"]}, PROBLEM),
        ({"cut": True, "problems": ["a"]}, PROBLEM),
    ],
)
def test_status(content: dict[str, Any], status: str) -> None:
    assert judge(content) == status


@pytest.mark.parametrize(
    ("results", "code"),
    [
        ([result()], 0),
        ([result(), result(NOT_PROVEN)], 3),
        ([result(), None], 3),
        ([result(NOT_PROVEN), result(PROBLEM), None], 1),
        ([], 3),
    ],
)
def test_exit_code(results: list[StageResult | None], code: int) -> None:
    assert exit_code(results) == code


@pytest.mark.parametrize(
    ("tried", "missing", "again"),
    [
        (None, set(), True),
        (result(), set(), False),
        (result(PROBLEM), set(), False),
        (result(NOT_PROVEN, has_numbers=False), set(), True),
        (result(PROBLEM, has_numbers=False), set(), True),
        (result(NOT_PROVEN, not_proven=(OPEN,)), {"dali"}, False),
        (result(NOT_PROVEN, not_proven=(OPEN,)), set(), True),
        (result(NOT_PROVEN, not_proven=({**OPEN, "need": None},)), set(), False),
        (result(NOT_PROVEN, cap_s=50), set(), True),
        (result(PROVEN, cap_s=50), set(), False),
    ],
)
def test_resume(tried: StageResult | None, missing: set[str], again: bool) -> None:
    assert is_worth_another_try(tried, 70, missing.__contains__) is again


@pytest.mark.parametrize(
    ("numbers", "has"),
    [
        (None, False),
        ({}, False),
        ({"search": {}, "search_rows": [], "gpu": None, "edges": [[]]}, False),
        ({"search": {}, "rows": [{"rate": 0.0}]}, True),
        ({"is_fed": False}, True),
    ],
)
def test_empty_tables_are_no_numbers(numbers: dict[str, Any] | None, has: bool) -> None:
    assert has_measured({} if numbers is None else {"numbers": numbers}) is has


def test_what_a_new_package_shows_was_never_tried() -> None:
    lacking = result(NOT_PROVEN, not_proven=(OPEN,))
    assert is_tried(lacking, {"dali"}.__contains__)
    assert not is_tried(lacking, set().__contains__)
    assert is_tried(result(), set().__contains__)
    assert not is_tried(None, set().__contains__)


def test_a_newer_problem_speaks_for_the_stage() -> None:
    good, crashed = result(), result(PROBLEM, has_numbers=False)
    assert judged_try([good, crashed]) is crashed
    assert judged_try([crashed, good]) is good
    assert judged_try([good, result(NOT_PROVEN, has_numbers=False)]) is good
    assert judged_try([]) is None


def write(folder: Path, name: str, **content: Any) -> None:
    (folder / name).write_text(json.dumps(content))


def test_tries_are_read_in_their_order_and_damaged_files_are_left_out(tmp_path: Path) -> None:
    write(tmp_path, "sweep.json", stage="sweep", numbers={"a": 1})
    write(tmp_path, "sweep-2.json", stage="sweep", cut=True, numbers={})
    write(tmp_path, "sweep-10.json", stage="sweep", problems=["b"])
    write(tmp_path, "sweep-bound.json", stage="sweep-bound", not_proven=[OPEN])
    (tmp_path / "decode.json").write_text('{"stage": "dec')
    write(tmp_path, "other.json", rows=[])

    results = read_results(tmp_path)

    assert {stage: [tried.number for tried in tries] for stage, tries in results.items()} == {
        "sweep": [1, 2, 10], "sweep-bound": [1],
    }  # fmt: skip
    assert [tried.status for tried in results["sweep"]] == [PROVEN, NOT_PROVEN, PROBLEM]
    best = best_try(results["sweep"])
    assert best is not None
    assert best.number == 1  # the later ones measured nothing
    assert best_try([]) is None


def test_nothing_is_written_over(tmp_path: Path) -> None:
    assert next_name(tmp_path, "sweep") == "sweep"
    write(tmp_path, "sweep.json", stage="sweep")
    write(tmp_path, "sweep-bound.json", stage="sweep-bound")
    assert next_name(tmp_path, "sweep") == "sweep-2"
    write(tmp_path, "sweep-4.json", stage="sweep")
    assert next_name(tmp_path, "sweep") == "sweep-5"


def test_no_problem_is_said_only_where_all_was_tried() -> None:
    good = "no problem was found"
    assert good in describe_end({"facts": result()})[-1]
    for other in (result(NOT_PROVEN, not_proven=(OPEN,)), result(PROBLEM), None):
        lines = describe_end({"facts": result(), "decode": other})
        assert good not in "\n".join(lines)
    assert "    pip install dali" in describe_end({"decode": result(NOT_PROVEN, not_proven=(OPEN,))})
