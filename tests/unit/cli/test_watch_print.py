"""What is printed where. What the live view shows is in ``test_watch_live``."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipetune.cli.watch_print import WatchPrinter
from pipetune.diagnosis import causes
from pipetune.records.watch import WatchResult, WatchStart
from pipetune.watching.observer import WatchEnd
from tests.watch_fakes import stall, verdict, window

START = WatchStart(
    pipetune="0.1.0", pid=4000, title="train.py", job_command=("python", "train.py"), found="named with --pid",
    interval_s=0.5, window_s=10.0, unix_s=1.7e9, monotonic_ns=0, host={},
)  # fmt: skip
CHANGED = window(verdicts=(verdict(cause=causes.CPU_STARVED, lost_frac=0.2),))


def end(**changes: Any) -> WatchEnd:
    record = WatchResult(
        reason="the job ended", verdicts=(verdict(),), stalls=1, stalled_s=2.0, own_core_frac=0.003,
        own_rss_bytes=50 * 2**20, below=changes.pop("below", None),
    )  # fmt: skip
    made = WatchEnd(
        record=record, exit_code=0, seconds=60.0, stalls=(stall(),), folder=None, lost=0, problem=None
    )  # fmt: skip
    return replace(made, **changes)


def printed(capsys: pytest.CaptureFixture[str], *, last: WatchEnd | None = None, **how: bool) -> tuple[str, str]:
    """Standard output and error of a watch of three windows with the same cause and one with another."""
    with WatchPrinter(**({"json_lines": False, "once": False, "beside": False} | how)) as printer:
        printer.on_start(START)
        printer.on_accelerators(["NVIDIA L4", "NVIDIA L4"])
        for closed in (window(), window(), window(), CHANGED):
            printer.on_window(closed)
        printer.on_stall(stall())
        printer.on_note("GPU 0 cannot be read")
        printer.on_note("GPU 0 cannot be read")
        printer.on_end(last or end())
    out, errors = capsys.readouterr()
    return out, errors


def test_a_pipe_gets_a_line_per_window_and_stall_and_the_result(capsys: pytest.CaptureFixture[str]) -> None:
    out, errors = printed(capsys)

    lines = out.splitlines()
    assert lines[0] == "watching train.py (process 4000): named with --pid; Ctrl-C ends it"
    assert len({*lines[1:4]}) == 1
    assert lines[4] != lines[3]
    assert lines[5].startswith("  ")
    assert lines[6] == "train.py (process 4000) on NVIDIA L4: the job ended"
    assert len(lines) > 7
    assert errors == "pipetune: GPU 0 cannot be read\n"


def test_json_lines_are_all_that_is_on_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    out, errors = printed(capsys, json_lines=True, last=end(folder=Path("run")))

    kinds = [json.loads(line)["kind"] for line in out.splitlines()]
    assert kinds == ["start", "window", "window", "window", "window", "stall", "end"]
    assert errors.splitlines() == ["pipetune: GPU 0 cannot be read", "run folder: run"]


def test_a_reader_that_leaves_ends_the_watch_once(monkeypatch: pytest.MonkeyPatch) -> None:
    printed_lines: list[str] = []

    def refuse(text: str, **_: object) -> None:
        printed_lines.append(text)
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr("builtins.print", refuse)
    with WatchPrinter(json_lines=True, once=False, beside=False) as printer:
        with pytest.raises(BrokenPipeError):  # a reason to end
            printer.on_window(window())
        printer.on_window(window())
        printer.on_end(end())
    assert len(printed_lines) == 1


def test_once_says_why_there_is_no_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    with WatchPrinter(json_lines=False, once=True, beside=False) as printer:
        printer.on_start(START)
        printer.on_end(end())

    assert capsys.readouterr().out == "train.py (process 4000): no verdict: the job ended\n"


def test_once_prints_the_verdict_of_the_last_window_only(capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = printed(capsys, once=True)

    assert out.startswith("train.py (process 4000) on NVIDIA L4")
    assert "the job ended" not in out
    assert "watching" not in out


def test_beside_a_started_job_only_changes_are_printed_and_on_standard_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    out, errors = printed(capsys, beside=True)

    assert out == ""
    first, second, note, ended, *_ = errors.splitlines()
    assert first != second
    assert note == "pipetune: GPU 0 cannot be read"
    assert ended.endswith("the job ended")


@pytest.mark.parametrize("beside", [False, True])
def test_last_lines_name_the_folder_and_what_was_not_reached(capsys: pytest.CaptureFixture[str], beside: bool) -> None:
    last = end(folder=Path("run"), below="--fail-under 0.8: 0.40 of the time was used", lost=2, problem="disk full")
    lines = printed(capsys, last=last, beside=beside)[int(beside)].splitlines()

    assert lines[-3:] == [
        "run folder: run",
        "pipetune: --fail-under 0.8: 0.40 of the time was used",
        "pipetune: 2 records could not be written: disk full",
    ]
