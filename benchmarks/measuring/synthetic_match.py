"""Do the synthetic images cost what photographs cost?

Promise: synthetic:caltech256 is within 10 % of real photographs in bytes per pixel and in decode time per megapixel.

The real photographs are those of --photos. Both sets are decoded by Pillow, from memory, on one core, in turns that
alternate every 8 files, so a slow machine slows both. What is judged is the ratio of the sums of each file's fastest
time, because other work on a machine only ever adds time; the spread is that of the ratios of single rounds, 5th to
95th percentile. Photographs whose short edge is mostly above 475 px (1.5 times that of the synthetic ones) are first
scaled to 315 px and saved with quality 90, 4:2:0, as the synthetic ones are; smaller ones are taken as they are.

Without --photos nothing is downloaded and only the sizes are judged, against the published figures: 0.277 bytes per
pixel and 39 KB a file. That takes seconds; with --photos ``--quick`` takes about a minute, the full run several.
"""

from __future__ import annotations

import io
import os
import sys
import time
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median, quantiles

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import bench
from pipetune.datasets.folder import scan_folder
from pipetune.datasets.image_header import parse_header
from pipetune.datasets.photo_like import PROFILES, make_jpeg

PUBLISHED_BYTES_PER_PIXEL = 0.277
PUBLISHED_MEAN_BYTES = 39_000
#: From 1, of a ratio.
MAX_DIFFERENCE = 0.10
SHORT_EDGE_PX = 315
TOO_LARGE_PX = 475


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """Encoded images in memory."""

    files: list[bytes]
    pixels: list[int]

    @property
    def megapixels(self) -> float:
        """Pixels of all files, in millions."""
        return sum(self.pixels) / 1e6

    @property
    def bytes_per_pixel(self) -> float:
        """All bytes by all pixels, not the mean over files."""
        return sum(map(len, self.files)) / sum(self.pixels)

    @property
    def mean_bytes(self) -> float:
        """Mean size of a file."""
        return fmean(map(len, self.files))

    @property
    def spread(self) -> list[float]:
        """Deciles 1, 3, 5, 7 and 9 of the bytes per pixel of single files."""
        return quantiles([len(file) / px for file, px in zip(self.files, self.pixels, strict=True)], n=10)[::2]


def corpus(files: list[bytes]) -> Corpus:
    headers = [parse_header(file) for file in files]
    return Corpus(files=files, pixels=[header.width * header.height for header in headers])


def photographs(folder: str, limit: int) -> Corpus:
    found = scan_folder(folder, limit_images=limit, limit_bytes=2**32, seed=0)
    images = [image for image in found.images if image.format == "jpeg"]
    files = [Path(image.path).read_bytes() for image in images]
    if median(min(image.width, image.height) for image in images) > TOO_LARGE_PX:
        files = [scaled(file) for file in files]
    return corpus(files)


def scaled(file: bytes) -> bytes:
    from PIL import Image

    picture = Image.open(io.BytesIO(file)).convert("RGB")
    scale = SHORT_EDGE_PX / min(picture.size)
    small = picture.resize((round(picture.width * scale), round(picture.height * scale)), Image.Resampling.BICUBIC)
    buffer = io.BytesIO()
    small.save(buffer, "JPEG", quality=90, subsampling="4:2:0")
    return buffer.getvalue()


def decode_s(file: bytes) -> float:
    from PIL import Image

    start = time.perf_counter()
    with Image.open(io.BytesIO(file)) as picture:
        picture.convert("RGB")
    return time.perf_counter() - start


def decode_times(real: Corpus, synthetic: Corpus, rounds: int) -> tuple[list[list[float]], list[list[float]]]:
    """Seconds of every round and file of both sets; the sets alternate every 8 files, and so does which goes first."""
    both = (real, synthetic)
    times: tuple[list[list[float]], list[list[float]]] = ([], [])
    for turn in range(rounds + 1):
        for side in (0, 1):
            times[side].append([])
        for start in range(0, max(len(real.files), len(synthetic.files)), 8):
            for side in (0, 1) if (turn + start // 8) % 2 else (1, 0):
                times[side][turn] += [decode_s(file) for file in both[side].files[start : start + 8]]
    return times[0][1:], times[1][1:]  # the first round only warms the caches


def fastest_ms_per_megapixel(times: list[list[float]], images: Corpus) -> float:
    fastest_s = [min(seconds[place] for seconds in times) for place in range(len(images.files))]
    return 1e3 * sum(fastest_s) / images.megapixels


def main(options: Namespace) -> bench.Result:
    count, rounds = (100, 9) if options.quick else (400, 31)
    real = photographs(options.photos, count) if options.photos else None
    synthetic = corpus([make_jpeg(PROFILES["caltech256"], 0, number) for number in range(count)])
    size_reference = real.bytes_per_pixel if real else PUBLISHED_BYTES_PER_PIXEL
    ratios = {"bytes per pixel": synthetic.bytes_per_pixel / size_reference}
    numbers: dict[str, object] = {
        "synthetic": described(synthetic),
        "reference": described(real) if real else "published",
    }
    if real is None:
        ratios["bytes per file"] = synthetic.mean_bytes / PUBLISHED_MEAN_BYTES
    else:
        ratios["decode time per megapixel"], times = decode_ratio(real, synthetic, rounds)
        numbers |= times
    rows = [line("synthetic", synthetic)] + ([line("real", real)] if real else [])
    print(bench.table(["set", "files", "mean KB", "mean MP", "B/px", "deciles 1 3 5 7 9 of B/px"], rows) + "\n")
    for name, ratio in ratios.items():
        print(f"{name}: {ratio:.3f} of the {'photographs' if real else 'published figure'} (0.90 to 1.10 promised)")
    holds = all(abs(ratio - 1) <= MAX_DIFFERENCE for ratio in ratios.values())
    return bench.Result(holds, {"ratios": ratios, **numbers})


def decode_ratio(real: Corpus, synthetic: Corpus, rounds: int) -> tuple[float, dict[str, object]]:
    """Decode time per megapixel, synthetic / real, and the times; on the highest-numbered core alone."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(cores)})
    times = decode_times(real, synthetic, rounds)
    os.sched_setaffinity(0, cores)
    scale = real.megapixels / synthetic.megapixels
    each = [scale * sum(synthetic_s) / sum(real_s) for real_s, synthetic_s in zip(*times, strict=True)]
    low, *_, high = quantiles(each, n=20)
    real_ms, synthetic_ms = (fastest_ms_per_megapixel(*pair) for pair in zip(times, (real, synthetic), strict=True))
    ratio = synthetic_ms / real_ms
    print(f"decode: real {real_ms:.2f} ms/MP, synthetic {synthetic_ms:.2f} ms/MP, ratio {ratio:.3f} "
          f"(single rounds: {low:.3f} to {high:.3f}, {rounds} of them)\n")  # fmt: skip
    return ratio, {
        "decode_ms_per_megapixel": {"real": real_ms, "synthetic": synthetic_ms},
        "decode_ratio_of_rounds_p5_p95": [low, high],
    }  # fmt: skip


def described(images: Corpus) -> dict[str, object]:
    return {
        "files": len(images.files), "mean_bytes": images.mean_bytes, "megapixels": images.megapixels,
        "bytes_per_pixel": images.bytes_per_pixel, "bytes_per_pixel_deciles_1_3_5_7_9": images.spread,
    }  # fmt: skip


def line(name: str, images: Corpus) -> list[str]:
    count = len(images.files)
    return [
        name, str(count), f"{images.mean_bytes / 1e3:.1f}", f"{images.megapixels / count:.3f}",
        f"{images.bytes_per_pixel:.3f}", " ".join(f"{value:.2f}" for value in images.spread),
    ]  # fmt: skip


if __name__ == "__main__":
    bench.run(main, __file__, __doc__, photos="a folder of real photographs (JPEG); nothing is downloaded without it")
