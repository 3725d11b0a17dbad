from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pipetune.decoders.contract import Photo
from pipetune.decoders.crop import Crop
from pipetune.errors import MissingPackageError
from pipetune.install.ffmpeg import find_spdl
from tests.bad_images import jpeg

if find_spdl() is None:
    pytest.skip("SPDL or FFmpeg's libraries are not installed", allow_module_level=True)

from pipetune.decoders import spdl


def decoded(path: Path, data: bytes, *, crop: Crop | None = None, size: int = 16) -> np.ndarray | None:
    path.write_bytes(data)
    return spdl.decode(
        Photo(str(path), 1, True, 0, 0), lambda height, width: crop or Crop(0, 0, height, width, False), size
    )


def reference(data: bytes, box: tuple[int, int, int, int], size: int) -> np.ndarray:
    image = Image.open(io.BytesIO(data)).convert("RGB").resize((size, size), Image.Resampling.BILINEAR, box=box)
    return np.asarray(image).astype(int)


@pytest.mark.parametrize("kind", [{"mode": "L"}, {"subsampling": 0}, {"subsampling": 1}, {"progressive": True}])
def test_jpegs_of_all_kinds_have_pillows_colours(kind: dict[str, object], tmp_path: Path) -> None:
    data = jpeg(**kind)
    found = decoded(tmp_path / "a.jpg", data, crop=Crop(21, 11, 100, 90, False), size=40)
    assert found is not None
    assert np.abs(found - reference(data, (11, 21, 101, 121), 40)).mean() < 2


def test_a_crop_of_one_pixel_and_its_mirror_image(tmp_path: Path) -> None:
    data = jpeg(subsampling=0)
    point = decoded(tmp_path / "a.jpg", data, crop=Crop(3, 5, 1, 1, False))
    assert point is not None
    assert np.abs(point - reference(data, (5, 3, 6, 4), 16)).max() <= 3
    plain, mirrored = (decoded(tmp_path / "a.jpg", data, crop=Crop(0, 0, 80, 80, flip)) for flip in (False, True))
    assert plain is not None
    assert mirrored is not None
    np.testing.assert_array_equal(mirrored, plain[:, ::-1])


@pytest.mark.parametrize("data", [b"", b"\xff\xd8\xff\xdb" + bytes(500), jpeg(quality=95)[:9000], jpeg(mode="CMYK")])
def test_what_it_cannot_do_is_left_to_another(data: bytes, tmp_path: Path) -> None:
    assert decoded(tmp_path / "a.jpg", data) is None


def test_without_ffmpeg_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(level: int) -> None:
        raise RuntimeError("Failed to import libspdl.\nlibavdevice.so.59: cannot open")

    monkeypatch.setattr(spdl.io.utils, "set_ffmpeg_log_level", nothing)
    with pytest.raises(MissingPackageError, match=r"SPDL finds no FFmpeg: Failed to import libspdl\.") as caught:
        spdl.require()
    assert "apt-get install ffmpeg" in str(caught.value.hint)
