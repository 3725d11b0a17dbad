"""Batches that are decoded on the device: complete when the loop gets them, and kept until its steps have ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import fake_cuda

Image = pytest.importorskip("PIL.Image", reason="the photographs are made with Pillow")

#: Loops that are many steps ahead of their device, whose steps end with a copy that reads the batch when the device
#: gets there. Then the mistakes that the loader is to prevent: without its waits, without holding its batches.
PROGRAM = """
import itertools, sys
from dataclasses import replace
import torch
from tests.cuda import fake_nvjpeg
fake = fake_nvjpeg.install()
import pipetune, pipetune.training.open_loader as opening
from pipetune.loaders import device, device_batch
from pipetune.loaders.open_loader import open_loader
from pipetune.loaders.order import EndlessOrder
from pipetune.records.sweep import AcceleratorSpec
from tests.photo_set import scan, workload
from torchvision.io import decode_jpeg, ImageReadMode, read_file

SIZE, BATCHES = 64, 12
chosen = pipetune.Candidate(backend="nvjpeg", num_workers=2, prefetch_depth=2, batch_size=4, transfer="uint8")
photos = scan(sys.argv[1])
pixels = [fake_nvjpeg.real(read_file(image.path), mode=ImageReadMode.RGB) for image in photos.images]
work = torch.ones(4, device="cuda:1")
torch.cuda.synchronize(1)

def wrong(arrived, order):
    torch.cuda.synchronize(1)
    expected = [torch.stack([pixels[index % len(pixels)] for index in batch])
                for batch in itertools.islice(order, len(arrived))]
    return sum(not torch.equal(ours.cpu(), theirs) for ours, theirs in zip(arrived, expected, strict=True))

def step():
    for _ in range(3):
        work.add_(1)

def train(batches):
    seen, pinned = [], []
    for images, labels in itertools.islice(batches, BATCHES):
        assert images.is_cuda and images.get_device() == 1
        step()
        seen.append(images.clone())
        pinned.append(labels.is_pinned())
        del images, labels
    assert len(seen) == BATCHES and all(pinned)
    return seen

def prefetch(batches):
    # Copies on a stream of its own, which the current one waits for after the batch was dropped.
    side, seen = torch.cuda.Stream("cuda:1"), []
    for images, labels in itertools.islice(batches, BATCHES):
        side.wait_stream(torch.cuda.current_stream(1))
        with torch.cuda.stream(side):
            step()
            seen.append(images.clone())
        del images, labels
        torch.cuda.current_stream(1).wait_stream(side)
    return seen

def measured(loop, **changes):
    accelerator = AcceleratorSpec(kind="cuda", name="GPU", device_index=1)
    setting = workload(accelerator=accelerator, image_size=SIZE)
    loader = open_loader(replace(chosen, **changes), setting, photos)
    with torch.cuda.device(1):
        found = loop(iter(loader))
    loader.close()
    return wrong(found, EndlessOrder(len(pixels), 4, setting.seed))

found = {}
for loop in (train, prefetch):
    found[loop.__name__] = measured(loop)
found["more threads"] = measured(train, num_workers=4, prefetch_depth=1)
opening.installed_version = lambda backend: "installed"
with pipetune.open_loader(chosen, sys.argv[1], image_size=SIZE, device="cuda:1") as loader, torch.cuda.device(1):
    seen = train(loader)
    loader._order.begin_at(0, 0)
    found["trained"] = wrong(seen, iter(loader._order))
found["streams of the decoder"] = len(fake.current)
found["default stream is one"] = torch.cuda.default_stream(1).cuda_stream in fake.current
found["on_device_0"] = [counted()[name][0] for name in ("kernels", "device_bytes", "contexts")]

kept, device.handed_over = device.handed_over, lambda batches, index: (
    type(batch)(batch.images, batch.labels.pin_memory()) for batch in batches)
found["not held"] = measured(train)
device.handed_over = kept
device_batch.BatchMaker._wait = lambda self: None
found["not waited for"] = measured(train)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(cuda_library: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    place = tmp_path_factory.mktemp("device")
    photos = place / "photos"
    random = np.random.default_rng(0)
    for number in range(48):
        folder = photos / f"class{number % 3}"
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 256, (64, 64, 3), np.uint8)).save(folder / f"{number}.jpg", quality=95)
    # A batch of 48 KiB takes 2.5 ms to the device.
    env = fake_cuda.environment(cuda_library, place, devices=2, kernel_us=3000, copy_gbps=0.02)
    result: dict[str, Any] = fake_cuda.run(PROGRAM, env, str(photos))
    return result


@pytest.mark.parametrize("loop", ["train", "prefetch", "more threads", "trained"])
def test_a_batch_is_complete_and_lives_until_its_step_has_ended(found: dict[str, Any], loop: str) -> None:
    assert found[loop] == 0


@pytest.mark.parametrize("mistake", ["not held", "not waited for"])
def test_without_care_batches_are_wrong(found: dict[str, Any], mistake: str) -> None:
    assert found[mistake] > 0


def test_the_decoder_is_called_on_a_stream_of_its_own(found: dict[str, Any]) -> None:
    assert not found["default stream is one"]


def test_only_the_device_that_was_named_is_used(found: dict[str, Any]) -> None:
    assert found["on_device_0"] == [0, 0, 0]
