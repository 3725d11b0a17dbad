"""What does a pack bring, and does it come as its plan said?

Promise: images of 256 px load 2.5 times as fast, pixels 3 times as fast as with jpeg-roi, and a plan comes true.

ImageNet-like photographs are packed as WebDataset shards. Then

1. the same loader is measured with the source and with the pack, in turn, for several decoders with one worker and
   batches in memory that is used again: the promise holds where the largest of the median ratios is at least 2.5;
2. in the same way, pixels of 256 x 256 are loaded at least 3 times as fast by jpeg-roi as the source;
3. packs of shorter edges of 160, 256 and 352 px, of copies, without loss and of pixels: bytes are within 5 % of the
   plan's, the time is within 15 %, and of two of them the rate of a training is within 10 %, each in the median of
   three packs, whose extremes stand beside it;
4. crops at a shorter edge of 352 px and quality 90: nine of ten are at least 40 dB from the source's. Beside it stands
   the same of photographs of 500 x 375 px alone: large ones lose more, because their crops are made smaller twice; and
   of the same images made smaller by Pillow, once with the same quality and chroma and once without any loss,
   which is the most that so many pixels can keep.

``--quick`` takes about 6 minutes, the full run about 25.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import tempfile
from argparse import Namespace
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import bench

IMAGES, QUICK_IMAGES = 6000, 1500
GAIN, RAW_GAIN, BYTES, SECONDS, RATE, PSNR_DB = 2.5, 3.0, 0.05, 0.15, 0.1, 40.0
BLOCKS, QUICK_BLOCKS, TURNS = 6, 3, 3
CASES: dict[str, dict[str, Any]] = {
    "160 px": {"mode": "shorter-edge", "edge": 160}, "256 px": {"mode": "shorter-edge", "edge": 256},
    "352 px": {"mode": "shorter-edge", "edge": 352}, "as they are": {}, "without loss": {"mode": "lossless"},
    "pixels": {"mode": "shorter-edge", "edge": 256, "raw": True, "enlarge": True},
}  # fmt: skip
LOADERS = ("pillow", "opencv", "simplejpeg", "jpeg-roi")
GAIN_OF, FIDELITY_OF, RAW, ROI = "256 px", "352 px", "pixels", "jpeg-roi"
#: What Pillow writes of the images that it has made smaller, and of how many images.
ENCODINGS: dict[str, dict[str, Any]] = {
    "quality 90": {"format": "JPEG", "quality": 90}, "without loss": {"format": "PNG", "compress_level": 1},
}  # fmt: skip
COMPARED = 200
#: Packs of which the rate of a training is predicted, with the loader that is measured.
TRAINED = {"256 px": "pillow-w1-p2-b32", "pixels": "jpeg-roi-w1-p2-b32-reuse-u8"}


def main(options: Namespace) -> bench.Result:
    from pipetune.datasets.index import read_index

    with tempfile.TemporaryDirectory(prefix="pipetune-gain-") as scratch:
        folder = Path(scratch)
        count = QUICK_IMAGES if options.quick else IMAGES
        conditions = bench.loader_setting(folder, f"synthetic:imagenet-real?n={count}", seconds=3.0, rate=100_000)
        source = Path(read_index(conditions.workload.index_path).root)
        rows, cases = [], {}
        turns = packed_in_turn(source, folder, 1 if options.quick else TURNS)
        for name, packs in turns.items():
            found = cases[name] = typical(packs)
            rows.append([
                name, f"{found['bytes'] / found['source_bytes']:.2f}", shown_error(packs, "bytes_error"),
                shown_error(packs, "seconds_error"), found["limited_by"], shown_error(packs, "rate_error"),
                "-" if found["psnr_db"] is None else f"{found['psnr_db']:.1f}, {found['psnr_db_10']:.1f} dB",
            ])  # fmt: skip
        print(
            bench.table(
                ["pack", "bytes", "from the plan", "time from it", "limit", "rate from it", "PSNR: mean, 10 %"], rows
            )
        )
        blocks = QUICK_BLOCKS if options.quick else BLOCKS
        smaller = folder / GAIN_OF.replace(" ", "-")
        ratios = {name: gains(name, conditions, smaller, blocks) for name in LOADERS}
        raw = gains(ROI, conditions, folder / RAW, blocks)
        raw_to_smaller = gains(ROI, over(conditions, smaller), folder / RAW, blocks)
        same_size = fidelity_of_one_size(folder, count)
        by_pillow = {name: fidelity_by_pillow(source, encoding) for name, encoding in ENCODINGS.items()}
    print(f"{FIDELITY_OF}, photographs of 500 x 375 px: {same_size[0]:.1f}, {same_size[1]:.1f} dB")
    for name, (mean, tenth) in by_pillow.items():
        print(f"{FIDELITY_OF}, made smaller by Pillow, {name}: {mean:.1f}, {tenth:.1f} dB")
    for name, gained in ratios.items():
        print(f"{GAIN_OF} / source, {name}: {bench.ratio_text(gained)}")
    print(f"{RAW} / source, {ROI}: {bench.ratio_text(raw)}")
    print(f"{RAW} / {GAIN_OF}, {ROI}: {bench.ratio_text(raw_to_smaller)}")
    most = max(median(gained) for gained in ratios.values())
    broken = [
        f"{name}: bytes {one['bytes_error']:+.1%}" for name, one in cases.items() if abs(one["bytes_error"]) > BYTES
    ]
    broken += [
        f"{name}: time {one['seconds_error']:+.1%}"
        for name, one in cases.items()
        if abs(one["seconds_error"]) > SECONDS
    ]
    if most < GAIN:
        broken.append(f"{GAIN_OF} is at most {most:.2f} times as fast")
    if median(raw) < RAW_GAIN:
        broken.append(f"{RAW} are {median(raw):.2f} times as fast as the source with {ROI}")
    broken += [
        f"{name}: rate {one['rate_error']:+.1%}"
        for name, one in cases.items()
        if one["rate_error"] is not None and abs(one["rate_error"]) > RATE
    ]
    if cases[FIDELITY_OF]["psnr_db_10"] < PSNR_DB:
        broken.append(f"crops at {FIDELITY_OF}: 10th percentile {cases[FIDELITY_OF]['psnr_db_10']:.1f} dB")
    for text in broken:
        print(f"does not hold: {text}")
    return bench.Result(not broken, {
        "cases": cases, "gain": ratios, "raw": raw, "raw_to_smaller": raw_to_smaller, "images": count, "broken": broken,
        "psnr_db_of_one_size": same_size, "psnr_db_by_pillow": by_pillow,
    })  # fmt: skip


def fidelity_of_one_size(folder: Path, count: int) -> tuple[float, float]:
    """PSNR of crops (dB), mean and 10th percentile, by the plan of a pack that is not written."""
    from pipetune.datasets.index import read_index
    from pipetune.packing.options import PackOptions, Pixels
    from pipetune.packing.prepare import PackObserver, prepare

    place = folder / "one-size"
    place.mkdir()
    conditions = bench.loader_setting(place, f"synthetic:imagenet?n={count}", seconds=1.0, rate=1000)
    options = PackOptions(
        source=str(Path(read_index(conditions.workload.index_path).root)), out=place / "pack",
        pixels=Pixels(**CASES[FIDELITY_OF]), shard_bytes=32 << 20, threads=1, verify="none", format="webdataset",
    )  # fmt: skip
    (one,) = prepare(options, PackObserver(), cores=1, keep=False)
    assert one.plan.fidelity is not None
    return one.plan.fidelity.psnr_db, one.plan.fidelity.psnr_db_10


def fidelity_by_pillow(source: Path, encoding: dict[str, Any]) -> tuple[float, float]:
    """PSNR of crops (dB), mean and 10th percentile, of some images that Pillow has made smaller."""
    import io

    from PIL import Image, JpegImagePlugin

    from pipetune.packing.fidelity import compare_crops

    edge = CASES[FIDELITY_OF]["edge"]
    pairs = []
    for path in random.Random(0).sample(sorted(source.rglob("*.jpg")), COMPARED):
        with Image.open(path) as image:
            if min(image.size) <= edge:
                continue
            scale = edge / min(image.size)
            size = (round(image.width * scale), round(image.height * scale))
            smaller = io.BytesIO()
            sampling = JpegImagePlugin.get_sampling(image)
            chroma: dict[str, Any] = {"subsampling": sampling} if encoding["format"] == "JPEG" and sampling >= 0 else {}
            image.convert("RGB").resize(size, Image.Resampling.LANCZOS).save(smaller, **encoding, **chroma)
        pairs.append((path.read_bytes(), smaller.getvalue()))
    found = compare_crops(pairs, 224)
    assert found is not None
    return found.psnr_db, found.psnr_db_10


def packed_in_turn(source: Path, folder: Path, turns: int) -> dict[str, list[dict[str, Any]]]:
    """Each pack so many times, with the others in between: a machine is slow for seconds at a time."""
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in CASES}
    for turn in range(turns):
        for name, pixels in CASES.items():
            out = folder / name.replace(" ", "-")
            if turn:
                shutil.rmtree(out)
            found[name].append(packed(source, out, pixels, TRAINED.get(name)))
    return found


def typical(packs: list[dict[str, Any]]) -> dict[str, Any]:
    """The last one, with the median of the errors of all, and each of them."""
    errors: dict[str, Any] = {}
    for name in ("bytes_error", "seconds_error", "rate_error"):
        known = [pack[name] for pack in packs if pack[name] is not None]
        errors[name], errors[f"{name}s"] = median(known) if known else None, known
    return {**packs[-1], **errors}


def shown_error(packs: list[dict[str, Any]], name: str) -> str:
    known = [pack[name] for pack in packs if pack[name] is not None]
    if not known:
        return "-"
    return f"{median(known):+.1%}" + (f" ({min(known):+.0%} to {max(known):+.0%})" if len(known) > 1 else "")


def packed(source: Path, out: Path, pixels: dict[str, Any], trained: str | None) -> dict[str, Any]:
    """Pack, and compare with the plan."""
    from pipetune.machine.host import usable_cores
    from pipetune.packing.gain import GainOptions, measured_gains
    from pipetune.packing.options import PackOptions, Pixels
    from pipetune.packing.prepare import PackObserver, prepare
    from pipetune.packing.run import write

    cores = usable_cores()
    options = PackOptions(
        source=str(source), out=out, pixels=Pixels(**pixels), shard_bytes=32 << 20, threads=max(1, int(cores)),
        verify="none", format="raw" if pixels.get("raw") else "webdataset",
    )  # fmt: skip
    gain = None
    if trained is not None:
        gain = GainOptions(device="emulated:100000", candidate=trained, raw=bool(pixels.get("raw")))
    os.sync()  # or the disk is still busy with the pack before
    (one,) = prepare(options, PackObserver(), cores=cores, gain=gain)
    result = write(one, options, PackObserver())
    if gain is not None:
        (measured,) = measured_gains(str(source), [out], gain, PackObserver().on_stage)
        result = replace(result, gain=measured)
    fidelity = one.plan.fidelity
    return {
        "source_bytes": one.plan.source_bytes, "bytes": result.total_bytes, "seconds": result.seconds,
        "bytes_error": one.plan.total_bytes / result.total_bytes - 1,
        "seconds_error": one.plan.seconds / result.seconds - 1, "limited_by": one.plan.limited_by,
        "inside": one.plan.total_bytes_ci95[0] <= result.total_bytes <= one.plan.total_bytes_ci95[1],
        "psnr_db": None if fidelity is None else fidelity.psnr_db,
        "psnr_db_10": None if fidelity is None else fidelity.psnr_db_10,
        "decode_time_frac": one.plan.decode_time_frac,
        "rate_error": None if one.plan.gain is None or result.gain is None
        else one.plan.gain.after_samples_per_s / result.gain.after_samples_per_s - 1,
        "gain": None if result.gain is None else asdict(result.gain),
    }  # fmt: skip


def over(conditions: Any, pack: Path) -> Any:
    """The same conditions with the images of a pack."""
    from pipetune.datasets.index import write_index
    from pipetune.datasets.open_dataset import open_dataset

    images = open_dataset(str(pack), seed=0, limit_bytes=1 << 40, workers=1)
    index = pack / "index-of-benchmark.json"
    write_index(str(index), images)
    return replace(conditions, workload=replace(conditions.workload, index_path=str(index)), paths=images.files)


def gains(backend: str, conditions: Any, pack: Path, blocks: int) -> list[float]:
    """Rates with the pack as a share of those with the source, in turn."""
    from pipetune.measure.harness import measure
    from pipetune.records.sweep import Candidate

    both = {"source": conditions, "pack": over(conditions, pack)}
    # In memory that is used again: new memory for each batch takes a millisecond per image, which no pack changes.
    candidate = Candidate(
        backend=backend, num_workers=1, prefetch_depth=2, batch_size=32, transfer="uint8", reuse_buffers=True
    )
    ratios = []
    for block in range(blocks):
        rates = {}
        for name in random.Random(block).sample(sorted(both), 2):
            outcome, _ = measure(candidate, "candidate", both[name])
            if outcome.measurement is None:
                raise SystemExit(f"{name}: {outcome.failure}")
            rates[name] = outcome.measurement.samples_per_s
        ratios.append(rates["pack"] / rates["source"])
    return ratios


if __name__ == "__main__":
    bench.run(main, __file__, __doc__)
