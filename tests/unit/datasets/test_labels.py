"""Texts of label files: numbers, names, and what is neither."""

from __future__ import annotations

import pytest

from pipetune.datasets.labels import MAX_CLASSES, LabelError, check_class_number, parse_label


@pytest.mark.parametrize(
    ("data", "label"),
    [
        (b"0", 0),
        (b" 12\r\n", 12),
        (b"+3", 3),
        (b"-0", 0),
        (b"007", 7),
        (b"1_000", 1000),
        (b"\xef\xbb\xbf5", 5),
        (b"zebra", "zebra"),
        (b"African elephant\n", "African elephant"),
        ("Ärger".encode(), "Ärger"),
        (b"3d printer", "3d printer"),
        (b"n01440764", "n01440764"),
    ],
)
def test_numbers_and_names(data: bytes, label: int | str) -> None:
    assert parse_label(data) == label


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "an empty label"),
        (b"\xef\xbb\xbf \n", "an empty label"),
        (b"-1", "a label of -1, which is no class"),
        (b"2.0", "a label of '2.0', which is no whole number"),
        (b"1e3", "which is no whole number"),
        (b"0 1", "which is no whole number"),
        (b"3,7", "which is no whole number"),
        (b"2019-01-03", "which is no whole number"),
        (b'{"label": 2}', "which is JSON and no class"),
        (b"[0, 1]", "which is JSON and no class"),
        (b'"2"', "which is JSON and no class"),
        (b"1\n2", "a label that has several lines"),
        (b"\x80\x04K\x02.", "a label that is no text"),
        (b"2\0\0\0", "a label that is no text"),
        (b"20190103", "class numbers are below 1,000,000"),
    ],
)
def test_what_is_no_class(data: bytes, reason: str) -> None:
    with pytest.raises(LabelError, match=reason.replace("[", r"\[")):
        parse_label(data)


def test_class_numbers_end_somewhere() -> None:
    assert check_class_number(MAX_CLASSES - 1) == MAX_CLASSES - 1
    with pytest.raises(LabelError, match="class numbers are below"):
        check_class_number(MAX_CLASSES)
