"""A workload for loadtune: PyTorch's DataLoader, Pillow, and the emulated accelerator that pipetune feeds.

loadtune (https://pypi.org/project/loadtune/) imports this file and asks for :func:`get_workload`. Folder and rate come
from the environment.
"""

from __future__ import annotations

import os
from typing import Any

FOLDER, RATE = "PIPETUNE_BENCH_FOLDER", "PIPETUNE_BENCH_RATE"
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class _Batch:
    def __init__(self, images: Any, labels: Any) -> None:
        self.images, self.labels = images, labels


def get_workload() -> Any:
    """What loadtune tunes."""
    import loadtune
    from torch import nn, optim

    from pipetune.accelerator.emulated import EmulatedAccelerator

    accelerator = EmulatedAccelerator(float(os.environ[RATE]))

    def train_step(model: Any, optimizer: Any, batch: Any, device: Any) -> float:
        accelerator.submit(_Batch(*batch))
        accelerator.finished()
        return 0.0

    return loadtune.Workload(
        name="ImageFolder, emulated accelerator", make_dataset=_photos, make_model=lambda: nn.Linear(1, 1),
        train_step=train_step, make_optimizer=lambda model: optim.SGD(model.parameters(), lr=0.1),
        default_batch_size=64,
    )  # fmt: skip


def _photos() -> Any:
    from torchvision import datasets, transforms

    training = [
        transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), transforms.ToTensor(),
        transforms.Normalize(_MEAN, _STD),
    ]  # fmt: skip
    return datasets.ImageFolder(os.environ[FOLDER], transforms.Compose(training))
