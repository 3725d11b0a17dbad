"""Run on a rented machine: decodes photographs on the CPU with a library that was carried, and compares with Pillow."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import torch

import pipetune
from tests.photo_set import small_photos

#: Of normalised pixels: the mean over a batch. DALI decodes and resizes in other ways than Pillow.
MAX_MEAN_DIFFERENCE = 0.05


def main(backends: list[str]) -> int:
    """Compare each backend's first batch with Pillow's; 1 where one differs."""
    with tempfile.TemporaryDirectory() as folder:
        photos = small_photos(Path(folder, "photos"), copies=2)
        expected, labels = load_batch("pillow", photos)
        for backend in backends:
            images, its_labels = load_batch(backend, photos)
            difference = float((images - expected).abs().mean())
            print(f"{backend}: mean difference to Pillow {difference:.4f}", flush=True)
            if not torch.equal(labels, its_labels) or difference > MAX_MEAN_DIFFERENCE:
                return 1
    return 0


def load_batch(backend: str, photos: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """The first batch in the first epoch's order, which is the same for all backends."""
    has_own_threads = backend == "dali"
    candidate = pipetune.Candidate(
        backend=backend,
        loader="dali" if has_own_threads else "torch",
        num_workers=int(has_own_threads),
        prefetch_depth=2 if has_own_threads else 0,
        batch_size=4,
    )
    with pipetune.open_loader(candidate, photos, image_size=64, device="cpu") as loader:
        images, labels = next(iter(loader))
        return images.clone(), labels.clone()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
