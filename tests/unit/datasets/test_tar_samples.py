"""Which members are one sample, and which of them is its image."""

from __future__ import annotations

import pytest

from pipetune.datasets.tar_samples import Assembled, Entry, assemble, split_name


def put_together(*names: str, plain: set[str] | None = None) -> Assembled:
    entries = []
    run, last = 0, ""
    for number, name in enumerate(names):
        key = split_name(name)[0]
        run, last = run + (key != last), key
        entries.append(Entry(name, name.lower().endswith(".cls"), run, number, 1))
    return assemble(entries, plain or set())


def pairs(result: Assembled) -> dict[str, str | None]:
    return {image.name: None if label is None else label.name for image, label in result.images}


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("1.jpg", ("1", "jpg")),
        ("a/b/1.seg.PNG", ("a/b/1", "seg.png")),
        ("train.v1/1.x.jpg", ("train.v1/1", "x.jpg")),
        ("./1", ("./1", "")),
        (".hidden.jpg", ("", "hidden.jpg")),
    ],
)
def test_a_key_ends_at_the_first_dot_of_the_base_name(name: str, parts: tuple[str, str]) -> None:
    assert split_name(name) == parts


def test_names_are_divided_as_webdataset_divides_them() -> None:
    tariterators = pytest.importorskip("webdataset.tariterators", reason="compared with webdataset")
    for name in ("1.jpg", "a/b/1.seg.png", "train.v1/1.x.jpg", "a.b/c.d/e.jpg", "é/ß.jpg"):
        assert split_name(name) == tariterators.base_plus_ext(name)


def test_one_image_of_a_sample_is_used() -> None:
    result = put_together("1.seg.png", "1.jpg", "1.cls", "2.png", "2.jpg", "2.cls")
    assert pairs(result) == {"1.jpg": "1.cls", "2.jpg": "2.cls"}
    assert {entry.name: reason for entry, reason in result.rejected} == {
        "1.seg.png": "a second image of its sample, whose image is 1.jpg",
        "2.png": "a second image of its sample, whose image is 2.jpg",
    }


def test_the_only_image_may_have_another_ending_where_all_have_it() -> None:
    assert pairs(put_together("1.image.png", "1.cls", "2.image.png", "2.cls")) == {
        "1.image.png": "1.cls",
        "2.image.png": "2.cls",
    }
    assert pairs(put_together("1.jpg", "1.cls", "2.seg.png", "2.cls")) == {"1.jpg": "1.cls"}
    assert pairs(put_together("1.image.png", "1.cls", "2.seg.png", "2.cls")) == {}


def test_of_two_images_without_the_usual_ending_none_is_taken() -> None:
    result = put_together("1.left.jpg", "1.right.jpg", "1.cls")
    assert pairs(result) == {}
    assert "none of which is KEY.jpg" in result.rejected[0][1]
    assert len(result.unmatched) == 1
    assert pairs(put_together("1.left.jpg", "1.right.jpg", plain={"1"})) == {}


def test_a_key_that_comes_twice_in_succession_is_no_sample() -> None:
    result = put_together("k.jpg", "k.cls", "k.jpg", "k.cls", "other.jpg", "other.cls")
    assert pairs(result) == {"other.jpg": "other.cls"}
    assert [len(result.rejected), len(result.unmatched)] == [2, 2]
    assert "its key has 2 members .jpg, so its label is not clear" in {reason for _, reason in result.rejected}


def test_a_key_that_comes_again_later_is_a_sample_of_its_own() -> None:
    result = put_together("k.jpg", "k.cls", "x.jpg", "x.cls", "k.jpg", "k.cls")
    assert [(image.start, label.start if label else None) for image, label in result.images] == [(0, 1), (4, 5), (2, 3)]


def test_labels_may_lie_apart_where_no_key_comes_twice() -> None:
    assert pairs(put_together("1.jpg", "2.jpg", "1.cls", "2.cls")) == {"1.jpg": "1.cls", "2.jpg": "2.cls"}


def test_names_with_dots_are_divided_at_their_last_one() -> None:
    result = put_together("v.1.jpg", "v.1.cls", "v.2.jpg", "v.2.cls")
    assert pairs(result) == {"v.1.jpg": "v.1.cls", "v.2.jpg": "v.2.cls"}
    assert len(result.dotted) == 4


@pytest.mark.parametrize(
    "names", [("v.1.jpg", "v.1.seg.png"), ("1.jpg", "1.seg.png", "2.seg.png")], ids=["dots", "lost photo"]
)
def test_a_mask_is_no_image_either_way(names: tuple[str, ...]) -> None:
    assert list(pairs(put_together(*names))) == [names[0]]


def test_labels_without_images() -> None:
    result = put_together("1.cls", "2.jpg", "2.x.cls")
    assert {label.name: reason for label, reason in result.unmatched} == {
        "1.cls": "a label without an image",
        "2.x.cls": "is not KEY.cls",
    }
    assert pairs(result) == {"2.jpg": None}
