"""Where a loader's CPU time goes, stage by stage, and the rate that each leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipetune.explaining.facts import name_of
from pipetune.explaining.stored import explanation_of
from pipetune.plot import style
from pipetune.records.explanation import (
    ACCELERATOR,
    AUGMENT,
    COLLATE,
    DECODE,
    FETCH,
    HAND_OVER,
    NORMALISE,
    TRANSFORM,
    Explanation,
)
from pipetune.units import format_rate, significant

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from pipetune.runs.run import Run

_COLOURS = {
    FETCH: style.GREEN, DECODE: style.VERMILION, TRANSFORM: style.ORANGE, AUGMENT: style.BLUE, NORMALISE: style.YELLOW,
    COLLATE: style.PURPLE, HAND_OVER: style.SKY,
}  # fmt: skip


def waterfall(explanation: Run | Explanation, *, ax: Axes | None = None) -> Axes:
    """Draw the CPU time of each stage, each beginning where the one before ends, with 95 % intervals.

    Beside each stage stands the rate of the loader alone from that stage on; at the end, what the accelerator takes.

    Args:
        explanation: what :func:`pipetune.explain` returned, or the run of ``pipetune explain``.
        ax: to draw on.

    Raises:
        UsageError: the run is no explanation.
        MissingPackageError: matplotlib is not installed.
    """
    found = explanation if isinstance(explanation, Explanation) else explanation_of(explanation)
    ax = style.axes(ax, height=1.2 + 0.5 * (len(found.stages) + 1))
    names, left = [], 0.0
    for number, cost in enumerate(found.stages):
        width = cost.cpu_s_per_1000_samples  # s per 1000 images: ms per image
        half = (cost.ci95[1] - cost.ci95[0]) / 2
        ax.barh(number, width, left=left, color=_COLOURS.get(cost.stages[0], style.GREY), height=0.6)
        ax.errorbar(left + width, number, xerr=half, color=style.INK, capsize=2, elinewidth=1)
        text = f"{significant(width)} ms; {format_rate(cost.samples_per_s)} from here on"
        _beside(ax, text, max(left, left + width) + half, number)
        names.append(name_of(cost.stages, found.stages))
        left += width
    ax.barh(len(found.stages), left, color=style.LIGHT, height=0.6)
    accelerator = found.part(ACCELERATOR)
    takes = "" if accelerator is None else f"; the accelerator takes {format_rate(accelerator.samples_per_s)}"
    _beside(ax, f"{significant(left)} ms{takes}", left, len(found.stages))
    ax.set_yticks(range(len(names) + 1), [*names, "all stages"])
    ax.invert_yaxis()
    ax.set_xlim(0, 1.75 * max(left, *(cost.ci95[1] for cost in found.stages)))
    ax.set_xlabel("CPU time per image (ms)")
    style.plain(ax, grid="x")
    ax.tick_params(axis="y", length=0)
    return ax


def _beside(ax: Axes, text: str, x: float, y: float) -> None:
    """Text to the right of a point."""
    ax.annotate(text, (x, y), xytext=(6, 0), textcoords="offset points", va="center", fontsize="small", color=style.INK)
