"""What a person reads of a training whose crops grow: its phases, and what serves them. Pure."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from pipetune.answering.questions import limit_words
from pipetune.records.schedule import Phase, Schedule, Setup
from pipetune.report.line import Kind, Line
from pipetune.report.scale_text import UNKNOWN, money
from pipetune.report.terminal.signs import clean
from pipetune.units import format_duration, format_rate, whole_percent

if TYPE_CHECKING:
    from rich.table import Table

#: Header, whether it is a number, and the width of the terminal from which on it is shown (characters).
HEADERS = (
    ("crops", True, 0), ("epochs", True, 100), ("demand", True, 0), ("of files", True, 0), ("as it is", True, 0),
    ("needs", False, 0), ("then", True, 0), ("sets the pace", False, 130), ("time", True, 110), ("cost", True, 110),
)  # fmt: skip


def schedule_rows(found: Schedule) -> list[tuple[str, ...]]:
    """A row for each phase."""
    return [_row(phase, found) for phase in found.phases]


def _row(phase: Phase, found: Schedule) -> tuple[str, ...]:
    demand, ranks = phase.demand_samples_per_s, found.ranks

    def share(rate: float) -> str:
        return whole_percent(min(1.0, rate / demand))

    low, high = phase.best.interval90
    return (
        f"{phase.image_size} px", f"{phase.epochs:g}", format_rate(demand), _bytes_text(phase.demand_bytes_per_s),
        f"{format_rate(phase.now.samples_per_s)}, {share(phase.now.samples_per_s)}",
        ("" if phase.setup is not None else "not enough: ") + setup_text(phase.closest, ranks),
        f"{format_rate(phase.best.samples_per_s)}, {share(phase.best.samples_per_s)} ({share(low)} to {share(high)})",
        limit_words(phase.best.bound_by), UNKNOWN if phase.seconds is None else format_duration(phase.seconds),
        money(phase.cost, found.currency),
    )  # fmt: skip


def setup_text(setup: Setup, ranks: int) -> str:
    """``'4 workers in each of 8 ranks, images packed at 160 px'``."""
    workers = f"{setup.workers or 'no'} worker{'s' * (setup.workers != 1)}"
    workers += f" in each of {ranks} ranks" if ranks > 1 else ""
    return workers if setup.shorter_edge is None else f"{workers}, images packed at {setup.shorter_edge} px"


def _bytes_text(value: float | None) -> str:
    """``'139 MB/s'``, as disks and networks are sold."""
    return UNKNOWN if value is None else f"{value / 1e6:,.0f} MB/s"


def schedule_table(found: Schedule, width: int) -> Table:
    """The phases; where ``width`` (characters) is small, some columns are left out."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    rows = schedule_rows(found)
    shown = [number for number, (_, _, least) in enumerate(HEADERS)
             if least <= width and any(row[number] != UNKNOWN for row in rows)]  # fmt: skip
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), show_edge=False)
    for number in shown:
        name, is_number, _ = HEADERS[number]
        table.add_column(name, justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(clean(row[number])) for number in shown))
    return table


def schedule_lines(found: Schedule) -> list[Line]:
    """What serves the schedule, and what it takes."""
    lines = []
    short = [phase for phase in found.phases if phase.setup is None]
    target = whole_percent(found.target)
    if found.common is not None:
        lines.append(
            Line(Kind.HEADLINE, f"One setup is enough for all phases: {setup_text(found.common, found.ranks)}.")
        )
    elif short:
        sizes = ", ".join(f"{phase.image_size} px" for phase in short)
        lines.append(Line(Kind.HEADLINE, f"Nothing that was considered keeps {target} of the accelerators busy with "
                                         f"crops of {sizes}."))  # fmt: skip
    else:
        lines.append(Line(Kind.HEADLINE, "No one setup is enough for all phases; the table has one for each."))
    doubtful = [f"{phase.image_size} px" for phase in found.phases if phase.setup is not None
                and phase.best.interval90[0] < found.target * phase.demand_samples_per_s]  # fmt: skip
    if doubtful:
        lines.append(Line(Kind.WARNING, f"With crops of {', '.join(doubtful)} {target} may be missed: it lies inside "
                                        "of the 90 % interval. pipetune whatif --check measures it."))  # fmt: skip
    if found.edges:
        sizes = ",".join(map(str, found.edges))
        option = f"--sizes {sizes}" if len(found.edges) > 1 else f"--shorter-edge {sizes}"
        packs = "The packs, in one go" if len(found.edges) > 1 else "The pack"
        lines.append(Line(Kind.DETAIL, f"{packs}: pipetune pack {shlex.quote(found.source)} OUT {option}"))
    if found.seconds is not None:
        cost = "" if found.cost is None else f", {money(found.cost, found.currency)}"
        lines.append(Line(Kind.DETAIL, f"The whole schedule takes {format_duration(found.seconds)}{cost}."))
    return lines
