from __future__ import annotations

import pytest

from pipetune.machine.nvml.counters import bytes_passed

SECOND_NS = 10**9


@pytest.mark.parametrize(
    ("before", "after", "passed"),
    [
        (10, 10, 0),
        (10, 5010, 5000),
        (2**32 - 10, 5, 15),
        (2**40, 2**40 + 7, 7),
        (2**64 - 10, 5, 15),
    ],
)
def test_bytes_since_the_last_reading(before: int, after: int, passed: int) -> None:
    assert bytes_passed(before, after, SECOND_NS) == passed


def test_more_than_a_link_can_carry_is_not_a_measurement() -> None:
    assert bytes_passed(0, 60 * 10**9, SECOND_NS) == 60 * 10**9
    assert bytes_passed(0, 200 * 10**9, SECOND_NS) is None
    # Set back to 0 from a value that 32 bits do not hold.
    assert bytes_passed(2**40, 0, SECOND_NS) is None
