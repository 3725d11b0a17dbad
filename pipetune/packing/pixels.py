"""One image as it is packed: copied, made smaller, or written anew without loss.

Rules for what is no plain JPEG, each with its word in the manifest:

- PNG and WebP keep their bytes where they keep their pixels; made smaller, they become JPEGs of full chroma, of the
  colours that ``convert("RGB")`` gives: transparency is dropped, as ``ImageFolder``'s loader does.
- 16-bit grey becomes 8-bit grey by its upper byte, as all decoders make it.
- CMYK and RGB JPEGs that are made smaller become YCbCr ones by Pillow's conversion. Grey ones stay grey.
- Turned images keep the tag with the orientation, and lose all other EXIF where they are written anew; with
  ``--upright`` their pixels are turned: without loss where their edges are multiples of their blocks, and otherwise by
  encoding them anew, which ``--lossless`` leaves out.
- Of a format that holds pixels, all are turned upright, in RGB: there is no tag that a loader could obey.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from pipetune.datasets.image_header import MAX_PIXELS, Header, NotAnImage, parse_header
from pipetune.datasets.image_tail import find_png_damage, why_incomplete_bytes
from pipetune.datasets.upright import TURNS
from pipetune.packing.jpeg_library import MOST_ORDERS, CannotPack, Order, own_packer
from pipetune.packing.options import LOSSLESS, SAMPLINGS, Pixels
from pipetune.packing.sizes import target_size

if TYPE_CHECKING:
    from PIL import Image

COPIED, RESIZED, TRANSCODED, TURNED, CONVERTED = "copied", "resized", "transcoded", "turned", "converted"
DECODED, TURNED_LOSSLESS = "decoded", "turned_lossless"
ENDINGS = {"jpeg": "jpg", "png": "png", "webp": "webp"}
#: A JPEG's edges have at most so many pixels (libjpeg's JPEG_MAX_DIMENSION).
_MOST_EDGE = 65500
#: EXIF tag of the orientation.
_ORIENTATION = 0x0112
#: From this orientation on, width and height change places.
_SWAPPED = 5
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
    (found,) = pack_images(data, [pixels])
    if isinstance(found, Rejected):
        raise found
    return found


def pack_images(data: bytes, wanted: Sequence[Pixels]) -> list[Packed | Rejected]:
    """The image as each of several packs has it, or why one does not: what is decoded for one serves the others.

    Args:
        data: a whole file.

    Raises:
        MissingPackageError: the C library is needed, and is not there.
    """
    try:
        header = parse_header(data)
    except NotAnImage as error:
        return [Rejected(error.reason) for _ in wanted]
    found: dict[int, Packed | Rejected] = {}
    orders: dict[int, Order] = {}
    for place, pixels in enumerate(wanted):
        try:
            order = _order(header, pixels)
        except Rejected as error:
            found[place] = error
        else:
            if order is not None:
                orders[place] = order
    # What libjpeg only warns of may be nothing, or damage: Pillow tells them apart.
    with contextlib.suppress(CannotPack):
        for at in range(0, len(orders), MOST_ORDERS):
            places = list(orders)[at : at + MOST_ORDERS]
            made = own_packer().made(data, [orders[place] for place in places])
            for place, one in zip(places, made or (), strict=False):
                found[place] = _as_ordered(one, orders[place])
    for place, pixels in enumerate(wanted):
        if place not in found:
            try:
                found[place] = _otherwise(data, header, pixels)
            except Rejected as error:
                found[place] = error
    return [found[place] for place in range(len(wanted))]


def _order(header: Header, pixels: Pixels) -> Order | None:
    """What the C code is to do; ``None``: it is not for it.

    Raises:
        Rejected: nobody can do it.
    """
    size = _target(header, pixels)
    turned = header.orientation > 1 and (pixels.upright or pixels.raw)
    if header.format != "jpeg" or turned or size is None:
        return None
    if pixels.raw:
        assert pixels.edge is not None
        return Order(size, square=pixels.edge)
    return Order(size, pixels.quality, SAMPLINGS[pixels.subsampling], header.orientation)


def _as_ordered(data: bytes, order: Order) -> Packed:
    if order.square:
        return Packed(data, "raw", order.square, order.square, 1, DECODED)
    return Packed(data, "jpg", *order.size, order.orientation, RESIZED)


def _target(header: Header, pixels: Pixels) -> tuple[int, int] | None:
    """(width, height) in px that the image is resized to, upright for raw pixels; ``None``: it is not.

    Raises:
        Rejected: it is too small, or would be too large.
    """
    sizes = header.width, header.height
    if not pixels.raw:
        size = target_size(*sizes, pixels)
    else:
        assert pixels.edge is not None
        width, height = sizes[::-1] if header.orientation >= _SWAPPED else sizes
        if min(width, height) < pixels.edge and not pixels.enlarge:
            raise Rejected(
                f"has a shorter edge of {min(width, height)} px, and not {pixels.edge}; --enlarge makes it larger"
            )
        size = target_size(width, height, pixels) or (width, height)
    if size is not None and (max(size) > _MOST_EDGE or size[0] * size[1] > MAX_PIXELS):
        raise Rejected(f"would have {size[0]} x {size[1]} pixels, more than a JPEG may have")
    return size


def _otherwise(data: bytes, header: Header, pixels: Pixels) -> Packed:
    """What the C code does not do, or has refused."""
    if pixels.raw:
        return _square(data, header, pixels)
    size = _target(header, pixels)
    turned = pixels.upright and header.orientation > 1
    if size is None and turned and header.format == "jpeg":
        with contextlib.suppress(CannotPack):
            upright = own_packer().turned(data, header.orientation)
            if upright is not None:
                sizes = header.width, header.height
                swapped = sizes[::-1] if header.orientation >= _SWAPPED else sizes
                return Packed(upright, "jpg", *swapped, 1, TURNED_LOSSLESS)
    if size is None and (not turned or pixels.mode == LOSSLESS):
        return _as_it_is(data, header, pixels)
    return _by_pillow(data, header, pixels, size, turned=turned)


def _square(data: bytes, header: Header, pixels: Pixels) -> Packed:
    """The pixels of the square in the middle of the upright image, by Pillow."""
    from PIL import Image

    edge, size = pixels.edge, _target(header, pixels)
    assert edge is not None
    assert size is not None
    picture = upright_rgb(data).resize(size, Image.Resampling.BICUBIC)
    left, top = (size[0] - edge) // 2, (size[1] - edge) // 2
    return Packed(picture.crop((left, top, left + edge, top + edge)).tobytes(), "raw", edge, edge, 1, DECODED)


def _as_it_is(data: bytes, header: Header, pixels: Pixels) -> Packed:
    sizes = header.width, header.height, header.orientation
    if pixels.mode == LOSSLESS and header.format == "jpeg":
        try:
            return Packed(own_packer().transcoded(data, orientation=header.orientation), "jpg", *sizes, TRANSCODED)
        except CannotPack:
            _decoded(data)  # it is copied, if only libjpeg's coefficients are strange
    reason = why_incomplete_bytes(data, header.format)
    if reason is None and header.format == "png":
        reason = find_png_damage(data)
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
        picture, orientation = picture.transpose(Image.Transpose[TURNS[orientation]]), 1
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


def upright_rgb(data: bytes) -> Image.Image:
    """The pixels that loaders see, by Pillow.

    Raises:
        NotAnImage: it is none.
        Rejected: it does not decode.
    """
    from pipetune.datasets.pillow_rgb import to_rgb

    return to_rgb(_decoded(data)[0], parse_header(data).orientation)


def _decoded(data: bytes) -> tuple[Image.Image, int, bytes | None]:
    """Grey or RGB pixels, the chroma sampling as Pillow counts it, and the ICC profile.

    Raises:
        Rejected: it does not decode.
    """
    from PIL import Image, JpegImagePlugin

    from pipetune.datasets.pillow_rgb import to_eight_bits

    try:
        with Image.open(io.BytesIO(data)) as image:
            sampling = JpegImagePlugin.get_sampling(image) if image.format in ("JPEG", "MPO") else 0
            # Of CMYK, the profile does not fit the new colours.
            profile = None if image.mode == "CMYK" else image.info.get("icc_profile")
            picture = to_eight_bits(image)
            return picture.convert("L" if picture.mode == "L" else "RGB"), sampling, profile
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise Rejected(f"does not decode: {error}") from error
