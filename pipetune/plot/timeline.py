"""The stall timeline: when the accelerator was idle, and what the loop and the machine did meanwhile."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from pipetune.diagnosis.causes import title_of
from pipetune.plot import style, thin
from pipetune.records.observation import LOADER_WAIT
from pipetune.runs.run import WATCH
from pipetune.store.watch_log import timeline_of
from pipetune.units import format_duration, whole_percent

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from pipetune.runs.run import Run

#: Panels from the top, with their share of the height; what lies between them, and at least above them.
_HEIGHTS = {"busy": 0.30, "steps": 0.30, "cpu": 0.24}
_GAP = 0.09
_TOP = 0.92
#: Entries of the first panel's legend beside each other; height of a row of them, and what is around the rows (points).
_LEGEND_COLUMNS = 3
_ROW_PT, _AROUND_ROWS_PT = 13.0, 10.0


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
    first, last = _span(run, name, steps, readings, stalls)
    edges = thin.edges_of(first, last, pixels)
    seen = thin.visible((stalls["end_s"] - stalls["start_s"]).to_numpy(), float(edges[1] - edges[0]))
    entries = stalls["cause"].iloc[seen.kept].nunique() + _has_busy(steps, readings)
    panels = _panels(ax, [panel for panel in _HEIGHTS if panel != "steps" or len(steps)], entries)
    notes = ["grey: warm-up"] if len(steps) and (steps["phase"] == "warmup").any() else []
    notes += _draw_busy(panels["busy"], run, steps, readings, stalls.iloc[seen.kept], edges)
    if seen.short:
        pixel = format_duration(float(edges[1] - edges[0]))
        elsewhere = "in the busy share, " if _has_busy(steps, readings) else ""
        notes.append(
            f"{seen.short:,} of {len(stalls):,} stalls are shorter than a pixel ({pixel}), "
            f"{format_duration(seen.short_s)} together: they are {elsewhere}not shaded"
        )
    if run.kind == WATCH and not _has_busy(steps, readings):
        notes += _what_is_missing(run, name, readings)
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


def _span(
    run: Run, name: str, steps: pd.DataFrame, readings: pd.DataFrame, stalls: pd.DataFrame
) -> tuple[float, float]:
    pairs = ((steps, "time_s", "end_s"), (readings, "time_s", "time_s"), (stalls, "start_s", "end_s"))
    known = [(float(frame[begin].min()), float(frame[end].max())) for frame, begin, end in pairs if len(frame)]
    if run.windows and not len(readings):
        known.append(_span_of_windows(run, name))
    if not known:
        return 0.0, 1.0
    first, last = min(begin for begin, _ in known), max(end for _, end in known)
    return first, last if last > first else first + 1.0  # a single reading has no length


def _span_of_windows(run: Run, name: str) -> tuple[float, float]:
    """When a watch began and ended that kept no readings, in seconds of its timeline."""
    first_s = 0.0
    unix_s, monotonic_ns = run.info.get("unix_s"), run.info.get("monotonic_ns")
    if unix_s is not None and monotonic_ns is not None:
        first_s = run.windows[0].started_unix_s - unix_s + (monotonic_ns - run.zero_ns(name)) / 1e9
    # Of the wall clock only the beginning is used: later it may have been set, and it goes on in a suspended machine.
    return first_s, first_s + sum(window.seconds for window in run.windows)


def _what_is_missing(run: Run, name: str, readings: pd.DataFrame) -> list[str]:
    """Why no busy share of a watch is drawn."""
    notes = []
    if not len(readings):
        kept = "no readings are stored" if run.path.is_dir() else "a log has no readings"
        notes.append(f"{kept}: neither the busy share nor the CPU is drawn")
    # A verdict that does not know what was lost, before training began, does not say what it would be derived from.
    verdicts = [verdict for window in run.windows for verdict in window.verdicts if verdict.lost_frac is not None]
    sources = {one.source for one in verdicts if timeline_of(one.rank, one.pid, run.candidates) == name}
    if len(readings) or LOADER_WAIT in sources:
        notes.append("no accelerator could be read: stalls are the main thread's waits for data")
    return notes


def _panels(ax: Axes, names: list[str], entries: int) -> dict[str, Axes]:
    ax.clear()
    ax.set_axis_off()
    # Above the first panel is its legend, and above that the title, which does not make way for it.
    legend_pt = _AROUND_ROWS_PT + _ROW_PT * math.ceil(entries / _LEGEND_COLUMNS)
    height_pt = 72 * ax.get_window_extent().height / ax.figure.dpi
    top = min(_TOP, max(0.5, 1 - legend_pt / height_pt))
    whole = sum(_HEIGHTS[name] for name in names)
    scale = (top - _GAP * (len(names) - 1)) / whole
    panels: dict[str, Axes] = {}
    for name in names:
        height = _HEIGHTS[name] * scale
        shared: dict[str, Any] = {"sharex": next(iter(panels.values()))} if panels else {}
        panels[name] = ax.inset_axes((0.0, top - height, 1.0, height), **shared)
        style.plain(panels[name])
        top -= height + _GAP
    for panel in list(panels.values())[:-1]:
        panel.tick_params(labelbottom=False)
    return panels


def _has_busy(steps: pd.DataFrame, readings: pd.DataFrame) -> bool:
    return len(steps) > 0 or bool(readings["gpu_util_pct"].notna().any())


def _draw_busy(
    panel: Axes, run: Run, steps: pd.DataFrame, readings: pd.DataFrame, shown: pd.DataFrame, edges: Any
) -> list[str]:
    """Draw the first panel, with the stalls that are long enough to be shown; what there is to say about it."""
    import numpy as np

    notes = []
    for cause, own in shown.groupby("cause", sort=False):
        spans = list(zip(own["start_s"], own["end_s"] - own["start_s"], strict=True))
        label = f"stall: {title_of(str(cause))}"
        panel.broken_barh(spans, (0, 100), color=style.colour_of(str(cause)), alpha=0.55, linewidth=0, label=label)
    source = f"{run.accelerator} busy"
    if len(steps):
        whole = steps[np.isfinite(steps["compute_s"])]
        if len(whole) < len(steps):
            damaged = len(steps) - len(whole)
            steps_are = "1 damaged step is" if damaged == 1 else f"{damaged:,} damaged steps are"
            notes.append(f"{steps_are} drawn as not busy: how long the accelerator worked is not known")
        computed_s = whole["end_s"] - whole["others_s"].fillna(0.0)
        device_s = whole["compute_s"] + whole["h2d_s"].fillna(0.0)
        busy = 100 * thin.covered((computed_s - device_s).to_numpy(), computed_s.to_numpy(), edges)
        panel.stairs(busy, edges, color=style.BLUE, linewidth=0.9, label=f"{source} (from the steps)")
    elif _has_busy(steps, readings):
        at, mean = _means(readings, "gpu_util_pct", edges)
        _line(panel, at, mean, color=style.BLUE, drawstyle="steps-mid", label=source)
    panel.set_ylim(0, 104)
    panel.set_ylabel("busy (%)", fontsize="small")
    style.legend(
        panel, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=_LEGEND_COLUMNS, borderaxespad=0.1, handlelength=1.2
    )
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
        _area(panel, at, 0 * busy, busy, color=style.LIGHT, label="CPU busy")
        at_io, iowait = _means(readings, "cpu_iowait_pct", bins)
        if len(at_io) == len(at):
            _area(panel, at, busy, busy + iowait, color=style.SKY, label="iowait (unreliable)")
        for name, colour, dashes, label in (
            ("psi_cpu_some_pct", style.VERMILION, "-", "waits for a core (PSI)"),
            ("psi_io_some_pct", style.BLUE, "--", "waits for storage (PSI)"),
        ):
            at, values = _means(readings, name, bins)
            if len(at):
                _line(panel, at, values, color=colour, linestyle=dashes, label=label)
    panel.set_ylim(0, 104)
    panel.set_ylabel("CPU (%)", fontsize="small")
    style.legend(panel, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=4, borderaxespad=0.1, handlelength=1.2)


def _line(panel: Axes, at: Any, values: Any, **looks: Any) -> None:
    """A line; of a single value, which a line does not show, a mark."""
    panel.plot(at, values, marker="o" if len(at) == 1 else None, markersize=4, linewidth=0.9, **looks)


def _area(panel: Axes, at: Any, low: Any, high: Any, **looks: Any) -> None:
    """The area between two lines; of a single value a mark."""
    if len(at) == 1:
        _line(panel, at, high, **looks)
    else:
        panel.fill_between(at, low, high, step="mid", linewidth=0, **looks)


def _means(readings: pd.DataFrame, name: str, edges: Any) -> tuple[Any, Any]:
    return thin.bin_means(
        readings["time_s"].to_numpy(), readings[name].to_numpy(), readings["interval_s"].to_numpy(), edges
    )


def _shade_warmup(panel: Axes, steps: pd.DataFrame, first: float) -> None:
    is_warmup = steps["phase"] == "warmup"
    if is_warmup.any():
        # A loop may have ended before its warm-up did.
        ends = steps["end_s"].max() if is_warmup.all() else steps.loc[~is_warmup, "time_s"].iloc[0]
        panel.axvspan(first, ends, facecolor=style.RULE, alpha=0.45, linewidth=0, zorder=0)


def timeline_title(run: Run, candidate: str | None = None) -> str:
    """``'pillow, no workers: 39 % of 4.0 s lost in 36 stalls'``; of a watch ``'main: 36 stalls, 1.6 s together'``."""
    name = run.timeline(candidate)
    stalls, seconds = run.stalls(name), run.seconds(name)
    lost_s = float(stalls["lost_s"].sum())
    words, count = style.name_of_timeline(run, name), f"{len(stalls):,} stall{'s' * (len(stalls) != 1)}"
    if run.kind == WATCH:
        # A device that is half busy all the time loses half of it, and has no stall.
        return f"{words}: {count}, {format_duration(lost_s)} together" if len(stalls) else f"{words}: no stall"
    share = format_duration(lost_s)
    if seconds > 0:
        share = f"{whole_percent(lost_s / seconds)} of {format_duration(seconds)}"
    return f"{words}: {share} lost in {count}"
