"""What a person reads of batch sizes: a table of those that were measured, and what to take. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pipetune.candidates.fit import needs_of
from pipetune.records.batch_size import BatchSizes, ScriptBatches
from pipetune.records.sweep import Candidate
from pipetune.registry import BACKENDS
from pipetune.report.line import Kind, Line
from pipetune.report.terminal.signs import clean
from pipetune.scaling.batch_size import NEAR, best_rate, checkpointing_gain, fitting, knee_of, needed_bytes
from pipetune.units import format_bytes, format_rate, whole_percent

if TYPE_CHECKING:
    from rich.table import Table

#: Of a batch size with activation checkpointing.
MARK = " ckpt"
HEADERS = ("batch size", "rate", "of the best", "memory", "of what may be used")


#: A gain of the rate from which activation checkpointing is worth it: what a measurement may be off is less.
_WORTH = 0.03
#: Characters of the longest number in the table with its unit.
_LONGEST_NUMBER = 12
#: Nothing larger fits where one that is so many times as large would not.
_LARGER = 1.17


def heading(found: BatchSizes) -> str:
    """What was measured, in a line."""
    ranks = 1 if found.script is None else found.script.ranks
    each = "" if ranks == 1 else f"; batch sizes and memory are of each of {ranks} ranks, rates of all"
    how = ", compiled by torch.compile" if found.compiled else ""
    size = "" if found.image_size is None else f" of {found.image_size} px"
    return f"{found.model}{size} on {found.device}, precision {found.precision}{how}{each}"


def batch_rows(found: BatchSizes) -> list[tuple[str, ...]]:
    """A row for each batch size that was measured, the smallest first."""
    fits = fitting(found.points, found.limit_bytes)
    best = {kept: best_rate(found.points, found.limit_bytes, checkpointing=kept) for kept in (True, False)}
    rows: list[tuple[str, ...]] = []
    for point in sorted(found.points, key=lambda point: (point.checkpointing, point.batch_size)):
        name = f"{point.batch_size:,}{MARK if point.checkpointing else ''}"
        if point.samples_per_s is None or point.peak_bytes is None:
            why = "does not fit" if point.out_of_memory else point.failure or "failed"
            rows.append((name, why, "-", "-", "-"))
            continue
        share = whole_percent(point.samples_per_s / best[point.checkpointing]) if point in fits else "too large"
        of_limit = whole_percent(point.peak_bytes / found.limit_bytes) if found.limit_bytes else "-"
        rows.append((name, format_rate(point.samples_per_s), share, format_bytes(point.peak_bytes), of_limit))
    return rows


def batch_table(found: BatchSizes) -> Table:
    """The rows for the terminal; the recommended one is marked."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), show_edge=False)
    rows = batch_rows(found)
    table.add_column("")
    for number, header in enumerate(HEADERS):
        # On a narrow terminal headers and reasons are wrapped, and numbers are not.
        longest = max((len(row[number]) for row in rows if len(row[number]) <= _LONGEST_NUMBER), default=1)
        table.add_column(header, justify="right", min_width=longest)
    for row in rows:
        chosen = found.knee is not None and row[0] == f"{found.knee:,}"
        table.add_row(">" if chosen else "", *(Text(clean(cell)) for cell in row), style="bold" if chosen else "")
    return table


def batch_lines(found: BatchSizes, workers: int) -> Iterator[Line]:
    """What to take, and what it means for the loader.

    Args:
        workers: loader workers that a training on this machine would have.
    """
    for note in found.notes:
        yield Line(Kind.WARNING, f"! {note}")
    if found.stopped is not None:
        yield Line(Kind.WARNING, f"It did not come to its end: {found.stopped}.")
    if found.knee is None or found.largest is None:
        without = " without activation checkpointing" if found.checkpointed_largest is not None else ""
        yield Line(Kind.HEADLINE, f"No batch size that was measured fits{without}.")
        yield from _checkpointing_lines(found)
        return
    yield Line(Kind.HEADLINE, f"Recommended: batches of {found.knee:,}, the smallest measured with at least "
                              f"{whole_percent(NEAR)} of the best rate.")  # fmt: skip
    limit = f"{format_bytes(found.limit_bytes)} of {format_bytes(found.total_bytes)}"
    largest = "The largest that fits" if _is_the_largest(found, found.largest) else "The largest measured that fits"
    guessed = "fake tensors" if found.script is None else "the first two sizes"
    yield Line(Kind.DETAIL, f"{largest} {limit} is {found.largest:,}; {guessed} alone said "
                            f"{found.predicted_largest:,}.")  # fmt: skip
    if found.bytes_per_sample is not None and found.fixed_bytes is not None and found.bytes_per_sample > 0:
        yield Line(Kind.DETAIL, f"Memory: {format_bytes(round(max(0.0, found.fixed_bytes)))}, and "
                                f"{format_bytes(round(found.bytes_per_sample))} for each sample.")  # fmt: skip
    for point in found.points:
        if point.out_of_memory and point.failure and "host" in point.failure:
            yield Line(Kind.DETAIL, f"Batches of {point.batch_size:,} were not tried: {point.failure}.")
    yield from _checkpointing_lines(found)
    rate = next((point.samples_per_s for point in found.points if point.batch_size == found.knee), None)
    if found.script is not None:
        yield from _script_lines(found, found.script, rate)
        return
    assert found.image_size is not None
    loader = Candidate(
        backend=next(iter(BACKENDS)), num_workers=max(1, workers), prefetch_depth=2, batch_size=found.knee
    )
    needs = needs_of(loader, found.image_size)
    demand = "" if rate is None else f" has to deliver {format_rate(rate, ' images/s')}, and"
    yield Line(Kind.DETAIL, f"Its loader{demand} with {loader.num_workers} worker processes keeps "
                            f"{format_bytes(needs.shm_bytes)} of floats in /dev/shm.")  # fmt: skip
    compiled = " --compile" if found.compiled else ""
    yield Line(Kind.DETAIL, f"pipetune sweep --model {found.model} --image-size {found.image_size} --precision "
                            f"{found.precision}{compiled} --batch-size {found.knee} --dataset … finds it.")  # fmt: skip


def _checkpointing_lines(found: BatchSizes) -> Iterator[Line]:
    """Whether activation checkpointing pays."""
    if not any(point.checkpointing for point in found.points):
        return
    gain = checkpointing_gain(found.points, found.limit_bytes)
    if found.checkpointed_largest is None:
        yield Line(Kind.DETAIL, "With activation checkpointing (ckpt) nothing that was measured fits, either.")
        return
    kept = [point for point in found.points if point.checkpointing]
    smallest = knee_of(kept, found.limit_bytes)
    if gain is None:
        how = f"batches of {smallest:,} are as fast as any"
    elif gain >= _WORTH:
        how = f"batches of {smallest:,} are {100 * gain:+.0f} % faster than the best without it: worth it"
    else:
        how = f"the best rate is {100 * gain:+.0f} %: not worth it for speed"
    yield Line(Kind.DETAIL, f"With activation checkpointing (ckpt) {found.checkpointed_largest:,} fit, and {how}.")


def _script_lines(found: BatchSizes, script: ScriptBatches, rate: float | None) -> Iterator[Line]:
    """What the script has, and where it is changed."""
    each = "" if script.ranks == 1 else f" in each of {script.ranks} ranks"
    own = next((point for point in fitting(found.points, found.limit_bytes) if point.batch_size == script.own), None)
    own_rate = 0.0 if own is None or own.samples_per_s is None else own.samples_per_s
    if found.knee == script.own or own_rate >= NEAR * best_rate(found.points, found.limit_bytes, checkpointing=False):
        yield Line(Kind.DETAIL, f"The script has batches of {script.own:,}{each}: as fast, nothing is to be changed.")
        return
    gain = (
        f"; {100 * (rate / own_rate - 1):+.0f} % with {found.knee:,} if its loader keeps up"
        if own_rate and rate
        else ""
    )
    yield Line(Kind.DETAIL, f"The script has batches of {script.own:,}{each}{gain}.")
    how = script.option and f"{script.option} {found.knee}"
    if how is None and script.where is not None:
        how = f"batch_size={found.knee} at {script.where}"
    if how is not None:
        fewer = "fewer" if (found.knee or 0) > script.own else "more"
        yield Line(Kind.DETAIL, f"Set {how}, and accumulate {fewer} gradients or adapt the learning rate; then tune "
                                "its loader: pipetune sweep -- COMMAND.")  # fmt: skip


def _is_the_largest(found: BatchSizes, largest: int) -> bool:
    """Whether one that is a sixth larger would not fit, by what each sample takes, or did not."""
    point = next(one for one in found.points if one.batch_size == largest and not one.checkpointing)
    each = found.bytes_per_sample or 0.0
    above = [one for one in found.points if one.batch_size > largest and not one.checkpointing]
    tried = min((one.batch_size for one in above), default=None)
    near = tried is not None and tried <= _LARGER * largest + 8
    return found.stopped is None and (near or needed_bytes(point) + (_LARGER - 1) * largest * each > found.limit_bytes)
