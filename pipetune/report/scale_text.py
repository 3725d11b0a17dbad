"""What a person reads of a scaling table: rates, where the time goes, what a training takes and costs. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipetune.records.scaling import ScaleRow, Scaling, TimeTo
from pipetune.report.terminal.signs import clean
from pipetune.units import format_bytes, format_duration, format_rate, whole_percent

if TYPE_CHECKING:
    from rich.table import Table

UNKNOWN = "-"
#: What columns mean.
LEGEND = (
    "efficiency: rate beside that of as many single accelerators; in host: of one whole host; across: beside as many "
    "single hosts; intervals: 95 % measured, 90 % predicted"
)
_MEASURED, _PREDICTED = "measured", "predicted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of the table."""

    name: str
    text: Callable[[ScaleRow], str]
    key: Callable[[ScaleRow], object]
    """What rows are sorted by."""
    width: int = 0
    """It is shown from this width of the terminal on (characters)."""
    number: bool = True


def columns_of(found: Scaling) -> list[Column]:
    """The columns of the rates, without those that nothing is known of."""
    columns = [
        Column(name="accelerators", text=lambda row: f"{row.accelerators:,}", key=lambda row: row.accelerators),
        Column(name="hosts", text=lambda row: f"{row.hosts:,}", key=lambda row: row.hosts),
        Column(name="", text=lambda row: _MEASURED if row.measured else _PREDICTED, key=lambda row: row.measured,
               number=False),
        Column(name="rate", text=lambda row: format_rate(row.samples_per_s), key=lambda row: row.samples_per_s),
        Column(name="interval", text=_interval, key=lambda row: row.interval and row.interval[0], width=80),
        Column(name="efficiency", text=lambda row: _share(row.efficiency), key=lambda row: row.efficiency),
        Column(name="in host", text=lambda row: _share(row.efficiency_in_host),
               key=lambda row: row.efficiency_in_host, width=100),
        Column(name="across", text=lambda row: _share(row.efficiency_across_hosts),
               key=lambda row: row.efficiency_across_hosts, width=100),
        Column(name="read per host", text=lambda row: _bytes(row.bytes_per_s_per_host),
               key=lambda row: row.bytes_per_s_per_host, width=110),
    ]  # fmt: skip
    return _with_values(columns, found.rows)


def time_columns(found: Scaling) -> list[Column]:
    """Where the time goes, as far as it is known."""
    shares: list[tuple[str, Callable[[ScaleRow], float | None]]] = [
        ("computes", lambda row: row.compute_frac), ("has no batch", lambda row: row.idle_frac),
        ("waits for others", lambda row: row.others_wait_frac), ("communicates", lambda row: row.communication_frac),
    ]  # fmt: skip
    if not any(row.compute_frac is not None for row in found.rows):
        return []  # of communication alone the efficiency across hosts says as much
    columns = [Column(name=name, text=lambda row, of=of: _share(of(row)), key=of)  # type: ignore[misc]
               for name, of in shares]  # fmt: skip
    first = columns_of(found)[0]
    return [first, *_with_values(columns, found.rows)]


def cost_columns(found: Scaling) -> list[Column]:
    """What an epoch and the training take and cost, as far as it is known."""

    def price(value: float | None) -> str:
        return money(value, found.currency)

    columns = [
        Column(name="epoch", text=lambda row: _time(row.epoch_s), key=lambda row: row.epoch_s),
        Column(name="its cost", text=lambda row: price(row.epoch_cost), key=lambda row: row.epoch_cost, width=100),
        Column(name="training", text=lambda row: _time(row.training_s), key=lambda row: row.training_s),
        Column(name="its cost", text=lambda row: price(row.training_cost), key=lambda row: row.training_cost),
        Column(name="on spot hosts", text=lambda row: _time(row.spot_training_s), key=lambda row: row.spot_training_s,
               width=76),
        Column(name="its cost", text=lambda row: price(row.spot_training_cost),
               key=lambda row: row.spot_training_cost, width=76),
    ]  # fmt: skip
    known = _with_values(columns, found.rows)
    return [columns_of(found)[0], *known] if known else []


def _with_values(columns: Sequence[Column], rows: Sequence[ScaleRow]) -> list[Column]:
    return [column for column in columns if any(column.text(row) != UNKNOWN for row in rows)]


def tables_of(found: Scaling) -> list[tuple[str, list[Column]]]:
    """All tables with their titles, those that are not empty."""
    tables = [("Rates", columns_of(found)), ("Where the time of an accelerator goes", time_columns(found)),
              ("Time and cost", cost_columns(found))]  # fmt: skip
    return [(title, columns) for title, columns in tables if columns]


def text_table(rows: Sequence[ScaleRow], columns: Sequence[Column], width: int) -> Table:
    """A table for the terminal; where ``width`` (characters) is small, some columns are left out."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    shown = [column for column in columns if column.width <= width]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), show_edge=False)
    for column in shown:
        table.add_column(column.name, justify="right" if column.number else "left", no_wrap=True)
    for row in rows:
        # Predicted rows are dim, and say so in a column of their own.
        table.add_row(*(Text(clean(column.text(row)), style="" if row.measured else "dim") for column in shown))
    return table


def headline_of(found: Scaling) -> str:
    """The largest number that was measured, and the largest that is predicted."""
    known = [row for row in found.rows if row.measured]
    predicted = [row for row in found.rows if not row.measured]
    parts = []
    if known:
        parts.append(f"{known[-1].accelerators:,} accelerator{'s' * (known[-1].accelerators != 1)}: "
                     f"{format_rate(known[-1].samples_per_s, ' samples/s')} measured{_beside(known[-1])}")  # fmt: skip
    if predicted and (not known or predicted[-1].accelerators > known[-1].accelerators):
        parts.append(f"{predicted[-1].accelerators:,}: {format_rate(predicted[-1].samples_per_s, ' samples/s')} "
                     f"predicted{_beside(predicted[-1])}")  # fmt: skip
    return "; ".join(parts)


def _beside(row: ScaleRow) -> str:
    return "" if row.efficiency is None else f", {whole_percent(row.efficiency)} of as many single ones"


def lost_line(found: Scaling) -> str | None:
    """Where most of the rate is lost, inside hosts or between them; ``None``: that is not known."""
    rows = [row for row in found.rows if row.hosts > 1 and row.efficiency_in_host is not None
            and row.efficiency_across_hosts is not None and (row.measured or row.communication_frac is not None)
            ]  # fmt: skip
    if not rows:
        return None
    last = rows[-1]
    inside = max(0.0, 1 - (last.efficiency_in_host or 0.0))
    between = max(0.0, 1 - (last.efficiency_across_hosts or 0.0))
    if max(inside, between) < 0.02:  # what repeats differ by
        return "Hardly anything is lost, inside hosts or between them."
    where = "inside each host" if inside >= between else "between the hosts"
    return (f"Most of what is lost with {last.accelerators:,} accelerators is lost {where}: {whole_percent(inside)} "
            f"inside, {whole_percent(between)} between.")  # fmt: skip


def time_to_lines(found: Scaling) -> Iterator[str]:
    """When each training reached each value."""
    for one in found.times_to:
        yield _time_to_text(one, found)


def _time_to_text(one: TimeTo, found: Scaling) -> str:
    who = one.curve if one.accelerators is None else \
        f"{one.accelerators:,} accelerator{'s' * (one.accelerators != 1)} ({one.curve})"  # fmt: skip
    curve = next(curve for curve in found.curves if curve.name == one.curve)
    value = f"{one.value:g} or {'less' if one.falls else 'more'}"
    if one.reached_s is None:
        best = min(curve.values) if one.falls else max(curve.values)
        return f"{who}: {curve.metric} did not reach {value}; {best:g} at best"
    at = [format_duration(one.reached_s)]
    how = "" if one.measured else " as predicted"
    at += [] if one.samples_per_s is None else [f"at {format_rate(one.samples_per_s, ' samples/s')}{how}"]
    at += [] if one.cost is None else [money(one.cost, found.currency)]
    since = ", counted from the first line of its file" if curve.from_first else ""
    return f"{who}: {curve.metric} of {value} after {', '.join(at)}{since}"


def price_line(found: Scaling) -> str | None:
    """What the costs rest on; ``None``: there are none."""
    if found.per_hour is None and found.spot_per_hour is None:
        return None
    parts = [f"{money(found.per_hour, found.currency)} per hour" if found.per_hour is not None else "",
             f"{money(found.spot_per_hour, found.currency)} per hour where it can be taken away"
             if found.spot_per_hour is not None else ""]  # fmt: skip
    return f"A host with {found.accelerators_per_host:,} accelerators costs {' and '.join(filter(None, parts))}."


def money(value: float | None, currency: str) -> str:
    """``'$720'``, ``'3.40 EUR'``, ``'12.50'``."""
    if value is None:
        return UNKNOWN
    text = f"{value:,.{0 if value >= 100 else 2 if value >= 0.1 else 4}f}"
    return f"{currency}{text}" if len(currency) == 1 else f"{text} {currency}".strip()


def _interval(row: ScaleRow) -> str:
    return UNKNOWN if row.interval is None else \
        f"{format_rate(row.interval[0], '')} to {format_rate(row.interval[1], '')}"  # fmt: skip


def _share(value: float | None) -> str:
    return UNKNOWN if value is None else whole_percent(value)


def _bytes(value: float | None) -> str:
    return UNKNOWN if value is None else f"{format_bytes(int(value))}/s"


def _time(value: float | None) -> str:
    return UNKNOWN if value is None else format_duration(value)
