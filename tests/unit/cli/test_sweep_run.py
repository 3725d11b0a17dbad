from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from pipetune.cli.sweep_run import show
from pipetune.errors import PipetuneError
from pipetune.sweeping.run import SweepRun
from tests.unit.sweeping.test_result import CEILING, DEFAULT, TUNED, sweep_result
from tests.unit.sweeping.test_resume import PREPARED


def ended(path: Path, **changes: Any) -> SweepRun:
    values: dict[str, Any] = {
        "result": sweep_result(CEILING, DEFAULT, TUNED), "prepared": PREPARED, "path": path, "exit_code": 0,
        "stopped": None, "message": None, "resumable": True, "not_written": None, **changes,
    }  # fmt: skip
    return SweepRun(**values)


def shown(run: SweepRun, json_file: str | None = None) -> tuple[int, str]:
    stream = io.StringIO()
    return show(run, Console(file=stream, width=160), json_file), stream.getvalue()


def test_the_result_is_printed_and_written(tmp_path: Path) -> None:
    target = tmp_path / "result.json"
    code, text = shown(ended(tmp_path / "run"), str(target))
    assert code == 0
    assert text.splitlines()[-1] == f"run folder: {tmp_path / 'run'}"
    assert json.loads(target.read_text())["recommended"]["key"] == TUNED.candidate.key


def test_an_interrupted_sweep_names_the_command_that_resumes_it(tmp_path: Path) -> None:
    run = ended(tmp_path / "a run", stopped="interrupted", exit_code=130)
    code, text = shown(run)
    assert code == 130
    assert text.splitlines()[-1] == f"resume with: pipetune sweep --resume '{tmp_path / 'a run'}'"
    nothing = ended(tmp_path, result=sweep_result(stopped="failed"), stopped="failed", exit_code=1)
    assert "resume with" not in shown(nothing)[1]


@pytest.mark.parametrize("json_file", [None, "/dev/full"])
def test_a_disk_that_refuses_does_not_keep_the_ranking_from_the_screen(json_file: str | None, tmp_path: Path) -> None:
    stream = io.StringIO()
    refused = None if json_file else PipetuneError("cannot write result.json: no space left")
    with pytest.raises((PipetuneError, OSError), match=r"(?i)no space left"):
        show(ended(tmp_path, not_written=refused), Console(file=stream, width=160), json_file)
    assert "opencv, 2 workers" in stream.getvalue()
