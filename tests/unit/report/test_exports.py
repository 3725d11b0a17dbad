from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pd = pytest.importorskip("pandas", reason="the frame is one of pandas")

from pipetune.report import exports  # noqa: E402
from pipetune.report.exports import csv, markdown, observed_line, text  # noqa: E402
from pipetune.report.html.watch_page import watch_page  # noqa: E402
from pipetune.runs.load import load  # noqa: E402
from tests import ROOT  # noqa: E402
from tests.fakes import outcome  # noqa: E402
from tests.run_folders import watch_folder  # noqa: E402
from tests.unit.sweeping.test_result import CEILING, DEFAULT, TUNED, sweep_result  # noqa: E402
from tests.watch_fakes import window  # noqa: E402


class OneRun:
    """A run with a frame that somebody else has made."""

    def frame(self) -> Any:
        return pd.DataFrame({"why": ["=1+1", "@SUM(A1)", "\x1b[2Jhi", "fine"], "rate": [-1.5, 2.0, None, 3.0]})


def test_no_cell_is_a_formula_or_an_escape_sequence() -> None:
    lines = csv(OneRun()).splitlines()  # type: ignore[arg-type]
    assert lines == ["why,rate", "'=1+1,-1.5", "'@SUM(A1),2.0", "?[2Jhi,", "fine,3.0"]


def test_where_nothing_was_found_nothing_is_to_be_set() -> None:
    missed = sweep_result(CEILING, outcome("pillow", 0, rate=500.0, role="baseline"))
    assert not any("Set" in line for line in exports._sweep_lines(missed, "/runs/run"))
    assert any("Set" in line for line in exports._sweep_lines(sweep_result(CEILING, DEFAULT, TUNED), "/runs/run"))


def test_of_a_script_it_is_said_what_to_set() -> None:
    folder = ROOT / "benchmarks" / "results" / "examples" / "script"
    shown = markdown(load(folder))
    assert r"Set in train.py:51: num\_workers 0 -&gt; 1" in shown  # as Markdown shows it
    assert "pipetune run --tuned " in shown
    assert "Set: ``" not in shown


@pytest.mark.parametrize(
    ("rate", "shown"), [(7.3, "7.3 samples/s (6.8 to 7.9)"), (1234.0, "1,234 samples/s (1,148 to 1,333)")]
)
def test_the_rate_of_a_loop_keeps_its_decimals_where_it_is_small(rate: float, shown: str) -> None:
    row = {
        "steps": 9, "samples_per_s": rate, "samples_per_s_low": 0.93 * rate, "samples_per_s_high": 1.08 * rate,
        "seconds": 4.0, "accelerator_idle_frac": 0.1, "data_wait_frac": 0.2,
    }  # fmt: skip
    run: Any = SimpleNamespace(frame=lambda: pd.DataFrame([row]))
    assert observed_line(run).startswith(f"{shown}; ")


@pytest.mark.parametrize(
    ("windows", "why"),
    [((), "the watch ended before its first window"), ((window(verdicts=()),), "no training process was read")],
)
def test_a_watch_without_a_verdict_says_why_wherever_it_is_shown(
    windows: tuple[Any, ...], why: str, tmp_path: Path
) -> None:
    run = replace(load(watch_folder(tmp_path / "run", [])), windows=windows)
    page = watch_page(
        run_name="run", about=run.info, end=run.result, verdicts=run.verdicts, windows=run.windows, figures=[],
        problems=[],
    )  # fmt: skip
    assert text(run).splitlines()[1:] == [f"no verdict: {why}"]
    assert markdown(run).splitlines()[1:] == ["", f"no verdict: {why}"]
    assert f"<h1>no verdict: {why}</h1>" in page


def test_a_watch_given_as_the_current_folder_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = watch_folder(tmp_path / "here", [window()])
    monkeypatch.chdir(path)
    run = load(".")
    run.info.pop("title")
    assert text(run).splitlines()[0] == "pipetune watch of here"
    assert markdown(run).splitlines()[0] == "### pipetune watch of here"
