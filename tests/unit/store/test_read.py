from __future__ import annotations

import errno
import json
import re
from pathlib import Path

import pytest

from pipetune.errors import PipetuneError, UsageError
from pipetune.records.sweep import SCHEMA, to_dict
from pipetune.store.folder import RunFolder, load_run, open_run
from tests.unit.samples import failed, outcome


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A finished run of two outcomes in a folder ``runs``."""
    path = tmp_path / "runs" / "first"
    path.mkdir(parents=True)
    with RunFolder(path) as folder:
        folder.write_json("run.json", {"dataset": "images"})
        folder.append_outcome(outcome(1))
        folder.append_outcome(failed(2))
    return path


def add(path: Path, line: str | bytes) -> None:
    with (path / "outcomes.jsonl").open("ab") as file:
        file.write(line if isinstance(line, bytes) else line.encode())


def changed(**changes: object) -> str:
    return json.dumps({**to_dict(outcome(3)), **changes}) + "\n"


@pytest.mark.thorough
def test_a_run_cut_off_at_any_byte_keeps_every_whole_line_and_can_go_on(run: Path) -> None:
    content = (run / "outcomes.jsonl").read_bytes()
    first = content.index(b"\n") + 1
    for size in range(first, len(content)):
        (run / "outcomes.jsonl").write_bytes(content[:size])
        stored = load_run(run)
        assert stored.outcomes == (outcome(1),)
        cut = ("outcomes.jsonl line 2 was left out: it was not written to its end",)
        assert stored.problems == (cut if size > first else ())
    with open_run(run) as folder:
        folder.append_outcome(outcome(3))
    assert load_run(run).outcomes == (outcome(1), outcome(3))
    assert load_run(run).problems == ()


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{broken\n", "Expecting property name"),
        ("\n", "it is empty"),
        (b"\xff\xfe{}\n", "can't decode"),
        ("[1, 2]\n", r"an object was expected, not '\[1, 2\]'"),
        ("[" * 100_000 + "\n", "it is nested too deeply"),
        (changed(wall_s=float("nan")), "NaN is not JSON"),
        ("{}\n", "candidate is missing"),
        (changed(candidate="opencv"), "candidate: expected object, got str"),
        (changed(measurement=None), "a measurement or a failure, and not both"),
        (changed(failure=to_dict(failed())["failure"]), "a measurement or a failure, and not both"),
        (changed(measurement=7), "measurement: expected object"),
        (changed(attempt="2"), "attempt: expected int, got str"),
        (changed(wall_s=True), "wall_s: expected float, got bool"),
        (changed(measurement={"samples_per_s": "fast"}), r"measurement\.samples_per_s: expected float, got str"),
        (changed(measurement={}), r"measurement\.samples_per_s is missing"),
    ],
)
def test_a_damaged_line_is_left_out_and_reported(run: Path, line: str | bytes, problem: str) -> None:
    add(run, line)
    add(run, changed())
    stored = load_run(run)
    assert stored.outcomes == (outcome(1), failed(2), outcome(3))
    assert len(stored.problems) == 1
    assert stored.problems[0].startswith("outcomes.jsonl line 3 was left out: ")
    assert re.search(problem, stored.problems[0])


def test_unknown_fields_are_ignored_and_reported_once(run: Path) -> None:
    data = to_dict(outcome(3))
    data["colour"] = 1
    data["measurement"]["tokens_per_s"] = 2
    data["measurement"]["versions"]["new-package"] = "1.0"
    for _ in range(2):
        add(run, json.dumps(data) + "\n")
    stored = load_run(run)
    assert len(stored.outcomes) == 4
    assert stored.problems == ("outcomes.jsonl has fields that this version ignores: colour, measurement.tokens_per_s",)


def test_a_newer_schema_is_reported_once_and_read_as_far_as_it_goes(run: Path) -> None:
    for _ in range(2):
        add(run, changed(schema=SCHEMA + 1))
    stored = load_run(run)
    assert len(stored.outcomes) == 4
    assert stored.problems == (
        f"outcomes.jsonl was written in schema {SCHEMA + 1}, this version reads {SCHEMA}: upgrade pipetune",
    )


def test_empty_files_are_reported(run: Path) -> None:
    (run / "run.json").write_bytes(b"")
    (run / "outcomes.jsonl").write_bytes(b"")
    stored = load_run(run)
    assert (stored.run, stored.outcomes) == ({}, ())
    assert stored.problems == (
        "run.json was left out: it is empty",
        "outcomes.jsonl is empty: nothing was measured to its end",
    )


def test_missing_files_are_reported(run: Path) -> None:
    (run / "run.json").unlink()
    stored = load_run(run)
    assert (stored.run, len(stored.outcomes), stored.problems) == ({}, 2, ("run.json is missing",))
    (run / "run.json").write_text('{"schema": 1}')
    (run / "outcomes.jsonl").unlink()
    assert load_run(run).problems == ("outcomes.jsonl is missing: nothing was measured to its end",)


def test_a_damaged_run_file_does_not_hide_the_outcomes(run: Path) -> None:
    (run / "run.json").write_text('{"dataset": "ima')
    stored = load_run(run)
    assert stored.run == {}
    assert len(stored.outcomes) == 2
    assert stored.problems[0].startswith("run.json was left out: Unterminated string")


def test_a_file_that_cannot_be_read_is_an_error(run: Path) -> None:
    (run / "outcomes.jsonl").unlink()
    (run / "outcomes.jsonl").mkdir()
    with pytest.raises(PipetuneError, match=r"cannot read .*outcomes.jsonl: Is a directory; check its permissions"):
        load_run(run)


def test_a_run_of_somebody_else_s_says_how_it_can_be_shared(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("pipetune.store.read.os.stat", refuse)  # root may read everything
    with pytest.raises(PipetuneError, match=r"may not be read by you") as caught:
        load_run(run)
    assert caught.value.hint == f"its owner can share it: chmod -R go+rX {run}"


def test_what_is_no_run_folder(run: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"there is no folder {tmp_path}/nowhere; name one that a sweep wrote"):
        load_run(tmp_path / "nowhere")
    with pytest.raises(UsageError, match=r"run\.json is not a run folder"):
        load_run(run / "run.json")
    with pytest.raises(UsageError, match=f"{run.parent} is not a run folder: it has no run.json; did you mean {run}?"):
        load_run(run.parent)
