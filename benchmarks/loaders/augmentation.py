"""What does a recipe cost in a worker, beside decoding, and does drawing it for each image by itself cost more?

Promise: augmenting an image in a worker takes at most 1.1 times the CPU time of torchvision's own classes.

Crops of 224 px of photographs as in Caltech-256 and ImageNet. Measured in one thread is the CPU time of an image: read,
decoded, cropped, resized and flipped to bytes by each decoder; each recipe done to such crops one by one, as in a
worker, and by ``torchvision.transforms.v2`` with the same settings; and whole batches as a device does them, on the
CPU. All take turns in random order. The promise holds where for each recipe the 95 % interval of the median of the
ratios reaches 1.1. MixUp, which works on whole batches, is stated for each image of one.
"""

from __future__ import annotations

import importlib
import random
import sys
import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import bench

MOST = 1.1
SETS = ("caltech256", "imagenet")
BACKENDS = ("pillow", "opencv", "jpeg-roi")
CROPS, QUICK_CROPS = 128, 64
TURNS, QUICK_TURNS = 15, 6
SIZE = 224

#: Handles that many images.
Work = Callable[[], None]


def main(options: Namespace) -> bench.Result:
    import torch

    torch.set_num_threads(1)
    crops, turns = (QUICK_CROPS, QUICK_TURNS) if options.quick else (CROPS, TURNS)
    works: dict[str, Work] = {}
    images: Any = None
    for name in SETS:
        decoding, images = build_decoders(name, crops)
        works |= decoding
    works |= build_recipes(images)
    measured = in_turn(works, turns, crops)
    cases: list[dict[str, Any]] = []
    for name in (name.removesuffix(" by torchvision") for name in works if name.endswith(" by torchvision")):
        pairs = zip(measured[name], measured[f"{name} by torchvision"], strict=True)
        ratios = [own / theirs for own, theirs in pairs]
        low, _ = bench.bootstrap_ci95(ratios)
        cases.append({"recipe": name, "ratios": ratios, "holds": min(median(ratios), low) <= MOST})
    rows = [[name, f"{1e3 * median(values):.3f} ms"] for name, values in measured.items()]
    print(bench.table(["work", "CPU time of an image"], rows, left=(0,)))
    rows = [[case["recipe"], bench.ratio_text(case["ratios"], 3), bench.yes(case["holds"])] for case in cases]
    print(bench.table(["recipe", "ours / torchvision's", "holds"], rows, left=(0,)))
    return bench.Result(all(case["holds"] for case in cases), {"cpu_s": measured, "cases": cases, "crop_px": SIZE})


def build_decoders(dataset: str, count: int) -> tuple[dict[str, Work], Any]:
    """Decoding of that many photographs by each decoder, and their crops uint8 ``[count, 3, size, size]``."""
    import numpy as np

    from pipetune.datasets.open_dataset import open_dataset
    from pipetune.decoders.layout import Layout
    from pipetune.loaders.photos import Photos
    from pipetune.registry import find_backend, installed_version

    images = open_dataset(f"synthetic:{dataset}?n={count}", seed=0, limit_images=count, limit_bytes=2**40, workers=1)
    layout = Layout(size=SIZE, uint8=True)
    out = np.empty(layout.shape(count), layout.dtype)
    works: dict[str, Work] = {}
    for name in BACKENDS:
        backend = find_backend(name)
        if installed_version(backend) is None:
            print(f"left out: {name} is not installed")
            continue
        module = importlib.import_module(str(backend.module))
        photos = Photos(images, module.load, layout, 0, getattr(module, "fill_some", None))
        works[f"{name}, {dataset}"] = lambda photos=photos: photos.fill(range(count), out)  # type: ignore[misc]
        photos.fill(range(count), out)
    return works, out.copy()


def build_recipes(images: Any) -> dict[str, Work]:
    """Each recipe done to all images: one by one, by torchvision's classes, and as a batch on a device."""
    import torch
    from torchvision.transforms import InterpolationMode, v2

    from pipetune.augmentation.draws import JITTER, MIXUP_ALPHA
    from pipetune.augmentation.in_worker import WorkerAugmenter
    from pipetune.augmentation.mixing import mix_in_place
    from pipetune.augmentation.on_device import augment_batch
    from pipetune.augmentation.recipes import COLORJITTER, MIXUP, RANDAUGMENT, TRIVIALAUGMENT

    theirs: dict[str, Any] = {
        RANDAUGMENT: v2.RandAugment(magnitude=9, interpolation=InterpolationMode.BILINEAR),
        TRIVIALAUGMENT: v2.TrivialAugmentWide(interpolation=InterpolationMode.BILINEAR),
        COLORJITTER: v2.ColorJitter(JITTER, JITTER, JITTER),
    }
    tensors = torch.from_numpy(images)
    works: dict[str, Work] = {}
    for recipe, transform in theirs.items():
        one = WorkerAugmenter(recipe, 0)

        def in_worker(one: Any = one) -> None:
            for index, image in enumerate(images):
                one(index, image)

        def by_torchvision(transform: Any = transform) -> None:
            for image in tensors:
                transform(image)

        works[recipe], works[f"{recipe} by torchvision"] = in_worker, by_torchvision
        works[f"{recipe} as a batch"] = lambda recipe=recipe: augment_batch(  # type: ignore[misc]
            tensors, recipe, 0, range(len(tensors))
        )
    floats = torch.rand(len(images), 3, SIZE, SIZE)
    labels = torch.arange(len(images))
    mix = v2.MixUp(alpha=MIXUP_ALPHA, num_classes=1000)
    own = floats.numpy().copy()
    works[MIXUP] = lambda: mix_in_place(own, 0.7)
    works[f"{MIXUP} by torchvision"] = lambda: mix(floats, labels)
    return works


def in_turn(works: dict[str, Work], turns: int, count: int) -> dict[str, list[float]]:
    """CPU time of an image (s) in each turn; the first, which warms up, is left out."""
    found: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(turns + 1):
        for name in random.sample(list(works), len(works)):
            began = time.process_time()
            works[name]()
            if turn:
                found[name].append((time.process_time() - began) / count)
    return found


if __name__ == "__main__":
    bench.run(main, __file__, __doc__)
