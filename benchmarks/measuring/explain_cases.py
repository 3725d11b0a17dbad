"""Loaders that are made to be slow in one place, for ``explain_closure.py``: each is imported by its name."""

from __future__ import annotations

import os
import time
from typing import Any

import torch
from torch.utils.data import DataLoader, default_collate
from torchvision import datasets, transforms

_FAST = (transforms.RandomResizedCrop(64), transforms.ToTensor())


def _folder(*more: Any) -> Any:
    return datasets.ImageFolder(os.environ["EXPLAIN_PHOTOS"], transform=transforms.Compose([*_FAST, *more]))


class Busy:
    """Takes CPU time and gives back what it got, as a slow augmentation does."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __call__(self, image: Any) -> Any:
        """The image itself."""
        end = time.thread_time() + self.seconds
        while time.thread_time() < end:
            pass
        return image


class Waiting:
    """Waits and gives back what it got, as a call of a service does."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __call__(self, image: Any) -> Any:
        """The image itself."""
        time.sleep(self.seconds)
        return image


def collate_in_python(samples: Any) -> Any:
    """Collate after a loop in Python over each sample."""
    for image, _ in samples:
        end = time.thread_time() + 0.012
        while time.thread_time() < end:
            image.mean()
    return default_collate(samples)


def _loader(dataset: Any, **more: Any) -> DataLoader[Any]:
    torch.set_num_threads(1)
    workers = int(os.environ.get("EXPLAIN_WORKERS", "1"))
    return DataLoader(dataset, batch_size=16, num_workers=workers, shuffle=True, persistent_workers=True, **more)


def transform_busy() -> DataLoader[Any]:
    """A transform that takes 12 ms of CPU time."""
    return _loader(_folder(Busy(0.012)))


def transform_waits() -> DataLoader[Any]:
    """A transform that waits for 30 ms."""
    return _loader(_folder(Waiting(0.030)))


def collate_busy() -> DataLoader[Any]:
    """Collating that takes 12 ms of CPU time for each sample."""
    return _loader(_folder(), collate_fn=collate_in_python)


def plain() -> DataLoader[Any]:
    """Nothing is made slow: decoding takes most."""
    return _loader(_folder())
