"""SPDL: FFmpeg's JPEG decoder and scaler, which crop, resize and mirror in one filter graph.

The crop comes before the conversion to RGB, so pixels outside of it are decoded but not converted. FFmpeg's bilinear
scaler widens its kernel where it reduces, as Pillow's antialiasing does; it enlarges chroma, which JPEG stores at half
the size, in another way. What is no JPEG, is to be rotated, has four colours or is damaged is left to Pillow, which
decodes it or raises the error.

The GIL is released for the decoding and for the graph: two threads decode twice as much. A graph is made from text for
every image, because each has a crop of its own.
"""

from __future__ import annotations

from typing import Any

from spdl import io

from pipetune.decoders import pillow
from pipetune.decoders.contract import Array, Photo, Window
from pipetune.decoders.layout import write_pixels
from pipetune.errors import MissingPackageError
from pipetune.install.ffmpeg import INSTALL

_UPRIGHT = 1
#: The marker of a JPEG's tables (DQT).
_QUANTISATION = b"\xff\xdb"
#: Pixel formats of FFmpeg's that are a JPEG's of one or three colours. All of them have the full range of values.
_FORMATS = frozenset(("yuvj420p", "yuvj422p", "yuvj444p", "yuvj440p", "yuvj411p", "gray"))
#: Without ``accurate_rnd`` and ``full_chroma_int`` the pixels are 2 dB further from Pillow's.
_GRAPH = (
    "crop={width}:{height}:{left}:{top}:exact=1,"
    "scale={size}:{size}:flags=bilinear+accurate_rnd+full_chroma_int:in_range=pc:out_range=pc{flip},"
    "format=pix_fmts=rgb24"
)
#: libavutil's AV_LOG_FATAL: the exception says that a file is damaged, so FFmpeg need not.
_FATAL_ONLY = 8


def require() -> None:
    """See :mod:`pipetune.loaders.contract`."""
    try:
        io.utils.set_ffmpeg_log_level(_FATAL_ONLY)
    except (ImportError, RuntimeError, OSError) as error:  # it looks for FFmpeg's libraries when it is first used
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise MissingPackageError(f"SPDL finds no FFmpeg: {reason}", hint=f"run: {INSTALL}") from error


def load(photo: Photo, window: Window, out: Array) -> None:
    """Decode, crop, resize (bilinear, antialiased) and flip."""
    pixels = decode(photo, window, len(out)) if photo.is_jpeg and photo.orientation == _UPRIGHT else None
    if pixels is None:
        pillow.load(photo, window, out)
    else:
        write_pixels(pixels, out)


def decode(photo: Photo, window: Window, size: int) -> Array | None:
    """The crop as uint8 ``[size, size, 3]``; ``None``: this decoder cannot, and another one has to."""
    data = bytes(photo.read())
    if _QUANTISATION not in data:  # FFmpeg would decode it to something without an error
        return None
    try:
        packets = io.demux_image(data)
        codec: Any = packets.codec
        if codec.pix_fmt not in _FORMATS:
            return None
        crop = window(codec.height, codec.width)
        graph = _GRAPH.format(
            width=crop.width, height=crop.height, left=crop.left, top=crop.top, size=size,
            flip=",hflip" if crop.flip else "",
        )  # fmt: skip
        # Otherwise FFmpeg fills what is missing with grey.
        strict = io.decode_config(decoder_options={"err_detect": "explode"})
        frames = io.decode_packets(packets, filter_desc=graph, decode_config=strict)
        pixels: Array = io.to_numpy(io.convert_frames(frames))
    except (RuntimeError, IndexError, ValueError):  # what SPDL makes of FFmpeg's errors
        return None
    return pixels
