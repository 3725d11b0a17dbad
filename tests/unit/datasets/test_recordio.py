"""RecordIO files of others: what im2rec and face recognition sets hold, and damage."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from pipetune.datasets.open_dataset import open_dataset
from pipetune.datasets.recordio import members_of_records
from pipetune.errors import UsageError
from tests.bad_images import jpeg

MAGIC = 0xCED7230A


def record(payload: bytes, kind: int = 0, magic: int = MAGIC) -> bytes:
    return struct.pack("<II", magic, kind << 29 | len(payload)) + payload + bytes(-len(payload) % 4)


def image(label: float, data: bytes, number: int = 0, labels: tuple[float, ...] = ()) -> bytes:
    head = struct.pack("<IfQQ", len(labels), label, number, 0)
    return head + struct.pack(f"<{len(labels)}f", *labels) + data


def written(folder: Path, *records: bytes, name: str = "train.rec") -> Path:
    path = folder / name
    path.write_bytes(b"".join(records))
    return path


def test_images_with_their_labels_and_places(tmp_path: Path) -> None:
    photos = [jpeg(quality=quality) for quality in (50, 60, 70)]
    path = written(tmp_path, *(record(image(label, data)) for label, data in zip((2.0, 0.0, 2.0), photos, strict=True)))
    found = open_dataset(str(path), seed=0, limit_bytes=1 << 30, workers=1)
    assert found.classes == ("0", "1", "2")
    assert [one.label for one in found.images] == [0, 2, 2]
    data = path.read_bytes()
    assert sorted(data[one.start : one.start + one.size_bytes] for one in found.images) == sorted(photos)


def test_several_labels_and_a_record_that_holds_a_range(tmp_path: Path) -> None:
    """Face recognition sets: record 0 has two labels and no image."""
    photo = jpeg()
    path = written(
        tmp_path, record(image(0, b"", labels=(5.0, 9.0))), record(image(0, photo, labels=(4.0, 77.5, 1.0))),
    )  # fmt: skip
    found = members_of_records(str(path))
    (member,) = found.members
    assert member.label == 4
    assert path.read_bytes()[member.start : member.start + member.size] == photo
    assert found.tally.kept == []
    assert (found.tally.members, found.tally.other) == (2, {"range of numbers": 1})


@pytest.mark.parametrize(
    "labels", [(1.0, 0.0), (2.0, 5.0, 0.0, 0.1, 0.1, 0.9, 0.9), (3.0, 5.0)], ids=["one-hot", "detection", "several"]
)
def test_one_of_several_labels_is_not_taken_by_chance(labels: tuple[float, ...], tmp_path: Path) -> None:
    found = members_of_records(str(written(tmp_path, record(image(0, jpeg(), labels=labels)))))
    assert found.members == []
    assert f"has {len(labels)} labels (one-hot, or a detection record)" in found.tally.kept[0][1]
    assert (found.tally.labels, found.tally.unmatched, found.tally.rejected) == (1, 1, 1)


def test_one_label_in_an_array_is_the_class(tmp_path: Path) -> None:
    (member,) = members_of_records(str(written(tmp_path, record(image(9, jpeg(), labels=(3.0,)))))).members
    assert member.label == 3


def test_a_record_in_parts_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, record(b"a" * 8, 1), record(b"b" * 4, 2), record(b"c", 3), record(image(1, jpeg())))
    found = members_of_records(str(path))
    assert [member.label for member in found.members] == [1]
    assert "in several parts" in found.tally.kept[0][1]


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (b"abc", "cut off at byte"), (b"\0" * 40, "no record at byte"),
        (record(bytes(100))[:60], "cut off in the record"),
        (record(b"", magic=0x3ED7230A), "2015"),
    ],
)  # fmt: skip
def test_damage_loses_nothing_that_stands_before_it(end: bytes, reason: str, tmp_path: Path) -> None:
    found = members_of_records(str(written(tmp_path, record(image(1, jpeg())), end)))
    assert len(found.members) == 1
    assert reason in found.tally.kept[-1][1]


@pytest.mark.parametrize(
    ("label", "labels"), [(-1.0, ()), (0.5, ()), (float("nan"), ()), (float("inf"), ()), (0.0, (-2.0,))]
)
def test_a_label_that_is_no_class(label: float, labels: tuple[float, ...], tmp_path: Path) -> None:
    found = members_of_records(str(written(tmp_path, record(image(label, jpeg(), labels=labels)))))
    assert found.members == []
    assert "which is no class" in found.tally.kept[0][1]


def test_what_is_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a RecordIO file"):
        open_dataset(str(written(tmp_path, b"something else altogether")), seed=0, limit_bytes=1 << 30, workers=1)
    assert members_of_records(str(tmp_path / "none.rec")).tally.kept[0][1] == "No such file or directory"
    assert members_of_records(str(written(tmp_path, record(b"short")))).tally.kept[0][1].startswith("a record without")
    head = struct.pack("<IfQQ", 1 << 20, 0, 0, 0)
    assert "labels" in members_of_records(str(written(tmp_path, record(head)))).tally.kept[0][1]


def test_shards_of_several_formats_are_refused(tmp_path: Path) -> None:
    written(tmp_path, record(image(1, jpeg())))
    written(tmp_path, b"", name="x.tar")
    with pytest.raises(UsageError, match=r"several formats: \.rec, \.tar"):
        open_dataset(str(tmp_path), seed=0, limit_bytes=1 << 30, workers=1)
