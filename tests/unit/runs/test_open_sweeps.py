from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import pytest

from pipetune.errors import UsageError
from pipetune.protection.state import ProtectionFolder
from pipetune.records.written import OVERLAY, SUPERVISED
from pipetune.runs import open_sweeps
from pipetune.runs.open_sweeps import forget_sweep, list_open_sweeps, note_sweep, refuse_other_sweeps
from pipetune.runs.recover import RecoveredFilesWarning, recover_all
from pipetune.store.folder import RunFolder, create_run

JOB = "/home/u/job"


@pytest.fixture(autouse=True)
def data_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "data"


def make_unsettled(tmp_path: Path, name: str, mechanism: str) -> Path:
    """A run folder elsewhere, as a sweep has it that is at work or was killed."""
    with create_run(tmp_path / name, dataset_name="x", now=datetime(2026, 1, 1)) as folder:
        run = folder.path.resolve()
    protection = ProtectionFolder(run)
    protection.write_state(mechanism, {"base": "layers", "attributes": "user.overlay.", "began_ns": 0, "layers": {}})
    protection.close(keep=True)
    return run


@pytest.mark.parametrize(
    ("place", "is_listed"),
    [(JOB, True), (f"{JOB}/inside", True), ("/home/u", True), ("/", True), ("/home/u/job2", False), ("/data", False)],
)
def test_sweeps_over_the_same_folders_are_listed(tmp_path: Path, place: str, is_listed: bool) -> None:
    run = make_unsettled(tmp_path, "one", SUPERVISED)
    note_sweep(run, [JOB])
    assert list_open_sweeps([place]) == [run] * is_listed


def test_a_sweep_that_has_ended_is_forgotten(tmp_path: Path, data_home: Path) -> None:
    run = make_unsettled(tmp_path, "one", SUPERVISED)
    note_sweep(run, [JOB])
    forget_sweep(run)
    assert list_open_sweeps([JOB]) == [run], "it has something to put back"
    (run / "protection").rename(run / "settled")
    assert list_open_sweeps([JOB]) == []
    assert not list((data_home / "pipetune/open-sweeps").iterdir())


def test_another_host_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    note_sweep(tmp_path / "gone", [JOB])
    with monkeypatch.context() as patch:
        patch.setattr(open_sweeps.platform, "node", lambda: "another")
        assert list_open_sweeps([JOB]) == []
        assert len(list((tmp_path / "data/pipetune/open-sweeps").iterdir())) == 1
    assert list_open_sweeps([JOB]) == []
    assert not list((tmp_path / "data/pipetune/open-sweeps").iterdir())


def test_what_is_no_note_is_left_alone(data_home: Path) -> None:
    folder = data_home / "pipetune/open-sweeps"
    folder.mkdir(parents=True)
    for number, text in enumerate(["", "[]", json.dumps({"host": open_sweeps.platform.node()})]):
        (folder / f"{number}.json").write_text(text)
    assert list_open_sweeps([JOB]) == []


def test_only_a_sweep_that_runs_and_puts_back_is_in_the_way(tmp_path: Path) -> None:
    kept, seen = make_unsettled(tmp_path, "one", SUPERVISED), make_unsettled(tmp_path, "two", OVERLAY)
    for run in (kept, seen):
        note_sweep(run, [JOB])
    refuse_other_sweeps(list_open_sweeps([JOB]))
    with RunFolder(seen):
        refuse_other_sweeps(list_open_sweeps([JOB]))
    with RunFolder(kept), pytest.raises(UsageError, match="still runs, and puts files of this folder back"):
        recover_all(None, [JOB])


def test_a_new_sweep_puts_back_what_a_killed_one_left_elsewhere(tmp_path: Path) -> None:
    run = make_unsettled(tmp_path, "one", OVERLAY)
    job = tmp_path / "job"
    job.mkdir()
    (run / "protection/layers/0/upper").mkdir(parents=True)
    (run / "protection/layers/0/upper/new").write_text("made")
    state = json.loads((run / "protection/state.json").read_text()) | {"layers": {"0": str(job)}}
    (run / "protection/state.json").write_text(json.dumps(state))
    note_sweep(run, [str(job)])
    recover_all(None, ["/elsewhere"])
    assert not (job / "new").exists()
    with pytest.warns(RecoveredFilesWarning, match="1 new file: job/new"):
        recover_all(None, [str(job)])
    assert list_open_sweeps([str(job)]) == []


def test_a_user_without_a_home_has_no_notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_sweeps, "data_folder", lambda: None)
    note_sweep(tmp_path, [JOB])
    forget_sweep(tmp_path)
    assert list_open_sweeps([JOB]) == []
