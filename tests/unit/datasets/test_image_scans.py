from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from pipetune.datasets import image_scans
from pipetune.datasets.folder import scan_folder
from pipetune.datasets.image_header import read_header
from pipetune.datasets.image_scans import MOST_SCANS, why_too_slow
from pipetune.datasets.open_dataset import open_dataset
from tests.unit.datasets.images import encode, segment, with_scans, with_segments

LARGE = (3000, 3000)


def reason(path: Path, jpeg: bytes, before: bytes = b"") -> str | None:
    path.write_bytes(before + jpeg)
    return why_too_slow(str(path), read_header(str(path), start=len(before)), len(jpeg), start=len(before))


def test_thousands_of_scans_are_too_slow(tmp_path: Path) -> None:
    jpeg = with_scans(LARGE, 9000)
    assert reason(tmp_path / "x.jpg", jpeg) == "a JPEG with 9,010 scans, more than 100"
    assert reason(tmp_path / "x.tar", jpeg, before=b"x" * 512) is not None, "in a shard"


def test_what_encoders_write_is_not(tmp_path: Path) -> None:
    noise = Image.effect_noise((1500, 1500), 80).convert("RGB")
    noise.save(tmp_path / "noise.jpg", quality=95, progressive=True)
    assert reason(tmp_path / "x.jpg", (tmp_path / "noise.jpg").read_bytes()) is None
    assert reason(tmp_path / "x.jpg", with_scans(LARGE, MOST_SCANS - 10)) is None
    assert reason(tmp_path / "x.png", encode("PNG")) is None


def test_a_small_image_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = with_scans((64, 64), 150)
    monkeypatch.setattr(image_scans.os, "open", lambda *_: pytest.fail("it was read"))
    path = tmp_path / "x.jpg"
    path.write_bytes(small)
    monkeypatch.undo()
    header = read_header(str(path))
    monkeypatch.setattr(image_scans.os, "open", lambda *_: pytest.fail("it was read"))
    assert why_too_slow(str(path), header, len(small)) is None


def test_such_an_image_is_left_out_and_named(tmp_path: Path) -> None:
    (tmp_path / "bomb.jpg").write_bytes(with_scans(LARGE, 9000))
    (tmp_path / "good.jpg").write_bytes(with_segments(encode(), segment(0xFE, b"x")))
    found = open_dataset(str(tmp_path), seed=0, limit_bytes=2**30, workers=1)
    assert [Path(image.path).name for image in found.images] == ["good.jpg"]
    ((path, why),) = found.skipped
    assert path.endswith("bomb.jpg")
    assert "scans" in why


def test_before_a_training_nothing_large_is_read_to_its_end(tmp_path: Path) -> None:
    (tmp_path / "bomb.jpg").write_bytes(with_scans(LARGE, 9000))
    assert len(scan_folder(str(tmp_path), limit_bytes=2**30, seed=0, strict=True).images) == 1


def with_component_scans(size: tuple[int, int], scans: int, before: bytes = b"", components: int = 1) -> bytes:
    """What is read of a JPEG that is not progressive, and has so many scans of some of its three components."""
    parts = b"".join(bytes([number, 0x11, 0]) for number in (1, 2, 3))
    frame = segment(0xC0, b"\x08" + size[1].to_bytes(2, "big") + size[0].to_bytes(2, "big") + b"\x03" + parts)
    chosen = b"".join(bytes([number, 0]) for number in (1, 2, 3)[:components])
    scan = segment(0xDA, bytes([components]) + chosen + bytes([0, 63, 0])) + bytes(12)
    return b"\xff\xd8" + before + frame + scans * scan + b"\xff\xd9"


def test_scans_of_one_component_each_are_counted_too(tmp_path: Path) -> None:
    assert reason(tmp_path / "x.jpg", with_component_scans(LARGE, 9000)) == "a JPEG with 9,000 scans, more than 100"
    profile = 20 * segment(0xE2, bytes(60_000))
    assert reason(tmp_path / "x.jpg", with_component_scans(LARGE, 9000, profile)) is not None, "far behind the start"
    assert reason(tmp_path / "x.jpg", with_component_scans(LARGE, 3)) is None


def test_a_photograph_is_not_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noise = Image.effect_noise((2000, 2000), 80).convert("RGB")
    noise.save(tmp_path / "noise.jpg", quality=95)
    jpeg = (tmp_path / "noise.jpg").read_bytes()
    read: list[int] = []
    real = image_scans.os.pread

    def counted(fd: int, count: int, offset: int) -> bytes:
        read.append(count)
        return real(fd, count, offset)

    header = read_header(str(tmp_path / "noise.jpg"))
    monkeypatch.setattr(image_scans.os, "pread", counted)
    assert why_too_slow(str(tmp_path / "noise.jpg"), header, len(jpeg)) is None
    assert read == [1 << 16]
