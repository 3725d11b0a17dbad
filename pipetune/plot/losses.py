"""What a watched job lost, window by window, and to which cause."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipetune.diagnosis.causes import title_of
from pipetune.errors import UsageError
from pipetune.plot import style
from pipetune.runs.run import SWEEP, WATCH

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from pipetune.runs.run import Run

#: Causes that are shown one by one; the smaller ones are summed.
_MAX_CAUSES = 6
#: A share of the time (%) that is no more than what adding up the causes' parts rounds off.
_ROUNDED_OFF_PCT = 1e-6


def losses(run: Run, *, rank: int | None = None, ax: Axes | None = None) -> Axes:
    """Draw the share of the time that was lost in each window of a watch, stacked by cause.

    Where it is not known what was lost, as before training began, the window is hatched. Of several training processes
    without a rank, which no number tells apart, each window shows the one that lost the most.

    Args:
        run: a watch's folder or log.
        rank: of a distributed job; the lowest one unless given.
        ax: to draw on.

    Raises:
        UsageError: this run is not a watch, has no closed window, or no such rank.
        MissingPackageError: matplotlib is not installed.
    """
    if run.kind != WATCH:
        raise UsageError(
            f"{run.path} is a run of pipetune {run.kind}, not of pipetune watch",
            hint=f"pipetune.plot.{'step_parts' if run.kind == SWEEP else 'stall_timeline'} draws it",
        )
    frame = run.frame()
    if frame.empty:
        raise UsageError(f"{run.path} has no window that was closed", hint="watch for longer, or with --window 5s")
    ranks = sorted(int(one) for one in frame["rank"].dropna().unique())
    chosen = rank if rank is not None else next(iter(ranks), None)
    frame = frame[frame["rank"].isna() if chosen is None else frame["rank"] == chosen]
    if frame.empty:
        raise UsageError(f"{run.path} has no rank {chosen}", hint=f"there are {', '.join(map(str, ranks)) or 'none'}")
    processes = int(frame.groupby("window").size().max())
    frame = frame.drop_duplicates("window")  # the worst comes first
    ax = style.axes(ax, height=3.6)
    frame = frame.assign(began_s=(frame["started"] - frame["started"].iloc[0]).dt.total_seconds())
    is_known = frame["lost_frac"].notna()
    anything = _draw_lost(ax, frame[is_known])
    unknown = frame[~is_known]
    if len(unknown):
        ax.bar(
            unknown["began_s"], 100, unknown["seconds"], align="edge", facecolor="none", edgecolor=style.LIGHT,
            hatch="//", linewidth=0, label="not known",
        )  # fmt: skip
    if not anything:
        words = "nothing was lost" if unknown.empty else "nothing was lost where it is known"
        ax.text(
            0.5, 0.5, words if is_known.any() else "not known", transform=ax.transAxes, ha="center", color=style.INK
        )
    ax.set_ylim(0, 100)
    ax.set_xlim(float(frame["began_s"].iloc[0]), float((frame["began_s"] + frame["seconds"]).iloc[-1]))
    ax.set_xlabel("time (s)")
    # Named here because the legend takes the place of a title.
    whose = f"rank {chosen}: " if len(ranks) > 1 else f"worst of {processes} processes: " if processes > 1 else ""
    ax.set_ylabel(f"{whose}time lost (%)")
    style.plain(ax)
    style.legend(ax, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=3)
    return ax


def _draw_lost(ax: Axes, known: pd.DataFrame) -> bool:
    """Stack what was lost in windows of which it is known; whether that was anything."""
    import numpy as np

    began, widths = known["began_s"].to_numpy(), known["seconds"].to_numpy()
    whole = 100 * known["lost_frac"].to_numpy(dtype=float)
    lost = {str(name): whole * known[name].to_numpy() for name in known if str(name).startswith("share_")}
    order = sorted(lost, key=lambda name: -float((lost[name] * widths).sum()))
    parts = []
    for name in order[:_MAX_CAUSES]:
        cause = name.removeprefix("share_")
        parts.append((title_of(cause), style.colour_of(cause), "", lost[name]))
    parts.append(("other causes", style.LIGHT, "", sum((lost[name] for name in order[_MAX_CAUSES:]), 0 * whole)))
    # A window that lost little names no causes, and lost that little all the same.
    rest = whole - sum(lost.values(), 0 * whole)
    parts.append(("not divided among causes", style.LIGHT, "..", np.where(rest > _ROUNDED_OFF_PCT, rest, 0.0)))
    bottom = 0 * whole
    for title, colour, hatch, heights in parts:
        if heights.any():
            ax.bar(
                began, heights, widths, bottom, align="edge", color=colour, edgecolor="white", hatch=hatch,
                linewidth=0.5 if len(known) < 200 else 0, label=title,
            )  # fmt: skip
            bottom = bottom + heights
    return bool(bottom.any())
