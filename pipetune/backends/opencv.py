"""OpenCV: ``imdecode`` (libjpeg-turbo), bilinear ``resize`` without antialiasing, and normalisation in one pass.

Without antialiasing a large window shrunk to the training size aliases a little; the contract test bounds the
difference to the reference. OpenCV's antialiasing resize (``INTER_AREA``) would cost about a quarter of the rate.
"""

from __future__ import annotations

from collections.abc import Callable

import cv2
import numpy as np
import torch

from pipetune.backends.contract import MEAN, STD, Loader, Trial
from pipetune.backends.crop import Crop
from pipetune.backends.dataloader import open_dataloader, trial_of
from pipetune.datasets.index import ImageSet
from pipetune.records import Candidate, Workload

# Loader workers are the parallelism; OpenCV's own threads inside each of them only fight over the cores, and its
# thread pool does not survive a fork (pytorch issue 45198).
cv2.setNumThreads(0)

# (x / 255 - mean) / std as one multiply-add per channel.
_SCALE = [1 / (255 * std) for std in STD]
_SHIFT = [-mean / std for mean, std in zip(MEAN, STD, strict=True)]


def open_loader(candidate: Candidate, workload: Workload, images: ImageSet) -> Loader:
    """See :mod:`pipetune.backends.contract`."""
    return open_dataloader(candidate, workload, images, load)


def open_trial(workload: Workload) -> Trial:
    """See :mod:`pipetune.backends.contract`."""
    return trial_of(load)


def load(path: str, window: Callable[[int, int], Crop], size: int) -> torch.Tensor:
    """Decode, crop, resize (bilinear), flip and normalise: float32 ``[3, size, size]``."""
    with open(path, "rb") as file:
        data = file.read()
    image = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)  # BGR, EXIF rotation applied
    if image is None:
        raise ValueError("OpenCV cannot read this file")
    crop = window(image.shape[0], image.shape[1])
    image = image[crop.top : crop.top + crop.height, crop.left : crop.left + crop.width]
    image = cv2.resize(image, (size, size), interpolation=cv2.INTER_LINEAR)
    if crop.flip:
        image = cv2.flip(image, 1)
    out = torch.empty((3, size, size), dtype=torch.float32)
    planes = out.numpy()
    for channel, plane in enumerate(reversed(cv2.split(image))):
        # cv2 does the arithmetic in one vectorised pass straight into the tensor; numpy and torch need several.
        cv2.addWeighted(plane, _SCALE[channel], plane, 0, _SHIFT[channel], dst=planes[channel], dtype=cv2.CV_32F)
    return out
