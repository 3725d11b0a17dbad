from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from pipetune.datasets.index import ImageSet, read_index, write_index
from pipetune.datasets.open_dataset import open_dataset
from pipetune.errors import UsageError
from tests.bad_images import jpeg
from tests.photo_set import PHOTOS


def write_shard(path: Path, members: dict[str, bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def open_(path: Path, **limits: Any) -> ImageSet:
    values: dict[str, Any] = {"seed": 0, "limit_bytes": 2**30, "workers": 1, **limits}
    return open_dataset(str(path), **values)


@pytest.fixture
def photos() -> dict[str, bytes]:
    return {path.stem: path.read_bytes() for path in sorted(PHOTOS.glob("*/*.jpg"))}


def test_members_with_their_labels_and_places(tmp_path: Path, photos: dict[str, bytes]) -> None:
    names = list(photos)
    for number in range(2):
        members: dict[str, bytes] = {}
        for place, name in enumerate(names[2 * number : 2 * number + 2]):
            members |= {f"{name}.jpg": photos[name], f"{name}.cls": str(3 * place).encode(), f"{name}.json": b"{}"}
        write_shard(tmp_path / "set" / f"{number}.tar", members)
    found = open_(tmp_path / "set")
    assert found.name == "set"
    assert found.classes == ("0", "1", "2", "3")
    assert [image.label for image in found.images] == [0, 0, 3, 3]
    assert found.found_images == len(found.images) == 4
    assert found.in_shards
    assert found.files == [str(tmp_path / "set" / "0.tar"), str(tmp_path / "set" / "1.tar")]
    for image in found.images:
        name = Path(image.path).stem
        assert image.shard is not None
        with open(image.shard, "rb") as file:
            file.seek(image.start)
            assert file.read(image.size_bytes) == photos[name]
        assert image.path == f"{image.shard}/{name}.jpg"
    write_index(str(tmp_path / "index.json"), found)
    assert read_index(str(tmp_path / "index.json")) == found


@pytest.mark.parametrize(
    ("members", "classes"),
    [
        ({"dog/1.jpg": "", "cat/2.jpg": ""}, ("cat", "dog")),
        ({"1.jpg": "", "2.jpg": ""}, ("images",)),
        ({"1.jpg": "zebra", "2.jpg": "ant"}, ("ant", "zebra")),
        ({"1.seg.jpg": "7", "2.jpg": "7"}, tuple(map(str, range(8)))),
        ({"./dog/1.jpg": "", "./cat/2.jpg": ""}, ("cat", "dog")),  # tar -C train -cf one.tar .
        ({"/dog/1.jpg": "", "//cat/./2.jpg": ""}, ("cat", "dog")),  # tar -P
        ({"./1.jpg": "", "./2.jpg": ""}, ("images",)),
    ],
)
def test_where_labels_come_from(tmp_path: Path, members: dict[str, str], classes: tuple[str, ...]) -> None:
    packed: dict[str, bytes] = {}
    for name, label in members.items():
        packed[name] = jpeg()
        if label:
            packed[name.partition(".")[0] + ".cls"] = label.encode()
    found = open_(write_shard(tmp_path / "one.tar", packed))
    assert found.classes == classes
    assert {image.label for image in found.images} <= set(range(len(classes)))


NUMBERED = {f"{number}.jpg": jpeg() for number in range(12)} | {f"{number}.cls": b"%d" % number for number in range(12)}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"5.cls": None}, "has no label"), ({"5.cls": b" \n"}, "an empty label"),
        ({"5.cls": b"5" * 300}, "a label of 300 bytes, more than 256"),
        ({"5.cls": b"-1"}, "a label of -1, which is no class"),
    ],
    ids=["no file", "empty", "too long", "negative"],
)  # fmt: skip
def test_an_image_without_a_label_leaves_the_others_their_numbers(
    changes: dict[str, bytes | None], reason: str, tmp_path: Path
) -> None:
    members = {name: data for name, data in {**NUMBERED, **changes}.items() if data is not None}
    found = open_(write_shard(tmp_path / "one.tar", members), strict=True)
    assert {Path(image.path).stem: image.label for image in found.images} == {
        str(number): number for number in range(12) if number != 5
    }
    assert found.classes == tuple(map(str, range(12)))
    reasons = {Path(path).name: why for path, why in found.skipped}
    assert reasons.pop("5.jpg") == reason
    assert reasons == {}
    assert found.audit is not None
    assert found.audit.unmatched == (changes["5.cls"] is not None)


def test_a_shard_without_labels_beside_one_that_has_them(tmp_path: Path) -> None:
    write_shard(tmp_path / "set" / "0.tar", NUMBERED)
    write_shard(tmp_path / "set" / "1.tar", {"dog/1.jpg": jpeg()})
    found = open_(tmp_path / "set")
    assert (len(found.images), len(found.classes)) == (12, 12)
    assert found.skipped == ((f"{tmp_path}/set/1.tar/dog/1.jpg", "has no label"),)


def test_images_beside_the_folders_have_no_class(tmp_path: Path) -> None:
    found = open_(write_shard(tmp_path / "one.tar", {"logo.jpg": jpeg(), "0/1.jpg": jpeg(), "10/2.jpg": jpeg()}))
    assert [image.label for image in found.images] == [0, 10]
    assert found.skipped == ((f"{tmp_path}/one.tar/logo.jpg", "is not in a folder, so it has no class"),)


def test_unusable_members_are_skipped_and_reported(tmp_path: Path) -> None:
    cut = jpeg()[:-40]
    write_shard(tmp_path / "set" / "a.tar", {"good.jpg": jpeg(), "cut.jpg": cut, "text.jpg": b"no image at all"})
    (tmp_path / "set" / "b.tar").write_bytes(b"this is no tar file" * 100)
    found = open_(tmp_path / "set")
    assert [Path(image.path).name for image in found.images] == ["good.jpg"]
    assert found.skipped_count == 3
    reasons = {Path(path).name: reason for path, reason in found.skipped}
    assert "cut off after" in reasons["cut.jpg"]
    assert set(reasons) == {"cut.jpg", "text.jpg", "b.tar"}
    with pytest.raises(UsageError, match="no images in 1 shard of"):
        open_(write_shard(tmp_path / "other" / "c.tar", {"a.txt": b"text"}))


def test_a_shard_that_is_not_there_is_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no such directory: .*none\.tar"):
        open_(tmp_path / "none.tar")


def raw_header(name: str, size: int | bytes, kind: bytes = b"0") -> bytes:
    """One ustar header, with a size as a number or as the bytes of its field."""
    field = size if isinstance(size, bytes) else b"%011o\0" % size
    head = name.encode().ljust(100, b"\0") + b"0000644\0" + b"0000000\0" * 2 + field + b"00000000000\0"
    head += b" " * 8 + kind + b"\0" * 100 + b"ustar\x0000" + b"\0" * 247
    checksum = b"%06o\0 " % sum(head)
    return (head[:148] + checksum + head[156:])[:512].ljust(512, b"\0")


def whole(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 512)


GOOD = raw_header("a/1.jpg", len(jpeg())) + whole(jpeg())


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("rest", "reason"),
    [
        (raw_header("a/2.jpg", b"\xff" * 12) + b"\0" * 512, "backwards"),
        (raw_header("a/2.jpg", 10**9), "cut off"),
        (raw_header("pax", 3 * 2**30, b"x"), "header of"),
        (raw_header("a/2.jpg", b"\x80" + b"\x7f" * 11), ""),
        (raw_header("pax", 25, b"x") + whole(b"25 GNU.sparse.map=a,b,c\n\n") + raw_header("a/2.jpg", 0), ""),
        (b"\1" * 700, "no header at byte"),
        (b"\0" * 512 + whole(jpeg()) + raw_header("a/3.jpg", 0), "no header at byte"),
        (raw_header("a/2.jpg", 0)[:100], "no header at byte"),
    ],
    ids=[
        "a negative size",
        "cut off",
        "a header of 3 GB",
        "a size of 10**27",
        "a map that is none",
        "no header",
        "a header of zeros",
        "half a header",
    ],
)
def test_damage_loses_nothing_that_stands_before_it(rest: bytes, reason: str, tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(GOOD + rest)
    found = open_(tmp_path / "x.tar")
    assert [Path(image.path).name for image in found.images] == ["1.jpg"]
    assert reason in "; ".join(why for _, why in found.skipped)


def test_links_are_followed_and_other_kinds_are_named(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        info = tarfile.TarInfo("a/1.jpg")
        info.size = len(jpeg())
        tar.addfile(info, io.BytesIO(jpeg()))
        for name, kind, target in (
            ("a/link.jpg", tarfile.SYMTYPE, "1.jpg"),
            ("a/hard.jpg", tarfile.LNKTYPE, "a/1.jpg"),
            ("a/fifo.jpg", tarfile.FIFOTYPE, ""),
            ("a/device", tarfile.CHRTYPE, ""),
        ):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, target
            tar.addfile(info)
    found = open_(tmp_path / "x.tar")
    assert [Path(image.path).name for image in found.images] == ["1.jpg", "hard.jpg", "link.jpg"]
    assert found.skipped == ((f"{tmp_path}/x.tar/a/fifo.jpg", "a named pipe"),)
    assert found.audit is not None
    assert dict(found.audit.other) == {"a character device": 1}


@pytest.mark.parametrize(
    ("names", "classes", "shared"),
    [
        (("train/dog/1.jpg", "train/cat/2.jpg"), ("cat", "dog"), "train"),
        (("./data/train/dog/1.jpg", "./data/train/cat/2.jpg"), ("cat", "dog"), "data/train"),
        (("train/dog/x/1.jpg", "train/cat/2.jpg"), ("cat", "dog"), "train"),
        (("train/1.jpg", "train/2.jpg"), ("train",), ""),
        (("dog/a/1.jpg", "cat/a/2.jpg"), ("cat", "dog"), ""),
    ],
)
def test_a_folder_that_all_share_is_no_class(
    names: tuple[str, ...], classes: tuple[str, ...], shared: str, tmp_path: Path
) -> None:
    found = open_(write_shard(tmp_path / "one.tar", dict.fromkeys(names, jpeg())))
    assert found.classes == classes
    assert found.audit is not None
    assert (found.audit.shared_folder, found.audit.label_source) == (shared, "folders" if len(classes) > 1 else "none")


def test_archives_of_imagenet_have_their_class_in_their_names(tmp_path: Path) -> None:
    for name in ("n02", "n01"):
        write_shard(tmp_path / f"{name}440764.tar", {f"{name}440764_1.JPEG": jpeg()})
    found = open_(tmp_path)
    assert found.classes == ("n01440764", "n02440764")
    assert [Path(image.path).name for image in found.images] == ["n01440764_1.JPEG", "n02440764_1.JPEG"]
    write_shard(tmp_path / "n02440764.tar", {"other_1.JPEG": jpeg()})
    assert len(open_(tmp_path).classes) == 1


@pytest.mark.parametrize("odd", [b"unsure", b"12.5", b"[1]"])
def test_one_odd_label_leaves_the_others_their_numbers(odd: bytes, tmp_path: Path) -> None:
    found = open_(write_shard(tmp_path / "one.tar", {**NUMBERED, "12.jpg": jpeg(), "12.cls": odd}))
    assert found.classes == tuple(map(str, range(12)))
    ((place, reason),) = found.skipped
    assert place.endswith("/12.jpg")
    assert repr(odd.decode()) in reason


def test_labels_that_are_numbers_and_names_are_refused(tmp_path: Path) -> None:
    members = {"1.jpg": jpeg(), "1.cls": b"747", "2.jpg": jpeg(), "2.cls": b"zeppelin"}
    with pytest.raises(UsageError, match=r"are numbers and names: 747 of '1\.jpg', 'zeppelin' of '2\.jpg'; 1 are"):
        open_(write_shard(tmp_path / "one.tar", members))


@pytest.mark.timeout(20)
def test_a_named_pipe_called_a_shard_is_not_waited_for(tmp_path: Path) -> None:
    write_shard(tmp_path / "set" / "a.tar", {"a/1.jpg": jpeg()})
    os.mkfifo(tmp_path / "set" / "b.tar")
    found = open_(tmp_path / "set")
    assert len(found.images) == 1
    assert found.skipped == ((str(tmp_path / "set" / "b.tar"), "not a regular file"),)


def test_compressed_shards_are_refused(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "0.tar.gz").write_bytes(b"")
    with pytest.raises(UsageError, match="is compressed, so its images cannot be read one by one; unpack"):
        open_(tmp_path / "set")


@pytest.mark.parametrize("packed", ["1.tar.gz", "1.TGZ", "1.tar.zstd"])
def test_also_beside_plain_ones_unless_they_are_there_unpacked(packed: str, tmp_path: Path) -> None:
    write_shard(tmp_path / "set" / "0.tar", {"a/1.jpg": jpeg()})
    (tmp_path / "set" / packed).write_bytes(b"")
    (tmp_path / "set" / "notes.txt.gz").write_bytes(b"")
    with pytest.raises(UsageError, match=rf"{packed}' is compressed.*move it to another folder"):
        open_(tmp_path / "set")
    write_shard(tmp_path / "set" / "1.tar", {"a/2.jpg": jpeg()})
    assert len(open_(tmp_path / "set").images) == 2


def test_a_folder_of_images_with_a_tar_file_is_a_folder_of_images(tmp_path: Path) -> None:
    write_shard(tmp_path / "set" / "backup.tar", {"a.jpg": jpeg()})
    (tmp_path / "set" / "b.jpg").write_bytes(jpeg())
    assert [image.shard for image in open_(tmp_path / "set").images] == [None]


def test_limits_take_whole_shards_first(tmp_path: Path) -> None:
    for number in range(4):
        write_shard(tmp_path / "set" / f"{number}.tar", {f"{number}-{i}.jpg": jpeg() for i in range(3)})
    found = open_(tmp_path / "set", limit_images=6)
    assert len(found.images) == 6
    assert len(found.files) == 2
    assert found.found_images == 12
    assert open_(tmp_path / "set", limit_images=6) == found
    assert len(open_(tmp_path / "set", limit_bytes=1).images) == 1


def test_a_name_with_a_zero_byte_is_left_out(tmp_path: Path) -> None:
    record = b"path=a\0b.jpg\n"
    record = b"%d " % (len(record) + 3) + record
    data = raw_header("pax", len(record), b"x") + whole(record) + raw_header("x", len(jpeg())) + whole(jpeg())
    (tmp_path / "x.tar").write_bytes(data + GOOD)
    found = open_(tmp_path / "x.tar")
    assert [Path(image.path).name for image in found.images] == ["1.jpg"]
    ((_, why),) = found.skipped
    assert why == "its name has a zero byte"


@pytest.mark.parametrize("end", [b"", b"\0" * 512, b"\0" * 1024, b"\0" * 10240, b"\0" * 100])
def test_a_shard_may_end_in_zeros_or_without_any(end: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(GOOD + end)
    found = open_(tmp_path / "x.tar")
    assert (len(found.images), found.skipped) == (1, ())


def test_a_second_archive_behind_the_first_is_told(tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(GOOD + b"\0" * 1024 + GOOD)
    ((_, why),) = open_(tmp_path / "x.tar").skipped
    assert "damaged after 1 image: no header at byte" in why
