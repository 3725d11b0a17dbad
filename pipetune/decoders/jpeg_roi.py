"""jpeg-roi: decodes only the crop of a JPEG, and resizes it as Pillow does; in C, on libjpeg-turbo.

The pixels are the reference's to within one grey level. What lies outside of the crop is not transformed, no decoded
image lies in memory, and Python's global lock is let go for all of it: several files go through one call, so threads
need the lock once in some milliseconds. What is no JPEG, is to be rotated, has four colours or is damaged, Pillow
decodes, or says why it cannot; a file that is cut off below the crop is as good as a whole one. See ``jpeg_roi.c`` and
``jpeg_roi_fill.c``.
"""

from __future__ import annotations

from collections.abc import Sequence

from pipetune.decoders import pillow
from pipetune.decoders.contract import Array, Files, Photo, Window
from pipetune.decoders.jpeg_roi_library import own_reader, require_library

_UPRIGHT = 1


def require() -> None:
    """See :mod:`pipetune.loaders.contract`."""
    require_library()


def load(photo: Photo, window: Window, out: Array) -> None:
    """Decode the crop, resize (bilinear, antialiased) and flip."""
    if not decode_crop(photo, window, out, approximate=False):
        pillow.load(photo, window, out)


def decode_crop(photo: Photo, window: Window, out: Array, *, approximate: bool) -> bool:
    """Fill ``out`` from the JPEG; ``False``: another decoder has to.

    Args:
        approximate: decode at a fraction of the size where that suffices, with the fast inverse transform.

    Raises:
        MemoryError: there is none for the resize.
    """
    if not photo.is_jpeg or photo.orientation != _UPRIGHT:
        return False
    return own_reader().crop(photo.read(), window, out, approximate=approximate)


def fill_some(files: Files, tickets: Sequence[int], seed: int, samples: Array) -> int:
    """See :data:`pipetune.decoders.contract.FillFunction`."""
    return fill_crops(files, tickets, seed, samples, approximate=False)


def fill_crops(files: Files, tickets: Sequence[int], seed: int, samples: Array, *, approximate: bool) -> int:
    """What :func:`decode_crop` does, for several samples, until one is for another decoder; gives their number."""
    return own_reader().fill(files, tickets, seed, samples, approximate=approximate)
