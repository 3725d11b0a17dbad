"""Headers and ends of images, and shards that hold them."""

from __future__ import annotations

import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from pipetune.datasets.image_header import Header, NotAnImage, parse_header, read_header
from pipetune.datasets.image_tail import why_incomplete
from pipetune.datasets.shards import scan_shards
from pipetune.errors import UsageError
from tests.fuzz.mutations import damaged, examples
from tests.unit.datasets.images import encode, exif, segment, with_segments
from tests.unit.datasets.test_shards import write_shard

JPEG = encode()
IMAGES = (
    JPEG, encode(progressive=True), encode(mode="CMYK"), encode("PNG"), encode("PNG", mode="L"),
    with_segments(JPEG, segment(0xE1, b"Exif\0\0" + exif(6, before=3)), segment(0xE2, bytes(5000))),
    encode("PNG", exif=exif(8, ">")), encode("WEBP"), encode("WEBP", lossless=True), encode("WEBP", exif=exif(3)),
)  # fmt: skip
ODD_NAME = "folder/" + "long" * 60 + "/\udcff.jpg"


@given(damaged(IMAGES))
@examples(500)
def test_a_header_is_one_or_no_image_is_there(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "image"
    path.write_bytes(data)
    found: list[Header | str] = []
    for read in (lambda: parse_header(data), lambda: read_header(str(path))):
        try:
            header = read()
        except NotAnImage as error:
            found.append(error.reason)
            continue
        found.append(header)
        assert 1 <= header.orientation <= 8
        assert 0 < header.width * header.height < 200_000_000
        why_incomplete(str(path), header.format, len(data))
    assert found[0] == found[1] or all(isinstance(one, str) for one in found)


def _shards(folder: Path) -> list[bytes]:
    members = {"a/1.jpg": JPEG, "a/1.cls": b"3", "b/2.jpg": JPEG, "b/2.cls": b"cat", "c.json": b"{}", ODD_NAME: JPEG}
    return [write_shard(folder / "whole.tar", members).read_bytes()]


@given(data=st.data())
@examples(250)
def test_the_images_of_a_shard_lie_in_it(tmp_path: Path, data: st.DataObject) -> None:
    whole = _shards(tmp_path)
    path = tmp_path / "0.tar"
    path.write_bytes(data.draw(damaged(whole)))
    size = os.path.getsize(path)
    try:
        found = scan_shards(str(path), [str(path)], limit_bytes=1 << 30, seed=0)
    except UsageError:
        return
    assert len(found.images) <= 3
    for image in found.images:
        assert 0 <= image.label < len(found.classes)
        assert 0 < image.size_bytes <= size - image.start
