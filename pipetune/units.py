"""Units: how rates, durations and sizes are written for a person and read from an option.

Every quantity carries its unit in its name (``_s``, ``_bytes``, ``_pct``, ``samples_per_s``); the aliases below repeat
it in signatures. Formatting lives here so that the terminal, the page and the JSON agree.

Why not humanize and pytimeparse: the one writes 3.2 ms as ``0 seconds`` and has no rates, the other reads neither
``90`` nor ``250ms``.
"""

from __future__ import annotations

import math
import re

from pipetune.errors import UsageError

Seconds = float
Bytes = int
SamplesPerSecond = float

_BYTE_STEPS = ("B", "KiB", "MiB", "GiB", "TiB")
_BYTE_UNITS = {"": 1, "b": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_DURATION_UNITS = {"ms": 1e-3, "": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def format_rate(samples_per_s: SamplesPerSecond, unit: str = "/s") -> str:
    """``1234.5`` -> ``'1,234/s'``; one decimal below 100. In a sentence the unit is ``' samples/s'``."""
    return f"{samples_per_s:,.{1 if samples_per_s < 99.95 else 0}f}{unit}"


def format_percent(percent: float) -> str:
    """``12.3`` -> ``'12 %'``; one decimal below 10: ``'3.4 %'``."""
    return f"{percent:.{1 if 0 < percent < 10 else 0}f} %"


def format_share(frac: float) -> str:
    """A share of 1 as :func:`format_percent` writes it: ``0.123`` -> ``'12 %'``."""
    return format_percent(100 * frac)


def format_share_of_target(frac: float, target: float) -> str:
    """A share of 1 beside a target: one that misses it is not written like it: ``0.898`` of ``0.9`` -> ``'89.8 %'``."""
    text = format_share(frac)
    if frac >= target or text != format_share(target):
        return text
    return f"{math.floor(1000 * frac) / 10:.1f} %"


def whole_percent(frac: float) -> str:
    """A share of 1 that is known to whole percents at best: ``0.034`` -> ``'3 %'``."""
    return f"{100 * frac:.0f} %"


def significant(value: float, digits: int = 3) -> str:
    """A number with so many significant figures, or all that it has before the point: ``'0.042'``, ``'1,234'``."""
    return f"{value:,.0f}" if abs(value) >= 10**digits - 0.5 else f"{value:.{digits}g}"


def format_duration(seconds: Seconds) -> str:
    """A duration in the unit that fits it: ``'3.2 ms'``, ``'12.0 s'``, ``'4 min 05 s'``, ``'2 h 03 min'``."""
    if seconds < 0.99995:
        return f"{seconds * 1e3:.1f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def format_bytes(count: Bytes) -> str:
    """Binary units, three significant figures: ``'512 B'``, ``'1.50 GiB'``."""
    value = float(count)
    for unit in _BYTE_STEPS:
        if abs(value) < 1023.5 or unit == _BYTE_STEPS[-1]:
            break
        value /= 1024
    if unit == "B":
        return f"{count} B"
    size = abs(value)
    return f"{value:.{2 if size < 9.995 else 1 if size < 99.95 else 0}f} {unit}"


def parse_duration(text: str) -> Seconds:
    """``'90'``, ``'90s'``, ``'5m'``, ``'1.5h'``, ``'250ms'`` -> seconds.

    Raises:
        UsageError: not a number with one of those units, or not above zero.
    """
    found = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([a-z]*)\s*", text.lower())
    seconds = float(found[1]) * _DURATION_UNITS.get(found[2], math.nan) if found else math.nan
    if not 0 < seconds < math.inf:
        raise UsageError(f"{text!r} is not a valid duration", hint="write it as 90s, 5m or 1.5h")
    return seconds


def parse_numbers(text: str) -> tuple[int, ...]:
    """``'2, 0,1'`` -> ``(0, 1, 2)``: integers, sorted, each once.

    Raises:
        UsageError: not integers with commas between them.
    """
    try:
        return tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError:
        raise UsageError(f"{text!r} is not a list of integers", hint="write it as 1,2,4") from None


def parse_names(text: str) -> tuple[str, ...]:
    """``'a, b,a'`` -> ``('a', 'b')``: names, each once, in their order."""
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def parse_bytes(text: str) -> Bytes:
    """``'512'``, ``'64k'``, ``'1.5GiB'`` -> bytes, in powers of 1024.

    Raises:
        UsageError: not a number with one of those units.
    """
    found = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([kmgt]?)(i?b)?\s*", text.lower())
    count = float(found[1]) * _BYTE_UNITS[found[2]] if found else math.inf
    if count == math.inf:
        raise UsageError(f"{text!r} is not a valid size", hint="write it as 512M or 1.5GiB")
    return int(count)
