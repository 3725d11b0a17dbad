"""Options of ``pipetune watch``: text into values, and which job is watched how."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from pipetune.cli.app import app
from pipetune.cli.watch_find import ask
from pipetune.errors import UsageError
from pipetune.watching import find, run
from pipetune.watching.find import refuse
from pipetune.watching.options import WatchOptions


class Called:
    """What the command has called, and with what."""

    def __init__(self) -> None:
        self.started: WatchOptions | None = None
        self.attached: WatchOptions | None = None
        self.found: tuple[Any, ...] = ()
        self.printer: Any = None


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> Called:
    called = Called()

    def start_and_watch(options: WatchOptions, printer: Any) -> int:
        called.started, called.printer = options, printer
        return 3

    def watch_process(options: WatchOptions, target: Any, printer: Any) -> int:
        called.attached, called.printer = options, printer
        return 4

    def find_target(*arguments: Any) -> SimpleNamespace:
        called.found = arguments
        return SimpleNamespace()

    monkeypatch.setattr(run, "start_and_watch", start_and_watch)
    monkeypatch.setattr(run, "watch_process", watch_process)
    monkeypatch.setattr(find, "find_target", find_target)
    monkeypatch.setattr("pipetune.cli.watch.stop_on_sigterm", lambda: None)
    return called


def watch(*arguments: str) -> int:
    done = CliRunner().invoke(app, ["watch", *arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code


def test_the_defaults(called: Called) -> None:
    assert watch() == 4
    assert called.attached == WatchOptions()
    assert called.found == (None, None, ask)


def test_text_becomes_values(called: Called, tmp_path: Path) -> None:
    watch(
        "--pid", "12", "--gpu", "1", "--interval", "250ms", "--window", "1m", "--for", "2m", "--log",
        str(tmp_path / "log"), "--out", str(tmp_path / "run"), "--prometheus", ":9400", "--fail-under", "0.8",
        "--no-stacks",
    )  # fmt: skip
    assert called.attached == WatchOptions(
        pid=12, gpu=1, interval_s=0.25, window_s=60.0, for_s=120.0, log=tmp_path / "log", out=tmp_path / "run",
        prometheus=":9400", fail_under=0.8, stacks=False,
    )  # fmt: skip
    assert called.found[:2] == (12, 1)


def test_once_has_a_longer_window_no_folder_and_asks_nobody(called: Called, tmp_path: Path) -> None:
    watch("--once")
    assert called.attached == WatchOptions(once=True, window_s=20.0, save=False)
    assert called.found[2] is refuse
    watch("--once", "--out", str(tmp_path / "run"))
    assert called.attached is not None
    assert called.attached.save


def test_json_asks_nobody(called: Called) -> None:
    watch("--json")
    assert called.found[2] is refuse


def test_a_job_to_start(called: Called) -> None:
    assert watch("--", "python", "train.py", "--epochs", "3") == 3
    assert called.started == WatchOptions(command=("python", "train.py", "--epochs", "3"))
    assert called.found == ()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--interval", "fast"], "--interval 'fast'"),
        (["--window", "0"], "--window '0'"),
        (["--window", "900ms"], "--window 0.9s is out of range"),
        (["--gpu", "-1"], "--gpu -1 is out of range"),
        (["--log", "/no/such/folder/log"], "--log /no/such/folder/log"),
        (["--out", "here", "--no-save"], "--out here together with --no-save"),
        (["--json", "--", "true"], "--json together with a job to start"),
        (["--pid", "12", "--", "true"], "--pid 12 together with a job to start"),
    ],
)
def test_what_cannot_be_meant_is_refused(called: Called, arguments: list[str], message: str) -> None:
    with pytest.raises(UsageError) as refused:
        watch(*arguments)

    assert message in refused.value.message
    assert (called.started, called.attached) == (None, None)
