"""TFRecord files as TensorFlow's scripts and DALI's examples write them, and damage."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from pipetune.datasets.index import ImageSet
from pipetune.datasets.open_dataset import open_dataset
from pipetune.datasets.shards import scan_shards
from pipetune.datasets.tfrecord import checksum, mask_checksum, members_of_tfrecord
from tests.bad_images import jpeg


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    found = b""
    while number > 0x7F:
        found += bytes([number & 0x7F | 0x80])
        number >>= 7
    return found + bytes([number])


def field(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def entry(name: str, value: bytes) -> bytes:
    return field(1, field(1, name.encode()) + field(2, value))


def text(data: bytes) -> bytes:
    return field(1, field(1, data))


def packed(*numbers: int) -> bytes:
    return field(3, field(1, b"".join(map(varint, numbers))))


def plain(number: int) -> bytes:
    return field(3, varint(1 << 3) + varint(number))


def record(payload: bytes) -> bytes:
    return head(len(payload)) + payload + bytes(4)


def head(length: int) -> bytes:
    data = struct.pack("<Q", length)
    return data + struct.pack("<I", mask_checksum(checksum(data)))


def example(*entries: bytes) -> bytes:
    return record(field(1, b"".join(entries)))


def written(folder: Path, data: bytes) -> Path:
    path = folder / "one.tfrecord"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("label", [packed(7), plain(7)])
@pytest.mark.parametrize("image_first", [True, False])
def test_image_and_label_wherever_they_stand(label: bytes, image_first: bool, tmp_path: Path) -> None:
    photo = jpeg()
    entries = [entry("image/encoded", text(photo)), entry("image/class/label", label), entry("image/width", plain(5))]
    path = written(tmp_path, 2 * example(*(entries if image_first else entries[::-1])))
    found = members_of_tfrecord(str(path))
    assert found.tally.count == 0
    assert [one.label for one in found.members] == [7, 7]
    data = path.read_bytes()
    assert all(data[one.start : one.start + one.size] == photo for one in found.members)


def test_other_names_that_people_use(tmp_path: Path) -> None:
    path = written(tmp_path, example(entry("label", plain(3)), entry("image_raw", text(b"x"))))
    (one,) = members_of_tfrecord(str(path)).members
    assert (one.label, one.size) == (3, 1)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (example(entry("other", text(b"x"))), "has none of"), (record(b"\xff" * 30), "no tf.train.Example"),
        (record(b"\x0a\x7fshort"), "no tf.train.Example"), (record(b"\x0b"), "no tf.train.Example"),
        (example(entry("image", text(b"x")), entry("label", packed(-1))), "which is no class"),
        (example(entry("image", text(b"x")), entry("label", text(b"dog"))), "its 'label' holds text, and labels are"),
        (example(entry("image", text(b"x")), entry("class", field(2, b""))), "its 'class' holds floats, and"),
        (example(entry("image", text(b"x")), entry("label", packed(0, 1))), "has 2 labels in 'label'"),
        (example(entry("image", text(b"x")), entry("label", plain(0) + plain(1))), "has 2 labels in 'label'"),
        (example(entry("image", text(b"x") + text(b"y"))), "has 2 images in 'image'"),
        (b"short", "not a TFRecord file"), (example(entry("image", text(b"x")))[:-2], "cut off in the record"),
        (struct.pack("<QI", 20, 0) + bytes(40), "not a TFRecord file"), (head(1 << 62), "cut off in the record"),
        (example(entry("image", field(1, b""))), "has none of"),
        (record(field(2, b"") * 5000), "no tf.train.Example"),
    ],
)  # fmt: skip
def test_what_holds_no_image(data: bytes, reason: str, tmp_path: Path) -> None:
    found = members_of_tfrecord(str(written(tmp_path, data)))
    assert found.members == []
    assert reason in found.tally.kept[0][1]


def test_a_record_without_a_label_is_of_no_class_unless_none_has_one(tmp_path: Path) -> None:
    def of(*labels: bytes) -> ImageSet:
        photo = entry("image", text(jpeg()))
        path = written(tmp_path, b"".join(example(photo, *([entry("label", one)] if one else [])) for one in labels))
        return scan_shards(str(path), [str(path)], limit_bytes=1 << 30, seed=0)

    assert [image.label for image in of(b"", b"").images] == [0, 0]
    found = of(packed(3), b"", packed())
    assert [image.label for image in found.images] == [3]
    assert found.skipped == tuple((f"{tmp_path}/one.tfrecord/{number}", "has no label") for number in (1, 2))


def test_damage_loses_nothing_that_stands_before_it(tmp_path: Path) -> None:
    found = members_of_tfrecord(str(written(tmp_path, example(entry("image", text(b"x"))) + b"rest")))
    assert len(found.members) == 1
    assert "damaged after 1 image" in found.tally.kept[0][1]
    assert members_of_tfrecord(str(tmp_path / "none")).tally.kept[0][1] == "No such file or directory"


def test_integers_that_may_be_labels_under_another_name_are_told_where_there_are_no_labels(tmp_path: Path) -> None:
    image = entry("image", text(jpeg()))
    other = example(image, entry("image/object/class/label", packed(1, 2)))
    images = open_dataset(str(written(tmp_path, other * 2)), seed=0, limit_bytes=1 << 30, workers=1)
    assert images.audit is not None
    assert images.audit.unread_columns == ("image/object/class/label",)
    labelled = example(image, entry("label", packed(1)), entry("height", packed(32)))
    images = open_dataset(str(written(tmp_path, labelled)), seed=0, limit_bytes=1 << 30, workers=1)
    assert images.audit is not None
    assert images.audit.unread_columns == ()
