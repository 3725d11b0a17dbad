"""Pillow-SIMD keeps the promises of a backend, and its pixels are Pillow's: in a process whose ``PIL`` it is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipetune.registry import BACKENDS, side_folder
from tests.photo_set import PHOTOS

pytest.importorskip("torch", reason="the backends produce torch tensors")
pytestmark = pytest.mark.timeout(900)  # the library is built first

#: Sums of a batch's channels, which the two libraries are compared by.
SUMS = """
import json, sys
from pipetune.backends import {module} as backend
from tests.photo_set import candidate, scan, workload
loader = backend.open_loader(candidate("{name}", 0, 8), workload(), scan(sys.argv[1]))
images = next(iter(loader)).images
print(json.dumps([images.mean(dim=(2, 3)).tolist(), images.std(dim=(2, 3)).tolist()]))
"""


@pytest.fixture
def side(pillow_simd_home: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("XDG_DATA_HOME", str(pillow_simd_home))
    folder = side_folder(BACKENDS["pillow-simd"])
    assert folder is not None
    return folder


def run(code: list[str], path: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *code], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([path, str(Path(__file__).resolve().parents[2])])},
    )  # fmt: skip


def test_the_contract_holds(side: str) -> None:
    tests = str(Path(__file__).with_name("test_backends.py"))
    done = run(["-m", "pytest", "-q", tests, "-k", "pillow-simd"], side)
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


def test_the_pixels_are_pillows(side: str) -> None:
    ours, reference = (
        run(["-c", SUMS.format(name=name, module=name.replace("-", "_")), str(PHOTOS)], path)
        for name, path in (("pillow-simd", side), ("pillow", ""))
    )
    assert ours.returncode == reference.returncode == 0, ours.stderr + reference.stderr
    for mine, theirs in zip(json.loads(ours.stdout), json.loads(reference.stdout), strict=True):
        for one, other in zip(mine, theirs, strict=True):
            assert one == pytest.approx(other, abs=0.02)
