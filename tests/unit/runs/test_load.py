from __future__ import annotations

import json
from pathlib import Path

import pytest

import pipetune
from pipetune.diagnosis import causes
from pipetune.errors import UsageError
from pipetune.records.sweep import to_dict
from pipetune.report.exports import markdown
from pipetune.report.html.build import html_page
from pipetune.runs.load import load
from pipetune.runs.run import DamagedRunWarning
from tests.run_folders import (
    BEGAN_NS,
    DEFAULT,
    STEPS,
    TUNED,
    sweep_folder,
    watch_folder,
)
from tests.watch_fakes import stall, verdict, window

DEFAULT_KEY, TUNED_KEY = DEFAULT.candidate.key, TUNED.candidate.key


@pytest.fixture
def sweep(tmp_path: Path) -> pipetune.Run:
    return load(sweep_folder(tmp_path / "run"))


def test_a_killed_sweep_has_all_but_its_result(tmp_path: Path) -> None:
    run = load(sweep_folder(tmp_path / "run", result=False))

    assert run.problems == ("it did not come to its end: it has no result.json",)
    assert run.recommended is None
    assert run.timeline() == DEFAULT_KEY
    assert len(run.frame()) == 3
    assert not run.frame()["recommended"].any()


@pytest.mark.parametrize("result", [True, False])
def test_a_watch_whose_run_file_is_torn_is_one_all_the_same(tmp_path: Path, result: bool) -> None:
    path = watch_folder(tmp_path / "run", [window()])
    (path / "run.json").write_text("{")
    if not result:
        (path / "result.json").unlink(missing_ok=True)

    run = load(path)

    assert (run.kind, len(run.windows)) == ("watch", 1)
    assert run.problems[0].startswith("run.json")


def test_damage_is_reported_and_the_rest_is_there(tmp_path: Path) -> None:
    path = sweep_folder(tmp_path / "run")
    (path / "run.json").write_text("{")
    (path / "result.json").write_bytes(b"\xff")
    with (path / "outcomes.jsonl").open("a") as file:
        file.write('{"schema": 1, "cand')
    with (path / "timelines" / f"{DEFAULT_KEY}.jsonl").open("a") as file:
        file.write("broken\n")

    run = load(path)

    assert [problem.split(" ")[0] for problem in run.problems] == ["run.json", "result.json", "outcomes.jsonl"]
    assert len(run.frame()) == 3
    with pytest.warns(DamagedRunWarning, match=r"line 81 was left out"):
        assert len(run.steps("default")) == STEPS


def test_what_is_no_run_is_refused_with_a_hint(tmp_path: Path) -> None:
    sweep_folder(tmp_path / "runs" / "first")
    with pytest.raises(UsageError, match=r"not a run folder.*did you mean .*first"):
        load(tmp_path / "runs")
    with pytest.raises(UsageError, match="there is no folder"):
        load(tmp_path / "nowhere")
    (tmp_path / "notes.txt").write_text("hello\n")
    with pytest.raises(UsageError, match=r"notes\.txt is not the log of a watch"):
        load(tmp_path / "notes.txt")


def two_windows() -> list[object]:
    second = verdict(cause=causes.HEALTHY, lost_frac=0.02, lost_ci95=(0.0, 0.04), shares=())
    return [window(), window(number=2, started_unix_s=1_700_000_010.0, verdicts=(second,))]


def test_the_log_of_a_watch_is_a_run_without_readings(tmp_path: Path) -> None:
    log = tmp_path / "watch.jsonl"
    watch_folder(tmp_path / "first", [window()], log=log)
    watch_folder(tmp_path / "second", two_windows(), [stall()], log=log)  # type: ignore[arg-type]

    run = load(log)

    assert run.problems == ("watch.jsonl holds 1 earlier watches, which are left out",)
    assert len(run.frame()) == 2
    assert run.readings().empty
    assert run.stalls()["start_s"].tolist() == pytest.approx([(10**9 - BEGAN_NS) / 1e9])
    assert run.result["reason"] == "the time is up"
    assert run.seconds() == 20.0


def test_two_watches_that_may_have_written_to_a_log_at_once_are_said(tmp_path: Path) -> None:
    log = tmp_path / "watch.jsonl"
    watch_folder(tmp_path / "first", [window()], log=log, end=False)
    watch_folder(tmp_path / "second", [window()], log=log)
    assert "both wrote at the same time" in load(log).problems[-1]


def test_a_watch_that_was_killed_and_half_a_line(tmp_path: Path) -> None:
    path = watch_folder(tmp_path / "run", two_windows(), end=False)  # type: ignore[arg-type]
    with (path / "windows.jsonl").open("a") as file:
        file.write(json.dumps({"kind": "window", "number": 3}) + "\n" + '{"kind": "win')

    run = load(path)

    assert len(run.frame()) == 2
    assert run.problems == (
        "it did not come to its end: it has no result.json",
        "windows.jsonl line 4 was left out: it was not written to its end",
        "windows.jsonl line 3 was left out: started_unix_s is missing",
    )


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("run.json", {"kind": "watch", "host": "x", "options": []}),
        ("result.json", {"verdicts": "abc", "host": 3}),
        ("windows.jsonl", {"kind": "window", "number": 1, "started_unix_s": 1.0, "seconds": 1, "verdicts": [1, {}]}),
        ("windows.jsonl", {"kind": "window", "number": 1, "started_unix_s": 1.0, "seconds": None, "verdicts": []}),
        ("windows.jsonl", {"kind": "window", "number": 1, "started_unix_s": 1.0, "seconds": 1, "verdicts": "abc"}),
        ("stalls.jsonl", {"kind": "stall", "t_start_ns": "soon", "t_end_ns": 1, "lost_s": 1, "cause": "x"}),
    ],
)
def test_values_of_another_type_do_no_harm(tmp_path: Path, name: str, content: dict[str, object]) -> None:
    path = watch_folder(tmp_path / "run", two_windows(), [stall()])  # type: ignore[arg-type]
    if name.endswith("l"):
        with (path / name).open("a") as file:
            file.write(json.dumps(content) + "\n")
    else:
        (path / name).write_text(json.dumps(content))

    run = load(path)

    assert len(run.frame()) >= 2
    assert len(run.stalls()) == 1
    assert run.usable_cores >= 1
    assert html_page(run).startswith("<!doctype html>")
    assert markdown(run)


def test_others_files_among_the_timelines_are_passed_over(tmp_path: Path) -> None:
    path = sweep_folder(tmp_path / "run")
    for name in ("._main", "main (copy)", "rank10", "rank2"):
        (path / "timelines" / f"{name}.jsonl").write_bytes(b"\0")

    assert load(path).candidates == ("ceiling", TUNED_KEY, DEFAULT_KEY, "rank2", "rank10")


def test_windows_stalls_and_verdicts_are_records(tmp_path: Path) -> None:
    worst = verdict(sentence="of the whole watch")
    path = watch_folder(tmp_path / "run", [window(), window(number=2)], [stall()])
    (path / "result.json").write_text(json.dumps({"reason": "the time is up", "verdicts": [to_dict(worst)]}))
    run = load(path)

    assert run.windows == (window(), window(number=2))
    assert run.ended_stalls == (stall(),)
    assert run.verdicts == (worst,)
    (path / "result.json").unlink()
    assert load(path).verdicts == window().verdicts


def test_a_damaged_verdict_is_reported_and_left_out(tmp_path: Path) -> None:
    path = watch_folder(tmp_path / "run", [window()])
    broken = {**to_dict(verdict()), "shares": [{"cause": "x"}]}
    (path / "result.json").write_text(json.dumps({"verdicts": [broken, to_dict(verdict(rank=1))]}))
    run = load(path)

    assert run.verdicts == (verdict(rank=1),)
    assert run.problems == ("result.json: a verdict was left out: shares[0].share is missing",)
