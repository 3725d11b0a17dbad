"""torchvision: its own JPEG/PNG/WebP decoders (libjpeg-turbo) and the v2 transforms on uint8 tensors."""

from __future__ import annotations

import torch
from torchvision.io import ImageReadMode, decode_image

from pipetune.backends.contract import Loader, Trial
from pipetune.backends.layout import Array
from pipetune.backends.loading import open_decoding
from pipetune.backends.photos import Photo, Window, trial_of
from pipetune.backends.tensor_pixels import resize_into
from pipetune.datasets.index import ImageSet
from pipetune.records import Candidate, Workload


def open_loader(candidate: Candidate, workload: Workload, images: ImageSet) -> Loader:
    """See :mod:`pipetune.backends.contract`."""
    return open_decoding(candidate, workload, images, load)


def open_trial(workload: Workload) -> Trial:
    """See :mod:`pipetune.backends.contract`."""
    return trial_of(load)


def load(photo: Photo, window: Window, out: Array) -> None:
    """Decode, crop, resize (bilinear, antialiased) and flip."""
    encoded = torch.frombuffer(photo.read(), dtype=torch.uint8)
    resize_into(decode_image(encoded, mode=ImageReadMode.RGB, apply_exif_orientation=True), window, out)
