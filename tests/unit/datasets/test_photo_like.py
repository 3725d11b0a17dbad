from __future__ import annotations

import hashlib
import io
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
from PIL import Image, JpegImagePlugin

from pipetune.datasets.image_header import Header, parse_header
from pipetune.datasets.photo_like import PROFILES, PhotoProfile, forget_noise, make_jpeg

CALTECH = PROFILES["caltech256"]

#: Cost of decoding with libjpeg-turbo, fitted to 1,481 real files: ms per megapixel and per megabyte.
MS_PER_MEGAPIXEL, MS_PER_MEGABYTE = 0.94, 6.6


@pytest.fixture(scope="module")
def caltech() -> list[tuple[bytes, Header]]:
    return made(CALTECH, 150)


def made(profile: PhotoProfile, count: int) -> list[tuple[bytes, Header]]:
    files = [make_jpeg(profile, 0, number) for number in range(count)]
    return [(file, parse_header(file)) for file in files]


def pixels(images: list[tuple[bytes, Header]]) -> list[int]:
    return [header.width * header.height for _, header in images]


def subsampling(file: bytes) -> str | None:
    """``4:4:4``, ``4:2:2`` or ``4:2:0``; ``None`` of a grey image."""
    with Image.open(io.BytesIO(file)) as image:
        return {0: "4:4:4", 1: "4:2:2", 2: "4:2:0"}.get(JpegImagePlugin.get_sampling(image))


def bytes_per_pixel(images: list[tuple[bytes, Header]]) -> float:
    return sum(len(file) for file, _ in images) / sum(pixels(images))


def test_caltech_has_the_bytes_of_photographs(caltech: list[tuple[bytes, Header]]) -> None:
    assert bytes_per_pixel(caltech) == pytest.approx(0.277, rel=0.10)
    assert sum(len(file) for file, _ in caltech) / len(caltech) == pytest.approx(39_000, rel=0.10)
    single = [len(file) / px for (file, _), px in zip(caltech, pixels(caltech), strict=True)]
    # Of 215 real photographs at this scale: 0.176, 0.295 and 0.423.
    assert np.percentile(single, [10, 50, 90]) == pytest.approx([0.176, 0.295, 0.423], rel=0.15)


def test_caltech_has_the_decode_cost_of_photographs(caltech: list[tuple[bytes, Header]]) -> None:
    cost = [
        MS_PER_MEGAPIXEL * px / 1e6 + MS_PER_MEGABYTE * len(file) / 1e6
        for (file, _), px in zip(caltech, pixels(caltech), strict=True)
    ]
    real_per_megapixel = MS_PER_MEGAPIXEL + MS_PER_MEGABYTE * 0.277
    assert 1e6 * sum(cost) / sum(pixels(caltech)) == pytest.approx(real_per_megapixel, rel=0.10)
    assert sum(cost) / len(cost) == pytest.approx(real_per_megapixel * 0.039 / 0.277, rel=0.10)


def test_caltech_has_the_sizes_of_photographs(caltech: list[tuple[bytes, Header]]) -> None:
    short = sorted(min(header.width, header.height) for _, header in caltech)
    aspects = [max(header.width, header.height) / min(header.width, header.height) for _, header in caltech]
    assert 300 <= short[75] <= 320
    assert short[0] < 230
    assert short[-1] > 400
    assert 0.12e6 < np.median(pixels(caltech)) < 0.15e6
    assert max(aspects) > 2.0
    assert 0.1 < sum(header.height > header.width for _, header in caltech) / len(caltech) < 0.3


def test_caltech_is_baseline_420(caltech: list[tuple[bytes, Header]]) -> None:
    assert {(h.progressive, h.orientation) for _, h in caltech} == {(False, 1)}
    assert {subsampling(file) for file, _ in caltech} == {"4:2:0"}


@pytest.mark.thorough
def test_imagenet_is_500_by_375() -> None:
    images = made(PROFILES["imagenet"], 40)
    assert {tuple(sorted((header.width, header.height))) for _, header in images} == {(375, 500)}
    assert bytes_per_pixel(images) == pytest.approx(0.390, rel=0.15)


@pytest.mark.thorough
def test_imagenet_real_has_the_encodings_of_imagenet() -> None:
    images = made(PROFILES["imagenet-real"], 80)
    assert {max(header.width, header.height) for _, header in images} == {500}
    assert bytes_per_pixel(images) == pytest.approx(0.68, rel=0.15)
    kinds = Counter(subsampling(file) for file, _ in images)
    assert kinds["4:4:4"] / len(images) == pytest.approx(0.76, abs=0.1)
    assert kinds["4:2:0"] / len(images) == pytest.approx(0.20, abs=0.1)


def test_encoding_weights_are_shares() -> None:
    for profile in PROFILES.values():
        assert sum(weight for weight, _, _ in profile.encodings) == pytest.approx(1.0)
    real = PROFILES["imagenet-real"].encodings
    steps = sorted((quality, weight) for weight, quality, _ in real)
    shares = np.cumsum([weight for _, weight in steps])
    median, quarter, low = (
        next(quality for (quality, _), share in zip(steps, shares, strict=True) if share >= wanted)
        for wanted in (0.5, 0.25, 0.05)
    )
    assert (low, quarter, median) == (75, 91, 96)
    assert sum(weight for weight, _, sampling in real if sampling == "4:4:4") == pytest.approx(0.76)
    assert sum(weight for weight, _, sampling in real if sampling == "4:2:0") == pytest.approx(0.20)


@pytest.mark.parametrize("name", PROFILES)
def test_every_picture_decodes_and_is_no_flat_colour(name: str) -> None:
    for number in range(6):
        picture = Image.open(io.BytesIO(make_jpeg(PROFILES[name], 5, number)))
        assert float(np.asarray(picture.convert("L"), np.float32).std()) > 5


@pytest.mark.thorough
def test_bytes_depend_on_seed_and_number_alone() -> None:
    once = [make_jpeg(CALTECH, 3, number) for number in (7, 2)]
    forget_noise()
    assert [make_jpeg(CALTECH, 3, number) for number in (2, 7)] == once[::-1]
    assert len({*once, make_jpeg(CALTECH, 4, 7), make_jpeg(CALTECH, 4, 2)}) == 4


@pytest.mark.thorough
def test_another_process_makes_the_same_bytes() -> None:
    program = (
        "import hashlib; from pipetune.datasets.photo_like import PROFILES, make_jpeg;"
        "print(hashlib.sha256(make_jpeg(PROFILES['caltech256'], 1, 11)).hexdigest())"
    )
    other = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == hashlib.sha256(make_jpeg(CALTECH, 1, 11)).hexdigest()
