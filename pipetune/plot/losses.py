"""What a watched job lost, window by window, and to which cause."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipetune.diagnosis.causes import title_of
from pipetune.errors import UsageError
from pipetune.plot import style
from pipetune.runs.run import WATCH

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from pipetune.runs.run import Run

#: Causes that are shown one by one; the smaller ones are summed.
_MAX_CAUSES = 6


def losses(run: Run, *, rank: int | None = None, ax: Axes | None = None) -> Axes:
    """Draw the share of the time that was lost in each window of a watch, stacked by cause.

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
            hint="pipetune.plot.step_parts draws a sweep",
        )
    frame = run.frame()
    if frame.empty:
        raise UsageError(f"{run.path} has no window that was closed", hint="watch for longer, or with --window 5s")
    ranks = sorted(int(one) for one in frame["rank"].dropna().unique())
    chosen = rank if rank is not None else next(iter(ranks), None)
    frame = frame[frame["rank"].isna() if chosen is None else frame["rank"] == chosen]
    if frame.empty:
        raise UsageError(f"{run.path} has no rank {chosen}", hint=f"there are {', '.join(map(str, ranks)) or 'none'}")
    ax = style.axes(ax, height=3.6)
    began = (frame["started"] - frame["started"].iloc[0]).dt.total_seconds().to_numpy()
    widths = frame["seconds"].to_numpy()
    columns = [name for name in frame if str(name).startswith("share_")]
    lost = {name: (frame[name] * frame["lost_frac"].fillna(0.0) * 100).to_numpy() for name in columns}
    order = sorted(lost, key=lambda name: -float((lost[name] * widths).sum()))
    order = [name for name in order if lost[name].any()]
    bottom = 0 * widths
    for name in order[:_MAX_CAUSES]:
        cause = str(name).removeprefix("share_")
        ax.bar(
            began, lost[name], widths, bottom, align="edge", color=style.colour_of(cause), edgecolor="white",
            linewidth=0.5 if len(frame) < 200 else 0, label=title_of(cause),
        )  # fmt: skip
        bottom = bottom + lost[name]
    rest = sum((lost[name] for name in order[_MAX_CAUSES:]), 0 * widths)
    if rest.any():
        ax.bar(began, rest, widths, bottom, align="edge", color=style.LIGHT, linewidth=0, label="other causes")
    if not order:
        ax.text(0.5, 0.5, "nothing was lost", transform=ax.transAxes, ha="center", color=style.INK)
    if len(ranks) > 1:
        ax.set_title(f"rank {chosen}", loc="left", fontsize="medium")
    ax.set_ylim(0, 100)
    ax.set_xlim(float(began[0]), float(began[-1] + widths[-1]))
    ax.set_xlabel("time (s)")
    ax.set_ylabel("time lost (%)")
    style.plain(ax)
    style.legend(ax, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=3)
    return ax
