"""Stage ``parity``: are pictures decoded on the GPU right, and do they stay right?

Pictures: DALI decoding on the GPU, and torchvision on the CPU for comparison, against Pillow, for the same windows of
the same photographs, and of one photograph in the shapes that decoders are known to differ on.

Stability: the same epoch is decoded again and again, and each batch is compared bit for bit with its first version:
when the device is idle, which shows a batch that is handed out half written; and behind queued work, which shows one
that is overwritten too early. Earlier batches are held and compared with their own copies at the end. In two more
rounds each batch is released while its copy still waits in the queue. The loader holds it until the copy has ended
(``pipetune/loaders/dali.py``); in the last round it does not, and differences show that it has to.
"""

from __future__ import annotations

import contextlib
import itertools
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from PIL import Image

from benchmarks import bench
from benchmarks.gpu.leasing.findings import Findings
from benchmarks.gpu.workloads import accelerator_of_device, begin_as_sweep, gpu_decoders
from pipetune.datasets.index import ImageSet
from pipetune.loaders.open_loader import open_loader
from pipetune.loaders.order import EndlessOrder
from pipetune.records.sweep import Workload
from pipetune.registry import BACKENDS, DALI, min_workers
from tests.photo_set import PHOTOS, candidate, scan, workload

#: Mean absolute difference of one image in normalised units (1 is about 58 grey levels): photographs, odd shapes.
LARGEST = {"torchvision": (0.05, 0.2), "dali": (0.15, 0.2)}
#: Of other backends.
LARGEST_OF_OTHERS = (0.15, 0.2)
#: Windows per picture.
_CROPS = 4
_BATCH, _BATCHES, _REPEATS = 16, 8, 6
#: The round in which batches may differ: it shows that the test finds what it looks for. DALI's loader alone has a
#: hand-over that can be left out.
_NOT_HELD = "released early, not held"


def run_stage(findings: Findings) -> None:
    """Compare pictures with the reference, then batches with their first versions, of each decoder on the GPU."""
    where = workload(accelerator=accelerator_of_device(findings.device, findings.index))
    decoders = [backend.name for backend in gpu_decoders(findings.is_cuda)]
    with tempfile.TemporaryDirectory() as folder:
        save_variants(Path(folder))
        compare_pictures(findings, "torchvision", workload(), Path(folder))
        for backend in decoders:
            compare_pictures(findings, backend, where, Path(folder))
    for number, backend in enumerate(decoders):
        try:
            stability(findings, backend, where, findings.remaining_s / (len(decoders) - number))
        except Exception as error:  # the pictures are a result of their own
            findings.report_problem(f"{backend}, the same batches again: {type(error).__name__}: {str(error)[:300]}")


def compare_pictures(findings: Findings, backend: str, setting: Workload, variants: Path) -> None:
    """Pictures of one backend against Pillow's: photographs, and the shapes in the folder."""
    rows: dict[str, dict[str, Any]] = {}
    for number, root in enumerate((PHOTOS, variants)):
        limit = LARGEST.get(backend, LARGEST_OF_OTHERS)[number]
        differences = compare(backend, setting, scan(root))
        rows |= differences
        findings.keep(f"pictures_{backend}", rows)
        findings.say(*picture_table(backend, differences))
        findings.report_problem(*(f"{backend}, {problem}" for problem in list_problems(differences, limit)))


def list_problems(rows: dict[str, dict[str, Any]], limit: float) -> list[str]:
    """Pictures that differ by more than the limit, and errors, each with its pictures."""
    problems = [
        f"{picture}: mean difference {row['mean']}" for picture, row in rows.items() if row.get("mean", 0) > limit
    ]
    errors: dict[str, list[str]] = {}
    for picture, row in rows.items():
        if "error" in row:
            errors.setdefault(row["error"], []).append(picture)
    return [*problems, *(f"{', '.join(pictures)}: {error}" for error, pictures in errors.items())]


def save_variants(folder: Path) -> None:
    """One photograph in the shapes that decoders are known to differ on."""
    photo = Image.open(PHOTOS / "people" / "chelsea.jpg").convert("RGB")
    exif = Image.Exif()
    exif[0x0112] = 6
    photo.save(folder / "exif6.jpg", quality=95, exif=exif)
    photo.convert("L").save(folder / "grey.jpg", quality=95)
    photo.convert("CMYK").save(folder / "cmyk.jpg", quality=95)
    photo.save(folder / "progressive.jpg", quality=95, progressive=True)
    photo.save(folder / "sub444.jpg", quality=95, subsampling=0)
    photo.save(folder / "lossless.png")
    photo.save(folder / "lossy.webp", quality=90)
    grey = photo.convert("L")
    wide = Image.frombytes("I;16", grey.size, b"".join(bytes((value, value)) for value in grey.tobytes()))
    wide.save(folder / "sixteen_bit.png")


def compare(backend: str, setting: Workload, images: ImageSet) -> dict[str, dict[str, Any]]:
    """Picture -> differences. Where one cannot be decoded, each is decoded alone, so that no other is hidden."""
    try:
        return compare_together(backend, setting, images)
    except Exception as error:  # whatever the library raises
        if len(images.images) == 1:
            return {Path(images.images[0].path).name: {"error": f"{type(error).__name__}: {str(error)[:300]}"}}
    rows = {}
    for image in images.images:
        rows.update(compare(backend, setting, replace(images, images=(image,))))
    return rows


def compare_together(backend: str, setting: Workload, images: ImageSet) -> dict[str, dict[str, Any]]:
    count = len(images.images)
    ours = decode(backend, setting, images)
    reference = decode("pillow", workload(), images)
    indices = itertools.islice(EndlessOrder(count, count, setting.seed), _CROPS)
    rows: dict[str, dict[str, Any]] = {}
    for batch, mine, theirs in zip(indices, ours, reference, strict=True):
        for index, one, other in zip(batch, mine, theirs, strict=True):
            difference = (one - other).abs()
            row = rows.setdefault(Path(images.images[index % count].path).name, {"mean": 0.0, "max": 0.0})
            row["mean"] = round(row["mean"] + float(difference.mean()) / _CROPS, 5)
            row["max"] = round(max(row["max"], float(difference.max())), 4)
    return dict(sorted(rows.items()))


def decode(backend: str, setting: Workload, images: ImageSet) -> list[torch.Tensor]:
    """A few batches of all images, on the CPU."""
    workers = 2 if min_workers(BACKENDS[backend]) else 0
    loader = open_loader(begin_as_sweep(candidate(backend, workers, len(images.images))), setting, images)
    try:
        return [batch.images.cpu().clone() for batch in itertools.islice(iter(loader), _CROPS)]
    finally:
        loader.close()


def picture_table(backend: str, rows: dict[str, dict[str, Any]]) -> list[str]:
    cells = [[name, *(str(row.get(key, "-")) for key in ("mean", "max"))] for name, row in rows.items()]
    return bench.table([f"{backend} against Pillow", "mean", "max"], cells).splitlines()


def stability(findings: Findings, backend: str, where: Workload, limit_s: float) -> None:
    """Decode the same epoch again and again; see the module."""
    images = scan(PHOTOS)
    setting = replace(where, cache="cold")  # one epoch, so that a new loader begins with the same batches
    many = replace(images, images=images.images * (_BATCH * _BATCHES // len(images.images)))
    queue = queued_work(where)
    first: list[torch.Tensor] = []
    rounds: list[tuple[str, Callable[[], None], bool]] = [
        ("idle", lambda: None, True),
        ("busy", queue, True),
        ("released early", queue, False),
    ]
    if backend == DALI:
        rounds.append((_NOT_HELD, queue, False))
    longest_s = 0.0
    for mode, work, hold in rounds:
        if (before_s := findings.remaining_s) < longest_s:
            findings.report_unproven(f"{backend}, {mode}", "there was no time left")
            continue
        with handing_out_memory_as_it_is() if mode == _NOT_HELD else contextlib.nullcontext():
            row = repeat_epoch(
                backend, setting, many, _REPEATS, first, work, hold=hold, limit_s=limit_s / (len(rounds) + 1)
            )
        longest_s = max(longest_s, before_s - findings.remaining_s)
        findings.keep(f"stability_{backend}_{mode.replace(', ', '_').replace(' ', '_')}", row)
        findings.say(f"{backend}, {mode}: " + ", ".join(f"{key} {value}" for key, value in row.items()))
        if mode != _NOT_HELD and (row["unlike_the_first"] or row["changed_while_held"]):
            findings.report_problem(f"{backend}, {mode}: batches that were decoded on the GPU changed")


def handing_out_memory_as_it_is() -> contextlib.AbstractContextManager[object]:
    """While the block runs, DALI's loader hands out DALI's memory without a guard."""
    return mock.patch("pipetune.loaders.dali.handed_over", lambda batches, device_index: batches)


def queued_work(where: Workload) -> Callable[[], None]:
    """A function that puts tens of milliseconds of work into the stream on which the batches are read."""
    if where.accelerator.kind != "cuda":
        small = torch.randn(256, 256)

        def compute() -> None:
            for _ in range(10):
                small @ small

        return compute
    a = torch.randn(8192, 8192, device=f"cuda:{where.accelerator.device_index}", dtype=torch.bfloat16)
    b = torch.empty_like(a)

    def work() -> None:
        for _ in range(30):
            torch.matmul(a, a, out=b)

    return work


def repeat_epoch(
    backend: str,
    setting: Workload,
    images: ImageSet,
    repeats: int,
    first: list[torch.Tensor],
    work: Callable[[], None],
    *,
    hold: bool,
    limit_s: float,
) -> dict[str, Any]:
    """Decode the epoch ``repeats`` times, as far as the time goes.

    Args:
        first: every batch as it should be; filled by the first epoch.
    """
    counts, began = {"epochs": 0, "batches": 0, "unlike_the_first": 0, "changed_while_held": 0}, time.monotonic()
    largest = 0.0
    for _ in range(repeats):
        if time.monotonic() - began > limit_s and counts["epochs"]:
            break
        loader = open_loader(begin_as_sweep(candidate(backend, 2, _BATCH)), setting, images)
        held, copies = [], []
        stream = iter(loader)
        while True:
            work()  # in the queue before the batch is asked for, as a training step is
            batch = next(stream, None)
            if batch is None:
                break
            if not hold:
                work()
            copies.append(batch.images.clone())
            held += [batch.images] if hold else []
            del batch
        loader.close()
        first += copies if not first else []
        if len(copies) != len(first):
            raise RuntimeError(f"an epoch had {len(copies)} batches, the first one {len(first)}")
        counts["epochs"] += 1
        counts["batches"] += len(copies)
        for copy, wanted in zip(copies, first, strict=True):
            if not torch.equal(copy, wanted):
                counts["unlike_the_first"] += 1
                largest = max(largest, float((copy - wanted).abs().max()))
        counts["changed_while_held"] += sum(not torch.equal(now, then) for now, then in zip(held, copies, strict=False))
    return {**counts, "largest_difference": round(largest, 4)}
