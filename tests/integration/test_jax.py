"""Training with JAX in an environment without torch, alone and as two ranks."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT
from tests.photo_set import small_photos
from tests.reader_environments import python_with

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def python() -> str:
    return python_with("jax", "jax==0.10.2", f"{ROOT}[opencv]", imports="jax")


def start(python: str, photos: Path, *words: str, **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [python, str(ROOT / "tests" / "scripts" / "with_jax.py"), "--data", str(photos), *words], cwd=photos.parent,
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip


def result(process: subprocess.Popen[str]) -> dict[str, Any]:
    try:
        out, errors = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode == 0, errors[-2000:]
    found: dict[str, Any] = json.loads(out.strip().splitlines()[-1])
    return found


def test_it_trains_and_nothing_that_it_holds_is_overwritten(python: str, tmp_path: Path) -> None:
    without = subprocess.run([python, "-c", "import torch"], capture_output=True, check=False)
    assert without.returncode != 0, "this environment has torch"
    found = result(start(python, small_photos(tmp_path / "photos", copies=4)))
    assert found["losses"][-1] < found["losses"][0]
    assert found["same"]
    assert not found["torch"]


@pytest.mark.parametrize("how", ["torchrun's variables", "jax.distributed"])
def test_ranks_have_parts_of_their_own(python: str, tmp_path: Path, how: str) -> None:
    photos = small_photos(tmp_path / "photos", copies=4)
    if how == "jax.distributed":
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        both = [start(python, photos, "--join", f"{address},{rank},2") for rank in range(2)]
    else:
        both = [start(python, photos, RANK=str(rank), WORLD_SIZE="2") for rank in range(2)]
    first, second = [result(process)["seen"] for process in both]
    alone = result(start(python, photos))["seen"]
    assert len(first) == len(second) > 0
    assert first != second
    assert len(alone) >= 2 * len(first), "each has half of the images"
