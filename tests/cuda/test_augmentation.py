"""Augmenting on the stand-in: no step waits for the device, its time is the accelerator's, batches arrive in time.

The stand-in computes no pixels, so what comes out of an operation is tested on the CPU (tests/unit/augmentation).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests import fake_cuda
from tests.photo_set import small_photos

#: Steps on batches that are always ready, with and without a recipe; then loops over the loaders that reuse memory.
PROGRAM = """
import sys, torch
from pipetune.accelerator.device_transforms import DeviceTransforms
from pipetune.accelerator.torch_accelerator import TorchAccelerator
from pipetune.augmentation.recipes import RECIPES
from pipetune.child.time_steps import time_steps
from pipetune.loaders.contract import Batch
from tests.cuda.loops import REUSING, candidate
import pipetune

SIZE, DEVICE = 8, torch.device("cuda", 0)
found = {}

def batches(count, dtype):
    images = torch.zeros(SIZE, 3, 32, 32, dtype=dtype).pin_memory()
    labels = torch.zeros(SIZE, dtype=torch.int64).pin_memory()
    return [Batch(images, labels)] * count

for recipe in RECIPES:
    for dtype in (torch.uint8, torch.float32):
        transforms = DeviceTransforms(recipe, 0, 10, DEVICE)
        accelerator = TorchAccelerator("resnet18", "fp32", DEVICE, transforms=transforms)
        accelerator.warm_up((SIZE, 3, 32, 32))
        before = counted()
        steps = list(time_steps(batches(6, dtype), accelerator))
        after = counted()
        found[f"{recipe} {dtype}"] = {
            "compute_s": sum(step.compute_s for step in steps[2:]),
            **{name: after[name] - before[name] for name in ("h2d_pageable", "synchronisations", "races")},
        }
trained = {}
for kind in REUSING:
    for recipe in RECIPES:
        chosen = candidate(kind, transfer="uint8", transforms_on="device")
        with pipetune.open_loader(chosen, sys.argv[1], image_size=32, device="cuda", augment=recipe) as loader:
            before, shapes = counted(), []
            for images, labels in loader:
                images, labels = images.to("cuda", non_blocking=True), labels.to("cuda", non_blocking=True)
                images, labels = loader.to_training(images, labels)
                shapes.append([str(images.dtype), str(images.device), list(images.shape), list(labels.shape)])
            torch.cuda.synchronize()
            after = counted()
        trained[f"{kind} {recipe}"] = {
            "shapes": shapes, **{name: after[name] - before[name] for name in ("races", "h2d_pageable")},
        }
print(json.dumps([found, trained]))
"""


@pytest.fixture(scope="module")
def found(cuda_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    place = tmp_path_factory.mktemp("augmentation")
    photos = small_photos(place / "photos", copies=4)
    env = fake_cuda.environment(cuda_library, place, kernel_us=50, copy_gbps=0.05)
    return fake_cuda.run(PROGRAM, env, str(photos))


def test_no_step_waits_for_what_is_augmented(found: Any) -> None:
    for name, counts in found[0].items():
        assert counts["synchronisations"] == 1, name  # when the loop has ended
        assert (counts["h2d_pageable"], counts["races"]) == (0, 0), name


def test_augmenting_takes_the_accelerators_time(found: Any) -> None:
    for name, counts in found[0].items():
        if not name.startswith("basic"):
            plain = found[0][f"basic {name.partition(' ')[2]}"]
            assert counts["compute_s"] > plain["compute_s"], name


def test_batches_are_augmented_where_they_arrive(found: Any) -> None:
    for name, counts in found[1].items():
        classes = [2] if name.endswith("mixup") else []
        assert counts["shapes"], name
        for dtype, device, images, labels in counts["shapes"]:
            assert (dtype, device, images) == ("torch.float32", "cuda:0", [4, 3, 32, 32]), name
            assert labels == [4, *classes], name
        assert counts["races"] == 0, name
