from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.axes import Axes

from pipetune import plot
from pipetune.errors import UsageError
from pipetune.records.explanation import ACCELERATOR, Part
from pipetune.runs.run import Run
from tests.unit.plot.drawn import texts
from tests.unit.report.test_explain_text import FOUND
from tests.unit.samples import sample


def test_each_stage_begins_where_the_one_before_ends(ax: Axes) -> None:
    plot.waterfall(FOUND, ax=ax)

    bars = [(round(bar.get_x(), 6), round(bar.get_width(), 6)) for bar in ax.patches]
    assert bars == [(0.0, 0.03), (0.03, 0.9), (0.93, -0.001), (0.0, 0.929)]
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert labels == [
        "reading files", "decoding, cropping, resizing and normalising", "handing batches over", "all stages",
    ]  # fmt: skip
    assert ax.yaxis_inverted()


def test_rates_stand_beside_the_stages_and_the_accelerators_at_the_end(ax: Axes) -> None:
    accelerator = sample(Part, name=ACCELERATOR, samples_per_s=5000.0)
    plot.waterfall(replace(FOUND, parts=(accelerator,)), ax=ax)

    drawn = " ".join(texts(ax))
    assert "0.9 ms; 2,050/s from here on" in drawn
    assert "0.929 ms; the accelerator takes 5,000/s" in drawn


def test_a_run_of_another_kind_is_refused() -> None:
    run = Run(path=Path("x"), kind="sweep", info={}, result={}, candidates=(), problems=())
    with pytest.raises(UsageError, match="not of pipetune explain"):
        plot.waterfall(run)
