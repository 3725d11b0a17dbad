from __future__ import annotations

from typing import Any

import pytest

pd = pytest.importorskip("pandas", reason="the frame is one of pandas")

from pipetune.report.exports import csv, markdown  # noqa: E402
from pipetune.runs.load import load  # noqa: E402
from tests import ROOT  # noqa: E402


class OneRun:
    """A run with a frame that somebody else has made."""

    def frame(self) -> Any:
        return pd.DataFrame({"why": ["=1+1", "@SUM(A1)", "\x1b[2Jhi", "fine"], "rate": [-1.5, 2.0, None, 3.0]})


def test_no_cell_is_a_formula_or_an_escape_sequence() -> None:
    lines = csv(OneRun()).splitlines()  # type: ignore[arg-type]
    assert lines == ["why,rate", "'=1+1,-1.5", "'@SUM(A1),2.0", "?[2Jhi,", "fine,3.0"]


def test_of_a_script_it_is_said_what_to_set() -> None:
    folder = ROOT / "benchmarks" / "results" / "examples" / "script"
    text = markdown(load(folder))
    assert r"Set in train.py:51: num\_workers 0 -&gt; 1" in text  # as Markdown shows it
    assert "pipetune run --tuned " in text
    assert "Set: ``" not in text
