"""Does a damaged JPEG make jpeg-roi's C code touch memory that is not its own?

Promise: no JPEG, however damaged, makes jpeg-roi read or write beyond its memory, leak, overflow or hang.

The C code is compiled with AddressSanitizer and UndefinedBehaviorSanitizer (gcc or clang) and given images of many
kinds (sizes, colours, chroma sampling, progressive, restart intervals, many scans), which ``fuzz_jpeg.c`` damages at
random: bits, bytes, sizes, kinds of frames, segments that are moved, repeated or cut off. Input and output have exactly
the sizes that they must have, so that one byte too many is found. libjpeg itself is the system's, without sanitizers.
Each core has a process and a seed of its own; seeds are printed, and the same seed does the same again. An image that
takes 20 s of CPU time is a finding, too. ``--quick`` takes about 2 minutes, the full run 30.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
from argparse import Namespace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import bench

SOURCES = bench.ROOT / "pipetune" / "decoders"
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer", "-g", "-O1")
SECONDS, QUICK_SECONDS = 1700, 60
FIRST_SEED = 1


def main(options: Namespace) -> bench.Result:
    seconds = QUICK_SECONDS if options.quick else SECONDS
    with tempfile.TemporaryDirectory(prefix="pipetune-fuzz-") as scratch:
        program = compile_driver(Path(scratch))
        corpus = Path(scratch, "corpus")
        files = make_corpus(corpus)
        seeds = [FIRST_SEED + number for number in range(os.cpu_count() or 1)]
        print(f"{files} images; seeds {', '.join(map(str, seeds))}; {seconds} s each", flush=True)
        running = [start(program, corpus, seed, seconds) for seed in seeds]
        ended = [one.communicate() for one in running]
    rows, findings = [], []
    for seed, process, (printed, errors) in zip(seeds, running, ended, strict=True):
        if process.returncode:
            findings.append(f"seed {seed} ended with {process.returncode}: {' '.join(errors.split())[:1500]}")
        else:
            rows.append(json.loads(printed))
    total: dict[str, Any] = (
        {name: sum(row[name] for row in rows) for name in rows[0] if name != "slowest_s"} if rows else {}
    )
    slowest = max((row["slowest_s"] for row in rows), default=0.0)
    names = {"iterations": "damaged images", "headers": "headers taken", "crops": "crops decoded",
             "fills": "batches of two", "filled": "samples in them", "raws": "crops of pixels",
             "packs": "images to be packed", "packed": "packed"}  # fmt: skip
    print(bench.table(["", "number"], [[text, f"{total.get(name, 0):,}"] for name, text in names.items()]))
    print(f"slowest image: {slowest:.2f} s")
    for text in findings:
        print(f"finding: {text}")
    print(f"{len(findings)} findings")
    least = {"crops": 1000, "filled": 100, "raws": 100, "packed": 100}
    enough = bool(rows) and all(total[name] > count for name, count in least.items())
    if not enough:
        print("too few images were decoded to say anything")
    return bench.Result(not findings and enough, {
        **total, "slowest_s": slowest, "seconds": seconds, "seeds": seeds, "images": files, "findings": findings,
    })  # fmt: skip


def compile_driver(folder: Path) -> Path:
    """The program that damages and decodes."""
    program = folder / "fuzz_jpeg"
    sources = [str(SOURCES / name) for name in ("jpeg_roi.c", "jpeg_roi_fill.c", "raw_crop.c", "jpeg_pack.c")]
    driver = str(Path(__file__).with_name("fuzz_jpeg.c"))
    command = [os.environ.get("CC", "cc"), *SANITIZERS, f"-I{SOURCES}", "-o", str(program), *sources, driver]
    done = subprocess.run([*command, "-ljpeg", "-lm"], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"cannot compile with sanitizers (apt-get install gcc libjpeg-dev): {done.stderr[-500:]}")
    return program


def start(program: Path, corpus: Path, seed: int, seconds: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [str(program), str(corpus), str(seed), str(seconds)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "ASAN_OPTIONS": "detect_leaks=1:allocator_may_return_null=1"},
    )  # fmt: skip


def make_corpus(folder: Path) -> int:
    """Small JPEGs of every kind that the decoder takes or has to refuse; returns how many."""
    from PIL import Image

    from tests.unit.datasets.images import with_scans

    folder.mkdir()
    draw = random.Random(0)
    number = 0
    for size in ((1, 1), (8, 8), (17, 9), (16, 64), (33, 47), (120, 90), (333, 20)):
        image = Image.frombytes("RGB", size, draw.randbytes(3 * size[0] * size[1])).resize(size)
        smooth = image.resize((max(1, size[0] // 8), max(1, size[1] // 8))).resize(size, Image.Resampling.BICUBIC)
        for mode in ("RGB", "L", "CMYK"):
            kinds: tuple[dict[str, Any], ...] = (
                {"subsampling": 0}, {"subsampling": 1}, {"subsampling": 2}, {"progressive": True, "subsampling": 2},
                {"restart_marker_blocks": 3}, {"progressive": True, "restart_marker_rows": 1, "subsampling": 0},
                {"keep_rgb": True} if mode == "RGB" else {},
            )  # fmt: skip
            for options in kinds:
                source = smooth if number % 2 else image
                source.convert(mode).save(folder / f"{number:03}.jpg", quality=90, **options)
                number += 1
    for scans in (3, 95, 150):
        (folder / f"scans{scans}.jpg").write_bytes(with_scans((200, 100), scans))
        number += 1
    return number


if __name__ == "__main__":
    bench.run(main, __file__, __doc__)
