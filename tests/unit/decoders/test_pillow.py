"""Which images Pillow turns upright, and how: as the index says, whatever else is in the file."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps, features

from pipetune.datasets.image_header import parse_header
from pipetune.decoders import pillow
from pipetune.decoders.contract import Photo
from tests.bad_images import PHOTO

FORMATS = ["JPEG", "PNG", pytest.param("WEBP", marks=pytest.mark.skipif(
    not features.check("webp"), reason="this Pillow is built without WebP"))]  # fmt: skip
XMP = b"""<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">
<rdf:Description xmlns:tiff="http://ns.adobe.com/tiff/1.0/" tiff:Orientation="6"/></rdf:RDF></x:xmpmeta>"""


def stored(format_: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    Image.open(PHOTO).convert("RGB").resize((60, 40)).save(buffer, format_, **options)
    return buffer.getvalue()


def decoded(path: Path, data: bytes) -> Image.Image:
    """As it is decoded with the orientation that its header has."""
    path.write_bytes(data)
    header = parse_header(data)
    return pillow.decode_whole(
        Photo(str(path), header.orientation, header.format == "jpeg", header.height, header.width)
    )


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("orientation", range(1, 9))
def test_it_is_turned_as_pillow_itself_would(format_: str, orientation: int, tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = stored(format_, exif=exif)
    expected = ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB")
    np.testing.assert_array_equal(decoded(tmp_path / "image", data), expected)


@pytest.mark.parametrize("format_", FORMATS)
def test_damaged_exif_and_xmp_are_not_looked_at(format_: str, tmp_path: Path) -> None:
    for extra in ({"exif": b"Exif\0\0 neither II nor MM"}, {"xmp": XMP} if format_ != "PNG" else {}):
        data = stored(format_, **extra)
        assert decoded(tmp_path / "image", data).size == (60, 40)
