"""Does listing a data set of a million images end soon, and in little memory?

Promise: a million files in a thousand class folders are listed, a subset of 50,000 images is drawn over all classes and
their headers are read in no more than 6 times what ``find -type f`` needs to name the same files, plus 60 µs per image
whose header is read; and the process never holds more than 1 KiB per file. The files are hard links to a few
photographs on a file system in memory, so the figures are those of the program and not of a disk.

``--quick`` lists 200,000 files.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import bench

#: Times ``find``; per header (s); bytes of memory per file.
MOST_TIMES_FIND, PER_HEADER_S, MOST_BYTES_PER_FILE = 6.0, 60e-6, 1024
LIMIT_IMAGES = 50_000
ROUNDS = 3
PHOTOS = Path(__file__).resolve().parent.parent / "tests" / "photos"

#: A process of its own, so that the memory is that of the listing alone.
LIST = """
import json, resource, sys, time
from pipetune.datasets.folder import scan_folder
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
began = time.monotonic()
images = scan_folder(sys.argv[1], limit_images=int(sys.argv[2]), limit_bytes=2**50, seed=0)
print(json.dumps({
    "seconds": time.monotonic() - began, "found": images.found_images, "used": len(images.images),
    "classes": len({image.label for image in images.images}),
    "bytes": 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before),
}))
"""


def make(root: Path, count: int) -> None:
    """``count`` links in class folders of a thousand each."""
    sources = itertools.cycle([root / path.name for path in sorted(PHOTOS.glob("*/*.jpg"))])
    for path in PHOTOS.glob("*/*.jpg"):
        shutil.copy(path, root / path.name)
    for number in range(count):
        folder = root / "data" / f"class{number // 1000:04}"
        if number % 1000 == 0:
            folder.mkdir(parents=True)
        os.link(next(sources), folder / f"{number:07}.jpg")


def main() -> int:
    options = bench.arguments(__doc__)
    count = 200_000 if options.quick else 1_000_000
    ratios, rows = [], []
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        root = Path(name)
        make(root, count)
        for _ in range(ROUNDS):
            began = time.monotonic()
            subprocess.run(["find", str(root / "data"), "-type", "f"], stdout=subprocess.DEVNULL, check=True)
            find_s = time.monotonic() - began
            listed = subprocess.run(
                [sys.executable, "-c", LIST, str(root / "data"), str(LIMIT_IMAGES)], capture_output=True, text=True,
                check=True, env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parent.parent)},
            )  # fmt: skip
            got = json.loads(listed.stdout)
            if (got["found"], got["used"], got["classes"]) != (count, LIMIT_IMAGES, count // 1000):
                raise SystemExit(f"not all was found: {got}")
            ratios.append((got["seconds"] - PER_HEADER_S * got["used"]) / find_s)
            rows.append((find_s, got["seconds"], got["bytes"] / count))
    print(bench.table(
        ["files", "find", "pipetune", "ratio without headers", "memory per file"],
        [[f"{count:,}", f"{find_s:.2f} s", f"{own_s:.2f} s", f"{ratio:.1f}", f"{size:.0f} B"]
         for (find_s, own_s, size), ratio in zip(rows, ratios, strict=True)],
    ))  # fmt: skip
    most = max(row[2] for row in rows)
    holds = min(ratios) <= MOST_TIMES_FIND and most <= MOST_BYTES_PER_FILE
    print("the promise holds" if holds else "THE PROMISE DOES NOT HOLD")
    bench.write(options.json, "many_files", holds, {"files": count, "times_find": ratios, "bytes_per_file": most})
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
