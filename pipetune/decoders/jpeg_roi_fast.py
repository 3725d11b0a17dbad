"""jpeg-roi-fast: jpeg-roi with shortcuts that change pixels a little.

A crop that is twice the training size or more is decoded at half, a quarter or an eighth of its size (from the low
frequencies alone), the inverse transform is libjpeg's fast one, and chroma is repeated, not interpolated.
"""

from __future__ import annotations

from collections.abc import Sequence

from pipetune.decoders import jpeg_roi, pillow
from pipetune.decoders.contract import Array, Files, Photo, Window
from pipetune.decoders.jpeg_roi import require

__all__ = ["fill_some", "load", "require"]


def load(photo: Photo, window: Window, out: Array) -> None:
    """Decode the crop, reduced where that suffices, resize (bilinear, antialiased) and flip."""
    if not jpeg_roi.decode_crop(photo, window, out, approximate=True):
        pillow.load(photo, window, out)


def fill_some(files: Files, sample_indices: Sequence[int], seed: int, samples: Array) -> int:
    """See :data:`pipetune.decoders.contract.FillFunction`."""
    return jpeg_roi.fill_crops(files, sample_indices, seed, samples, approximate=True)
