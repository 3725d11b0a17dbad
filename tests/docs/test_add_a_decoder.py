"""The worked example of adding a decoder is one that works."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from pipetune.decoders import contract
from pipetune.decoders.crop import draw_crop
from pipetune.registry import Backend, Deviation
from tests import ROOT
from tests.docs import pages
from tests.photo_set import PHOTOS, scan

pillow = pytest.importorskip("pipetune.decoders.pillow", reason="layout needs torch")
PAGE = ROOT / "docs" / "development" / "add-a-decoder.md"


def code(test: str) -> str:
    (block,) = [block for block in pages.blocks(PAGE, "python") if block.test == test]
    return block.code


@pytest.fixture
def decoder() -> ModuleType:
    module = ModuleType("pillow_reduced")
    exec(compile(code("decoder"), "pillow_reduced.py", "exec"), module.__dict__)
    return module


def decoded(load: contract.LoadFunction, photo: contract.Photo, sample_index: int, size: int) -> np.ndarray:
    out = np.zeros((size, size, 3), np.uint8)
    load(photo, lambda height, width: draw_crop(7, sample_index, height, width), out)
    return out.astype(int)


@pytest.mark.parametrize(("size", "levels"), [(32, 8.0), (224, 1.0)])
def test_its_pixels_are_near(decoder: ModuleType, size: int, levels: float) -> None:
    """Small images are decoded at a fraction of the size; of 255 grey levels."""
    differences = []
    for sample_index, image in enumerate(scan(PHOTOS).images):
        width, height = image.upright_size
        photo = contract.Photo(image.path, image.orientation, True, height, width)
        ours, reference = (decoded(load, photo, sample_index, size) for load in (decoder.load, pillow.load))
        differences.append(np.abs(ours - reference).mean())
    assert np.mean(differences) < levels
    assert (np.mean(differences) > 0) == (size == 32)


def test_its_line() -> None:
    line = eval(code("line"), {"Backend": Backend, "Deviation": Deviation})
    assert line.module == "pipetune.decoders.pillow_reduced"
    assert line.name == "pillow-reduced"


def test_it_is_not_there_already() -> None:
    assert not Path(ROOT / "pipetune" / "decoders" / "pillow_reduced.py").exists()
