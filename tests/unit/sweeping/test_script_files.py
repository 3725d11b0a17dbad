from __future__ import annotations

import json
import os
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import pytest

from pipetune.errors import PipetuneError, UsageError
from pipetune.protection.state import ProtectionFolder
from pipetune.records.written import OVERLAY, SUPERVISED, WrittenFiles
from pipetune.runs.open_sweeps import note_sweep
from pipetune.store.folder import RunFolder, create_run
from pipetune.sweeping import script_files as module
from pipetune.sweeping.script_files import ScriptFiles


class FakeProtection:
    """Protection that says what a test wants it to say."""

    mechanism = OVERLAY

    def __init__(self, written: WrittenFiles | OSError) -> None:
        self._written = written
        self.calls: list[str] = []

    def wrap(self, command: Sequence[str]) -> list[str]:
        return list(command)

    def variables(self) -> dict[str, str]:
        return {}

    def pulse_fd(self) -> int:
        return 0

    def collect(self) -> WrittenFiles:
        self.calls.append("collect")
        if isinstance(self._written, OSError):
            raise self._written
        return self._written

    def close(self) -> None:
        self.calls.append("close")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return create_run(tmp_path / "run", dataset_name="x", now=datetime(2026, 1, 1))


def protected(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch, written: WrittenFiles | OSError
) -> tuple[ScriptFiles, FakeProtection]:
    protection = FakeProtection(written)
    monkeypatch.setattr(module, "choose_protection", lambda *_: protection)
    return ScriptFiles(folder, ["python"], allow_writes=False), protection


WRITTEN = WrittenFiles(mechanism=OVERLAY, created=("/job/new",), changed=("/job/model.pt",))


def test_files_are_put_back_once(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    files, protection = protected(folder, monkeypatch, WRITTEN)
    with files:
        assert files.settle() == WRITTEN
    assert files.settle() == WRITTEN
    assert protection.calls == ["collect", "close"]
    assert json.loads((folder.path / "written.json").read_text())["changed"] == ["/job/model.pt"]


@pytest.mark.parametrize("error", [PipetuneError("it failed"), KeyboardInterrupt(), ZeroDivisionError()])
def test_every_error_says_what_was_written(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    files, _ = protected(folder, monkeypatch, WRITTEN)
    with pytest.raises(type(error)), files:
        raise error
    notes = getattr(error, "__notes__", [])
    assert any("/job/model.pt" in note for note in notes)
    assert any("/job/new" in note for note in notes)


def test_nothing_written_leaves_no_file_and_no_note(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    files, _ = protected(folder, monkeypatch, WrittenFiles(mechanism=OVERLAY))
    error = PipetuneError("it failed")
    with pytest.raises(PipetuneError), files:
        raise error
    assert not hasattr(error, "__notes__")
    assert not (folder.path / "written.json").exists()


def test_a_disk_that_refuses_is_told(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    files, protection = protected(folder, monkeypatch, OSError(28, "No space left on device"))
    with files:
        (note,) = files.settle().notes
    assert "No space left" in note
    assert str(folder.path) in note
    assert protection.calls == ["collect", "close"]


def test_writes_that_are_allowed_are_listed(folder: RunFolder, tmp_path: Path) -> None:
    (tmp_path / "model.pt").write_text("mine")
    with ScriptFiles(folder, ["python"], allow_writes=True) as files:
        assert files.protection is None
        (tmp_path / "model.pt").write_text("changed")
        (tmp_path / "new").touch()
    written = files.settle()
    assert (written.mechanism, written.changed) == ("none", (str(tmp_path / "model.pt"),))
    assert written.created == (str(tmp_path / "new"),)


@pytest.mark.parametrize(("other_began_first", "is_refused"), [(True, True), (False, False)])
def test_of_two_sweeps_that_begin_at_a_time_the_later_one_gives_way(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, other_began_first: bool, is_refused: bool
) -> None:
    other = create_run(tmp_path / "other", dataset_name="x", now=datetime(2026, 1, 1))
    begun = [ProtectionFolder(run.path) for run in (other, folder)]
    for protection in begun:
        protection.write_state(SUPERVISED, {})
    note_sweep(other.path, [str(tmp_path)])
    note = next((tmp_path / "data/pipetune/open-sweeps").iterdir())
    time_s = 0 if other_began_first else 1 << 32
    os.utime(note, (time_s, time_s))
    if is_refused:
        with pytest.raises(UsageError, match="still runs, and puts files"):
            protected(folder, monkeypatch, WRITTEN)
    else:
        protected(folder, monkeypatch, WRITTEN)
    for protection in begun:
        protection.close()
    other.close()
