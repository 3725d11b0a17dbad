"""What a person reads of an explanation: the stages, what sets the pace, what would lift it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pipetune.candidates.describe import describe
from pipetune.explaining.conclude import CLOSES
from pipetune.explaining.facts import name_of
from pipetune.records.explanation import WITH_ACCELERATOR, Explanation, StageCost
from pipetune.report.line import Kind, Line
from pipetune.report.terminal.signs import clean
from pipetune.units import format_rate, format_share, significant

if TYPE_CHECKING:
    from rich.table import Table

#: Characters of the longest bar.
_BAR = 24
HEADERS = ("stage", "CPU time per 1000 images", "share", "rate from here on")
#: What the last column means.
LEGEND = "rate from here on: of the loader alone, with what comes before this stage in memory; ± 95 % interval"


def explanation_lines(found: Explanation) -> list[Line]:
    """The answer first, then the figures, then what would lift the rate."""
    lines = [Line(Kind.HEADLINE, found.sentence)]
    lines += [Line(Kind.DETAIL, f"{text[:1].upper()}{text[1:]}.") for text in found.evidence]
    if found.remedies:
        lines.append(Line(Kind.CONTEXT, "What would lift the rate, the cheapest change first:"))
        lines += [
            Line(Kind.DETAIL, f"  {format_rate(remedy.samples_per_s)}  {remedy.change} ({remedy.how})")
            for remedy in found.remedies
        ]
    return lines


def closing_line(found: Explanation) -> str | None:
    """That the stages add up; ``None``: they do not, which a note says, or it is not known."""
    closes, whole = found.closes_frac, found.part(WITH_ACCELERATOR)
    if closes is None or abs(closes) > CLOSES or whole is None or whole.cpu_s_per_1000_samples is None:
        return None
    return (
        "The stages add up: the whole loader beside the accelerator takes "
        f"{significant(whole.cpu_s_per_1000_samples)} s per 1000 images, {format_share(abs(closes))} "
        f"{'less' if closes > 0 else 'more'} than what was measured apart."
    )


def stage_rows(found: Explanation) -> list[tuple[str, str, str, str]]:
    """Stage, CPU time, share of all, rate: as texts, with a last row for all stages together."""
    total = sum(cost.cpu_s_per_1000_samples for cost in found.stages)
    positive = sum(max(0.0, cost.cpu_s_per_1000_samples) for cost in found.stages)
    rows = [_row(cost, positive, found.stages) for cost in found.stages]
    return [*rows, ("all stages", f"{significant(total)} s", "", "")] if len(rows) > 1 else rows


def _row(cost: StageCost, total: float, beside: Sequence[StageCost]) -> tuple[str, str, str, str]:
    half = (cost.ci95[1] - cost.ci95[0]) / 2
    share = max(0.0, cost.cpu_s_per_1000_samples) / total if total > 0 else 0.0
    return (
        name_of(cost.stages, beside), f"{significant(cost.cpu_s_per_1000_samples)} s ±{significant(half, 2)}",
        format_share(share), rate_of(cost.samples_per_s, cost.rate_ci95),
    )  # fmt: skip


def rate_of(rate: float, ci95: tuple[float, float]) -> str:
    """``'1,234/s ±3 %'``."""
    return f"{format_rate(rate)} ±{format_share((ci95[1] - ci95[0]) / 2 / rate)}"


def stage_table(found: Explanation, width: int, *, ascii: bool = False) -> Table:
    """The stages with a bar for their share; the bar is left out where ``width`` (characters) is too small."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), show_edge=False)
    rows = stage_rows(found)
    needed = sum(max(len(HEADERS[at]), *(len(row[at]) for row in rows)) + 3 for at in range(len(HEADERS)))
    for number, header in enumerate(HEADERS):
        table.add_column(header, justify="right" if number else "left", overflow="fold")
    bars = width >= needed + _BAR
    if bars:
        table.add_column("")
    most = max((cost.cpu_s_per_1000_samples for cost in found.stages), default=0.0)
    for number, row in enumerate(rows):
        cells = list(map(clean, row))
        if bars:
            cost = found.stages[number].cpu_s_per_1000_samples if number < len(found.stages) else 0.0
            cells.append(("#" if ascii else "█") * round(_BAR * max(0.0, cost) / most) if most > 0 else "")
        table.add_row(*map(Text, cells))
    return table


def loader_of(found: Explanation) -> str:
    """Of which loader it is."""
    return f"{describe(found.candidate)}, batches of {found.candidate.batch_size}"
