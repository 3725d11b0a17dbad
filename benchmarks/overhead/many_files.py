"""How long does it take to list a data set of a million images, and how much memory?

Promise: a million files are listed in at most 12 times `find`'s time and 1 KiB of memory per file.

The data set is a thousand class folders. Listing names all files and draws from them; ``find -type f`` names them and
does nothing else. Reading the headers and ends of 50,000 images, drawn over all classes, takes at most 6 times as long
as opening them and reading their first 4 KiB in Python. The files are hard links to a few photographs on a file system
in memory, so the figures are those of the program and not of a disk.

``--quick`` lists 200,000 files.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import bench

MAX_TIMES_FIND, MAX_TIMES_READ, MAX_BYTES_PER_FILE = 12.0, 6.0, 1024
LIMIT_IMAGES = 50_000
ROUNDS = 3

#: Runs in a process of its own, so that the memory is that of the listing alone. With a limit of 1 it only lists.
LIST = """
import json, resource, sys, time
from pipetune.datasets.folder import scan_folder
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
began = time.monotonic()
images = scan_folder(sys.argv[1], limit_images=int(sys.argv[2]), limit_bytes=2**50, seed=0)
took = time.monotonic() - began
again = time.monotonic()
for image in images.images:
    with open(image.path, "rb") as file:
        file.read(4096)
print(json.dumps({
    "seconds": took, "read_s": time.monotonic() - again, "found": images.found_images, "used": len(images.images),
    "classes": len({image.label for image in images.images}),
    "bytes": 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before),
}))
"""


def main(options: Namespace) -> bench.Result:
    count = 200_000 if options.quick else 1_000_000
    rows = []
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        root = Path(name)
        make(root, count)
        for _ in range(ROUNDS):
            began = time.monotonic()
            subprocess.run(["find", str(root / "data"), "-type", "f"], stdout=subprocess.DEVNULL, check=True)
            find_s = time.monotonic() - began
            bare, full = listed(root / "data", 1), listed(root / "data", LIMIT_IMAGES)
            if (full["found"], full["used"], full["classes"]) != (count, LIMIT_IMAGES, count // 1000):
                raise SystemExit(f"not all was found: {full}")
            headers_s = full["seconds"] - bare["seconds"]
            rows.append((bare["seconds"] / find_s, headers_s / full["read_s"], full["bytes"] / count))
    print(bench.table(
        ["files", "listing / find", "headers / reading 4 KiB", "memory per file"],
        [[f"{count:,}", f"{listing:.1f}", f"{headers:.1f}", f"{size:.0f} B"] for listing, headers, size in rows],
    ))  # fmt: skip
    fastest = [min(column) for column in zip(*rows, strict=True)]  # disturbances only add time
    limits = (MAX_TIMES_FIND, MAX_TIMES_READ, MAX_BYTES_PER_FILE)
    holds = all(value <= limit for value, limit in zip(fastest, limits, strict=True))
    return bench.Result(holds, {
        "files": count, "listing_per_find": [row[0] for row in rows], "looking_per_reading": [row[1] for row in rows],
        "bytes_per_file": [row[2] for row in rows],
    })  # fmt: skip


def listed(root: Path, limit: int) -> dict[str, Any]:
    found: dict[str, Any] = bench.last_line_of([sys.executable, "-c", LIST, str(root), str(limit)])
    return found


def make(root: Path, count: int) -> None:
    """``count`` links in class folders of a thousand each."""
    for path in bench.PHOTOS.glob("*/*.jpg"):
        shutil.copy(path, root / path.name)
    link(root, count)


def link(root: Path, count: int) -> None:
    """``count`` links to the photographs in a folder, in class folders of a thousand each below its ``data``."""
    sources = itertools.cycle(sorted(root.glob("*.jpg")))
    for number in range(count):
        folder = root / "data" / f"class{number // 1000:04}"
        if number % 1000 == 0:
            folder.mkdir(parents=True)
        os.link(next(sources), folder / f"{number:07}.jpg")


if __name__ == "__main__":
    bench.run(main, __file__, __doc__)
