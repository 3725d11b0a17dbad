from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from pipetune.cli.compare import compare_command
from pipetune.cli.doctor import doctor_command
from pipetune.cli.report import report_command
from pipetune.cli.sweep import sweep_command
from pipetune.errors import UsageError
from tests.run_folders import TUNED, sweep_folder, watch_folder
from tests.watch_fakes import verdict, window


class Terminal(io.StringIO):
    """What a terminal was sent."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    return sweep_folder(tmp_path / "run")


def test_no_hint_names_a_file_that_a_run_folder_has(sweep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Following it would replace that file."""
    for module in ("doctor", "sweep"):
        monkeypatch.setattr(f"pipetune.cli.{module}.stop_on_sigterm", lambda: None)
    here = str(sweep)
    calls = [
        lambda: report_command(sweep, html=here), lambda: report_command(sweep, trace=here),
        lambda: doctor_command(json_file=here), lambda: compare_command(sweep, sweep, json_file=here),
        lambda: sweep_command(None, json_file=here),  # type: ignore[arg-type]
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(UsageError, match="is a folder") as refused:
            call()
        proposed = Path((refused.value.hint or "").split()[-1])
        assert proposed.parent == sweep
        assert not proposed.exists()


def test_without_a_terminal_no_column_is_dropped(
    sweep: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    report_command(sweep)
    assert "first batch" in capsys.readouterr().out.splitlines()[0]


@pytest.mark.parametrize(("columns", "widest"), [("60", 60), ("200", 100)])
def test_the_text_of_a_watch_is_set_for_its_terminal(
    columns: str, widest: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = watch_folder(tmp_path / "run", [window(verdicts=(verdict(advice="word " * 80),))])
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("COLUMNS", columns)
    report_command(path)
    longest = max(map(len, screen.getvalue().splitlines()))
    assert widest - 10 < longest <= widest


def test_what_to_set_is_shown(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report_command(sweep)
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("Set: batch_size=64, num_workers=2, prefetch_factor=2")


def test_words_in_brackets_of_a_stored_run_do_not_end_it(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [json.loads(line) for line in (sweep / "outcomes.jsonl").read_text().splitlines()]
    for line in lines:
        if line["candidate"]["backend"] == TUNED.candidate.backend:
            line["candidate"]["transfer"] = "[/x]"
    (sweep / "outcomes.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    report_command(sweep)
    assert "[/x]" in capsys.readouterr().out
