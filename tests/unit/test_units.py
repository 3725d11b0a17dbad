from __future__ import annotations

import pytest

from pipetune.errors import UsageError
from pipetune.units import (
    format_bytes,
    format_duration,
    format_rate,
    format_share_of_target,
    parse_bytes,
    parse_duration,
    significant,
)


@pytest.mark.parametrize(
    ("rate", "text"),
    [(0, "0.0/s"), (8.25, "8.2/s"), (99.94, "99.9/s"), (99.96, "100/s"), (1234.5, "1,234/s"), (2.5e6, "2,500,000/s")],
)
def test_format_rate(rate: float, text: str) -> None:
    assert format_rate(rate) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0 ms"),
        (0.0032, "3.2 ms"),
        (0.99996, "1.0 s"),
        (12, "12.0 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min 00 s"),
        (245, "4 min 05 s"),
        (3599.4, "59 min 59 s"),
        (3599.6, "1 h 00 min"),
        (7380, "2 h 03 min"),
    ],
)
def test_format_duration(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (512, "512 B"),
        (1024, "1.00 KiB"),
        (10235, "10.0 KiB"),
        (1024**2 - 1, "1.00 MiB"),
        (3 * 2**29, "1.50 GiB"),
        (150 * 2**30, "150 GiB"),
        (5000 * 2**40, "5000 TiB"),
        (-150 * 2**20, "-150 MiB"),
    ],
)
def test_format_bytes(count: int, text: str) -> None:
    assert format_bytes(count) == text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), (" 5 m ", 300), ("5min", 300), ("1.5H", 5400), ("250ms", 0.25), (".5", 0.5)],
)
def test_parse_duration(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "s", "-5s", "0", "0.0h", "5 days", "1e3", "nan", "inf", "1h30m", "9" * 400, "9" * 308 + "h"]
)
def test_invalid_durations(text: str) -> None:
    with pytest.raises(UsageError, match="not a valid duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "count"),
    [("512", 512), ("512B", 512), ("64k", 2**16), ("64KB", 2**16), ("1.5GiB", 3 * 2**29), (" 2 t ", 2**41), ("0", 0)],
)
def test_parse_bytes(text: str, count: int) -> None:
    assert parse_bytes(text) == count


@pytest.mark.parametrize("text", ["", "G", "-1", "1e9", "5 pb", "1,5G", "nan", "9" * 400, "9" * 308 + "t"])
def test_invalid_sizes(text: str) -> None:
    with pytest.raises(UsageError, match="not a valid size"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("value", "digits", "shown"),
    [(0.0421, 3, "0.0421"), (12.34, 3, "12.3"), (999.4, 3, "999"), (999.6, 3, "1,000"), (3600.0, 3, "3,600"),
     (123.4, 2, "123"), (0.0, 3, "0"), (-1234.5, 3, "-1,234")],
)  # fmt: skip
def test_significant_figures_never_become_powers_of_ten(value: float, digits: int, shown: str) -> None:
    assert significant(value, digits) == shown


@pytest.mark.parametrize(
    ("frac", "written"), [(0.898, "89.8 %"), (0.8999, "89.9 %"), (0.9, "90 %"), (0.94, "94 %"), (0.851, "85 %")]
)
def test_a_share_that_misses_the_target_is_not_written_like_it(frac: float, written: str) -> None:
    assert format_share_of_target(frac, 0.9) == written
