from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from pipetune.errors import PipetuneError, UsageError
from pipetune.records.observation import Reading
from pipetune.records.sweep import SCHEMA, StepTime
from pipetune.store import run_lock
from pipetune.store.columns import load_columns
from pipetune.store.folder import RunFolder, check_out, create_run, load_run, open_run, slug
from tests import ROOT
from tests.unit.samples import failed, measured, outcome, sample

NOW = datetime(2026, 1, 31, 18, 45, 7)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[RunFolder]:
    with create_run(tmp_path / "run", dataset_name="images", now=NOW) as opened:
        yield opened


def test_the_default_folder_is_named_after_time_and_data_set(here: Path) -> None:
    with create_run(None, dataset_name="/data/ImageNet", now=NOW) as opened:
        assert opened.path == Path("pipetune-runs/20260131-184507-data-imagenet")
        assert (here / opened.path).is_dir()


def test_runs_that_start_in_the_same_second_get_folders_of_their_own(here: Path) -> None:
    runs = [create_run(None, dataset_name="a", now=NOW) for _ in range(3)]
    names = [run.path.name for run in runs]
    assert names == ["20260131-184507-a", "20260131-184507-a-2", "20260131-184507-a-3"]
    for run in runs:
        run.close()


@pytest.mark.parametrize("link", [True, False])
def test_a_runs_folder_that_cannot_be_one(here: Path, link: bool) -> None:
    if link:
        Path("pipetune-runs").symlink_to("nowhere")
    else:
        Path("pipetune-runs").write_text("")
    with pytest.raises(PipetuneError, match="cannot create pipetune-runs/20260131-184507-a: "):
        create_run(None, dataset_name="a", now=NOW)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("/data/imagenet/train/", "imagenet-train"),
        ("synthetic:images=100,size=500x375", "synthetic-images-100-size-500x375"),
        ("../../etc/passwd", "etc-passwd"),
        ("..", "dataset"),
        ("/", "dataset"),
        ("", "dataset"),
        ("数据", "dataset"),
        ("Bänke & Stühle", "banke-stuhle"),
        ("a\x00b\nc", "a-b-c"),
        ("-rf *", "rf"),
        ("\udcff\udcfe", "dataset"),
        ("x" * 300, "x" * 40),
        ("x" * 39 + "/yyy", "x" * 39),
    ],
)
def test_slug(name: str, expected: str) -> None:
    assert slug(name) == expected


@pytest.mark.parametrize("was_there", [False, True])
def test_a_folder_that_was_not_used_is_removed_with_what_was_made_for_it(here: Path, was_there: bool) -> None:
    if was_there:
        (here / "pipetune-runs").mkdir()
    with create_run(None, dataset_name="photos", now=datetime(2026, 1, 31)) as run:
        run.remove_unless_used()
    assert (here / "pipetune-runs").exists() is was_there


def test_out_may_be_new_or_empty(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for out in (tmp_path / "empty", tmp_path / "deep" / "new"):
        with create_run(out, dataset_name="a", now=NOW) as opened:
            assert opened.path == out
            assert out.is_dir()


def test_out_that_is_not_empty_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match=f"--out {tmp_path} is not empty; name a new folder"):
        create_run(tmp_path, dataset_name="a", now=NOW)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_out_that_is_a_file(tmp_path: Path) -> None:
    out = tmp_path / "file"
    out.write_text("mine")
    with pytest.raises(UsageError, match="is not a folder; name a new or empty folder"):
        create_run(out, dataset_name="a", now=NOW)
    assert out.read_text() == "mine"


@pytest.mark.parametrize("others", [(), ("notes.txt",)])
@pytest.mark.parametrize("content", ["mine", "", "4242", "4242\n"])
def test_somebody_elses_lock_file_is_left_alone(tmp_path: Path, others: tuple[str, ...], content: str) -> None:
    for name in ("lock", *others):
        (tmp_path / name).write_text(content)
    before = os.stat(tmp_path / "lock")
    with pytest.raises(UsageError, match=f"--out {tmp_path} is not empty; name a new folder"):
        create_run(tmp_path, dataset_name="a", now=NOW)
    after = os.stat(tmp_path / "lock")
    assert (tmp_path / "lock").read_text() == content
    assert (after.st_mtime_ns, after.st_ino) == (before.st_mtime_ns, before.st_ino)
    assert {path.name for path in tmp_path.iterdir()} == {"lock", *others}


def test_a_lock_that_is_no_file_is_left_alone(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("4242")
    for number, make in enumerate((os.mkdir, os.mkfifo, lambda path: os.symlink(victim, path))):
        out = tmp_path / str(number)
        out.mkdir()
        make(out / "lock")
        with pytest.raises(UsageError, match="is not empty"):
            create_run(out, dataset_name="a", now=NOW)
    (out / "run.json").write_text("{}")
    with pytest.raises(PipetuneError, match=r"cannot lock .*/lock: Too many levels of symbolic links"):
        open_run(out)
    assert victim.read_text() == "4242"


@pytest.mark.parametrize("content", ["", "4242\n", "pipetune 4242\n"])
def test_the_lock_of_a_run_is_taken_whichever_version_wrote_it(tmp_path: Path, content: str) -> None:
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / "lock").write_text(content)
    with open_run(tmp_path):
        assert (tmp_path / "lock").read_text() == f"pipetune {os.getpid()}\n"


def test_another_programs_lock_beside_a_run_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / "lock").write_text("mine")
    with pytest.raises(UsageError, match=r"lock is not pipetune's; name another folder"):
        open_run(tmp_path)
    assert (tmp_path / "lock").read_text() == "mine"


def test_out_given_up_before_anything_was_measured_may_be_used_again(tmp_path: Path) -> None:
    create_run(tmp_path / "run", dataset_name="a", now=NOW).close()
    with create_run(tmp_path / "run", dataset_name="a", now=NOW) as opened:
        opened.append_outcome(outcome())
    with pytest.raises(UsageError, match="is not empty"):
        create_run(tmp_path / "run", dataset_name="a", now=NOW)


def test_out_is_free_again_after_a_disk_was_too_full_for_its_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(run_lock.os, "pwrite", full)
        with pytest.raises(PipetuneError, match="No space left"):
            create_run(tmp_path / "run", dataset_name="a", now=NOW)
    create_run(tmp_path / "run", dataset_name="a", now=NOW).close()


def test_a_place_is_refused_before_anything_is_done_and_nothing_is_made(tmp_path: Path) -> None:
    check_out(None)
    check_out(tmp_path / "new")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UsageError, match="is not empty"):
        check_out(tmp_path)
    with pytest.raises(UsageError, match="is not a folder"):
        check_out(tmp_path / "file")


def test_a_folder_where_the_system_allows_none() -> None:
    with pytest.raises(PipetuneError, match=r"cannot create /sys/pipetune-run: .*; check its permissions"):
        create_run(Path("/sys/pipetune-run"), dataset_name="a", now=NOW)


def test_a_second_process_sees_who_holds_the_folder_until_that_one_dies(tmp_path: Path) -> None:
    program = (
        "import pathlib, sys, time; from pipetune.store.folder import RunFolder; from pipetune.records.sweep import *;"
        "run = RunFolder(pathlib.Path(sys.argv[1])); run.write_json('run.json', {}); print('locked', flush=True);"
        "time.sleep(60)"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        message = f"{tmp_path} is in use by process {holder.pid}; wait for it to end"
        with pytest.raises(UsageError, match=message):
            open_run(tmp_path)
        with pytest.raises(UsageError, match=message):
            create_run(tmp_path, dataset_name="a", now=NOW)
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.communicate()
    with open_run(tmp_path):
        assert (tmp_path / "lock").read_text() == f"pipetune {os.getpid()}\n"


def test_closing_gives_the_lock_back_once(folder: RunFolder) -> None:
    folder.write_json("run.json", {})
    with pytest.raises(UsageError, match=f"in use by process {os.getpid()};"):
        open_run(folder.path)
    folder.close()
    with open_run(folder.path):
        folder.close()
        with pytest.raises(UsageError, match="in use"):
            open_run(folder.path)


def test_open_run_refuses_what_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a run folder"):
        open_run(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_outcomes_come_back_in_order_as_they_were(folder: RunFolder) -> None:
    folder.write_json("run.json", {"goal": {"target": 0.9, "metric": "goodput"}})
    written = (outcome(1), failed(2), outcome(3))
    for one in written:
        folder.append_outcome(one)
    stored = load_run(folder.path)
    assert stored.outcomes == written
    assert stored.problems == ()
    assert stored.run == {"schema": SCHEMA, "goal": {"target": 0.9, "metric": "goodput"}}


def test_every_line_is_on_the_disk_before_the_next_candidate(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.fstat(fd).st_size))
    folder.append_outcome(outcome(1))
    assert (folder.path / "outcomes.jsonl").stat().st_size in synced
    folder.append_outcome(outcome(2))
    assert (folder.path / "outcomes.jsonl").stat().st_size in synced


def test_a_number_that_json_cannot_hold_is_named_and_nothing_is_written(folder: RunFolder) -> None:
    folder.append_outcome(outcome(1))
    before = (folder.path / "outcomes.jsonl").read_bytes()
    with pytest.raises(PipetuneError) as caught:
        folder.append_outcome(measured(ci95=(1.0, float("inf"))))
    assert str(caught.value) == (
        "outcome of opencv-w1-p2-b64: measurement.ci95[1] is inf; a value that was not measured has to be None"
    )
    with pytest.raises(PipetuneError, match=r"run.json: best.goodput is nan; "):
        folder.write_json("run.json", {"best": {"goodput": float("nan")}})
    assert (folder.path / "outcomes.jsonl").read_bytes() == before
    assert not (folder.path / "run.json").exists()


def test_text_that_is_not_unicode_survives(folder: RunFolder) -> None:
    folder.write_json("run.json", {"dataset": "/data/\udcff"})
    assert load_run(folder.path).run["dataset"] == "/data/\udcff"


def test_write_json_replaces_the_whole_file(folder: RunFolder) -> None:
    folder.write_json("run.json", {"long": "x" * 10000})
    folder.write_json("run.json", {"short": 1})
    assert json.loads((folder.path / "run.json").read_text()) == {"schema": SCHEMA, "short": 1}
    assert sorted(path.name for path in folder.path.iterdir()) == ["lock", "run.json"]


def test_the_result_of_a_sweep_that_goes_on_is_removed(folder: RunFolder) -> None:
    folder.remove_result()  # there is none
    folder.write_json("result.json", {"status": "target_met"})
    folder.remove_result()

    assert not (folder.path / "result.json").exists()


def test_timelines_come_back_by_kind(folder: RunFolder) -> None:
    readings, steps = [sample(Reading, t_ns=t) for t in (1, 2)], [sample(StepTime, samples=n) for n in (3, 4, 5)]
    folder.append_timeline("opencv-w2-p4-b64", "reading", readings[:1])
    folder.append_timeline("opencv-w2-p4-b64", "step", steps)
    folder.append_timeline("opencv-w2-p4-b64", "reading", readings[1:])
    folder.append_timeline("other", "step", steps[:1])
    folder.close_timeline("opencv-w2-p4-b64")
    lines = (folder.path / "timelines" / "opencv-w2-p4-b64.jsonl").read_text().splitlines()
    assert [json.loads(line)["kind"] for line in lines] == ["reading", "step", "step", "step", "reading"]
    stored = load_columns(folder.path, "opencv-w2-p4-b64")
    assert stored.problems == ()
    assert stored.readings["t_ns"].tolist() == [1, 2]
    assert stored.steps["samples"].tolist() == [3, 4, 5]


def test_closing_a_timeline_syncs_it_and_one_that_was_never_begun_is_none(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(Path(os.readlink(f"/proc/self/fd/{fd}")).name))
    folder.append_timeline("a", "step", [sample(StepTime)])
    assert synced == []
    folder.close_timeline("a")
    assert synced == ["a.jsonl", "timelines"]
    folder.close_timeline("b")
    assert [path.name for path in (folder.path / "timelines").iterdir()] == ["a.jsonl"]


@pytest.mark.parametrize("name", ["", "..", "a/b", ".hidden", "a\nb", "x" * 300])
def test_names_that_are_not_safe_as_files(folder: RunFolder, name: str) -> None:
    with pytest.raises(ValueError, match="is not safe as a file name"):
        folder.append_timeline(name, "step", [sample(StepTime)])
    with pytest.raises(ValueError, match="is not safe as a file name"):
        folder.write_json(name, {})
    assert [path.name for path in folder.path.iterdir()] == ["lock"]
