"""Which files are shards, and what is said of compressed ones and of several parts."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import pytest

from pipetune.datasets.open_dataset import open_dataset
from pipetune.datasets.parts import find_part
from pipetune.datasets.shard_names import find_compression, find_ending, find_shards
from pipetune.datasets.tfrecord import checksum, mask_checksum
from pipetune.errors import UsageError
from tests.bad_images import jpeg
from tests.unit.datasets.test_shards import write_shard

HEAD = struct.pack("<Q", 5)
RECORD = HEAD + struct.pack("<I", mask_checksum(checksum(HEAD))) + bytes(9)


def test_the_checksum_is_that_of_the_standard() -> None:
    """RFC 3720, appendix B.4."""
    assert checksum(bytes(32)) == 0x8A9136AA
    assert checksum(b"\xff" * 32) == 0x62A8AB43


@pytest.mark.parametrize(
    ("name", "ending"),
    [
        ("a.tar", ".tar"), ("A.TAR", ".tar"), ("a.rec", ".rec"), ("shard.00000.mds", ".mds"),
        ("a.tfrecord", ".tfrecord"), ("a.tfrecords", ".tfrecord"), ("x-train.tfrecord-00000-of-01024", ".tfrecord"),
        ("x.tfrecords-000-of-010", ".tfrecord"), ("train-00000-of-01024", ".tfrecord"), ("train-00000", None),
        ("a.tar.gz", None), ("train-00000-of-00001.parquet", None), ("x.pixels.npy", ".pixels.npy"),
    ],
)  # fmt: skip
def test_endings(name: str, ending: str | None, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(RECORD)
    assert find_ending(str(tmp_path / name)) == ending


@pytest.mark.parametrize("data", [b"", b"text, and more text", RECORD[:11], HEAD + bytes(13)])
def test_a_numbered_name_alone_is_no_shard(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "train-00000-of-00010").write_bytes(data)
    assert find_shards(str(tmp_path)) == []


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("a.tar.gz", "gunzip {}/a.tar.gz"), ("a.tgz", "gunzip {}/a.tgz"), ("a.tfrecord.gz", "gunzip {}/a.tfrecord.gz"),
        ("a.tar.zst", "zstd -d --rm {}/a.tar.zst"), ("a.tar.xz", "unxz {}/a.tar.xz"),
        ("a.tfrecord-00000-of-00001.gz", "gunzip {}/a.tfrecord-00000-of-00001.gz"),
        ("shard.00000.mds.zstd", 'for f in {}/*.zstd; do zstd -d --rm "$f" -o "${{f%.zstd}}"; done'),
        ("shard.00000.mds.snappy", "write the shards anew without compression"),
    ],
)  # fmt: skip
def test_the_command_that_unpacks_fits_the_format(name: str, command: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"x")
    with pytest.raises(UsageError, match="is compressed, so its images cannot be read one by one") as caught:
        find_shards(str(tmp_path))
    assert command.format(tmp_path) in str(caught.value)


def test_gzip_is_recognised_by_its_content(tmp_path: Path) -> None:
    path = write_shard(tmp_path / "a.tar", {"1.jpg": jpeg()})
    path.write_bytes(gzip.compress(path.read_bytes()))
    assert find_compression(str(path)) == ".gz"
    with pytest.raises(UsageError, match=rf"is compressed \(gz\).*mv {path} {path}\.gz && gunzip {path}\.gz"):
        open_dataset(str(path), seed=0, limit_bytes=1 << 30, workers=1)


@pytest.mark.parametrize("names", [("train.rec", "val.rec"), ("x-train-00.tar", "x-validation-00.tar")])
def test_training_and_validation_are_not_one_data_set(names: tuple[str, ...], tmp_path: Path) -> None:
    for name in names:
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(UsageError, match=r"several parts of a data set: train \(1\), val \(1\)"):
        find_shards(str(tmp_path))
    assert find_shards(str(tmp_path / names[0])) == [str(tmp_path / names[0])]


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("imagenet-validation-0001.tar", "val"),
        ("trainer-1.tar", None),
        ("TRAIN.rec", "train"),
        ("a_test_1.tar", "test"),
    ],
)
def test_parts_are_words(name: str, part: str | None) -> None:
    assert find_part(name) == part


def test_shards_that_cannot_be_seen_from_here_are_pointed_to(tmp_path: Path) -> None:
    write_shard(tmp_path / "set" / "train" / "0.tar", {"1.jpg": jpeg()})
    with pytest.raises(UsageError, match=rf"its shards lie one folder deeper: name '{tmp_path}/set/train'"):
        open_dataset(str(tmp_path / "set"), seed=0, limit_bytes=1 << 30, workers=1)
    write_shard(tmp_path / "other" / "0.tar", {"1.jpg": jpeg()})
    (tmp_path / "other" / "logs").mkdir()
    with pytest.raises(UsageError, match="1 shard lies beside folders such as"):
        open_dataset(str(tmp_path / "other"), seed=0, limit_bytes=1 << 30, workers=1)
