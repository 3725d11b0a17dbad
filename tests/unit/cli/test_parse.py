from __future__ import annotations

import pytest

from pipetune.cli import parse
from pipetune.errors import UsageError
from pipetune.registry import BACKENDS


def test_numbers_are_sorted_and_single() -> None:
    assert parse.numbers("--workers", "4, 0,2,4", 0) == (0, 2, 4)


@pytest.mark.parametrize("text", ["", "a", "1,,2", "1.5", "-1"])
def test_wrong_numbers_name_the_option_and_the_value(text: str) -> None:
    with pytest.raises(UsageError, match="--workers"):
        parse.numbers("--workers", text, 0)


def test_named_backends_are_kept_in_order_and_checked() -> None:
    assert parse.backends("opencv,pillow,opencv") == (("opencv", "pillow"), ())
    with pytest.raises(UsageError, match="did you mean opencv"):
        parse.backends("opncv")


def test_what_is_not_installed_is_left_out_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parse, "installed_version", lambda backend: None if backend.name == "dali" else "1")
    names, notes = parse.backends(None)
    assert "dali" not in names
    assert set(names) == set(BACKENDS) - {"dali"}
    assert BACKENDS["dali"].install in notes[0]


def test_exact_leaves_out_whose_pixels_differ_and_says_by_how_much() -> None:
    names, notes = parse.backends("pillow,opencv,jpeg-roi,jpeg-roi-fast", exact=True)
    assert names == ("pillow", "jpeg-roi")
    assert notes[0] == "backend opencv is left out by --exact: its pixels are 25 dB from Pillow's, below 45 dB"
    assert len(notes) == 2
    with pytest.raises(UsageError, match="--exact leaves none of these backends; add pillow"):
        parse.backends("opencv", exact=True)


def test_choices() -> None:
    assert parse.one_of("--cache", "warm", parse.CACHES) == "warm"
    with pytest.raises(UsageError, match="choose from warm, cold"):
        parse.one_of("--cache", "hot", parse.CACHES)
