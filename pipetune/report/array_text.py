"""What came of a job array, as lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pipetune.report.line import Kind, Line
from pipetune.scaling.launch import TaskResult
from pipetune.units import format_rate, whole_percent

_STATUS = {
    "target_met": "target met", "target_missed": "target missed", "interrupted": "interrupted", "failed": "failed",
}  # fmt: skip


def array_lines(found: Sequence[TaskResult]) -> Iterator[Line]:
    """A line for each task, and what is missing."""
    rows = [_row(one) for one in found]
    widths = [max(len(row[column]) for row in (_HEAD, *rows)) for column in range(len(_HEAD))]
    for number, row in enumerate((_HEAD, *rows)):
        text = "  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip()
        yield Line(Kind.DETAIL if number else Kind.HEADLINE, text)
    for one in found:
        if one.message:
            yield Line(Kind.WARNING, f"task {one.number}: {one.message}")
    left = [str(one.number) for one in found if one.status in ("not started", "no result", "interrupted")]
    if left:
        yield Line(Kind.WARNING, f"not at their end: {len(left)} of {len(found)} tasks ({', '.join(left)})")


_HEAD = ("task", "with", "result", "recommended", "rate", "goodput", "candidates", "host")


def _row(one: TaskResult) -> tuple[str, ...]:
    rate = ""
    if one.samples_per_s is not None:
        rate = format_rate(one.samples_per_s)
        if one.ci95 is not None:
            rate += f" ({one.ci95[0]:,.0f} to {one.ci95[1]:,.0f})"
    return (
        str(one.number), one.label or "-", _STATUS.get(one.status, one.status), one.recommended or "-", rate or "-",
        "-" if one.goodput is None else whole_percent(one.goodput), str(one.candidates), one.host or "-",
    )  # fmt: skip
