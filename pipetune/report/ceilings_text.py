"""What larger or smaller batches would make of the accelerator's max ingestion rate, in sentences. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from pipetune.records.ceilings import BatchCeiling
from pipetune.report.line import Kind, Line
from pipetune.units import format_rate


def ceilings_lines(ceilings: Sequence[BatchCeiling], own_batch: int | None) -> list[Line]:
    """A sentence for each batch size that was measured, and which one to try where one is faster beyond the intervals.

    Args:
        ceilings: see :class:`pipetune.sweeping.result.SweepResult`.
        own_batch: the candidates' batch size; ``None``: not known.
    """
    lines = [Line(Kind.DETAIL, _sentence(row)) for row in ceilings if row.batch_size != own_batch]
    advised = find_faster_batch(ceilings)
    if advised is not None:
        text = f"Try --batch-size {advised.batch_size} (now {own_batch}): the accelerator is faster with it."
        lines.append(Line(Kind.DETAIL, text))
    return lines


def find_faster_batch(ceilings: Sequence[BatchCeiling]) -> BatchCeiling | None:
    """The smallest batch size that is faster than the candidates', and as fast as the fastest within the intervals.

    Returns:
        ``None``: none is faster beyond the intervals.
    """
    faster = [row for row in ceilings if row.is_faster]
    best = max(faster, key=lambda row: row.samples_per_s or 0.0, default=None)
    if best is None or best.ci95 is None:
        return None
    low = best.ci95[0]
    return min((row for row in faster if row.ci95 is not None and row.ci95[1] >= low), key=lambda row: row.batch_size)


def _sentence(row: BatchCeiling) -> str:
    batches = f"With batches of {row.batch_size}"
    if row.samples_per_s is None:
        return f"{batches} it was not measured: {row.failure or 'nobody knows why'}."
    rate = format_rate(row.samples_per_s, " samples/s")
    if row.gain is None or row.gain_ci95 is None:
        return f"{batches} it can take {rate}."
    low, high = row.gain_ci95
    if low <= 1.0 <= high:
        return f"{batches} it can take {rate}, as many within the measurement error ({low:.2f} to {high:.2f} times)."
    return f"{batches} it can take {rate}, {row.gain:.2f} times as many ({low:.2f} to {high:.2f})."
