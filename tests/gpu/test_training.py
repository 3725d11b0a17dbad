"""``open_loader`` in front of a real device: page-locked batches, copies that overlap, DALI's decoder."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipetune.registry import BACKENDS, installed_version
from tests.photo_set import candidate, small_photos

torch = pytest.importorskip("torch", reason="the loaders give tensors")


@pytest.mark.parametrize(
    "kind", [{"loader": "threads"}, {"loader": "torch"}, {"loader": "torch", "reuse_buffers": True}]
)
@pytest.mark.parametrize("transfer", ["float32", "uint8"])
def test_batches_are_page_locked_and_arrive_as_they_were_made(
    kind: dict[str, Any], transfer: str, tmp_path: Path
) -> None:
    import pipetune

    photos = small_photos(tmp_path / "photos", copies=10)
    # Measured with an emulated device: page-locked because its batches go to a real one.
    plain = replace(candidate("pillow", 0, 4), transfer=transfer)
    chosen = replace(plain, num_workers=2, prefetch_depth=2, **kind)
    with (
        pipetune.open_loader(chosen, photos, image_size=64, device="cuda") as loader,
        pipetune.open_loader(plain, photos, image_size=64, device="cpu") as reference,
    ):
        for _ in range(3):
            arrived = []
            for images, labels in loader:
                assert images.is_pinned()
                assert labels.is_pinned()
                # Nothing refers to the host's memory then, and the copy may still be queued.
                arrived.append((images.to("cuda", non_blocking=True), labels))
            for (ours, labels), (theirs, expected) in zip(arrived, reference, strict=True):
                assert torch.equal(ours.cpu(), theirs)
                assert torch.equal(labels, expected)
                assert float(loader.normalise(ours).abs().max()) < 4


#: In a process of its own: one that has DALI's threads should not be forked.
DALI = """
import sys
import pipetune
chosen = pipetune.Candidate(backend="dali", decode_region="whole", num_workers=2, prefetch_depth=2, batch_size=4)
with pipetune.open_loader(chosen, sys.argv[1], image_size=64, device="cuda", drop_last=False) as loader:
    epochs = [[(images.is_cuda, labels.cpu().tolist()) for images, labels in loader] for _ in range(2)]
chosen = pipetune.Candidate(backend="pillow", num_workers=0, prefetch_depth=0, batch_size=4)
with pipetune.open_loader(chosen, sys.argv[1], image_size=64, device="cpu", drop_last=False) as loader:
    expected = [[(True, labels.tolist()) for _, labels in loader] for _ in range(2)]
print(epochs == expected)
"""


def test_dali_trains_from_the_device(tmp_path: Path) -> None:
    if not installed_version(BACKENDS["dali"]):
        pytest.skip("DALI is not installed")
    photos = small_photos(tmp_path / "photos", copies=4)
    done = subprocess.run(
        [sys.executable, "-c", DALI, str(photos)], capture_output=True, text=True, check=False, timeout=200
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == "True\n"
