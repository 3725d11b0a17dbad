"""Handwritten digits as JPEGs, and a small network that learns them, for ``training_loss.py``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from PIL import Image
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

import pipetune

SIZE, BATCH = 48, 64
#: As a usual script writes them, not pipetune's own.
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
#: Backend, number of workers, loader and transfer.
Loader = tuple[str, int, str, str]


def write_digits(folder: Path) -> tuple[Path, Path]:
    """Write class folders of JPEGs: those to train with, and those held out."""
    digits = load_digits()
    for number, (pixels, label) in enumerate(zip(digits.images, digits.target, strict=True)):
        kind = "held-out" if number % 5 == 0 else "train"
        path = folder / kind / str(label) / f"{number:04}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        image = Image.fromarray((pixels * (255 / 16)).astype("uint8")).resize((96, 96), Image.Resampling.BICUBIC)
        image.convert("RGB").save(path, quality=90)
    return folder / "train", folder / "held-out"


def train_once(loader: Loader | None, train: Path, held_out: Path, seed: int, epochs: int) -> float:
    """Train the network; its cross-entropy on the images held out.

    Args:
        loader: through which pipetune loads; ``None``: the reference.
        train: class folders of JPEGs to train with.
        held_out: to test with.
        seed: decides weights, order and crops.
        epochs: how many.
    """
    torch.set_num_threads(2)
    torch.manual_seed(seed)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    if loader is None:
        batches: Any = reference(train)
        normalise = unchanged
    else:
        backend, workers, name, transfer = loader
        candidate = pipetune.Candidate(
            backend=backend, num_workers=workers, prefetch_depth=2 if workers else 0, batch_size=BATCH,
            loader=name, transfer=transfer,
        )  # fmt: skip
        batches = pipetune.open_loader(candidate, train, image_size=SIZE, seed=seed, device="cpu")
        normalise = batches.normalise
    steps = epochs * len(batches)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=steps)
    for _ in range(epochs):
        for images, labels in batches:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(normalise(images)), labels).backward()
            optimizer.step()
            schedule.step()
    if loader is not None:
        batches.close()
    return test_loss(model, held_out)


def unchanged(images: torch.Tensor) -> torch.Tensor:
    """The reference's transforms normalise already."""
    return images


def network() -> nn.Module:
    def block(inputs: int, outputs: int) -> list[nn.Module]:
        return [nn.Conv2d(inputs, outputs, 3, 2, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]

    return nn.Sequential(
        *block(3, 16), *block(16, 32), *block(32, 64), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)
    )  # fmt: skip


def reference(train: Path) -> DataLoader[Any]:
    """The loader of a usual script, with random crops from torch's own seed."""
    transform = transforms.Compose([
        transforms.RandomResizedCrop(SIZE), transforms.RandomHorizontalFlip(), transforms.ToTensor(),
        transforms.Normalize(MEAN, STD),
    ])  # fmt: skip
    return DataLoader(
        datasets.ImageFolder(str(train), transform), BATCH, shuffle=True, drop_last=True, num_workers=2,
        persistent_workers=True,
    )  # fmt: skip


def test_loss(model: nn.Module, held_out: Path) -> float:
    transform = transforms.Compose([
        transforms.Resize(SIZE), transforms.ToTensor(), transforms.Normalize(MEAN, STD)
    ])  # fmt: skip
    model.eval()
    total, count = 0.0, 0
    with torch.no_grad():
        for images, labels in DataLoader(datasets.ImageFolder(str(held_out), transform), 128):
            total += float(nn.functional.cross_entropy(model(images), labels, reduction="sum"))
            count += len(labels)
    return total / count
