"""Is ``pipetune pack`` faster than what people pack with today, and does it use the cores that it has?

Promise: images are made smaller and packed at 1.5 times the rate of others' packers, and copied at 0.8 of cp's.

ImageNet-like photographs are packed with a shorter edge of 256 px and quality 90, in turn

1. by pipetune with as many threads as there are cores, and with one: the promise holds where all cores give at least
   0.85 times the number of cores of what one thread gives;
2. by ``webdataset.ShardWriter`` with Pillow, in as many processes as there are cores, each with shards of its own, with
   the same filter and chroma sampling; by ``litdata.optimize`` with the same function and as many workers; and by
   MXNet's ``im2rec.py --resize 256 --quality 90`` with as many threads (its filter is bilinear, without antialiasing):
   those that are installed; ``--im2rec "PYTHON SCRIPT"`` names the last one. It holds where the rate is at least 1.5
   times each of theirs;
3. as they are: at least 0.8 times the rate of ``cp -r`` of the same files, all in the page cache, both brought to the
   disk with ``sync``.

``--quick`` takes about 2 minutes, the full run about 10.
"""

from __future__ import annotations

import importlib.util
import io
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import bench

IMAGES, QUICK_IMAGES, BLOCKS, QUICK_BLOCKS = 4000, 1000, 7, 3
EDGE, QUALITY = 256, 90
SCALES, FASTER, COPIES = 0.85, 1.5, 0.8
#: Folder -> what packs into it.
Way = Callable[[Path], Callable[[], object]]


def main(options: Namespace) -> bench.Result:
    from pipetune.datasets.index import read_index
    from pipetune.machine.host import usable_cores

    cores = max(1, int(usable_cores()))
    with tempfile.TemporaryDirectory(prefix="pipetune-peers-") as scratch:
        folder = Path(scratch)
        count = QUICK_IMAGES if options.quick else IMAGES
        conditions = bench.loader_setting(folder, f"synthetic:imagenet-real?n={count}", seconds=1.0, rate=1000)
        source = Path(read_index(conditions.workload.index_path).root)
        ways: dict[str, Way] = {
            f"pipetune, {cores} threads": lambda out: planned(source, out, cores, EDGE),
            "pipetune, one thread": lambda out: planned(source, out, 1, EDGE),
            "pipetune, as they are": lambda out: planned(source, out, cores, None),
            "cp -r": lambda out: lambda: copy(source, out),
        }
        peers = peers_of(source, cores, options.im2rec)
        rates = in_turn({**ways, **peers}, folder, count, QUICK_BLOCKS if options.quick else BLOCKS)
    ours, one, copied = (rates[name] for name in list(ways)[:3])
    print(bench.table(["", "images/s, as a share of pipetune's"],
                      [[name, bench.ratio_text(ratios(found, ours))] for name, found in rates.items()]))  # fmt: skip
    checks = {
        f"of {cores} x one thread": (ratios(ours, one, cores), SCALES),
        "of cp": (ratios(copied, rates["cp -r"]), COPIES),
    }
    checks |= {f"of {name}": (ratios(ours, rates[name]), FASTER) for name in peers}
    broken = []
    for text, (found, least) in checks.items():
        holds = median(found) >= least
        print(f"{bench.ratio_text(found)} {text} (at least {least}): {bench.yes(holds)}")
        if not holds:
            broken.append(f"{bench.ratio_text(found)} {text}")
    if not peers:
        raise bench.Skipped("no peer is installed: pip install webdataset")
    return bench.Result(not broken, {"images": count, "cores": cores, "rates": rates, "broken": broken})


def ratios(found: Sequence[float], others: Sequence[float], factor: float = 1.0) -> list[float]:
    """Turn by turn."""
    return [one / other / factor for one, other in zip(found, others, strict=True)]


def in_turn(ways: dict[str, Way], folder: Path, count: int, blocks: int) -> dict[str, list[float]]:
    """Images per second of each way, in random order in each block; getting ready for it does not count."""
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for block in range(blocks):
        for name in random.Random(block).sample(list(ways), len(ways)):
            out = folder / "out"
            pack = ways[name](out)
            os.sync()
            began = time.monotonic()
            pack()
            os.sync()
            rates[name].append(count / (time.monotonic() - began))
            shutil.rmtree(out)
    return rates


def planned(source: Path, out: Path, threads: int, edge: int | None) -> Callable[[], object]:
    """A pack of pipetune's whose plan is made."""
    from pipetune.packing.options import PackOptions, Pixels
    from pipetune.packing.prepare import PackObserver, prepare
    from pipetune.packing.run import write

    pixels = Pixels() if edge is None else Pixels(mode="shorter-edge", edge=edge, quality=QUALITY)
    options = PackOptions(
        source=str(source), out=out, pixels=pixels, threads=threads, verify="none", shard_bytes=32 << 20
    )
    (one,) = prepare(options, PackObserver(), cores=float(threads))
    return lambda: write(one, options, PackObserver())


def copy(source: Path, out: Path) -> None:
    """Copy all files."""
    subprocess.run(["cp", "-r", str(source), str(out)], check=True)


def smaller(path: str) -> bytes:
    """The same by Pillow."""
    from PIL import Image, JpegImagePlugin

    with Image.open(path) as image:
        sampling = JpegImagePlugin.get_sampling(image)
        picture = image.convert("RGB")
    now = min(picture.size)
    if now > EDGE:
        picture = picture.resize(
            (picture.width * EDGE // now, picture.height * EDGE // now), Image.Resampling.BICUBIC
        )  # fmt: skip
    out = io.BytesIO()
    picture.save(out, "JPEG", quality=QUALITY, subsampling=max(0, sampling))
    return out.getvalue()


def write_shards(paths: Sequence[str], labels: Sequence[int], pattern: str) -> None:
    """One process's part, with webdataset's writer."""
    import webdataset

    with webdataset.ShardWriter(pattern, maxsize=32 << 20, verbose=0) as sink:
        for number, (path, label) in enumerate(zip(paths, labels, strict=True)):
            sink.write({"__key__": f"{number:08d}", "jpg": smaller(path), "cls": label})


def peers_of(source: Path, cores: int, im2rec: str | None) -> dict[str, Way]:
    """Those that are installed."""
    paths = sorted(map(str, source.rglob("*.jpg")))
    names = sorted({Path(path).parent.name for path in paths})
    labels = [names.index(Path(path).parent.name) for path in paths]
    found: dict[str, Way] = {}

    def by_webdataset(out: Path) -> None:
        out.mkdir()
        parts = [(paths[one::cores], labels[one::cores], str(out / f"{one}-%06d.tar")) for one in range(cores)]
        with get_context("fork").Pool(cores) as pool:
            pool.starmap(write_shards, parts)

    def by_litdata(out: Path) -> None:
        import litdata

        litdata.optimize(fn=_sample, inputs=list(zip(paths, labels, strict=True)), output_dir=str(out),
                         num_workers=cores, chunk_bytes="32MB")  # fmt: skip

    def by_im2rec(out: Path) -> None:
        out.mkdir()
        words = (im2rec or "").split()
        subprocess.run(
            [*words, "--list", "--recursive", str(out / "set"), str(source)], check=True, capture_output=True
        )
        subprocess.run([*words, "--resize", str(EDGE), "--quality", str(QUALITY), "--num-thread", str(cores),
                        str(out / "set"), str(source)], check=True, capture_output=True)  # fmt: skip

    if importlib.util.find_spec("webdataset") is not None:
        found["webdataset with Pillow"] = lambda out: lambda: by_webdataset(out)
    if importlib.util.find_spec("litdata") is not None:
        found["litdata with Pillow"] = lambda out: lambda: by_litdata(out)
    if im2rec:
        found["im2rec"] = lambda out: lambda: by_im2rec(out)
    return found


def _sample(pair: tuple[str, int]) -> dict[str, object]:
    return {"image": smaller(pair[0]), "label": pair[1]}


if __name__ == "__main__":
    bench.run(main, __file__, __doc__, im2rec='MXNet\'s writer: "PYTHON SCRIPT"')
