from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipetune.errors import UsageError
from pipetune.plot import answers
from pipetune.runs.load import load
from tests.run_folders import sweep_folder
from tests.unit.report.test_whatif_text import ASKED, FOUND, check

if TYPE_CHECKING:
    from matplotlib.axes import Axes

pytest.importorskip("matplotlib", reason="figures are drawn with matplotlib")


def test_a_bar_for_what_was_measured_and_for_each_answer(ax: Axes) -> None:
    answers(FOUND, ax=ax)
    widths = [bar.get_width() for bar in ax.patches]  # type: ignore[attr-defined]
    assert widths == [1010.0, 2000.0]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["now, as measured", "2 cores"]


def test_what_was_checked_has_a_cross(ax: Axes) -> None:
    answers(replace(FOUND, answers=(replace(ASKED, check=check(1900.0, ASKED.question)),)), ax=ax)
    crosses = [line for line in ax.lines if line.get_marker() == "x"]
    assert [float(line.get_xdata()[0]) for line in crosses] == [1900.0]  # type: ignore[index,arg-type]


def test_nothing_asked_is_drawn_too(ax: Axes) -> None:
    answers(replace(FOUND, answers=()), ax=ax)
    assert len(ax.patches) == 1


def test_a_run_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not of pipetune whatif"):
        answers(load(sweep_folder(tmp_path / "run")))
