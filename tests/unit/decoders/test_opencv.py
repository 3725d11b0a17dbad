"""What OpenCV leaves to Pillow."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from PIL import Image, features

cv2 = pytest.importorskip("cv2", reason="what is tested calls OpenCV")

from pipetune.decoders import opencv  # noqa: E402
from pipetune.decoders.contract import Photo  # noqa: E402


@pytest.mark.skipif(not features.check("webp"), reason="this Pillow is built without WebP")
def test_a_webp_is_upright_in_every_version(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    decode = cv2.imdecode
    # As 4.10 does of a WebP.
    monkeypatch.setattr(cv2, "imdecode", lambda data, flags: decode(data, flags | cv2.IMREAD_IGNORE_ORIENTATION))
    exif, buffer = Image.Exif(), io.BytesIO()
    exif[0x0112] = 6
    Image.new("RGB", (60, 40), (250, 100, 20)).save(buffer, "WEBP", lossless=True, exif=exif)
    path = tmp_path / "turned.webp"
    path.write_bytes(buffer.getvalue())
    image = opencv.decode_whole(Photo(str(path), 6, False, 60, 40))
    assert image.shape == (60, 40, 3)
    assert image[0, 0].tolist() == [20, 100, 250]
