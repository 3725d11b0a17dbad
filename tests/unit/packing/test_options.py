from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipetune.errors import UsageError
from pipetune.packing.options import PackOptions, Pixels, check, part_of, pixels_of, seed_of, validation_of

NONE: dict[str, Any] = {
    "shorter_edge": None, "longer_edge": None, "lossless": False, "as_is": False, "quality": None, "subsampling": None,
    "upright": False, "enlarge": False, "raw": False,
}  # fmt: skip


@pytest.mark.parametrize(
    ("given", "pixels"),
    [
        ({}, Pixels()),
        ({"as_is": True}, Pixels()),
        ({"lossless": True}, Pixels(mode="lossless")),
        ({"shorter_edge": 256}, Pixels(mode="shorter-edge", edge=256)),
        ({"longer_edge": 500, "quality": 80, "subsampling": "420", "enlarge": True},
         Pixels(mode="longer-edge", edge=500, quality=80, subsampling="420", enlarge=True)),
        ({"upright": True, "quality": 95}, Pixels(upright=True, quality=95)),
    ],
    ids=str,
)  # fmt: skip
def test_what_is_done_to_each_image(given: dict[str, Any], pixels: Pixels) -> None:
    assert pixels_of(**{**NONE, **given}) == pixels


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"raw": True}, "--format raw stores pixels of one size, and --as-is gives images of several"),
        ({"raw": True, "longer_edge": 256}, "--longer-edge gives"),
        ({"raw": True, "shorter_edge": 6000}, "name at most|more than a loader reads"),
        ({"raw": True, "shorter_edge": 256, "quality": 80}, "--quality is for JPEGs"),
        ({"raw": True, "shorter_edge": 256, "subsampling": "444"}, "--subsampling is for JPEGs"),
        ({"shorter_edge": 256, "lossless": True}, "--shorter-edge and --lossless contradict"),
        ({"as_is": True, "longer_edge": 256}, "--longer-edge and --as-is contradict"),
        ({"shorter_edge": 4}, "--shorter-edge 4"),
        ({"longer_edge": 99_999}, "--longer-edge 99999"),
        ({"quality": 80}, "--quality is for images that are made smaller"),
        ({"lossless": True, "subsampling": "420"}, "--subsampling is for"),
        ({"enlarge": True}, "--enlarge is for"),
        ({"shorter_edge": 256, "quality": 0}, "--quality 0"),
        ({"shorter_edge": 256, "quality": 101}, "--quality 101"),
        ({"shorter_edge": 256, "subsampling": "411"}, "--subsampling '411'"),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused(given: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        pixels_of(**{**NONE, **given})


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"format": "zip"}, "--format 'zip'"), ({"shard_bytes": 1000}, "--shard-size"), ({"threads": 0}, "--threads 0"),
        ({"min_per_class": 0}, "--min-per-class 0"), ({"verify": "some"}, "--verify 'some'"),
        ({"validation": "2"}, "--validation '2'"),
    ],
    ids=str,
)  # fmt: skip
def test_values_out_of_range_are_refused(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        check(PackOptions(source="a", out=Path("b"), **changes))
    check(PackOptions(source="a", out=Path("b")))


def test_values_from_their_texts() -> None:
    assert validation_of(None) == (0.0, 0)
    assert validation_of("0.02") == (0.02, 0)
    assert validation_of("50-per-class") == (0.0, 50)
    assert part_of(None) is None
    assert part_of("2/8") == (1, 8)
    assert seed_of("7") == 7
    assert seed_of("none") is None


@pytest.mark.parametrize("text", ["0/8", "9/8", "1", "a/b"])
def test_a_part_is_one_of_its_number(text: str) -> None:
    with pytest.raises(UsageError, match="--part"):
        part_of(text)


@pytest.mark.parametrize("text", ["nan", "-1", "0", "1", "0-per-class", "half"])
def test_a_validation_share_is_between_none_and_all(text: str) -> None:
    with pytest.raises(UsageError, match="--validation"):
        validation_of(text)


def test_a_seed_is_a_number() -> None:
    with pytest.raises(UsageError, match="--shuffle 'x'"):
        seed_of("x")
