"""Predicted rates with their intervals, beside what was measured and what the accelerators take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipetune.answering.questions import limit_words, question_text
from pipetune.answering.stored import whatif_of
from pipetune.plot import style
from pipetune.predicting.model import CORES, WORKERS
from pipetune.records.explanation import ACCELERATOR, HAND_OVER, STORAGE
from pipetune.records.prediction import WhatIf

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from pipetune.runs.run import Run

_COLOURS = {
    ACCELERATOR: style.GREEN, CORES: style.ORANGE, WORKERS: style.SKY, HAND_OVER: style.PURPLE, STORAGE: style.BLUE,
}  # fmt: skip


def answers(found: Run | WhatIf, *, ax: Axes | None = None) -> Axes:
    """Draw each answer's rate with its 90 % interval, coloured by what sets the pace.

    A tick stands for what the accelerators take, a cross for what a check has measured.

    Args:
        found: what :func:`pipetune.whatif` returned, or the run of ``pipetune whatif --check``.
        ax: to draw on.

    Raises:
        UsageError: the run is of another kind.
        MissingPackageError: matplotlib is not installed.
    """
    found = found if isinstance(found, WhatIf) else whatif_of(found)
    known = [(one, one.prediction) for one in found.answers if one.prediction is not None]
    ax = style.axes(ax, height=1.4 + 0.45 * (len(known) + 1))
    names = ["now, as measured"]
    ax.barh(0, found.measured_samples_per_s, color=style.LIGHT, height=0.6)
    _demand(ax, found.now.demand_samples_per_s, 0)
    highest = max(found.measured_samples_per_s, found.now.demand_samples_per_s)
    drawn: set[str] = set()
    for row, (one, prediction) in enumerate(known, start=1):
        rate, (low, high) = prediction.samples_per_s, prediction.interval90
        ax.barh(row, rate, color=_COLOURS.get(prediction.bound_by, style.GREY), height=0.6,
                label=None if prediction.bound_by in drawn else f"bound by {limit_words(prediction.bound_by)}",
                )  # fmt: skip
        drawn.add(prediction.bound_by)
        ax.errorbar(rate, row, xerr=[[max(0.0, rate - low)], [max(0.0, high - rate)]], color=style.INK, capsize=2,
                    elinewidth=1)  # fmt: skip
        _demand(ax, prediction.demand_samples_per_s, row)
        if one.check is not None and one.check.question == one.question:
            ax.plot(one.check.samples_per_s, row, marker="x", color=style.INK, linestyle="none")
        highest = max(highest, high, prediction.demand_samples_per_s)
        names.append(question_text(one.question))
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()
    ax.set_xlim(0, 1.08 * highest)
    ax.set_xlabel("samples/s; tick: what the accelerators take")
    if drawn:
        ax.legend(frameon=False, fontsize="small", loc="lower left", bbox_to_anchor=(0, 1), ncols=len(drawn))
    style.plain(ax, grid="x")
    ax.tick_params(axis="y", length=0)
    return ax


def _demand(ax: Axes, rate: float, row: int) -> None:
    ax.plot([rate, rate], [row - 0.4, row + 0.4], color=style.INK, linewidth=1.5)
