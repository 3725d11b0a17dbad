"""Whole outputs, compared with the files beside this one; after a change of words: ``python -m tests.golden``."""

from __future__ import annotations

import pytest

from tests.golden.texts import TEXTS, path_of


@pytest.mark.parametrize("name", TEXTS)
def test_the_text_is_the_stored_one(name: str) -> None:
    assert TEXTS[name]() == path_of(name).read_text(encoding="utf-8"), "if this is meant: python -m tests.golden"


def test_no_stored_text_is_without_its_maker() -> None:
    assert {path.stem for path in path_of("x").parent.glob("*.txt")} == set(TEXTS)
