"""The stall timeline: when the accelerator was idle, and what the loop and the machine did meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pipetune.diagnosis.causes import title_of
from pipetune.plot import style, thin
from pipetune.runs.run import WATCH
from pipetune.units import whole_percent

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from pipetune.runs.run import Run

#: Panels from the top, with their share of the height; what lies between them.
_HEIGHTS = {"busy": 0.30, "steps": 0.30, "cpu": 0.24}
_GAP = 0.09
_TOP = 0.92


def stall_timeline(run: Run, candidate: str | None = None, *, ax: Axes | None = None, title: str | None = None) -> Axes:
    """Draw three panels on one clock: how busy the accelerator is, the rhythm of the steps, the CPU.

    Stalls are shaded in the colour of their cause. Where there are more values than pixels, the busy share is the mean
    of each pixel column and the rhythm its lowest to highest value; every stall at least a pixel long is drawn, and the
    figure says how many were shorter.

    Args:
        run: a sweep, a watch or an observed loop.
        candidate: as :meth:`pipetune.runs.run.Run.readings` takes it.
        ax: is emptied and divided into the panels; a new figure unless given.
        title: instead of the candidate's name and its idle share.

    Raises:
        UsageError: there is no such candidate.
        MissingPackageError: matplotlib is not installed.
    """
    name = run.timeline(candidate)
    steps, readings, stalls = run.steps(name), run.readings(name), run.stalls(name)
    ax = style.axes(ax, height=5.2)
    pixels = max(100, round(ax.get_window_extent().width))
    first, last = _span(steps, readings, stalls)
    edges = thin.edges_of(first, last, pixels)
    panels = _panels(ax, [panel for panel in _HEIGHTS if panel != "steps" or len(steps)])
    notes = ["grey: warm-up"] if len(steps) and (steps["phase"] == "warmup").any() else []
    notes += _draw_busy(panels["busy"], run, steps, readings, stalls, edges)
    if "steps" in panels:
        notes += _draw_steps(panels["steps"], steps, edges)
    _draw_cpu(panels["cpu"], readings, edges)
    for panel in panels.values():
        _shade_warmup(panel, steps, first)
        panel.set_xlim(first, last)
    panels["cpu"].set_xlabel("time (s)" + "".join(f"\n{note}" for note in notes), fontsize="small", color=style.INK)
    words = timeline_title(run, name) if title is None else title
    ax.set_title(words, fontsize="medium", color=style.INK, loc="left")
    return ax


def _span(steps: pd.DataFrame, readings: pd.DataFrame, stalls: pd.DataFrame) -> tuple[float, float]:
    pairs = ((steps, "time_s", "end_s"), (readings, "time_s", "time_s"), (stalls, "start_s", "end_s"))
    known = [(frame[begin].min(), frame[end].max()) for frame, begin, end in pairs if len(frame)]
    if not known:
        return 0.0, 1.0
    return float(min(begin for begin, _ in known)), float(max(end for _, end in known))


def _panels(ax: Axes, names: list[str]) -> dict[str, Axes]:
    ax.clear()
    ax.set_axis_off()
    whole = sum(_HEIGHTS[name] for name in names)
    scale = (_TOP - _GAP * (len(names) - 1)) / whole
    panels: dict[str, Axes] = {}
    top = _TOP  # above it is the legend of the first panel
    for name in names:
        height = _HEIGHTS[name] * scale
        shared: dict[str, Any] = {"sharex": next(iter(panels.values()))} if panels else {}
        panels[name] = ax.inset_axes((0.0, top - height, 1.0, height), **shared)
        style.plain(panels[name])
        top -= height + _GAP
    for panel in list(panels.values())[:-1]:
        panel.tick_params(labelbottom=False)
    return panels


def _draw_busy(
    panel: Axes, run: Run, steps: pd.DataFrame, readings: pd.DataFrame, stalls: pd.DataFrame, edges: Any
) -> list[str]:
    notes = []
    lengths = (stalls["end_s"] - stalls["start_s"]).to_numpy()
    seen = thin.visible(lengths, float(edges[1] - edges[0]))
    shown = stalls.iloc[seen.kept]
    for cause, own in shown.groupby("cause", sort=False):
        spans = list(zip(own["start_s"], own["end_s"] - own["start_s"], strict=True))
        label = f"stall: {title_of(str(cause))}"
        panel.broken_barh(spans, (0, 100), color=style.colour_of(str(cause)), alpha=0.55, linewidth=0, label=label)
    if seen.short:
        notes.append(
            f"{seen.short:,} of {len(stalls):,} stalls are shorter than a pixel ({1000 * (edges[1] - edges[0]):.3g} ms)"
            f", {seen.short_s:.3g} s together: they are in the busy share, not shaded"
        )
    source = f"{run.accelerator} busy"
    if len(steps):
        device_s = steps["compute_s"] + steps["h2d_s"].fillna(0.0)
        busy = 100 * thin.covered((steps["end_s"] - device_s).to_numpy(), steps["end_s"].to_numpy(), edges)
        panel.stairs(busy, edges, color=style.BLUE, linewidth=0.9, label=f"{source} (from the steps)")
    elif readings["gpu_util_pct"].notna().any():
        at, mean = _means(readings, "gpu_util_pct", edges)
        panel.step(at, mean, where="mid", color=style.BLUE, linewidth=0.9, label=source)
    elif run.kind == WATCH:
        notes.append("no accelerator could be read: stalls are the main thread's waits for data")
    panel.set_ylim(0, 104)
    panel.set_ylabel("busy (%)", fontsize="small")
    style.legend(panel, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=3, borderaxespad=0.1, handlelength=1.2)
    return notes


def _draw_steps(panel: Axes, steps: pd.DataFrame, edges: Any) -> list[str]:
    ends = steps["end_s"].to_numpy()
    rhythm = 1000 * (steps["end_s"].diff()).to_numpy()
    waits = 1000 * steps["data_wait_s"].to_numpy()
    thinned = False
    for values, times, colour, label in (
        (waits, steps["time_s"].to_numpy(), style.ORANGE, "wait for the batch"),
        (rhythm, ends, style.BLUE, "step to step"),
    ):
        found = thin.bin_extremes(times, values, edges)
        thinned |= found.thinned
        if found.thinned:
            panel.fill_between(found.at, found.low, found.high, color=colour, alpha=0.6, linewidth=0.4, label=label)
        else:
            size = 10 if len(found.at) < 400 else 4
            panel.scatter(found.at, found.high, s=size, color=colour, linewidths=0, label=label)
    panel.set_ylim(bottom=0)
    panel.set_ylabel("time (ms)", fontsize="small")
    style.legend(panel, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2, borderaxespad=0.1, handlelength=1.2)
    return [f"{len(steps):,} steps: per pixel the lowest to the highest value"] if thinned else []


def _draw_cpu(panel: Axes, readings: pd.DataFrame, edges: Any) -> None:
    # A reading covers its interval: finer bins than readings would only make holes.
    bins = thin.edges_of(edges[0], edges[-1], min(len(edges) - 1, max(1, len(readings) // 2)))
    if len(readings):
        at, busy = _means(readings, "cpu_busy_pct", bins)
        panel.fill_between(at, busy, step="mid", color=style.LIGHT, linewidth=0, label="CPU busy")
        at_io, iowait = _means(readings, "cpu_iowait_pct", bins)
        if len(at_io) == len(at):
            panel.fill_between(
                at, busy, busy + iowait, step="mid", color=style.SKY, linewidth=0, label="iowait (unreliable)"
            )
        for name, colour, dashes, label in (
            ("psi_cpu_some_pct", style.VERMILION, "-", "waits for a core (PSI)"),
            ("psi_io_some_pct", style.BLUE, "--", "waits for storage (PSI)"),
        ):
            at, values = _means(readings, name, bins)
            if len(at):
                panel.plot(at, values, dashes, color=colour, linewidth=0.9, label=label)
    panel.set_ylim(0, 104)
    panel.set_ylabel("CPU (%)", fontsize="small")
    style.legend(panel, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=4, borderaxespad=0.1, handlelength=1.2)


def _means(readings: pd.DataFrame, name: str, edges: Any) -> tuple[Any, Any]:
    return thin.bin_means(
        readings["time_s"].to_numpy(), readings[name].to_numpy(), readings["interval_s"].to_numpy(), edges
    )


def _shade_warmup(panel: Axes, steps: pd.DataFrame, first: float) -> None:
    timed = steps.loc[steps["phase"] == "timed", "time_s"]
    if 0 < len(timed) < len(steps):
        panel.axvspan(first, timed.iloc[0], facecolor=style.RULE, alpha=0.45, linewidth=0, zorder=0)


def timeline_title(run: Run, candidate: str | None = None) -> str:
    """``'pillow, no workers: 39 % of 4.02 s lost in 36 stalls'``."""
    name = run.timeline(candidate)
    stalls, seconds = run.stalls(name), run.seconds(name)
    lost_s = float(stalls["lost_s"].sum())
    share = f"{whole_percent(lost_s / seconds)} of {seconds:.3g} s" if seconds > 0 else f"{lost_s:.3g} s"
    return f"{style.name_of_timeline(run, name)}: {share} lost in {len(stalls):,} stalls"
