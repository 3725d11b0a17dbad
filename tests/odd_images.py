"""Images on which decoders differ: kinds of pixels, and EXIF orientations of all types, whole and damaged."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from tests.unit.datasets.images import segment, with_segments

_TAG, _SHORT = 0x0112, 3
EXIF = b"Exif\0\0"
XMP = b"http://ns.adobe.com/xap/1.0/\0<x:xmpmeta/>"


class Odd(NamedTuple):
    """A file, and what every decoder makes of it."""

    name: str
    data: bytes
    orientation: int = 1
    disputed: bool = False


def scene(mode: str = "RGB") -> Image.Image:
    """A picture without symmetry: 160 x 120 px, a ramp with a bright corner."""
    y, x = np.mgrid[0:120, 0:160]
    pixels = np.stack((x + 40, 2 * y, 255 - x - y // 2), axis=2).clip(0, 255).astype(np.uint8)
    pixels[:40, :50] = (250, 240, 30)
    return Image.fromarray(pixels).convert(mode)


def encoded(image: Image.Image, form: str, **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, form, **options)
    return out.getvalue()


def tiff(order: str, *entries: bytes) -> bytes:
    mark = b"II*\0" if order == "<" else b"MM\0*"
    return mark + struct.pack(order + "IH", 8, len(entries)) + b"".join(entries) + bytes(4)


def entry(order: str, value: bytes, kind: int = 3, tag: int = _TAG, count: int = 1) -> bytes:
    return struct.pack(order + "HHI", tag, kind, count) + value.ljust(4, b"\0")


def short(order: str, value: int, tag: int = _TAG) -> bytes:
    return entry(order, struct.pack(order + "H", value), tag=tag)


def exif_types() -> Iterator[Odd]:
    """The tag in every type and byte order, in each format; what OpenCV, torchvision, TorchCodec and DALI read."""
    values = (
        ("byte", 1, "B"), ("ascii", 2, "B"), ("short", 3, "H"), ("long", 4, "I"), ("signed_byte", 6, "b"),
        ("undefined", 7, "B"), ("signed_short", 8, "h"), ("signed_long", 9, "i"), ("float", 11, "f"), ("kind0", 0, "H"),
    )  # fmt: skip
    for order in "<>":
        for name, kind, code in values:
            value = struct.pack(order + code, 6)
            orientation = int.from_bytes(value.ljust(4, b"\0")[:2], _ORDERS[order])
            orientation = orientation if 1 <= orientation <= 8 else 1
            block = tiff(order, entry(order, value, kind))
            is_disputed = kind != _SHORT
            place = "little" if order == "<" else "big"
            yield Odd(
                f"{place}_{name}.jpg", encoded(scene(), "JPEG", quality=95, exif=EXIF + block), orientation, is_disputed
            )
            if name in ("short", "long"):
                yield Odd(f"{place}_{name}.png", encoded(scene(), "PNG", exif=block), orientation, is_disputed)
                yield Odd(
                    f"{place}_{name}.webp", encoded(scene(), "WEBP", quality=95, exif=block), orientation, is_disputed
                )
    for value in range(10):
        data = encoded(scene(), "JPEG", quality=95, exif=EXIF + tiff("<", short("<", value)))
        yield Odd(f"value{value}.jpg", data, value if 1 <= value <= 8 else 1)


_ORDERS: dict[str, Any] = {"<": "little", ">": "big"}


def damaged_exif() -> Iterator[Odd]:
    """EXIF that libraries read differently: the index decides, and every decoder obeys it."""
    plain = encoded(scene(), "JPEG", quality=95)
    six, three = (tiff("<", short("<", value)) for value in (6, 3))

    def jpeg(name: str, *bodies: bytes, orientation: int, disputed: bool = True) -> Odd:
        data = with_segments(plain, *(segment(0xE1, body) for body in bodies))
        return Odd(f"{name}.jpg", data, orientation, disputed)

    yield jpeg("two_blocks", EXIF + six, EXIF + three, orientation=6)
    yield jpeg("two_alike", EXIF + six, EXIF + six, orientation=6, disputed=False)
    yield jpeg("second_block", EXIF + tiff("<", short("<", 1, tag=0x100)), EXIF + three, orientation=1)
    yield jpeg("behind_xmp", XMP, EXIF + three, orientation=3)
    yield jpeg("upright_behind_xmp", XMP, EXIF + tiff("<", short("<", 1)), orientation=1, disputed=False)
    yield jpeg("bad_padding", b"Exif\0x" + three, orientation=1)
    yield jpeg("long_directory", EXIF + six[:8] + struct.pack("<H", 200) + six[10:], orientation=6)
    yield jpeg("cut_entry", EXIF + six[:-6], orientation=6)
    frame = plain.index(b"\xff\xc0")
    behind = frame + 2 + int.from_bytes(plain[frame + 2 : frame + 4], "big")
    yield Odd("behind_frame.jpg", plain[:behind] + segment(0xE1, EXIF + six) + plain[behind:], 6)
    png = encoded(scene(), "PNG")
    pixels, end = png.index(b"IDAT") - 4, png.index(b"IEND") - 4
    yield Odd("two_chunks.png", png[:pixels] + chunk(b"eXIf", six) + chunk(b"eXIf", three) + png[pixels:], 6, True)
    yield Odd("behind_pixels.png", png[:end] + chunk(b"eXIf", six) + png[end:], 1, True)


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def kinds_of_pixels() -> Iterator[Odd]:
    """Modes and depths."""
    photo = scene()
    yield Odd("rgb.jpg", encoded(photo, "JPEG", quality=95, subsampling=0))
    yield Odd("grey.jpg", encoded(photo.convert("L"), "JPEG", quality=95))
    yield Odd("cmyk.jpg", encoded(photo.convert("CMYK"), "JPEG", quality=95))
    yield Odd("progressive.jpg", encoded(photo, "JPEG", quality=95, progressive=True))
    yield Odd("rgb.png", encoded(photo, "PNG"))
    yield Odd("grey.png", encoded(photo.convert("L"), "PNG"))
    yield Odd("one_bit.png", encoded(photo.convert("1", dither=Image.Dither.NONE), "PNG"))
    yield Odd("grey16.png", encoded(grey16(), "PNG"))
    yield Odd("grey16_turned.png", encoded(grey16(), "PNG", exif=tiff("<", short("<", 6))), 6)
    yield Odd("palette.png", encoded(photo.quantize(64), "PNG"))
    yield Odd("palette_transparent.png", encoded(photo.quantize(64), "PNG", transparency=bytes(range(64))))
    yield Odd("grey_alpha.png", encoded(with_alpha("LA"), "PNG"))
    yield Odd("rgba.png", encoded(with_alpha("RGBA"), "PNG"))
    yield Odd("rgb_transparent.png", encoded(photo, "PNG", transparency=(250, 240, 30)))
    yield Odd("grey_transparent.png", encoded(photo.convert("L"), "PNG", transparency=100))
    yield Odd("rgb16.png", deep_png(2))
    yield Odd("rgba16.png", deep_png(6))
    yield Odd("grey_alpha16.png", deep_png(4))
    yield Odd("grey2.png", shallow_png(2))
    yield Odd("lossy.webp", encoded(photo, "WEBP", quality=95))
    yield Odd("lossless.webp", encoded(photo, "WEBP", lossless=True))
    yield Odd("rgba.webp", encoded(with_alpha("RGBA"), "WEBP", lossless=True))
    yield Odd("animated.webp", animated_webp())


def grey16() -> Image.Image:
    return Image.fromarray(np.asarray(scene("L")).astype(np.uint16) * 256 + 77)


def with_alpha(mode: str) -> Image.Image:
    image = scene(mode)
    alpha = Image.linear_gradient("L").resize(image.size)
    image.putalpha(alpha)
    return image


def animated_webp() -> bytes:
    frames = [scene().transpose(Image.Transpose.ROTATE_180)]
    return encoded(scene(), "WEBP", save_all=True, append_images=frames, duration=100, quality=95)


def deep_png(colour: int) -> bytes:
    """16 bits a sample: 2 is RGB, 4 grey with alpha, 6 RGB with alpha."""
    mode = {2: "RGB", 4: "LA", 6: "RGBA"}[colour]
    image = scene(mode) if colour == 2 else with_alpha(mode)
    samples = (np.asarray(image).astype(np.uint16) * 256 + 77).astype(">u2")
    rows = b"".join(b"\0" + row.tobytes() for row in samples)
    return _png(image.size, 16, colour, rows)


def shallow_png(bits: int) -> bytes:
    """Grey of few bits."""
    grey = np.asarray(scene("L")) >> (8 - bits)
    shifts = np.arange(8 - bits, -1, -bits)
    packed = (grey.reshape(len(grey), -1, len(shifts)) << shifts).sum(axis=2).astype(np.uint8)
    return _png((grey.shape[1], grey.shape[0]), bits, 0, b"".join(b"\0" + row.tobytes() for row in packed))


def _png(size: tuple[int, int], depth: int, colour: int, rows: bytes) -> bytes:
    head = struct.pack(">IIBBBBB", *size, depth, colour, 0, 0, 0)
    body = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def all_odd_images() -> list[Odd]:
    """Every kind."""
    return [*exif_types(), *damaged_exif(), *kinds_of_pixels()]
