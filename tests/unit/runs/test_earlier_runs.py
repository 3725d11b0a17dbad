"""Runs that an earlier version of pipetune stored (``tests/runs_before_the_move``) are read as it wrote them.

They were made before the package was divided into rooms: a finished sweep with a failure, one that Ctrl-C ended, one of
a loader of the user's own, a watch (as a folder and as a log), an observed loop. Only shortened since, and without the
names of the machine.
"""

from __future__ import annotations

import importlib.resources
import json
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import pipetune
from pipetune.__main__ import main
from pipetune.runs.run import Run
from pipetune.store.read import timeline_name
from pipetune.sweeping.resume import read_resumed
from pipetune.usercode import make_loader
from tests import ROOT

RUNS = ROOT / "tests" / "runs_before_the_move"
SWEEPS = ("sweep", "interrupted", "own")
WATCHES = ("watch", "watch.jsonl")
ALL = (*SWEEPS, *WATCHES, "observe")
Command = Callable[..., str]


def stored(*parts: str) -> Any:
    return json.loads(RUNS.joinpath(*parts).read_text())


def lines(*parts: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in RUNS.joinpath(*parts).read_text().splitlines()]


def schema(name: str) -> Any:
    return json.loads(importlib.resources.files("pipetune.report").joinpath(name).read_text())


@pytest.fixture
def command(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs a command line in this process, expects that it succeeds in silence, and returns what it prints."""

    def call(*arguments: object) -> str:
        capfd.readouterr()
        monkeypatch.setattr(sys, "argv", ["pipetune", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, errors = capfd.readouterr()
        assert (ended.value.code or 0, errors) == (0, "")
        return out

    return call


@pytest.mark.parametrize("name", ALL)
def test_a_run_opens_without_problems(name: str) -> None:
    run = pipetune.load(RUNS / name)
    assert run.problems == ()
    kind = "sweep" if name in SWEEPS else "observe" if name == "observe" else "watch"
    assert run.kind == kind


@pytest.mark.parametrize("name", SWEEPS)
def test_candidates_have_the_keys_they_were_stored_under(name: str) -> None:
    run = pipetune.load(RUNS / name)
    rows = stored(name, "result.json")["outcomes"]
    measured = [outcome for outcome in run.outcomes if outcome.role != "ceiling"]
    assert [outcome.candidate.key for outcome in measured] == [row["key"] for row in rows]
    assert {timeline_name(outcome) for outcome in run.outcomes} >= set(run.candidates)


@pytest.mark.parametrize(
    ("name", "recommended", "default"),
    [
        ("sweep", "opencv-w1-p2-b16-thread", "pillow-w0-p0-b16-again2"),
        ("interrupted", "opencv-w1-p2-b16-again2", "pillow-w0-p0-b16"),
        ("own", "own-w0-p0-b16", "own-w0-p0-b16"),
    ],
)
def test_a_sweep_has_its_recommendation(name: str, recommended: str, default: str) -> None:
    run = pipetune.load(RUNS / name)
    assert (run.recommended, run.default) == (recommended, default)


def test_the_frame_of_a_sweep_has_what_was_measured_and_what_failed() -> None:
    frame = pipetune.load(RUNS / "sweep").frame()
    failed = frame[frame["failure"].notna()]
    assert failed[["key", "failure", "backend"]].to_numpy().tolist() == [
        ["simplejpeg-w1-p2-b16", "not_installed", "simplejpeg"]
    ]
    rates = [line["measurement"]["samples_per_s"] for line in lines("sweep", "outcomes.jsonl") if line["measurement"]]
    assert frame["samples_per_s"].dropna().tolist() == rates
    assert frame["attempt"].max() == 2


@pytest.mark.parametrize(
    ("name", "timeline"),
    [
        ("sweep", "recommended"), ("sweep", "ceiling"), ("interrupted", "pillow-w0-p0-b16"), ("own", "default"),
        ("observe", "main"),
    ],
)  # fmt: skip
def test_timelines_become_frames(name: str, timeline: str) -> None:
    run = pipetune.load(RUNS / name)
    written = lines(name, "timelines", f"{run.timeline(timeline)}.jsonl")
    readings = [line for line in written if line["kind"] == "reading"]
    steps = [line for line in written if line["kind"] == "step"]
    assert len(run.readings(timeline)) == len(readings) > 0
    assert run.steps(timeline)["idle_s"].tolist() == [step["idle_s"] for step in steps]
    assert run.readings(timeline)["cpu_busy_pct"].tolist() == [reading["cpu_busy_pct"] for reading in readings]


def test_the_stalls_of_a_whole_timeline_sum_to_its_idle_time() -> None:
    run = pipetune.load(RUNS / "sweep")
    outcome = run.outcome("recommended")
    assert outcome is not None
    assert outcome.measurement is not None
    measured = outcome.measurement
    idle_s = measured.accelerator_idle_frac * measured.timed_s
    assert run.stalls("recommended")["lost_s"].sum() == pytest.approx(idle_s, abs=1e-6)


@pytest.mark.parametrize("name", WATCHES)
def test_a_watch_has_its_windows_and_its_stall(name: str) -> None:
    run = pipetune.load(RUNS / name)
    frame = run.frame()
    assert frame["window"].tolist() == [1, 2, 3, 4]
    assert frame["cause"].tolist() == ["cpu_decode_bound"] * 4
    assert frame["lost_frac"].tolist() == [line["verdicts"][0]["lost_frac"] for line in lines("watch", "windows.jsonl")]
    assert frame["share_worker_startup"].iloc[0] == pytest.approx(0.2, abs=0.02)
    (line,) = lines("watch", "stalls.jsonl")
    stalls = run.stalls()
    assert stalls["lost_s"].tolist() == [line["lost_s"]]
    assert stalls["cause"].tolist() == ["cpu_decode_bound"]
    assert run.result["reason"] == "the time is up"


@pytest.mark.parametrize("name", ALL)
def test_a_run_is_shown_in_every_form(name: str, command: Command) -> None:
    for form in ((), ("--markdown",), ("--csv",), ("--html", "-"), ("--trace", "-")):
        assert len(command("report", RUNS / name, *form)) > 50


def test_the_page_and_the_screen_of_a_sweep_name_its_recommendation(command: Command) -> None:
    for form in ((), ("--markdown",), ("--html", "-")):
        assert "opencv, 1 thread" in command("report", RUNS / "sweep", *form)


def test_the_screen_of_a_watch_names_its_cause(command: Command) -> None:
    screens = {name: command("report", RUNS / name) for name in WATCHES}
    for screen in screens.values():
        assert "decoding on the CPU" in screen
    assert screens["watch"] == screens["watch.jsonl"]


@pytest.mark.parametrize("name", SWEEPS)
def test_a_stored_result_is_still_valid(name: str) -> None:
    jsonschema.validate(stored(name, "result.json"), schema("sweep.schema.json"))


def test_the_lines_of_a_stored_log_are_still_valid() -> None:
    kinds = set()
    for line in lines("watch.jsonl"):
        jsonschema.validate(line, schema("watch.schema.json"))
        kinds.add(line["kind"])
    assert kinds == {"start", "window", "stall", "end"}


def test_two_runs_are_compared(command: Command, tmp_path: Path) -> None:
    target = tmp_path / "comparison.json"
    command("compare", RUNS / "sweep", RUNS / "interrupted", "--json", target)
    found = json.loads(target.read_text())
    names = {difference["name"] for difference in found["differences"]}
    assert {"ceiling", "pillow-w0-p0-b16", "opencv-w1-p2-b16"} <= names
    assert found["recommended"] == ["opencv-w1-p2-b16-thread", "opencv-w1-p2-b16"]
    changed = {change["name"]: (change["before"], change["after"]) for change in found["changes"]}
    assert changed["prefetch"] == ([2], [2, 4])
    assert changed["fix"] == ([], [["channels_last", True]])
    assert "job" in command("compare", RUNS / "watch", RUNS / "watch.jsonl")


def test_options_for_resuming_are_read() -> None:
    resumed = read_resumed(RUNS / "interrupted", {})
    chosen = resumed.chosen
    assert (chosen.dataset, chosen.device) == ("synthetic:caltech256?n=200", "emulated:900")
    assert (chosen.batch_size, chosen.seconds, chosen.blocks, chosen.grid) == (16, 0.5, 3, False)
    assert (chosen.workers, chosen.backends) == ((0, 1), ("pillow", "opencv"))
    assert chosen.vary == ("transfer", "start_method", "allocator")
    assert chosen.fix == (("channels_last", True),)
    assert read_resumed(RUNS / "sweep", {}).chosen.budget_s == 40.0
    assert len(resumed.outcomes) == len(lines("interrupted", "outcomes.jsonl"))
    assert resumed.problems == ()


def test_a_failure_is_measured_again_when_resumed() -> None:
    resumed = read_resumed(RUNS / "sweep", {"batch_size": 16})
    assert all(outcome.measurement is not None for outcome in resumed.outcomes)
    assert len(resumed.outcomes) == len(lines("sweep", "outcomes.jsonl")) - 1


def test_the_options_of_a_sweep_of_ones_own_loader_are_read() -> None:
    chosen = read_resumed(RUNS / "own", {}).chosen
    assert chosen.dataset == "own:make_loader(batch_size, num_workers, prefetch_factor)"
    assert make_loader.arguments_in(chosen.dataset) == ("batch_size", "num_workers", "prefetch_factor")


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="its bytecode is that of Python 3.11")
def test_a_loader_of_ones_own_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="the loader is torch's")
    monkeypatch.setattr(sys, "path", [*sys.path])
    mine = tmp_path / make_loader.FILE  # whoever has checked the project out
    mine.write_bytes((RUNS / "own" / make_loader.FILE).read_bytes())
    mine.chmod(0o600)
    made = make_loader.unpack(mine)
    batches = made(num_workers=0, prefetch_factor=None, batch_size=16)
    images, _ = next(iter(batches))
    assert tuple(images.shape) == (16, 3, 32, 32)
    assert pickle.loads((RUNS / "own" / make_loader.FILE).read_bytes())["name"] == "make_loader"


def test_a_run_without_a_result_is_concluded_from_its_outcomes(tmp_path: Path, command: Command) -> None:
    for name in ("run.json", "outcomes.jsonl"):
        (tmp_path / name).write_bytes((RUNS / "sweep" / name).read_bytes())
    run: Run = pipetune.load(tmp_path)
    assert run.problems == ("it did not come to its end: it has no result.json",)
    assert "opencv, 1 thread" in command("report", tmp_path)
