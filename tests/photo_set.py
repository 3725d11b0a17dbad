"""Real photographs and image sets for tests of the loaders."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from PIL import Image

from pipetune.datasets.folder import scan_folder
from pipetune.datasets.index import ImageSet
from pipetune.records.sweep import AcceleratorSpec, Candidate, Workload

PHOTOS = Path(__file__).parent / "photos"


def scan(root: Path | str) -> ImageSet:
    return scan_folder(str(root), limit_images=1000, limit_bytes=2**30, seed=0, progress=None)


def workload(**changes: object) -> Workload:
    values: dict[str, object] = {
        "dataset": "photos",
        "index_path": "",
        "accelerator": AcceleratorSpec(kind="emulated", name="EMULATED 1,000/s", rate_samples_per_s=1000.0),
        "model": "resnet50",
        "image_size": 224,
        "precision": "emulated",
        "seconds": 0.5,
        "warmup_limit_s": 1.0,
        "cache": "warm",
        "seed": 7,
    }
    return Workload(**{**values, **changes})  # type: ignore[arg-type]


def candidate(backend: str, num_workers: int = 0, batch_size: int = 4, prefetch_depth: int = 2) -> Candidate:
    return Candidate(
        backend=backend,
        num_workers=num_workers,
        prefetch_depth=prefetch_depth if num_workers else 0,
        batch_size=batch_size,
    )


def small_photos(root: Path, copies: int) -> Path:
    """The same with photographs a quarter as wide: a slow machine, too, feeds hundreds of them a second."""
    sources = []
    for path in sorted(PHOTOS.glob("*/*.jpg")):
        small = root.parent / f"{root.name}-sources" / path.parent.name / path.name
        small.parent.mkdir(parents=True, exist_ok=True)
        with Image.open(path) as photo:
            photo.convert("RGB").resize((photo.width // 4, photo.height // 4)).save(small, quality=90)
        sources.append(small)
    return enlarge(root, copies, sources)


def enlarge(root: Path, copies: int, sources: Iterable[Path] = ()) -> Path:
    """A class folder tree with ``copies`` links to each photograph."""
    for source in sources or sorted(PHOTOS.glob("*/*.jpg")):
        folder = root / source.parent.name
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(copies):
            (folder / f"{source.stem}-{number}.jpg").hardlink_to(source)
    return root
