"""Rates over numbers of accelerators, measured and predicted, and accuracy over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipetune.errors import UsageError
from pipetune.plot import style
from pipetune.records.scaling import ScaleRow, Scaling
from pipetune.units import whole_percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: The longest unit of which the longest training takes at least this many.
_ENOUGH_UNITS = 2.0
_UNITS = ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes"), (1.0, "seconds"))
_COLOURS = (style.BLUE, style.ORANGE, style.GREEN, style.PURPLE, style.VERMILION, style.SKY)


def scaling(found: Scaling, *, ax: Axes | None = None) -> Axes:
    """Draw the rate over the number of accelerators on two logarithmic scales, beside as many single ones.

    Filled points were measured, hollow ones are predicted; the percentages are efficiencies.

    Args:
        found: what :func:`pipetune.scale` returned.
        ax: to draw on.

    Raises:
        MissingPackageError: matplotlib is not installed.
    """
    ax = style.axes(ax, width=7.0, height=4.2)
    rows = found.rows
    first = next((row for row in rows if row.efficiency), None)
    if first is not None and first.efficiency:
        one = first.samples_per_s / first.accelerators / first.efficiency
        counts = [rows[0].accelerators, rows[-1].accelerators]
        ax.plot(counts, [one * count for count in counts], color=style.GREY, linewidth=1, linestyle="--",
                label="as many single ones")  # fmt: skip
    ax.plot([row.accelerators for row in rows], [row.samples_per_s for row in rows], color=style.LIGHT, linewidth=1)
    for measured, label in ((True, "measured"), (False, "predicted")):
        _points(ax, [row for row in rows if row.measured == measured], label, hollow=not measured)
    for row in rows:
        if row.efficiency is not None:
            ax.annotate(whole_percent(row.efficiency), (row.accelerators, row.samples_per_s), xytext=(4, -11),
                        textcoords="offset points", fontsize="x-small", color=style.INK)  # fmt: skip
    if 1 < found.accelerators_per_host < rows[-1].accelerators:
        ax.axvline(found.accelerators_per_host, color=style.RULE, linewidth=1)
        ax.annotate("one host", (found.accelerators_per_host, 0.02), xycoords=("data", "axes fraction"),
                    xytext=(3, 0), textcoords="offset points", fontsize="x-small", color=style.INK)  # fmt: skip
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    counts = [row.accelerators for row in rows]
    ax.set_xticks(counts, [f"{count:,}" for count in counts])
    ax.minorticks_off()
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    ax.set_xlabel("accelerators")
    ax.set_ylabel("samples/s")
    style.plain(ax)
    style.legend(ax, loc="upper left")
    return ax


def _points(ax: Axes, rows: list[ScaleRow], label: str, *, hollow: bool) -> None:
    if not rows:
        return
    rates = [row.samples_per_s for row in rows]
    ends = [row.interval or (row.samples_per_s, row.samples_per_s) for row in rows]
    below = [max(0.0, rate - low) for rate, (low, _) in zip(rates, ends, strict=True)]
    above = [max(0.0, high - rate) for rate, (_, high) in zip(rates, ends, strict=True)]
    ax.errorbar([row.accelerators for row in rows], rates, yerr=[below, above], fmt="o", markersize=5, capsize=2,
                elinewidth=1, color=style.BLUE, markerfacecolor="none" if hollow else style.BLUE,
                label=label)  # fmt: skip


def accuracy(found: Scaling, *, ax: Axes | None = None) -> Axes:
    """Draw each training's metric over its time.

    Args:
        found: what :func:`pipetune.scale` returned, with metrics.
        ax: to draw on.

    Raises:
        UsageError: there are no metrics.
        MissingPackageError: matplotlib is not installed.
    """
    if not found.curves:
        raise UsageError("no training has written a metric", hint="pipetune.scale(…, metrics={8: 'metrics.csv'})")
    ax = style.axes(ax, width=7.0, height=4.2)
    longest = max(curve.times_s[-1] for curve in found.curves)
    unit_s, unit = next((pair for pair in _UNITS if longest >= _ENOUGH_UNITS * pair[0]), _UNITS[-1])
    for number, curve in enumerate(found.curves):
        colour = _COLOURS[number % len(_COLOURS)]
        count = curve.accelerators
        name = curve.name if count is None else f"{count:,} accelerator{'s' * (count != 1)}"
        ax.plot([at / unit_s for at in curve.times_s], curve.values, color=colour, marker="o", markersize=3,
                linewidth=1.2, label=style.label_of(name))  # fmt: skip
        for one in found.times_to:
            if one.curve == curve.name and one.reached_s is not None:
                ax.plot(one.reached_s / unit_s, one.value, marker="D", markersize=7, color=colour, linestyle="none",
                        markerfacecolor="none")  # fmt: skip
    for value in dict.fromkeys(one.value for one in found.times_to):
        ax.axhline(value, color=style.GREY, linewidth=0.8, linestyle="--")
    ax.set_xlim(left=0)
    ax.set_xlabel(f"{unit} since the training began")
    names = list(dict.fromkeys(curve.metric for curve in found.curves))
    ax.set_ylabel(" / ".join(names)).set_parse_math(False)
    style.plain(ax)
    style.legend(ax)
    return ax
