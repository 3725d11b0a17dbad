"""Decoding on a real device: the pixels of every decoder and setting, and batches that stay as they were made.

Decoders that decode only crops have a file of their own (``test_decode_crops.py``).
"""

from __future__ import annotations

import itertools
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipetune.records.sweep import AcceleratorSpec, Candidate
from pipetune.registry import BACKENDS, installed_version
from tests.contract.test_backends import save_variants
from tests.photo_set import PHOTOS, candidate, scan, small_photos, workload

torch = pytest.importorskip("torch", reason="the decoders make tensors")

#: Mean absolute difference from Pillow's pixels, in normalised units (1 is about 58 grey levels): of photographs, and
#: of one photograph in the shapes that decoders are known to differ on. Not yet seen on a GPU.
NEAR, NEAR_ODD = 0.05, 0.2
#: Of one decoder's pixels with another setting: chroma at the edge of a crop may differ.
NEAR_ITSELF = 0.03
BATCH = 8

WHOLE: dict[str, dict[str, Any]] = {
    "nvjpeg": {"backend": "nvjpeg"},
    "nvimagecodec whole": {"backend": "nvimagecodec", "decode_region": "whole"},
    "nvimagecodec engine": {"backend": "nvimagecodec", "decode_region": "whole", "hw_decoder_load": 1.0},
    "dali whole": {"backend": "dali", "decode_region": "whole"},
    "dali engine": {"backend": "dali", "decode_region": "whole", "hw_decoder_load": 1.0},
    "dali no engine": {"backend": "dali", "decode_region": "whole", "hw_decoder_load": 0.0},
}
CROPS: dict[str, dict[str, Any]] = {
    "nvimagecodec window": {"backend": "nvimagecodec"},
    "dali window": {"backend": "dali"},
}


def chosen(name: str, **changes: Any) -> Candidate:
    values = {**WHOLE, **CROPS}[name]
    backend = BACKENDS[values["backend"]]
    if not installed_version(backend):
        pytest.skip(f"{backend.name} is not installed")
    return replace(candidate(backend.name, 2, BATCH), **{**values, **changes})


def on_gpu(**changes: Any) -> Any:
    return workload(accelerator=AcceleratorSpec(kind="cuda", name="GPU", device_index=0), **changes)


def batches(one: Candidate, setting: Any, images: Any, count: int, *, busy: bool = False) -> list[Any]:
    """Copies of a few batches, each made behind queued work where the device is to be ``busy``."""
    from pipetune.loaders.open_loader import open_loader

    loader = open_loader(one, setting, images)
    a = torch.randn(4096, 4096, device="cuda") if busy else None
    found = []
    try:
        for images_, labels in itertools.islice(iter(loader), count):
            if a is not None:
                for _ in range(10):
                    a @ a
            found.append((images_.is_cuda, images_.clone(), labels.clone()))
            del images_, labels
    finally:
        loader.close()
    return [(there, images_.cpu(), labels) for there, images_, labels in found]


@pytest.mark.parametrize("name", WHOLE)
def test_pixels_are_near_the_reference(name: str) -> None:
    check_pixels(name)


def check_pixels(name: str) -> None:
    """Photographs, against Pillow."""
    ours = batches(chosen(name), on_gpu(), scan(PHOTOS), 4)
    reference = batches(candidate("pillow", 0, BATCH), workload(), scan(PHOTOS), 4)
    for (there, mine, labels), (_, theirs, expected) in zip(ours, reference, strict=True):
        assert there
        assert torch.equal(labels, expected)
        assert float((mine - theirs).abs().mean()) < NEAR


@pytest.mark.parametrize("name", ["nvjpeg", "nvimagecodec whole", "dali whole"])
def test_odd_images_have_the_pixels_of_the_reference(name: str, tmp_path: Path) -> None:
    check_odd_images(name, tmp_path)


def check_odd_images(name: str, tmp_path: Path) -> None:
    """One photograph in the shapes that decoders are known to differ on, against Pillow."""
    names = save_variants(tmp_path)
    images = scan(tmp_path)
    ((_, ours, _),) = batches(chosen(name, batch_size=len(names)), on_gpu(), images, 1)
    ((_, theirs, _),) = batches(candidate("pillow", 0, len(names)), workload(), images, 1)
    from pipetune.loaders.order import EndlessOrder

    order = next(iter(EndlessOrder(len(names), len(names), workload().seed)))
    worst = {
        names[index]: round(float((one - other).abs().mean()), 3)
        for index, one, other in zip(order, ours, theirs, strict=True)
    }
    assert {file: value for file, value in worst.items() if value > NEAR_ODD} == {}


def test_the_jpeg_engine_changes_hardly_a_pixel() -> None:
    check_alike("dali no engine", "dali engine")


def check_alike(one: str, other: str) -> None:
    """Two settings of one decoder."""
    pairs = zip(*(batches(chosen(name), on_gpu(), scan(PHOTOS), 4) for name in (one, other)), strict=True)
    assert max(float((ours - theirs).abs().mean()) for (_, ours, _), (_, theirs, _) in pairs) < NEAR_ITSELF


@pytest.mark.parametrize("name", ["nvjpeg", "nvimagecodec whole", "dali whole"])
@pytest.mark.parametrize("transfer", ["float32", "uint8"])
def test_batches_are_the_same_however_busy_the_device_is(name: str, transfer: str, tmp_path: Path) -> None:
    check_busy(name, transfer, tmp_path)


def check_busy(name: str, transfer: str, tmp_path: Path) -> None:
    """Batches behind queued work, against those of an idle device."""
    images = scan(small_photos(tmp_path / "photos", copies=40))
    one = chosen(name, transfer=transfer, num_workers=4)
    idle = batches(one, on_gpu(image_size=64), images, 16)
    for _ in range(3):
        again = batches(one, on_gpu(image_size=64), images, 16, busy=True)
        wrong = [
            number
            for number, ((_, ours, _), (_, first, _)) in enumerate(zip(again, idle, strict=True))
            if not torch.equal(ours, first)
        ]
        assert wrong == []


@pytest.mark.parametrize("name", ["nvjpeg", "nvimagecodec whole"])
def test_a_file_that_does_not_decode_is_named(name: str, tmp_path: Path) -> None:
    from pipetune.decoders.contract import BadImage
    from pipetune.loaders.open_loader import open_trial
    from tests.bad_images import jpeg, without_tables

    image = pytest.importorskip("PIL.Image", reason="a photograph is enlarged with Pillow")
    (tmp_path / "bad.jpg").write_bytes(without_tables(jpeg()))
    (tmp_path / "good.jpg").write_bytes(jpeg())
    image.open(tmp_path / "good.jpg").resize((2000, 1500)).save(tmp_path / "large.jpg")  # tried at 8 x 8 px
    images = scan(tmp_path)
    with pytest.raises(BadImage, match=r"bad\.jpg"):
        batches(chosen(name, batch_size=3), on_gpu(), images, 1)
    try_decode = open_trial(chosen(name), on_gpu())
    assert [try_decode(image) is None for image in images.images] == [False, True, True]


def test_dali_on_the_cpu_hands_over_page_locked_batches() -> None:
    from pipetune.loaders.open_loader import open_loader

    if not installed_version(BACKENDS["dali-cpu"]):
        pytest.skip("dali-cpu is not installed")
    loader = open_loader(candidate("dali-cpu", 2, BATCH), on_gpu(), scan(PHOTOS))
    (batch,) = itertools.islice(iter(loader), 1)
    assert (batch.images.is_cuda, batch.images.is_pinned(), batch.labels.is_pinned()) == (False, True, True)
    loader.close()


#: In a process of its own, as a training is.
TRAINING = """
import sys
import pipetune
def epochs(backend, workers, device):
    chosen = pipetune.Candidate(
        backend=backend, decode_region="whole", num_workers=workers, prefetch_depth=2 if workers else 0, batch_size=4)
    with pipetune.open_loader(chosen, sys.argv[1], image_size=64, device=device, drop_last=False) as loader:
        return [[(images.is_cuda, labels.tolist()) for images, labels in loader] for _ in range(2)]
ours, expected = epochs(sys.argv[2], 2, "cuda"), epochs("pillow", 0, "cpu")
print([[labels for _, labels in epoch] for epoch in ours] == [[labels for _, labels in epoch] for epoch in expected],
      all(there for epoch in ours for there, _ in epoch))
"""


@pytest.mark.parametrize("name", ["nvjpeg", "nvimagecodec whole"])
def test_it_trains_from_the_device(name: str, tmp_path: Path) -> None:
    backend = chosen(name).backend
    photos = small_photos(tmp_path / "photos", copies=4)
    done = subprocess.run(
        [sys.executable, "-c", TRAINING, str(photos), backend], capture_output=True, text=True, check=False, timeout=100
    )
    assert (done.returncode, done.stdout) == (0, "True True\n"), done.stderr
