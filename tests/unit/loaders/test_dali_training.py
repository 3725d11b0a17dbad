"""DALI to train with. In a process of its own: one that has DALI's threads should not be forked, as other tests do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.bad_images import jpeg, without_tables
from tests.photo_set import small_photos

pytest.importorskip("torch", reason="what is tested handles tensors")
pytest.importorskip("nvidia.dali", reason="DALI is not installed")

SCRIPT = """
import json, sys
import pipetune
from pipetune.errors import PipetuneError

def open_(backend="dali", workers=2, **options):
    chosen = pipetune.Candidate(backend=backend, num_workers=workers, prefetch_depth=2 if workers else 0, batch_size=4)
    return pipetune.open_loader(chosen, sys.argv[1], image_size=32, device="cpu", **options)

def seen(epoch):
    return [(labels.tolist(), [round(float(image.mean()), 3) for image in images]) for images, labels in epoch]

found = {}
"""


def run(photos: Path, code: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT + code + "\nprint(json.dumps(found))", str(photos)],
        capture_output=True, text=True, check=False, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = small_photos(tmp_path_factory.mktemp("dali") / "photos", copies=4)
    first = next(path for path in sorted(root.rglob("*.jpg")))
    os.link(first, os.fsencode(first.parent) + b"/z\xff.jpg")  # a name that is not UTF-8
    return root


@pytest.mark.thorough
def test_epochs_ranks_and_resuming_are_those_of_the_other_loaders(photos: Path) -> None:
    found = run(
        photos,
        """
for name, backend, workers in (("reference", "opencv", 0), ("dali", "dali", 2)):
    with open_(backend, workers, drop_last=False) as loader:
        found[name] = [seen(loader), seen(loader)]
    with open_(backend, workers, rank=1, world_size=3) as loader:
        found[name] += [seen(loader)]
with open_(drop_last=False) as loader:
    loader.load_state_dict({**loader.state_dict(), "epoch": 1, "batch": 2})
    found["rest"] = seen(loader)
with open_(transfer="uint8") as loader:
    images, _ = next(iter(loader))
    found["bytes"] = [str(images.dtype), list(images.shape), float(loader.normalise(images).std()) > 0.3]
""",
    )
    for ours, theirs in zip(found["dali"], found["reference"], strict=True):
        assert [labels for labels, _ in ours] == [labels for labels, _ in theirs]
        for (_, mine), (_, other) in zip(ours, theirs, strict=True):
            assert mine == pytest.approx(other, abs=0.1)
    sizes = [len(labels) for labels, _ in found["dali"][0]]
    assert sizes[:-1] == [4] * (len(sizes) - 1)
    assert 0 < sizes[-1] <= 4
    assert found["rest"] == found["dali"][1][2:]
    assert found["bytes"] == ["torch.uint8", [4, 3, 32, 32], True]


@pytest.mark.thorough
def test_a_file_that_does_not_decode_is_named(tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / f"{number}.jpg").write_bytes(without_tables(jpeg()) if number == 2 else jpeg())
    found = run(
        tmp_path,
        """
try:
    list(open_())
except Exception as error:
    found["message"] = str(error)
try:
    open_(workers=0)
except PipetuneError as error:
    found["none"] = str(error)
""",
    )
    assert found["message"].startswith("cannot decode image ")
    assert "2.jpg" in found["message"]
    assert found["none"].startswith("dali has no configuration without workers")
