from __future__ import annotations

import pytest

from pipetune.measure.messages import GarbledError, decode_line


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"])
def test_what_is_no_number_is_no_message(number: str) -> None:
    with pytest.raises(GarbledError, match="was not measured"):
        decode_line(b'{"type": "first_batch", "open_s": ' + number.encode() + b"}")


def test_numbers_come_as_they_are() -> None:
    assert decode_line(b'{"type": "x", "a": 1.5, "b": -2e-3, "c": 7}') == {"type": "x", "a": 1.5, "b": -0.002, "c": 7}
