"""Decoding only crops on a real device, in a file and so a process of its own.

nvImageCodec 0.9.0 is said to end the process when it decodes crops on some GPUs, with DALI as well
(https://github.com/NVIDIA/nvImageCodec/issues/55): what else was tested there would be lost.
"""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the decoders make tensors")

from tests.gpu.test_decode import CROPS, check_alike, check_busy, check_odd_images, check_pixels


@pytest.mark.parametrize("name", CROPS)
def test_pixels_are_near_the_reference(name: str) -> None:
    check_pixels(name)


@pytest.mark.parametrize("name", CROPS)
def test_odd_images_have_the_pixels_of_the_reference(name: str, tmp_path: Path) -> None:
    check_odd_images(name, tmp_path)


@pytest.mark.parametrize("name", CROPS)
def test_they_are_hardly_other_than_those_of_whole_images(name: str) -> None:
    check_alike(name, name.replace("window", "whole"))


@pytest.mark.parametrize("name", CROPS)
@pytest.mark.parametrize("transfer", ["float32", "uint8"])
def test_batches_are_the_same_however_busy_the_device_is(name: str, transfer: str, tmp_path: Path) -> None:
    check_busy(name, transfer, tmp_path)
