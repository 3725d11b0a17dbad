"""Batches of numpy arrays, without torch."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import pipetune
from pipetune.errors import UsageError
from pipetune.records.sweep import Candidate
from pipetune.training.loader import TrainingLoader
from pipetune.training.ranks import place_of
from tests import ROOT
from tests.photo_set import small_photos

pytest.importorskip("cv2", reason="OpenCV decodes")

CANDIDATE = Candidate(backend="opencv", num_workers=2, prefetch_depth=2, batch_size=4, loader="threads",
                      transfer="uint8")  # fmt: skip


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_photos(tmp_path_factory.mktemp("arrays") / "photos", copies=4)


def open_(photos: Path, candidate: Candidate = CANDIDATE, **options: Any) -> TrainingLoader:
    return pipetune.open_loader(candidate, photos, image_size=32, arrays="numpy", **options)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("transfer", ["uint8", "float32"])
def test_they_are_the_pixels_and_labels_of_tensors(photos: Path, workers: int, transfer: str) -> None:
    pytest.importorskip("torch", reason="compared with tensors")
    chosen = replace(CANDIDATE, num_workers=workers, transfer=transfer)
    with open_(photos, chosen) as arrays, pipetune.open_loader(chosen, photos, image_size=32, device="cpu") as tensors:
        for epoch in range(2):
            pairs = list(zip(arrays, tensors, strict=True))
            assert len(pairs) == len(arrays) > 2
            for (images, labels), (expected, numbers) in pairs:
                assert isinstance(images, np.ndarray)
                assert images.shape == (4, 32, 32, 3)
                assert images.dtype == transfer
                # Planes are normalised in another order than rows of pixels.
                near = 0.0 if transfer == "uint8" else 1e-6
                np.testing.assert_allclose(images, expected.permute(0, 2, 3, 1).numpy(), rtol=0, atol=near)
                np.testing.assert_array_equal(labels, numbers.numpy())
                assert labels.dtype == np.int64
                np.testing.assert_allclose(
                    arrays.normalise(images), tensors.normalise(expected).permute(0, 2, 3, 1).numpy(), atol=1e-5
                )
            assert arrays.epoch == epoch


def test_what_is_kept_is_not_overwritten(photos: Path) -> None:
    with open_(photos, replace(CANDIDATE, num_workers=0)) as loader:
        kept, copies, addresses = [], [], set()
        for images, _ in loader:
            kept.append(images[1:2, ::2])  # rests on the memory, though the batch itself is dropped
            copies.append(kept[-1].copy())
            del images
        for view, copy in zip(kept, copies, strict=True):
            np.testing.assert_array_equal(view, copy)
        kept.clear()
        for images, _ in loader:
            addresses.add(images.__array_interface__["data"][0])
            del images
        assert len(addresses) <= 2, "memory is used again"


def test_it_resumes_within_an_epoch(photos: Path) -> None:
    with open_(photos) as whole, open_(photos) as first, open_(photos) as second:
        expected = [labels.tolist() for _, labels in whole]
        stream = iter(first)
        found = [next(stream)[1].tolist() for _ in range(2)]
        second.load_state_dict(first.state_dict())
        assert found + [labels.tolist() for _, labels in second] == expected


def test_ranks_have_parts_of_their_own(photos: Path) -> None:
    parts = []
    for rank in range(2):
        with open_(photos, rank=rank, world_size=2, shuffle=False) as loader:
            parts.append([labels.tolist() for _, labels in loader])
    with open_(photos, replace(CANDIDATE, batch_size=8), shuffle=False) as loader:
        together = [labels.tolist() for _, labels in loader]
    assert len(parts[0]) == len(parts[1])
    assert [first + second for first, second in zip(*parts, strict=True)] == [
        batch[::2] + batch[1::2] for batch in together[: len(parts[0])]
    ]


def test_the_processes_of_jax_are_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delitem(sys.modules, "torch.distributed", raising=False)
    joined = [True]
    jax = SimpleNamespace(
        process_index=lambda: 3, process_count=lambda: 8,
        distributed=SimpleNamespace(is_initialized=lambda: joined[0]),
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "jax", jax)  # type: ignore[arg-type]
    assert place_of(None, None) == (3, 8)
    joined[0] = False
    assert place_of(None, None) == (0, 1)
    assert place_of(1, 2) == (1, 2)


WITHOUT_TORCH = """
import sys
for name in ("torch", "torchvision"):
    sys.modules[name] = None
import pipetune
from pipetune.records.sweep import Candidate
chosen = Candidate(backend="opencv", num_workers=2, prefetch_depth=2, batch_size=4, transfer="uint8")
with pipetune.open_loader(chosen, sys.argv[1], image_size=32, arrays="numpy") as loader:
    shapes = {images.shape for images, _ in loader}
    print(len(loader), shapes, loader.normalise(next(iter(loader))[0]).dtype)
try:
    pipetune.open_loader(chosen, sys.argv[1])
except pipetune.errors.PipetuneError as error:
    print(error)
"""


def test_torch_need_not_be_installed(photos: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, str(photos)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first.endswith("{(4, 32, 32, 3)} float32")
    assert second.startswith("torch, of which batches are made, is not installed; pip install 'pipetune[torch]'")
    assert "arrays='numpy'" in second


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({}, {"loader": "torch"}, "loader 'torch' makes batches of torch"),
        ({}, {"device": "cuda"}, "device 'cuda' is for batches of torch"),
        ({"backend": "torchvision", "loader": "torch"}, {}, "torchvision cannot decode in threads"),
        ({"backend": "dali", "loader": "dali"}, {}, "dali makes no numpy arrays"),
    ],
)
def test_what_needs_torch_is_refused(
    photos: Path, changes: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        open_(photos, replace(CANDIDATE, **changes), **options)
    with pytest.raises(UsageError, match="unknown arrays 'tensorflow'"):
        pipetune.open_loader(CANDIDATE, photos, arrays="tensorflow")


def test_a_decoder_that_needs_the_interpreter_decodes_in_the_training_process(photos: Path) -> None:
    pytest.importorskip("torchvision", reason="it decodes")
    with open_(photos, replace(CANDIDATE, backend="torchvision", loader="torch"), num_workers=0) as loader:
        assert next(iter(loader))[0].shape == (4, 32, 32, 3)
