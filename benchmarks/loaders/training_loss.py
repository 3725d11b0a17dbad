"""Does a model train as well through ``pipetune.open_loader`` as through the loader of a usual training script?

Promise: with the same seeds a small network reaches the same loss within the spread from run to run, through the exact
and through the approximate backends, with any kind of workers and with either transfer.

The data are real: 1,797 handwritten digits (scikit-learn's copy of the UCI set), enlarged to 96 x 96 and saved as JPEGs
of quality 90, four fifths to train with. The reference is ``DataLoader`` over ``ImageFolder`` with torchvision's
transforms. Each run trains for some epochs of random resized crops from a seed that decides weights, order and crops;
what counts is the cross-entropy on the other fifth, decoded by Pillow and neither cropped nor flipped. A loader's runs
are compared with the reference's of the same seeds: the promise holds where the 99 % interval of the mean difference
(Student's t; seven loaders are asked at once) reaches zero or lies below it, and no interval is so wide that it says
nothing (as the mean loss itself).

Needs scikit-learn: ``pip install scikit-learn``. ``--quick`` takes about 5 minutes, the full run about 20.
"""

from __future__ import annotations

import math
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import mean, stdev
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

import pipetune
from benchmarks import bench
from pipetune.registry import BACKENDS, installed_version, is_exact

SIZE, BATCH = 48, 64
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
#: Student's t, 99 % two-sided, by degrees of freedom.
T99 = {3: 5.841, 7: 3.499}
#: Name -> backend, worker kind and transfer; those that are not installed are left out.
LOADERS = {
    "pillow, in the loop": ("pillow", 0, "process", "float32"),
    "jpeg-roi, threads": ("jpeg-roi", 2, "thread", "float32"),
    "jpeg-roi-fast, threads, uint8": ("jpeg-roi-fast", 2, "thread", "uint8"),
    "simplejpeg, processes, uint8": ("simplejpeg", 2, "process", "uint8"),
    "simplejpeg-reduced, threads": ("simplejpeg-reduced", 2, "thread", "float32"),
    "opencv, threads": ("opencv", 2, "thread", "float32"),
    "dali, uint8": ("dali", 2, "process", "uint8"),
}
QUICK = ("jpeg-roi, threads", "jpeg-roi-fast, threads, uint8", "simplejpeg, processes, uint8")
Epochs = Callable[[int], Iterator[tuple[torch.Tensor, torch.Tensor]]]


def main() -> int:
    options = bench.arguments(__doc__)
    torch.set_num_threads(2)
    seeds, epochs = (range(4), 4) if options.quick else (range(8), 8)
    with tempfile.TemporaryDirectory(prefix="pipetune-training-") as folder:
        train, held_out = write_digits(Path(folder))
        names = [name for name, (backend, *_) in LOADERS.items() if installed_version(BACKENDS[backend])]
        names = [name for name in names if name in QUICK] if options.quick else names
        losses: dict[str, list[float]] = {"reference": [], **{name: [] for name in names}}
        for seed in seeds:
            for name in random.Random(seed).sample(sorted(losses), len(losses)):
                losses[name].append(one_run(name, train, held_out, seed, epochs))
                print(f"seed {seed}, {name}: {losses[name][-1]:.4f}", flush=True)
    rows, results = [], {}
    for name in ("reference", *names):
        found = judge(losses[name], losses["reference"])
        results[name] = {"losses": losses[name], **found}
        exact = "" if name == "reference" else "yes" if is_exact(BACKENDS[LOADERS[name][0]]) else "no"
        low, high = found["difference_ci99"]
        rows.append([
            name, exact, f"{found['mean']:.4f}", f"{found['spread']:.4f}",
            "" if name == "reference" else f"{found['difference']:+.4f} ({low:+.4f}..{high:+.4f})",
            "" if name == "reference" else "yes" if found["holds"] else "NO",
        ])  # fmt: skip
    print("\n" + bench.table(["loader", "exact", "loss", "spread", "difference to the reference", "as good"], rows))
    holds = all(result["holds"] for result in results.values())
    print(f"promise: {'holds' if holds else 'DOES NOT HOLD'}")
    bench.write(options.json, "training_loss", holds, {"epochs": epochs, "seeds": len(seeds), "loaders": results})
    return 0 if holds else 1


def write_digits(folder: Path) -> tuple[Path, Path]:
    """Class folders of JPEGs: to train with, and held out."""
    try:
        from sklearn.datasets import load_digits
    except ModuleNotFoundError:
        sys.exit("scikit-learn is not installed; run: pip install scikit-learn")
    from PIL import Image

    digits = load_digits()
    for number, (pixels, label) in enumerate(zip(digits.images, digits.target, strict=True)):
        kind = "held-out" if number % 5 == 0 else "train"
        path = folder / kind / str(label) / f"{number:04}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        image = Image.fromarray((pixels * (255 / 16)).astype("uint8")).resize((96, 96), Image.Resampling.BICUBIC)
        image.convert("RGB").save(path, quality=90)
    return folder / "train", folder / "held-out"


def one_run(name: str, train: Path, held_out: Path, seed: int, epochs: int) -> float:
    """Cross-entropy on the images held out, after training."""
    torch.manual_seed(seed)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    if name == "reference":
        batches: Any = reference(train)
        normalise: Callable[[torch.Tensor], torch.Tensor] = lambda images: images  # noqa: E731
    else:
        backend, workers, kind, transfer = LOADERS[name]
        candidate = pipetune.Candidate(
            backend=backend, num_workers=workers, prefetch_depth=2 if workers else 0, batch_size=BATCH,
            worker_kind=kind, transfer=transfer,
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
    if name != "reference":
        batches.close()
    return test(model, held_out)


def network() -> nn.Module:
    def block(inputs: int, outputs: int) -> list[nn.Module]:
        return [nn.Conv2d(inputs, outputs, 3, 2, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]

    return nn.Sequential(
        *block(3, 16), *block(16, 32), *block(32, 64), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)
    )  # fmt: skip


def reference(train: Path) -> DataLoader[Any]:
    """What a usual script has, with random crops from torch's own seed."""
    transform = transforms.Compose([
        transforms.RandomResizedCrop(SIZE), transforms.RandomHorizontalFlip(), transforms.ToTensor(),
        transforms.Normalize(MEAN, STD),
    ])  # fmt: skip
    return DataLoader(
        datasets.ImageFolder(str(train), transform), BATCH, shuffle=True, drop_last=True, num_workers=2,
        persistent_workers=True,
    )  # fmt: skip


def test(model: nn.Module, held_out: Path) -> float:
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


def judge(losses: list[float], reference_losses: list[float]) -> dict[str, Any]:
    """Mean, spread over the seeds, and the mean difference to the reference's runs of the same seeds."""
    differences = [one - other for one, other in zip(losses, reference_losses, strict=True)]
    middle = mean(differences)
    half = T99[len(differences) - 1] * stdev(differences) / math.sqrt(len(differences))
    return {
        "mean": mean(losses), "spread": stdev(losses), "difference": middle,
        "difference_ci99": [middle - half, middle + half],
        "holds": middle - half <= 0 and half < mean(reference_losses),
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
