"""Which batch size to measure next, which is the largest that fits, and which is the smallest that is as fast. Pure.

Memory is a straight line over the batch size: parameters, gradients and the optimizer's state, and the activations of
each sample. Fake tensors predict it, two real peaks at a quarter and at half of what it allows correct it, and one
measurement confirms. The time of a step is a straight line, too: what launching its kernels takes, and the work of each
sample. So the rate comes near its largest value from some batch size on, the knee, and larger batches only take memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from pipetune.records.batch_size import BatchPoint

#: A rate that is near the best: at least this share of it.
NEAR = 0.97
#: Processes that are measured at most, and out-of-memory errors.
MOST_PROCESSES, MOST_FAILURES = 6, 1
#: After one that did not fit, the next is smaller by this share than the line says.
_AFTER_FAILURE = 0.06
#: A batch size whose memory is at least this share of the limit is the largest, as near as it matters.
_FULL = 0.98
#: Shares of the limit that tensors are tried to take, one after the other: fragments take the rest, which is measured
#: nowhere else. The second one is tried where the first one fits, so that the truth is within 3 % of what is found.
_USABLE = (0.94, 0.97)
#: A batch size within this share of one that was measured tells nothing new of memory.
_ALIKE = 0.15
#: Memory is not foretold beyond so many times the largest batch size that was measured, where nothing predicts it.
REACH = 8.0
#: A batch size that is at least this share of the knee is not worth a measurement.
_CLOSE = 0.85
#: Batch sizes from here on are multiples of eight, in which tensor cores compute.
_EIGHTS_FROM = 16
_MOST = 1 << 17

Line = tuple[float, float]
"""Value at 0, and slope."""


def line_through(points: Sequence[tuple[float, float]]) -> Line:
    """Least squares; of one point a line from 0, of none nothing that could be used.

    Raises:
        ValueError: there is no point.
    """
    if len({x for x, _ in points}) < 2:
        x, y = points[-1] if points else (0.0, 0.0)
        if not x:
            raise ValueError("no point")
        return 0.0, y / x
    count = len(points)
    mean_x, mean_y = sum(x for x, _ in points) / count, sum(y for _, y in points) / count
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)
    return mean_y - slope * mean_x, slope


def largest_on(line: Line, limit_bytes: float) -> int:
    """The largest usual batch size whose memory is within the limit; 0: none is."""
    fixed, each = line
    if each <= 0:
        return _MOST
    return rounded(min(_MOST, (limit_bytes - fixed) / each))


def rounded(size: float) -> int:
    """Down to a usual batch size."""
    whole = max(0, math.floor(size))
    return whole if whole < _EIGHTS_FROM else whole // 8 * 8


def fitting(points: Sequence[BatchPoint], limit_bytes: float) -> list[BatchPoint]:
    """Those whose memory is within the limit, the smallest batch first."""
    found = [point for point in points if point.peak_bytes is not None and point.peak_bytes <= limit_bytes]
    return sorted(found, key=lambda point: point.batch_size)


def memory_line(points: Sequence[BatchPoint]) -> Line | None:
    """Memory over batch size, through the two largest that were measured; ``None``: fewer were."""
    known = {point.batch_size: needed_bytes(point) for point in points if point.peak_bytes is not None}
    return line_through(sorted(known.items())[-2:]) if len(known) > 1 else None


def needed_bytes(point: BatchPoint) -> float:
    """Memory that a batch size needs: what tensors took; where that is not known, what was reserved."""
    return float(point.peak_bytes or 0) if point.allocated_bytes is None else float(point.allocated_bytes)


def largest_of(points: Sequence[BatchPoint], limit_bytes: float) -> int | None:
    """The largest batch size that fits, of those that were measured."""
    found = fitting(points, limit_bytes)
    return found[-1].batch_size if found else None


def knee_of(points: Sequence[BatchPoint], limit_bytes: float) -> int | None:
    """The smallest measured batch size that fits and is near the best rate."""
    found = [(point.batch_size, point.samples_per_s) for point in fitting(points, limit_bytes)
             if point.samples_per_s is not None]  # fmt: skip
    if not found:
        return None
    best = max(rate for _, rate in found)
    return min(size for size, rate in found if rate >= NEAR * best)


def own_sizes(own: int) -> tuple[int, int]:
    """The first two batch sizes to measure where nothing predicts the memory: the half of the script's own, and it.

    Of batches of one sample, two samples: a line needs two points.
    """
    return (own // 2, own) if own > 1 else (1, 2)


def cautious_line(points: Sequence[BatchPoint]) -> Line | None:
    """Memory over batch size by the first two that were measured; ``None``: none fitted.

    Torch reserves memory in steps, so two small batches may have taken as much. Then all of it is taken for the
    samples'; so it is where one batch size alone is known.
    """
    known = [point for point in points if point.peak_bytes is not None]
    if not known:
        return None
    line = memory_line(points)
    if line is None or line[1] <= 0:
        largest = max(known, key=lambda point: point.batch_size)
        return 0.0, needed_bytes(largest) / largest.batch_size
    return line


def checkpointing_gain(points: Sequence[BatchPoint], limit_bytes: float) -> float | None:
    """What activation checkpointing adds to the best rate of all batch sizes that fit (``-0.2``: a fifth less).

    Returns:
        ``None``: nothing fits with it, or nothing without.
    """
    best = [best_rate(points, limit_bytes, checkpointing=kept) for kept in (True, False)]
    return best[0] / best[1] - 1 if all(best) else None


def best_rate(points: Sequence[BatchPoint], limit_bytes: float, *, checkpointing: bool) -> float:
    """The best rate of the batch sizes that fit, with activation checkpointing or without (samples/s); 0: none fits."""
    found = [point for point in fitting(points, limit_bytes) if point.checkpointing is checkpointing]
    return max((point.samples_per_s or 0.0 for point in found), default=0.0)


def next_batch(
    points: Sequence[BatchPoint], predicted: Line, limit_bytes: float, reach: float = math.inf
) -> int | None:  # fmt: skip
    """The next batch size to measure; ``None``: enough is known.

    Args:
        predicted: memory over batch size, by fake tensors.
        reach: the next one is at most so many times the largest that fits.
    """
    tried = {point.batch_size for point in points}
    too_large = min((point.batch_size for point in points if point.out_of_memory), default=_MOST)
    failures = sum(point.out_of_memory for point in points)
    broken = any(point.failure and not point.out_of_memory for point in points)
    if len(points) >= MOST_PROCESSES or failures > MOST_FAILURES or broken:
        return None
    known = fitting(points, limit_bytes)
    most = rounded(min(_MOST, reach * known[-1].batch_size)) if known else _MOST
    for wanted in _first_sizes(largest_on(predicted, limit_bytes)):
        size = min(wanted, most)
        if size < too_large and all(abs(size - other) > _ALIKE * size for other in tried):
            return size
    confirming = _confirming(points, predicted, limit_bytes, too_large)
    if confirming is not None and (size := min(confirming, most)) not in tried:
        return size
    return _towards_the_knee(points, tried, limit_bytes)


def _first_sizes(guess: int) -> list[int]:
    """A quarter and a half of what fake tensors allow; of very few samples the smallest two."""
    if guess < 4:
        return list(range(1, min(guess, 2) + 1))
    return [max(1, rounded(guess / 4)), rounded(guess / 2)]


def _confirming(points: Sequence[BatchPoint], predicted: Line, limit_bytes: float, too_large: int) -> int | None:
    """The largest batch size by what was measured, where it was not yet shown to fit."""
    known = fitting(points, limit_bytes)
    over = min((point.batch_size for point in points if (point.peak_bytes or 0) > limit_bytes), default=_MOST)
    largest = known[-1].batch_size if known else 0
    scaled = _scaled(predicted, known)
    line = memory_line(points) or scaled
    tried = {point.batch_size for point in points}
    shares = _USABLE if any(point.allocated_bytes is not None for point in points) else (1.0,)
    for share in shares[: 1 if too_large < _MOST else None]:
        usable = share * limit_bytes
        if known and needed_bytes(known[-1]) >= _FULL * usable:
            continue
        if line is None:  # nothing fits, and how far it was off is not known
            size = rounded(too_large / 4) if too_large < _MOST else 0
        else:
            size = largest_on(line, usable)
            if size >= too_large > 2 * largest > 0:
                size = rounded(math.sqrt(largest * too_large))  # the line is far off
            elif too_large < _MOST:
                size = min(size, rounded((1 - _AFTER_FAILURE) * too_large))
            elif size <= largest and scaled is not None and over == _MOST:
                # Torch reserves memory in steps, so the line through two peaks may be too steep.
                size = largest_on(scaled, usable)
        if largest < size < min(over, too_large) and size not in tried:
            return size
    return None


def _scaled(predicted: Line, known: Sequence[BatchPoint]) -> Line | None:
    """The predicted line with the slope that the only known peak shows; ``None``: there is none."""
    if not known:
        return None
    needed = needed_bytes(known[-1])
    fixed = min(predicted[0], needed)
    return fixed, (needed - fixed) / known[-1].batch_size


def _towards_the_knee(points: Sequence[BatchPoint], tried: set[int], limit_bytes: float) -> int | None:
    """A batch size about where the rate comes near the best, by the line of step times; ``None``: it is known well."""
    rates = [(float(point.batch_size), point.samples_per_s) for point in fitting(points, limit_bytes)
             if point.samples_per_s is not None]  # fmt: skip
    knee = knee_of(points, limit_bytes)
    if len(rates) < 2 or knee is None:
        return None
    start, each = line_through([(size, size / rate) for size, rate in rates])
    wanted = NEAR * max(rate for _, rate in rates)
    # B / (start + each B) = wanted; where launching takes nothing all sizes are as fast.
    size = rounded(wanted * start / (1 - wanted * each)) if start > 0 and wanted * each < 1 else 0
    slower = max((point for point in tried if point < knee), default=0)
    size = max(1, min(size, knee))
    if size <= slower:
        size = rounded((slower + knee) / 2)
    size = max(size, rounded(knee / 8))  # a line is not trusted farther than that
    return None if size >= _CLOSE * knee or size in tried else size
