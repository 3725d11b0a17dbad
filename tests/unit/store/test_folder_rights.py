"""Who may read what pipetune writes about a run: this user, whatever the umask is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from pipetune.records.observation import Reading
from pipetune.records.watch import WatchStart
from pipetune.store.folder import RunFolder, create_run
from pipetune.store.watch_log import WatchLog
from tests.unit.samples import measured, sample


@pytest.fixture(autouse=True)
def generous_umask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    before = os.umask(0)
    yield
    os.umask(before)


def fill(folder: RunFolder) -> None:
    with folder:
        folder.write_json("run.json", {})
        folder.append_outcome(measured())
        folder.append_timeline("main", "reading", [sample(Reading)])


def modes(folder: Path) -> dict[str, int]:
    found = {path.name: path.stat().st_mode & 0o777 for path in folder.rglob("*")}
    assert set(found) == {"lock", "run.json", "outcomes.jsonl", "timelines", "main.jsonl"}
    return found


@pytest.mark.parametrize("out", [None, Path("mine")])
def test_a_new_run_folder_is_for_this_user_alone(out: Path | None) -> None:
    folder = create_run(out, dataset_name="images", now=datetime(2026, 1, 1))
    fill(folder)
    assert folder.path.stat().st_mode & 0o777 == 0o700
    assert all(mode == (0o700 if name == "timelines" else 0o600) for name, mode in modes(folder.path).items())


def test_a_folder_that_was_there_keeps_its_rights_and_its_files_are_private() -> None:
    Path("mine").mkdir()
    fill(create_run(Path("mine"), dataset_name="images", now=datetime(2026, 1, 1)))
    assert Path("mine").stat().st_mode & 0o777 == 0o777
    assert {mode & 0o077 for mode in modes(Path("mine")).values()} == {0}


def test_a_new_log_is_for_this_user_alone_and_another_keeps_its_rights() -> None:
    Path("old.jsonl").touch()
    for name in ("new.jsonl", "old.jsonl"):
        WatchLog(None, Path(name)).start(sample(WatchStart))
    assert [Path(name).stat().st_mode & 0o777 for name in ("new.jsonl", "old.jsonl")] == [0o600, 0o666]
