"""What each backend states about its pixels is true on real photographs, crop scale by crop scale."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from pipetune.decoders.crop import draw_crop
from pipetune.loaders.order import EndlessOrder
from pipetune.registry import BACKENDS, EXACT_PSNR_DB, Deviation, min_workers
from tests.contract.test_backends import ALL, PILLOW, first_batches, require
from tests.photo_set import PHOTOS, candidate, scan, workload

pytest.importorskip("torch", reason="the backends produce torch tensors")

#: Edges of the training crop (px) that spread the crops over all scales.
SIZES = (32, 64, 128, 224, 448)
BATCH, BATCHES = 8, 2
#: A crop is so many times as large as the training image: enlarged, nearly as it is, reduced, reduced a lot.
SCALES = ((0.0, 1.0), (1.0, 2.0), (2.0, 4.0), (4.0, math.inf))
#: A statement may be this much too modest (dB), or it says nothing.
SLACK_DB = 6.0


@pytest.fixture(autouse=True, scope="module", params=[name for name in ALL if name != PILLOW])
def backend(request: pytest.FixtureRequest) -> str:
    require(request, request.param)
    name: str = request.param
    return name


@cache
def pixels(name: str, size: int) -> list[np.ndarray]:
    """uint8 images of the same crops for every backend."""
    chosen = replace(candidate(name, min_workers(BACKENDS[name]), BATCH), transfer="uint8")
    found = first_batches(chosen, workload(image_size=size), scan(PHOTOS), BATCHES)
    return [image.astype(np.int32) for batch in found for image in batch.images.numpy()]


def scales(size: int) -> list[float]:
    images = scan(PHOTOS).images
    setting = workload()
    order = itertools.islice(EndlessOrder(len(images), BATCH, setting.seed), BATCHES)
    sample_indices = list(itertools.chain.from_iterable(order))
    crops = [draw_crop(setting.seed, t, *images[t % len(images)].upright_size[::-1]) for t in sample_indices]
    return [math.sqrt(crop.height * crop.width) / size for crop in crops]


def measured(name: str) -> dict[tuple[float, float], tuple[float, float, int]]:
    """Scale -> PSNR (dB), mean absolute difference (grey levels), number of images."""
    groups: dict[tuple[float, float], list[np.ndarray]] = {limits: [] for limits in SCALES}
    for size in SIZES:
        for ours, theirs, scale in zip(pixels(name, size), pixels(PILLOW, size), scales(size), strict=True):
            limits = next((low, high) for low, high in SCALES if low <= scale < high)
            groups[limits].append((ours - theirs).ravel())
    found = {}
    for limits, differences in groups.items():
        every = np.concatenate(differences)
        squared = max(float(np.mean(every.astype(np.float64) ** 2)), 1e-3)
        found[limits] = (10 * math.log10(255**2 / squared), float(np.abs(every).mean()), len(differences))
    return found


def test_the_statement_is_true_and_says_something(backend: str) -> None:
    found = measured(backend)
    assert min(count for _, _, count in found.values()) >= 10
    stated = BACKENDS[backend].deviation
    assert stated is not None, f"state it: {found}"
    least, most = min(psnr for psnr, _, _ in found.values()), max(mean for _, mean, _ in found.values())
    assert least >= stated.psnr_db, found
    assert most <= stated.mean_levels, found
    assert least < stated.psnr_db + SLACK_DB, found


def test_what_counts_as_exact() -> None:
    one_level = 10 * math.log10(255**2)
    assert one_level > EXACT_PSNR_DB
    assert {name for name, found in BACKENDS.items() if found.deviation is None} == {"pillow"}
    assert Deviation(psnr_db=1.0, mean_levels=1.0).psnr_db < EXACT_PSNR_DB
