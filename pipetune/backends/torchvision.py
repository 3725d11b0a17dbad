"""torchvision: its own JPEG/PNG/WebP decoders (libjpeg-turbo) and the v2 transforms on uint8 tensors."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torchvision.io import ImageReadMode, decode_image
from torchvision.transforms.v2 import functional

from pipetune.backends.contract import MEAN, STD, Loader, Trial
from pipetune.backends.crop import Crop
from pipetune.backends.dataloader import open_dataloader, trial_of
from pipetune.datasets.index import ImageSet
from pipetune.records import Candidate, Workload


def open_loader(candidate: Candidate, workload: Workload, images: ImageSet) -> Loader:
    """See :mod:`pipetune.backends.contract`."""
    return open_dataloader(candidate, workload, images, load)


def open_trial(workload: Workload) -> Trial:
    """See :mod:`pipetune.backends.contract`."""
    return trial_of(load)


def load(path: str, window: Callable[[int, int], Crop], size: int) -> torch.Tensor:
    """Decode, crop, resize (bilinear, antialiased), flip and normalise: float32 ``[3, size, size]``."""
    with open(path, "rb") as file:
        data = bytearray(file.read())  # writable, so that torch can wrap it without a copy or a warning
    encoded = torch.frombuffer(data, dtype=torch.uint8)
    image = decode_image(encoded, mode=ImageReadMode.RGB, apply_exif_orientation=True)
    if image.dtype == torch.uint16:  # 16-bit PNG
        image = functional.to_dtype(image, torch.uint8, scale=True)
    crop = window(image.shape[1], image.shape[2])
    image = functional.resized_crop(image, crop.top, crop.left, crop.height, crop.width, [size, size], antialias=True)
    if crop.flip:
        image = functional.horizontal_flip(image)
    return functional.normalize(functional.to_dtype(image, torch.float32, scale=True), list(MEAN), list(STD))
