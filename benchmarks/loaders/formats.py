"""Writes the data set in the formats of FFCV, LitData and WebDataset, once per run.

Every photograph is stored five times, so that the end of an epoch, at which these loaders start anew, is rare.
"""

from __future__ import annotations

import io
import sys
import tarfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from pipetune.datasets.index import ImageSet

COPIES = 5
_PER_SHARD = 500


def convert(images: ImageSet, folder: Path, wanted: set[str]) -> None:
    """Write what the ``wanted`` loaders need into ``folder``."""
    paths = [image.path for image in images.images] * COPIES
    if "WebDataset" in wanted:
        _shards(paths, folder / "shards")
    if "LitData" in wanted:
        _litdata(paths, folder / "litdata")
    if "FFCV" in wanted:
        _beton(paths, folder / "photos.beton")


def _shards(paths: list[str], folder: Path) -> None:
    folder.mkdir(parents=True)
    for start in range(0, len(paths), _PER_SHARD):
        with tarfile.open(folder / f"{start:06}.tar", "w") as tar:
            for number, path in enumerate(paths[start : start + _PER_SHARD], start):
                data = Path(path).read_bytes()
                info = tarfile.TarInfo(f"{number:08}.jpg")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))


def litdata_item(numbered: tuple[int, str]) -> dict[str, object]:
    number, path = numbered
    return {"number": number, "jpeg": Path(path).read_bytes()}


def _litdata(paths: list[str], folder: Path) -> None:
    from litdata import optimize

    optimize(fn=litdata_item, inputs=list(enumerate(paths)), output_dir=str(folder), chunk_bytes="64MB", num_workers=2)


class _Numbered:
    """The data set that FFCV's writer reads: ``(image, label)`` by index."""

    def __init__(self, paths: list[str]) -> None:
        self.paths = paths

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[object, int]:
        from PIL import Image

        return Image.open(self.paths[index]).convert("RGB"), 0


def _beton(paths: list[str], file: Path) -> None:
    from ffcv.fields import IntField, RGBImageField
    from ffcv.writer import DatasetWriter

    # FFCV encodes again, with quality 90 as in its documentation; sizes in bytes change.
    fields = {"image": RGBImageField(write_mode="jpg", jpeg_quality=90), "label": IntField()}
    file.parent.mkdir(parents=True, exist_ok=True)
    DatasetWriter(str(file), fields, num_workers=2).from_indexed_dataset(_Numbered(paths), chunksize=200)
