"""Each case of ``formats.py`` holds; and one that is not told would be found."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from benchmarks.robustness import format_labels, format_records, format_tars, formats
from benchmarks.robustness.format_parts import CASES, COLOURS, Case, class_of_picture, mask, photo

MODULES = (format_labels, format_records, format_tars)


@pytest.mark.parametrize("one", CASES, ids=lambda one: f"{one.format}: {one.name}")
def test_each_case_is_read_rightly_or_told(one: Case, tmp_path: Path) -> None:
    verdict, said = formats.judge(one, tmp_path)
    assert verdict in (formats.EQUAL, formats.TOLD), said


def test_there_are_enough_and_each_has_a_name_of_its_own() -> None:
    assert len(CASES) >= formats.LEAST_CASES
    assert len({(one.format, one.name) for one in CASES}) == len(CASES)


def test_colours_are_classes() -> None:
    assert [class_of_picture(photo(label)) for label in range(len(COLOURS))] == list(range(len(COLOURS)))
    assert class_of_picture(mask()) is None


@pytest.mark.parametrize(
    ("name", "change", "verdict"),
    [
        ("labels in json only", {"words": ""}, formats.SILENT),
        ("labels in json only", {"is_labelled": True}, "wrong label"),
        ("webdataset jpg and cls", {"used": 7}, "8 images instead of 7"),
        ("masks beside photos", {"words": "no such words"}, formats.SILENT),
    ],
)
def test_a_difference_is_found(name: str, change: dict[str, object], verdict: str, tmp_path: Path) -> None:
    one = next(one for one in CASES if one.name == name)
    assert formats.judge(dataclasses.replace(one, **change), tmp_path)[0] == verdict  # type: ignore[arg-type]
