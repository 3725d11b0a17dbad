from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipetune.errors import UsageError
from pipetune.plot import accuracy, scaling
from pipetune.scaling.accuracy import Reach
from pipetune.scaling.scale import ScaleOptions, scale
from tests.published import write_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

pytest.importorskip("matplotlib", reason="figures are drawn with matplotlib")


def test_rates_and_what_as_many_single_ones_would_have(tmp_path: Path, ax: Axes) -> None:
    found = scale(ScaleOptions(tables=(write_table(tmp_path / "t.csv", "AlexNet", 32),)))
    scaling(found, ax=ax)
    ideal = next(line for line in ax.lines if line.get_label() == "as many single ones")
    assert [float(value) for value in ideal.get_ydata()] == pytest.approx([457.07, 256 * 457.07])  # type: ignore[arg-type]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [  # type: ignore[union-attr]
        "as many single ones", "measured", "predicted",
    ]  # fmt: skip
    assert "58 %" in [text.get_text() for text in ax.texts]


def test_one_row_is_drawn_too(tmp_path: Path, ax: Axes) -> None:
    table = tmp_path / "t.csv"
    table.write_text("accelerators,hosts,rate\n4,1,10\n")
    scaling(scale(ScaleOptions(tables=(table,), to=(4,))), ax=ax)


def test_accuracy_over_time(tmp_path: Path, ax: Axes) -> None:
    metric = tmp_path / "_$a$.csv"
    metric.write_text("time_s,top$1$\n3600,0.3\n7200,0.6\n")
    found = scale(ScaleOptions(
        tables=(write_table(tmp_path / "t.csv", "AlexNet", 16),), metrics=((8, metric), (None, metric)),
        reach=(Reach(0.5),),
    ))  # fmt: skip
    accuracy(found, ax=ax)
    assert ax.get_xlabel() == "hours since the training began"
    assert [float(value) for value in ax.lines[0].get_xdata()] == [1.0, 2.0]  # type: ignore[arg-type]
    assert ax.get_legend().get_texts()[0].get_text() == "8 accelerators"  # type: ignore[union-attr]
    ax.figure.canvas.draw()


def test_without_a_metric_there_is_no_accuracy(tmp_path: Path, ax: Axes) -> None:
    found = scale(ScaleOptions(tables=(write_table(tmp_path / "t.csv", "AlexNet", 16),)))
    with pytest.raises(UsageError, match="no training has written a metric"):
        accuracy(found, ax=ax)
