from __future__ import annotations

import pytest

from pipetune.cli.parse import value
from pipetune.errors import UsageError
from pipetune.units import parse_duration, parse_numbers


def test_text_becomes_a_value_and_nothing_stays_nothing() -> None:
    assert value("--budget", "90s", parse_duration) == 90.0
    assert value("--budget", None, parse_duration) is None


def test_an_error_names_the_option_its_value_and_what_to_write() -> None:
    with pytest.raises(UsageError) as caught:
        value("--workers", "many", parse_numbers)
    assert caught.value.message.startswith("--workers 'many'")
    assert caught.value.hint == "write it as 1,2,4"
