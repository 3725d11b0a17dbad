"""MDS shards: columns by their descriptions, and damage."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from pipetune.datasets.mds import members_of_mds
from pipetune.datasets.open_dataset import open_dataset
from tests.bad_images import jpeg


def described(**changes: Any) -> dict[str, Any]:
    return {
        "column_names": ["image", "label"], "column_encodings": ["jpeg", "int"], "column_sizes": [None, 8],
        "compression": None, "format": "mds", **changes,
    }  # fmt: skip


def shard(path: Path, samples: list[bytes], config: dict[str, Any]) -> Path:
    text = json.dumps(config, sort_keys=True).encode()
    at = 4 * (len(samples) + 2) + len(text)
    offsets = [at]
    for sample in samples:
        offsets.append(offsets[-1] + len(sample))
    path.write_bytes(struct.pack(f"<{len(samples) + 2}I", len(samples), *offsets) + text + b"".join(samples))
    return path


def sample(data: bytes, label: int) -> bytes:
    return struct.pack("<I", len(data)) + data + struct.pack("<q", label)


def test_images_and_labels_are_found_by_the_description(tmp_path: Path) -> None:
    photo = jpeg()
    path = shard(tmp_path / "shard.00000.mds", [sample(photo, 5), sample(b"x", 0)], described())
    found = members_of_mds(str(path))
    assert [(one.label, one.size) for one in found.members] == [(5, len(photo)), (0, 1)]
    assert path.read_bytes()[found.members[0].start :][: len(photo)] == photo
    assert found.tally.count == 0


def test_other_columns_may_stand_between(tmp_path: Path) -> None:
    config = described(
        column_names=["caption", "class", "jpg"],
        column_encodings=["str", "uint16", "bytes"],
        column_sizes=[None, 2, None],
    )
    data = struct.pack("<II", 3, 4) + b"cap" + struct.pack("<H", 9) + b"jpeg"
    path = shard(tmp_path / "one.mds", [data], config)
    (one,) = members_of_mds(str(path)).members
    assert (one.label, path.read_bytes()[one.start :][: one.size]) == (9, b"jpeg")


def columns(**encodings: str) -> dict[str, Any]:
    sizes = {"int": 8, "uint16": 2, "float32": 4}
    return described(
        column_names=[*encodings], column_encodings=[*encodings.values()],
        column_sizes=[sizes.get(encoding) for encoding in encodings.values()],
    )  # fmt: skip


ONE = struct.pack("<I", 1) + b"x" + struct.pack("<HH", 640, 480)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (columns(first="jpeg", second="png", label="uint16"), "any of its columns first, second may be the image"),
        (columns(first="bytes", second="bytes"), "any of its columns first, second may be the image"),
        (columns(image="jpeg", label="float32", width="uint16"), "its column 'label' holds float32, and labels are"),
    ],
)
def test_no_column_is_taken_by_chance(config: dict[str, Any], reason: str, tmp_path: Path) -> None:
    found = members_of_mds(str(shard(tmp_path / "one.mds", [ONE], config)))
    assert found.members == []
    assert reason in found.tally.kept[0][1]


def test_a_column_of_integers_is_no_label_without_its_name(tmp_path: Path) -> None:
    config = columns(image="jpeg", target="uint16", score="float32")
    found = members_of_mds(str(shard(tmp_path / "one.mds", [ONE + bytes(2)], config)))
    assert ([one.label for one in found.members], found.labelled) == ([640], True)
    assert found.tally.unread_columns == {"score"}
    found = members_of_mds(str(shard(tmp_path / "two.mds", [ONE[:-2]], columns(image="jpeg", height="uint16"))))
    assert ([one.label for one in found.members], found.labelled) == ([None], False)
    assert found.tally.unread_columns == {"height"}


def test_a_mask_beside_the_image_is_not_read(tmp_path: Path) -> None:
    data = struct.pack("<II", 1, 2) + b"imm"
    config = columns(image="png", mask="png")
    (member,) = (found := members_of_mds(str(shard(tmp_path / "one.mds", [data], config)))).members
    assert member.size == 1
    assert found.tally.unread_columns == {"mask"}


def test_a_shard_that_was_unpacked_is_read(tmp_path: Path) -> None:
    """The description speaks of the file that was compressed."""
    path = shard(tmp_path / "one.mds", [sample(b"x", 1)], described(compression="zstd"))
    assert [member.label for member in members_of_mds(str(path)).members] == [1]


def test_shards_that_the_index_names_and_that_are_not_there(tmp_path: Path) -> None:
    path = shard(tmp_path / "shard.00000.mds", [sample(jpeg(), 1)], described())
    rows = [{**described(), "raw_data": {"basename": f"shard.0000{number}.mds"}} for number in range(2)]
    (tmp_path / "index.json").write_text(json.dumps({"shards": rows}))
    images = open_dataset(str(tmp_path), seed=0, limit_bytes=1 << 30, workers=1)
    assert images.skipped == ((str(tmp_path / "shard.00001.mds"), "is named in index.json, and is not there"),)
    assert images.audit is not None
    assert (images.audit.damaged, images.audit.is_complete) == (1, False)
    assert open_dataset(str(path), seed=0, limit_bytes=1 << 30, workers=1).skipped == ()


def test_the_index_beside_it_comes_first(tmp_path: Path) -> None:
    path = shard(tmp_path / "one.mds", [sample(b"x", 1)], {})
    assert members_of_mds(str(path)).members == []
    (tmp_path / "index.json").write_text(json.dumps({"shards": [{**described(), "raw_data": {"basename": "one.mds"}}]}))
    assert len(members_of_mds(str(path)).members) == 1


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (described(column_encodings=["pil", "int"]), "no column of encoded"),
        (described(column_sizes=[None]), "not an MDS shard"), (described(column_sizes=[None, -8]), "not an MDS shard"),
        ({}, "not an MDS shard"), (described(column_sizes=None), "not an MDS shard"),
    ],
)  # fmt: skip
def test_what_cannot_be_read(config: dict[str, Any], reason: str, tmp_path: Path) -> None:
    found = members_of_mds(str(shard(tmp_path / "one.mds", [sample(b"x", 1)], config)))
    assert found.members == []
    assert reason in found.tally.kept[0][1]


def test_a_label_below_zero_is_no_class(tmp_path: Path) -> None:
    found = members_of_mds(str(shard(tmp_path / "one.mds", [sample(b"x", -1), sample(b"y", 2)], described())))
    assert [one.label for one in found.members] == [2]
    assert "which is no class" in found.tally.kept[0][1]


@pytest.mark.parametrize("data", [b"", b"ab", bytes(100), b"\xff" * 100, struct.pack("<IIII", 2, 16, 8, 4)])
def test_what_is_no_shard(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "one.mds"
    path.write_bytes(data)
    found = members_of_mds(str(path))
    assert found.members == []
    assert found.tally.count == 1


def test_a_sample_that_is_longer_than_its_place(tmp_path: Path) -> None:
    broken = struct.pack("<I", 1000) + b"x" * 20
    found = members_of_mds(str(shard(tmp_path / "one.mds", [sample(b"x", 1), broken], described())))
    assert len(found.members) == 1
    assert "damaged after 1 image" in found.tally.kept[0][1]


def test_a_shard_that_the_index_does_not_name_is_left_out_as_by_streaming(tmp_path: Path) -> None:
    for name in ("shard.00000.mds", "shard.00001.mds"):
        shard(tmp_path / name, [sample(jpeg(), 0)], described())
    rows = [{**described(), "raw_data": {"basename": "shard.00000.mds"}}]
    (tmp_path / "index.json").write_text(json.dumps({"shards": rows}))
    images = open_dataset(str(tmp_path), seed=0, limit_bytes=1 << 30, workers=1)
    assert [image.path for image in images.images] == [str(tmp_path / "shard.00000.mds/0")]
    assert images.skipped == (
        (str(tmp_path / "shard.00001.mds"), "is not named in index.json, so streaming does not read it"),
    )
    assert images.audit is not None
    assert (images.audit.members, images.audit.is_complete) == (1, True)
