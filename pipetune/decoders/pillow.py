"""Pillow: torchvision's ImageFolder loader and the operations that its transforms run on a PIL image.

The same pixels as ``RandomResizedCrop`` + ``RandomHorizontalFlip`` + ``ToTensor`` + ``Normalize`` for the same window
(checked in the tests), without importing torchvision: a training script's defaults, and so the reference.
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import PIL
from PIL import Image

from pipetune.datasets.pillow_rgb import to_rgb
from pipetune.decoders.contract import Array, Photo, Window
from pipetune.decoders.file_bytes import open_regular
from pipetune.decoders.layout import write_pixels
from pipetune.errors import PipetuneError
from pipetune.install.find import PILLOW_SIMD, Pillow, side_directory, why_refused


def require() -> None:
    """See :mod:`pipetune.loaders.contract`."""
    require_pillow(simd=False)


def require_pillow(*, simd: bool) -> None:
    """Check which library ``import PIL`` gave: a rate under the wrong name would be worse than none.

    Raises:
        PipetuneError: the other one.
    """
    got = Pillow(version=PIL.__version__, folder=str(Path(PIL.__file__).parent.parent))
    if got.simd != simd:
        wanted = "Pillow-SIMD" if simd else "Pillow"
        refused = why_refused(side_directory(PILLOW_SIMD)) if simd else None
        raise PipetuneError(
            f"asked for {wanted}, but this process got {got.name} from {got.folder}"
            + (f", because {refused}" if refused else "")
        )


def load(photo: Photo, window: Window, out: Array) -> None:
    """Decode, crop, resize (bilinear, antialiased) and flip."""
    transform(decode_whole(photo), window, out)


def decode_whole(photo: Photo) -> Image.Image:
    """The upright image in RGB."""
    if photo.is_raw:
        return Image.frombytes("RGB", (photo.width, photo.height), photo.read())
    # A file as ImageFolder's loader opens it, which reads it piece by piece.
    with open(open_regular(photo.path), "rb") if photo.is_file else io.BytesIO(photo.read()) as file:
        return to_rgb(Image.open(file), photo.orientation)


def transform(image: Image.Image, window: Window, out: Array) -> None:
    """Crop, resize (bilinear, antialiased), flip and normalise."""
    crop = window(image.height, image.width)
    image = image.crop((crop.left, crop.top, crop.left + crop.width, crop.top + crop.height))
    image = image.resize((len(out), len(out)), Image.Resampling.BILINEAR)
    if crop.flip:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    write_pixels(np.asarray(image), out)
