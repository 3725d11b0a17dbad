from __future__ import annotations

import pytest

from pipetune.report.terminal.signs import clean, clean_lines

HOSTILE = "tr\x1b]0;PWNED\x07\x1b[31m.py\x9b2J\u202e"


def test_no_control_character_is_left() -> None:
    assert clean(HOSTILE).isprintable()
    assert clean("a\nb") == "a?b"
    assert clean_lines(f"one\n{HOSTILE}\n  two") == f"one\n{clean(HOSTILE)}\n  two"


@pytest.mark.parametrize("text", ["plain", "", "± … ×", "two\nlines"])
def test_text_is_left_as_it_is(text: str) -> None:
    assert clean_lines(text) == text
