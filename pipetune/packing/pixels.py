"""One image as it is packed: copied, made smaller, or written anew without loss.

Rules for what is no plain JPEG, each with its word in the manifest:

- PNG and WebP keep their bytes where they keep their pixels; made smaller, they become JPEGs of full chroma, of the
  colours that ``convert("RGB")`` gives: transparency is dropped, as ``ImageFolder``'s loader does.
- CMYK JPEGs that are made smaller become RGB ones by Pillow's conversion. Grey ones stay grey.
- Turned images keep the tag with the orientation, and lose all other EXIF where they are written anew; with
  ``--upright`` their pixels are turned.
"""

from __future__ import annotations

import contextlib
import io
from typing import TYPE_CHECKING, NamedTuple

from pipetune.datasets.image_header import MAX_PIXELS, Header, NotAnImage, parse_header
from pipetune.datasets.image_tail import why_incomplete_bytes
from pipetune.packing.jpeg_library import CannotPack, own_packer
from pipetune.packing.options import LOSSLESS, SAMPLINGS, Pixels
from pipetune.packing.sizes import target_size

if TYPE_CHECKING:
    from PIL import Image

COPIED, RESIZED, TRANSCODED, TURNED, CONVERTED = "copied", "resized", "transcoded", "turned", "converted"
ENDINGS = {"jpeg": "jpg", "png": "png", "webp": "webp"}
#: A JPEG's edges have at most so many pixels (libjpeg's JPEG_MAX_DIMENSION).
_MOST_EDGE = 65500
#: EXIF tag of the orientation, and how each is turned upright, by the names of ``PIL.Image.Transpose``.
_ORIENTATION = 0x0112
_TURNS = {
    2: "FLIP_LEFT_RIGHT", 3: "ROTATE_180", 4: "FLIP_TOP_BOTTOM", 5: "TRANSPOSE", 6: "ROTATE_270", 7: "TRANSVERSE",
    8: "ROTATE_90",
}  # fmt: skip
_PILLOW_SAMPLINGS = {"444": 0, "422": 1, "420": 2}


class Rejected(Exception):
    """The image cannot be packed; the text says why."""


class Packed(NamedTuple):
    """An image as it is packed."""

    data: bytes
    ending: str
    width: int
    """As stored (px)."""
    height: int
    orientation: int
    """EXIF orientation that its pixels still have to be turned by, 1..8."""
    done: str


def pack_image(data: bytes, pixels: Pixels) -> Packed:
    """The image as it is packed.

    Args:
        data: a whole file.

    Raises:
        Rejected: it is no image, damaged, or of a kind that no loader reads.
        MissingPackageError: the C library is needed, and is not there.
    """
    try:
        header = parse_header(data)
    except NotAnImage as error:
        raise Rejected(error.reason) from error
    size = target_size(header.width, header.height, pixels)
    if size is not None and (max(size) > _MOST_EDGE or size[0] * size[1] > MAX_PIXELS):
        raise Rejected(f"would have {size[0]} x {size[1]} pixels, more than a JPEG may have")
    turned = pixels.upright and header.orientation > 1
    if size is None and not turned:
        return _as_it_is(data, header, pixels)
    if header.format == "jpeg" and not turned and size is not None:
        # What libjpeg only warns of may be nothing, or damage: Pillow tells them apart.
        with contextlib.suppress(CannotPack):
            smaller = own_packer().resized(
                data, size, quality=pixels.quality, sampling=SAMPLINGS[pixels.subsampling],
                orientation=header.orientation,
            )  # fmt: skip
            if smaller is not None:
                return Packed(smaller, "jpg", *size, header.orientation, RESIZED)
    return _by_pillow(data, header, pixels, size, turned=turned)


def _as_it_is(data: bytes, header: Header, pixels: Pixels) -> Packed:
    sizes = header.width, header.height, header.orientation
    if pixels.mode == LOSSLESS and header.format == "jpeg":
        try:
            return Packed(own_packer().transcoded(data, orientation=header.orientation), "jpg", *sizes, TRANSCODED)
        except CannotPack:
            _decoded(data)  # it is copied, if only libjpeg's coefficients are strange
    reason = why_incomplete_bytes(data, header.format)
    if reason is not None:
        raise Rejected(reason)
    return Packed(data, ENDINGS[header.format], *sizes, COPIED)


def _by_pillow(data: bytes, header: Header, pixels: Pixels, size: tuple[int, int] | None, *, turned: bool) -> Packed:
    """What the C code leaves: other formats, other colours, and pixels that are turned."""
    from PIL import Image

    picture, sampling, profile = _decoded(data)
    if size is not None:
        picture = picture.resize(size, Image.Resampling.BICUBIC)
    orientation = header.orientation
    if turned:
        picture, orientation = picture.transpose(Image.Transpose[_TURNS[orientation]]), 1
    exif = Image.Exif()
    if orientation > 1:
        exif[_ORIENTATION] = orientation
    chosen = _PILLOW_SAMPLINGS.get(pixels.subsampling, max(0, sampling))
    out = io.BytesIO()
    picture.info.clear()  # remarks and the like, which would be written
    try:
        picture.save(out, "JPEG", quality=pixels.quality, subsampling=chosen, exif=exif, icc_profile=profile)
    except (OSError, ValueError) as error:
        raise Rejected(f"cannot be written as a JPEG: {error}") from error
    done = TURNED if turned else RESIZED if header.format == "jpeg" else CONVERTED
    return Packed(out.getvalue(), "jpg", *picture.size, orientation, done)


def _decoded(data: bytes) -> tuple[Image.Image, int, bytes | None]:
    """Grey or RGB pixels, the chroma sampling as Pillow counts it, and the ICC profile.

    Raises:
        Rejected: it does not decode.
    """
    from PIL import Image, JpegImagePlugin

    try:
        with Image.open(io.BytesIO(data)) as image:
            sampling = JpegImagePlugin.get_sampling(image) if image.format in ("JPEG", "MPO") else 0
            # Of CMYK, the profile does not fit the new colours.
            profile = None if image.mode == "CMYK" else image.info.get("icc_profile")
            return image.convert("L" if image.mode == "L" else "RGB"), sampling, profile
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise Rejected(f"does not decode: {error}") from error
