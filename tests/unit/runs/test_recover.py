from __future__ import annotations

import errno
import json
import os
import warnings
from datetime import datetime
from pathlib import Path

import pytest

from pipetune.errors import PipetuneError, PipetuneWarning, UsageError
from pipetune.protection.state import ProtectionFolder
from pipetune.records.written import OVERLAY, SUPERVISED
from pipetune.runs.recover import RecoveredFilesWarning, recover_all, recover_files
from pipetune.store.folder import RunFolder, create_run


@pytest.fixture
def killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run folder as an overlay leaves it that was killed: a new file is in its layer."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job").mkdir()
    with create_run(None, dataset_name="x", now=datetime(2026, 1, 1)) as folder:
        run = folder.path.resolve()
    protection = ProtectionFolder(run)
    stored = protection.path / "layers" / "0"
    (stored / "upper").mkdir(parents=True)
    (stored / "upper" / "new").write_text("made")
    protection.write_state(
        OVERLAY,
        {
            "base": "layers",
            "attributes": "user.overlay.",
            "began_ns": 0,
            "layers": {"0": str(tmp_path / "job")},
        },
    )
    protection.close(keep=True)
    return run


def test_new_files_get_to_their_place_and_that_is_said(killed: Path, tmp_path: Path) -> None:
    with pytest.warns(RecoveredFilesWarning, match="was killed: the script made 1 new file: job/new"):
        recover_files(killed)
    assert (tmp_path / "job" / "new").read_text() == "made"
    assert json.loads((killed / "written.json").read_text())["created"] == [str(tmp_path / "job" / "new")]
    assert not (killed / "protection").exists()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        recover_files(killed)


def test_a_run_folder_that_was_moved_meanwhile(killed: Path, tmp_path: Path) -> None:
    moved = killed.rename(tmp_path / "elsewhere")
    with pytest.warns(RecoveredFilesWarning, match="1 new file"):
        recover_files(moved)
    assert (tmp_path / "job" / "new").read_text() == "made"


def test_a_new_sweep_in_the_same_folder_does_it_too(killed: Path, tmp_path: Path) -> None:
    with pytest.warns(RecoveredFilesWarning):
        recover_all(None)
    assert (tmp_path / "job" / "new").exists()


def test_a_sweep_that_runs_is_left_alone(killed: Path, tmp_path: Path) -> None:
    with RunFolder(killed):
        recover_files(killed)
    assert not (tmp_path / "job" / "new").exists()
    assert (killed / "protection").exists()


def test_a_sweep_beside_one_that_puts_files_back_at_its_end(killed: Path) -> None:
    with RunFolder(killed):
        recover_all(None)
        state = killed / "protection" / "state.json"
        state.write_text(state.read_text().replace(OVERLAY, SUPERVISED))
        with pytest.raises(UsageError, match="still runs, and puts files of this folder back"):
            recover_all(None)


def test_what_others_may_have_written_is_not_done(killed: Path, tmp_path: Path) -> None:
    killed.chmod(0o777)
    with pytest.warns(PipetuneWarning, match="others may write"):
        recover_files(killed)
    assert not (tmp_path / "job" / "new").exists()


def test_what_another_version_has_left_is_kept(killed: Path) -> None:
    state = killed / "protection" / "state.json"
    state.write_text(state.read_text().replace('"schema": 1', '"schema": 99'))
    with pytest.raises(PipetuneError, match="cannot be read"):
        recover_files(killed)
    assert (killed / "protection" / "layers" / "0" / "upper" / "new").exists()


@pytest.mark.parametrize("has_locks", [True, False])
def test_a_sweep_that_runs_where_locks_do_not_tell(
    killed: Path, tmp_path: Path, has_locks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = killed / "protection" / "state.json"
    if has_locks:  # each machine has its own
        content = json.loads(state.read_text())
        state.write_text(json.dumps(content | {"boot": "of another machine"}))
    else:
        monkeypatch.setattr("pipetune.protection.state.fcntl.flock", _refuse)
    with pytest.raises(PipetuneError, match="still run"):
        recover_files(killed)
    assert not (tmp_path / "job" / "new").exists()
    os.utime(killed / "protection" / "lock", (1, 1))
    with pytest.warns(RecoveredFilesWarning):
        recover_files(killed)
    assert (tmp_path / "job" / "new").exists()


def _refuse(*_: object) -> None:
    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
