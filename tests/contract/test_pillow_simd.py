"""Pillow-SIMD keeps the promises of a backend, and its pixels are Pillow's: in a process whose ``PIL`` it is."""

from __future__ import annotations

import itertools
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipetune.loaders.open_loader import open_loader
from pipetune.registry import BACKENDS, side_folder
from tests import ROOT
from tests.photo_set import PHOTOS, candidate, scan, workload

pytest.importorskip("torch", reason="the backends produce torch tensors")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # the library is built first

#: Writes what :func:`pixels_of` gives.
WRITE = """
import os, sys
import numpy as np
from tests.contract.test_pillow_simd import pixels_of
np.save(sys.argv[1], pixels_of("pillow-simd"))
os._exit(0)  # to take torch apart would need a second more
"""


def pixels_of(backend: str) -> Any:
    """The bytes of some batches, for all crop scales."""
    pixels = []
    for size in (32, 96, 224, 448):
        chosen = replace(candidate(backend, 0, 8), transfer="uint8")
        loader = open_loader(chosen, workload(image_size=size), scan(PHOTOS))
        pixels += [batch.images.numpy().ravel() for batch in itertools.islice(loader, 2)]
    return np.concatenate(pixels)


@pytest.fixture
def side(pillow_simd_home: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("XDG_DATA_HOME", str(pillow_simd_home))
    folder = side_folder(BACKENDS["pillow-simd"])
    assert folder is not None
    return folder


def run(code: list[str], path: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *code], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([path, str(ROOT)])},
    )  # fmt: skip


def test_the_contract_holds(side: str) -> None:
    tests = str(Path(__file__).with_name("test_backends.py"))
    done = run(["-m", "pytest", "-q", tests, "-k", "pillow-simd"], side)
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


def test_the_pixels_are_pillows(side: str, tmp_path: Path) -> None:
    done = run(["-c", WRITE, str(tmp_path / "pixels.npy")], side)
    assert done.returncode == 0, done.stderr
    difference = np.load(tmp_path / "pixels.npy").astype(np.float64) - pixels_of("pillow")
    stated = BACKENDS["pillow-simd"].deviation
    assert stated is not None
    assert 10 * math.log10(255**2 / np.mean(difference**2)) >= stated.psnr_db
    assert np.abs(difference).mean() <= stated.mean_levels
