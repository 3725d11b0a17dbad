from __future__ import annotations

import pytest

from pipetune.cli import parse
from pipetune.errors import UsageError


def test_numbers_are_sorted_and_single() -> None:
    assert parse.numbers("--workers", "4, 0,2,4", 0) == (0, 2, 4)


@pytest.mark.parametrize("text", ["", "a", "1,,2", "1.5", "-1"])
def test_wrong_numbers_name_the_option_and_the_value(text: str) -> None:
    with pytest.raises(UsageError, match="--workers"):
        parse.numbers("--workers", text, 0)


def test_choices() -> None:
    assert parse.one_of("--cache", "warm", parse.CACHES) == "warm"
    with pytest.raises(UsageError, match="choose from warm, cold"):
        parse.one_of("--cache", "hot", parse.CACHES)
