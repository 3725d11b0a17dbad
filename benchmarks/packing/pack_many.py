"""Does a pack's memory stay small, however many images there are?

Promise: 1.3 million images are listed, planned and packed in at most 300 MB of memory.

As many as ImageNet has: links to a few photographs of 64 px, on a file system in memory. ``pipetune pack`` makes them
smaller (48 px), as WebDataset shards, in a process of its own whose largest resident memory is what counts; so does
that of a plan alone, and of ten times fewer images, which shows what each image takes. The pack is read again at its
end, and has every image once.

``--quick`` packs 130,000, and is held against the same limit; the full run takes about 15 minutes.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import bench
from benchmarks.overhead.many_files import link

IMAGES, QUICK_IMAGES = 1_300_000, 130_000
EDGE, PACKED_EDGE = 64, 48
MOST_BYTES = 300e6


def main(options: Namespace) -> bench.Result:
    counts = (QUICK_IMAGES // 10, QUICK_IMAGES) if options.quick else (IMAGES // 10, IMAGES)
    rows: list[list[str]] = []
    found: list[dict[str, Any]] = []
    for count in counts:
        with tempfile.TemporaryDirectory(dir="/dev/shm") as name, tempfile.TemporaryDirectory() as target:
            make(Path(name), count)
            planned = packed(Path(name) / "data", Path(target) / "out", "--plan")
            whole = packed(Path(name) / "data", Path(target) / "out")
            entries = sources_in(Path(target) / "out" / "manifest.jsonl")
            if entries != count:
                raise SystemExit(f"{entries:,} of {count:,} images are in the manifest")
        found.append({"images": count, "plan": planned, "pack": whole})
        rows.append([
            f"{count:,}", f"{planned['bytes'] / 1e6:.0f} MB", f"{whole['bytes'] / 1e6:.0f} MB",
            f"{count / whole['seconds']:,.0f}/s",
        ])  # fmt: skip
    print(bench.table(["images", "memory of the plan", "memory of the pack", "packed"], rows))
    each = (found[1]["pack"]["bytes"] - found[0]["pack"]["bytes"]) / (counts[1] - counts[0])
    print(f"{each:.0f} bytes for each further image")
    return bench.Result(found[1]["pack"]["bytes"] <= MOST_BYTES, {"runs": found, "bytes_per_image": each})


def sources_in(manifest: Path) -> int:
    """How many images a pack has, each counted once."""
    with manifest.open(encoding="ascii") as file:
        return len({json.loads(line)["source"] for line in file})


def packed(source: Path, out: Path, *words: str) -> dict[str, float]:
    """Time (s) and largest resident memory (bytes) of the command."""
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "pipetune", "pack", str(source), str(out), "--shorter-edge", str(PACKED_EDGE),
         "--shard-size", "64MB", *words], env=bench.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    errors = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(errors.decode(errors="replace")[-500:])
    return {"seconds": time.monotonic() - began, "bytes": 1024.0 * usage.ru_maxrss}


def make(root: Path, count: int) -> None:
    """``count`` links in class folders of a thousand each."""
    from PIL import Image

    for number, path in enumerate(sorted(bench.PHOTOS.glob("*/*.jpg"))):
        with Image.open(path) as image:
            small = image.convert("RGB").resize((EDGE, EDGE))
        data = io.BytesIO()
        small.save(data, "JPEG", quality=90)
        (root / f"{number}.jpg").write_bytes(data.getvalue())
    link(root, count)


if __name__ == "__main__":
    bench.run(main, __file__, __doc__)
