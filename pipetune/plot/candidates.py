"""Figures that compare candidates: rates, parts of a step, two runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pipetune import search
from pipetune.candidates.describe import describe
from pipetune.diagnosis.causes import NOT_INPUT
from pipetune.errors import UsageError
from pipetune.plot import style
from pipetune.registry import LOADERS
from pipetune.runs import frames
from pipetune.runs.run import SWEEP
from pipetune.store.read import timeline_name

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from pipetune.runs.run import Run


def rate_by_workers(run: Run, *, ax: Axes | None = None) -> Axes:
    """Draw the rate (samples/s) of every measured candidate against its workers, a colour per backend.

    Threads have dashed lines and bars, processes solid ones; uint8 batches have hollow marks. Bars are 95 %
    intervals; the accelerator's max ingestion rate and the target are lines across.

    Raises:
        UsageError: this run is not a sweep, or nothing was measured.
        MissingPackageError: matplotlib is not installed.
    """
    frame = _with_worker_kind(measured(run))
    ax = style.axes(ax, height=4.2)
    # Shifted a little, so that intervals of backends with the same worker count do not cover each other.
    names = style.in_table_order(frame["backend"])
    apart = 0.05 * max(1.0, float(frame["num_workers"].max()) / 4)
    frame = frame.assign(at=frame["num_workers"] + apart * frame["backend"].map(names.index))
    frame["at"] -= apart * (len(names) - 1) / 2
    for backend in names:
        own = frame[frame["backend"] == backend]
        colour, marker = style.backend_style(backend)
        label: str | None = backend
        for (kind, transfer), alike in own.groupby(["worker_kind", "transfer"], sort=True):
            best = alike.sort_values("samples_per_s").groupby("num_workers").tail(1).sort_values("num_workers")
            line = _LINES.get(str(kind), "-")
            ax.plot(best["at"], best["samples_per_s"], color=colour, linewidth=1.0, alpha=0.7, linestyle=line)
            rate = alike["samples_per_s"]
            drawn = ax.errorbar(
                alike["at"], rate, yerr=[rate - alike["samples_per_s_low"], alike["samples_per_s_high"] - rate],
                fmt=marker, color=colour, markerfacecolor="none" if transfer == "uint8" else colour, markersize=5,
                elinewidth=1, capsize=2, label=label,
            )  # fmt: skip
            for bars in drawn[2]:  # a single worker count has no line that shows threads
                bars.set_linestyle(line)
            label = None
    _explain_settings(ax, frame)
    ceiling = run.result.get("ceiling_samples_per_s") or _ceiling(run)
    if ceiling:
        ax.axhline(ceiling, color=style.INK, linewidth=0.9, label=f"max ingestion rate of the {run.accelerator}")
        target = style.target_of(run)
        if target:
            ax.axhline(target * ceiling, color=style.INK, linewidth=0.9, linestyle=":", label=f"target {target:.0%}")
    chosen = frame[frame["timeline"] == run.recommended]
    if len(chosen):
        ax.scatter(
            chosen["at"], chosen["samples_per_s"], s=150, facecolors="none", edgecolors=style.INK,
            linewidths=1.1, label=style.name_of_chosen(run),
        )  # fmt: skip
    ax.set_xticks(sorted(frame["num_workers"].unique()))
    ax.set_ylim(bottom=0)
    ax.set_xlabel("loader workers")
    ax.set_ylabel("rate (samples/s)")
    style.plain(ax)
    style.legend(ax, loc="center left", bbox_to_anchor=(1.01, 0.5))
    return ax


def _with_worker_kind(frame: pd.DataFrame) -> pd.DataFrame:
    """The kind of worker as the loader has it: the column of that name says which loader was chosen, in old words."""
    pairs = zip(frame["loader"], frame["worker_kind"], strict=True)
    # A newer version's run may have a loader that this one does not know.
    kinds = [LOADERS[loader].worker_kind if loader in LOADERS else kind for loader, kind in pairs]
    return frame.assign(worker_kind=kinds)


#: Kind of worker -> style of its line.
_LINES: dict[str, Any] = {"process": "-", "thread": (0, (4, 2))}


def _explain_settings(ax: Axes, frame: pd.DataFrame) -> None:
    """Explain dashes and hollow marks in the legend, where there are any."""
    if (frame["worker_kind"] == "thread").any():
        ax.plot([], [], color=style.GREY, linewidth=1.0, linestyle=_LINES["thread"], label="dashed: threads")
    if (frame["transfer"] == "uint8").any():
        ax.plot([], [], "o", color=style.GREY, markerfacecolor="none", markersize=5, label="hollow: uint8 batches")


def step_parts(run: Run, *, ax: Axes | None = None) -> Axes:
    """Draw where the time of a step goes (ms), a bar per candidate: the accelerator's work, copies, idle time.

    They add up to the time from step to step. Idle time is divided by whether the loop was waiting for its batch, and
    what accelerators of several ranks wait for each other is a part of its own.

    Raises:
        UsageError, MissingPackageError: as :func:`rate_by_workers`.
    """
    frame = measured(run).sort_values("samples_per_s")
    parts = {name: _parts(run, name) for name in frame["timeline"]}
    ax = style.axes(ax, height=1.2 + 0.32 * len(frame))
    left = [0.0] * len(frame)
    at = range(len(parts))
    for part, (title, colour, hatch) in {
        "compute": (f"{run.accelerator} busy", style.BLUE, ""),
        "copy": ("copying to the device", style.SKY, ".."),
        "input": ("idle: waiting for the batch", style.ORANGE, "//"),
        "other": ("idle: another reason", style.GREY, "xx"),
        "ranks": ("waiting for other ranks", style.LIGHT, "||"),
    }.items():
        values = [1000 * own[part] for own in parts.values()]
        if any(value > 0 for value in values):
            ax.barh(at, values, left=left, color=colour, hatch=hatch, edgecolor="white", linewidth=0, label=title)
        left = [start + value for start, value in zip(left, values, strict=True)]
    ax.set_yticks(at, [_label(run, name) for name in parts])
    ax.set_xlabel("time per step (ms)")
    style.plain(ax, grid="x")
    ax.tick_params(axis="y", length=0)
    # Over the long names of candidates, too: it may be wider than what is drawn.
    style.legend(ax, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2)
    return ax


def compared(first: Run, second: Run, *, ax: Axes | None = None, names: tuple[str, str] | None = None) -> Axes:
    """Draw the rates of the candidates that two sweeps have in common, with their 95 % intervals.

    Args:
        first: a sweep, the left one in the legend.
        second: another sweep.
        ax: to draw on.
        names: of the two runs; unless given, those of their folders, with the folder around them where they are equal.

    Raises:
        UsageError: one is not a sweep, or they have no measured candidate in common.
        MissingPackageError: matplotlib is not installed.
    """
    left, right = (measured(run).set_index("key") for run in (first, second))
    common = [key for key in left.index if key in right.index]
    if not common:
        raise UsageError(
            f"{first.path} and {second.path} have no measured candidate in common",
            hint=f"measured were {', '.join(left.index)} and {', '.join(right.index)}",
        )
    common.sort(key=lambda key: right.loc[key, "samples_per_s"])
    ax = style.axes(ax, height=1.4 + 0.36 * len(common))
    titles = names or style.names_apart(first.path, second.path)
    for frame, title, colour, marker, shift in (
        (left, titles[0], style.ORANGE, "o", -0.12), (right, titles[1], style.BLUE, "s", 0.12),
    ):  # fmt: skip
        own = frame.loc[common]
        spread = [own["samples_per_s"] - own["samples_per_s_low"], own["samples_per_s_high"] - own["samples_per_s"]]
        at = [number + shift for number in range(len(common))]
        ax.errorbar(
            own["samples_per_s"], at, xerr=spread, fmt=marker, color=colour, markersize=5, capsize=2, elinewidth=1,
            label=style.label_of(title),
        )  # fmt: skip
    names_of = {outcome.candidate.key: describe(outcome.candidate) for outcome in second.outcomes}
    ax.set_yticks(range(len(common)), [names_of[key] for key in common])
    ax.set_xlim(left=0)
    ax.set_xlabel("rate (samples/s)")
    style.plain(ax, grid="x")
    # Over the long names of candidates, too: it may be wider than what is drawn.
    style.legend(ax, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2)
    return ax


def measured(run: Run) -> pd.DataFrame:
    """What was measured of each candidate of a sweep, as a frame with one row each.

    Raises:
        UsageError: this run is not a sweep, or nothing was measured.
    """
    if run.kind != SWEEP:
        raise UsageError(
            f"{run.path} is a run of pipetune {run.kind}, not of pipetune sweep",
            hint="pipetune.plot.stall_timeline draws it",
        )
    frames.require_pandas()
    newest = list(search.latest(run.outcomes).values())
    frame = frames.outcome_frame(
        newest, usable_cores=run.usable_cores, counted_cores=run.counted_cores, recommended=run.recommended_key
    )
    frame = frame[frame["samples_per_s"].notna()]
    if frame.empty:
        raise UsageError(f"{run.path}: nothing was measured to its end", hint="pipetune sweep --resume continues it")
    return frame


def _ceiling(run: Run) -> float | None:
    found = [o.measurement.samples_per_s for o in run.outcomes if o.is_ceiling and o.measurement is not None]
    return found[-1] if found else None


def _parts(run: Run, name: str) -> dict[str, float]:
    """Seconds per timed step; they sum to the time from step to step."""
    outcome = next(o for o in reversed(run.outcomes) if timeline_name(o) == name)
    assert outcome.measurement is not None  # it is in the frame of measured ones
    m = outcome.measurement
    period_s = m.timed_s / m.steps
    idle_s = m.accelerator_idle_frac * period_s
    lost_s = other = 0.0
    if name in run.candidates:
        stalls = run.stalls(name)
        lost_s = float(stalls["lost_s"].sum())
        other = float(stalls.loc[stalls["cause"] == NOT_INPUT, "lost_s"].sum())
    # Where the timeline was lost, all of the idle time counts as the input's: that is what a sweep varies.
    other_s = idle_s * other / lost_s if lost_s else 0.0
    copy_s, ranks_s = (m.h2d_frac or 0.0) * period_s, (m.others_wait_frac or 0.0) * period_s
    return {
        "compute": max(0.0, period_s - idle_s - copy_s - ranks_s),
        "copy": copy_s,
        "input": idle_s - other_s,
        "other": other_s,
        "ranks": ranks_s,
    }


def _label(run: Run, name: str) -> str:
    """A candidate in words. Of each candidate only its newest measurement is drawn, so none needs a number."""
    outcome = next(o for o in reversed(run.outcomes) if timeline_name(o) == name)
    chosen = (style.name_of_chosen(run), run.recommended)
    marks = [mark for mark, own in (chosen, ("default", run.default)) if own == name]
    words = describe(outcome.candidate)
    return f"{words} ({', '.join(marks)})" if marks else words
