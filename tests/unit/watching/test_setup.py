from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue

import pytest

from pipetune.errors import PipetuneError, UsageError
from pipetune.store.folder import create_run
from pipetune.watching import setup
from pipetune.watching.find import find_target
from pipetune.watching.options import WatchOptions
from pipetune.watching.setup import check_log, describe_watch, discard, new_folder, open_exporter, open_folder


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_folder_is_named_after_the_job() -> None:
    with new_folder(None, "train a/b.py") as folder:
        assert folder.path.parent == Path("pipetune-runs")
        assert folder.path.name.endswith("-watch-train-a-b-py")


def test_nothing_is_written_where_nothing_is_saved(here: Path) -> None:
    assert open_folder(WatchOptions(save=False), "train.py", SimpleQueue()) is None
    assert list(here.iterdir()) == []


def test_a_disk_that_refuses_is_noted_unless_a_folder_was_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PipetuneError("the disk is full")

    monkeypatch.setattr(setup, "create_run", refuse)
    notes: SimpleQueue[str] = SimpleQueue()

    assert open_folder(WatchOptions(), "train.py", notes) is None
    assert notes.get_nowait() == "no run folder: the disk is full"
    with pytest.raises(PipetuneError, match="the disk is full"):
        open_folder(WatchOptions(out=Path("run")), "train.py", notes)


def test_a_folder_in_use_is_refused(here: Path) -> None:
    with create_run(here / "run", dataset_name="x", now=None), pytest.raises(UsageError, match="in use"):  # type: ignore[arg-type]
        open_folder(WatchOptions(out=here / "run"), "train.py", SimpleQueue())


def test_a_folder_without_content_is_discarded(here: Path) -> None:
    discard(new_folder(here / "run", "train.py"))
    discard(None)

    assert list(here.iterdir()) == []


def test_a_folder_with_content_is_kept(here: Path) -> None:
    folder = new_folder(here / "run", "train.py")
    folder.write_json("run.json", {})
    discard(folder)

    assert (here / "run" / "run.json").exists()


@pytest.mark.parametrize("log", [".", "missing/log.jsonl", "/proc/version"])
def test_a_log_that_cannot_be_written_is_refused(log: str) -> None:
    with pytest.raises(UsageError, match="--log"):
        check_log(Path(log))


def test_a_log_keeps_what_is_in_it(here: Path) -> None:
    (here / "log.jsonl").write_text("before\n")
    check_log(here / "log.jsonl")
    check_log(None)

    assert (here / "log.jsonl").read_text() == "before\n"


def test_a_new_log_is_for_this_user_alone(here: Path) -> None:
    check_log(here / "log.jsonl")
    assert (here / "log.jsonl").stat().st_mode & 0o777 == 0o600


def test_secrets_of_the_job_s_command_are_not_stored() -> None:
    target = find_target(os.getppid(), None)
    command = ("python", "train.py", "--wandb-key", "abc", "--lr", "0.1")
    target = replace(target, info=replace(target.info, command=command))
    found = describe_watch(target, WatchOptions())
    assert found.job_command == ("python", "train.py", "--wandb-key", "***", "--lr", "0.1")
    assert found.title == "train.py"


def test_an_exporter_only_where_one_is_asked_for() -> None:
    assert open_exporter(None) is None
    with pytest.raises(UsageError):
        open_exporter("nowhere")
