"""jpeg-roi: decodes only the crop of a JPEG, and resizes it as Pillow does; in C, on libjpeg-turbo.

The pixels are the reference's to within one grey level. Only the crop is transformed, no decoded image is kept in
memory, and one call decodes several files and releases the GIL, so a thread needs it once in some milliseconds only.
Of images that are stored as pixels only the rows of the crop are read. What else is no JPEG, is to be rotated, has four
colours or is damaged is left to Pillow, which decodes it or raises the error. A file that is cut off below the crop
counts as whole. See ``jpeg_roi.c``, ``jpeg_roi_fill.c`` and ``raw_crop.c``.
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
    """Fill ``out`` from the JPEG; ``False``: this decoder cannot, and another one has to.

    Args:
        approximate: decode at a fraction of the size where that suffices, with the fast inverse transform.

    Raises:
        MemoryError: there is too little memory for the resize.
        ValueError: the JPEG has so many scans that any decoder would take minutes.
    """
    if not photo.is_jpeg or photo.orientation != _UPRIGHT:
        return False
    return own_reader().crop(photo.read(), window, out, approximate=approximate)


def fill_some(files: Files, sample_indices: Sequence[int], seed: int, samples: Array) -> int:
    """See :data:`pipetune.decoders.contract.FillFunction`."""
    return fill_crops(files, sample_indices, seed, samples, approximate=False)


def fill_crops(files: Files, sample_indices: Sequence[int], seed: int, samples: Array, *, approximate: bool) -> int:
    """Fill several samples as :func:`decode_crop` does, up to the first one that it cannot; return their number."""
    return own_reader().fill(files, sample_indices, seed, samples, approximate=approximate)
