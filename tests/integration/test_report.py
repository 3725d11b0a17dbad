"""``pipetune report`` and ``pipetune compare`` as a user calls them, on stored runs and on one that was really made."""

from __future__ import annotations

import csv
import io
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pipetune.__main__ import main
from pipetune.runs.load import load
from tests.fakes import outcome
from tests.integration.commands import python, run
from tests.run_folders import CEILING, DEFAULT, TIMED, TUNED, sweep_folder, watch_folder
from tests.trace_format import checked_trace
from tests.watch_fakes import stall, window

Report = Callable[..., tuple[int, str, str]]


@pytest.fixture
def report(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Report:
    """Calls the command; in this process, which has imported pandas and matplotlib already."""

    def call(*arguments: object) -> tuple[int, str, str]:
        capfd.readouterr()
        monkeypatch.setattr(sys, "argv", ["pipetune", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        code = ended.value.code or 0
        assert isinstance(code, int)
        return code, *capfd.readouterr()

    return call


def in_a_process(*arguments: object, **environment: str) -> tuple[int, str, str]:
    done = run([*python(), *map(str, arguments)], **environment)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    return sweep_folder(tmp_path / "run")


@pytest.mark.slow
def test_a_real_sweep_becomes_a_trace_whose_stalls_add_up_and_a_page(starved: Path, tmp_path: Path) -> None:
    out = starved / "run"
    written = json.loads((out / "result.json").read_text())

    code, _, errors = in_a_process("report", out, "--trace", tmp_path / "t.json", "--html", tmp_path / "p.html")

    assert (code, errors) == (0, "")
    events = checked_trace((tmp_path / "t.json").read_text())["traceEvents"]
    processes = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    for found in (written["baseline"], written["ceiling"]):
        name = "ceiling" if found["role"] == "ceiling" else found["key"]
        name += f"-again{found['attempt']}" if found["attempt"] > 1 else ""
        own = [e for e in events if processes[e["pid"]] == name and e["ph"] == "X" and e["tid"] == 3]
        idle_s = found["accelerator_idle_frac"] * found["timed_s"]
        assert sum(event["dur"] for event in own) / 1e6 == pytest.approx(idle_s, abs=1e-6)
    assert written["baseline"]["accelerator_idle_frac"] > 0.2
    assert f"{written['baseline']['samples_per_s']}" in (tmp_path / "p.html").read_text()


def test_the_screen_shows_the_ranking_and_the_verdict(sweep: Path) -> None:
    code, out, _ = in_a_process("report", sweep)

    assert code == 0
    assert "> opencv, 2 workers" in out
    assert "Recommended: opencv, 2 workers" in out


def test_markdown_and_csv(report: Report, sweep: Path) -> None:
    _, text, _ = report("report", sweep, "--markdown")
    assert "| **opencv, 2 workers, prefetch 2** | 1,240/s ±2.0 % |" in text
    assert "&lt;script&gt;" in text  # the data set of the fixture

    _, table, _ = report("report", sweep, "--csv")
    rows = list(csv.DictReader(io.StringIO(table)))
    assert [row["samples_per_s"] for row in rows] == ["1250.0", "640.0", "1240.0"]
    assert rows[0]["goodput"] == ""


def test_files_replace_what_was_there_and_leave_nothing_beside(report: Report, sweep: Path, tmp_path: Path) -> None:
    target = tmp_path / "files"
    target.mkdir()
    (target / "page.html").write_text("old")
    assert report("report", sweep, "--html", target / "page.html")[0] == 0
    assert (target / "page.html").read_text().startswith("<!doctype html>")
    assert [path.name for path in target.iterdir()] == ["page.html"]
    assert report("report", sweep, "--html", "-")[1] == (target / "page.html").read_text()


def test_a_watch_and_its_log(report: Report, tmp_path: Path) -> None:
    log = tmp_path / "watch.jsonl"
    path = watch_folder(tmp_path / "run", [window()], [stall()], log=log)
    for source in (path, log):
        code, out, errors = report("report", source, "--html", tmp_path / "page.html", "--markdown")
        assert (code, errors) == (0, "")
        assert "| decoding on the CPU | 90 % | 80 to 96 % |" in out
        assert "Time lost, by cause" in (tmp_path / "page.html").read_text()
    code, out, _ = report("report", path)
    assert "pipetune watch of train.py" in out
    assert report("report", log, "--csv")[1].splitlines()[1].startswith("1,")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--html", "-", "--csv"), "--html and --csv cannot share standard output"),
        (("--markdown", "--csv"), "--markdown and --csv cannot share standard output"),
        (("--candidate", "x"), "--candidate x is for --trace"),
        (("--trace", "{tmp}/t.json", "--candidate", "x"), "has no timeline x; there are: ceiling"),
        (("--html", "{tmp}"), "is a folder"),
        (("--html", "{tmp}/a/b.html"), "does not exist"),
    ],
)
def test_mistakes_are_reported_in_one_line(
    report: Report, sweep: Path, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    code, out, errors = report("report", sweep, *(argument.format(tmp=tmp_path) for argument in arguments))

    assert (code, out) == (2, "")
    assert said in errors
    assert errors.count("\n") == 1
    assert not (tmp_path / "t.json").exists()


def test_what_is_no_run(report: Report, tmp_path: Path) -> None:
    for path, said in ((tmp_path, "is not a run folder"), (tmp_path / "x", "there is no folder")):
        code, _, errors = report("report", path)
        assert code == 2
        assert said in errors
    code, _, errors = report("compare", tmp_path, tmp_path)
    assert code == 2
    assert "is not a run folder" in errors


def damaged(path: Path, how: str) -> None:
    if how == "half-written":
        (path / "result.json").unlink()
        for file in (path / "outcomes.jsonl", *path.glob("timelines/*.jsonl")):
            file.write_bytes(file.read_bytes()[:-40])
    elif how == "broken":
        (path / "result.json").write_text("{")
        for file in path.glob("timelines/*.jsonl"):
            file.write_bytes(b"\0\xff broken\n" + file.read_bytes())
    elif how == "no timelines":
        shutil.rmtree(path / "timelines")
    elif how == "older":
        for file in (path / "outcomes.jsonl", *path.glob("timelines/*.jsonl")):
            lines = [json.loads(line) for line in file.read_text().splitlines()]
            for line in lines:
                line.pop("schema")
                line.pop("h2d_s", None)
                line.pop("tick_cost_s", None)
            file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    elif how == "newer":
        for file in path.glob("*.json*"):
            file.write_text(file.read_text().replace('"schema": 1', '"schema": 2, "colour": 3'))


@pytest.mark.parametrize("how", ["half-written", "broken", "no timelines", "older", "newer"])
def test_of_a_damaged_run_everything_that_can_be_read_is_shown(
    report: Report, sweep: Path, tmp_path: Path, how: str
) -> None:
    damaged(sweep, how)

    code, out, errors = report("report", sweep)
    assert code == 0, errors
    assert "pillow, no workers" in out
    assert ("! " in out) == (how not in ("older", "no timelines"))
    code, _, errors = report("report", sweep, "--html", tmp_path / "p.html", "--trace", tmp_path / "t.json")
    assert code == 0, errors
    assert "Traceback" not in errors
    page = (tmp_path / "p.html").read_text()
    assert "640/s" in page
    checked_trace((tmp_path / "t.json").read_text())
    assert load(sweep).frame()["samples_per_s"].tolist()[:2] == [1250.0, 640.0]


def test_an_empty_run(report: Report, tmp_path: Path) -> None:
    path = sweep_folder(tmp_path / "run", [], result=False)

    code, _out, errors = report("report", path, "--html", tmp_path / "p.html")
    assert code == 0, errors
    assert "Nothing has been measured yet." in (tmp_path / "p.html").read_text()
    (path / "run.json").unlink()
    (path / "outcomes.jsonl").write_bytes(b"")
    code, _, errors = report("report", path)
    assert code == 2
    assert "run.json is missing or damaged" in errors


def test_without_run_json_what_was_measured_is_shown(report: Report, sweep: Path, tmp_path: Path) -> None:
    (sweep / "run.json").unlink()

    code, out, _ = report("report", sweep)
    assert code == 0
    assert "run.json is missing or damaged" in out
    assert "✓ opencv, 2 workers, prefetch 2: 1,240/s" in out
    code, _, errors = report("report", sweep, "--html", tmp_path / "p.html")
    assert code == 2
    assert "run.json is missing or damaged" in errors
    assert not (tmp_path / "p.html").exists()


def test_a_link_is_written_through(report: Report, sweep: Path, tmp_path: Path) -> None:
    (tmp_path / "real.html").write_text("old")
    (tmp_path / "link.html").symlink_to(tmp_path / "real.html")

    assert report("report", sweep, "--html", tmp_path / "link.html")[0] == 0
    assert (tmp_path / "link.html").is_symlink()
    assert (tmp_path / "real.html").read_text().startswith("<!doctype html>")


def test_two_sweeps_are_compared(report: Report, sweep: Path, tmp_path: Path) -> None:
    slower = sweep_folder(tmp_path / "slower", [CEILING, DEFAULT, outcome("opencv", 2, rate=1000.0, **TIMED)])
    code, out, _ = report("compare", sweep, slower, "--json", tmp_path / "c.json", "--fail-if-worse")

    assert code == 1
    assert "opencv, 2 workers, prefetch 2: 1,240/s (1,215..1,265) -> 1,000/s (980..1,020), 0.81x" in out
    assert "worse, outside both intervals" in out
    written = json.loads((tmp_path / "c.json").read_text())
    assert [d["name"] for d in written["differences"] if d["outside"]] == [TUNED.candidate.key]
    assert report("compare", slower, sweep, "--fail-if-worse")[0] == 0
    assert json.loads(report("compare", sweep, slower, "--json", "-")[1])["kind"] == "comparison"


def test_without_the_plotting_packages_the_command_that_installs_them_is_reported(sweep: Path, tmp_path: Path) -> None:
    for name in ("pandas", "matplotlib"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('no')\n")
    code, _, errors = in_a_process("report", sweep, "--html", tmp_path / "p.html", PYTHONPATH=str(tmp_path))
    assert code == 2
    assert "pip install 'pipetune[notebook]'" in errors
    code, out, _ = in_a_process("report", sweep, PYTHONPATH=str(tmp_path))
    assert code == 0
    assert "Recommended" in out
