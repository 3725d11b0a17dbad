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
    assert reason(tmp_path / "x.jpg", jpeg) == "a progressive JPEG with 9,010 scans, more than 100"
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
