"""The machine's present speed: the rate of a fixed decode loop, read just before and just after a candidate.

Two candidates are only comparable when the machine under them was the same: a neighbour on the host, heat, or a clock
change between them looks exactly like a better or worse setting. So each measurement carries two readings of one fixed
piece of work, and :func:`relative_change` of the two says whether to trust it.

Why inflate stands in for JPEG decode: both are bound by Huffman decoding, table look-ups that depend on the bit before
and fit the inner caches. Of a JPEG decode 68-81 % is entropy decoding by this project's own measurements. Inflate is in
the standard library, so the loop is the same whichever decode backend is installed, and ``zlib`` releases the GIL, so
threads load several cores as loader workers do.

What it cannot see: memory bandwidth (a call's 256 KiB stay in cache), storage, and the vector units that the rest of a
JPEG decode uses. With one thread it does not see a neighbour either while another core is free, since the scheduler
moves the loop there: read with as many threads as the candidate keeps cores busy. The rate depends on the zlib that
Python was built with: compare readings of one machine and one interpreter, never those of two.

Why blocks of 20 ms and not single calls: a scheduler gives competing processes slices of a few milliseconds, so most
calls of under 1 ms run undisturbed even when the core is shared by three, and their median would report an idle
machine. A block spans several slices, which lets steady competition through, while the median over the blocks still
drops a single interruption.
"""

from __future__ import annotations

import hashlib
import math
import statistics
import time
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import NamedTuple

_OUTPUT_BYTES = 256 * 1024
_BLOCK_S = 0.020
#: Ratio between the frequencies of neighbouring byte values: the stream then takes 4.7 bits per byte, with codes of 3
#: to 9 bits, so that nothing is stored uncompressed and nothing can be copied in long runs.
_SKEW = 0.9


class Speed(NamedTuple):
    """The machine's speed. A lower clock or a neighbour on the same core lowers both values; other processes that take
    cores away lower only the first."""

    per_second: float
    """MB/s, 10^6 bytes, of all threads together."""
    per_cpu_second: float
    """MB per second that a thread was on a core."""


def read_speed(seconds: float = 0.25, threads: int = 1, *, clock: Callable[[], float] = time.perf_counter) -> Speed:
    """The machine's speed: output of the fixed inflate loop, summed over ``threads``.

    Each thread reports the median over blocks of 20 ms of wall time. Waiting for a core counts, because a loader worker
    would have waited, too; ``per_cpu_second`` does not count it, and so shows how much of a change is such waiting.

    Args:
        seconds: how long to read (s). At least one block is read, however short this is.
        threads: how many cores to load at the same time.
        clock: seconds from any fixed point.

    Raises:
        ValueError: ``seconds`` or ``threads`` is not above zero.
    """
    if not (0 < seconds < math.inf and threads >= 1):
        raise ValueError(f"need seconds > 0 and threads >= 1, got {seconds} s and {threads} threads")
    deflated = _payload()
    with ThreadPoolExecutor(threads) as pool:
        waiting = [pool.submit(_median_rate, deflated, seconds, clock) for _ in range(threads)]
        readings = [reading.result() for reading in waiting]
    return Speed(
        per_second=sum(reading.per_second for reading in readings),
        per_cpu_second=statistics.fmean(reading.per_cpu_second for reading in readings),
    )


def _median_rate(deflated: bytes, seconds: float, clock: Callable[[], float]) -> Speed:
    rates: list[float] = []
    done, cpu_began = 0, time.thread_time()
    end = clock() + seconds
    while not rates or clock() < end:
        calls, start, elapsed = 0, clock(), 0.0
        while elapsed < _BLOCK_S:
            # A buffer of the final size: growing it would measure memory copies instead.
            zlib.decompress(deflated, bufsize=_OUTPUT_BYTES)
            calls += 1
            elapsed = clock() - start
        rates.append(calls * _OUTPUT_BYTES / elapsed / 1e6)
        done += calls
    cpu_s = max(time.thread_time() - cpu_began, 1e-6)  # some systems count it in ticks
    return Speed(per_second=statistics.median(rates), per_cpu_second=done * _OUTPUT_BYTES / cpu_s / 1e6)


@cache
def _payload() -> bytes:
    """A deflate stream of 256 KiB without repeats to match, the same bytes after inflation on every machine.

    SHAKE-256 instead of :mod:`random`, whose byte streams Python may change between versions.
    """
    weights = [_SKEW**value for value in range(64)]
    skewed = bytearray()
    share = 0.0
    for value, weight in enumerate(weights):
        share += weight / sum(weights)
        skewed += bytes([value]) * (round(share * 256) - len(skewed))
    content = hashlib.shake_256(b"pipetune machine speed").digest(_OUTPUT_BYTES).translate(bytes(skewed))
    deflate = zlib.compressobj(level=9, strategy=zlib.Z_HUFFMAN_ONLY)
    return deflate.compress(content) + deflate.flush()
