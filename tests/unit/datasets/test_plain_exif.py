from __future__ import annotations

import pytest
from PIL import Image

from pipetune.datasets.image_header import parse_header
from pipetune.datasets.plain_exif import write_plain_exif
from tests.odd_images import Odd, damaged_exif, scene


@pytest.mark.parametrize("odd", list(damaged_exif()), ids=lambda odd: odd.name)
def test_what_libraries_read_differently_is_written_so_that_they_agree(odd: Odd) -> None:
    form = parse_header(odd.data).format
    plain = write_plain_exif(odd.data, form, odd.orientation)
    header = parse_header(plain)
    assert (header.orientation, header.exif_disputed) == (odd.orientation, False)
    assert (header.width, header.height) == scene().size
    assert opened(plain).getexif().get(0x0112, 1) == odd.orientation
    assert opened(plain).tobytes() == opened(odd.data).tobytes()


def test_a_cut_off_file_is_no_error() -> None:
    for odd in damaged_exif():
        for end in (4, 30, 200):
            form = "png" if odd.name.endswith("png") else "jpeg"
            write_plain_exif(odd.data[:end], form, 6)


def opened(data: bytes) -> Image.Image:
    import io

    return Image.open(io.BytesIO(data))
