"""A pack from its options to its end, as the tests of several files want it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from pipetune.packing.options import PackOptions
from pipetune.packing.prepare import PackObserver, prepare
from pipetune.packing.run import write
from pipetune.records.pack import PackResult
from tests.bad_images import jpeg

#: Smaller than `pipetune pack` takes by default, whose many pixels take most of the time of such small packs.
CROP = 32


def photographs(root: Path) -> Path:
    """Twenty-four in three classes."""
    for number in range(24):
        path = root / f"class{number % 3}" / f"{number:02d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(jpeg(quality=60 + number))
    return root


def options(source: Path, **changes: Any) -> PackOptions:
    return replace(PackOptions(source=str(source), out=source.parent / "out", shard_bytes=1 << 20), **changes)


def pack(chosen: PackOptions, observer: PackObserver | None = None) -> list[PackResult]:
    observer = observer or PackObserver()
    return [write(one, chosen, observer) for one in prepare(chosen, observer, cores=1.0, crop=CROP)]


def files(folder: Path) -> dict[str, bytes]:
    found = [path for path in folder.rglob("*") if path.is_file() and path.name != "pack.json"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}
